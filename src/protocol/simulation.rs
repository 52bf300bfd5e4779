//! Runs the real decisions of attempts, conversions and the local queue against a model of a lock directory,
//! under random schedules with lost replies, late creates, cancellations, expired sessions, nodes and
//! directories deleted by other processes and made again, foreign children, watches that fire or are interrupted,
//! and refused deletions.
//!
//! Two clients run several attempts each, of mutexes and fair locks on one path or of read-write locks, with
//! fewer places than attempts. Each client has a real [`LocalQueue`]. Sending a request, carrying it out and
//! receiving the answer are separate steps. In every schedule,
//!
//! - no contender holds the lock beside a writer (docs/protocol.md#grant), also without a list
//!   (docs/protocol.md#succession);
//! - every admitted attempt ends: it is granted the lock, or leaves;
//! - every node has a place, except those of readers that hold the lock and of conversions, and no more
//!   places are taken than there are (docs/protocol.md#places);
//! - no attempt waits for a place while one is free, or is overtaken by a later one, and a place is freed
//!   once;
//! - in each session the attempts of a client create in the order of arrival
//!   (docs/protocol.md#arrival-order);
//! - a list is returned only to attempts that asked before it was sent (docs/protocol.md#shared-lists);
//! - each waker gets one notice;
//! - every node is deleted in the end, unless the servers refuse it.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::strategy::ValueTree;

use crate::protocol::acquire::{
    AcquireEvent, AcquireOutcome, AcquireRequest, AcquireStep, Acquiring, IfBusy, NoGrant, Orphans, OwnNode,
    OwnPredecessor, Standing,
};
use crate::protocol::convert::{Conversion, ConvertEvent, ConvertRequest, ConvertStep, Converted, Created};
use crate::protocol::failure::{Answer, FailureKind, Refusal};
use crate::protocol::local_queue::{
    Arrival, Gone, Limit, LocalQueue, Newcomer, Notice, Numbered, Told, Wish,
};
use crate::protocol::node_name::{Child, Dialect, Family, Kind, Naming, classify};
use crate::protocol::queue::{Listing, Queue};

/// A stream of choices that proptest can shrink.
struct Choices<'a> {
    bytes: std::slice::Iter<'a, u8>,
}

impl Choices<'_> {
    fn next(&mut self) -> u8 {
        // When they run out, everything goes well.
        self.bytes.next().copied().unwrap_or(u8::MAX)
    }

    /// Returns `true` with a chance of `n` in 256, and `false` when the choices have run out.
    fn chance(&mut self, n: u8) -> bool {
        self.next() < n
    }

    fn below(&mut self, n: usize) -> usize {
        usize::from(self.next()) % n
    }
}

struct Directory {
    naming: Naming,
    /// The count of creates, which numbers the nodes, since the directory was created.
    created: u32,
    /// The count of all changes, over the directories that were removed.
    zxid: i64,
    /// When the directory was created, and each node.
    czxid: i64,
    czxids: BTreeMap<String, i64>,
    /// The owner of each node: the caller and the number of its attempt.
    nodes: BTreeMap<String, (usize, u64)>,
    /// Whether it has been deleted, and not been created again.
    missing: bool,
    /// Nodes whose deletion is refused: the end of their sessions deletes them.
    stuck: BTreeSet<String>,
    /// Nodes of readers that hold the lock, and of conversions.
    placeless: BTreeSet<String>,
    /// When other processes deleted nodes.
    deleted_by_hand: BTreeMap<String, usize>,
    clock: usize,
}

impl Directory {
    fn create(&mut self, owner: (usize, u64), beginning: &str) -> OwnNode {
        let name = format!("{beginning}{:010}", self.created);
        self.nodes.insert(name.clone(), owner);
        OwnNode { czxid: Some(self.count(&name)), name }
    }

    /// Counts a create. Returns its zxid.
    fn count(&mut self, name: &str) -> i64 {
        self.created += 1;
        self.zxid += 1;
        self.czxids.insert(name.to_owned(), self.zxid);
        self.zxid
    }

    /// Creates the directory, which begins the numbers anew.
    fn make_again(&mut self) {
        self.missing = false;
        self.created = 0;
        self.zxid += 1;
        self.czxid = self.zxid;
    }

    fn list(&self) -> Answer<Listing> {
        match self.missing {
            true => Answer::no(FailureKind::NoNode),
            false => Answer::Is(Queue::read(self.nodes.keys().cloned().collect(), self.naming)),
        }
    }

    /// Creates a node with this full name.
    fn make(&mut self, owner: (usize, u64), name: &str) -> Created {
        self.placeless.insert(name.to_owned());
        match self.nodes.insert(name.to_owned(), owner) {
            Some(_) => Created::Exists,
            None => Created::Done { czxid: Some(self.count(name)) },
        }
    }

    fn swap(&mut self, owner: (usize, u64), create: &str, delete: &str) -> Created {
        if self.nodes.contains_key(create) {
            return Created::Exists;
        }
        if self.nodes.remove(delete).is_none() {
            return Created::Missing;
        }
        self.make(owner, create)
    }
}

enum Doing {
    Idle,
    /// Waits for a place, by the question with this number.
    ForPlace(usize),
    /// Has a place, and begins in the session.
    Admitted,
    /// Waits for its turn to create.
    ForTurn(Acquiring, usize),
    /// Waits for a list, perhaps together with what came of its create.
    ForList(Acquiring, Question, Option<Creation>),
    Queued(Acquiring, AcquireStep),
    /// The watch on the node is set.
    Watching(Acquiring, String),
    /// Waits in memory, by the question with this number.
    Waiting(Acquiring, usize),
    Holding {
        name: String,
    },
    /// Holds as `held` until the end of it.
    Converting {
        name: String,
        conversion: Conversion,
        step: ConvertStep,
    },
}

/// A question for a list: its number here, and that of the queue.
struct Question(usize, u64);

/// The answer to a create.
struct Creation {
    id: String,
    create: Answer<OwnNode>,
}

/// A caller that acquires the lock again and again.
struct Caller {
    doing: Doing,
    kind: Kind,
    if_busy: IfBusy,
    /// Whether it uses a fair lock.
    fair: bool,
    /// The number of its attempt.
    number: u64,
    /// Whether the attempt, or its hold, has a place or waits for one.
    placed: bool,
    /// The beginning of the name of a create that was not answered, and that the server may still carry out.
    late: Option<String>,
    ids: u32,
    /// Whether another process has deleted one of its nodes: a grant by a node that does not exist is no
    /// error then.
    deleted_by_hand: bool,
    /// Whether a conversion was refused a deletion.
    refused: bool,
    /// The last notice, and the question that it answers.
    told: Option<(usize, Notice)>,
    listed: Option<(usize, Answer<Listing>)>,
    /// When the servers last handed a lock over to it.
    handed_over: usize,
}

/// A caller and the number of its question.
type Waker = (usize, usize);
/// The same, and when it was asked.
type ListWaker = (usize, usize, usize);

/// What the callers of a client share.
struct ModelClient {
    queue: LocalQueue<Waker, ListWaker>,
    session: u64,
    /// How many users each place has, and whether it is taken.
    places: BTreeMap<u64, (usize, bool, Limit)>,
    /// The attempts that have asked to create, and the session in which each has created, or stepped aside.
    contending: BTreeMap<u64, u64>,
    /// The tasks that send lists, one for each session.
    listers: Vec<Lister>,
    watch: Watch,
}

/// The watch of a client on the directory.
#[derive(Clone, Copy)]
enum Watch {
    None,
    Asked,
    /// The servers have set it on the directory that was created then. `answered` is whether the client knows,
    /// `over` whether it has fired, or the connection was interrupted.
    Set {
        czxid: i64,
        answered: bool,
        over: bool,
    },
}

impl Watch {
    fn over(&mut self) {
        if let Self::Set { over, .. } = self {
            *over = true;
        }
    }

    /// Returns when the directory was created, if the client knows that it exists since.
    fn created(self) -> Option<i64> {
        match self {
            Self::Set { czxid, answered: true, over: false } => Some(czxid),
            _ => None,
        }
    }
}

/// Sends lists in a session, one after the other.
struct Lister {
    session: u64,
    /// The receivers of the list under way, what it shows, and when it was sent.
    under_way: Option<(Vec<ListWaker>, Answer<Listing>, usize)>,
}

/// The client of each caller.
const CLIENT: [usize; CALLERS] = [0, 0, 0, 0, 0, 1, 1, 1];
const CALLERS: usize = 8;

const CLIENTS: usize = 2;
/// How many places a client has.
const LIMITS: [(Limit, usize); 2] = [(Limit::MaxZnodes, 2), (Limit::MaxWaiters, 3)];

/// A node that the cleanup has to delete.
struct PendingDeletion {
    client: usize,
    session: u64,
    name: String,
    /// The place that it keeps.
    place: Option<u64>,
    at: DeletionStage,
}

#[derive(Clone)]
enum DeletionStage {
    /// Not sent yet. `hand_over` is whether the lock may be handed over.
    New {
        hand_over: bool,
    },
    /// One transaction, on the condition that this node exists, is under way.
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
    /// It did not exist, or its deletion is refused.
    Unclear,
}

struct World<'a> {
    directory: Directory,
    callers: Vec<Caller>,
    clients: Vec<ModelClient>,
    deletions: Vec<PendingDeletion>,
    attempts: u64,
    questions: usize,
    /// The questions that have been answered.
    answered: BTreeSet<usize>,
    first_without_list: usize,
    /// Whether few contend, so that each is often done before another comes.
    few: bool,
    choices: Choices<'a>,
}

impl World<'_> {
    /// Runs one decision of the queue of a client, and delivers its notices.
    fn queue<T>(&mut self, c: usize, change: impl FnOnce(&mut LocalQueue<Waker, ListWaker>, u64) -> T) -> T {
        let client = &mut self.clients[c];
        let result = change(&mut client.queue, client.session);
        let Told { notices, no_list } = client.queue.take_told();
        for ((i, question), notice) in notices {
            assert!(self.answered.insert(question), "told twice");
            if notice == Notice::Place {
                self.check_admitted(c, i);
                self.clients[c].places.get_mut(&self.callers[i].number).expect("a place for none").1 = true;
            }
            let caller = &mut self.callers[i];
            if matches!(caller.doing, Doing::ForPlace(asked) | Doing::ForTurn(_, asked) | Doing::Waiting(_, asked) if asked == question)
            {
                caller.told = Some((question, notice));
            }
        }
        for waker in no_list {
            self.listed(waker, Answer::no(FailureKind::Unknown));
        }
        result
    }

    fn listed(&mut self, (i, question, _): ListWaker, list: Answer<Listing>) {
        assert!(self.answered.insert(question), "listed twice");
        if matches!(&self.callers[i].doing, Doing::ForList(_, Question(asked, _), _) if *asked == question) {
            self.callers[i].listed = Some((question, list));
        }
    }

    /// Checks that a caller that gets a place has waited longest.
    fn check_admitted(&self, c: usize, i: usize) {
        let (number, places) = (self.callers[i].number, &self.clients[c].places);
        let overtaken = self.callers.iter().enumerate().find(|(other, caller)| {
            let waits = matches!(caller.doing, Doing::ForPlace(_)) && caller.told.is_none();
            let before = waits && CLIENT[*other] == c && caller.number < number;
            before && places[&caller.number].2 == places[&number].2
        });
        assert!(overtaken.is_none(), "{number} is admitted before one that has waited longer");
    }

    fn question(&mut self) -> usize {
        self.questions += 1;
        self.questions
    }

    fn keep_place(&mut self, c: usize, number: u64) {
        self.clients[c].places.get_mut(&number).expect("it has a place").0 += 1;
    }

    fn let_go(&mut self, c: usize, number: u64) {
        let uses = &mut self.clients[c].places.get_mut(&number).expect("it has a place").0;
        *uses -= 1;
        if *uses == 0 {
            self.clients[c].places.remove(&number);
            self.queue(c, |queue, _| queue.free(number));
        }
    }

    fn owner(&self, i: usize) -> (usize, u64) {
        (i, self.callers[i].number)
    }

    fn settle_late(&mut self, i: usize) {
        if let Some(beginning) = self.callers[i].late.take() {
            if self.choices.chance(128) && !self.directory.missing {
                self.directory.create(self.owner(i), &beginning);
            }
        }
    }

    fn clean(&mut self, i: usize, orphans: Orphans) {
        let number = Some(self.callers[i].number);
        for name in orphans.names {
            self.leave_to_cleanup(i, name, number, false);
        }
        for id in orphans.ids {
            // Cleanup's write decides the creates under way, then it lists.
            self.settle_late(i);
            let beginning = self.directory.naming.prefix(&id, self.callers[i].kind);
            let found = self.directory.nodes.keys().find(|name| name.starts_with(&beginning)).cloned();
            found.into_iter().for_each(|name| self.leave_to_cleanup(i, name, number, false));
        }
    }

    fn in_memory(&self) -> bool {
        self.directory.naming.family == Family::Exclusive
    }

    fn leave_to_cleanup(&mut self, i: usize, name: String, place: Option<u64>, hand_over: bool) {
        let client = CLIENT[i];
        if let Some(number) = place {
            self.keep_place(client, number);
        }
        let session = self.clients[client].session;
        self.deletions.push(PendingDeletion {
            client,
            session,
            name,
            place,
            at: DeletionStage::New { hand_over },
        });
    }

    /// One step of one deletion.
    fn delete_next(&mut self, k: usize) {
        let PendingDeletion { client, session, name, place, at } = &self.deletions[k];
        let (client, session, name, place, at) = (*client, *session, name.clone(), *place, at.clone());
        let (lost, carried_out) = (self.choices.chance(40), self.choices.chance(128));
        let there = self.directory.nodes.contains_key(&name);
        let next = match at {
            DeletionStage::New { hand_over } => {
                let heir = self.clients[client].queue.heir(session, &name).filter(|_| hand_over);
                heir.map_or(DeletionStage::Plain, |to| DeletionStage::HandingOver { to: to.to_string() })
            }
            DeletionStage::HandingOver { to } => {
                let both = there && self.directory.nodes.contains_key(&to);
                if both && (!lost || carried_out) {
                    self.delete(&name);
                }
                match (lost, both) {
                    (true, _) => DeletionStage::Plain,
                    (false, true) => DeletionStage::HandedOver { to, at: self.directory.clock },
                    (false, false) => DeletionStage::Plain,
                }
            }
            DeletionStage::Plain if self.choices.chance(8) => {
                self.directory.stuck.insert(name.clone());
                DeletionStage::Unclear
            }
            DeletionStage::Plain if lost => {
                if carried_out {
                    self.delete(&name);
                }
                DeletionStage::Plain
            }
            DeletionStage::Plain if there => {
                self.delete(&name);
                DeletionStage::Deleted
            }
            DeletionStage::Plain => DeletionStage::Unclear,
            heard => {
                self.deletions.remove(k);
                let how = match &heard {
                    DeletionStage::Deleted => Gone::Deleted,
                    DeletionStage::HandedOver { to, at } => {
                        let heir = self.directory.nodes.get(to).map(|(caller, _)| *caller);
                        if let Some(heir) = heir.or_else(|| self.waits_as(to)) {
                            self.callers[heir].handed_over = *at;
                        }
                        Gone::HandedOver { to }
                    }
                    _ => Gone::Unclear,
                };
                self.queue(client, |queue, _| queue.gone(session, &name, how));
                if let Some(number) = place {
                    self.let_go(client, number);
                }
                return;
            }
        };
        self.deletions[k].at = next;
    }

    /// Returns the caller that waits in memory by this node.
    fn waits_as(&self, name: &str) -> Option<usize> {
        self.callers.iter().position(|caller| match &caller.doing {
            Doing::Waiting(contender, _) => contender.queued_as() == Some(name),
            _ => false,
        })
    }

    fn new_id(&mut self, i: usize) -> String {
        self.callers[i].ids += 1;
        format!("{i}x{}", self.callers[i].ids)
    }

    /// Begins an attempt of a caller.
    fn start(&mut self, i: usize) {
        let if_busy = if self.choices.chance(64) { IfBusy::Fail } else { IfBusy::Wait };
        let reads = !self.in_memory() && self.choices.chance(140);
        let fair = self.in_memory() && self.choices.chance(190);
        self.attempts += 1;
        let caller = &mut self.callers[i];
        caller.if_busy = if_busy;
        caller.fair = fair;
        caller.kind = if reads { Kind::Shared } else { Kind::Exclusive };
        caller.number = self.attempts;
        caller.placed = true;
        caller.deleted_by_hand = false;
        caller.refused = false;
        let limit = if fair { Limit::MaxWaiters } else { Limit::MaxZnodes };
        self.clients[CLIENT[i]].places.insert(self.attempts, (1, false, limit));
        self.arrive(i, None);
    }

    /// Asks for a place.
    fn arrive(&mut self, i: usize, known: Option<u64>) {
        let Caller { kind, if_busy, number, fair, .. } = self.callers[i];
        let again = fair && self.choices.chance(128);
        let wish = match if_busy {
            IfBusy::Fail => Wish::Ask { known },
            IfBusy::Wait => Wish::Join,
        };
        let limit = self.clients[CLIENT[i]].places[&number].2;
        let question = self.question();
        // Before the answer, which may be on its way at once.
        self.callers[i].doing = Doing::ForPlace(question);
        let newcomer = Newcomer { number, limit, kind, again, wish };
        match self.queue(CLIENT[i], |queue, _| queue.arrive(newcomer, (i, question))) {
            Arrival::Admitted => {
                self.clients[CLIENT[i]].places.get_mut(&number).expect("it has arrived").1 = true;
                self.callers[i].doing = Doing::Admitted;
            }
            Arrival::Waits => {}
            Arrival::Busy(count) => self.busy(i, count.ever),
            Arrival::Refused => {
                assert!(fair && !again);
                self.end(i);
            }
        }
    }

    /// Live contenders are in the way of a try; a reader checks that at the servers.
    fn busy(&mut self, i: usize, ever: u64) {
        let kind = self.callers[i].kind;
        let writer = match self.directory.list() {
            Answer::Is(Ok(queue)) => queue.in_the_way(None, kind).0 > 0,
            _ => false,
        };
        if kind == Kind::Exclusive || writer || self.choices.chance(16) {
            self.end(i);
        } else {
            self.arrive(i, Some(ever));
        }
    }

    /// Ends an attempt, or a hold with a place: its orphans keep the place.
    fn end(&mut self, i: usize) {
        let number = self.callers[i].number;
        self.callers[i].doing = Doing::Idle;
        self.callers[i].placed = false;
        self.clients[CLIENT[i]].contending.remove(&number);
        self.queue(CLIENT[i], |queue, _| {
            queue.set_live(number, false);
            queue.leave(number);
        });
        self.let_go(CLIENT[i], number);
    }

    /// The caller leaves, or is told that it does not get the lock.
    fn give_up(&mut self, i: usize, orphans: Orphans) {
        self.clean(i, orphans);
        self.end(i);
    }

    fn answer(&mut self, i: usize, question: usize) -> Option<Notice> {
        self.callers[i].told.take().filter(|(answered, _)| *answered == question).map(|(_, notice)| notice)
    }

    fn step(&mut self, i: usize) {
        match std::mem::replace(&mut self.callers[i].doing, Doing::Idle) {
            Doing::Idle if self.few && !self.choices.chance(24) => {}
            Doing::Idle => self.start(i),
            Doing::ForPlace(question) => match self.answer(i, question) {
                Some(Notice::Place) => self.callers[i].doing = Doing::Admitted,
                Some(Notice::Busy(count)) => self.busy(i, count.ever),
                Some(notice) => panic!("{notice:?} to one that waits for a place"),
                None if self.choices.chance(16) => self.end(i),
                None => self.callers[i].doing = Doing::ForPlace(question),
            },
            Doing::Admitted => {
                let Caller { kind, if_busy, fair, number, .. } = self.callers[i];
                let waits = if fair { OwnPredecessor::InMemory } else { OwnPredecessor::Watched };
                let (contender, step) = Acquiring::new(self.directory.naming, kind, if_busy, waits);
                self.queue(CLIENT[i], |queue, _| queue.set_live(number, true));
                self.callers[i].doing = Doing::Queued(contender, step);
            }
            Doing::ForTurn(contender, question) => {
                let create = AcquireStep::Do(AcquireRequest::Create);
                if self.answer(i, question).is_some() {
                    self.may_create(i, contender);
                } else if self.choices.chance(16) {
                    self.give_up(i, contender.leave(create));
                } else {
                    self.callers[i].doing = Doing::ForTurn(contender, question);
                }
            }
            Doing::ForList(contender, asked, creation) => {
                let listed = self.callers[i].listed.take().filter(|(answered, _)| *answered == asked.0);
                match (listed, creation) {
                    (Some((_, list)), Some(Creation { id, create })) => {
                        let (list, standing) = (Some(list), Standing::Unknown);
                        let event = AcquireEvent::Created { id, create, list, standing };
                        self.after_create(i, contender, event);
                    }
                    (Some((_, list)), None) => self.on(i, contender, AcquireEvent::Listed(list)),
                    (None, None) if self.choices.chance(16) => {
                        self.queue(CLIENT[i], |queue, _| queue.forget_list(asked.1));
                        self.give_up(i, contender.leave(AcquireStep::Do(AcquireRequest::List)));
                    }
                    (None, creation) => self.callers[i].doing = Doing::ForList(contender, asked, creation),
                }
            }
            Doing::Holding { name } => {
                if !self.in_memory() && self.choices.chance(if self.few { 25 } else { 100 }) {
                    self.convert(i, name);
                } else {
                    // Not if it was lost, or if the outcome of a write is unknown.
                    let hand_over = self.choices.chance(220);
                    self.release(i, name, hand_over);
                }
            }
            Doing::Converting { name, conversion, step } => self.converting(i, name, conversion, step),
            Doing::Watching(contender, name) => {
                let event = if !self.directory.nodes.contains_key(&name) || self.choices.chance(16) {
                    AcquireEvent::Changed
                } else if self.choices.chance(16) {
                    let leave = contender.leave(AcquireStep::Do(AcquireRequest::Watch { predecessor: name }));
                    return self.give_up(i, leave);
                } else {
                    self.callers[i].doing = Doing::Watching(contender, name);
                    return;
                };
                self.on(i, contender, event);
            }
            Doing::Waiting(contender, question) => {
                let event = match self.answer(i, question) {
                    Some(Notice::HandedOver) => AcquireEvent::HandedOver,
                    Some(Notice::Watch { predecessor }) => AcquireEvent::Inherited { predecessor },
                    Some(Notice::Look) => AcquireEvent::Changed,
                    Some(notice) => panic!("{notice:?} to one that waits for a node"),
                    None if self.choices.chance(16) => {
                        return self.give_up(i, contender.leave(AcquireStep::Do(AcquireRequest::List)));
                    }
                    None => {
                        self.callers[i].doing = Doing::Waiting(contender, question);
                        return;
                    }
                };
                self.on(i, contender, event);
            }
            Doing::Queued(contender, AcquireStep::Do(AcquireRequest::Create)) => {
                self.may_create(i, contender);
            }
            Doing::Queued(_, AcquireStep::Finish(outcome)) => self.finish(i, outcome),
            Doing::Queued(contender, step) if self.choices.chance(10) => {
                self.give_up(i, contender.leave(step));
            }
            Doing::Queued(contender, AcquireStep::Pause { .. }) => {
                if self.choices.chance(60) {
                    // For some time.
                    let number = self.callers[i].number;
                    let client = &mut self.clients[CLIENT[i]];
                    let current = client.session;
                    if let Some(session) = client.contending.get_mut(&number) {
                        *session = current;
                    }
                    self.queue(CLIENT[i], |queue, _| queue.step_aside(number, current));
                }
                self.on(i, contender, AcquireEvent::Retry);
            }
            Doing::Queued(contender, AcquireStep::Do(request)) => self.ask(i, contender, request),
        }
    }

    /// Carries out a request that is not a create.
    fn ask(&mut self, i: usize, contender: Acquiring, request: AcquireRequest) {
        let lost = self.choices.chance(40);
        let own = contender.queued_as().map(str::to_owned);
        let (in_memory, fair) = (self.in_memory(), self.callers[i].fair);
        let event = match request {
            AcquireRequest::Create => unreachable!("done by `may_create`"),
            AcquireRequest::WaitFor { before } => {
                let question = self.question();
                let own = own.unwrap_or_default();
                let wake = (i, question);
                if self.queue(CLIENT[i], |queue, session| queue.wait(session, &own, &before, wake)) {
                    self.callers[i].doing = Doing::Waiting(contender, question);
                    return;
                }
                AcquireEvent::WatchFailed(FailureKind::NoNode.into())
            }
            AcquireRequest::MakeParents => {
                if self.directory.missing {
                    self.directory.make_again();
                }
                AcquireEvent::ParentsMade(Answer::Is(()))
            }
            AcquireRequest::List => {
                if let Some(own) = own.filter(|_| in_memory) {
                    self.queue(CLIENT[i], |queue, session| queue.stop_waiting(session, &own));
                }
                if fair || !in_memory {
                    return self.ask_list(i, contender, None);
                }
                AcquireEvent::Listed(if lost {
                    Answer::no(FailureKind::Unknown)
                } else {
                    self.directory.list()
                })
            }
            AcquireRequest::Inspect { .. } if lost => {
                AcquireEvent::Inspected(Answer::no(FailureKind::Unknown))
            }
            AcquireRequest::Inspect { name } if self.directory.nodes.contains_key(&name) => {
                if in_memory {
                    self.queue(CLIENT[i], |queue, session| queue.know(session, &name));
                }
                let czxid = self.directory.czxids.get(&name).copied();
                AcquireEvent::Inspected(Answer::Is(OwnNode { name, czxid }))
            }
            AcquireRequest::Inspect { .. } => AcquireEvent::Inspected(Answer::no(FailureKind::NoNode)),
            AcquireRequest::Watch { predecessor } | AcquireRequest::WatchKept { predecessor } => {
                if let Some(own) = own.filter(|_| fair) {
                    self.queue(CLIENT[i], |queue, session| queue.watch(session, &own, &predecessor));
                }
                if lost {
                    AcquireEvent::WatchFailed(FailureKind::Unknown.into())
                } else if self.directory.nodes.contains_key(&predecessor) {
                    self.callers[i].doing = Doing::Watching(contender, predecessor);
                    return;
                } else {
                    AcquireEvent::WatchFailed(FailureKind::NoNode.into())
                }
            }
        };
        self.on(i, contender, event);
    }

    fn ask_list(&mut self, i: usize, contender: Acquiring, creation: Option<Creation>) {
        let question = self.question();
        let waker = (i, question, self.directory.clock);
        let (asked, session) =
            self.queue(CLIENT[i], |queue, session| (queue.ask_list(session, waker), session));
        let asked = asked.expect("of this session");
        if asked.start {
            self.clients[CLIENT[i]].listers.push(Lister { session, under_way: None });
        }
        self.callers[i].doing = Doing::ForList(contender, Question(question, asked.question), creation);
    }

    /// One step of a task that sends lists.
    fn list_next(&mut self, c: usize, k: usize) {
        let session = self.clients[c].listers[k].session;
        match self.clients[c].listers[k].under_way.take() {
            None => match self.queue(c, |queue, _| queue.next_list(session)) {
                Some(wakers) => {
                    let sent = (wakers, self.directory.list(), self.directory.clock);
                    self.clients[c].listers[k].under_way = Some(sent);
                }
                None => drop(self.clients[c].listers.remove(k)),
            },
            Some((wakers, list, sent)) => {
                let lost = self.choices.chance(40);
                for waker in wakers {
                    assert!(waker.2 <= sent, "a list that was sent before it was asked for");
                    self.listed(waker, if lost { Answer::no(FailureKind::Unknown) } else { copy(&list) });
                }
                if self.choices.chance(10) {
                    // It panics.
                    self.clients[c].listers.remove(k);
                    self.queue(c, |queue, _| queue.stop_lists(session));
                }
            }
        }
    }

    fn on(&mut self, i: usize, mut contender: Acquiring, event: AcquireEvent) {
        let (c, number, kind) = (CLIENT[i], self.callers[i].number, self.callers[i].kind);
        let ModelClient { queue, session, .. } = &self.clients[c];
        let step = contender.on(event, &|name| queue.knows(*session, name));
        for name in contender.take_orphans().names {
            self.leave_to_cleanup(i, name, Some(number), false);
        }
        if let (Some(list), Some(own)) = (contender.take_list(), contender.queued_as()) {
            let ahead = list.in_the_way(Some(own), kind).0;
            self.queue(c, |queue, session| {
                queue.set_ahead(session, own, ahead);
                queue.set_waits(number, ahead > 0);
            });
        }
        self.callers[i].doing = Doing::Queued(contender, step);
        if let Doing::Queued(_, AcquireStep::Finish(_)) = &self.callers[i].doing {
            self.step(i);
        }
    }

    /// Creates if it is its turn.
    fn may_create(&mut self, i: usize, contender: Acquiring) {
        let (c, number) = (CLIENT[i], self.callers[i].number);
        if self.callers[i].if_busy == IfBusy::Wait {
            let question = self.question();
            self.callers[i].told = None;
            let ModelClient { contending, session, .. } = &mut self.clients[c];
            let session = *session;
            contending.entry(number).or_default();
            if !self.queue(c, |queue, session| queue.may_create(number, session, (i, question))) {
                self.callers[i].doing = Doing::ForTurn(contender, question);
                return;
            }
            let contending = &mut self.clients[c].contending;
            if contending[&number] != session {
                let overtaken = contending.range(..number).find(|(_, created)| **created != session);
                assert_eq!(overtaken, None, "{number} creates before it");
                contending.insert(number, session);
            }
        }
        self.create(i, contender);
    }

    fn create(&mut self, i: usize, contender: Acquiring) {
        let lost = self.choices.chance(40);
        let (c, number, fair) = (CLIENT[i], self.callers[i].number, self.callers[i].fair);
        // Earlier requests of the session are decided before a new create.
        for other in (0..CALLERS).filter(|other| CLIENT[*other] == c) {
            self.settle_late(other);
        }
        let id = self.new_id(i);
        let beginning = self.directory.naming.prefix(&id, self.callers[i].kind);
        let kind = self.callers[i].kind;
        // Whether it leaves the list out in vain is no matter of safety.
        let (watched, tries) = (self.clients[c].watch.created().is_some(), self.choices.chance(160));
        let list_too = self.queue(c, |queue, session| {
            let expects = watched && (tries || queue.expects_first(session, kind));
            !(expects || fair && queue.may_skip_list(session))
        });
        self.queue(c, |queue, session| queue.create_sent(number, session));
        let mut standing = Standing::Unknown;
        let create = if lost {
            match self.choices.below(3) {
                // Carried out, with a lost answer; or still under way; or lost.
                0 if !self.directory.missing => drop(self.directory.create(self.owner(i), &beginning)),
                1 => self.callers[i].late = Some(beginning),
                _ => {}
            }
            Answer::no(FailureKind::Unknown)
        } else if self.directory.missing {
            if let Some(created) = self.clients[c].contending.get_mut(&number) {
                *created = 0;
            }
            self.queue(c, |queue, session| queue.directory_missing(number, session));
            Answer::no(FailureKind::NoNode)
        } else {
            let node = self.directory.create(self.owner(i), &beginning);
            if let (true, Child::Contender { sequence, .. }) =
                (self.in_memory(), classify(&node.name, self.directory.naming))
            {
                let leaving: BTreeSet<_> =
                    self.deletions.iter().map(|deletion| deletion.name.clone()).collect();
                let leaving = |name: &str| leaving.contains(name);
                let before = self.queue(c, |queue, session| {
                    let before = queue.created(session, &node.name, sequence);
                    before.filter(|before| queue.is_live(session, &before.name, &leaving))
                });
                standing = before.map_or(Standing::Unknown, Standing::Behind);
            }
            if let (Some(directory), Some(node), false) =
                (self.clients[c].watch.created(), self.numbered(&node), list_too)
            {
                if self.queue(c, |queue, session| queue.is_first(session, node, directory)) {
                    standing = Standing::First;
                    self.first_without_list += 1;
                }
            }
            Answer::Is(node)
        };
        if list_too && (fair || !self.in_memory()) {
            return self.ask_list(i, contender, Some(Creation { id, create }));
        }
        let list = list_too.then(|| match self.choices.chance(40) {
            true => Answer::no(FailureKind::Unknown),
            false => self.directory.list(),
        });
        self.after_create(i, contender, AcquireEvent::Created { id, create, list, standing });
    }

    fn numbered(&self, node: &OwnNode) -> Option<Numbered> {
        match (classify(&node.name, self.directory.naming), node.czxid) {
            (Child::Contender { sequence, kind }, Some(czxid)) => Some(Numbered { kind, sequence, czxid }),
            _ => None,
        }
    }

    fn after_create(&mut self, i: usize, mut contender: Acquiring, event: AcquireEvent) {
        if self.choices.chance(20) {
            // The caller left while the create was under way.
            let step = contender.on(event, &|_| false);
            let leave = contender.leave(step);
            return self.give_up(i, leave);
        }
        self.on(i, contender, event);
    }

    fn finish(&mut self, i: usize, outcome: AcquireOutcome) {
        match outcome {
            AcquireOutcome::Granted { name, czxid, also } => {
                self.clean(i, also);
                let number = self.callers[i].number;
                let node = self.numbered(&OwnNode { name: name.clone(), czxid: Some(czxid) });
                let (node, free) = (node.expect("a contender"), self.choices.chance(230));
                let watch = self.queue(CLIENT[i], |queue, session| queue.granted(session, &name, node, free));
                let watch = self.choices.chance(160) || watch;
                let client = &mut self.clients[CLIENT[i]];
                if watch && !matches!(client.watch, Watch::Asked) && client.watch.created().is_none() {
                    client.watch = Watch::Asked;
                }
                self.queue(CLIENT[i], |queue, session| {
                    queue.stop_waiting(session, &name);
                    queue.set_waits(number, false);
                    queue.leave(number);
                });
                self.clients[CLIENT[i]].contending.remove(&number);
                if !self.directory.nodes.contains_key(&name) {
                    // It existed when the servers handed the lock over to it.
                    let deleted_by_hand = self.directory.deleted_by_hand.get(&name);
                    let in_time = deleted_by_hand.is_some_and(|at| *at > self.callers[i].handed_over);
                    assert!(in_time, "granted by a node that is not there");
                }
                if self.callers[i].kind == Kind::Shared {
                    self.directory.placeless.insert(name.clone());
                    self.callers[i].placed = false;
                    self.let_go(CLIENT[i], number);
                }
                self.callers[i].doing = Doing::Holding { name };
            }
            AcquireOutcome::NotGranted { why, orphans } => {
                assert_eq!(why, NoGrant::WouldBlock);
                self.give_up(i, orphans);
            }
        }
    }

    /// The lock is released, or lost.
    fn release(&mut self, i: usize, name: String, hand_over: bool) {
        let number = self.callers[i].number;
        let place = self.callers[i].placed.then_some(number);
        self.leave_to_cleanup(i, name, place, hand_over);
        self.end_hold(i);
    }

    fn end_hold(&mut self, i: usize) {
        self.callers[i].doing = Doing::Idle;
        if self.callers[i].placed {
            self.end(i);
        }
    }

    fn convert(&mut self, i: usize, name: String) {
        let id = self.new_id(i);
        let kind = match self.callers[i].kind {
            Kind::Shared => Kind::Exclusive,
            Kind::Exclusive => Kind::Shared,
        };
        let new = self.directory.naming.converted_name(&name, &id, kind).unwrap();
        let (conversion, step) = match kind {
            Kind::Shared => Conversion::downgrade(name.clone(), new),
            Kind::Exclusive => Conversion::upgrade(name.clone(), new),
        };
        self.callers[i].doing = Doing::Converting { name, conversion, step };
    }

    fn converting(&mut self, i: usize, name: String, mut conversion: Conversion, step: ConvertStep) {
        // The answer is lost: the request was carried out, or not.
        let (lost, carried_out) = (self.choices.chance(40), self.choices.chance(128));
        let unknown = || ConvertEvent::Created(Created::Failed(FailureKind::Unknown.into()));
        let owner = self.owner(i);
        let directory = &mut self.directory;
        let event = match step {
            ConvertStep::Pause { .. } => ConvertEvent::Retry,
            ConvertStep::Await { node } => {
                ConvertEvent::Awaited { is_late: directory.nodes.contains_key(&node) }
            }
            ConvertStep::Do(ConvertRequest::List) if lost => {
                ConvertEvent::Listed(Answer::no(FailureKind::Unknown))
            }
            ConvertStep::Do(ConvertRequest::List) => ConvertEvent::Listed(directory.list()),
            ConvertStep::Do(ConvertRequest::Inspect { .. }) if lost => {
                ConvertEvent::Inspected(Answer::no(FailureKind::Unknown))
            }
            ConvertStep::Do(ConvertRequest::Inspect { name }) => {
                ConvertEvent::Inspected(match directory.nodes.contains_key(&name) {
                    true => Answer::Is(1),
                    false => Answer::no(FailureKind::NoNode),
                })
            }
            ConvertStep::Do(ConvertRequest::Swap { create, delete }) => {
                let made = (!lost || carried_out).then(|| directory.swap(owner, &create, &delete));
                made.filter(|_| !lost).map_or_else(unknown, ConvertEvent::Created)
            }
            ConvertStep::Do(ConvertRequest::Create { name }) => {
                let made = (!lost || carried_out).then(|| directory.make(owner, &name));
                made.filter(|_| !lost).map_or_else(unknown, ConvertEvent::Created)
            }
            ConvertStep::Do(ConvertRequest::Delete { .. }) if self.choices.chance(20) => {
                self.callers[i].refused = true;
                ConvertEvent::Deleted(Answer::no(FailureKind::Refused(Refusal::Other)))
            }
            ConvertStep::Do(ConvertRequest::Delete { name }) => {
                if !lost || carried_out {
                    directory.nodes.remove(&name);
                }
                ConvertEvent::Deleted(if lost { Answer::no(FailureKind::Unknown) } else { Answer::Is(()) })
            }
            ConvertStep::Finish(converted) => return self.converted(i, name, converted),
        };
        let step = conversion.on(event);
        self.callers[i].doing = Doing::Converting { name, conversion, step };
    }

    fn converted(&mut self, i: usize, name: String, converted: Converted) {
        match converted {
            Converted::Done { node, .. } => {
                let Child::Contender { kind, .. } = classify(&node, self.directory.naming) else {
                    panic!("converted to {node}");
                };
                self.callers[i].kind = kind;
                let number = self.callers[i].number;
                if kind == Kind::Shared && std::mem::take(&mut self.callers[i].placed) {
                    self.let_go(CLIENT[i], number);
                }
                self.callers[i].doing = Doing::Holding { name: node };
            }
            Converted::Kept(_) => self.callers[i].doing = Doing::Holding { name },
            Converted::Lost { delete, .. } => {
                let caller = &self.callers[i];
                assert!(caller.deleted_by_hand || caller.refused, "lost without a reason");
                for name in &delete {
                    if self.callers[i].refused && self.choices.chance(100) {
                        self.directory.stuck.insert(name.clone());
                    } else {
                        self.delete(name);
                    }
                }
                self.end_hold(i);
            }
            Converted::SessionGone => panic!("sessions end by `expire` here"),
        }
    }

    fn delete(&mut self, name: &str) {
        self.directory.nodes.remove(name);
    }

    /// Ends the session of a client, which deletes its nodes and drops its requests. Contending attempts
    /// start again in the next one.
    fn expire(&mut self, c: usize) {
        self.clients[c].session += 1;
        self.clients[c].watch = Watch::None;
        self.directory.nodes.retain(|_, (owner, _)| CLIENT[*owner] != c);
        for i in (0..CALLERS).filter(|i| CLIENT[*i] == c) {
            self.callers[i].late = None;
            match std::mem::replace(&mut self.callers[i].doing, Doing::Idle) {
                Doing::Idle => {}
                Doing::Holding { .. } | Doing::Converting { .. } => self.end_hold(i),
                waiting @ (Doing::ForPlace(_) | Doing::Admitted) => self.callers[i].doing = waiting,
                Doing::ForList(_, asked, _) => {
                    self.callers[i].doing = Doing::Admitted;
                    self.queue(c, |queue, _| queue.forget_list(asked.1));
                }
                _ => self.callers[i].doing = Doing::Admitted,
            }
        }
        let unheard = |deletion: &PendingDeletion| {
            matches!(
                deletion.at,
                DeletionStage::New { .. } | DeletionStage::HandingOver { .. } | DeletionStage::Plain
            )
        };
        let all = std::mem::take(&mut self.deletions);
        let (over, rest) = all.into_iter().partition::<Vec<_>, _>(|one| one.client == c && unheard(one));
        self.deletions = rest;
        for number in over.into_iter().filter_map(|deletion| deletion.place) {
            self.let_go(c, number);
        }
    }

    fn delete_by_hand(&mut self) {
        let count = self.directory.nodes.len();
        // One node, or the directory with all nodes, which is created again then.
        let all = self.in_memory() && self.choices.chance(40);
        let n = if all || count == 0 { 0 } else { self.choices.below(count) };
        let names: Vec<_> =
            self.directory.nodes.keys().skip(n).take(if all { count } else { 1 }).cloned().collect();
        if all {
            for client in &mut self.clients {
                client.watch.over();
            }
            self.directory.make_again();
            self.directory.missing = self.choices.chance(128);
        }
        for name in names {
            if let Some((owner, _)) = self.directory.nodes.remove(&name) {
                self.callers[owner].deleted_by_hand = true;
            }
            self.directory.deleted_by_hand.insert(name, self.directory.clock);
        }
    }

    /// One step of the watch of a client; or another client makes a foreign child, and deletes it.
    fn watch(&mut self, c: usize) {
        let missing = self.directory.missing;
        let watch = &mut self.clients[c].watch;
        match watch {
            // Not answered, or interrupted.
            Watch::Asked | Watch::Set { .. } if self.choices.chance(8) => *watch = Watch::None,
            Watch::Asked if missing => *watch = Watch::None,
            Watch::Asked => {
                *watch = Watch::Set { czxid: self.directory.czxid, answered: false, over: false };
            }
            Watch::Set { answered, .. } => *answered = true,
            Watch::None if !missing => {
                self.directory.created += 1;
                self.directory.zxid += 1;
            }
            Watch::None => {}
        }
    }

    /// Returns how many readers and writers hold the lock by nodes that exist.
    fn inside(&self) -> (usize, usize) {
        let kind = |caller: &Caller| match &caller.doing {
            Doing::Holding { name } if self.directory.nodes.contains_key(name) => Some(caller.kind),
            // During an upgrade the lock is held as a reader; during a downgrade as the one or the other.
            Doing::Converting { name, .. } if self.directory.nodes.contains_key(name) => Some(caller.kind),
            _ => None,
        };
        let of = |wanted| self.callers.iter().filter(|caller| kind(caller) == Some(wanted)).count();
        (of(Kind::Shared), of(Kind::Exclusive))
    }

    fn check(&self) {
        let (readers, writers) = self.inside();
        assert!(writers == 0 || writers == 1 && readers == 0, "{readers} readers, {writers} writers");
        for (name, (owner, number)) in &self.directory.nodes {
            let place = self.clients[CLIENT[*owner]].places.get(number);
            let none = self.directory.stuck.contains(name) || self.directory.placeless.contains(name);
            assert!(none || place.is_some_and(|place| place.1), "{name} has no place");
        }
        for (c, client) in self.clients.iter().enumerate() {
            for (limit, max) in LIMITS {
                let waits = |busy: bool| {
                    let waits = self.callers.iter().enumerate().filter(move |(i, caller)| {
                        let limited = CLIENT[*i] == c && matches!(caller.doing, Doing::ForPlace(_));
                        let told = match &caller.told {
                            None => !busy,
                            Some((_, notice)) => busy && matches!(notice, Notice::Busy(_)),
                        };
                        limited && told && client.places[&caller.number].2 == limit
                    });
                    waits.count()
                };
                let census = client.queue.census(limit);
                let taken = census.live() + census.in_cleanup();
                let known = client.places.values().filter(|place| place.1 && place.2 == limit).count();
                // A try that is told that the lock is busy keeps its turn, and may get a place unnoticed.
                assert!(known <= taken && taken <= known + waits(true), "{taken} places of {limit:?}");
                assert!(taken <= max, "{taken} places of {limit:?}");
                assert!(waits(false) == 0 || taken == max, "waits while a place is free");
            }
        }
    }
}

fn copy(list: &Answer<Listing>) -> Answer<Listing> {
    match list {
        Answer::Is(listing) => Answer::Is(listing.clone()),
        Answer::No(failure) => Answer::No(failure.clone()),
    }
}

/// Runs one schedule of these callers. Returns how many were first without a list.
fn simulate(bytes: &[u8], family: Family, active: &[usize]) -> usize {
    let naming = Naming { family, dialect: Dialect::Curator, sticky: false };
    let caller = || Caller {
        doing: Doing::Idle,
        kind: Kind::Exclusive,
        if_busy: IfBusy::Wait,
        fair: false,
        number: 0,
        placed: false,
        late: None,
        ids: 0,
        deleted_by_hand: false,
        refused: false,
        told: None,
        listed: None,
        handed_over: 0,
    };
    let client = || {
        let mut queue = LocalQueue::default();
        LIMITS.into_iter().for_each(|(limit, max)| queue.set_limit(limit, max));
        let (places, contending) = (BTreeMap::new(), BTreeMap::new());
        ModelClient { queue, session: 1, places, contending, listers: Vec::new(), watch: Watch::None }
    };
    let mut world = World {
        directory: Directory {
            naming,
            created: 0,
            zxid: 1,
            czxid: 1,
            czxids: BTreeMap::new(),
            nodes: BTreeMap::new(),
            missing: false,
            stuck: BTreeSet::new(),
            placeless: BTreeSet::new(),
            deleted_by_hand: BTreeMap::new(),
            clock: 0,
        },
        callers: (0..CALLERS).map(|_| caller()).collect(),
        clients: (0..CLIENTS).map(|_| client()).collect(),
        deletions: Vec::new(),
        attempts: 0,
        questions: 0,
        answered: BTreeSet::new(),
        first_without_list: 0,
        few: active.len() < CALLERS,
        choices: Choices { bytes: bytes.iter() },
    };
    while world.choices.bytes.len() > 0 {
        world.directory.clock += 1;
        let [by_hand, expire, delete, watch, list] =
            if world.few { [1, 2, 120, 150, 170] } else { [3, 6, 70, 80, 115] };
        let choice = world.choices.next();
        if choice < by_hand {
            world.delete_by_hand();
        } else if choice < expire {
            let c = world.choices.below(CLIENTS);
            world.expire(c);
        } else if choice < delete && !world.deletions.is_empty() {
            let k = world.choices.below(world.deletions.len());
            world.delete_next(k);
        } else if (delete..watch).contains(&choice) {
            let c = world.choices.below(CLIENTS);
            world.watch(c);
        } else if (watch..list).contains(&choice) {
            let c = world.choices.below(CLIENTS);
            if !world.clients[c].listers.is_empty() {
                let k = world.choices.below(world.clients[c].listers.len());
                world.list_next(c, k);
            }
        } else {
            let i = active[world.choices.below(active.len())];
            world.step(i);
        }
        world.check();
    }
    // Without further faults, and after the end of the sessions of stuck nodes, all waiting attempts are
    // served, unless a wake-up was lost.
    let Directory { nodes, stuck, .. } = &mut world.directory;
    nodes.retain(|name, _| !stuck.contains(name));
    for _ in 0..300 {
        for k in (0..world.deletions.len()).rev() {
            world.delete_next(k);
        }
        for c in 0..CLIENTS {
            for k in (0..world.clients[c].listers.len()).rev() {
                world.list_next(c, k);
            }
        }
        for i in 0..CALLERS {
            if !matches!(world.callers[i].doing, Doing::Idle) {
                world.step(i);
                world.check();
            }
        }
    }
    let busy = world.callers.iter().filter(|caller| !matches!(caller.doing, Doing::Idle)).count();
    assert_eq!(busy, 0, "still waiting without a contender");
    assert!(world.directory.nodes.is_empty(), "left behind: {:?}", world.directory.nodes);
    for client in &world.clients {
        assert!(
            client.places.is_empty() && client.queue.is_empty(client.session),
            "left behind: {:?}",
            client.queue
        );
    }
    world.first_without_list
}

const ALL: [usize; CALLERS] = [0, 1, 2, 3, 4, 5, 6, 7];
/// One of a client, and two of the other: the lock is often free.
const FEW: [usize; 3] = [0, 5, 6];

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_schedule_gives_two_holders_or_leaves_a_node(
        few: bool,
        bytes in prop::collection::vec(any::<u8>(), 50..1_500),
    ) {
        simulate(&bytes, Family::Exclusive, if few { &FEW } else { &ALL });
    }

    #[test]
    fn no_schedule_lets_a_writer_in_beside_anybody(
        few: bool,
        bytes in prop::collection::vec(any::<u8>(), 50..1_500),
    ) {
        simulate(&bytes, Family::ReadWrite, if few { &FEW } else { &ALL });
    }
}

/// What the schedules show of grants without a list is worth something only if there are some.
#[test]
fn many_schedules_grant_without_a_list() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let strategy = prop::collection::vec(any::<u8>(), 3_000);
    for family in [Family::Exclusive, Family::ReadWrite] {
        let mut count = 0;
        for _ in 0..300 {
            let bytes = strategy.new_tree(&mut runner).unwrap().current();
            count += simulate(&bytes, family, &FEW);
        }
        assert!(count >= 10, "{count} of {family:?}");
    }
}
