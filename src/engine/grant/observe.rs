//! The engine's reports of a call that acquires a lock, which the
//! [observer](crate::session::reports::observer) passes on.

use std::sync::Arc;

use crate::engine::grant::hold::Hold;
use crate::engine::held::Held;
use crate::engine::lock::lock_options::Recipe;
use crate::engine::lock::path_lock::{Ask, PathLock};
use crate::error::{AcquireError, ErrorKind, TryLockError};
use crate::protocol::acquire::{AcquireEvent, Standing};
use crate::protocol::node_name::Kind;
use crate::session::reports::observer::{CallEnd, CallReport, CallSubject, GrantReport, How};

/// One call that acquires a lock, in the hands of its caller: eight bytes, and nothing if it is not
/// observed. Its drop notes that it was cancelled, unless it has ended.
#[derive(Default)]
pub(crate) struct Call(Option<Arc<CallReport>>);

impl Call {
    /// Notes a call, whose attempts carry its number.
    pub(crate) fn begin(path_lock: &PathLock, ask: &mut Ask) -> Self {
        Self::begin_as(recipe(path_lock, ask.kind), path_lock, ask)
    }

    /// Notes a call for several locks as one, of which this is the first.
    pub(crate) fn begin_multi(first: &PathLock, ask: &mut Ask) -> Self {
        Self::begin_as("multi_lock", first, ask)
    }

    fn begin_as(recipe: &'static str, path_lock: &PathLock, ask: &mut Ask) -> Self {
        let report = CallReport::begin(|| CallSubject {
            path: path_lock.path.clone(),
            recipe,
            #[cfg(feature = "metrics")]
            prefix: path_lock.client.labels.of(path_lock.path.user()),
        });
        ask.call = report.as_deref().map(CallReport::number);
        Self(report)
    }

    /// Notes the result of the call, and returns it. `path_lock` is that of the call, or of the
    /// first of several, and `holds` are the granted ones. Each call that acquires anything ends
    /// here. A grant that its caller has not seen when the client is drained is given back: the
    /// drain may have looked before it was made (docs/protocol.md#drain).
    pub(crate) fn ended<T, E: Reason + From<AcquireError>>(
        self,
        path_lock: &PathLock,
        result: Result<T, E>,
        holds: impl FnOnce(&T) -> &[Hold],
    ) -> Result<T, E> {
        let drained = || path_lock.client.refuses(&path_lock.path);
        let result =
            result.and_then(|granted| drained().map_or(Ok(granted), |closed| Err(closed.into())));
        if let Some(report) = &self.0 {
            match &result {
                Ok(granted) => begin_holds(report, holds(granted)),
                Err(error) => report.end(CallEnd::NotGranted(error.reason())),
            }
        }
        result
    }
}

/// Reports that these holds were granted.
fn begin_holds(report: &Arc<CallReport>, holds: &[Hold]) {
    let Some(first) = holds.first() else { return };
    let (how, node, session) = (first.how(), first.node(), first.session.number.get());
    report.granted(GrantReport {
        how,
        node,
        session,
        holds: holds.len(),
    });
    holds.iter().for_each(|hold| hold.held.begin_report(report));
}

/// Why a call was not granted, as a label.
pub(crate) trait Reason {
    fn reason(&self) -> &'static str;
}

impl Reason for AcquireError {
    fn reason(&self) -> &'static str {
        match self {
            Self::TimedOut { .. } => "timed_out",
            Self::Request(error) => match error.kind() {
                ErrorKind::Connection => "connection",
                ErrorKind::Closed => "closed",
                _ => "refused",
            },
            _ => "refused",
        }
    }
}

impl Reason for TryLockError {
    fn reason(&self) -> &'static str {
        match self {
            Self::WouldBlock { .. } => "busy",
            Self::Acquire(error) => error.reason(),
        }
    }
}

/// Reports that a hold was converted to that of a reader.
pub(crate) fn converted(held: &Held) {
    held.report.converted(read_write(held.kind()));
}

/// Returns by what a lock is granted if this event is the last before the grant.
pub(crate) fn how(event: &AcquireEvent, has_waited: bool) -> How {
    match event {
        AcquireEvent::HandedOver => How::HandedOver,
        _ if has_waited => How::Event,
        AcquireEvent::Created {
            list: None,
            standing: Standing::First,
            ..
        } => How::Succession,
        _ => How::List,
    }
}

fn recipe(path_lock: &PathLock, kind: Kind) -> &'static str {
    match path_lock.options.recipe {
        Recipe::Mutex => "mutex",
        Recipe::FairLock => "fair_lock",
        Recipe::ReadWriteLock => read_write(kind),
        Recipe::Semaphore => "semaphore",
        // An election begins no call.
        Recipe::LeaderLatch => "leader_latch",
    }
}

const fn read_write(kind: Kind) -> &'static str {
    match kind {
        Kind::Shared => "read_lock",
        Kind::Exclusive => "write_lock",
    }
}
