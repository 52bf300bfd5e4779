//! The state of the servers, as a client without a lock sees it.

use std::collections::BTreeSet;

use test_support::{SOON, ZooKeeper, poll_until};
use zookeeper_client as zk;

use super::{Failure, Outcome};

/// Returns the nodes below a path; none if the path does not exist.
pub(crate) async fn children(servers: &ZooKeeper, path: &str) -> Result<BTreeSet<String>, Failure> {
    let outside = zk::Client::connect(&servers.connect_string()).await?;
    match outside.list_children(path).await {
        Ok(nodes) => Ok(nodes.into_iter().collect()),
        Err(zk::Error::NoNode) => Ok(BTreeSet::new()),
        Err(e) => Err(e.into()),
    }
}

/// Returns the nodes of holders and waiters; a semaphore has them in two directories.
pub(crate) async fn contenders(
    servers: &ZooKeeper,
    path: &str,
) -> Result<BTreeSet<String>, Failure> {
    let mut found = BTreeSet::new();
    for child in children(servers, path).await? {
        match &*child {
            "locks" | "leases" => {
                let inside = children(servers, &format!("{path}/{child}")).await?;
                found.extend(inside.into_iter().map(|node| format!("{child}/{node}")));
            }
            // The node is a semaphore's limit.
            "permits" => {}
            _ => drop(found.insert(child)),
        }
    }
    Ok(found)
}

/// Waits until a session watches that node and no other of the lock: then its contender knows its
/// predecessor, and waits.
pub(crate) fn watches_only(servers: &ZooKeeper, session: &str, path: &str, node: &str) -> Outcome {
    poll_until(
        &format!("{session} to watch {node}"),
        SOON,
        || match servers.watches(0) {
            Ok(watches) => {
                let watched = watches
                    .iter()
                    .filter(|(_, by)| by.contains(session))
                    .map(|(watched, _)| watched);
                let below: Vec<_> = watched
                    .filter(|watched| watched.starts_with(path))
                    .collect();
                (below == [node]).then_some(Ok(()))
            }
            Err(e) => Some(Err(e.into())),
        },
    )?
}

/// Returns whether a session has ephemeral nodes, and so has not ended.
pub(crate) fn has_nodes(servers: &ZooKeeper, session: &str) -> Result<bool, Failure> {
    Ok(servers
        .four_letter(0, "dump")?
        .lines()
        .any(|line| line.strip_suffix(':') == Some(session)))
}
