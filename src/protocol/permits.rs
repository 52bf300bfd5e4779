//! How the head of a semaphore's queue takes its permits, as a state machine.
//!
//! A semaphore has two directories. `locks` is the queue of a mutex, and the *head* is the attempt
//! whose lock node is first there. `leases` has one node for each permit that is held
//! (docs/protocol.md#semaphore-queue). The head continues with [`Taking`]:
//!
//! 1. **Look.** One flight lists the leases and reads the node with the limit. Without such a node
//!    the limit of the handle applies, and all leases must have been taken under the same limit
//!    (docs/protocol.md#semaphore-limit).
//! 2. **Take.** If the leases and the wanted permits are no more than the limit, one transaction
//!    creates all wanted leases and deletes the lock node, so that the next attempt becomes the
//!    head. A limit that has changed since the look fails the transaction, and the head looks
//!    again.
//! 3. **Wait.** Otherwise the head looks once more and sets watches on both nodes, so that no
//!    change between the look and the watch is missed. When a watch fires, the head continues with
//!    step 1. A try does not wait: it ends, unless leases that this client is deleting will free
//!    enough permits.
//!
//! A transaction without a reply may have happened. The head sends it again with fresh ids until a
//! reply is definite, and then looks for the leases of the earlier ones by their ids.
//!
//! The [attempt](crate::engine::attempts::permits_attempt) carries out each [`PermitsStep`] and
//! returns its [`PermitsEvent`], until the step is [`PermitsStep::Finish`].
//!
//! # Invariants
//! 1. Only the head of the queue of locks creates leases, by one transaction that deletes its lock
//!    node too. So only the head adds leases, and a list of leases that was sent after the list of
//!    locks that showed the head never shows too few (docs/protocol.md#permits-by-one-transaction).
//! 2. **Every child of the directory of leases counts**, with any name: the child may be another
//!    client's lease.
//! 3. The deletion of the lock node makes the transaction happen once at most. If the repetition of
//!    a transaction finds no lock node, either an earlier transaction has happened, whose leases a
//!    list shows, or another process has deleted the node
//!    (docs/protocol.md#permits-unknown-outcome).
//! 4. Every outcome without a grant names what may be left: leases by name, and the ids of creates
//!    whose outcome is unknown.

use std::sync::Arc;

use crate::protocol::acquire::{IfBusy, NoGrant, Orphans};
use crate::protocol::failure::{Answer, Failure, FailureKind};
use crate::protocol::node_name;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PermitsStep {
    Do(PermitsRequest),
    /// Wait until one of the watches of the last look fires.
    Wait,
    /// Pause as the retry policy says for repetition number `failures` (from 0). Then `Retry`, or
    /// `GiveUp` if it is exhausted.
    Pause {
        failures: u32,
        why: FailureKind,
    },
    Finish(PermitsOutcome),
}

/// A request to the server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PermitsRequest {
    /// List the leases and read the limit, in one flight. With `watch`, also watch both;
    /// `limit_exists` is whether the node with the limit has been seen.
    Look { watch: bool, limit_exists: bool },
    /// Create the directory of leases and those above it.
    MakeLeases,
    /// Send a transaction: create a lease for each slot, and delete the lock node.
    Take(Take),
    /// Read the Stat of one of these leases, which are known from a list only
    /// (docs/protocol.md#owner-check). All come from one transaction, so the owner of one is the
    /// owner of all.
    Inspect { names: Vec<String> },
}

/// The transaction by which the head takes its permits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Take {
    /// The slots, one for each permit.
    pub(crate) slots: Vec<u32>,
    /// The limit under which they are taken.
    pub(crate) limit: u32,
    /// The version of the node with the limit, which has to be the same still. `None` if there is
    /// no such node.
    pub(crate) limit_version: Option<i32>,
}

/// The result of a step.
pub(crate) enum PermitsEvent {
    /// The answer to [`PermitsRequest::Look`].
    Looked(Answer<Seen>),
    /// The answer to [`PermitsRequest::MakeLeases`].
    Made(Answer<()>),
    /// The outcome of [`PermitsRequest::Take`], and the ids of its creates, which no other request
    /// has.
    Taken { ids: Vec<String>, outcome: Taken },
    /// The answer to [`PermitsRequest::Inspect`].
    Inspected(Answer<Vec<String>>),
    /// Another process has deleted the lock node. Ends [`PermitsStep::Wait`].
    LockDeleted,
    /// The wait is over: the leases or the limit may have changed. Ends [`PermitsStep::Wait`].
    WaitOver,
    /// A watch will not fire any more. Ends [`PermitsStep::Wait`].
    WatchFailed(Failure),
    /// The pause of [`PermitsStep::Pause`] is over.
    Retry,
    /// The retry policy is exhausted, so [`PermitsStep::Pause`] does not pause.
    GiveUp,
}

/// The leases and the limit, as one look has shown them.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Seen {
    /// The names of all children of the directory of leases; none if it does not exist. Shared,
    /// because there may be thousands.
    pub(crate) leases: Arc<[String]>,
    /// How many of them this client is deleting.
    pub(crate) leaving: usize,
    pub(crate) limit: LimitNode,
}

impl Seen {
    /// Returns the limit in force, given the one that the handle states.
    pub(crate) fn limit(&self, stated: u32) -> u32 {
        match self.limit {
            LimitNode::Is { permits, .. } => permits,
            LimitNode::Missing | LimitNode::Invalid(_) => stated,
        }
    }
}

/// The node with the limit in force.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum LimitNode {
    /// No such node exists: the limit is the one that the handles state.
    Missing,
    Is {
        permits: u32,
        version: i32,
    },
    /// The node contains no limit. Describes the data.
    Invalid(String),
}

/// The outcome of the transaction.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum Taken {
    /// Committed. Has the names of the leases.
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

/// How the head's work ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PermitsOutcome {
    /// The permits of these leases are held, and the lock node is gone.
    Granted { names: Vec<String> },
    /// The lock node has been deleted by another process.
    LockDeleted { orphans: Orphans },
    /// The lock node still exists.
    NotGranted { why: NoPermits, orphans: Orphans },
}

/// Why no permits were granted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum NoPermits {
    /// A reason that any lock may have. The contenders ahead of a try are the leases.
    Other(NoGrant),
    /// The call asks for more permits than the limit.
    TooMany { limit: u32 },
    /// A lease was created under another limit than the one that this handle states.
    LimitMismatch { theirs: u32, lease: String },
    /// The node with the limit contains no limit.
    InvalidLimit { found: String },
}

impl PermitsStep {
    /// Returns what only this step knows of the leases that may be left, when it is not carried
    /// out.
    pub(crate) fn into_orphans(self) -> Orphans {
        match self {
            Self::Finish(PermitsOutcome::Granted { names }) => Orphans {
                names,
                ids: Vec::new(),
            },
            Self::Finish(
                PermitsOutcome::LockDeleted { orphans }
                | PermitsOutcome::NotGranted { orphans, .. },
            ) => orphans,
            Self::Do(_) | Self::Wait | Self::Pause { .. } => Orphans::default(),
        }
    }
}

/// The state machine; see the [module](self).
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Taking {
    /// How many permits are wanted.
    wanted: u32,
    /// The limit that the handle states.
    stated: u32,
    if_busy: IfBusy,
    /// The ids of each transaction whose outcome was unknown.
    unknown: Vec<Vec<String>>,
    /// Whether the lock node is known to be gone.
    lock_gone: bool,
    /// The request to send after a pause.
    next: PermitsRequest,
    last_failure: Option<Failure>,
    failures: u32,
    /// Whether the directory of leases is missing, so that its creation comes before `next`.
    making: bool,
    /// Whether the missing directory has been created once: if it is missing again, that counts as
    /// a failure.
    made: bool,
}

impl Taking {
    /// Returns the state machine of a head that wants `wanted` permits, and its first step.
    pub(crate) fn new(wanted: u32, stated: u32, if_busy: IfBusy) -> (Self, PermitsStep) {
        let next = PermitsRequest::Look {
            watch: false,
            limit_exists: false,
        };
        let taking = Self {
            wanted,
            stated,
            if_busy,
            unknown: Vec::new(),
            lock_gone: false,
            next: next.clone(),
            last_failure: None,
            failures: 0,
            making: false,
            made: false,
        };
        (taking, PermitsStep::Do(next))
    }

    /// Handles the result of the last step. Returns the next step.
    pub(crate) fn on(&mut self, event: PermitsEvent) -> PermitsStep {
        match event {
            PermitsEvent::Looked(Answer::Is(seen)) => self.judge(&seen),
            // The failed request is sent again after a pause. If a watch failed, that request is
            // the look, because a change may have been missed.
            PermitsEvent::Looked(Answer::No(failure))
            | PermitsEvent::Made(Answer::No(failure))
            | PermitsEvent::WatchFailed(failure) => self.failed(failure),
            // The transaction that found no directory is sent next. It needs no other look: without
            // the directory there were no leases, and only the head creates some.
            PermitsEvent::Made(Answer::Is(())) => {
                (self.making, self.made) = (false, true);
                PermitsStep::Do(self.next.clone())
            }
            PermitsEvent::Retry if self.making => PermitsStep::Do(PermitsRequest::MakeLeases),
            PermitsEvent::Retry => PermitsStep::Do(self.next.clone()),
            PermitsEvent::Taken { ids, outcome } => self.not_taken(ids, outcome),
            // This session owns the leases, so the earlier transaction has committed, and has
            // deleted the lock node with it.
            PermitsEvent::Inspected(Answer::Is(names)) => {
                PermitsStep::Finish(PermitsOutcome::Granted { names })
            }
            PermitsEvent::Inspected(Answer::No(failure)) if failure.kind != FailureKind::NoNode => {
                self.failed(failure)
            }
            // Another process has deleted one of the leases, or the lock node. The attempt queues
            // again at the end (docs/protocol.md#waiter-without-node).
            PermitsEvent::Inspected(Answer::No(_)) | PermitsEvent::LockDeleted => {
                let orphans = self.unknown();
                PermitsStep::Finish(PermitsOutcome::LockDeleted { orphans })
            }
            PermitsEvent::WaitOver => {
                // The wait itself succeeded, so the failures before it are not in a row with later
                // ones.
                self.failures = 0;
                self.look(false, false)
            }
            PermitsEvent::GiveUp => {
                let last = self.last_failure.take();
                // A pause follows a failure, so there is one.
                let last = last.unwrap_or_else(|| FailureKind::Unknown.into());
                self.end(NoPermits::Other(NoGrant::KeptFailing(last)))
            }
        }
    }

    /// Ends the work before an outcome. Returns the leases that may be left, but for those that the
    /// last step [knows of](PermitsStep::into_orphans). A transaction that is under way has to be
    /// answered first, because its ids are known to the caller only.
    pub(crate) fn abandon(&mut self) -> Orphans {
        self.unknown()
    }

    fn unknown(&mut self) -> Orphans {
        let ids = std::mem::take(&mut self.unknown)
            .into_iter()
            .flatten()
            .collect();
        Orphans {
            names: Vec::new(),
            ids,
        }
    }

    fn judge(&mut self, seen: &Seen) -> PermitsStep {
        // Leases with the ids of an unknown transaction show that it has happened. At most one of
        // all transactions has, because each deletes the lock node.
        for ids in &self.unknown {
            let names: Vec<&String> = ids.iter().filter_map(|id| find(&seen.leases, id)).collect();
            if names.is_empty() {
                continue;
            }
            let names: Vec<String> = names.into_iter().cloned().collect();
            if names.len() == ids.len() {
                return self.send(PermitsRequest::Inspect { names });
            }
            // A transaction creates all of its leases or none, so another process has deleted some.
            let orphans = Orphans {
                names,
                ids: Vec::new(),
            };
            return PermitsStep::Finish(PermitsOutcome::LockDeleted { orphans });
        }
        if self.lock_gone {
            // No unknown transaction has happened, and none can without the lock node: another
            // process has deleted it.
            return PermitsStep::Finish(PermitsOutcome::LockDeleted {
                orphans: Orphans::default(),
            });
        }
        let (limit, limit_version) = match &seen.limit {
            LimitNode::Is { permits, version } => (*permits, Some(*version)),
            LimitNode::Invalid(found) => {
                return self.end(NoPermits::InvalidLimit {
                    found: found.clone(),
                });
            }
            LimitNode::Missing => {
                // Two limits at once would let more permits be held than either allows.
                if let Some((theirs, lease)) = other_limit(&seen.leases, self.stated) {
                    return self.end(NoPermits::LimitMismatch {
                        theirs,
                        lease: lease.to_owned(),
                    });
                }
                (self.stated, None)
            }
        };
        if self.wanted > limit {
            return self.end(NoPermits::TooMany { limit });
        }
        let watched = matches!(self.next, PermitsRequest::Look { watch: true, .. });
        // The servers have answered, so a later failure is the first of a new row. Repetitions of a
        // transaction do not come here, because no look is sent between them.
        self.failures = 0;
        if free(limit, seen.leases.len()) >= self.wanted {
            let slots = free_slots(&seen.leases, self.wanted);
            return self.send(PermitsRequest::Take(Take {
                slots,
                limit,
                limit_version,
            }));
        }
        // Leases that this client is deleting count for the transaction, as for every client, but
        // not for a try: the permits were returned before, so the try waits for the deletion.
        let live = seen.leases.len().saturating_sub(seen.leaving);
        if self.if_busy == IfBusy::Fail && free(limit, live) < self.wanted {
            return self.end(NoPermits::Other(NoGrant::WouldBlock));
        }
        // A permit may be returned after a look without watches, so the head looks again with
        // watches before it waits. The first look sets none, which saves them if permits are free.
        if watched {
            PermitsStep::Wait
        } else {
            self.look(true, limit_version.is_some())
        }
    }

    fn not_taken(&mut self, ids: Vec<String>, outcome: Taken) -> PermitsStep {
        match outcome {
            // The transaction may have committed, or may do so later. It is sent again with fresh
            // ids; whichever commits first deletes the lock node, and the others fail.
            Taken::Failed(failure) if failure.kind == FailureKind::Unknown => {
                self.unknown.push(ids);
                self.failed(failure)
            }
            // The answer to a later request of the session decides about all earlier transactions
            // (docs/protocol.md#write-barrier). The next look shows which of them has happened.
            Taken::LockGone => {
                if self.unknown.is_empty() {
                    return PermitsStep::Finish(PermitsOutcome::LockDeleted {
                        orphans: Orphans::default(),
                    });
                }
                self.lock_gone = true;
                self.look(false, false)
            }
            // Nothing was created, and earlier transactions without an answer are decided, too. The
            // look shows their leases, or the new limit.
            Taken::LimitChanged => self.look(false, false),
            Taken::NoDirectory => {
                self.making = true;
                if self.made {
                    // Another process has removed the directory since this attempt created it,
                    // which counts as a failure, so that the retry policy bounds the repetitions.
                    return self.failed(FailureKind::NoNode.into());
                }
                // No permit was taken here yet, or the servers have deleted the empty
                // container.
                PermitsStep::Do(PermitsRequest::MakeLeases)
            }
            Taken::Failed(failure) => self.failed(failure),
            Taken::Done { names } => PermitsStep::Finish(PermitsOutcome::Granted { names }),
        }
    }

    fn look(&mut self, watch: bool, limit_exists: bool) -> PermitsStep {
        self.send(PermitsRequest::Look {
            watch,
            limit_exists,
        })
    }

    fn send(&mut self, request: PermitsRequest) -> PermitsStep {
        self.next = request.clone();
        PermitsStep::Do(request)
    }

    fn failed(&mut self, failure: Failure) -> PermitsStep {
        // No repetition helps after a refusal or the end of the session.
        if let Some(why) = NoGrant::of(&failure) {
            return self.end(NoPermits::Other(why));
        }
        let failures = self.failures;
        self.failures = failures.saturating_add(1);
        let why = failure.kind;
        self.last_failure = Some(failure);
        PermitsStep::Pause { failures, why }
    }

    fn end(&mut self, why: NoPermits) -> PermitsStep {
        let orphans = self.unknown();
        PermitsStep::Finish(PermitsOutcome::NotGranted { why, orphans })
    }
}

/// Returns how many permits are free; zero if the limit has become smaller than what is held.
pub(crate) fn free(limit: u32, leases: usize) -> u32 {
    limit.saturating_sub(u32::try_from(leases).unwrap_or(u32::MAX))
}

fn find<'a>(leases: &'a [String], id: &str) -> Option<&'a String> {
    leases.iter().find(|name| node_name::id(name) == Some(id))
}

/// Returns the beginning of the name of a lease: Curator's with the slot, and the limit under which
/// it was taken, between the id and the marker (docs/protocol.md#slots). Curator counts leases and
/// does not read their names.
pub(crate) fn lease_beginning(id: &str, slot: u32, limit: u32) -> String {
    format!("_c_{id}-slot-{slot}-of-{limit}-lease-")
}

/// Returns the slot of a lease, and the limit under which it was taken; `None` for those of other
/// clients.
pub(crate) fn slot_of(name: &str) -> Option<(u32, u32)> {
    // The name is split at single characters from the end, which is faster than a search for words:
    // a grant reads the name of each lease.
    let (before, number) = name.rsplit_once('-')?;
    // A negative sequence number has a sign before its digits, which is a second hyphen.
    let before = before
        .strip_suffix('-')
        .unwrap_or(before)
        .strip_suffix("-lease")?;
    let (before, limit) = before.rsplit_once('-')?;
    let (before, slot) = before.strip_suffix("-of")?.rsplit_once('-')?;
    if number.is_empty()
        || !number.bytes().all(|byte| byte.is_ascii_digit())
        || !before.ends_with("-slot")
    {
        return None;
    }
    Some((slot.parse().ok()?, limit.parse().ok()?))
}

/// Returns the first lease that was taken under another limit.
pub(crate) fn other_limit(leases: &[String], stated: u32) -> Option<(u32, &str)> {
    leases.iter().find_map(|name| match slot_of(name) {
        // The leases of other clients name no limit, so they only count.
        Some((_, limit)) if limit != stated => Some((limit, name.as_str())),
        _ => None,
    })
}

/// Returns the smallest slots that none of these leases has (docs/protocol.md#slots). As there are
/// fewer leases than the limit by at least `wanted`, all of these slots are below the limit.
fn free_slots(leases: &[String], wanted: u32) -> Vec<u32> {
    let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
    // Each lease takes at most one number, so at least `wanted` of this many numbers are free.
    let mut taken = vec![false; leases.len().saturating_add(wanted)];
    for (slot, _) in leases.iter().filter_map(|name| slot_of(name)) {
        let slot = usize::try_from(slot)
            .ok()
            .and_then(|slot| taken.get_mut(slot));
        // A slot above the range was taken under a higher limit, and occupies none of these
        // numbers.
        if let Some(slot) = slot {
            *slot = true;
        }
    }
    (0..)
        .zip(taken)
        .filter(|(_, taken)| !taken)
        .map(|(slot, _)| slot)
        .take(wanted)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::failure::Refusal;

    /// An id of a UUID's length.
    fn id(n: u32) -> String {
        format!("{n:036}")
    }

    fn lease(n: u32, slot: u32, limit: u32) -> String {
        format!("{}{n:010}", lease_beginning(&id(n), slot, limit))
    }

    fn seen(leases: &[String]) -> PermitsEvent {
        seen_with(leases, LimitNode::Missing)
    }

    fn seen_with(leases: &[String], limit: LimitNode) -> PermitsEvent {
        PermitsEvent::Looked(Answer::Is(Seen {
            leases: leases.into(),
            leaving: 0,
            limit,
        }))
    }

    fn take(slots: &[u32], limit: u32) -> PermitsStep {
        PermitsStep::Do(PermitsRequest::Take(Take {
            slots: slots.to_vec(),
            limit,
            limit_version: None,
        }))
    }

    fn taken(ids: &[u32], outcome: Taken) -> PermitsEvent {
        PermitsEvent::Taken {
            ids: ids.iter().map(|n| id(*n)).collect(),
            outcome,
        }
    }

    fn unknown() -> Taken {
        Taken::Failed(FailureKind::Unknown.into())
    }

    fn look() -> PermitsStep {
        PermitsStep::Do(PermitsRequest::Look {
            watch: false,
            limit_exists: false,
        })
    }

    fn ended(step: &PermitsStep) -> &NoPermits {
        match step {
            PermitsStep::Finish(PermitsOutcome::NotGranted { why, .. }) => why,
            other => panic!("{other:?}"),
        }
    }

    fn deleted(orphans: Orphans) -> PermitsStep {
        PermitsStep::Finish(PermitsOutcome::LockDeleted { orphans })
    }

    // Shows: permits-by-one-transaction
    #[test]
    fn every_child_counts_whatever_its_name() {
        let (mut taking, _) = Taking::new(1, 2, IfBusy::Wait);
        let step = taking.on(seen(&[
            "_c_x-lease-0000000001".to_owned(),
            "stray".to_owned(),
        ]));
        assert_eq!(
            step,
            PermitsStep::Do(PermitsRequest::Look {
                watch: true,
                limit_exists: false
            })
        );
        assert_eq!(
            taking.on(seen(&["a".to_owned(), "b".to_owned()])),
            PermitsStep::Wait
        );
        assert_eq!(taking.on(PermitsEvent::WaitOver), look());
        assert_eq!(taking.on(seen(&["stray".to_owned()])), take(&[0], 2));
    }

    // Shows: slots
    #[test]
    fn smallest_free_slots_are_taken() {
        let (mut taking, _) = Taking::new(3, 6, IfBusy::Wait);
        assert_eq!(
            taking.on(seen(&[lease(1, 1, 6), lease(2, 3, 6), "java".to_owned()])),
            take(&[0, 2, 4], 6)
        );
    }

    // Shows: semaphore-limit
    #[test]
    fn limit_node_ignores_lease_names() {
        let (mut taking, _) = Taking::new(2, 2, IfBusy::Wait);
        let limit = LimitNode::Is {
            permits: 5,
            version: 7,
        };
        let step = taking.on(seen_with(
            &[lease(1, 0, 9), lease(2, 1, 9), lease(3, 2, 5)],
            limit,
        ));
        let expected = Take {
            slots: vec![3, 4],
            limit: 5,
            limit_version: Some(7),
        };
        assert_eq!(step, PermitsStep::Do(PermitsRequest::Take(expected)));
        assert_eq!(taking.on(taken(&[4, 5], Taken::LimitChanged)), look());
        let step = taking.on(seen_with(
            &[],
            LimitNode::Is {
                permits: 1,
                version: 8,
            },
        ));
        assert_eq!(*ended(&step), NoPermits::TooMany { limit: 1 });
    }

    #[test]
    fn limit_node_overrides_stated_limit() {
        let limit = |limit| {
            Seen {
                leases: [].into(),
                leaving: 0,
                limit,
            }
            .limit(3)
        };
        assert_eq!(
            limit(LimitNode::Is {
                permits: 5,
                version: 7
            }),
            5
        );
        assert_eq!(limit(LimitNode::Missing), 3);
        assert_eq!(limit(LimitNode::Invalid("7 bytes".to_owned())), 3);
    }

    // Shows: semaphore-limit
    #[test]
    fn disagreement_names_both_limits() {
        let (mut taking, _) = Taking::new(1, 5, IfBusy::Wait);
        let other = lease(1, 0, 9);
        let step = taking.on(seen(&["java".to_owned(), other.clone()]));
        assert_eq!(
            *ended(&step),
            NoPermits::LimitMismatch {
                theirs: 9,
                lease: other
            }
        );
        let (mut taking, _) = Taking::new(1, 5, IfBusy::Wait);
        let step = taking.on(seen_with(&[], LimitNode::Invalid("7 bytes".to_owned())));
        assert_eq!(
            *ended(&step),
            NoPermits::InvalidLimit {
                found: "7 bytes".to_owned()
            }
        );
    }

    // Shows: try-permits
    #[test]
    fn departing_leases_refuse_no_try() {
        let (mut taking, _) = Taking::new(1, 1, IfBusy::Fail);
        let leases = vec![lease(1, 0, 1)];
        let going = Seen {
            leases: leases.clone().into(),
            leaving: 1,
            limit: LimitNode::Missing,
        };
        let watch = PermitsStep::Do(PermitsRequest::Look {
            watch: true,
            limit_exists: false,
        });
        assert_eq!(taking.on(PermitsEvent::Looked(Answer::Is(going))), watch);
        assert_eq!(
            *ended(&taking.on(seen(&leases))),
            NoPermits::Other(NoGrant::WouldBlock)
        );
    }

    // Shows: permits-unknown-outcome
    #[test]
    fn next_transaction_resolves_lost_reply() {
        let (mut taking, _) = Taking::new(2, 2, IfBusy::Wait);
        taking.on(seen(&[]));
        let step = taking.on(taken(&[1, 2], unknown()));
        assert!(
            matches!(step, PermitsStep::Pause { failures: 0, .. }),
            "{step:?}"
        );
        assert_eq!(
            taking.on(PermitsEvent::Retry),
            take(&[0, 1], 2),
            "with fresh ids"
        );
        assert!(matches!(
            taking.on(taken(&[3, 4], unknown())),
            PermitsStep::Pause { failures: 1, .. }
        ));
        assert_eq!(taking.on(PermitsEvent::Retry), take(&[0, 1], 2));
        assert_eq!(taking.on(taken(&[5, 6], Taken::LockGone)), look());
        let names = vec![lease(1, 0, 2), lease(2, 1, 2)];
        let inspect = PermitsStep::Do(PermitsRequest::Inspect {
            names: names.clone(),
        });
        assert_eq!(taking.on(seen(&names)), inspect);
        let unanswered = PermitsEvent::Inspected(Answer::no(FailureKind::Unknown));
        assert!(matches!(taking.on(unanswered), PermitsStep::Pause { .. }));
        assert_eq!(taking.on(PermitsEvent::Retry), inspect);
        let mut gone = taking.clone();
        let granted = PermitsStep::Finish(PermitsOutcome::Granted {
            names: names.clone(),
        });
        assert_eq!(
            taking.on(PermitsEvent::Inspected(Answer::Is(names))),
            granted
        );
        let ids = (1..=4).map(id).collect();
        let step = gone.on(PermitsEvent::Inspected(Answer::no(FailureKind::NoNode)));
        assert_eq!(
            step,
            deleted(Orphans {
                names: Vec::new(),
                ids
            }),
            "another process has deleted it"
        );
    }

    /// The head waits again after a refusal, and forgets the requests that were not answered before
    /// that.
    // Shows: permits-unknown-outcome
    #[test]
    fn missing_lock_ends_heads_wait() {
        let (mut taking, _) = Taking::new(1, 1, IfBusy::Wait);
        let limit = |version| LimitNode::Is {
            permits: 1,
            version,
        };
        taking.on(seen_with(&[], limit(1)));
        taking.on(taken(&[1], unknown()));
        taking.on(PermitsEvent::Retry);
        assert_eq!(taking.on(taken(&[2], Taken::LimitChanged)), look());
        taking.on(seen_with(&[lease(9, 0, 1)], limit(2)));
        assert_eq!(
            taking.on(seen_with(&[lease(9, 0, 1)], limit(2))),
            PermitsStep::Wait
        );
        let step = taking.on(PermitsEvent::LockDeleted);
        assert_eq!(
            step,
            deleted(Orphans {
                names: Vec::new(),
                ids: vec![id(1)]
            })
        );
    }

    #[test]
    fn missing_lock_without_leases_was_deleted() {
        let (mut taking, _) = Taking::new(1, 2, IfBusy::Wait);
        taking.on(seen(&[]));
        taking.on(taken(&[1], unknown()));
        taking.on(PermitsEvent::Retry);
        assert_eq!(taking.on(taken(&[2], Taken::LockGone)), look());
        let step = taking.on(seen(&[lease(9, 0, 2)]));
        assert_eq!(step, deleted(Orphans::default()));
        // Without a doubt, the attempt ends at once.
        let (mut taking, _) = Taking::new(1, 2, IfBusy::Wait);
        taking.on(seen(&[]));
        assert_eq!(
            taking.on(taken(&[1], Taken::LockGone)),
            deleted(Orphans::default())
        );
    }

    // Shows: permits-unknown-outcome
    #[test]
    fn partly_deleted_grant_is_removed() {
        let (mut taking, _) = Taking::new(2, 2, IfBusy::Wait);
        taking.on(seen(&[]));
        taking.on(taken(&[1, 2], unknown()));
        taking.on(PermitsEvent::Retry);
        taking.on(taken(&[3, 4], Taken::LockGone));
        let step = taking.on(seen(&[lease(2, 1, 2)]));
        let orphans = Orphans {
            names: vec![lease(2, 1, 2)],
            ids: Vec::new(),
        };
        assert_eq!(step, deleted(orphans));
    }

    // Shows: permits-unknown-outcome
    #[test]
    fn refusal_after_unknown_needs_cleanup() {
        let (mut taking, _) = Taking::new(1, 2, IfBusy::Wait);
        taking.on(seen(&[]));
        taking.on(taken(&[1], unknown()));
        let left = Orphans {
            names: Vec::new(),
            ids: vec![id(1)],
        };
        assert_eq!(taking.clone().abandon(), left);
        taking.on(PermitsEvent::Retry);
        let refused = Failure::from(FailureKind::Refused(Refusal::NoAuth));
        let step = taking.on(taken(&[2], Taken::Failed(refused.clone())));
        let why = NoPermits::Other(NoGrant::Refused(refused));
        let outcome = PermitsOutcome::NotGranted { why, orphans: left };
        assert_eq!(step, PermitsStep::Finish(outcome));
    }

    #[test]
    fn vanishing_directory_counts_as_failure() {
        let (mut taking, _) = Taking::new(1, 2, IfBusy::Wait);
        taking.on(seen(&[]));
        let make = PermitsStep::Do(PermitsRequest::MakeLeases);
        assert_eq!(taking.on(taken(&[1], Taken::NoDirectory)), make);
        assert_eq!(taking.on(PermitsEvent::Made(Answer::Is(()))), take(&[0], 2));
        let step = taking.on(taken(&[2], Taken::NoDirectory));
        assert!(
            matches!(step, PermitsStep::Pause { failures: 0, .. }),
            "{step:?}"
        );
        assert_eq!(taking.on(PermitsEvent::Retry), make);
        assert_eq!(taking.on(PermitsEvent::Made(Answer::Is(()))), take(&[0], 2));
        assert_eq!(
            taking.on(taken(&[3], Taken::LockGone)),
            deleted(Orphans::default())
        );
    }

    #[test]
    fn foreign_names_have_no_slot() {
        assert_eq!(slot_of(&lease(1, 7, 9)), Some((7, 9)));
        assert_eq!(
            slot_of(&format!("{}-2147483648", lease_beginning(&id(1), 7, 9))),
            Some((7, 9))
        );
        let others = [
            "",
            "_c_x-lease-0000000001",
            "x-slot-1-of-2-lease-",
            "x-slot-1-of-2-lease--",
            "x-slot-1-of-2-lock-0000000001",
            "x-slot-a-of-2-lease-0000000001",
            "x-slot--1-of-2-lease-0000000001",
            "x-1-of-2-lease-0000000001",
            "slot-1-of-2-lease-0000000001",
        ];
        for other in others {
            assert_eq!(slot_of(other), None, "{other}");
        }
    }
}
