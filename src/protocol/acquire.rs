//! One contender's life in one session, as a state machine. Pure: no client, clock, task or random number.
//!
//! The [attempt](crate::engine::attempt) does what a [`AcquireStep`] says and hands back the [`AcquireEvent`]
//! it led to, one at a time, until the step is [`AcquireStep::Finish`]. Every decision about unknown outcomes
//! is made here.
//!
//! # Invariants
//! 1. A grant needs a list that contains our own node with none before it, or a transaction that deleted
//!    the holder's node, directly before ours, and found ours there. A list without our node grants nothing
//!    and proves nothing: the create may still be under way (docs/protocol.md#grant).
//! 2. Only a definite answer of the server says that a create did not happen. Everything else leaves the id
//!    of an *unknown create*: the node may exist, or may come to exist later
//!    (docs/protocol.md#unknown-outcome).
//! 3. An id belongs to one create request. A repetition has an id of its own, so a late commit of the first
//!    can be told from the second (docs/protocol.md#one-id-per-create).
//! 4. Whatever way it ends, the outcome names every node that may be left: what is known to exist by name,
//!    what may exist by id ([`Orphans`]). The attempt keeps none of them.
//! 5. Each repetition is counted against the retry policy, except those that an answer from a peer asked for.

use std::sync::Arc;

use crate::protocol::failure::{Answer, Failure, FailureKind};
use crate::protocol::local_queue::Neighbour;
use crate::protocol::node_name::{Kind, Naming};
use crate::protocol::queue::{Listing, Position, Queue, Unusable};

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AcquireStep {
    /// Ask the server something.
    Do(AcquireRequest),
    /// Ask the retry policy for repetition number `failures` (from 0) and pause as it says; then `Retry`.
    Pause { failures: u32, why: PauseReason },
    /// The end.
    Finish(AcquireOutcome),
}

/// What to ask the server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AcquireRequest {
    /// Create a node with a fresh id. With the list of the directory, both sent before either is answered,
    /// unless the answer to the create may make a list needless. The one request whose answer has to be
    /// awaited and handed over, come what may.
    Create,
    /// Create the directory and those above it.
    MakeParents,
    /// List the directory.
    List,
    /// Read the Stat of our own node `name`, which we know only from a list.
    Inspect { name: String },
    /// Watch `predecessor` at the servers and wait until it changes.
    Watch { predecessor: String },
    /// Wait for a node of our session, in memory.
    WaitFor { before: Neighbour },
}

/// Why a repetition is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PauseReason {
    /// A request failed, most likely with its connection.
    RequestFailed,
    /// The server asked for patience.
    ServerBusy,
    /// Our node was deleted by another process.
    NodeDeleted,
}

/// What came of a step.
#[derive(Debug)]
pub(crate) enum AcquireEvent {
    /// Of [`AcquireRequest::Create`]: the id used, and the two answers, whose fates are independent; without
    /// a list, `before` is the nearest node of our session before ours, if that is certain.
    Created { id: String, create: Answer<OwnNode>, list: Option<Answer<Listing>>, before: Option<Neighbour> },
    /// Of [`AcquireRequest::MakeParents`].
    ParentsMade(Answer<()>),
    /// Of [`AcquireRequest::List`].
    Listed(Answer<Listing>),
    /// Of [`AcquireRequest::Inspect`].
    Inspected(Answer<OwnNode>),
    /// Of [`AcquireRequest::Watch`] and [`AcquireRequest::WaitFor`]: something has happened to whom we waited
    /// for.
    Changed,
    /// Of [`AcquireRequest::WaitFor`]: the node held the lock and was directly before ours, and one
    /// transaction has deleted it and found ours there.
    HandedOver,
    /// Of [`AcquireRequest::WaitFor`]: the node has gone, and was behind this one of another session.
    Inherited { predecessor: String },
    /// Of [`AcquireRequest::Watch`]: the watch could not be set.
    WatchFailed(Failure),
    /// Of [`AcquireStep::Pause`]: go on.
    Retry,
    /// Of [`AcquireStep::Pause`]: the retry policy is exhausted.
    GiveUp,
}

/// A node of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnNode {
    pub(crate) name: String,
    /// The zxid of its creation; nothing when the server did not say (ZOOKEEPER-4026).
    pub(crate) czxid: Option<i64>,
}

/// How it ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AcquireOutcome {
    /// The lock is ours, by this node; `also` is what else may exist and must go.
    Granted { name: String, czxid: i64, also: Orphans },
    /// It is not.
    NotGranted { why: NoGrant, orphans: Orphans },
}

/// Why it ended without a grant.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoGrant {
    /// Another contender is ahead, and this one was not to wait.
    WouldBlock,
    /// The last request was refused for good.
    Refused(Failure),
    /// The retry policy was exhausted, by failures of which this was the last.
    KeptFailing(Failure),
    /// The same, by another hand that deleted our node, so many times in a row.
    NodeDeleted { times: u32 },
    /// The directory cannot be queued in.
    Unusable(Unusable),
    /// The predecessor could not be watched, because the session watches as many nodes as it can.
    TooManyWatches,
    /// The session is over.
    SessionOver,
}

/// What may be left in the directory when a contender goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Orphans {
    /// Nodes that exist, by name.
    pub(crate) names: Vec<String>,
    /// Creates whose outcome is unknown, by id.
    pub(crate) ids: Vec<String>,
}

impl Orphans {
    fn extend(&mut self, other: Self) {
        self.names.extend(other.names);
        self.ids.extend(other.ids);
    }
}

/// Whether a contender queues or only asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IfBusy {
    Wait,
    Fail,
}

/// Where a contender waits for nodes of its own session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnPredecessor {
    Watched,
    /// For the nearest one before its own, whatever stands between: it is not its turn before that one is
    /// gone.
    InMemory,
}

/// The state machine; see the module.
#[derive(Debug)]
pub(crate) struct Acquiring {
    naming: Naming,
    kind: Kind,
    if_busy: IfBusy,
    own_predecessor: OwnPredecessor,
    /// The node that queues for us, once known.
    node: Option<OwnNode>,
    /// Creates whose outcome is unknown, oldest first.
    unknown_creates: Vec<String>,
    /// Nodes of ours that no attempt queues by. They have to go at once: kept until the end, one of them
    /// could come to stand before the node that queues for us, and we would wait for ourselves.
    orphans: Vec<String>,
    /// What to do after a pause, and why there is one.
    after_pause: AfterPause,
    paused_for: PauseReason,
    /// How a request failed last.
    last_failure: Option<Failure>,
    /// The directory was missing, and has been made: that it is missing again is a failure.
    made_parents: bool,
    /// Repetitions in a row that brought nothing.
    failures: u32,
    /// How often in a row our node was deleted by another hand.
    deleted: u32,
    /// What we waited for has happened since the last list that was judged.
    woken: bool,
    /// The list that was judged last, for the attempt, which carries out the next step.
    list: Option<Arc<Queue>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterPause {
    Create,
    Parents,
    Look,
}

impl Acquiring {
    /// A contender and its first step.
    pub(crate) fn new(
        naming: Naming,
        kind: Kind,
        if_busy: IfBusy,
        own_predecessor: OwnPredecessor,
    ) -> (Self, AcquireStep) {
        let contender = Self {
            naming,
            kind,
            if_busy,
            node: None,
            unknown_creates: Vec::new(),
            orphans: Vec::new(),
            own_predecessor,
            after_pause: AfterPause::Create,
            paused_for: PauseReason::RequestFailed,
            last_failure: None,
            made_parents: false,
            failures: 0,
            deleted: 0,
            woken: false,
            list: None,
        };
        (contender, AcquireStep::Do(AcquireRequest::Create))
    }

    /// How often in a row our node was deleted by another hand.
    #[cfg(test)]
    fn times_deleted(&self) -> u32 {
        self.deleted
    }

    /// The node that queues for us, once it is known to be ours.
    pub(crate) fn queued_as(&self) -> Option<&str> {
        self.node.as_ref().filter(|node| node.czxid.is_some()).map(|node| &*node.name)
    }

    /// The list that the last step came from. Not kept here: those that wait are many, and a list is long.
    pub(crate) fn take_list(&mut self) -> Option<Arc<Queue>> {
        self.list.take()
    }

    /// Nodes that exist and are of no use any more, to be deleted now. To be asked after each step.
    pub(crate) fn take_orphans(&mut self) -> Orphans {
        Orphans { names: std::mem::take(&mut self.orphans), ids: Vec::new() }
    }

    /// Takes the outcome of the last step and returns the next. `ours` says of a node's name whether it is
    /// one of our session's that can be waited for in memory.
    pub(crate) fn on(&mut self, event: AcquireEvent, ours: &dyn Fn(&str) -> bool) -> AcquireStep {
        match event {
            AcquireEvent::Created { id, create, list, before } => {
                self.created(id, create, list, before, ours)
            }
            AcquireEvent::ParentsMade(Answer::Is(())) => AcquireStep::Do(AcquireRequest::Create),
            // Also that there is none: a directory that we had just made, or found, was removed. Containers
            // come and go.
            AcquireEvent::ParentsMade(Answer::No(failure)) => self.failed(failure, AfterPause::Parents),
            AcquireEvent::Listed(Answer::Is(listing)) => self.look(listing, ours),
            AcquireEvent::Listed(Answer::No(failure)) => match (failure.kind, &self.node) {
                (FailureKind::NoNode, None) => self.failed(failure, AfterPause::Create),
                // The directory can be gone only if our node went first.
                (FailureKind::NoNode, Some(_)) => self.own_node_deleted(),
                _ => self.failed(failure, AfterPause::Look),
            },
            AcquireEvent::Inspected(Answer::Is(node)) => {
                self.node = Some(node);
                AcquireStep::Do(AcquireRequest::List)
            }
            AcquireEvent::Inspected(Answer::No(failure)) => match failure.kind {
                FailureKind::NoNode => self.own_node_deleted(),
                _ => self.failed(failure, AfterPause::Look),
            },
            // The holder was first, and no node can come to stand between it and ours.
            AcquireEvent::HandedOver => self.first(),
            AcquireEvent::Inherited { predecessor } => AcquireStep::Do(AcquireRequest::Watch { predecessor }),
            AcquireEvent::Changed => {
                // Only here has all been well since the last repetition: a watch was set, and has done its
                // work.
                self.failures = 0;
                self.woken = true;
                AcquireStep::Do(AcquireRequest::List)
            }
            AcquireEvent::WatchFailed(failure) => match failure.kind {
                FailureKind::NoNode => AcquireStep::Do(AcquireRequest::List),
                _ => self.failed(failure, AfterPause::Look),
            },
            AcquireEvent::Retry => match self.after_pause {
                AfterPause::Create => AcquireStep::Do(AcquireRequest::Create),
                AfterPause::Parents => AcquireStep::Do(AcquireRequest::MakeParents),
                AfterPause::Look => AcquireStep::Do(AcquireRequest::List),
            },
            AcquireEvent::GiveUp => self.give_up(),
        }
    }

    /// Leaves, whatever `step` came last and was not done any more. If a create is under way, its event has
    /// to be handed over first.
    pub(crate) fn leave(mut self, step: AcquireStep) -> Orphans {
        let mut all = self.take_all();
        match step {
            AcquireStep::Finish(AcquireOutcome::Granted { name, also, .. }) => {
                all.names.push(name);
                all.extend(also);
            }
            AcquireStep::Finish(AcquireOutcome::NotGranted { orphans, .. }) => all.extend(orphans),
            AcquireStep::Do(_) | AcquireStep::Pause { .. } => {}
        }
        all
    }

    fn take_all(&mut self) -> Orphans {
        let mut all = Orphans {
            names: std::mem::take(&mut self.orphans),
            ids: std::mem::take(&mut self.unknown_creates),
        };
        all.names.extend(self.node.take().map(|node| node.name));
        all
    }

    fn created(
        &mut self,
        id: String,
        create: Answer<OwnNode>,
        list: Option<Answer<Listing>>,
        before: Option<Neighbour>,
        ours: &dyn Fn(&str) -> bool,
    ) -> AcquireStep {
        match create {
            Answer::Is(node) => {
                if let Some(earlier) = self.node.replace(node) {
                    // Cannot happen while `created` is the only place that creates; if it does, nothing is
                    // lost.
                    self.orphans.push(earlier.name);
                }
            }
            Answer::No(failure) => return self.not_created(id, failure, list, ours),
        }
        match (list, before) {
            (Some(Answer::Is(listing)), _) => self.look(listing, ours),
            (Some(Answer::No(failure)), _) => match failure.kind {
                FailureKind::NoNode => self.own_node_deleted(),
                _ => self.failed(failure, AfterPause::Look),
            },
            // A list is needed to find out about earlier creates, and to say for sure that the lock is not
            // free.
            (None, Some(before)) if self.waits_for_sure() => {
                AcquireStep::Do(AcquireRequest::WaitFor { before })
            }
            (None, _) => AcquireStep::Do(AcquireRequest::List),
        }
    }

    fn not_created(
        &mut self,
        id: String,
        failure: Failure,
        list: Option<Answer<Listing>>,
        ours: &dyn Fn(&str) -> bool,
    ) -> AcquireStep {
        match failure.kind {
            FailureKind::Unknown => {
                self.unknown_creates.push(id);
                // A list of the same flight may already show that it did happen. If it does not, that means
                // nothing, and only a repetition can tell: its own create is the barrier
                // (docs/protocol.md#write-barrier).
                match list {
                    None => {
                        self.last_failure = Some(failure);
                        AcquireStep::Do(AcquireRequest::List)
                    }
                    Some(Answer::Is(listing)) if self.finds_itself(&listing) => self.look(listing, ours),
                    Some(Answer::No(Failure { kind: FailureKind::SessionOver, .. })) => {
                        self.end(NoGrant::SessionOver)
                    }
                    Some(_) => self.failed(failure, AfterPause::Create),
                }
            }
            FailureKind::NoNode if !self.made_parents => {
                self.made_parents = true;
                AcquireStep::Do(AcquireRequest::MakeParents)
            }
            // The directory vanished between our making it and our create, or a stale parent is in the way.
            FailureKind::NoNode => self.failed(failure, AfterPause::Parents),
            _ => self.failed(failure, AfterPause::Create),
        }
    }

    /// Whether nothing is left to be found out but whom to wait for.
    fn waits_for_sure(&self) -> bool {
        self.if_busy == IfBusy::Wait && self.unknown_creates.is_empty() && self.queued_as().is_some()
    }

    /// Whether a list shows a node of one of our unknown creates, or that it is no use to go on.
    fn finds_itself(&self, listing: &Listing) -> bool {
        let Ok(queue) = listing else { return true };
        self.unknown_creates.iter().any(|id| queue.find(&self.naming.prefix(id, self.kind)).is_some())
    }

    /// Judges a list of the directory.
    fn look(&mut self, listing: Listing, ours: &dyn Fn(&str) -> bool) -> AcquireStep {
        let queue = match listing {
            Ok(queue) => queue,
            Err(unusable) => return self.end(NoGrant::Unusable(unusable)),
        };
        // Creates whose outcome was unknown and that turn out to have happened: the oldest of our nodes has
        // the best place, so it is the one that queues; all others are orphans.
        let (naming, kind) = (self.naming, self.kind);
        let mut found = Vec::new();
        self.unknown_creates.retain(|id| match queue.find(&naming.prefix(id, kind)) {
            Some(name) => {
                // Known from a list only: it has to prove by its owner that it is ours, and the token needs
                // its czxid.
                found.push(OwnNode { name: name.to_owned(), czxid: None });
                false
            }
            None => true,
        });
        if !found.is_empty() {
            found.extend(self.node.take());
            // One that the list lacks was deleted by another process, and is not the one to queue with.
            found.sort_by_key(|node| queue.rank(&node.name).unwrap_or(usize::MAX));
            self.node = Some(found.remove(0));
            self.orphans.extend(found.into_iter().map(|node| node.name));
        }
        let Some(node) = &self.node else {
            return self.pause(AfterPause::Create);
        };
        let Some(position) = queue.position(&node.name) else { return self.own_node_deleted() };
        if let Err(unusable) = queue.usable_by(&node.name) {
            return self.end(NoGrant::Unusable(unusable));
        }
        if std::mem::take(&mut self.woken) {
            // It outlasted a wait: the process that deletes our nodes does not do it each time.
            self.deleted = 0;
        }
        match position {
            _ if node.czxid.is_none() => AcquireStep::Do(AcquireRequest::Inspect { name: node.name.clone() }),
            Position::First => self.first(),
            Position::Behind { .. } if self.if_busy == IfBusy::Fail => {
                self.list = Some(queue);
                self.end(NoGrant::WouldBlock)
            }
            Position::Behind { predecessor } => {
                let own = match self.own_predecessor {
                    OwnPredecessor::Watched => None,
                    OwnPredecessor::InMemory => {
                        queue.before(&node.name).enumerate().find(|(_, name)| ours(name))
                    }
                };
                let request = match own {
                    Some((between, name)) => AcquireRequest::WaitFor {
                        before: Neighbour { name: name.into(), next: between == 0 },
                    },
                    None => AcquireRequest::Watch { predecessor: predecessor.to_owned() },
                };
                self.list = Some(queue);
                AcquireStep::Do(request)
            }
        }
    }

    /// No contender is before us.
    fn first(&mut self) -> AcquireStep {
        match self.node.take() {
            Some(OwnNode { name, czxid: Some(czxid) }) => {
                AcquireStep::Finish(AcquireOutcome::Granted { name, czxid, also: self.take_all() })
            }
            Some(OwnNode { name, czxid: None }) => {
                self.node = Some(OwnNode { name: name.clone(), czxid: None });
                AcquireStep::Do(AcquireRequest::Inspect { name })
            }
            None => self.pause(AfterPause::Create),
        }
    }

    /// Our node is gone although we did not delete it. Start again at the end of the queue, as Curator does.
    fn own_node_deleted(&mut self) -> AcquireStep {
        self.woken = false;
        self.deleted = self.deleted.saturating_add(1);
        // A deletion of it costs nothing and makes sure.
        self.orphans.extend(self.node.take().map(|node| node.name));
        self.after_pause = AfterPause::Create;
        self.paused_for = PauseReason::NodeDeleted;
        AcquireStep::Pause { failures: self.deleted - 1, why: PauseReason::NodeDeleted }
    }

    fn give_up(&mut self) -> AcquireStep {
        let why = match self.paused_for {
            PauseReason::NodeDeleted => NoGrant::NodeDeleted { times: self.deleted },
            PauseReason::RequestFailed | PauseReason::ServerBusy => {
                let last = self.last_failure.take();
                NoGrant::KeptFailing(last.unwrap_or_else(|| FailureKind::Unknown.into()))
            }
        };
        self.end(why)
    }

    fn failed(&mut self, failure: Failure, then: AfterPause) -> AcquireStep {
        let step = match failure.kind {
            FailureKind::SessionOver => return self.end(NoGrant::SessionOver),
            FailureKind::Refused(_) => return self.end(NoGrant::Refused(failure)),
            FailureKind::TooManyWatches => return self.end(NoGrant::TooManyWatches),
            FailureKind::NoNode | FailureKind::Unknown => self.pause(then),
            FailureKind::NotNow => self.pause_for(then, PauseReason::ServerBusy),
        };
        self.last_failure = Some(failure);
        step
    }

    fn pause(&mut self, then: AfterPause) -> AcquireStep {
        self.pause_for(then, PauseReason::RequestFailed)
    }

    fn pause_for(&mut self, then: AfterPause, why: PauseReason) -> AcquireStep {
        self.after_pause = then;
        self.paused_for = why;
        let failures = self.failures;
        self.failures = failures.saturating_add(1);
        AcquireStep::Pause { failures, why }
    }

    fn end(&mut self, why: NoGrant) -> AcquireStep {
        AcquireStep::Finish(AcquireOutcome::NotGranted { why, orphans: self.take_all() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::failure::Refusal;
    use crate::protocol::node_name::{Dialect, Family};

    const MUTEX: Naming = Naming { family: Family::Exclusive, dialect: Dialect::Curator };
    const REFUSED: FailureKind = FailureKind::Refused(Refusal::Other);
    const A: &str = "aaaa";
    const B: &str = "bbbb";

    impl Acquiring {
        /// Where no node of the session can be waited for in memory.
        fn step(&mut self, event: AcquireEvent) -> AcquireStep {
            self.on(event, &|_| false)
        }
    }

    fn name(id: &str, sequence: u32) -> String {
        format!("_c_{id}-lock-{sequence:010}")
    }

    fn node(id: &str, sequence: u32) -> OwnNode {
        OwnNode { name: name(id, sequence), czxid: Some(i64::from(sequence) + 100) }
    }

    fn created(id: &str, create: Answer<OwnNode>, list: Answer<Listing>) -> AcquireEvent {
        AcquireEvent::Created { id: id.to_owned(), create, list: Some(list), before: None }
    }

    fn list(names: &[String]) -> Answer<Listing> {
        Answer::Is(Queue::read(names.to_vec(), MUTEX))
    }

    fn waiting() -> Acquiring {
        let (contender, first) =
            Acquiring::new(MUTEX, Kind::Exclusive, IfBusy::Wait, OwnPredecessor::Watched);
        assert_eq!(first, AcquireStep::Do(AcquireRequest::Create));
        contender
    }

    fn granted(id: &str, sequence: u32) -> AcquireStep {
        let OwnNode { name, czxid } = node(id, sequence);
        AcquireStep::Finish(AcquireOutcome::Granted { name, czxid: czxid.unwrap(), also: Orphans::default() })
    }

    fn ended(why: NoGrant, names: &[String], ids: &[&str]) -> AcquireStep {
        let ids = ids.iter().map(ToString::to_string).collect();
        AcquireStep::Finish(AcquireOutcome::NotGranted {
            why,
            orphans: Orphans { names: names.to_vec(), ids },
        })
    }

    fn request_again(failures: u32) -> AcquireStep {
        AcquireStep::Pause { failures, why: PauseReason::RequestFailed }
    }

    #[test]
    fn a_free_lock_is_granted_by_the_first_flight() {
        let mut contender = waiting();
        let step =
            contender.step(created(A, Answer::Is(node(A, 3)), list(&["stray".to_owned(), name(A, 3)])));
        assert_eq!(step, granted(A, 3));
    }

    /// Its own node may be gone too.
    #[test]
    fn the_only_one_before_us_gone_means_looking_again() {
        let mut contender = waiting();
        let step = contender.step(created(A, Answer::Is(node(A, 3)), list(&[name(A, 3), name(B, 2)])));
        assert_eq!(step, AcquireStep::Do(AcquireRequest::Watch { predecessor: name(B, 2) }));
        assert_eq!(contender.step(AcquireEvent::Changed), AcquireStep::Do(AcquireRequest::List));
        assert_eq!(contender.step(AcquireEvent::Listed(list(&[name(A, 3)]))), granted(A, 3));
    }

    fn in_memory(if_busy: IfBusy) -> Acquiring {
        Acquiring::new(MUTEX, Kind::Exclusive, if_busy, OwnPredecessor::InMemory).0
    }

    fn wait_for(name: &str, next: bool) -> AcquireStep {
        AcquireStep::Do(AcquireRequest::WaitFor { before: Neighbour { name: name.into(), next } })
    }

    #[test]
    fn the_nearest_node_of_the_session_is_waited_for_in_memory() {
        let all = [name(A, 5), name("theirs", 4), name("ours", 3), name("ours", 2), name("theirs", 1)];
        let ours = |name: &str| name.contains("ours");
        let mut contender = in_memory(IfBusy::Wait);
        let step = contender.on(created(A, Answer::Is(node(A, 5)), list(&all)), &ours);
        assert_eq!(step, wait_for(&name("ours", 3), false));
        assert_eq!(contender.on(AcquireEvent::Changed, &ours), AcquireStep::Do(AcquireRequest::List));
        let step = contender.on(AcquireEvent::Listed(list(&[name(A, 5), name("ours", 2)])), &ours);
        assert_eq!(step, wait_for(&name("ours", 2), true));
        let (mut elsewhere, _) =
            Acquiring::new(MUTEX, Kind::Exclusive, IfBusy::Wait, OwnPredecessor::Watched);
        let step = elsewhere.on(created(A, Answer::Is(node(A, 5)), list(&all)), &ours);
        assert_eq!(step, AcquireStep::Do(AcquireRequest::Watch { predecessor: name("theirs", 4) }));
    }

    #[test]
    fn a_lock_handed_over_is_ours_at_once() {
        let mut contender = in_memory(IfBusy::Wait);
        let all = [name(A, 3), name(B, 2), name("c", 1)];
        contender.on(created(A, Answer::Is(node(A, 3)), list(&all)), &|_| true);
        assert_eq!(contender.queued_as(), Some(&*name(A, 3)));
        // It held, so the one before it is gone.
        assert_eq!(contender.step(AcquireEvent::HandedOver), granted(A, 3));
    }

    #[test]
    fn what_another_watched_is_watched_in_its_place() {
        let mut contender = in_memory(IfBusy::Wait);
        contender.on(created(A, Answer::Is(node(A, 3)), list(&[name(A, 3), name(B, 2)])), &|_| true);
        let predecessor = name("c", 1);
        let step = contender.step(AcquireEvent::Inherited { predecessor: predecessor.clone() });
        assert_eq!(step, AcquireStep::Do(AcquireRequest::Watch { predecessor }));
        assert_eq!(
            contender.step(AcquireEvent::WatchFailed(FailureKind::NoNode.into())),
            AcquireStep::Do(AcquireRequest::List)
        );
    }

    fn created_behind(create: Answer<OwnNode>, before: Option<&str>) -> AcquireEvent {
        let before = before.map(|name| Neighbour { name: name.into(), next: true });
        AcquireEvent::Created { id: A.to_owned(), create, list: None, before }
    }

    #[test]
    fn one_that_knows_its_predecessor_needs_no_list() {
        let b = name(B, 2);
        let step = in_memory(IfBusy::Wait).step(created_behind(Answer::Is(node(A, 3)), Some(&b)));
        assert_eq!(step, wait_for(&b, true));
        // Otherwise it does: not known; not to wait; not known to be ours; another create may have happened.
        let list = AcquireStep::Do(AcquireRequest::List);
        assert_eq!(in_memory(IfBusy::Wait).step(created_behind(Answer::Is(node(A, 3)), None)), list);
        assert_eq!(in_memory(IfBusy::Fail).step(created_behind(Answer::Is(node(A, 3)), Some(&b))), list);
        let unsaid = OwnNode { name: name(A, 3), czxid: None };
        assert_eq!(in_memory(IfBusy::Wait).step(created_behind(Answer::Is(unsaid), Some(&b))), list);
        let mut contender = in_memory(IfBusy::Wait);
        assert_eq!(contender.step(created_behind(Answer::no(FailureKind::Unknown), None)), list);
        assert_eq!(contender.step(AcquireEvent::Listed(Answer::no(FailureKind::NoNode))), request_again(0));
        assert_eq!(contender.step(AcquireEvent::Retry), AcquireStep::Do(AcquireRequest::Create));
        assert_eq!(contender.step(created_behind(Answer::Is(node(B, 3)), Some(&b))), list);
    }

    #[test]
    fn a_reader_does_not_wait_for_readers_and_looks_again_when_its_writer_goes() {
        let naming = Naming { family: Family::ReadWrite, dialect: Dialect::Curator };
        let listed =
            |names: &[&str]| Answer::Is(Queue::read(names.iter().map(ToString::to_string).collect(), naming));
        let own = OwnNode { name: "_c_aaaa-__READ__0000000003".to_owned(), czxid: Some(103) };
        let (mut contender, _) = Acquiring::new(naming, Kind::Shared, IfBusy::Wait, OwnPredecessor::Watched);
        let all = ["r-__READ__0000000001", "w-__WRIT__0000000002", &own.name];
        let step = contender.step(created(A, Answer::Is(own.clone()), listed(&all)));
        assert_eq!(
            step,
            AcquireStep::Do(AcquireRequest::Watch { predecessor: "w-__WRIT__0000000002".to_owned() })
        );
        // The reader before may have become a writer meanwhile.
        assert_eq!(contender.step(AcquireEvent::Changed), AcquireStep::Do(AcquireRequest::List));
        let upgraded = "r-__WRIT__0000000001";
        let step = contender.step(AcquireEvent::Listed(listed(&[upgraded, &own.name])));
        assert_eq!(step, AcquireStep::Do(AcquireRequest::Watch { predecessor: upgraded.to_owned() }));
        assert_eq!(contender.step(AcquireEvent::Changed), AcquireStep::Do(AcquireRequest::List));
        let step = contender.step(AcquireEvent::Listed(listed(&["r-__READ__0000000001", &own.name])));
        let granted =
            AcquireOutcome::Granted { name: own.name.clone(), czxid: 103, also: Orphans::default() };
        assert_eq!(step, AcquireStep::Finish(granted));
    }

    #[test]
    fn a_session_that_cannot_watch_more_ends_the_wait() {
        let mut contender = waiting();
        contender.step(created(A, Answer::Is(node(A, 3)), list(&[name(A, 3), name(B, 2)])));
        let step = contender.step(AcquireEvent::WatchFailed(FailureKind::TooManyWatches.into()));
        assert_eq!(step, ended(NoGrant::TooManyWatches, &[name(A, 3)], &[]));
    }

    #[test]
    fn one_of_several_before_us_gone_means_looking_again() {
        let mut contender = waiting();
        let all = [name(A, 3), name(B, 2), name("c", 1)];
        assert_eq!(
            contender.step(created(A, Answer::Is(node(A, 3)), list(&all))),
            AcquireStep::Do(AcquireRequest::Watch { predecessor: name(B, 2) })
        );
        // It gave up; the holder is still there.
        assert_eq!(contender.step(AcquireEvent::Changed), AcquireStep::Do(AcquireRequest::List));
        let left = [name(A, 3), name("c", 1)];
        assert_eq!(
            contender.step(AcquireEvent::Listed(list(&left))),
            AcquireStep::Do(AcquireRequest::Watch { predecessor: name("c", 1) })
        );
        assert_eq!(
            contender.step(AcquireEvent::Changed),
            AcquireStep::Do(AcquireRequest::List),
            "a change of its data is no deletion"
        );
        assert_eq!(
            contender.step(AcquireEvent::Listed(list(&left))),
            AcquireStep::Do(AcquireRequest::Watch { predecessor: name("c", 1) })
        );
        assert_eq!(contender.step(AcquireEvent::Changed), AcquireStep::Do(AcquireRequest::List));
        assert_eq!(contender.step(AcquireEvent::Listed(list(&[name(A, 3)]))), granted(A, 3));
    }

    /// The create's reply is lost, the list comes over the new connection and shows nobody
    /// (docs/protocol.md#grant).
    #[test]
    fn a_list_that_lacks_our_node_grants_nothing() {
        let mut contender = waiting();
        let step = contender.step(created(A, Answer::no(FailureKind::Unknown), list(&[])));
        assert_eq!(step, request_again(0));
        assert_eq!(contender.step(AcquireEvent::Retry), AcquireStep::Do(AcquireRequest::Create));
        // The repetition is the barrier: its list shows whether the first create happened.
        let step = contender.step(created(B, Answer::Is(node(B, 8)), list(&[name(B, 8)])));
        let also = Orphans { names: Vec::new(), ids: vec![A.to_owned()] };
        assert_eq!(step, AcquireStep::Finish(AcquireOutcome::Granted { name: name(B, 8), czxid: 108, also }));
    }

    #[test]
    fn a_lost_reply_is_found_in_the_list_and_checked_before_it_counts() {
        let mut contender = waiting();
        let step = contender.step(created(A, Answer::no(FailureKind::Unknown), list(&[name(A, 4)])));
        assert_eq!(step, AcquireStep::Do(AcquireRequest::Inspect { name: name(A, 4) }));
        assert_eq!(
            contender.step(AcquireEvent::Inspected(Answer::Is(node(A, 4)))),
            AcquireStep::Do(AcquireRequest::List)
        );
        assert_eq!(contender.step(AcquireEvent::Listed(list(&[name(A, 4)]))), granted(A, 4));
    }

    #[test]
    fn of_two_nodes_of_one_attempt_the_older_queues() {
        let mut contender = waiting();
        assert_eq!(
            contender.step(created(A, Answer::no(FailureKind::Unknown), Answer::no(FailureKind::Unknown))),
            request_again(0)
        );
        assert_eq!(contender.step(AcquireEvent::Retry), AcquireStep::Do(AcquireRequest::Create));
        let both = [name(A, 4), name(B, 5)];
        let step = contender.step(created(B, Answer::Is(node(B, 5)), list(&both)));
        assert_eq!(step, AcquireStep::Do(AcquireRequest::Inspect { name: name(A, 4) }));
        assert_eq!(
            contender.step(AcquireEvent::Inspected(Answer::Is(node(A, 4)))),
            AcquireStep::Do(AcquireRequest::List)
        );
        let also = Orphans { names: vec![name(B, 5)], ids: Vec::new() };
        assert_eq!(
            contender.step(AcquireEvent::Listed(list(&both))),
            AcquireStep::Finish(AcquireOutcome::Granted { name: name(A, 4), czxid: 104, also })
        );
    }

    #[test]
    fn a_node_without_a_czxid_is_inspected_before_it_makes_a_token() {
        let mut contender = waiting();
        let unsaid = OwnNode { name: name(A, 1), czxid: None };
        let step = contender.step(created(A, Answer::Is(unsaid), list(&[name(A, 1)])));
        assert_eq!(step, AcquireStep::Do(AcquireRequest::Inspect { name: name(A, 1) }));
    }

    #[test]
    fn a_created_node_with_a_lost_list_is_listed_again() {
        let mut contender = waiting();
        let step = contender.step(created(A, Answer::Is(node(A, 1)), Answer::no(FailureKind::Unknown)));
        assert_eq!(step, request_again(0));
        assert_eq!(contender.step(AcquireEvent::Retry), AcquireStep::Do(AcquireRequest::List));
        assert_eq!(contender.step(AcquireEvent::Listed(Answer::no(FailureKind::Unknown))), request_again(1));
    }

    #[test]
    fn parents_are_made_once_at_once_and_then_by_the_policy() {
        let mut contender = waiting();
        let no = || created(A, Answer::no(FailureKind::NoNode), Answer::no(FailureKind::NoNode));
        assert_eq!(contender.step(no()), AcquireStep::Do(AcquireRequest::MakeParents));
        assert_eq!(
            contender.step(AcquireEvent::ParentsMade(Answer::Is(()))),
            AcquireStep::Do(AcquireRequest::Create)
        );
        // A container was reaped in between.
        assert_eq!(contender.step(no()), request_again(0));
        assert_eq!(contender.step(AcquireEvent::Retry), AcquireStep::Do(AcquireRequest::MakeParents));
        assert_eq!(
            contender.step(AcquireEvent::ParentsMade(Answer::no(REFUSED))),
            ended(NoGrant::Refused(REFUSED.into()), &[], &[])
        );
    }

    #[test]
    fn an_own_node_deleted_by_hand_queues_again_at_the_end() {
        let mut contender = waiting();
        contender.step(created(A, Answer::Is(node(A, 3)), list(&[name(A, 3), name(B, 2), name("c", 1)])));
        assert_eq!(contender.step(AcquireEvent::Changed), AcquireStep::Do(AcquireRequest::List));
        let step = contender.step(AcquireEvent::Listed(list(&[name("c", 1)])));
        assert_eq!(step, AcquireStep::Pause { failures: 0, why: PauseReason::NodeDeleted });
        assert_eq!(contender.step(AcquireEvent::Retry), AcquireStep::Do(AcquireRequest::Create));
        assert_eq!(contender.times_deleted(), 1);
        // Should it exist after all, it goes.
        assert_eq!(contender.take_orphans().names, [name(A, 3)]);
    }

    /// A wait may be long, and its node be deleted now and then.
    #[test]
    fn deletions_by_hand_are_forgotten_after_a_turn_that_went_well() {
        let mut contender = waiting();
        let queue = |contender: &mut Acquiring, n| {
            let all = [name(A, n), name(B, 2), name("c", 1)];
            let watch = AcquireStep::Do(AcquireRequest::Watch { predecessor: name(B, 2) });
            assert_eq!(contender.step(created(A, Answer::Is(node(A, n)), list(&all))), watch);
            assert_eq!(contender.step(AcquireEvent::Changed), AcquireStep::Do(AcquireRequest::List));
            all
        };
        let robbed = |contender: &mut Acquiring, failures| {
            let step = contender.step(AcquireEvent::Listed(list(&[name(B, 2)])));
            assert_eq!(step, AcquireStep::Pause { failures, why: PauseReason::NodeDeleted });
            assert_eq!(contender.step(AcquireEvent::Retry), AcquireStep::Do(AcquireRequest::Create));
        };
        queue(&mut contender, 3);
        robbed(&mut contender, 0);
        // Each time at once: the retry policy ends it.
        queue(&mut contender, 4);
        robbed(&mut contender, 1);
        let all = queue(&mut contender, 5);
        let step = contender.step(AcquireEvent::Listed(list(&all)));
        assert_eq!(step, AcquireStep::Do(AcquireRequest::Watch { predecessor: name(B, 2) }));
        assert_eq!(contender.step(AcquireEvent::Changed), AcquireStep::Do(AcquireRequest::List));
        robbed(&mut contender, 0);
        assert_eq!(contender.times_deleted(), 1);
    }

    #[test]
    fn a_try_does_not_wait_and_takes_its_node_along() {
        let (mut contender, _) =
            Acquiring::new(MUTEX, Kind::Exclusive, IfBusy::Fail, OwnPredecessor::Watched);
        let step = contender.step(created(A, Answer::Is(node(A, 3)), list(&[name(A, 3), name(B, 2)])));
        assert_eq!(step, ended(NoGrant::WouldBlock, &[name(A, 3)], &[]));
    }

    #[test]
    fn whoever_leaves_during_the_create_takes_along_what_came_of_it() {
        let leave = |event| {
            let mut contender = waiting();
            let step = contender.step(event);
            contender.leave(step)
        };
        // Granted in that very moment; waiting; unknown; not created; over.
        let granted = leave(created(A, Answer::Is(node(A, 3)), list(&[name(A, 3)])));
        assert_eq!(granted, Orphans { names: vec![name(A, 3)], ids: Vec::new() });
        let waiting = leave(created(A, Answer::Is(node(A, 3)), list(&[name(A, 3), name(B, 2)])));
        assert_eq!(waiting, Orphans { names: vec![name(A, 3)], ids: Vec::new() });
        let unknown = leave(created(A, Answer::no(FailureKind::Unknown), list(&[])));
        assert_eq!(unknown, Orphans { names: Vec::new(), ids: vec![A.to_owned()] });
        let refused = leave(created(A, Answer::no(FailureKind::NoNode), Answer::no(FailureKind::NoNode)));
        assert_eq!(refused, Orphans::default());
        let over =
            leave(created(A, Answer::no(FailureKind::SessionOver), Answer::no(FailureKind::SessionOver)));
        assert_eq!(over, Orphans::default());
    }

    /// A watch that cannot be set is counted although every list in between succeeds.
    #[test]
    fn a_watch_that_keeps_failing_comes_to_an_end() {
        let mut contender = waiting();
        let both = [name(A, 3), name(B, 2)];
        let watch = || AcquireStep::Do(AcquireRequest::Watch { predecessor: name(B, 2) });
        assert_eq!(contender.step(created(A, Answer::Is(node(A, 3)), list(&both))), watch());
        for failures in 0..3 {
            let why = PauseReason::ServerBusy;
            assert_eq!(
                contender.step(AcquireEvent::WatchFailed(FailureKind::NotNow.into())),
                AcquireStep::Pause { failures, why }
            );
            assert_eq!(contender.step(AcquireEvent::Retry), AcquireStep::Do(AcquireRequest::List));
            assert_eq!(contender.step(AcquireEvent::Listed(list(&both))), watch());
        }
        // One that was set and fired: all has been well.
        assert_eq!(contender.step(AcquireEvent::Changed), AcquireStep::Do(AcquireRequest::List));
        assert_eq!(contender.step(AcquireEvent::Listed(Answer::no(FailureKind::Unknown))), request_again(0));
    }

    #[test]
    fn unusable_directories_end_it_and_leave_nothing() {
        for (other, why) in [
            ("x-__WRIT__0000000001", Unusable::OtherOrder("x-__WRIT__0000000001".to_owned())),
            ("x-lock--000000001", Unusable::Exhausted),
        ] {
            let mut contender = waiting();
            let both = [name(A, 3), other.to_owned()];
            let step = contender.step(created(A, Answer::Is(node(A, 3)), list(&both)));
            assert_eq!(step, ended(NoGrant::Unusable(why), &[name(A, 3)], &[]));
        }
    }

    #[test]
    fn a_contender_of_another_order_that_came_later_ends_no_wait() {
        let mut contender = waiting();
        contender.step(created(A, Answer::Is(node(A, 3)), list(&[name(A, 3), name(B, 2), name("c", 1)])));
        assert_eq!(contender.step(AcquireEvent::Changed), AcquireStep::Do(AcquireRequest::List));
        let later = "x-__READ__0000000004".to_owned();
        let step = contender.step(AcquireEvent::Listed(list(&[name(A, 3), later.clone(), name("c", 1)])));
        assert_eq!(step, AcquireStep::Do(AcquireRequest::Watch { predecessor: name("c", 1) }));
        assert_eq!(contender.step(AcquireEvent::Changed), AcquireStep::Do(AcquireRequest::List));
        assert_eq!(contender.step(AcquireEvent::Listed(list(&[name(A, 3), later]))), granted(A, 3));
    }

    #[test]
    fn the_end_of_the_session_ends_it_everywhere() {
        let over = || FailureKind::SessionOver;
        let mut contender = waiting();
        assert_eq!(
            contender.step(created(A, Answer::no(over()), Answer::no(over()))),
            ended(NoGrant::SessionOver, &[], &[])
        );
        let mut contender = waiting();
        contender.step(created(A, Answer::Is(node(A, 3)), list(&[name(A, 3), name(B, 2)])));
        assert_eq!(
            contender.step(AcquireEvent::WatchFailed(over().into())),
            ended(NoGrant::SessionOver, &[name(A, 3)], &[])
        );
    }
}
