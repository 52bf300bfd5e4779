//! Keeps the proof of contact young while something is at stake, and gives up what cannot be believed any more.
//!
//! One task per epoch. While the epoch has nodes and no proof younger than T/6, it sends a beat; beats are
//! pipelined, so that one that stalls does not hold up the next, and one is sent at once after a reconnect. When no
//! proof has come for T less the margin, every lock of the epoch is lost as [`LostReason::Suspect`]; the session may
//! well live, so the nodes are deleted, as the first requests after the reconnect.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use zookeeper_client as zk;

use super::belief::Standing;
use super::clock::Moment;
use super::epoch::Epoch;
use crate::error::LostReason;

/// What is asked of the servers to prove that they keep the session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Heartbeat {
    /// A committed transaction that checks the held nodes, every T/6 while something is held or waited for and no
    /// other write was answered. The only proof that a quorum keeps the session, and it notices within T/6 that a
    /// lock node was deleted. The default. Costs the ensemble one transaction per T/6 and client.
    #[default]
    Commit,
    /// `sync`: the leader answers, nothing is written. Gives up: a leader that was deposed, and does not know it
    /// yet, answers as well, for up to its sync limit (10 s by default), while the lock is given away elsewhere; and
    /// a deleted lock node is not noticed.
    Sync,
    /// A read. Gives up, beyond what [`Sync`](Self::Sync) does: a member that is cut off from the leader answers
    /// as well, for up to its sync limit. With any server older than this one's promise, it is what others offer.
    Read,
}

/// A transaction checks at most this many nodes, which keeps it far below ZooKeeper's limit of 1 MiB per request.
const CHECKS_PER_BEAT: usize = 256;

/// Paces the beats of one epoch until it ends.
pub(crate) async fn run(epoch: Arc<Epoch>, heartbeat: Heartbeat) {
    let Ok(session) = epoch.session() else { return };
    let mut states = session.state_watcher();
    // Not kept: the last clone closes the session.
    drop(session);
    let mut connected = states.peek_state() != zk::SessionState::Disconnected;
    let mut stake = epoch.stake();
    let mut beats = JoinSet::new();
    let mut sent: Option<Moment> = None;
    let mut at_once = false;
    loop {
        if epoch.standing() == Standing::Over {
            for held in epoch.holds() {
                epoch.lose(&held, LostReason::Suspect);
            }
        }
        let at_stake = *stake.borrow_and_update() > 0;
        let beating = at_stake && connected;
        let wait = if beating && at_once { Duration::ZERO } else { pause(&epoch, sent, beating) };
        if wait.is_zero() {
            at_once = false;
            sent = Some(Moment::now());
            let epoch = Arc::clone(&epoch);
            beats.spawn(async move { beat(&epoch, heartbeat).await });
            continue;
        }
        tokio::select! {
            // The nodes and the clock are looked at again above; it does not matter who woke us.
            () = tokio::time::sleep(wait) => {}
            _ = stake.changed() => {}
            Some(_) = beats.join_next() => {}
            state = states.changed() => {
                let now = state != zk::SessionState::Disconnected;
                at_once |= now && !connected;
                connected = now;
            }
            _ = epoch.ended() => return,
        }
    }
}

/// How long until there is something to do: a beat to send (zero: now), or a hold to give up.
fn pause(epoch: &Epoch, sent: Option<Moment>, beating: bool) -> Duration {
    let now = Moment::now();
    let belief = epoch.belief();
    let age = |moment: Option<Moment>| moment.map(|moment| now.since(moment));
    let left = age(epoch.proof()).and_then(|age| belief.patience().checked_sub(age));
    // Once it is over it stays so until the next proof, which is not waited for here.
    let until_over = left.filter(|left| !left.is_zero()).unwrap_or_else(|| belief.patience());
    if !beating {
        return until_over;
    }
    let quiet = age(epoch.proof()).into_iter().chain(age(sent)).min();
    let Some(quiet) = quiet else { return Duration::ZERO };
    belief.period().saturating_sub(quiet).min(until_over)
}

async fn beat(epoch: &Arc<Epoch>, heartbeat: Heartbeat) {
    let Ok(session) = epoch.session() else { return };
    let sent = Moment::now();
    match heartbeat {
        Heartbeat::Commit => commit(epoch, &session).await,
        Heartbeat::Sync => note(epoch, sent, session.sync("/").await),
        Heartbeat::Read => note(epoch, sent, session.check_stat("/").await.map(drop)),
    }
}

fn note(epoch: &Epoch, sent: Moment, reply: Result<(), zk::Error>) {
    match reply {
        Ok(()) => epoch.proved(sent),
        Err(error) => {
            let failure = epoch.judge(&error);
            tracing::debug!(epoch = epoch.number(), %error, ?failure, "no heartbeat");
        }
    }
}

/// Checks the held nodes, in as many transactions as it takes. Any answer to one is a proof, a failed check too: it
/// is a transaction like any other.
async fn commit(epoch: &Arc<Epoch>, session: &zk::Client) {
    let mut nodes = epoch.held_nodes();
    loop {
        let rest = nodes.split_off(nodes.len().min(CHECKS_PER_BEAT));
        // With nothing held there still is a proof to be had, for those that wait.
        let root = ["/".to_owned()];
        let paths: Vec<&String> = match nodes.len() {
            0 => root.iter().collect(),
            _ => nodes.iter().map(|(path, _)| path).collect(),
        };
        let mut writer = session.new_multi_writer();
        if let Err(error) = paths.iter().try_for_each(|path| writer.add_check_version(path, -1)) {
            tracing::error!(%error, "a heartbeat could not be put together");
            return;
        }
        let sent = Moment::now();
        let failed = match writer.commit().await {
            Ok(_) => {
                epoch.proved(sent);
                None
            }
            Err(zk::MultiWriteError::OperationFailed { index, source }) => {
                epoch.proved(sent);
                Some((index, source))
            }
            Err(zk::MultiWriteError::RequestFailed { source }) => {
                return note(epoch, sent, Err(source));
            }
        };
        if let Some((index, error)) = failed {
            if index >= nodes.len() {
                return;
            }
            let (_, held) = nodes.swap_remove(index);
            match error {
                zk::Error::NoNode => epoch.lose(&held, LostReason::NodeDeleted),
                // Its ACL does not let us look at it; whether it exists cannot be told. It is asked again next time.
                error => tracing::debug!(node = held.name(), %error, "a held node cannot be checked"),
            }
        } else {
            nodes.clear();
        }
        nodes.extend(rest);
        if nodes.is_empty() {
            return;
        }
        if epoch.end_reason().is_some() {
            return;
        }
    }
}
