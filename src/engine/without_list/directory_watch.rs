//! The watch on the directory of a lock, which shows that the directory was not removed meanwhile
//! (docs/protocol.md#directory-watch).
//!
//! No task waits for the event of the watch, because the task could be notified late. Whether the
//! watch has fired, or the connection was interrupted, is looked at when it counts. The client
//! library hands out messages in the order of the connection, and a change of its state before any
//! answer of the next connection. So after the answer to a request, a look finds all events that
//! the server has sent before.
//!
//! A watch that is set has a task, which gives the watch up if it has not been used for some
//! heartbeats. The task ends with the watch.

use std::mem;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Waker};
use std::time::Duration;

use zookeeper_client as zk;

use crate::protocol::failure::FailureKind;
use crate::protocol::numbers::SessionNumber;
use crate::session::contents::limits::{WatchUse, Watching, changed};
use crate::session::live::zk_session::Session;
use crate::session::tasks::{CallTask, Tasks};
use crate::session::threads::BoxFuture;
use crate::session::threads::mutex::Mutex;
use crate::session::threads::waker::send_at_once;
use crate::values::path::LockPath;

/// A watch is given up if it was not needed between this many looks in a row.
const IDLE_LOOKS: u32 = 4;

/// The watch of one lock's directory, in one session after the other.
#[derive(Default)]
pub(super) struct DirectoryWatch {
    state: Mutex<WatchState>,
}

#[derive(Default)]
enum WatchState {
    #[default]
    None,
    /// The watch was asked for in the session with this number.
    Asked(SessionNumber),
    /// The servers have refused it in the session with this number.
    Refused(SessionNumber),
    Set(Box<SetWatch>),
}

/// A watch that was set.
struct SetWatch {
    session: SessionNumber,
    /// When the directory was created.
    czxid: i64,
    event: BoxFuture<'static, Option<zk::WatchedEvent>>,
    /// The states of the session since before the watch was asked for.
    states: zk::StateWatcher,
    #[expect(dead_code, reason = "counts the watch until it is dropped")]
    watching: Watching,
    /// How many looks in a row it was not needed between.
    idle: u32,
    #[expect(dead_code, reason = "the task ends when this is dropped")]
    looks: CallTask<()>,
}

impl SetWatch {
    /// Returns whether anything happened to the directory, or the connection, since the watch was
    /// asked for. Must not be called again after it has returned `true`.
    fn has_ended(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        let happened = self.event.as_mut().poll(&mut context).is_ready();
        // A connection that was lost and replaced in between is two changes.
        let interrupted = pin!(self.states.changed()).poll(&mut context).is_ready();
        happened || interrupted
    }
}

impl DirectoryWatch {
    /// Changes the state. Whatever `change` takes out of it, or does not put in, is dropped outside
    /// of the mutex: the drop of a watch removes it from the servers.
    fn change<T>(&self, change: impl FnOnce(&mut WatchState) -> (T, WatchState)) -> T {
        let (result, _out) = change(&mut self.state.lock());
        result
    }

    /// Watches the directory, unless that is done, or the session can watch no more. The request is
    /// sent when this is called, and a task waits for the answer.
    pub(super) fn ensure(
        self: &Arc<Self>,
        tasks: &Tasks,
        session: &Arc<Session>,
        directory: &LockPath,
    ) {
        // The states are watched before the request is sent: the connection must not be interrupted
        // from here on.
        let Some(states) = session.states() else {
            return;
        };
        let number = session.number;
        if !self.begin(number) {
            return;
        }
        let path = directory.server();
        let Some(watching) = session.watches.watch(path, WatchUse::Directory) else {
            return self.answered(number, WatchState::None);
        };
        let (watch, path) = (Arc::downgrade(self), path.to_owned());
        let (session, own_tasks) = (Arc::clone(session), tasks.clone());
        let answered = Box::pin(async move {
            let path = &path;
            // `exists` would not do: only a session that may read a node is notified of its deletion
            // (docs/protocol.md#no-access).
            let set = session
                .request(|handle| async move { handle.get_and_watch_data(path).await })
                .await;
            let state = match set {
                Ok(Ok((_, stat, watcher))) if !stat.is_invalid() => {
                    let every = session.lease.rule.heartbeat_interval();
                    WatchState::Set(Box::new(SetWatch {
                        session: number,
                        czxid: stat.czxid,
                        event: Box::pin(changed(watcher)),
                        states,
                        watching,
                        idle: 0,
                        looks: own_tasks.start(drop_when_idle(Weak::clone(&watch), every)),
                    }))
                }
                Ok(Err(error)) => match session.failure(error).kind {
                    FailureKind::Refused(_) => WatchState::Refused(number),
                    _ => WatchState::None,
                },
                Ok(Ok(_)) | Err(_) => WatchState::None,
            };
            if let Some(watch) = watch.upgrade() {
                watch.answered(number, state);
            }
        });
        if let Some(answered) = send_at_once(answered) {
            tasks.start(answered).detach();
        }
    }

    /// Returns whether the watch is to be asked for: there is none in this session, and it was
    /// neither asked for nor refused before. If so, [`answered`](Self::answered) is to be called.
    fn begin(&self, session: SessionNumber) -> bool {
        self.change(|state| {
            let (in_session, has_ended) = match state {
                WatchState::None => (SessionNumber::default(), true),
                WatchState::Asked(session) | WatchState::Refused(session) => (*session, false),
                WatchState::Set(set) => (set.session, set.has_ended()),
            };
            if in_session == session && !has_ended {
                return (false, WatchState::None);
            }
            (true, mem::replace(state, WatchState::Asked(session)))
        })
    }

    fn answered(&self, session: SessionNumber, answer: WatchState) {
        self.change(|state| match state {
            WatchState::Asked(asked) if *asked == session => ((), mem::replace(state, answer)),
            // A later session has asked for its own watch meanwhile.
            _ => ((), answer),
        });
    }

    /// Returns when the directory was created, if it is watched in this session: it has existed
    /// since then, according to the server's last answer.
    pub(super) fn check_created(&self, session: SessionNumber) -> Option<i64> {
        self.change(|state| match state {
            WatchState::Set(set) if set.session == session => {
                if set.has_ended() {
                    return (None, mem::take(state));
                }
                set.idle = 0;
                (Some(set.czxid), WatchState::None)
            }
            _ => (None, WatchState::None),
        })
    }

    /// Gives the watch up if it has ended, or was not needed for long.
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

/// Gives a watch up once it has ended, or was not needed for long. The drop of the watch ends the
/// task.
async fn drop_when_idle(watch: Weak<DirectoryWatch>, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        match watch.upgrade() {
            Some(watch) => watch.drop_idle(),
            None => return,
        }
    }
}
