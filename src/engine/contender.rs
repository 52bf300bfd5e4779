//! One contender's life in one session, as a state machine. Pure: no client, clock, task or random number.
//!
//! The [driver](super::driver) does what a [`Step`] says and hands back the [`Event`] it led to, one at a time, until
//! the step is [`Step::Finish`]. Every decision about unknown outcomes is made here.
//!
//! # Invariants
//! 1. A grant needs a list that contains our own node with nobody before it, or the deletion of the one node that
//!    stood between. A list without our node grants nothing and proves nothing: the create may still be under way
//!    (design rule 1, review finding 13).
//! 2. Only a definite answer of the server says that a create did not happen. Everything else leaves an
//!    *unsettled* id: the node may exist, or may come to exist later (rule 5).
//! 3. An id belongs to one create request. A repetition has an id of its own, so a late commit of the first can be
//!    told from the second (rule 6, finding 8).
//! 4. Whatever way it ends, the outcome names every node that may be left: what is known to exist by name, what may
//!    exist by id ([`Leave`]). Nobody but the driver's caller may keep one of them.
//! 5. Each repetition is counted against the retry policy, except those that an answer from a peer asked for.

use super::name::{Family, prefix};
use super::queue::{Place, Queue, Unusable};

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Create a node with a fresh id and list the directory, both sent before either is answered.
    CreateAndList,
    /// Create the directory and those above it.
    MakeParents,
    /// List the directory.
    List,
    /// Read the Stat of our own node `name`, which we know only from a list.
    Inspect { name: String },
    /// Watch `predecessor` and wait until it changes.
    Watch { predecessor: String },
    /// Ask the retry policy for repetition number `failures` (from 0) and pause as it says; then `Retry`.
    Pause { failures: u32, why: Trouble },
    /// The end.
    Finish(Outcome),
}

/// Why a repetition is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// A request failed.
    Request,
    /// Somebody deleted our node.
    NodeDeleted,
}

/// What came of a step.
#[derive(Debug)]
pub(crate) enum Event {
    /// Of [`Step::CreateAndList`]: the id used, and the two answers, whose fates are independent.
    Created {
        id: String,
        create: Answer<Node>,
        list: Answer<Vec<String>>,
    },
    /// Of [`Step::MakeParents`].
    ParentsMade(Answer<()>),
    /// Of [`Step::List`].
    Listed(Answer<Vec<String>>),
    /// Of [`Step::Inspect`].
    Inspected(Answer<Node>),
    /// Of [`Step::Watch`]: the predecessor was deleted while watched.
    Deleted,
    /// Of [`Step::Watch`]: it was not there any more, or something else happened to it: look again.
    Changed,
    /// Of [`Step::Watch`]: the watch could not be set.
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
    /// It was asked to leave while the create was under way.
    Left,
    /// The last request was refused for good; the driver knows with which words.
    Refused,
    /// This node in the directory queues in another order.
    OtherOrder(String),
    /// The sequence numbers have wrapped.
    Exhausted,
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

/// Whether a contender queues or only asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    Wait,
    Try,
}

/// The state machine; see the module.
#[derive(Debug)]
pub(crate) struct Contender {
    family: Family,
    patience: Patience,
    /// The node that queues for us, once known.
    node: Option<Node>,
    /// Creates whose outcome is unknown, oldest first.
    unsettled: Vec<String>,
    /// Nodes of ours that queue for nobody.
    surplus: Vec<String>,
    /// The predecessor being watched was the only node before ours.
    sole: bool,
    /// What to do after a pause.
    after_pause: AfterPause,
    /// Repetitions in a row that brought nothing.
    failures: u32,
    /// How often somebody else deleted our node.
    deleted: u32,
    leaving: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterPause {
    Create,
    Parents,
    Look,
}

impl Contender {
    /// A contender and its first step.
    pub(crate) fn new(family: Family, patience: Patience) -> (Self, Step) {
        let contender = Self {
            family,
            patience,
            node: None,
            unsettled: Vec::new(),
            surplus: Vec::new(),
            sole: false,
            after_pause: AfterPause::Create,
            failures: 0,
            deleted: 0,
            leaving: false,
        };
        (contender, Step::CreateAndList)
    }

    /// How often somebody else deleted our node.
    pub(crate) fn times_deleted(&self) -> u32 {
        self.deleted
    }

    /// Takes what came of the last step and answers with the next.
    pub(crate) fn on(&mut self, event: Event) -> Step {
        match event {
            Event::Created { id, create, list } => self.created(id, create, list),
            Event::ParentsMade(Answer::Is(())) => Step::CreateAndList,
            // Somebody removed a directory that we had just made, or found: containers come and go.
            Event::ParentsMade(Answer::No(Failure::NoNode)) => self.pause(AfterPause::Parents),
            Event::ParentsMade(Answer::No(failure)) => self.failed(failure, AfterPause::Parents),
            Event::Listed(Answer::Is(children)) => self.look(&children),
            // The directory can be gone only if our node went first.
            Event::Listed(Answer::No(Failure::NoNode)) => self.own_node_deleted(),
            Event::Listed(Answer::No(failure)) => self.failed(failure, AfterPause::Look),
            Event::Inspected(Answer::Is(node)) => {
                self.node = Some(node);
                Step::List
            }
            Event::Inspected(Answer::No(Failure::NoNode)) => self.own_node_deleted(),
            Event::Inspected(Answer::No(failure)) => self.failed(failure, AfterPause::Look),
            Event::Deleted if self.sole => self.first(),
            Event::Deleted | Event::Changed => Step::List,
            Event::WatchFailed(Failure::NoNode) => Step::List,
            Event::WatchFailed(failure) => self.failed(failure, AfterPause::Look),
            Event::Retry => match self.after_pause {
                AfterPause::Create => Step::CreateAndList,
                AfterPause::Parents => Step::MakeParents,
                AfterPause::Look => Step::List,
            },
        }
    }

    /// Asks the contender to leave while [`Step::CreateAndList`] is under way: its event is still owed, and will be
    /// answered by the end.
    pub(crate) fn leave_after_create(&mut self) {
        self.leaving = true;
    }

    /// Leaves during any other step, which may be dropped.
    pub(crate) fn leave_now(&mut self) -> Leave {
        let mut leave = Leave {
            nodes: std::mem::take(&mut self.surplus),
            unsettled: std::mem::take(&mut self.unsettled),
        };
        leave.nodes.extend(self.node.take().map(|node| node.name));
        leave
    }

    fn created(&mut self, id: String, create: Answer<Node>, list: Answer<Vec<String>>) -> Step {
        match create {
            Answer::Is(node) => {
                if let Some(earlier) = self.node.replace(node) {
                    // Cannot happen while `created` is the only place that creates; if it does, nothing is lost.
                    self.surplus.push(earlier.name);
                }
                if self.leaving {
                    return self.end(Ending::Left);
                }
            }
            Answer::No(Failure::EpochOver) => return self.end(Ending::EpochOver),
            Answer::No(Failure::Refused) => return self.end(Ending::Refused),
            Answer::No(Failure::Unknown) => {
                self.unsettled.push(id);
                if self.leaving {
                    return self.end(Ending::Left);
                }
                // A list of the same flight may already show that it did happen. If it does not, that means
                // nothing, and only a repetition can tell: its own create is the barrier (rule 6).
                return match list {
                    Answer::Is(children) if self.finds_itself(&children) => self.look(&children),
                    Answer::No(Failure::EpochOver) => self.end(Ending::EpochOver),
                    _ => self.pause(AfterPause::Create),
                };
            }
            Answer::No(_) if self.leaving => return self.end(Ending::Left),
            Answer::No(Failure::NoNode) if self.failures == 0 => {
                self.failures = 1;
                return Step::MakeParents;
            }
            // The directory vanished between our making it and our create, or a stale parent is in the way.
            Answer::No(Failure::NoNode) => return self.pause(AfterPause::Parents),
            Answer::No(Failure::NotNow) => return self.pause(AfterPause::Create),
        }
        match list {
            Answer::Is(children) => self.look(&children),
            Answer::No(Failure::NoNode) => self.own_node_deleted(),
            Answer::No(failure) => self.failed(failure, AfterPause::Look),
        }
    }

    /// Whether a list shows a node of one of our unsettled creates.
    fn finds_itself(&self, children: &[String]) -> bool {
        self.unsettled
            .iter()
            .any(|id| find(children, id, self.family).is_some())
    }

    /// Judges a list of the directory.
    fn look(&mut self, children: &[String]) -> Step {
        // Creates whose outcome was unknown and that turn out to have happened: the oldest node has the best
        // place, so it is the one that queues; all others are surplus.
        let mut found = Vec::new();
        let family = self.family;
        self.unsettled.retain(|id| match find(children, id, family) {
            Some(name) => {
                found.push(name.to_owned());
                false
            }
            None => true,
        });
        if let Some(oldest) = (!found.is_empty()).then(|| found.remove(0)) {
            self.surplus.append(&mut found);
            self.surplus.extend(self.node.take().map(|node| node.name));
            // Known from a list only: it has to be ours by its owner, and the token needs its czxid.
            self.node = Some(Node {
                name: oldest,
                czxid: None,
            });
        }
        let Some(node) = &self.node else {
            return self.pause(AfterPause::Create);
        };
        let queue = match Queue::read(children, self.family) {
            Ok(queue) => queue,
            Err(Unusable::OtherOrder(name)) => {
                let name = name.to_owned();
                return self.end(Ending::OtherOrder(name));
            }
            Err(Unusable::Exhausted) => return self.end(Ending::Exhausted),
        };
        match queue.place(&node.name) {
            None => self.own_node_deleted(),
            Some(_) if node.czxid.is_none() => Step::Inspect {
                name: node.name.clone(),
            },
            Some(Place::First) => self.first(),
            Some(Place::Behind { .. }) if self.patience == Patience::Try => self.end(Ending::WouldBlock),
            Some(Place::Behind { predecessor, sole }) => {
                self.failures = 0;
                // Of our own surplus nodes nobody else tells us that they go; they are not "the only one before".
                self.sole = sole && !self.surplus.iter().any(|name| name == predecessor);
                Step::Watch {
                    predecessor: predecessor.to_owned(),
                }
            }
        }
    }

    /// Nobody is before us.
    fn first(&mut self) -> Step {
        match self.node.take() {
            Some(Node {
                name,
                czxid: Some(czxid),
            }) => Step::Finish(Outcome::Granted {
                name,
                czxid,
                also: self.leave_now(),
            }),
            Some(Node { name, czxid: None }) => {
                self.node = Some(Node {
                    name: name.clone(),
                    czxid: None,
                });
                Step::Inspect { name }
            }
            None => self.pause(AfterPause::Create),
        }
    }

    /// Our node is gone although nobody of us deleted it. Start again at the end of the queue, as Curator does.
    fn own_node_deleted(&mut self) -> Step {
        self.deleted = self.deleted.saturating_add(1);
        // A deletion of it costs nothing and makes sure.
        self.surplus.extend(self.node.take().map(|node| node.name));
        self.after_pause = AfterPause::Create;
        Step::Pause {
            failures: self.deleted - 1,
            why: Trouble::NodeDeleted,
        }
    }

    fn failed(&mut self, failure: Failure, then: AfterPause) -> Step {
        match failure {
            Failure::EpochOver => self.end(Ending::EpochOver),
            Failure::Refused => self.end(Ending::Refused),
            Failure::NoNode | Failure::NotNow | Failure::Unknown => self.pause(then),
        }
    }

    fn pause(&mut self, then: AfterPause) -> Step {
        self.after_pause = then;
        let failures = self.failures;
        self.failures = failures.saturating_add(1);
        Step::Pause {
            failures,
            why: Trouble::Request,
        }
    }

    fn end(&mut self, why: Ending) -> Step {
        Step::Finish(Outcome::Ended {
            why,
            leave: self.leave_now(),
        })
    }
}

fn find<'a>(children: &'a [String], id: &str, family: Family) -> Option<&'a str> {
    let prefix = prefix(id, family);
    children
        .iter()
        .map(String::as_str)
        .find(|name| name.starts_with(&prefix))
}
