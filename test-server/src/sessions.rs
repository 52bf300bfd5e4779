//! Sessions and their expiry. The caller passes the time, in milliseconds since the server started.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};

#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) password: [u8; 16],
    pub(crate) timeout_ms: u64,
    pub(crate) expires_at: u64,
    pub(crate) connection: Option<u64>,
    /// The connection that the session used last, which may be closed.
    pub(crate) last_connection: u64,
    pub(crate) created_at: u64,
    /// The read-only member at which the session began; only that member knows it.
    pub(crate) local: Option<usize>,
}

#[derive(Debug)]
pub(crate) struct Sessions {
    by_id: BTreeMap<i64, Session>,
    tick_ms: u64,
    next_id: i64,
    pub(crate) frozen: bool,
}

impl Sessions {
    /// Uses a random first id, so that two servers never share ids, even if one process starts both
    /// in the same millisecond. ZooKeeper derives the first id from the wall clock.
    pub(crate) fn new(tick_ms: u64) -> Self {
        let moment = i64::from_be_bytes(RandomState::new().build_hasher().finish().to_be_bytes());
        let next_id = (moment << 24 >> 8) & 0x00ff_ffff_ffff_ffff | 1 << 56;
        Self {
            by_id: BTreeMap::new(),
            tick_ms: tick_ms.max(1),
            next_id,
            frozen: false,
        }
    }

    /// Returns an empty table whose ids count from 1.
    pub(crate) fn counted(tick_ms: u64) -> Self {
        Self {
            by_id: BTreeMap::new(),
            tick_ms: tick_ms.max(1),
            next_id: 1,
            frozen: false,
        }
    }

    pub(crate) fn create(&mut self, timeout_ms: u64, now: u64) -> i64 {
        let id = self.next_id;
        self.next_id += 1;
        let mut password = [0; 16];
        for half in password.chunks_exact_mut(8) {
            let mut hasher = RandomState::new().build_hasher();
            hasher.write_i64(id);
            half.copy_from_slice(&hasher.finish().to_be_bytes());
        }
        let session = Session {
            password,
            timeout_ms,
            expires_at: 0,
            connection: None,
            last_connection: 0,
            created_at: now,
            local: None,
        };
        self.by_id.insert(id, session);
        self.touch(id, now);
        id
    }

    pub(crate) fn get(&self, id: i64) -> Option<&Session> {
        self.by_id.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: i64) -> Option<&mut Session> {
        self.by_id.get_mut(&id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (i64, &Session)> {
        self.by_id.iter().map(|(id, session)| (*id, session))
    }

    pub(crate) fn remove(&mut self, id: i64) -> Option<Session> {
        self.by_id.remove(&id)
    }

    /// Returns the sessions that only this read-only member knows.
    pub(crate) fn local_to(&self, member: usize) -> Vec<i64> {
        self.iter()
            .filter(|(_, session)| session.local == Some(member))
            .map(|(id, _)| id)
            .collect()
    }

    /// Renews a session: it expires at the first tick after its timeout.
    pub(crate) fn touch(&mut self, id: i64, now: u64) {
        let tick = self.tick_ms;
        if let Some(session) = self.by_id.get_mut(&id) {
            session.expires_at =
                (now.saturating_add(session.timeout_ms) / tick + 1).saturating_mul(tick);
        }
    }

    /// Renews all sessions, as after a restart or an election.
    pub(crate) fn renew_all(&mut self, now: u64) {
        for id in self.by_id.keys().copied().collect::<Vec<_>>() {
            self.touch(id, now);
        }
    }

    /// Returns the sessions that have expired.
    pub(crate) fn overdue(&self, now: u64) -> Vec<i64> {
        let due = |(id, session): (&i64, &Session)| (session.expires_at <= now).then_some(*id);
        if self.frozen {
            Vec::new()
        } else {
            self.by_id.iter().filter_map(due).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_expires_within_one_tick() {
        let mut sessions = Sessions::new(50);
        for heard in [0, 1, 49, 50, 51, 99] {
            let id = sessions.create(100, heard);
            let at = sessions.get(id).map_or(0, |session| session.expires_at);
            assert!(
                at > heard + 100 && at <= heard + 150,
                "heard at {heard}, expires at {at}"
            );
            assert!(!sessions.overdue(at - 1).contains(&id));
            assert!(sessions.overdue(at).contains(&id));
            sessions.remove(id);
        }
    }

    #[test]
    fn simultaneous_servers_share_no_ids() {
        let ids: std::collections::HashSet<i64> =
            (0..100).map(|_| Sessions::new(50).create(1, 0)).collect();
        assert_eq!(ids.len(), 100);
    }

    #[test]
    fn ids_are_positive_and_passwords_differ() {
        let mut sessions = Sessions::new(50);
        let (a, b) = (sessions.create(1, 0), sessions.create(1, 0));
        assert!(a > 0 && b > 0 && a != b);
        assert_ne!(
            sessions.get(a).map(|s| s.password),
            sessions.get(b).map(|s| s.password)
        );
    }
}
