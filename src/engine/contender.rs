//! One contender's life in one session, as a state machine. Pure: no client, clock, task or random number.
//!
//! The [driver](super::driver) does what a [`Step`] says and hands back the [`Event`] it led to, one at a time, until
//! the step is [`Step::Finish`]. Every decision about unknown outcomes is made here.
//!
//! # Invariants
//! 1. A grant needs a list that contains our own node with nobody before it, or a transaction that deleted the holder's
//!    node, directly before ours, and found ours there. A list without our node grants nothing and proves nothing: the
//!    create may still be under way (design rule 1, review finding 13).
//! 2. Only a definite answer of the server says that a create did not happen. Everything else leaves an
//!    *unsettled* id: the node may exist, or may come to exist later (rule 5).
//! 3. An id belongs to one create request. A repetition has an id of its own, so a late commit of the first can be
//!    told from the second (rule 6, finding 8).
//! 4. Whatever way it ends, the outcome names every node that may be left: what is known to exist by name, what may
//!    exist by id ([`Leave`]). Nobody but the driver's caller may keep one of them.
//! 5. Each repetition is counted against the retry policy, except those that an answer from a peer asked for.

use std::sync::Arc;

use super::line::Neighbour;
use super::name::{Kind, Naming};
use super::queue::{Listing, Place, Queue, Unusable};

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Ask the server something.
    Do(Request),
    /// Ask the retry policy for repetition number `failures` (from 0) and pause as it says; then `Retry`.
    Pause { failures: u32, why: Trouble },
    /// The end.
    Finish(Outcome),
}

/// What to ask the server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Create a node with a fresh id. With the list of the directory, both sent before either is answered, unless the
    /// answer to the create may make a list needless. The one request whose answer has to be awaited and handed over, come
    /// what may.
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
pub(crate) enum Trouble {
    /// A request failed, most likely with its connection.
    Request,
    /// The server asked for patience.
    NotNow,
    /// Somebody deleted our node.
    NodeDeleted,
}

/// What came of a step.
#[derive(Debug)]
pub(crate) enum Event {
    /// Of [`Request::Create`]: the id used, and the two answers, whose fates are independent; without a list, `before` is
    /// the nearest node of our session before ours, if that is certain.
    Created { id: String, create: Answer<Node>, list: Option<Answer<Listing>>, before: Option<Neighbour> },
    /// Of [`Request::MakeParents`].
    ParentsMade(Answer<()>),
    /// Of [`Request::List`].
    Listed(Answer<Listing>),
    /// Of [`Request::Inspect`].
    Inspected(Answer<Node>),
    /// Of [`Request::Watch`] and [`Request::WaitFor`]: something has happened to whom we waited for.
    Changed,
    /// Of [`Request::WaitFor`]: the node held the lock and was directly before ours, and one transaction has deleted it and
    /// found ours there.
    HandedOver,
    /// Of [`Request::WaitFor`]: the node has gone, and was behind this one of another session.
    Inherited { predecessor: String },
    /// Of [`Request::Watch`]: the watch could not be set.
    WatchFailed(Failure),
    /// Of [`Step::Pause`]: go on.
    Retry,
}

/// A server's answer to one request.
#[derive(Debug)]
pub(crate) enum Answer<T> {
    Is(T),
    No(Failure),
}

/// How a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Definitely not done: the node, or its parent, does not exist.
    NoNode,
    /// Definitely not done, and no repetition will change that.
    Refused,
    /// Definitely not done, but a repetition may succeed (an overloaded server).
    NotNow,
    /// Done or not: the connection was lost, or the answer made no sense.
    Unknown,
    /// The session is over: its nodes are gone or going.
    EpochOver,
    /// Not asked: the session watches as many nodes as it can.
    OverBudget,
}

/// A node of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) name: String,
    /// The zxid of its creation; nothing when the server did not say (ZOOKEEPER-4026).
    pub(crate) czxid: Option<i64>,
}

/// How it ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The lock is ours, by this node; `also` is what else may exist and must go.
    Granted { name: String, czxid: i64, also: Leave },
    /// It is not.
    Ended { why: Ending, leave: Leave },
}

/// Why it ended without a grant.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Somebody is ahead, and this contender was not to wait.
    WouldBlock,
    /// The last request was refused for good; the driver knows with which words.
    Refused,
    /// The directory cannot be queued in.
    Unusable(Unusable),
    /// The predecessor could not be watched, because the session watches as many nodes as it can.
    OverBudget,
    /// The session is over.
    EpochOver,
}

/// What may be left in the directory when a contender goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Leave {
    /// Nodes that exist, by name.
    pub(crate) nodes: Vec<String>,
    /// Creates whose outcome is unknown, by id.
    pub(crate) unsettled: Vec<String>,
}

impl Leave {
    fn extend(&mut self, other: Self) {
        self.nodes.extend(other.nodes);
        self.unsettled.extend(other.unsettled);
    }
}

/// Whether a contender queues or only asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    Wait,
    Try,
}

/// Where a contender waits for nodes of its own session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    AtTheServers,
    /// For the nearest one before its own, whatever stands between: it is not its turn before that one is gone.
    InMemory,
}

/// The state machine; see the module.
#[derive(Debug)]
pub(crate) struct Contender {
    naming: Naming,
    kind: Kind,
    patience: Patience,
    waits: Waits,
    /// The node that queues for us, once known.
    node: Option<Node>,
    /// Creates whose outcome is unknown, oldest first.
    unsettled: Vec<String>,
    /// Nodes of ours that queue for nobody. They have to go at once: kept until the end, one of them could come to
    /// stand before the node that queues for us, and we would wait for ourselves.
    surplus: Vec<String>,
    /// What to do after a pause.
    after_pause: AfterPause,
    /// The directory was missing, and has been made: that it is missing again is a failure.
    made_parents: bool,
    /// Repetitions in a row that brought nothing.
    failures: u32,
    /// How often in a row our node was deleted by another hand.
    deleted: u32,
    /// What we waited for has happened since the last list that was judged.
    woken: bool,
    /// The list that was judged last, for whoever carries out the next step.
    list: Option<Arc<Queue>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterPause {
    Create,
    Parents,
    Look,
}

impl Contender {
    /// A contender and its first step.
    pub(crate) fn new(naming: Naming, kind: Kind, patience: Patience, waits: Waits) -> (Self, Step) {
        let contender = Self {
            naming,
            kind,
            patience,
            node: None,
            unsettled: Vec::new(),
            surplus: Vec::new(),
            waits,
            after_pause: AfterPause::Create,
            made_parents: false,
            failures: 0,
            deleted: 0,
            woken: false,
            list: None,
        };
        (contender, Step::Do(Request::Create))
    }

    /// How often in a row our node was deleted by another hand.
    pub(crate) fn times_deleted(&self) -> u32 {
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
    pub(crate) fn take_surplus(&mut self) -> Vec<String> {
        std::mem::take(&mut self.surplus)
    }

    /// Takes what came of the last step and answers with the next. `ours` says of a node's name whether it is one of our
    /// session's that can be waited for in memory.
    pub(crate) fn on(&mut self, event: Event, ours: &dyn Fn(&str) -> bool) -> Step {
        match event {
            Event::Created { id, create, list, before } => self.created(id, create, list, before, ours),
            Event::ParentsMade(Answer::Is(())) => Step::Do(Request::Create),
            // Somebody removed a directory that we had just made, or found: containers come and go.
            Event::ParentsMade(Answer::No(Failure::NoNode)) => self.pause(AfterPause::Parents),
            Event::ParentsMade(Answer::No(failure)) => self.failed(failure, AfterPause::Parents),
            Event::Listed(Answer::Is(listing)) => self.look(listing, ours),
            Event::Listed(Answer::No(Failure::NoNode)) if self.node.is_none() => {
                self.pause(AfterPause::Create)
            }
            // The directory can be gone only if our node went first.
            Event::Listed(Answer::No(Failure::NoNode)) => self.own_node_deleted(),
            Event::Listed(Answer::No(failure)) => self.failed(failure, AfterPause::Look),
            Event::Inspected(Answer::Is(node)) => {
                self.node = Some(node);
                Step::Do(Request::List)
            }
            Event::Inspected(Answer::No(Failure::NoNode)) => self.own_node_deleted(),
            Event::Inspected(Answer::No(failure)) => self.failed(failure, AfterPause::Look),
            // The holder was first, and no node can come to stand between it and ours.
            Event::HandedOver => self.first(),
            Event::Inherited { predecessor } => Step::Do(Request::Watch { predecessor }),
            Event::Changed => {
                // Only here has all been well since the last repetition: a watch was set, and has done its work.
                self.failures = 0;
                self.woken = true;
                Step::Do(Request::List)
            }
            Event::WatchFailed(Failure::NoNode) => Step::Do(Request::List),
            Event::WatchFailed(failure) => self.failed(failure, AfterPause::Look),
            Event::Retry => match self.after_pause {
                AfterPause::Create => Step::Do(Request::Create),
                AfterPause::Parents => Step::Do(Request::MakeParents),
                AfterPause::Look => Step::Do(Request::List),
            },
        }
    }

    /// Leaves, whatever `step` came last and was not done any more. If a create is under way, its event has to be
    /// handed over first.
    pub(crate) fn leave(mut self, step: Step) -> Leave {
        let mut all = self.take_leave();
        match step {
            Step::Finish(Outcome::Granted { name, also, .. }) => {
                all.nodes.push(name);
                all.extend(also);
            }
            Step::Finish(Outcome::Ended { leave, .. }) => all.extend(leave),
            Step::Do(_) | Step::Pause { .. } => {}
        }
        all
    }

    fn take_leave(&mut self) -> Leave {
        let mut leave = Leave {
            nodes: std::mem::take(&mut self.surplus),
            unsettled: std::mem::take(&mut self.unsettled),
        };
        leave.nodes.extend(self.node.take().map(|node| node.name));
        leave
    }

    fn created(
        &mut self,
        id: String,
        create: Answer<Node>,
        list: Option<Answer<Listing>>,
        before: Option<Neighbour>,
        ours: &dyn Fn(&str) -> bool,
    ) -> Step {
        match create {
            Answer::Is(node) => {
                if let Some(earlier) = self.node.replace(node) {
                    // Cannot happen while `created` is the only place that creates; if it does, nothing is lost.
                    self.surplus.push(earlier.name);
                }
            }
            Answer::No(Failure::EpochOver) => return self.end(Ending::EpochOver),
            Answer::No(Failure::Refused) => return self.end(Ending::Refused),
            Answer::No(Failure::Unknown) => {
                self.unsettled.push(id);
                // A list of the same flight may already show that it did happen. If it does not, that means
                // nothing, and only a repetition can tell: its own create is the barrier (rule 6).
                return match list {
                    None => Step::Do(Request::List),
                    Some(Answer::Is(listing)) if self.finds_itself(&listing) => self.look(listing, ours),
                    Some(Answer::No(Failure::EpochOver)) => self.end(Ending::EpochOver),
                    Some(_) => self.pause(AfterPause::Create),
                };
            }
            Answer::No(Failure::NoNode) if !self.made_parents => {
                self.made_parents = true;
                return Step::Do(Request::MakeParents);
            }
            // The directory vanished between our making it and our create, or a stale parent is in the way.
            Answer::No(Failure::NoNode) => return self.pause(AfterPause::Parents),
            Answer::No(failure @ (Failure::NotNow | Failure::OverBudget)) => {
                return self.failed(failure, AfterPause::Create);
            }
        }
        match (list, before) {
            (Some(Answer::Is(listing)), _) => self.look(listing, ours),
            (Some(Answer::No(Failure::NoNode)), _) => self.own_node_deleted(),
            (Some(Answer::No(failure)), _) => self.failed(failure, AfterPause::Look),
            // A list is needed to find out about earlier creates, and to say for sure that the lock is not free.
            (None, Some(before)) if self.waits_for_sure() => Step::Do(Request::WaitFor { before }),
            (None, _) => Step::Do(Request::List),
        }
    }

    /// Whether nothing is left to be found out but whom to wait for.
    fn waits_for_sure(&self) -> bool {
        self.patience == Patience::Wait && self.unsettled.is_empty() && self.queued_as().is_some()
    }

    /// Whether a list shows a node of one of our unsettled creates, or that it is no use to go on.
    fn finds_itself(&self, listing: &Listing) -> bool {
        let Ok(queue) = listing else { return true };
        self.unsettled.iter().any(|id| queue.find(&self.naming.prefix(id, self.kind)).is_some())
    }

    /// Judges a list of the directory.
    fn look(&mut self, listing: Listing, ours: &dyn Fn(&str) -> bool) -> Step {
        let queue = match listing {
            Ok(queue) => queue,
            Err(unusable) => return self.end(Ending::Unusable(unusable)),
        };
        // Creates whose outcome was unknown and that turn out to have happened: the oldest of our nodes has the
        // best place, so it is the one that queues; all others are surplus.
        let (naming, kind) = (self.naming, self.kind);
        let mut found = Vec::new();
        self.unsettled.retain(|id| match queue.find(&naming.prefix(id, kind)) {
            Some(name) => {
                // Known from a list only: it has to prove by its owner that it is ours, and the token needs its czxid.
                found.push(Node { name: name.to_owned(), czxid: None });
                false
            }
            None => true,
        });
        if !found.is_empty() {
            found.extend(self.node.take());
            // One that the list lacks was deleted by somebody else, and is not the one to queue with.
            found.sort_by_key(|node| queue.rank(&node.name).unwrap_or(usize::MAX));
            self.node = Some(found.remove(0));
            self.surplus.extend(found.into_iter().map(|node| node.name));
        }
        let Some(node) = &self.node else {
            return self.pause(AfterPause::Create);
        };
        let Some(place) = queue.place(&node.name) else { return self.own_node_deleted() };
        if let Err(unusable) = queue.usable_by(&node.name) {
            return self.end(Ending::Unusable(unusable));
        }
        if std::mem::take(&mut self.woken) {
            // It outlasted a wait: the process that deletes our nodes does not do it each time.
            self.deleted = 0;
        }
        match place {
            _ if node.czxid.is_none() => Step::Do(Request::Inspect { name: node.name.clone() }),
            Place::First => self.first(),
            Place::Behind { .. } if self.patience == Patience::Try => {
                self.list = Some(queue);
                self.end(Ending::WouldBlock)
            }
            Place::Behind { predecessor } => {
                let own = match self.waits {
                    Waits::AtTheServers => None,
                    Waits::InMemory => queue.before(&node.name).enumerate().find(|(_, name)| ours(name)),
                };
                let request = match own {
                    Some((between, name)) => {
                        Request::WaitFor { before: Neighbour { name: name.into(), next: between == 0 } }
                    }
                    None => Request::Watch { predecessor: predecessor.to_owned() },
                };
                self.list = Some(queue);
                Step::Do(request)
            }
        }
    }

    /// Nobody is before us.
    fn first(&mut self) -> Step {
        match self.node.take() {
            Some(Node { name, czxid: Some(czxid) }) => {
                Step::Finish(Outcome::Granted { name, czxid, also: self.take_leave() })
            }
            Some(Node { name, czxid: None }) => {
                self.node = Some(Node { name: name.clone(), czxid: None });
                Step::Do(Request::Inspect { name })
            }
            None => self.pause(AfterPause::Create),
        }
    }

    /// Our node is gone although nobody of us deleted it. Start again at the end of the queue, as Curator does.
    fn own_node_deleted(&mut self) -> Step {
        self.woken = false;
        self.deleted = self.deleted.saturating_add(1);
        // A deletion of it costs nothing and makes sure.
        self.surplus.extend(self.node.take().map(|node| node.name));
        self.after_pause = AfterPause::Create;
        Step::Pause { failures: self.deleted - 1, why: Trouble::NodeDeleted }
    }

    fn failed(&mut self, failure: Failure, then: AfterPause) -> Step {
        match failure {
            Failure::EpochOver => self.end(Ending::EpochOver),
            Failure::Refused => self.end(Ending::Refused),
            Failure::OverBudget => self.end(Ending::OverBudget),
            Failure::NoNode | Failure::Unknown => self.pause(then),
            Failure::NotNow => self.pause_for(then, Trouble::NotNow),
        }
    }

    fn pause(&mut self, then: AfterPause) -> Step {
        self.pause_for(then, Trouble::Request)
    }

    fn pause_for(&mut self, then: AfterPause, why: Trouble) -> Step {
        self.after_pause = then;
        let failures = self.failures;
        self.failures = failures.saturating_add(1);
        Step::Pause { failures, why }
    }

    fn end(&mut self, why: Ending) -> Step {
        Step::Finish(Outcome::Ended { why, leave: self.take_leave() })
    }
}

#[cfg(test)]
mod tests {
    use super::super::name::{Dialect, Family};
    use super::*;

    const MUTEX: Naming = Naming { family: Family::Exclusive, dialect: Dialect::Curator };
    const A: &str = "aaaa";
    const B: &str = "bbbb";

    impl Contender {
        /// Where no node of the session can be waited for in memory.
        fn step(&mut self, event: Event) -> Step {
            self.on(event, &|_| false)
        }
    }

    fn name(id: &str, sequence: u32) -> String {
        format!("_c_{id}-lock-{sequence:010}")
    }

    fn node(id: &str, sequence: u32) -> Node {
        Node { name: name(id, sequence), czxid: Some(i64::from(sequence) + 100) }
    }

    fn created(id: &str, create: Answer<Node>, list: Answer<Listing>) -> Event {
        Event::Created { id: id.to_owned(), create, list: Some(list), before: None }
    }

    fn list(names: &[String]) -> Answer<Listing> {
        Answer::Is(Queue::read(names.to_vec(), MUTEX))
    }

    fn waiting() -> Contender {
        let (contender, first) = Contender::new(MUTEX, Kind::Exclusive, Patience::Wait, Waits::AtTheServers);
        assert_eq!(first, Step::Do(Request::Create));
        contender
    }

    fn granted(id: &str, sequence: u32) -> Step {
        let Node { name, czxid } = node(id, sequence);
        Step::Finish(Outcome::Granted { name, czxid: czxid.unwrap(), also: Leave::default() })
    }

    fn ended(why: Ending, nodes: &[String], unsettled: &[&str]) -> Step {
        let unsettled = unsettled.iter().map(ToString::to_string).collect();
        Step::Finish(Outcome::Ended { why, leave: Leave { nodes: nodes.to_vec(), unsettled } })
    }

    fn request_again(failures: u32) -> Step {
        Step::Pause { failures, why: Trouble::Request }
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
        assert_eq!(step, Step::Do(Request::Watch { predecessor: name(B, 2) }));
        assert_eq!(contender.step(Event::Changed), Step::Do(Request::List));
        assert_eq!(contender.step(Event::Listed(list(&[name(A, 3)]))), granted(A, 3));
    }

    fn in_memory(patience: Patience) -> Contender {
        Contender::new(MUTEX, Kind::Exclusive, patience, Waits::InMemory).0
    }

    fn wait_for(name: &str, next: bool) -> Step {
        Step::Do(Request::WaitFor { before: Neighbour { name: name.into(), next } })
    }

    #[test]
    fn the_nearest_node_of_the_session_is_waited_for_in_memory() {
        let all = [name(A, 5), name("theirs", 4), name("ours", 3), name("ours", 2), name("theirs", 1)];
        let ours = |name: &str| name.contains("ours");
        let mut contender = in_memory(Patience::Wait);
        let step = contender.on(created(A, Answer::Is(node(A, 5)), list(&all)), &ours);
        assert_eq!(step, wait_for(&name("ours", 3), false));
        assert_eq!(contender.on(Event::Changed, &ours), Step::Do(Request::List));
        let step = contender.on(Event::Listed(list(&[name(A, 5), name("ours", 2)])), &ours);
        assert_eq!(step, wait_for(&name("ours", 2), true));
        let (mut elsewhere, _) = Contender::new(MUTEX, Kind::Exclusive, Patience::Wait, Waits::AtTheServers);
        let step = elsewhere.on(created(A, Answer::Is(node(A, 5)), list(&all)), &ours);
        assert_eq!(step, Step::Do(Request::Watch { predecessor: name("theirs", 4) }));
    }

    #[test]
    fn a_lock_handed_over_is_ours_at_once() {
        let mut contender = in_memory(Patience::Wait);
        let all = [name(A, 3), name(B, 2), name("c", 1)];
        contender.on(created(A, Answer::Is(node(A, 3)), list(&all)), &|_| true);
        assert_eq!(contender.queued_as(), Some(&*name(A, 3)));
        // It held, so the one before it is gone.
        assert_eq!(contender.step(Event::HandedOver), granted(A, 3));
    }

    #[test]
    fn what_another_watched_is_watched_in_its_place() {
        let mut contender = in_memory(Patience::Wait);
        contender.on(created(A, Answer::Is(node(A, 3)), list(&[name(A, 3), name(B, 2)])), &|_| true);
        let predecessor = name("c", 1);
        let step = contender.step(Event::Inherited { predecessor: predecessor.clone() });
        assert_eq!(step, Step::Do(Request::Watch { predecessor }));
        assert_eq!(contender.step(Event::WatchFailed(Failure::NoNode)), Step::Do(Request::List));
    }

    fn created_behind(create: Answer<Node>, before: Option<&str>) -> Event {
        let before = before.map(|name| Neighbour { name: name.into(), next: true });
        Event::Created { id: A.to_owned(), create, list: None, before }
    }

    #[test]
    fn one_that_knows_its_predecessor_needs_no_list() {
        let b = name(B, 2);
        let step = in_memory(Patience::Wait).step(created_behind(Answer::Is(node(A, 3)), Some(&b)));
        assert_eq!(step, wait_for(&b, true));
        // Otherwise it does: not known; not to wait; not known to be ours; another create may have happened.
        let list = Step::Do(Request::List);
        assert_eq!(in_memory(Patience::Wait).step(created_behind(Answer::Is(node(A, 3)), None)), list);
        assert_eq!(in_memory(Patience::Try).step(created_behind(Answer::Is(node(A, 3)), Some(&b))), list);
        let unsaid = Node { name: name(A, 3), czxid: None };
        assert_eq!(in_memory(Patience::Wait).step(created_behind(Answer::Is(unsaid), Some(&b))), list);
        let mut contender = in_memory(Patience::Wait);
        assert_eq!(contender.step(created_behind(Answer::No(Failure::Unknown), None)), list);
        assert_eq!(contender.step(Event::Listed(Answer::No(Failure::NoNode))), request_again(0));
        assert_eq!(contender.step(Event::Retry), Step::Do(Request::Create));
        assert_eq!(contender.step(created_behind(Answer::Is(node(B, 3)), Some(&b))), list);
    }

    #[test]
    fn a_reader_does_not_wait_for_readers_and_looks_again_when_its_writer_goes() {
        let naming = Naming { family: Family::ReadWrite, dialect: Dialect::Curator };
        let listed =
            |names: &[&str]| Answer::Is(Queue::read(names.iter().map(ToString::to_string).collect(), naming));
        let own = Node { name: "_c_aaaa-__READ__0000000003".to_owned(), czxid: Some(103) };
        let (mut contender, _) = Contender::new(naming, Kind::Shared, Patience::Wait, Waits::AtTheServers);
        let all = ["r-__READ__0000000001", "w-__WRIT__0000000002", &own.name];
        let step = contender.step(created(A, Answer::Is(own.clone()), listed(&all)));
        assert_eq!(step, Step::Do(Request::Watch { predecessor: "w-__WRIT__0000000002".to_owned() }));
        // The reader before may have become a writer meanwhile.
        assert_eq!(contender.step(Event::Changed), Step::Do(Request::List));
        let upgraded = "r-__WRIT__0000000001";
        let step = contender.step(Event::Listed(listed(&[upgraded, &own.name])));
        assert_eq!(step, Step::Do(Request::Watch { predecessor: upgraded.to_owned() }));
        assert_eq!(contender.step(Event::Changed), Step::Do(Request::List));
        let step = contender.step(Event::Listed(listed(&["r-__READ__0000000001", &own.name])));
        let granted = Outcome::Granted { name: own.name.clone(), czxid: 103, also: Leave::default() };
        assert_eq!(step, Step::Finish(granted));
    }

    #[test]
    fn a_session_that_cannot_watch_more_ends_the_wait() {
        let mut contender = waiting();
        contender.step(created(A, Answer::Is(node(A, 3)), list(&[name(A, 3), name(B, 2)])));
        let step = contender.step(Event::WatchFailed(Failure::OverBudget));
        assert_eq!(step, ended(Ending::OverBudget, &[name(A, 3)], &[]));
    }

    #[test]
    fn one_of_several_before_us_gone_means_looking_again() {
        let mut contender = waiting();
        let all = [name(A, 3), name(B, 2), name("c", 1)];
        assert_eq!(
            contender.step(created(A, Answer::Is(node(A, 3)), list(&all))),
            Step::Do(Request::Watch { predecessor: name(B, 2) })
        );
        // It gave up; the holder is still there.
        assert_eq!(contender.step(Event::Changed), Step::Do(Request::List));
        let left = [name(A, 3), name("c", 1)];
        assert_eq!(
            contender.step(Event::Listed(list(&left))),
            Step::Do(Request::Watch { predecessor: name("c", 1) })
        );
        assert_eq!(
            contender.step(Event::Changed),
            Step::Do(Request::List),
            "a change of its data is no deletion"
        );
        assert_eq!(
            contender.step(Event::Listed(list(&left))),
            Step::Do(Request::Watch { predecessor: name("c", 1) })
        );
        assert_eq!(contender.step(Event::Changed), Step::Do(Request::List));
        assert_eq!(contender.step(Event::Listed(list(&[name(A, 3)]))), granted(A, 3));
    }

    /// Review finding 13: the create's reply is lost, the list comes over the new connection and shows nobody.
    #[test]
    fn a_list_that_lacks_our_node_grants_nothing() {
        let mut contender = waiting();
        let step = contender.step(created(A, Answer::No(Failure::Unknown), list(&[])));
        assert_eq!(step, request_again(0));
        assert_eq!(contender.step(Event::Retry), Step::Do(Request::Create));
        // The repetition is the barrier: its list shows whether the first create happened.
        let step = contender.step(created(B, Answer::Is(node(B, 8)), list(&[name(B, 8)])));
        let also = Leave { nodes: Vec::new(), unsettled: vec![A.to_owned()] };
        assert_eq!(step, Step::Finish(Outcome::Granted { name: name(B, 8), czxid: 108, also }));
    }

    #[test]
    fn a_lost_reply_is_found_in_the_list_and_checked_before_it_counts() {
        let mut contender = waiting();
        let step = contender.step(created(A, Answer::No(Failure::Unknown), list(&[name(A, 4)])));
        assert_eq!(step, Step::Do(Request::Inspect { name: name(A, 4) }));
        assert_eq!(contender.step(Event::Inspected(Answer::Is(node(A, 4)))), Step::Do(Request::List));
        assert_eq!(contender.step(Event::Listed(list(&[name(A, 4)]))), granted(A, 4));
    }

    #[test]
    fn of_two_nodes_of_one_attempt_the_older_queues() {
        let mut contender = waiting();
        assert_eq!(
            contender.step(created(A, Answer::No(Failure::Unknown), Answer::No(Failure::Unknown))),
            request_again(0)
        );
        assert_eq!(contender.step(Event::Retry), Step::Do(Request::Create));
        let both = [name(A, 4), name(B, 5)];
        let step = contender.step(created(B, Answer::Is(node(B, 5)), list(&both)));
        assert_eq!(step, Step::Do(Request::Inspect { name: name(A, 4) }));
        assert_eq!(contender.step(Event::Inspected(Answer::Is(node(A, 4)))), Step::Do(Request::List));
        let also = Leave { nodes: vec![name(B, 5)], unsettled: Vec::new() };
        assert_eq!(
            contender.step(Event::Listed(list(&both))),
            Step::Finish(Outcome::Granted { name: name(A, 4), czxid: 104, also })
        );
    }

    #[test]
    fn a_node_without_a_czxid_is_inspected_before_it_makes_a_token() {
        let mut contender = waiting();
        let unsaid = Node { name: name(A, 1), czxid: None };
        let step = contender.step(created(A, Answer::Is(unsaid), list(&[name(A, 1)])));
        assert_eq!(step, Step::Do(Request::Inspect { name: name(A, 1) }));
    }

    #[test]
    fn a_created_node_with_a_lost_list_is_listed_again() {
        let mut contender = waiting();
        let step = contender.step(created(A, Answer::Is(node(A, 1)), Answer::No(Failure::Unknown)));
        assert_eq!(step, request_again(0));
        assert_eq!(contender.step(Event::Retry), Step::Do(Request::List));
        assert_eq!(contender.step(Event::Listed(Answer::No(Failure::Unknown))), request_again(1));
    }

    #[test]
    fn parents_are_made_once_at_once_and_then_by_the_policy() {
        let mut contender = waiting();
        let no = || created(A, Answer::No(Failure::NoNode), Answer::No(Failure::NoNode));
        assert_eq!(contender.step(no()), Step::Do(Request::MakeParents));
        assert_eq!(contender.step(Event::ParentsMade(Answer::Is(()))), Step::Do(Request::Create));
        // A container was reaped in between.
        assert_eq!(contender.step(no()), request_again(0));
        assert_eq!(contender.step(Event::Retry), Step::Do(Request::MakeParents));
        assert_eq!(
            contender.step(Event::ParentsMade(Answer::No(Failure::Refused))),
            ended(Ending::Refused, &[], &[])
        );
    }

    #[test]
    fn an_own_node_deleted_by_hand_queues_again_at_the_end() {
        let mut contender = waiting();
        contender.step(created(A, Answer::Is(node(A, 3)), list(&[name(A, 3), name(B, 2), name("c", 1)])));
        assert_eq!(contender.step(Event::Changed), Step::Do(Request::List));
        let step = contender.step(Event::Listed(list(&[name("c", 1)])));
        assert_eq!(step, Step::Pause { failures: 0, why: Trouble::NodeDeleted });
        assert_eq!(contender.step(Event::Retry), Step::Do(Request::Create));
        assert_eq!(contender.times_deleted(), 1);
        // Should it exist after all, it goes.
        assert_eq!(contender.take_surplus(), [name(A, 3)]);
    }

    /// A wait may be long, and its node be deleted now and then.
    #[test]
    fn deletions_by_hand_are_forgotten_after_a_turn_that_went_well() {
        let mut contender = waiting();
        let queue = |contender: &mut Contender, n| {
            let all = [name(A, n), name(B, 2), name("c", 1)];
            let watch = Step::Do(Request::Watch { predecessor: name(B, 2) });
            assert_eq!(contender.step(created(A, Answer::Is(node(A, n)), list(&all))), watch);
            assert_eq!(contender.step(Event::Changed), Step::Do(Request::List));
            all
        };
        let robbed = |contender: &mut Contender, failures| {
            let step = contender.step(Event::Listed(list(&[name(B, 2)])));
            assert_eq!(step, Step::Pause { failures, why: Trouble::NodeDeleted });
            assert_eq!(contender.step(Event::Retry), Step::Do(Request::Create));
        };
        queue(&mut contender, 3);
        robbed(&mut contender, 0);
        // Each time at once: the retry policy ends it.
        queue(&mut contender, 4);
        robbed(&mut contender, 1);
        let all = queue(&mut contender, 5);
        let step = contender.step(Event::Listed(list(&all)));
        assert_eq!(step, Step::Do(Request::Watch { predecessor: name(B, 2) }));
        assert_eq!(contender.step(Event::Changed), Step::Do(Request::List));
        robbed(&mut contender, 0);
        assert_eq!(contender.times_deleted(), 1);
    }

    #[test]
    fn a_try_does_not_wait_and_takes_its_node_along() {
        let (mut contender, _) = Contender::new(MUTEX, Kind::Exclusive, Patience::Try, Waits::AtTheServers);
        let step = contender.step(created(A, Answer::Is(node(A, 3)), list(&[name(A, 3), name(B, 2)])));
        assert_eq!(step, ended(Ending::WouldBlock, &[name(A, 3)], &[]));
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
        assert_eq!(granted, Leave { nodes: vec![name(A, 3)], unsettled: Vec::new() });
        let waiting = leave(created(A, Answer::Is(node(A, 3)), list(&[name(A, 3), name(B, 2)])));
        assert_eq!(waiting, Leave { nodes: vec![name(A, 3)], unsettled: Vec::new() });
        let unknown = leave(created(A, Answer::No(Failure::Unknown), list(&[])));
        assert_eq!(unknown, Leave { nodes: Vec::new(), unsettled: vec![A.to_owned()] });
        let refused = leave(created(A, Answer::No(Failure::NoNode), Answer::No(Failure::NoNode)));
        assert_eq!(refused, Leave::default());
        let over = leave(created(A, Answer::No(Failure::EpochOver), Answer::No(Failure::EpochOver)));
        assert_eq!(over, Leave::default());
    }

    /// A watch that cannot be set is counted although every list in between succeeds.
    #[test]
    fn a_watch_that_keeps_failing_comes_to_an_end() {
        let mut contender = waiting();
        let both = [name(A, 3), name(B, 2)];
        let watch = || Step::Do(Request::Watch { predecessor: name(B, 2) });
        assert_eq!(contender.step(created(A, Answer::Is(node(A, 3)), list(&both))), watch());
        for failures in 0..3 {
            let why = Trouble::NotNow;
            assert_eq!(contender.step(Event::WatchFailed(Failure::NotNow)), Step::Pause { failures, why });
            assert_eq!(contender.step(Event::Retry), Step::Do(Request::List));
            assert_eq!(contender.step(Event::Listed(list(&both))), watch());
        }
        // One that was set and fired: all has been well.
        assert_eq!(contender.step(Event::Changed), Step::Do(Request::List));
        assert_eq!(contender.step(Event::Listed(Answer::No(Failure::Unknown))), request_again(0));
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
            assert_eq!(step, ended(Ending::Unusable(why), &[name(A, 3)], &[]));
        }
    }

    #[test]
    fn a_contender_of_another_order_that_came_later_ends_no_wait() {
        let mut contender = waiting();
        contender.step(created(A, Answer::Is(node(A, 3)), list(&[name(A, 3), name(B, 2), name("c", 1)])));
        assert_eq!(contender.step(Event::Changed), Step::Do(Request::List));
        let later = "x-__READ__0000000004".to_owned();
        let step = contender.step(Event::Listed(list(&[name(A, 3), later.clone(), name("c", 1)])));
        assert_eq!(step, Step::Do(Request::Watch { predecessor: name("c", 1) }));
        assert_eq!(contender.step(Event::Changed), Step::Do(Request::List));
        assert_eq!(contender.step(Event::Listed(list(&[name(A, 3), later]))), granted(A, 3));
    }

    #[test]
    fn the_end_of_the_session_ends_it_everywhere() {
        let over = || Failure::EpochOver;
        let mut contender = waiting();
        assert_eq!(
            contender.step(created(A, Answer::No(over()), Answer::No(over()))),
            ended(Ending::EpochOver, &[], &[])
        );
        let mut contender = waiting();
        contender.step(created(A, Answer::Is(node(A, 3)), list(&[name(A, 3), name(B, 2)])));
        assert_eq!(contender.step(Event::WatchFailed(over())), ended(Ending::EpochOver, &[name(A, 3)], &[]));
    }
}
