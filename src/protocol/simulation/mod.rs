//! Runs the real decisions of attempts, downgrades and the local queue against a model of a lock
//! directory, with lost replies, late creates, cancellations, expired sessions, nodes and
//! directories deleted by other processes and made again, foreign children, watches that fire or
//! are interrupted, and refused deletions.
//!
//! The [choices](choices) of a schedule are [drawn](schedules), or all strings of them that deviate
//! from "all goes well" at few points are [run](enumeration). Two clients run several attempts
//! each, of mutexes and fair locks on one path or of read-write locks. Each client has a real
//! [`LocalQueue`]. Sending a request, carrying it out and receiving the answer are separate steps.
//! In every schedule,
//!
//! - no contender holds the lock together with a writer (docs/protocol.md#grant), also without a
//!   list (docs/protocol.md#succession);
//! - every attempt ends: it is granted the lock, or leaves;
//! - in each session the attempts of a client create in the order of arrival
//!   (docs/protocol.md#arrival-order);
//! - a list is returned only to attempts that asked before it was sent
//!   (docs/protocol.md#shared-lists);
//! - each waker gets one notice;
//! - every node is deleted in the end, unless the servers refuse it.

mod attempt;
pub(super) mod choices;
mod cleanup;
mod directory;
mod enumeration;
mod faults;
mod hold;
mod schedules;
mod shared_reads;
mod without_list;

use std::collections::{BTreeMap, BTreeSet};

use self::choices::Choices;
use self::directory::Directory;
use self::without_list::Knowledge;
use crate::protocol::acquire::{AcquireStep, Acquiring, IfBusy, OwnNode};
use crate::protocol::downgrade::Downgrade;
use crate::protocol::failure::{Answer, FailureKind};
use crate::protocol::local_queue::{LocalQueue, Notice, Outbox};
use crate::protocol::node_name::{Dialect, Family, Kind, Naming};
use crate::protocol::numbers::SessionNumber;
use crate::protocol::queue::Listing;

enum Doing {
    Idle,
    /// Begins in the session.
    Begins,
    /// Waits for its turn to create.
    ForTurn(Acquiring, usize),
    /// Waits for a list, perhaps together with the outcome of its create.
    ForList(Acquiring, usize, Option<Creation>),
    Queued(Acquiring, AcquireStep),
    /// The watch on the node is set.
    Watching(Acquiring, String),
    /// Waits in memory, by the question with this number.
    Waiting(Acquiring, usize),
    Holding {
        name: String,
    },
    /// Holds by `name` until the transaction makes it `new`.
    Downgrading {
        name: String,
        new: String,
        downgrade: Downgrade,
    },
}

/// The answer to a create.
struct Creation {
    id: String,
    create: Answer<OwnNode>,
}

/// A caller that acquires the lock again and again.
struct Caller {
    client: usize,
    /// The behaviour of the attempt; `None` if it is drawn.
    role: Option<Role>,
    doing: Doing,
    kind: Kind,
    if_busy: IfBusy,
    /// Whether it uses a fair lock.
    uses_fair_lock: bool,
    /// The number of its attempt.
    number: u64,
    /// The beginning of the name of a create that was not answered, and that the server may still
    /// carry out.
    late: Option<String>,
    ids: u32,
    /// Whether another process has deleted one of its nodes: a grant by a node that does not exist
    /// is no error then.
    deleted_by_hand: bool,
    /// The last notice, and the question that it answers.
    notice: Option<(usize, Notice)>,
    listed: Option<(usize, Answer<Listing>)>,
    /// When the servers last showed that its node exists: by its create, a list or a hand-over.
    seen: usize,
}

/// The behaviour of a caller in all schedules.
#[derive(Clone, Copy, Debug)]
struct Role {
    client: usize,
    kind: Kind,
    if_busy: IfBusy,
    uses_fair_lock: bool,
    /// Whether it downgrades its first hold, and how many attempts it makes.
    downgrades: bool,
    attempts: u32,
    /// Whether it keeps the lock until all others wait.
    holds_long: bool,
}

impl Caller {
    fn new(client: usize, role: Option<Role>) -> Self {
        Self {
            client,
            role,
            doing: Doing::Idle,
            kind: Kind::Exclusive,
            if_busy: IfBusy::Wait,
            uses_fair_lock: false,
            number: 0,
            late: None,
            ids: 0,
            deleted_by_hand: false,
            notice: None,
            listed: None,
            seen: 0,
        }
    }
}

/// A caller and the number of its question.
type Waker = (usize, usize);
/// A caller, the number of its question, and when it asked.
type ListWaker = (usize, usize, usize);

/// The state that the callers of a client share.
struct ModelClient {
    queue: LocalQueue<Waker, ListWaker>,
    session: SessionNumber,
    /// The attempts that have asked to create, and the session in which each has created, or
    /// stepped aside.
    contending: BTreeMap<u64, SessionNumber>,
    /// The tasks that send lists, one for each session.
    listers: Vec<Lister>,
    without_list: Knowledge,
}

/// Sends lists in a session, one after the other.
struct Lister {
    session: SessionNumber,
    /// The receivers of the list under way, its contents, and when it was sent.
    under_way: Option<(Vec<ListWaker>, Answer<Listing>, usize)>,
}

const CLIENTS: usize = 2;

impl ModelClient {
    fn new() -> Self {
        Self {
            queue: LocalQueue::default(),
            session: SessionNumber::FIRST,
            contending: BTreeMap::new(),
            listers: Vec::new(),
            without_list: Knowledge::default(),
        }
    }
}

/// A node that the cleanup must delete.
struct PendingDeletion {
    id: u64,
    client: usize,
    session: SessionNumber,
    name: String,
    at: DeletionStage,
}

#[derive(Clone)]
enum DeletionStage {
    /// No request is sent yet. `hand_over` is whether the lock may be handed over.
    New {
        hand_over: bool,
    },
    /// A transaction, on the condition that this node exists, is under way.
    HandingOver {
        to: String,
    },
    /// A deletion is under way.
    Plain,
    /// The servers have deleted it, but the client has no answer yet.
    Deleted,
    HandedOver {
        to: String,
        at: usize,
    },
    /// The node did not exist, or its deletion is refused.
    Unclear,
}

struct World<'a> {
    directory: Directory,
    callers: Vec<Caller>,
    clients: Vec<ModelClient>,
    deletions: Vec<PendingDeletion>,
    attempts: u64,
    /// How many deletions there were.
    deleted: u64,
    questions: usize,
    /// The questions that have been answered.
    answered: BTreeSet<usize>,
    /// Whether few contend, so that each is often done before another comes.
    few: bool,
    choices: &'a mut Choices,
}

impl<'a> World<'a> {
    fn new(family: Family, callers: Vec<Caller>, choices: &'a mut Choices) -> Self {
        Self {
            directory: Directory::new(Naming {
                family,
                dialect: Dialect::Curator,
            }),
            callers,
            clients: (0..CLIENTS).map(|_| ModelClient::new()).collect(),
            deletions: Vec::new(),
            attempts: 0,
            deleted: 0,
            questions: 0,
            answered: BTreeSet::new(),
            few: false,
            choices,
        }
    }

    /// Runs one decision of the queue of a client, and delivers its notices.
    fn queue<T>(
        &mut self,
        c: usize,
        change: impl FnOnce(&mut LocalQueue<Waker, ListWaker>, SessionNumber) -> T,
    ) -> T {
        let client = &mut self.clients[c];
        let result = change(&mut client.queue, client.session);
        // As in the engine, the notices are taken with the decision and sent after it, when nothing
        // is locked.
        let Outbox { notices, no_list } = client.queue.take_outbox();
        for ((i, question), notice) in notices {
            assert!(
                self.answered.insert(question),
                "expected one notice for each waker"
            );
            // An attempt that has left, or has asked once more, does not receive the notice, as
            // after the drop of a channel's receiver.
            let caller = &mut self.callers[i];
            if matches!(caller.doing, Doing::ForTurn(_, asked) | Doing::Waiting(_, asked) if asked == question)
            {
                caller.notice = Some((question, notice));
            }
        }
        // The task that sends the lists has ended, so its receivers continue as after a lost
        // answer.
        for waker in no_list {
            self.listed(waker, Answer::no(FailureKind::Unknown));
        }
        result
    }

    /// Delivers a list, or that there is none. Returns whether the caller still waits for it.
    fn listed(&mut self, (i, question, _): ListWaker, list: Answer<Listing>) -> bool {
        assert!(self.answered.insert(question), "listed twice");
        // A receiver that has left does not count as having seen the list.
        let waits =
            matches!(self.callers[i].doing, Doing::ForList(_, asked, _) if asked == question);
        if waits {
            self.callers[i].listed = Some((question, list));
        }
        waits
    }

    /// Returns the callers of a client.
    fn callers_of(&self, c: usize) -> Vec<usize> {
        (0..self.callers.len())
            .filter(|i| self.callers[*i].client == c)
            .collect()
    }

    /// Returns whether the contenders are mutexes and fair locks, and no readers.
    fn is_exclusive(&self) -> bool {
        self.directory.naming.family == Family::Exclusive
    }

    fn question(&mut self) -> usize {
        self.questions += 1;
        self.questions
    }

    fn owner(&self, i: usize) -> (usize, u64) {
        (i, self.callers[i].number)
    }

    fn new_id(&mut self, i: usize) -> String {
        self.callers[i].ids += 1;
        format!("{i}x{}", self.callers[i].ids)
    }

    /// Returns how many readers and writers hold the lock by nodes that exist.
    fn inside(&self) -> (usize, usize) {
        let kind = |caller: &Caller| match &caller.doing {
            // If another process has deleted the node, the next contender may hold the lock, too
            // (docs/protocol.md#node-deleted-by-hand).
            Doing::Holding { name } if self.directory.nodes.contains_key(name) => Some(caller.kind),
            Doing::Downgrading { name, .. } if self.directory.nodes.contains_key(name) => {
                Some(Kind::Exclusive)
            }
            // The transaction may have been carried out without an answer.
            Doing::Downgrading { new, .. } if self.directory.nodes.contains_key(new) => {
                Some(Kind::Shared)
            }
            _ => None,
        };
        let of = |wanted| {
            self.callers
                .iter()
                .filter(|caller| kind(caller) == Some(wanted))
                .count()
        };
        (of(Kind::Shared), of(Kind::Exclusive))
    }

    fn check(&self) {
        let (readers, writers) = self.inside();
        assert!(
            writers == 0 || writers == 1 && readers == 0,
            "{readers} readers, {writers} writers"
        );
    }

    /// Checks that all attempts have ended, and that nothing is left of them.
    fn check_end(&self) {
        // By now all faults are over, and every attempt that was ready has made its steps. So an
        // attempt that still waits has missed a wake-up.
        let busy = self
            .callers
            .iter()
            .filter(|caller| !matches!(caller.doing, Doing::Idle))
            .count();
        assert_eq!(busy, 0, "still waiting without a contender");
        assert!(
            self.directory.nodes.is_empty(),
            "left behind: {:?}",
            self.directory.nodes
        );
        // A name that is left in the queue would be waited for by a later attempt.
        for client in &self.clients {
            assert!(
                client.queue.is_empty(client.session),
                "left behind: {:?}",
                client.queue
            );
        }
    }
}

/// Returns a copy of an answer for one of several receivers. `Answer` itself is not `Clone`.
fn copy(list: &Answer<Listing>) -> Answer<Listing> {
    match list {
        Answer::Is(listing) => Answer::Is(listing.clone()),
        Answer::No(failure) => Answer::No(failure.clone()),
    }
}
