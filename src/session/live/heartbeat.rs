//! Renews the lease of a session while it has nodes, and ends its locks when the lease has expired.
//!
//! One task per session. While the session holds locks, the task sends a heartbeat at each interval
//! (T/6 by default), whatever else was written. While the session has nodes but no lock, the task
//! sends a heartbeat when the last renewal is one interval old. Heartbeats are pipelined, so that a
//! stalled one does not delay the next, and one is sent at once after a reconnect
//! (docs/protocol.md#renewal). When T less the margin has passed since the last renewal, every lock
//! of the session is lost with [`LeaseExpired`](crate::LostReason::LeaseExpired); the [lease
//! thread](crate::session::live::session_lease) notices this too. If the session is still alive,
//! the nodes are deleted when their guards are dropped, or by this task T after the last renewal
//! (docs/protocol.md#lost-lock-keeps-its-node).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use zookeeper_client as zk;

use crate::protocol::hold::HoldEvent;
use crate::protocol::moment::Moment;
use crate::session::contents::holds::LockNode;
use crate::session::live::zk_session::{Session, SessionGone};
use crate::session::reports::journal::TARGET;
use crate::session::reports::log;
use crate::session::threads::background::on_this_thread;
use crate::session::threads::clock;

/// The limit on the size of the paths that one transaction checks, which is far below ZooKeeper's
/// limit of 1 MiB per request.
const BYTES_PER_HEARTBEAT: usize = 256 * 1024;

/// The longest pause between two reads of the clock. The runtime's timers do not count the time
/// during which the machine sleeps.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Sends the heartbeats of one session until it ends.
pub(crate) async fn run(session: Arc<Session>) {
    let Some(mut states) = session.states() else {
        return;
    };
    let mut connected = states.peek_state() != zk::SessionState::Disconnected;
    let mut live_nodes = session.nodes.count();
    let mut heartbeats = JoinSet::new();
    let mut sent: Option<Moment> = None;
    let mut at_once = false;
    loop {
        session.check_clock();
        // The nodes of lost locks are released here, because only this task wakes for as long as
        // the session lives, even if no lock is held.
        let kept = session.release_overdue();
        // An error is impossible: the session, which has the sender, lives.
        let news = live_nodes.has_changed().unwrap_or(false);
        // Heartbeats are needed while nodes are known, or locks are held. A lock whose node is
        // known to be gone counts until it is lost: other writes may renew the lease, but only a
        // heartbeat checks the node.
        let has_nodes = *live_nodes.borrow_and_update() > 0 || session.holds.any();
        // The nodes of a busy client come and go thousands of times a second. They do not wake this
        // task. Instead, while there are nodes, or were since its last check, the task wakes by the
        // clock, at least every quarter of an interval. A node that is created right after a check
        // needs a heartbeat one interval later. So the task notices the node in time, even if a
        // timer is late.
        let by_clock = has_nodes || news;
        if sent.is_none() && session.holds.any() {
            // The create of the node renewed the lease. From here on heartbeats check the node. The
            // time of the last heartbeat stays when no lock is held any more. An old one only makes
            // the first heartbeat of the next lock come early.
            sent = session.lease.last_renewal();
        }
        let is_beating = has_nodes && connected;
        let wait = if is_beating && at_once {
            Duration::ZERO
        } else {
            pause(&session, sent, is_beating)
        };
        if wait.is_zero() {
            at_once = false;
            sent = Some(clock::now());
            let session = Arc::clone(&session);
            heartbeats.spawn(on_this_thread(async move { send(&session).await }));
            continue;
        }
        let wait = if by_clock {
            wait.min(LONGEST_PAUSE)
                .min(session.lease.rule.heartbeat_interval() / 4)
        } else {
            wait
        };
        let wait = kept.map_or(wait, |kept| kept.min(wait));
        tokio::select! {
            // All conditions are checked again above, so it does not matter which branch wakes the
            // task.
            () = tokio::time::sleep(wait) => {}
            _ = live_nodes.changed(), if !by_clock => {}
            Some(_) = heartbeats.join_next() => {}
            state = states.changed() => {
                let now = state != zk::SessionState::Disconnected;
                // States are merged: the connection may have been lost and restored in between.
                at_once |= now;
                connected = now;
            }
            _ = session.ended() => return,
        }
    }
}

/// Returns the time until the next action: a heartbeat is due (zero means now), or the lease
/// expires.
fn pause(session: &Session, sent: Option<Moment>, is_beating: bool) -> Duration {
    let now = clock::now();
    let lease = &session.lease;
    let age = |moment: Option<Moment>| moment.map(|moment| now.since(moment));
    let left =
        age(session.lease.last_renewal()).and_then(|age| lease.rule.duration().checked_sub(age));
    // An expired lease stays expired until the next renewal, which is not waited for here.
    let until_over = left
        .filter(|left| !left.is_zero())
        .unwrap_or_else(|| lease.rule.duration());
    if !is_beating {
        return until_over;
    }
    // Any answered write renews the lease, so a session that only waits needs no heartbeat after
    // one. Only a heartbeat shows that the node of a held lock exists.
    let quiet = match age(sent) {
        Some(sent) if session.holds.any() => Some(sent),
        sent => age(session.lease.last_renewal())
            .into_iter()
            .chain(sent)
            .min(),
    };
    let Some(quiet) = quiet else {
        return Duration::ZERO;
    };
    lease
        .rule
        .heartbeat_interval()
        .saturating_sub(quiet)
        .min(until_over)
}

async fn send(session: &Arc<Session>) {
    let sent = clock::now();
    beat(&HeartbeatConnection {
        session,
        spare: None,
    })
    .await;
    let took = clock::now().since(sent);
    if took > session.lease.rule.heartbeat_interval() {
        let (session, took_ms) = (session.number.get(), took.as_secs_f64() * 1_000.0);
        log::debug!(
            [name: "heartbeat.late", target: TARGET] session, took_ms,
            "a heartbeat was answered late, or not at all"
        );
        log::count!(heartbeat_late);
    }
}

/// The connection by which a heartbeat is sent.
pub(crate) struct HeartbeatConnection<'a> {
    pub(crate) session: &'a Arc<Session>,
    /// Another handle of the session, with a separate connection.
    pub(crate) spare: Option<&'a zk::Client>,
}

impl HeartbeatConnection<'_> {
    async fn request<F: Future<Output: Send> + Send>(
        &self,
        work: impl FnOnce(zk::Client) -> F,
    ) -> Result<F::Output, SessionGone> {
        match self.spare {
            // The session lends its own connection only.
            Some(spare) => self.session.until_ended(work(spare.clone())).await,
            None => self.session.request(work).await,
        }
    }

    /// Passes the failure of a heartbeat to the session, which judges it.
    fn failed(&self, error: &zk::Error) {
        // The end of a spare connection is not that of the session.
        let failure = self.spare.is_none().then(|| self.session.judge(error));
        log::debug!(session = self.session.number.get(), %error, ?failure, "no heartbeat");
    }
}

/// Sends one heartbeat, and waits for its answer: checks the nodes of held locks, in as many
/// transactions as necessary. A failed check renews the lease too, since it is a committed
/// transaction. The answer names one missing node. A read that follows finds the others; if the
/// servers do not support that read, one transaction for each node does.
pub(crate) async fn beat(connection: &HeartbeatConnection<'_>) {
    let session = connection.session;
    let mut nodes = by_node(session.holds.nodes());
    loop {
        // Nodes of locks that have been released or converted in the meantime need not exist.
        nodes.retain_mut(|node| {
            node.locks.retain(LockNode::is_held);
            !node.locks.is_empty()
        });
        let mut bytes = 0;
        let fits = |node: &&CheckedNode| {
            bytes += node.path.len();
            bytes <= BYTES_PER_HEARTBEAT
        };
        let count = nodes.iter().take_while(fits).count();
        let rest = nodes.split_off(count);
        // Without a held lock, the check of `/` renews the lease for the attempts that wait.
        let root = ["/".to_owned()];
        let paths: Vec<&String> = match nodes.len() {
            0 => root.iter().collect(),
            _ => nodes.iter().map(|node| &node.path).collect(),
        };
        let paths = &paths;
        let reply = connection.request(|handle| async move {
            let check = |writer: &mut zk::MultiWriter<'_>| {
                paths
                    .iter()
                    .try_for_each(|path| writer.add_check_version(path, -1))
            };
            session.commit(&handle, paths.len(), check).await
        });
        let Ok(reply) = reply.await else { return };
        match reply {
            Ok(_) => nodes.clear(),
            Err(zk::MultiWriteError::OperationFailed { index, source }) => {
                // The check of `/` was refused by its ACL, which renews the lease too, or the
                // answer is invalid.
                if index >= nodes.len() {
                    return;
                }
                // The servers stop at the first check that fails, so it is unknown whether the
                // nodes behind it exist.
                let failed = nodes.swap_remove(index);
                match source {
                    zk::Error::NoNode => node_deleted(&failed),
                    // The servers no longer have the session, so the failure is about all of its
                    // nodes.
                    zk::Error::SessionExpired => connection.failed(&source),
                    // The node's ACL does not allow the check, so it is unknown whether the node
                    // exists. The next heartbeat checks the node again.
                    error => {
                        log::debug!(node = failed.path, %error, "a held node cannot be checked");
                    }
                }
                if let Some(missing) = missing(connection, &nodes).await {
                    missing.into_iter().for_each(node_deleted);
                    nodes.clear();
                }
            }
            Err(zk::MultiWriteError::RequestFailed { source }) => {
                return connection.failed(&source);
            }
        }
        nodes.extend(rest);
        if nodes.is_empty() || session.end_reason().is_some() {
            return;
        }
    }
}

/// A node that is checked once, however many locks are held by it, because readers may share a
/// node.
struct CheckedNode {
    path: String,
    locks: Vec<LockNode>,
}

fn by_node(held: Vec<LockNode>) -> Vec<CheckedNode> {
    let mut nodes: HashMap<String, Vec<LockNode>> = HashMap::with_capacity(held.len());
    for node in held {
        nodes.entry(node.path.clone()).or_default().push(node);
    }
    nodes
        .into_iter()
        .map(|(path, locks)| CheckedNode { path, locks })
        .collect()
}

/// Notifies the locks of a node that the node does not exist.
fn node_deleted(node: &CheckedNode) {
    for LockNode { lock, name, .. } in &node.locks {
        Arc::clone(lock).on(HoldEvent::NodeDeleted {
            node: Arc::clone(name),
        });
    }
}

/// Returns which of these nodes do not exist, by one read, or `None` if the servers do not support
/// that read. The result is at least as new as the transaction that was answered before, but the
/// read does not renew the lease.
async fn missing<'a>(
    connection: &HeartbeatConnection<'_>,
    nodes: &'a [CheckedNode],
) -> Option<Vec<&'a CheckedNode>> {
    if nodes.is_empty() {
        return Some(Vec::new());
    }
    let session = connection.session;
    let reply = connection.request(|handle| async move {
        // The children are read instead of the data, because a lock node has none, so the answer is
        // smaller.
        let read = session.read_together(&handle, nodes.iter().map(|node| &*node.path))?;
        Some(read.await)
    });
    let results = match reply.await.ok()?? {
        Ok(results) => results,
        Err(error) => {
            connection.failed(&error);
            return None;
        }
    };
    let missing = |result: &_| {
        matches!(
            result,
            zk::MultiReadResult::Error {
                err: zk::Error::NoNode
            }
        )
    };
    Some(
        nodes
            .iter()
            .zip(results)
            .filter(|(_, result)| missing(result))
            .map(|(node, _)| node)
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use tokio::sync::watch;
    use zookeeper_test_server::Server;

    use super::*;
    use crate::protocol::hold::Registration;
    use crate::protocol::numbers::HoldNumber;
    use crate::protocol::numbers::SessionNumber;
    use crate::protocol::numbers::by_value::hold_number;
    use crate::session::contents::holds::SessionLock;
    use crate::session::live::zk_session::SessionOptions;
    use crate::values::path::LockPath;

    #[derive(Debug)]
    struct Lock(HoldNumber, LockPath);

    impl SessionLock for Lock {
        fn number(&self) -> HoldNumber {
            self.0
        }

        fn directory(&self) -> &LockPath {
            &self.1
        }

        fn node(&self) -> Arc<str> {
            "node".into()
        }

        fn is_held_by(&self, _node: &str) -> bool {
            true
        }

        fn registration(&self) -> Registration {
            Registration::None
        }

        fn on(self: Arc<Self>, _event: HoldEvent) {}
    }

    /// A lock that has not been notified of the end of its node.
    #[derive(Debug)]
    struct Held {
        directory: LockPath,
        told: watch::Sender<bool>,
    }

    impl SessionLock for Held {
        fn number(&self) -> HoldNumber {
            hold_number(1)
        }

        fn directory(&self) -> &LockPath {
            &self.directory
        }

        fn node(&self) -> Arc<str> {
            "node".into()
        }

        fn is_held_by(&self, _node: &str) -> bool {
            true
        }

        fn registration(&self) -> Registration {
            Registration::Active { lease_end: None }
        }

        fn on(self: Arc<Self>, event: HoldEvent) {
            if matches!(event, HoldEvent::NodeDeleted { .. }) {
                self.told.send_replace(true);
            }
        }
    }

    /// A held node is checked whatever is known of the session's nodes, and although other writes
    /// renew the lease.
    // Shows: node-deleted-by-hand
    #[tokio::test]
    async fn held_lock_is_checked_without_nodes() {
        let server = Server::start().unwrap();
        let handle = zk::Client::connect(&server.connect_string()).await.unwrap();
        let session = Session::new(SessionNumber::FIRST, handle, SessionOptions::default());
        session.lease.renewed(clock::now());
        let beats = tokio::spawn(run(Arc::clone(&session)));
        // The task first looks at the session while it has no nodes.
        tokio::task::yield_now().await;
        let directory = LockPath::parse("", "/lock").unwrap();
        let held = Arc::new(Held {
            directory,
            told: watch::Sender::new(false),
        });
        session.update_registration(&held);
        let mut told = held.told.subscribe();
        let writes = async {
            loop {
                session.lease.renewed(clock::now());
                // The pace of the other writes.
                tokio::time::sleep(session.lease.rule.heartbeat_interval() / 10).await;
            }
        };
        let checked = async {
            tokio::select! {
                told = told.wait_for(|told| *told) => drop(told.unwrap()),
                () = writes => {}
            }
        };
        tokio::time::timeout(session.timeout() * 2, checked)
            .await
            .expect("a heartbeat checks the node");
        beats.abort();
    }

    // Shows: shared-read-node
    #[test]
    fn shared_node_is_checked_once() {
        let held = [(1, "/a"), (2, "/b"), (3, "/a"), (4, "/a")].map(|(number, directory)| {
            let lock: Arc<dyn SessionLock> = Arc::new(Lock(
                hold_number(number),
                LockPath::parse("", directory).unwrap(),
            ));
            LockNode {
                path: lock.directory().child(&lock.node()),
                name: lock.node(),
                lock,
            }
        });
        let mut nodes = by_node(held.into());
        nodes.sort_by(|a, b| a.path.cmp(&b.path));
        let told: Vec<(&str, Vec<HoldNumber>)> = nodes
            .iter()
            .map(|node| {
                (
                    &*node.path,
                    node.locks.iter().map(|held| held.lock.number()).collect(),
                )
            })
            .collect();
        let numbers = |values: &[u64]| values.iter().copied().map(hold_number).collect();
        assert_eq!(
            told,
            [("/a/node", numbers(&[1, 3, 4])), ("/b/node", numbers(&[2]))]
        );
    }
}
