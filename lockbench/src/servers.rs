//! The servers that a scenario runs on.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use test_support::{Options, ZooKeeper};

use crate::Error;
use crate::contender::Program;

/// Where servers keep their logs: on tmpfs, so that no disk is measured.
const DIRECTORY: &str = "/dev/shm";
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
    running: BTreeMap<Ensemble, ZooKeeper>,
}

impl Servers {
    /// Returns where a program connects. Starts what is not running.
    pub(crate) fn connect_string(&mut self, program: Program, place: Place) -> Result<String, Error> {
        if place.distant || !program.is_on_zookeeper() {
            return Err("not there yet".into());
        }
        Ok(self.start(place.ensemble)?.connect_string())
    }

    fn start(&mut self, ensemble: Ensemble) -> Result<&ZooKeeper, Error> {
        Ok(match self.running.entry(ensemble) {
            Entry::Occupied(servers) => servers.into_mut(),
            Entry::Vacant(vacant) => {
                // More than the tests', which run many servers at once.
                let options = Options::new().directory(DIRECTORY);
                let options = options.jvm_arg("-Xmx512m").jvm_arg("-XX:TieredStopAtLevel=4");
                vacant.insert(match ensemble {
                    Ensemble::One => ZooKeeper::standalone(&options)?,
                    Ensemble::Three => ZooKeeper::ensemble(3, &options)?,
                })
            }
        })
    }

    /// What the servers are.
    pub(crate) fn versions(&self) -> BTreeMap<String, String> {
        let version = self.running.values().next().and_then(ZooKeeper::version);
        version.map(|version| ("zookeeper".to_owned(), version.to_owned())).into_iter().collect()
    }

    /// The process numbers of all servers.
    pub(crate) fn ids(&self) -> Vec<u32> {
        self.running.values().flat_map(|servers| (0..servers.len()).filter_map(|i| servers.pid(i))).collect()
    }

    /// How many requests the members of an ensemble have received of their clients.
    pub(crate) fn requests(&self, ensemble: Ensemble) -> Result<u64, Error> {
        let servers = self.running.get(&ensemble).ok_or("these servers do not run")?;
        (0..servers.len()).map(|member| packets(&servers.four_letter(member, "mntr")?)).sum()
    }

    /// Returns what asks a server for its ephemeral nodes: the first member, if it is the only one.
    pub(crate) fn ephemerals(
        &self,
        ensemble: Ensemble,
    ) -> Option<impl Fn() -> Result<String, Error> + Send + 'static> {
        let address = self.running.get(&ensemble).filter(|servers| servers.len() == 1)?.address(0);
        Some(move || ask(address, "dump"))
    }

    /// How many of them are a question of [`requests`](Self::requests) itself.
    pub(crate) fn requests_of_a_question(&self, ensemble: Ensemble) -> u64 {
        self.running.get(&ensemble).map_or(0, |servers| servers.len() as u64)
    }
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
    let line = mntr.lines().find_map(|line| line.strip_prefix("zk_packets_received\t"));
    Ok(line.ok_or_else(|| format!("no zk_packets_received in {mntr:?}"))?.trim().parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packets_are_read() {
        let mntr = "zk_version\t3.8.0\nzk_packets_received\t4711\nzk_packets_sent\t5\n";
        assert_eq!(packets(mntr).unwrap(), 4711);
        assert!(packets("This ZooKeeper instance is not currently serving requests\n").is_err());
    }
}
