//! The notes of the [journal](crate::session::journal), which the [observer](crate::session::observer)
//! reports.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::{Dispatch, Span};

use crate::error::LostReason;
use crate::path::LockPath;

/// Identifies an observed call.
pub(crate) type CallNumber = NonZeroU64;

/// The kind of lock that is acquired.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) path: LockPath,
    pub(crate) recipe: &'static str,
    #[cfg(feature = "metrics")]
    pub(crate) prefix: Arc<str>,
}

/// The way in which a lock was granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum How {
    /// A list of the queue showed that nothing was before it.
    #[default]
    List,
    /// Nothing could be before it, without a list.
    Succession,
    /// It had waited for other contenders.
    Event,
    /// One transaction of the holder before it, in this process.
    HandedOver,
    /// The holder before it, in this process, without a request.
    Memory,
    /// The node was kept by this process, without a request.
    Kept,
    /// Other readers of this process have the node, without a request.
    Shared,
}

impl How {
    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Succession => "succession",
            Self::Event => "event",
            Self::HandedOver => "handed_over",
            Self::Memory => "memory",
            Self::Kept => "kept",
            Self::Shared => "shared",
        }
    }
}

/// A grant, as its caller has it.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) how: How,
    pub(crate) node: Arc<str>,
    pub(crate) session: u64,
    /// How many nodes were granted: permits, or the members of a multi-lock.
    pub(crate) holds: usize,
}

/// How something that was granted ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    Lost(LostReason),
    /// By a call, or else by a drop.
    Released {
        by_call: bool,
    },
}

/// Where a call was made: whom to tell, and the span around it.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) subscriber: Dispatch,
    pub(super) span: Span,
}

/// One thing that happened, or a line of the log.
pub(super) enum Note {
    Asked { call: CallNumber, at: Instant, subject: Subject, context: Option<Context> },
    Queued { call: CallNumber, node: Option<String>, ahead: Option<usize> },
    Granted { call: CallNumber, at: Instant, granted: Granted },
    NotGranted { call: CallNumber, at: Instant, reason: &'static str },
    Converted { call: CallNumber, recipe: &'static str },
    Over { call: CallNumber, at: Instant, end: End },
    HandedOver { directory: LockPath, node: String, to: String },
    OrphanDeleted { directory: LockPath, node: String },
    HeartbeatLate { session: u64, took: Duration },
    SessionBegan,
    SessionEnded(LostReason),
    Line(Box<dyn FnOnce() + Send>),
}

impl Note {
    /// Returns whether it is about a call that is observed from its beginning.
    pub(super) const fn goes_on(&self) -> bool {
        match self {
            Self::Queued { .. } | Self::Granted { .. } | Self::NotGranted { .. } | Self::Over { .. } => true,
            // One guard may convert as often as it likes.
            Self::Asked { .. }
            | Self::Converted { .. }
            | Self::HandedOver { .. }
            | Self::OrphanDeleted { .. }
            | Self::HeartbeatLate { .. }
            | Self::SessionBegan
            | Self::SessionEnded(_)
            | Self::Line(_) => false,
        }
    }
}
