//! One session's incarnation.
//!
//! A ZooKeeper session cannot be revived: when it ends, its nodes go, and whoever held a lock by one of them has
//! lost it. Everything that belongs to a session therefore hangs on its [`Epoch`], and nothing of an older epoch is
//! ever used in a newer one (CURATOR-498 and -604 are what happens otherwise).

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use zookeeper_client as zk;

use crate::engine::contender::Failure;
use crate::error::{Cause, LostReason};

/// How many unsettled creates an epoch remembers for later lists. They are rare (a create whose reply was lost and
/// whose attempt was given up), so the bound only keeps a broken server from filling the memory.
const MAX_DEBTS: usize = 4096;

/// One session, from its establishment to its end, which comes in two steps: it is *ended* when nothing may be
/// held or waited for in it any more, and *gone* when no request can be sent in it. For a session of our own the
/// two are one moment, since its nodes go with it. A borrowed session lives on after our client is closed, so
/// between the two our nodes are deleted.
pub(crate) struct Epoch {
    number: u64,
    /// Taken out when the epoch is gone, so that a guard that is kept for long does not keep a dead session's
    /// connection.
    session: Mutex<Option<zk::Client>>,
    session_id: i64,
    timeout: Duration,
    ended: watch::Sender<Option<LostReason>>,
    gone: watch::Sender<bool>,
    /// Attempts that may have requests under way.
    attempts: watch::Sender<usize>,
    /// Server paths of the nodes that exist, as far as we know.
    nodes: Mutex<HashSet<String>>,
    debts: Mutex<VecDeque<String>>,
}

/// The epoch has ended, so nothing can be asked of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EpochOver;

impl Epoch {
    pub(crate) fn new(number: u64, session: zk::Client) -> Arc<Self> {
        Arc::new(Self {
            number,
            session_id: session.session_id().0,
            timeout: session.session_timeout(),
            session: Mutex::new(Some(session)),
            ended: watch::Sender::new(None),
            gone: watch::Sender::new(false),
            attempts: watch::Sender::new(0),
            nodes: Mutex::default(),
            debts: Mutex::default(),
        })
    }

    /// Which epoch of its client this is, from 1.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn session_id(&self) -> i64 {
        self.session_id
    }

    /// The negotiated session timeout.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The session, to send requests by. A clone is for one piece of work, not to be kept: the session is closed
    /// when the last clone is dropped.
    pub(crate) fn session(&self) -> Result<zk::Client, EpochOver> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner).clone().ok_or(EpochOver)
    }

    /// How the epoch ended, if it has.
    pub(crate) fn end_reason(&self) -> Option<LostReason> {
        *self.ended.borrow()
    }

    /// Resolves when the epoch ends; owns what it needs.
    pub(crate) fn ended(&self) -> impl Future<Output = LostReason> + Send + 'static {
        let mut ended = self.ended.subscribe();
        async move {
            match ended.wait_for(Option::is_some).await {
                Ok(reason) => (*reason).unwrap_or(LostReason::Closed),
                // The epoch is dropped by everybody: nobody can hold anything in it.
                Err(_) => LostReason::Closed,
            }
        }
    }

    /// Resolves when nothing can be sent in the epoch any more; owns what it needs.
    pub(crate) fn gone(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut gone = self.gone.subscribe();
        async move {
            // An error means that everybody has dropped the epoch: it is gone as well.
            let _ = gone.wait_for(|gone| *gone).await;
        }
    }

    /// Ends the epoch, and lets go of the session: what is under way is abandoned. The first reason stays. Answers
    /// with the session, which closes when its last clone is dropped.
    pub(crate) fn end(&self, reason: LostReason) -> Option<zk::Client> {
        // The guards are told before the session can be closed by the drop of its last clone.
        self.end_softly(reason);
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.gone.send_replace(true);
        session
    }

    /// Ends the epoch for guards and waiters, but keeps the session for cleaning up.
    pub(crate) fn end_softly(&self, reason: LostReason) {
        let first = self.ended.send_if_modified(|ended| {
            let first = ended.is_none();
            if first {
                *ended = Some(reason);
            }
            first
        });
        if first {
            let session = self.session_id;
            tracing::info!(epoch = self.number, session = format_args!("{session:#x}"), %reason, "session over");
        }
    }

    /// Counts an attempt for as long as the answer lives.
    pub(crate) fn attempt(self: &Arc<Self>) -> Attempt {
        self.attempts.send_modify(|attempts| *attempts += 1);
        Attempt(Arc::clone(self))
    }

    /// How many attempts may have requests under way.
    pub(crate) fn attempts(&self) -> watch::Receiver<usize> {
        self.attempts.subscribe()
    }

    /// A node of ours exists.
    pub(crate) fn adopt(&self, path: String) {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner).insert(path);
    }

    /// A node of ours is gone.
    pub(crate) fn disown(&self, path: &str) {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner).remove(path);
    }

    /// The server paths of our nodes.
    pub(crate) fn nodes(&self) -> Vec<String> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// Remembers a create whose outcome nobody could establish: should a later list of its directory show it, it is
    /// deleted (design rule 6).
    pub(crate) fn owe(&self, id: String) {
        let mut debts = self.debts.lock().unwrap_or_else(PoisonError::into_inner);
        if debts.len() == MAX_DEBTS {
            debts.pop_front();
        }
        debts.push_back(id);
    }

    /// Which of `children` are late creates that nobody waits for any more. They are forgotten here: the caller
    /// has them deleted.
    pub(crate) fn collect_debts<'a>(&self, children: &'a [String]) -> Vec<&'a str> {
        let mut debts = self.debts.lock().unwrap_or_else(PoisonError::into_inner);
        if debts.is_empty() {
            return Vec::new();
        }
        let mut found = Vec::new();
        debts.retain(|id| match children.iter().find(|name| name.contains(id.as_str())) {
            Some(name) => {
                found.push(name.as_str());
                false
            }
            None => true,
        });
        found
    }

    /// What an error of the client library means for the request that got it (design rule 5).
    pub(crate) fn judge(&self, error: &zk::Error) -> Failure {
        match error {
            zk::Error::NoNode => Failure::NoNode,
            zk::Error::NoAuth
            | zk::Error::BadVersion
            | zk::Error::NoChildrenForEphemerals
            | zk::Error::NodeExists
            | zk::Error::NotEmpty
            | zk::Error::InvalidAcl
            | zk::Error::QuotaExceeded
            | zk::Error::MarshallingError
            | zk::Error::Unimplemented
            | zk::Error::BadArguments(_) => Failure::Refused,
            zk::Error::Throttled | zk::Error::NotReadOnly => Failure::NotNow,
            zk::Error::SessionExpired => {
                self.end(LostReason::SessionExpired);
                Failure::EpochOver
            }
            zk::Error::AuthFailed | zk::Error::ClientClosed => {
                self.end(LostReason::Closed);
                Failure::EpochOver
            }
            zk::Error::UnexpectedError(_) => {
                self.end_if_dead();
                if self.end_reason().is_some() { Failure::EpochOver } else { Failure::Unknown }
            }
            // ConnectionLoss, Custom, an unknown code, anything a later version adds.
            _ => Failure::Unknown,
        }
    }

    /// Ends the epoch if the task that serves the session is gone. Nothing else says so: the state stays what it
    /// was (review finding 18). A live session never answers a request before it has been sent.
    fn end_if_dead(&self) {
        let Ok(session) = self.session() else { return };
        let mut probe = std::pin::pin!(session.sync("/"));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        if let std::task::Poll::Ready(Err(zk::Error::UnexpectedError(_))) = probe.as_mut().poll(&mut context)
        {
            tracing::error!(epoch = self.number, "the task that serves the session has died");
            self.end(LostReason::SessionExpired);
        }
    }
}

/// An attempt that may have requests under way; see [`Epoch::attempt`].
#[derive(Debug)]
pub(crate) struct Attempt(Arc<Epoch>);

impl Drop for Attempt {
    fn drop(&mut self) {
        self.0.attempts.send_modify(|attempts| *attempts = attempts.saturating_sub(1));
    }
}

impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Epoch")
            .field("number", &self.number)
            .field("session_id", &format_args!("{:#x}", self.session_id))
            .field("ended", &self.end_reason())
            .finish_non_exhaustive()
    }
}

/// An error of the client library as the source of one of ours.
pub(crate) fn cause(error: zk::Error) -> Cause {
    Arc::new(error)
}
