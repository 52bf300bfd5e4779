//! Watches on the directories of locks, which tell that a directory was not removed meanwhile
//! (docs/protocol.md#succession).
//!
//! No task waits for these watches, because it could be notified late. Whether one has fired, or
//! the connection was interrupted, is looked at when it counts. The client library hands out
//! messages in the order of the connection, and a change of its state before any answer of the next
//! connection. So after the answer to a request, a look finds all events that the server has sent
//! before.

use std::mem;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Waker};

use zookeeper_client as zk;

use crate::session::contents::limits::{Watching, changed};
use crate::session::threads::BoxFuture;
use crate::session::threads::mutex::Mutex;

/// A watch is given up if it was not needed between so many looks in a row.
const IDLE_LOOKS: u32 = 4;

/// The watch of one lock's directory, in one session after the other.
#[derive(Default)]
pub(crate) struct DirectoryWatch {
    state: Mutex<WatchState>,
}

#[derive(Default)]
enum WatchState {
    #[default]
    None,
    /// The watch was asked for in the session with this number.
    Asked(u64),
    /// The servers have refused it in the session with this number.
    Refused(u64),
    Set(Box<SetWatch>),
}

/// The requirements of a watch, which is there before the request for it is sent.
pub(crate) struct Setting {
    pub(crate) session: u64,
    /// The states of the session since before the watch was asked for.
    pub(crate) states: zk::StateWatcher,
    #[expect(dead_code, reason = "counts the watch until it is dropped")]
    pub(crate) watching: Watching,
}

/// A watch that was set.
struct SetWatch {
    session: u64,
    /// When the directory was created.
    czxid: i64,
    event: BoxFuture<'static, Option<zk::WatchedEvent>>,
    setting: Setting,
    /// How many looks in a row it was not needed between.
    idle: u32,
}

impl SetWatch {
    /// Returns whether anything happened to the directory, or the connection, since the watch was
    /// asked for. If so, it may not be asked again.
    fn has_ended(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        let happened = self.event.as_mut().poll(&mut context).is_ready();
        // A connection that was lost and replaced in between is two changes.
        let interrupted = pin!(self.setting.states.changed())
            .poll(&mut context)
            .is_ready();
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

    /// Returns whether the watch is to be asked for: there is none in this session, and it was
    /// neither asked for nor refused before. If so, one of the following methods is to be called.
    pub(crate) fn begin(&self, session: u64) -> bool {
        self.change(|state| {
            let (in_session, has_ended) = match state {
                WatchState::None => (0, true),
                WatchState::Asked(session) | WatchState::Refused(session) => (*session, false),
                WatchState::Set(set) => (set.session, set.has_ended()),
            };
            if in_session == session && !has_ended {
                return (false, WatchState::None);
            }
            (true, mem::replace(state, WatchState::Asked(session)))
        })
    }

    /// Records that the servers have set the watch, on the directory that was created at this time.
    pub(crate) fn set(&self, setting: Setting, czxid: i64, watcher: zk::OneshotWatcher) {
        let session = setting.session;
        let event = Box::pin(changed(watcher));
        self.answered(
            session,
            WatchState::Set(Box::new(SetWatch {
                session,
                czxid,
                event,
                setting,
                idle: 0,
            })),
        );
    }

    /// Records that the watch was not set, and may be requested again.
    pub(crate) fn not_set(&self, session: u64) {
        self.answered(session, WatchState::None);
    }

    /// Records that the servers refuse the watch.
    pub(crate) fn refused(&self, session: u64) {
        self.answered(session, WatchState::Refused(session));
    }

    fn answered(&self, session: u64, answer: WatchState) {
        self.change(|state| match state {
            WatchState::Asked(asked) if *asked == session => ((), mem::replace(state, answer)),
            // The watch was given up meanwhile.
            _ => ((), answer),
        });
    }

    /// Returns when the directory was created, if it is watched in this session: it has existed
    /// since then, according to the server's last answer.
    pub(crate) fn check_created(&self, session: u64) -> Option<i64> {
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

/// The directory watches of one session. Kept weakly: each belongs to the handles of a lock.
#[derive(Default)]
pub(crate) struct DirectoryWatches(Mutex<Vec<Weak<DirectoryWatch>>>);

impl DirectoryWatches {
    /// Adds a watch that is about to be set.
    pub(crate) fn add(&self, watch: &Arc<DirectoryWatch>) {
        let mut all = self.0.lock();
        // There are as many entries as watches, whose number is limited.
        all.retain(|other| other.strong_count() > 0 && !other.ptr_eq(&Arc::downgrade(watch)));
        all.push(Arc::downgrade(watch));
    }

    /// Returns whether there may be any.
    pub(crate) fn any(&self) -> bool {
        !self.0.lock().is_empty()
    }

    /// Gives up watches that have fired, or were not needed for long. To be called in regular
    /// intervals.
    pub(crate) fn drop_idle(&self) {
        let all: Vec<_> = {
            let mut all = self.0.lock();
            all.retain(|watch| watch.strong_count() > 0);
            all.iter().filter_map(Weak::upgrade).collect()
        };
        all.iter().for_each(|watch| watch.drop_idle());
    }
}
