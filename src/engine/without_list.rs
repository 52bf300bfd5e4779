//! Grants without a list (docs/protocol.md#succession): the number of a created node shows that the
//! node is first, so that its attempt need not list the directory. The queue of a path has one
//! [`WithoutList`]. Only the create of an attempt, its grant and the owner of nodes call it. This
//! file sends no request except the read that sets a watch.
//!
//! # The algorithm
//! ZooKeeper numbers the children of a directory by its count of creates. If the nodes of all
//! creates up to N are gone and the next create is answered with the number N + 1, no node is ahead
//! of it.
//!
//! ```text
//!   granted        the node with the number N is first: all nodes before it are gone
//!   deletion_sent  the deletion of that node is on its way, and is answered before the next create
//!   gone           the node is deleted: the nodes of all creates up to N are gone
//!   expects_first  the last three grants were free: the next create is sent without a list
//!   is_first       the new node has the number N + 1 --> the lock is granted
//!                  the node has another number --> the attempt lists now, with one more flight
//! ```
//! The [`Frontier`], which is pure, keeps N for writers and for readers. A directory that is
//! removed and created again restarts its numbers. So the directory is watched, and N counts only
//! while the [`DirectoryWatch`] has not fired and the connection was not interrupted. In any doubt
//! the attempt lists.
//!
//! # The watch
//! No task waits for the event of the watch, because that task could be notified after a grant.
//! Instead, each use of N checks whether the watch has fired or the connection was interrupted
//! (docs/protocol.md#directory-watch). The client library delivers messages in the order of the
//! connection, and a change of its state before any answer of the next connection. So after the
//! answer to a request, the check finds all events that the server has sent before that answer. A
//! watch that is set has a task, which drops the watch if it has not been used for four heartbeats.
//! The task ends with the watch.
//!
//! # Until when
//! The client library does not set TCP_NODELAY (docs/upstream/nodelay.patch), so a list that is
//! sent together with a create waits until the create is answered, and a free lock takes one flight
//! more. With that option the two share a flight: then a grant without a list saves a read, and no
//! time.
//!
//! # How to take it out
//! An attempt then sends a list with each create, unless a fair lock may wait in memory. Delete:
//! 1. This file, `protocol/without_list`, `protocol/simulation/without_list.rs`, and the tests
//!    `in_process/succession.rs`, `in_process/cost/succession.rs`, `suite/replaced_directories.rs`.
//! 2. What does not compile without these: in `SharedQueue` the field, `new` (its `Default` is
//!    derived), `deletion_sent` and the call in `gone`; the two calls in `requests::create`; the
//!    one in `InSession::grant`; and those of `protocol/simulation`, whose numbers of schedules are
//!    lower then.
//! 3. What only these used: `deletion_sent` of `NodeOwner` and `Nodes`, and its call in
//!    `leftovers/deletion.rs`; `Standing::First`; `WatchUse::Directory`; `How::Succession`, its
//!    label in `metrics.rs` and docs/observability.md.
//! 4. In docs/protocol.md the rules `succession` and `directory-watch`, what links to them, and the
//!    costs of a lock that was free three times; in `cost.rs` the number of requests of a thousand
//!    cycles; of the simulation the patches `directory-watch-ignored`, `incarnation-ignored` and
//!    `next-number-ignored`, and the entry of `frontier.rs` in mutants.md.
//!
//! Two measures stay: cleanup sends a deletion at once, and shared attempts yield before they
//! begin. With lists, too, a create that overtakes the deletion of the last holder's node waits for
//! that node.

use std::mem;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Waker};
use std::time::Duration;

use zookeeper_client as zk;

use crate::protocol::acquire::OwnNode;
use crate::protocol::failure::FailureKind;
use crate::protocol::local_queue::Gone;
use crate::protocol::node_name::{Kind, Naming};
use crate::protocol::numbers::SessionNumber;
use crate::protocol::without_list::frontier::{Frontier, Numbered, SessionFrontier};
use crate::session::contents::limits::{WatchUse, Watching, watch_event};
use crate::session::live::zk_session::Session;
use crate::session::tasks::{CallTask, Tasks};
use crate::session::threads::BoxFuture;
use crate::session::threads::mutex::Mutex;
use crate::session::threads::waker::send_at_once;
use crate::values::path::LockPath;

/// The knowledge of a client about one directory, by which the next node may need no list.
pub(crate) struct WithoutList {
    directory: LockPath,
    naming: Naming,
    frontier: Mutex<SessionFrontier>,
    watch: Arc<DirectoryWatch>,
}

impl WithoutList {
    pub(crate) fn new(directory: LockPath, naming: Naming) -> Self {
        Self {
            directory,
            naming,
            frontier: Mutex::default(),
            watch: Arc::default(),
        }
    }

    /// Returns whether the next node of this kind is expected to be first, so that its create is
    /// sent without a list.
    pub(crate) fn expects_first(&self, session: &Session, kind: Kind) -> bool {
        let number = session.number;
        // Without a watch, the number of the node would prove nothing, and the list would be sent
        // late, in a second flight.
        self.known(number, |frontier| frontier.expects(kind))
            && self.watch.check_created(number).is_some()
    }

    /// Returns whether a node is first, now that its create was answered.
    pub(crate) fn is_first(&self, session: &Session, node: &OwnNode) -> bool {
        let number = session.number;
        // The watch is checked after the answer to the create. If it has not fired by then, the
        // node is in the directory that is watched, and N is a number of that directory
        // (docs/protocol.md#directory-watch).
        let Some(directory) = self.watch.check_created(number) else {
            return false;
        };
        Numbered::of(&node.name, node.czxid, self.naming).is_some_and(|node| {
            self.known(number, |frontier| frontier.decide_first(node, directory))
        })
    }

    /// Records that the node with this name and czxid is first, by any proof, and holds the lock.
    /// `free` is whether the node has not waited for others. After several consecutive free grants,
    /// the directory is watched.
    pub(crate) fn granted(
        &self,
        tasks: &Tasks,
        session: &Arc<Session>,
        (name, czxid): (&str, i64),
        free: bool,
    ) {
        let Some(node) = Numbered::of(name, Some(czxid), self.naming) else {
            return;
        };
        // The mutex of the numbers is unlocked before the request for the watch is sent.
        if self.known(session.number, |frontier| {
            frontier.granted(name, node, free)
        }) {
            self.watch.ensure(tasks, session, &self.directory);
        }
    }

    /// Records that the deletion of a node was sent.
    pub(crate) fn deletion_sent(&self, session: SessionNumber, name: &str) {
        self.known(session, |frontier| frontier.leaves(name));
    }

    /// Records that a node is gone, or that its deletion is refused.
    pub(crate) fn gone(&self, session: SessionNumber, name: &str, how: Gone<'_>) {
        self.known(session, |frontier| frontier.gone(name, how));
    }

    /// Runs one decision on the knowledge of a session. If a newer session has begun, decides
    /// nothing, and returns the default.
    fn known<T: Default>(
        &self,
        session: SessionNumber,
        decide: impl FnOnce(&mut Frontier) -> T,
    ) -> T {
        let mut frontier = self.frontier.lock();
        frontier.in_session(session).map(decide).unwrap_or_default()
    }
}

/// The number of consecutive looks without a use in between, after which a watch is dropped.
const IDLE_LOOKS: u32 = 4;

/// The watch of one lock's directory, in one session after the other.
#[derive(Default)]
struct DirectoryWatch {
    state: Mutex<WatchState>,
}

#[derive(Default)]
enum WatchState {
    #[default]
    None,
    /// The watch was requested in the session with this number, and is not set yet.
    Asked(SessionNumber),
    /// The servers have refused the watch in the session with this number, and are not asked again
    /// there.
    Refused(SessionNumber),
    Set(Box<SetWatch>),
}

/// A watch that was set.
struct SetWatch {
    session: SessionNumber,
    /// When the directory was created.
    czxid: i64,
    event: BoxFuture<'static, Option<zk::WatchedEvent>>,
    /// The states of the session since before the watch was requested.
    states: zk::StateWatcher,
    #[expect(dead_code, reason = "counts the watch until it is dropped")]
    watching: Watching,
    /// How many looks there were since the last use.
    idle: u32,
    #[expect(dead_code, reason = "the task ends when this is dropped")]
    looks: CallTask<()>,
}

impl SetWatch {
    /// Returns whether anything happened to the directory, or the connection, since the watch was
    /// requested. The method must not be called again after it has returned `true`, because the
    /// future of the event has ended then.
    fn has_ended(&mut self) -> bool {
        // One poll finds an event that has arrived. No waker is needed, and the channels of the
        // client library are ready at once, unlike those of tokio, which may return `Pending` to a
        // task that has used up its budget.
        let mut context = Context::from_waker(Waker::noop());
        let happened = self.event.as_mut().poll(&mut context).is_ready();
        // A connection that was lost and replaced in between counts, because the channel compares
        // versions and not states.
        let interrupted = pin!(self.states.changed()).poll(&mut context).is_ready();
        happened || interrupted
    }
}

impl DirectoryWatch {
    /// Changes the state. `change` returns what it takes out of the state, or does not put in,
    /// which is dropped after the mutex is unlocked: the drop of a watch removes it from the
    /// servers.
    fn change<T>(&self, change: impl FnOnce(&mut WatchState) -> (T, WatchState)) -> T {
        let (result, _out) = change(&mut self.state.lock());
        result
    }

    /// Watches the directory, unless it is watched already, or the session can set no more watches.
    /// The request is sent when this is called, and a task waits for the answer.
    fn ensure(self: &Arc<Self>, tasks: &Tasks, session: &Arc<Session>, directory: &LockPath) {
        // The states are watched from before the request is sent, so that no interruption after it
        // is missed.
        let Some(states) = session.states() else {
            return;
        };
        let number = session.number;
        if !self.begin(number) {
            return;
        }
        let path = directory.server();
        // The watches of a session are limited, and those of waiters come first: without this
        // watch, an attempt lists (docs/protocol.md#watch-limit).
        let Some(watching) = session.watches.watch(path, WatchUse::Directory) else {
            return self.answered(number, WatchState::None);
        };
        // The task does not keep the watch: if the last handle of the path is dropped, nothing
        // needs the answer.
        let (watch, path) = (Arc::downgrade(self), path.to_owned());
        let (session, own_tasks) = (Arc::clone(session), tasks.clone());
        let answered = Box::pin(async move {
            let path = &path;
            // `exists` would not do: only a session that may read a node is notified of its
            // deletion (docs/protocol.md#no-access).
            let set = session
                .request(|handle| async move { handle.get_and_watch_data(path).await })
                .await;
            let state = match set {
                Ok(Ok((_, stat, watcher))) if !stat.is_invalid() => {
                    let every = session.lease.rule.heartbeat_interval();
                    WatchState::Set(Box::new(SetWatch {
                        session: number,
                        czxid: stat.czxid,
                        event: Box::pin(watch_event(watcher)),
                        states,
                        watching,
                        idle: 0,
                        looks: own_tasks.start(drop_when_idle(Weak::clone(&watch), every)),
                    }))
                }
                // A refusal, such as that of a client without the permission to read, is
                // remembered, so that not every grant asks again. After another failure the next
                // grant does.
                Ok(Err(error)) => match session.failure(error).kind {
                    FailureKind::Refused(_) => WatchState::Refused(number),
                    _ => WatchState::None,
                },
                // A Stat without a czxid cannot be compared with that of a node, and a session that
                // has ended needs no watch.
                Ok(Ok(_)) | Err(_) => WatchState::None,
            };
            if let Some(watch) = watch.upgrade() {
                watch.answered(number, state);
            }
        });
        // The request is sent before this method returns, ahead of the requests that follow the
        // grant.
        if let Some(answered) = send_at_once(answered) {
            tasks.start(answered).detach();
        }
    }

    /// Returns whether the watch must be requested: it is not set in this session, and was neither
    /// requested nor refused. The caller must then call [`answered`](Self::answered).
    fn begin(&self, session: SessionNumber) -> bool {
        self.change(|state| {
            // Sessions are compared, because a watch of an earlier session has ended with it.
            let (in_session, has_ended) = match state {
                WatchState::None => (SessionNumber::default(), true),
                WatchState::Asked(session) | WatchState::Refused(session) => (*session, false),
                WatchState::Set(set) => (set.session, set.has_ended()),
            };
            if in_session == session && !has_ended {
                // Nothing is taken out of the state.
                return (false, WatchState::None);
            }
            (true, mem::replace(state, WatchState::Asked(session)))
        })
    }

    fn answered(&self, session: SessionNumber, answer: WatchState) {
        self.change(|state| match state {
            WatchState::Asked(asked) if *asked == session => ((), mem::replace(state, answer)),
            // The client has asked again in a later session. The answer of the earlier one is
            // dropped.
            _ => ((), answer),
        });
    }

    /// Returns when the directory was created, if it is watched in this session: it has existed
    /// since then, according to the server's last answer.
    fn check_created(&self, session: SessionNumber) -> Option<i64> {
        self.change(|state| match state {
            WatchState::Set(set) if set.session == session => {
                // A watch that has fired shows nothing about the directory any more. The next grant
                // that needs one sets another.
                if set.has_ended() {
                    return (None, mem::take(state));
                }
                set.idle = 0;
                (Some(set.czxid), WatchState::None)
            }
            _ => (None, WatchState::None),
        })
    }

    /// Drops the watch if it has ended, or was not used for long.
    fn drop_idle(&self) {
        self.change(|state| {
            let WatchState::Set(set) = state else {
                return ((), WatchState::None);
            };
            set.idle += 1;
            let goes = set.has_ended() || set.idle >= IDLE_LOOKS;
            (
                (),
                if goes {
                    mem::take(state)
                } else {
                    WatchState::None
                },
            )
        });
    }
}

/// Drops a watch once it has ended, or was not used for long. The drop of the watch ends this task.
/// Without the task, a path that is not used any more would keep its part of the session's limit.
async fn drop_when_idle(watch: Weak<DirectoryWatch>, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        match watch.upgrade() {
            Some(watch) => watch.drop_idle(),
            None => return,
        }
    }
}
