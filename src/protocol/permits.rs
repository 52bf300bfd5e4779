//! How the head of a semaphore's queue gets its permits, as a state machine. Pure.
//!
//! Its [task](crate::engine::permits) carries out each [`PermitsStep`] and returns its [`PermitsEvent`], until
//! the step is [`PermitsStep::Finish`].
//!
//! # Invariants
//! 1. Only the head of the queue of locks creates leases, by one transaction that deletes its lock node too. So
//!    leases become more only by the head's own hand, and a list of them that was sent after the list of locks
//!    that showed it as the head never shows too few (docs/protocol.md#permits-by-one-transaction).
//! 2. **Every child of the directory of leases counts**, whatever its name: it may be another client's lease.
//! 3. The deletion of the lock node makes the transaction happen once at most. One whose outcome is unknown is
//!    repeated with fresh ids until there is a definite answer: if the lock node is gone by then, an earlier
//!    one has happened, whose leases a list shows, or another hand has deleted the node
//!    (docs/protocol.md#permits-unknown-outcome).
//! 4. However it ends without a grant, the outcome has what may be left: leases by name, and the ids of creates
//!    whose outcome is unknown.

use crate::protocol::acquire::{IfBusy, Orphans};
use crate::protocol::failure::{Answer, Failure, FailureKind};

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PermitsStep {
    Do(PermitsRequest),
    /// Wait until one of the watches of the last look fires.
    Wait,
    /// Pause. Without `until_known`, as the retry policy says for repetition number `failures` (from 0), and
    /// then `Retry`, or `GiveUp` if it is exhausted; with it, as a cleanup does, which never gives up.
    Pause {
        failures: u32,
        why: Failure,
        until_known: bool,
    },
    Finish(PermitsOutcome),
}

/// A request to the server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PermitsRequest {
    /// List the leases and read the limit, in one flight. With `watch`, also watch both; `limit_exists` is
    /// whether the node with the limit has been seen.
    Look { watch: bool, limit_exists: bool },
    /// Create the directory of leases and those above it.
    MakeLeases,
    /// One transaction: create a lease for each slot, and delete the lock node.
    Take(Take),
}

/// The transaction by which the head takes its permits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Take {
    /// The slots, one for each permit.
    pub(crate) slots: Vec<u32>,
    /// The limit under which they are taken.
    pub(crate) limit: u32,
    /// The version of the node with the limit, which has to be the same still. `None` if there is no such
    /// node.
    pub(crate) limit_version: Option<i32>,
}

/// The result of a step.
#[derive(Debug)]
pub(crate) enum PermitsEvent {
    /// Of [`PermitsRequest::Look`].
    Looked(Answer<Seen>),
    /// Of [`PermitsRequest::MakeLeases`].
    Made(Answer<()>),
    /// Of [`PermitsRequest::Take`]: the ids of its creates, which are of this request only, and what came of
    /// it.
    Taken { ids: Vec<String>, outcome: Taken },
    /// Of [`PermitsStep::Wait`]: something has changed.
    Changed,
    /// Of [`PermitsStep::Wait`]: the watch is of no use any more.
    WatchFailed(Failure),
    /// Of [`PermitsStep::Pause`]: the pause is over.
    Retry,
    /// Of [`PermitsStep::Pause`]: the retry policy is exhausted.
    GiveUp,
}

/// What a look shows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Seen {
    /// The names of all children of the directory of leases; none if it does not exist.
    pub(crate) leases: Vec<String>,
    /// How many of them this client is deleting.
    pub(crate) leaving: usize,
    pub(crate) limit: LimitNode,
}

/// The node with the limit in force.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LimitNode {
    /// There is none: the limit is the one that the handles state.
    Missing,
    Is {
        permits: u32,
        version: i32,
    },
    /// It contains something else, which this describes.
    Invalid(String),
}

/// What came of the transaction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Taken {
    /// It is committed. Has the names of the leases.
    Done {
        names: Vec<String>,
    },
    /// Definitely not committed: the lock node does not exist.
    LockGone,
    /// Definitely not committed: the node with the limit has changed.
    LimitChanged,
    /// Definitely not committed: the directory of leases does not exist.
    NoDirectory,
    Failed(Failure),
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PermitsOutcome {
    /// These leases are held, and the lock node is gone.
    Granted {
        names: Vec<String>,
    },
    NotGranted {
        why: NoPermits,
        orphans: Orphans,
    },
}

/// Why no permits were granted. The lock node still exists unless it is said to be gone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum NoPermits {
    /// Too few are free, and this attempt does not wait.
    WouldBlock,
    /// It asks for more than the limit.
    TooMany {
        limit: u32,
    },
    /// This lease was created under another limit than the one that this handle states.
    LimitMismatch {
        theirs: u32,
        lease: String,
    },
    /// The node with the limit contains no limit.
    InvalidLimit {
        found: String,
    },
    /// The lock node has been deleted by another process.
    LockDeleted,
    /// The servers refused the last request.
    Refused(Failure),
    /// The retry policy is exhausted. Has the last failure.
    KeptFailing(Failure),
    /// The session can watch no more.
    TooManyWatches,
    SessionGone,
}

/// The state machine; see the [module](self).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Taking {
    /// How many permits are wanted.
    wanted: u32,
    /// The limit that the handle states.
    stated: u32,
    if_busy: IfBusy,
    /// The ids of each transaction whose outcome was unknown.
    unknown: Vec<Vec<String>>,
    /// Whether the outcome of one of them still is.
    open: bool,
    /// Whether a definite refusal has come since, so that the next list shows what has become of all.
    decided: bool,
    /// Whether the lock node is known to be gone.
    lock_gone: bool,
    /// What to send after a pause.
    next: PermitsRequest,
    last_failure: Option<Failure>,
    failures: u32,
    /// Whether the directory of leases is missing, and whether it has been created once.
    making: bool,
    made: bool,
}

impl Taking {
    /// Returns the state machine of a head that wants so many permits, and its first step.
    pub(crate) fn new(wanted: u32, stated: u32, if_busy: IfBusy) -> (Self, PermitsStep) {
        let next = PermitsRequest::Look { watch: false, limit_exists: false };
        let taking = Self {
            wanted,
            stated,
            if_busy,
            unknown: Vec::new(),
            open: false,
            decided: false,
            lock_gone: false,
            next: next.clone(),
            last_failure: None,
            failures: 0,
            making: false,
            made: false,
        };
        (taking, PermitsStep::Do(next))
    }

    /// Returns whether a transaction was sent whose outcome is not known.
    pub(crate) fn is_open(&self) -> bool {
        self.open || self.lock_gone
    }

    /// Handles the result of the last step. Returns the next step.
    pub(crate) fn on(&mut self, event: PermitsEvent) -> PermitsStep {
        match event {
            PermitsEvent::Looked(Answer::Is(seen)) => self.judge(&seen),
            PermitsEvent::Looked(Answer::No(failure))
            | PermitsEvent::Made(Answer::No(failure))
            | PermitsEvent::WatchFailed(failure) => self.failed(failure),
            PermitsEvent::Made(Answer::Is(())) => {
                (self.making, self.made) = (false, true);
                PermitsStep::Do(self.next.clone())
            }
            PermitsEvent::Retry if self.making => PermitsStep::Do(PermitsRequest::MakeLeases),
            PermitsEvent::Retry => PermitsStep::Do(self.next.clone()),
            PermitsEvent::Taken { ids, outcome } => self.not_taken(ids, outcome),
            PermitsEvent::Changed => {
                self.failures = 0;
                self.look(false, false)
            }
            PermitsEvent::GiveUp => {
                let last = self.last_failure.take();
                let last = last.unwrap_or_else(|| FailureKind::Unknown.into());
                self.end(NoPermits::KeptFailing(last))
            }
        }
    }

    /// Ends it before it is finished. Returns what may be left besides the lock node. A transaction that is
    /// under way has to be answered first.
    pub(crate) fn leave(self) -> Orphans {
        Orphans { names: Vec::new(), ids: self.unknown.into_iter().flatten().collect() }
    }

    fn judge(&mut self, seen: &Seen) -> PermitsStep {
        for ids in &self.unknown {
            let names: Vec<&String> = ids.iter().filter_map(|id| find(&seen.leases, id)).collect();
            if names.is_empty() {
                continue;
            }
            let names: Vec<String> = names.into_iter().cloned().collect();
            if names.len() == ids.len() {
                return PermitsStep::Finish(PermitsOutcome::Granted { names });
            }
            // All of them were there: another process has deleted some.
            let orphans = Orphans { names, ids: Vec::new() };
            return PermitsStep::Finish(PermitsOutcome::NotGranted { why: NoPermits::LockDeleted, orphans });
        }
        if self.lock_gone {
            return self.end(NoPermits::LockDeleted);
        }
        if self.decided {
            self.open = false;
        }
        let (limit, limit_version) = match &seen.limit {
            LimitNode::Is { permits, version } => (*permits, Some(*version)),
            LimitNode::Invalid(found) => {
                return self.end(NoPermits::InvalidLimit { found: found.clone() });
            }
            LimitNode::Missing => {
                if let Some((theirs, lease)) = other_limit(&seen.leases, self.stated) {
                    return self.end(NoPermits::LimitMismatch { theirs, lease: lease.to_owned() });
                }
                (self.stated, None)
            }
        };
        if self.wanted > limit {
            return self.end(NoPermits::TooMany { limit });
        }
        let watched = matches!(self.next, PermitsRequest::Look { watch: true, .. });
        self.failures = 0;
        if free(limit, seen.leases.len()) >= self.wanted {
            let slots = free_slots(&seen.leases, self.wanted);
            return self.send(PermitsRequest::Take(Take { slots, limit, limit_version }));
        }
        let live = seen.leases.len().saturating_sub(seen.leaving);
        if self.if_busy == IfBusy::Fail && free(limit, live) < self.wanted {
            return self.end(NoPermits::WouldBlock);
        }
        if watched { PermitsStep::Wait } else { self.look(true, limit_version.is_some()) }
    }

    fn not_taken(&mut self, ids: Vec<String>, outcome: Taken) -> PermitsStep {
        match outcome {
            Taken::Failed(failure) if failure.kind == FailureKind::Unknown => {
                self.unknown.push(ids);
                (self.open, self.decided) = (true, false);
                self.failed(failure)
            }
            // An answer to a later request of the session decides about the earlier ones too.
            Taken::LockGone => {
                self.decided = true;
                if self.unknown.is_empty() {
                    return self.end(NoPermits::LockDeleted);
                }
                self.lock_gone = true;
                self.look(false, false)
            }
            Taken::LimitChanged => {
                self.decided = true;
                self.look(false, false)
            }
            Taken::NoDirectory => {
                (self.decided, self.making) = (true, true);
                if self.made {
                    // Removed between its making and this.
                    return self.failed(FailureKind::NoNode.into());
                }
                PermitsStep::Do(PermitsRequest::MakeLeases)
            }
            Taken::Failed(failure) => self.failed(failure),
            Taken::Done { names } => PermitsStep::Finish(PermitsOutcome::Granted { names }),
        }
    }

    fn look(&mut self, watch: bool, limit_exists: bool) -> PermitsStep {
        self.send(PermitsRequest::Look { watch, limit_exists })
    }

    fn send(&mut self, request: PermitsRequest) -> PermitsStep {
        self.next = request.clone();
        PermitsStep::Do(request)
    }

    fn failed(&mut self, failure: Failure) -> PermitsStep {
        match failure.kind {
            FailureKind::SessionGone => return self.end(NoPermits::SessionGone),
            FailureKind::Refused(_) => return self.end(NoPermits::Refused(failure)),
            FailureKind::TooManyWatches => return self.end(NoPermits::TooManyWatches),
            FailureKind::NoNode | FailureKind::NotNow | FailureKind::Unknown => {}
        }
        let failures = self.failures;
        self.failures = failures.saturating_add(1);
        self.last_failure = Some(failure.clone());
        PermitsStep::Pause { failures, why: failure, until_known: self.is_open() }
    }

    fn end(&mut self, why: NoPermits) -> PermitsStep {
        let ids = if self.lock_gone && why == NoPermits::LockDeleted {
            // None of them has happened, and none can any more.
            Vec::new()
        } else {
            std::mem::take(&mut self.unknown).into_iter().flatten().collect()
        };
        let orphans = Orphans { names: Vec::new(), ids };
        PermitsStep::Finish(PermitsOutcome::NotGranted { why, orphans })
    }
}

/// Returns how many permits are free: zero also if the limit has become smaller than what is held.
pub(crate) fn free(limit: u32, leases: usize) -> u32 {
    limit.saturating_sub(u32::try_from(leases).unwrap_or(u32::MAX))
}

fn find<'a>(leases: &'a [String], id: &str) -> Option<&'a String> {
    leases.iter().find(|name| crate::protocol::node_name::id(name) == Some(id))
}

/// Returns the beginning of the name of a lease: Curator's with the slot, and the limit under which it was
/// taken, between the id and the marker. Curator looks at no names of leases.
pub(crate) fn lease_beginning(id: &str, slot: u32, limit: u32) -> String {
    format!("_c_{id}-slot-{slot}-of-{limit}-lease-")
}

/// Returns the slot of a lease, and the limit under which it was taken; `None` for those of other clients.
pub(crate) fn slot_of(name: &str) -> Option<(u32, u32)> {
    let (before, number) = name.rsplit_once("-lease-")?;
    let (before, limit) = before.rsplit_once("-of-")?;
    let (_, slot) = before.rsplit_once("-slot-")?;
    number.parse::<i32>().ok()?;
    Some((slot.parse().ok()?, limit.parse().ok()?))
}

/// Returns the first lease that was taken under another limit.
pub(crate) fn other_limit(leases: &[String], stated: u32) -> Option<(u32, &str)> {
    leases.iter().find_map(|name| match slot_of(name) {
        Some((_, limit)) if limit != stated => Some((limit, name.as_str())),
        _ => None,
    })
}

/// Returns the smallest slots that none of these leases has. As there are fewer leases than the limit by at
/// least `wanted`, all of these slots are below the limit.
fn free_slots(leases: &[String], wanted: u32) -> Vec<u32> {
    let mut taken: Vec<u32> = leases.iter().filter_map(|name| slot_of(name)).map(|(slot, _)| slot).collect();
    taken.sort_unstable();
    let mut taken = taken.into_iter().peekable();
    let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
    let free = |slot: &u32| {
        while taken.next_if(|taken| taken < slot).is_some() {}
        taken.peek() != Some(slot)
    };
    (0..u32::MAX).filter(free).take(wanted).collect()
}
