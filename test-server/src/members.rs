//! The members of an ensemble: several servers over one tree, of which some may lag or be cut off.

use std::sync::Arc;

use crate::connection::{Conn, End};
use crate::state::{Ask, Isolation, State};
use crate::tree::Tree;
use crate::txn::Change;
use crate::wire::request::Request;

/// The condition of a member of an ensemble, for [`Server::set_member`](crate::Server::set_member).
///
/// Transactions are committed while more than half of the members are [`Current`](Self::Current) or
/// [`Behind`](Self::Behind). While fewer are, these reply as a [`Cut`](Self::Cut) follower does,
/// and no session expires. When there is a majority again, a leader is elected: all connections are
/// closed, and every session gets a fresh timeout.
///
/// Of the members that are [`Current`](Self::Current) the last one leads. A member's answer to
/// four-letter words such as `srvr` says whether it leads, follows, is read-only or has no
/// majority.
///
/// ```
/// use zookeeper_client::Client;
/// use zookeeper_test_server::{Member, Server};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = Server::builder().members(3).start()?;
/// server.create("/a", "old")?;
/// let first = server.connect_string().split(',').next().unwrap_or_default().to_owned();
/// let client = Client::connect(&first).await?;
/// server.set_member(0, Member::Behind);
/// server.set_data("/a", "new")?;
///
/// let (data, _stat) = client.get_data("/a").await?;
/// assert_eq!(data, b"old");
/// client.sync("/a").await?;
/// let (data, _stat) = client.get_data("/a").await?;
/// assert_eq!(data, b"new");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Member {
    /// The member has applied all committed transactions.
    Current,
    /// A follower that does not apply transactions that were committed through other members: it
    /// replies to reads with an old state, and sends no events. It catches up when one of its own
    /// clients writes, calls `sync` or begins or closes a session, and lags again from then on. A
    /// client that has seen a later state elsewhere is refused.
    Behind,
    /// The member is cut off from the others, and continues to answer the requests that it can
    /// answer alone, as described at [`Isolation`]. The member accepts no session, and the others
    /// do not learn of its clients.
    Cut(Isolation),
    /// The member is cut off from the others, and in ZooKeeper's read-only mode
    /// (`readonlymode.enabled`): it closes the connections of clients that do not allow for that
    /// mode, answers reads with the state at the cut, and refuses writes. The member closes its
    /// connections when the mode begins and when it ends.
    ///
    /// A session from before cannot be resumed there: the connection is closed without a reply. A
    /// new session begins only with [`Builder::local_sessions`](crate::Builder::local_sessions).
    /// Such a session is known to this member alone, has no ephemeral nodes, and ends with the
    /// mode. Without this setting, which is ZooKeeper's default, the first reply is an error
    /// (`NotReadOnly`) that is not a reply to a connect, and no other follows.
    ReadOnly,
    /// The member does not run, or knows that it is cut off: it closes its connections, and each
    /// new one at once.
    Down,
}

/// A member, with its own state if it has not applied all transactions.
#[derive(Debug)]
pub(crate) struct Standing {
    pub(crate) member: Member,
    past: Option<Past>,
}

#[derive(Debug)]
struct Past {
    tree: Tree,
    zxid: i64,
    /// The changes that the member has missed, if it will apply them.
    missed: Vec<Change>,
}

impl Standing {
    pub(crate) fn current() -> Self {
        Self {
            member: Member::Current,
            past: None,
        }
    }

    fn votes(&self) -> bool {
        matches!(self.member, Member::Current | Member::Behind)
    }
}

/// The mode that a member reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Standalone,
    Leader,
    Follower,
    ReadOnly,
    /// The member looks for a majority, and serves no client.
    Looking,
}

impl State {
    /// Returns the role that a member reports. A member that is cut off does not know that, and
    /// reports its old role.
    pub(crate) fn role(&self, index: usize) -> Role {
        match self.member(index) {
            Member::Cut(Isolation::Follower) => Role::Follower,
            Member::Cut(Isolation::DeposedLeader) => Role::Leader,
            Member::ReadOnly => Role::ReadOnly,
            Member::Down => Role::Looking,
            Member::Current | Member::Behind if self.members.len() == 1 => Role::Standalone,
            Member::Current | Member::Behind if !self.has_quorum() => Role::Looking,
            Member::Current | Member::Behind if self.leader() == Some(index) => Role::Leader,
            Member::Current | Member::Behind => Role::Follower,
        }
    }

    /// Returns the member that leads: as in an election, the last of those that know most.
    fn leader(&self) -> Option<usize> {
        let last = |wanted| {
            self.members
                .iter()
                .rposition(|standing| standing.member == wanted)
        };
        last(Member::Current).or_else(|| last(Member::Behind))
    }

    /// Returns the numbers of the members that follow the one that leads, counted from 1.
    pub(crate) fn followers(&self) -> Vec<usize> {
        (0..self.members.len())
            .filter(|index| self.members.get(*index).is_some_and(Standing::votes))
            .filter(|index| self.role(*index) == Role::Follower)
            .map(|index| index + 1)
            .collect()
    }

    /// Returns whether transactions can be committed.
    pub(crate) fn has_quorum(&self) -> bool {
        2 * self.members.iter().filter(|member| member.votes()).count() > self.members.len()
    }

    pub(crate) fn member(&self, index: usize) -> Member {
        self.members
            .get(index)
            .map_or(Member::Down, |standing| standing.member)
    }

    /// Returns whether a member replies without the others, if at all.
    pub(crate) fn is_alone(&self, index: usize) -> bool {
        matches!(
            self.member(index),
            Member::Cut(_) | Member::ReadOnly | Member::Down
        ) || !self.has_quorum()
    }

    /// Returns whether what happens on a connection is unknown to the others.
    pub(crate) fn is_cut(&self, conn: &Conn) -> bool {
        self.is_isolated(conn.session()) || self.is_alone(conn.member)
    }

    pub(crate) fn is_read_only(&self, index: usize) -> bool {
        self.member(index) == Member::ReadOnly
    }

    pub(crate) fn is_behind(&self, index: usize) -> bool {
        self.member(index) == Member::Behind
    }

    /// Changes the condition of a member; returns `false` if there is no such member.
    pub(crate) fn set_member(&mut self, index: usize, member: Member) -> bool {
        let has_mode = member != Member::ReadOnly || !self.config.version.is_keeper();
        let member = if has_mode { member } else { Member::Down };
        let could_commit = self.has_quorum();
        let Some(before) = self.members.get(index).map(|standing| standing.member) else {
            return false;
        };
        if before == member {
            return true;
        }
        self.catch_up(index);
        let past = match member {
            Member::Behind | Member::Cut(_) | Member::ReadOnly => Some(self.snapshot()),
            Member::Current | Member::Down => None,
        };
        if let Some(standing) = self.members.get_mut(index) {
            *standing = Standing { member, past };
        }
        // A member that rejoins the others closes its connections, too.
        let closes = |member| matches!(member, Member::Down | Member::ReadOnly);
        if closes(member) || matches!(before, Member::Cut(_) | Member::ReadOnly) {
            self.close_connections(|conn| conn.member == index);
        }
        if before == Member::ReadOnly {
            for session in self.sessions.local_to(index) {
                self.expire(session);
            }
        }
        if !could_commit && self.has_quorum() {
            self.close_connections(|_| true);
            let now = self.now();
            self.sessions.renew_all(now);
        }
        true
    }

    fn snapshot(&self) -> Past {
        Past {
            tree: self.tree.clone(),
            zxid: self.zxid,
            missed: Vec::new(),
        }
    }

    fn close_connections(&mut self, of: impl Fn(&Conn) -> bool) {
        let connections: Vec<Arc<Conn>> = self
            .connections
            .values()
            .filter(|conn| of(conn))
            .cloned()
            .collect();
        for conn in connections {
            self.disconnect(&conn);
            conn.kill(End::Left);
        }
    }

    /// Returns the last transaction that a member knows.
    pub(crate) fn zxid_at(&self, index: usize) -> i64 {
        self.members
            .get(index)
            .and_then(|standing| standing.past.as_ref())
            .map_or(self.zxid, |past| past.zxid)
    }

    /// Exchanges the state of a member that lags with the committed state.
    pub(crate) fn swap_past(&mut self, index: usize) {
        if let Some(past) = self
            .members
            .get_mut(index)
            .and_then(|standing| standing.past.as_mut())
        {
            std::mem::swap(&mut self.tree, &mut past.tree);
            std::mem::swap(&mut self.zxid, &mut past.zxid);
        }
    }

    /// Keeps a change for the members that lag.
    pub(crate) fn miss(&mut self, change: &Change) {
        for standing in self
            .members
            .iter_mut()
            .filter(|standing| standing.member == Member::Behind)
        {
            if let Some(past) = &mut standing.past {
                // The data is dropped, because the tree has it and an event does not contain it.
                past.missed.push(Change {
                    data: None,
                    ..change.clone()
                });
            }
        }
    }

    /// Makes a member that lags apply the changes that it has missed: its clients receive the
    /// events, and the sessions that have expired are closed.
    pub(crate) fn catch_up(&mut self, index: usize) {
        if !self.is_behind(index) {
            return;
        }
        let now = self.snapshot();
        let Some(past) = self
            .members
            .get_mut(index)
            .and_then(|standing| standing.past.replace(now))
        else {
            return;
        };
        for change in &past.missed {
            self.fire(change, |member, _| member == index);
        }
        let over = |conn: &&Arc<Conn>| {
            conn.member == index && conn.is_greeted() && self.sessions.get(conn.session()).is_none()
        };
        let over: Vec<Arc<Conn>> = self.connections.values().filter(over).cloned().collect();
        for conn in over {
            self.end_connection(&conn);
        }
    }

    /// Returns whether a member that lags replies to a request only after it has caught up.
    pub(crate) fn waits(ask: &Ask) -> bool {
        match &ask.body {
            Ok(Request::Sync { .. }) | Err(_) => true,
            Ok(request) => !request.is_read(),
        }
    }
}
