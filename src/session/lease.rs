//! The lease of one session: when it was renewed last, whether it is valid, and the tasks that wait for a
//! change of that.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use crate::protocol::lease::{Lease, LeaseState, SpareTries};
use crate::protocol::moment::Moment;
use crate::session::clock::{self, Latest};

/// The lease of one session.
#[derive(Debug)]
pub(crate) struct SessionLease {
    rule: Lease,
    /// The negotiated session timeout.
    timeout: Duration,
    /// When the last write was sent that renewed the lease.
    last_renewal: Latest,
    /// Whether a server is connected.
    connected: AtomicBool,
    /// Whether the lease was valid at the last notification. Waiting tasks are woken when that changes, and
    /// not by each renewal.
    told: watch::Sender<bool>,
}

impl SessionLease {
    pub(super) fn new(rule: Lease, timeout: Duration) -> Self {
        Self {
            rule,
            timeout,
            last_renewal: Latest::default(),
            connected: AtomicBool::new(true),
            // The lease is not valid before the first renewal.
            told: watch::Sender::new(false),
        }
    }

    pub(crate) fn heartbeat_interval(&self) -> Duration {
        self.rule.heartbeat_interval()
    }

    pub(crate) fn duration(&self) -> Duration {
        self.rule.duration()
    }

    pub(super) fn spare_tries(&self) -> SpareTries {
        self.rule.spare_tries()
    }

    /// Renews the lease: a write that was sent at `sent` has been answered.
    pub(crate) fn renewed(&self, sent: Moment) {
        self.last_renewal.raise(sent);
        self.tell();
    }

    /// Returns when the last write was sent that was answered.
    pub(crate) fn last_renewal(&self) -> Option<Moment> {
        self.last_renewal.get()
    }

    /// Returns the state of the lease now.
    pub(crate) fn state(&self) -> LeaseState {
        // The clock is read first: a renewal that comes between the two is not taken for an old one.
        let now = clock::now();
        self.rule.state(self.last_renewal(), now)
    }

    /// Returns how long until the state gets worse without a renewal.
    pub(crate) fn until_next_state(&self) -> Duration {
        // The clock is read first: a renewal that comes between the two is not taken for an old one.
        let now = clock::now();
        self.rule.until_next_state(self.last_renewal(), now)
    }

    /// Returns the moment before which the servers do not expire the session.
    pub(crate) fn kept_until(&self) -> Moment {
        self.last_renewal().map_or_else(clock::now, |renewal| renewal.plus(self.timeout))
    }

    pub(crate) fn set_connected(&self, connected: bool) {
        self.connected.store(connected, Ordering::Release);
        self.tell();
    }

    /// Returns whether a server is connected, and the lease is neither suspended nor expired.
    pub(crate) fn is_valid(&self) -> bool {
        self.connected.load(Ordering::Acquire) && self.state() == LeaseState::Valid
    }

    /// Returns [`is_valid`](Self::is_valid), and wakes the waiting tasks if that has changed. The passing of
    /// time changes it too, so this is called from time to time, and by each task before it waits: a change
    /// after the state that it has seen wakes it.
    pub(crate) fn tell(&self) -> bool {
        let mut valid = false;
        self.told.send_if_modified(|told| {
            // This is evaluated under the lock, so that of two threads the later one determines the value.
            valid = self.is_valid();
            std::mem::replace(told, valid) != valid
        });
        valid
    }

    /// Returns a receiver that changes whenever [`tell`](Self::tell) finds a change.
    pub(crate) fn watch(&self) -> watch::Receiver<bool> {
        self.told.subscribe()
    }

    /// Waits until it is [valid](Self::is_valid): no lock is granted before (docs/protocol.md#suspended).
    pub(crate) async fn until_valid(&self) {
        let mut told = self.watch();
        while !self.tell() {
            // The sender lives as long as the session.
            if told.changed().await.is_err() {
                return;
            }
        }
    }
}
