//! The lease of one session: when it was renewed last, what that is worth now, and who is told when that changes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use zookeeper_client as zk;

use crate::protocol::lease::{Lease, LeaseState};
use crate::protocol::moment::Moment;
use crate::session::clock::{self, Latest};

/// The lease of one session.
#[derive(Debug)]
pub(crate) struct SessionLease {
    rule: Lease,
    /// The negotiated session timeout.
    timeout: Duration,
    /// When the last write was sent whose reply proved that the servers keep the session.
    last_renewal: Latest,
    /// Whether a server is there.
    connected: AtomicBool,
    /// Whether it was valid when that was told last: those that wait for it are woken when that changes, and not by
    /// each renewal.
    told: watch::Sender<bool>,
}

impl SessionLease {
    pub(super) fn new(rule: Lease, timeout: Duration) -> Self {
        Self {
            rule,
            timeout,
            last_renewal: Latest::default(),
            connected: AtomicBool::new(true),
            // Until the first renewal.
            told: watch::Sender::new(false),
        }
    }

    pub(crate) fn heartbeat_interval(&self) -> Duration {
        self.rule.heartbeat_interval()
    }

    pub(crate) fn duration(&self) -> Duration {
        self.rule.duration()
    }

    /// A write that was sent at `sent` has been answered.
    pub(crate) fn renewed(&self, sent: Moment) {
        self.last_renewal.raise(sent);
        self.tell();
    }

    /// The same for a write that was refused, if the refusal was decided by the leader and committed like any other
    /// transaction, and not by a member, or by the client library, on its own.
    pub(crate) fn renewed_by_refusal(&self, sent: Moment, error: &zk::Error) {
        // Not NoAuth: a member may decide that by itself (`enableEagerACLCheck`).
        if matches!(
            error,
            zk::Error::NoNode
                | zk::Error::NodeExists
                | zk::Error::NotEmpty
                | zk::Error::BadVersion
                | zk::Error::NoChildrenForEphemerals
        ) {
            self.renewed(sent);
        }
    }

    /// The same for a check inside a transaction, which only the leader decides. An expired session shows as a failed
    /// check too; that does not prove that it lives.
    pub(crate) fn renewed_by_check(&self, sent: Moment, error: &zk::Error) {
        if matches!(error, zk::Error::NoNode | zk::Error::NoAuth | zk::Error::BadVersion) {
            self.renewed(sent);
        }
    }

    /// When the last write was sent that was answered.
    pub(crate) fn last_renewal(&self) -> Option<Moment> {
        self.last_renewal.get()
    }

    /// What the last renewal is worth now.
    pub(crate) fn state(&self) -> LeaseState {
        // The clock first: a thread that is paused between the two must not find a new renewal old.
        let now = clock::now();
        self.rule.state(self.last_renewal(), now)
    }

    /// How long until the state gets worse, if no renewal comes.
    pub(crate) fn until_next_state(&self) -> Duration {
        // The clock first: a renewal that comes in between must not look old.
        let now = clock::now();
        self.rule.until_next_state(self.last_renewal(), now)
    }

    /// The moment before which the servers cannot end the session, as far as is known.
    pub(crate) fn kept_until(&self) -> Moment {
        self.last_renewal().map_or_else(clock::now, |renewal| renewal.plus(self.timeout))
    }

    pub(crate) fn set_connected(&self, connected: bool) {
        self.connected.store(connected, Ordering::Release);
        self.tell();
    }

    /// Returns whether a server is there, and the lease is neither suspended nor expired.
    pub(crate) fn is_valid(&self) -> bool {
        self.connected.load(Ordering::Acquire) && self.state() == LeaseState::Valid
    }

    /// Tells those that wait for it if [`is_valid`](Self::is_valid) has changed, and returns it. That time has passed is
    /// a change like any other, so it is called from time to time, and by those that begin to wait: what they have seen
    /// is what was told last, and whatever comes after it wakes them.
    pub(crate) fn tell(&self) -> bool {
        let mut valid = false;
        self.told.send_if_modified(|told| {
            // Looked at in here: of two threads, the one that looked last is the one that is believed.
            valid = self.is_valid();
            std::mem::replace(told, valid) != valid
        });
        valid
    }

    /// Changes whenever [`tell`](Self::tell) has something to tell, from now on.
    pub(crate) fn watch(&self) -> watch::Receiver<bool> {
        self.told.subscribe()
    }

    /// Waits until it is [valid](Self::is_valid): nothing is granted before.
    pub(crate) async fn valid(&self) {
        let mut told = self.watch();
        while !self.tell() {
            // The sender does not go before the session does.
            if told.changed().await.is_err() {
                return;
            }
        }
    }
}
