//! A holder that waits for a request to release is notified of it, and only if one was made.

use std::collections::BTreeMap;

/// The nodes whose holders are asked to stop.
#[derive(Debug, Default)]
pub struct Revoked {
    /// Since when a request is known to have been made; `None` if one may have been made.
    asked: BTreeMap<String, Option<u64>>,
}

impl Revoked {
    /// Records that a request is about to be sent.
    pub fn asks(&mut self, node: &str) {
        self.asked.entry(node.to_owned()).or_default();
    }

    /// Records that a request was answered.
    pub fn asked(&mut self, node: &str, now: u64) {
        let since = self.asked.entry(node.to_owned()).or_default();
        *since = since.or(Some(now));
    }

    /// Records that a lock that was held by some nodes is held by others from now on, with their
    /// requests.
    pub fn converted(&mut self, before: &[String], after: &[String]) {
        if self.notified(before).is_ok() {
            after.iter().for_each(|node| self.asks(node));
        }
    }

    /// Checks a notice to a holder that its release was requested.
    pub fn notified(&self, nodes: &[String]) -> Result<(), String> {
        match nodes.iter().any(|node| self.asked.contains_key(node)) {
            true => Ok(()),
            false => Err(format!(
                "was asked to stop, although no request exists for {nodes:?}"
            )),
        }
    }

    /// Checks that a holder of these nodes, which has waited since `since`, is notified within a
    /// limit.
    pub fn look(&self, now: u64, nodes: &[String], since: u64, limit: u64) -> Result<(), String> {
        let asked = nodes.iter().filter_map(|node| *self.asked.get(node)?).min();
        match asked {
            Some(asked) if now > asked.max(since) + limit => Err(format!(
                "expected notice of the request to stop {nodes:?}, which has been missing for {} ms",
                now - asked
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_missing_or_unrequested_revocation() {
        let node = ["/a".to_owned()];
        let mut revoked = Revoked::default();
        revoked.notified(&node).unwrap_err();
        revoked.asks("/a");
        revoked.notified(&node).unwrap();
        revoked.look(1_000, &node, 0, 10).unwrap();
        revoked.asked("/a", 1_000);
        revoked.look(1_010, &node, 0, 10).unwrap();
        revoked.look(1_011, &node, 0, 10).unwrap_err();
        revoked.look(1_011, &node, 1_005, 10).unwrap();
        revoked.converted(&node, &["/b".to_owned()]);
        revoked.notified(&["/b".to_owned()]).unwrap();
        revoked.converted(&["/c".to_owned()], &["/d".to_owned()]);
        revoked.notified(&["/d".to_owned()]).unwrap_err();
    }
}
