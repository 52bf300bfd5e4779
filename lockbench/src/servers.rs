//! The servers that a scenario runs on.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use test_support::{Options, Redis, ZooKeeper};

use crate::Error;
use crate::contender::Program;
use crate::proxy::DelayProxy;

/// Where servers keep their logs: on tmpfs, so that no disk is measured.
const DIRECTORY: &str = "/dev/shm";
/// How long what is sent to distant servers, or by them, is on its way.
const DISTANCE: Duration = Duration::from_millis(1);
/// How long a server may take to answer a four-letter word.
const PATIENCE: Duration = Duration::from_secs(5);

/// How many ZooKeeper servers there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ensemble {
    One,
    Three,
}

/// Which servers, and how far away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) ensemble: Ensemble,
    /// Whether what is sent arrives a millisecond later, in both directions.
    pub(crate) distant: bool,
}

/// The servers that run, started when a scenario needs them first.
#[derive(Debug, Default)]
pub(crate) struct Servers {
    // The proxies are dropped before the servers behind them.
    proxies: BTreeMap<SocketAddr, DelayProxy>,
    running: BTreeMap<Ensemble, ZooKeeper>,
    redis: Option<Redis>,
}

impl Servers {
    /// Returns where a program connects. Starts what is not running.
    pub(crate) fn connect_string(
        &mut self,
        program: Program,
        place: Place,
    ) -> Result<String, Error> {
        let addresses = match program.is_on_zookeeper() {
            true => {
                let servers = self.start(place.ensemble)?;
                (0..servers.len())
                    .map(|member| servers.address(member))
                    .collect()
            }
            false => vec![self.start_redis()?.address()],
        };
        let mut seen = Vec::with_capacity(addresses.len());
        for address in addresses {
            seen.push(
                if place.distant {
                    self.proxy(address)?
                } else {
                    address
                }
                .to_string(),
            );
        }
        Ok(seen.join(","))
    }

    fn start_redis(&mut self) -> Result<&Redis, Error> {
        let running = match self.redis.take() {
            Some(running) => running,
            None => Redis::start()?,
        };
        Ok(self.redis.insert(running))
    }

    /// Returns the address of the proxy in front of a server.
    fn proxy(&mut self, target: SocketAddr) -> Result<SocketAddr, Error> {
        Ok(match self.proxies.entry(target) {
            Entry::Occupied(proxy) => proxy.get().address(),
            Entry::Vacant(vacant) => vacant
                .insert(DelayProxy::start(target, DISTANCE)?)
                .address(),
        })
    }

    fn start(&mut self, ensemble: Ensemble) -> Result<&ZooKeeper, Error> {
        Ok(match self.running.entry(ensemble) {
            Entry::Occupied(servers) => servers.into_mut(),
            Entry::Vacant(vacant) => vacant.insert(match ensemble {
                Ensemble::One => ZooKeeper::standalone(&options())?,
                Ensemble::Three => ZooKeeper::ensemble(3, &options())?,
            }),
        })
    }

    /// Returns the versions of the servers.
    pub(crate) fn versions(&self) -> BTreeMap<String, String> {
        let version = self.running.values().next().and_then(ZooKeeper::version);
        let zookeeper = version.map(|version| ("zookeeper".to_owned(), version.to_owned()));
        let redis = self
            .redis
            .as_ref()
            .map(|redis| ("redis".to_owned(), redis.version().to_owned()));
        zookeeper.into_iter().chain(redis).collect()
    }

    /// Returns the process numbers of all servers.
    pub(crate) fn ids(&self) -> Vec<u32> {
        let members = self
            .running
            .values()
            .flat_map(|servers| (0..servers.len()).map(|i| servers.pid(i)));
        members
            .flatten()
            .chain(self.redis.as_ref().map(Redis::pid))
            .collect()
    }

    /// Returns how many requests the members of an ensemble have received of their clients.
    pub(crate) fn requests(&self, ensemble: Ensemble) -> Result<u64, Error> {
        let servers = self
            .running
            .get(&ensemble)
            .ok_or("these servers do not run")?;
        (0..servers.len())
            .map(|member| packets(&servers.four_letter(member, "mntr")?))
            .sum()
    }

    /// Returns what asks a server for its ephemeral nodes: the first member, if it is the only one.
    pub(crate) fn ephemerals(
        &self,
        ensemble: Ensemble,
    ) -> Option<impl Fn() -> Result<String, Error> + Send + 'static> {
        let address = self
            .running
            .get(&ensemble)
            .filter(|servers| servers.len() == 1)?
            .address(0);
        Some(move || ask(address, "dump"))
    }

    /// Returns how many of them are a question of [`requests`](Self::requests) itself.
    pub(crate) fn requests_of_a_question(&self, ensemble: Ensemble) -> u64 {
        self.running
            .get(&ensemble)
            .map_or(0, |servers| servers.len() as u64)
    }
}

/// Servers as in production, as far as one machine has room, and not the tests', of which many run
/// at once: half a gigabyte of heap each, taken at the start; all of Java's compilers; ZooKeeper's
/// own defaults for the tick, on which the heartbeats depend, for the limits, and for snapshots
/// (every 100,000 transactions). Only warnings are logged, and nothing is forced to a disk.
fn options() -> Options {
    Options::new()
        .directory(DIRECTORY)
        .tick(Duration::from_secs(2))
        .init_limit(10)
        .sync_limit(5)
        .jvm_arg("-Xms512m")
        .jvm_arg("-Xmx512m")
        .jvm_arg("-XX:TieredStopAtLevel=4")
        .jvm_arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
        // Logs grow in steps of 16 MiB.
        .jvm_arg("-Dzookeeper.preAllocSize=16384")
}

/// Returns a server's answer to a four-letter word.
fn ask(address: SocketAddr, word: &str) -> Result<String, Error> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(word.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Reads the answer to `mntr`.
fn packets(mntr: &str) -> Result<u64, Error> {
    let line = mntr
        .lines()
        .find_map(|line| line.strip_prefix("zk_packets_received\t"));
    Ok(line
        .ok_or_else(|| format!("no zk_packets_received in {mntr:?}"))?
        .trim()
        .parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_packet_counters() {
        let mntr = "zk_version\t3.8.0\nzk_packets_received\t4711\nzk_packets_sent\t5\n";
        assert_eq!(packets(mntr).unwrap(), 4711);
        assert!(packets("This ZooKeeper instance is not currently serving requests\n").is_err());
    }
}
