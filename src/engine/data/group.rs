//! The members of a group: the children of its directory, with their data
//! (docs/protocol.md#group-watch).
//!
//! [`Group::changed`] lists the directory, and returns the members if one has come or gone since
//! the state that its caller knows: the zxid of the last such change differs then. Otherwise the
//! call waits for an event, or polls if the session can watch no more, and lists again. An event is
//! only a reason to look, so no change can be missed. In a new session, whose server may lag behind
//! the last one's, a `sync` comes first, so that no older state follows a newer one.

use std::collections::BTreeMap;
use std::sync::Arc;

use zookeeper_client as zk;

use crate::error::{PersistentNodeError, Purpose, RequestFailure};
use crate::session::contents::limits::{WatchUse, Watching, changed_or_after};
use crate::session::core::{Core, NoSession};
use crate::session::live::zk_session::Session;
use crate::session::reports::log;
use crate::session::request::repetition::Unanswered;
use crate::values::path::LockPath;

/// How many members are read in one flight. More requests would delay the heartbeats, which are
/// answered in order with them (docs/protocol.md#request-window).
const AT_ONCE: usize = 64;

#[derive(Clone)]
pub(crate) struct Group {
    pub(crate) client: Arc<Core>,
    pub(crate) directory: LockPath,
}

/// The members at one moment.
pub(crate) struct Members {
    /// The data of each, by its name.
    pub(crate) by_name: BTreeMap<String, Vec<u8>>,
    pub(crate) known: KnownMembers,
}

/// The state that a watch has reported last, so that it reports no older state, and no state twice.
#[derive(Clone, Copy)]
pub(crate) struct KnownMembers {
    /// The zxid of the last creation or deletion of a child; `None` if the directory does not
    /// exist.
    as_of: Option<i64>,
    /// The session whose server has shown this state.
    session: i64,
}

/// The names of the children, the directory's zxid of the last change of them, and the watch, if
/// one was set.
type Listed = (Vec<String>, Option<i64>, Option<zk::OneshotWatcher>);

impl Group {
    /// Waits until a member has come or gone since `known`, and returns the members at that time.
    /// Returns at once if `known` is `None`. Several changes may be reported as one
    /// (docs/protocol.md#group-watch).
    pub(crate) async fn changed(
        &self,
        known: Option<KnownMembers>,
    ) -> Result<Members, PersistentNodeError> {
        let group = self.clone();
        let changed = self
            .client
            .tasks
            .start(async move { group.changed_here(known).await });
        match changed.await {
            Ok(answer) => answer.map_err(|why| self.error(why.into())),
            Err(why) => Err(self.error(why)),
        }
    }

    async fn changed_here(
        &self,
        mut known: Option<KnownMembers>,
    ) -> Result<Members, Unanswered<NoSession>> {
        loop {
            let listed = self.client.repeat(|session, handle| async move {
                // A call without a known state returns at once, so it needs no watch.
                let watching = known.and_then(|_| self.room_for_a_watch(&session));
                let id = session.session_id;
                if known.is_some_and(|known| known.session != id) {
                    // Within a session, a client never sees an older state than before, even if it
                    // changes servers. Another session may be served by a member that lags behind,
                    // and would then report members that have left.
                    handle.sync(self.directory.server()).await?;
                }
                // The directory's `pzxid` changes with each creation and deletion of a child, so a
                // member that has left and returned between two calls is noticed too.
                let (names, as_of, watcher) = self.list(&handle, watching.is_some()).await?;
                if known.is_some_and(|known| known.as_of == as_of) {
                    return Ok(Err((session, watcher, watching)));
                }
                let known = KnownMembers { as_of, session: id };
                Ok(Ok(Members {
                    by_name: self.read(&handle, names).await?,
                    known,
                }))
            });
            let (session, watcher, watching) = match listed.await? {
                Ok(members) => return Ok(members),
                Err(unchanged) => unchanged,
            };
            // The list above was read behind a `sync` if the session is a new one. So later lists
            // of this session are not older than the known state, and need no `sync`.
            known = known.map(|known| KnownMembers {
                session: session.session_id,
                ..known
            });
            change(session, watcher, watching).await;
        }
    }

    /// Watches the directory. The returned future resolves when a child has come or gone. The
    /// future may also resolve without a change: after an interval, if the session can watch no
    /// more, and at the end of the session.
    pub(crate) async fn watch(
        &self,
    ) -> Result<impl Future<Output = ()> + use<>, Unanswered<NoSession>> {
        let watched = self.client.repeat(|session, handle| async move {
            let watching = self.room_for_a_watch(&session);
            let (_, _, watcher) = self.list(&handle, watching.is_some()).await?;
            Ok((session, watcher, watching))
        });
        let (session, watcher, watching) = watched.await?;
        Ok(change(session, watcher, watching))
    }

    /// Counts a watch on the directory's children. The client library sets a watch on the children
    /// and one on the data of the same node separately after a reconnect, so they count separately:
    /// the `*` distinguishes their paths.
    fn room_for_a_watch(&self, session: &Session) -> Option<Watching> {
        session
            .watches
            .watch(&self.directory.child("*"), WatchUse::Node)
    }

    /// Lists the directory. If the directory is missing, the watch waits for its creation.
    async fn list(&self, handle: &zk::Client, watch: bool) -> Result<Listed, zk::Error> {
        let path = self.directory.server();
        loop {
            let listed = if watch {
                let listed = handle.get_and_watch_children(path).await;
                listed.map(|(names, stat, watcher)| (names, stat, Some(watcher)))
            } else {
                handle
                    .get_children(path)
                    .await
                    .map(|(names, stat)| (names, stat, None))
            };
            match listed {
                Ok((names, stat, watcher)) => return Ok((names, Some(stat.pzxid), watcher)),
                // A list of a missing node sets no watch, so `exists` sets one below.
                Err(zk::Error::NoNode) if watch => {}
                Err(zk::Error::NoNode) => return Ok((Vec::new(), None, None)),
                Err(error) => return Err(error),
            }
            if let (None, watcher) = handle.check_and_watch_stat(path).await? {
                return Ok((Vec::new(), None, Some(watcher)));
            }
            // The directory was created between the two requests, so it is listed again.
        }
    }

    /// Reads the data of members. The result omits members that have left in the meantime, and
    /// those that this client may not read.
    async fn read(
        &self,
        handle: &zk::Client,
        names: Vec<String>,
    ) -> Result<BTreeMap<String, Vec<u8>>, zk::Error> {
        let mut members = BTreeMap::new();
        for names in names.chunks(AT_ONCE) {
            let paths: Vec<_> = names
                .iter()
                .map(|name| self.directory.child(name))
                .collect();
            // Each call sends its request at once, so these reads take one round trip together.
            let reads: Vec<_> = paths.iter().map(|path| handle.get_data(path)).collect();
            for (name, read) in names.iter().zip(reads) {
                match read.await {
                    Ok((data, _)) => drop(members.insert(name.clone(), data)),
                    // The member has left since the list. The next call notices, because the zxid
                    // has changed.
                    Err(zk::Error::NoNode) => {}
                    // One member with another ACL must not hide all the other members from this
                    // client.
                    Err(zk::Error::NoAuth) => {
                        let path = self.directory.user();
                        log::warn!(
                            path,
                            name,
                            "a member of a group is left out: its ACL needs READ"
                        );
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(members)
    }

    fn error(&self, why: RequestFailure) -> PersistentNodeError {
        self.client
            .error(Purpose::Node, self.directory.user(), why)
            .into()
    }
}

/// Waits for the event of `watcher` or, without one, for an interval; at most until the session
/// ends. The wait does not keep the session, which the client library closes when nothing uses it
/// any more (docs/protocol.md#lent-session).
fn change(
    session: Arc<Session>,
    watcher: Option<zk::OneshotWatcher>,
    watching: Option<Watching>,
) -> impl Future<Output = ()> {
    let (ended, poll) = (session.ended(), session.lease.rule.heartbeat_interval());
    drop(session);
    async move {
        // The watch counts against the session's limit until the wait ends.
        let _watching = watching;
        tokio::select! {
            () = changed_or_after(watcher, poll) => {}
            // The caller lists again in the next session, so no change is missed by the end of this
            // one.
            _ = ended => {}
        }
    }
}
