//! The servers that a scenario runs on.

use std::collections::BTreeMap;

use test_support::{Options, ZooKeeper};

use crate::Error;

/// What stands behind a connect string.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ensemble {
    /// One ZooKeeper server.
    One,
    /// Three members.
    Three,
}

/// The servers that run, started when a scenario needs them first.
#[derive(Debug, Default)]
pub(crate) struct Servers {
    running: BTreeMap<Ensemble, ZooKeeper>,
}

impl Servers {
    /// Starts what is needed for an ensemble, unless it runs.
    pub(crate) fn start(&mut self, ensemble: Ensemble) -> Result<(), Error> {
        if let std::collections::btree_map::Entry::Vacant(place) = self.running.entry(ensemble) {
            let options = Options::new().jvm_arg("-Xmx512m").jvm_arg("-XX:TieredStopAtLevel=4");
            place.insert(match ensemble {
                Ensemble::One => ZooKeeper::standalone(&options)?,
                Ensemble::Three => ZooKeeper::ensemble(3, &options)?,
            });
        }
        Ok(())
    }

    /// Where a worker connects.
    pub(crate) fn connect_string(&self, ensemble: Ensemble) -> Result<String, Error> {
        Ok(self.running.get(&ensemble).ok_or("these servers do not run")?.connect_string())
    }

    /// The process numbers of all servers.
    pub(crate) fn ids(&self) -> Vec<u32> {
        self.running.values().flat_map(|servers| (0..servers.len()).filter_map(|i| servers.pid(i))).collect()
    }

    /// How many packets the members of an ensemble have received of their clients.
    pub(crate) fn packets_received(&self, ensemble: Ensemble) -> Result<u64, Error> {
        let servers = self.running.get(&ensemble).ok_or("these servers do not run")?;
        (0..servers.len()).map(|member| packets(&servers.four_letter(member, "mntr")?)).sum()
    }

    /// How many packets a question of [`packets_received`](Self::packets_received) is itself.
    pub(crate) fn packets_of_a_question(&self, ensemble: Ensemble) -> u64 {
        self.running.get(&ensemble).map_or(0, |servers| servers.len() as u64)
    }
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
