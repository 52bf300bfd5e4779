//! Contenders and conversions against a model of a lock directory, under random schedules with lost replies, creates
//! that come through late, cancellations, expired sessions, nodes deleted by hand and deletions that are refused: whatever
//! happens, no writer is inside together with another contender, and nothing is left behind but what may not be deleted.
//!
//! Exclusive contenders wait as the fair lock's do, several to a session, with the [`Line`] that it has: what is sent, what the
//! servers do and what is heard of it are steps of their own.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use crate::protocol::acquire::{
    AcquireEvent, AcquireOutcome, AcquireRequest, AcquireStep, Acquiring, Blocking, Ending, Leave, OwnNode,
    Waits,
};
use crate::protocol::convert::{Conversion, ConvertEvent, ConvertRequest, ConvertStep, Converted, Made};
use crate::protocol::failure::{Answer, Failure};
use crate::protocol::line::{Gone, Line, ReleaseNotice};
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

    /// True with a chance of `n` in 256; never once the choices have run out.
    fn chance(&mut self, n: u8) -> bool {
        self.next() < n
    }

    fn below(&mut self, n: usize) -> usize {
        usize::from(self.next()) % n
    }
}

struct Directory {
    naming: Naming,
    created: u32,
    /// Name to owner.
    nodes: BTreeMap<String, usize>,
    /// Those whose deletion was refused for good: they go with their sessions.
    stuck: BTreeSet<String>,
    /// When nodes were deleted by hand.
    robbed: BTreeMap<String, usize>,
    clock: usize,
}

impl Directory {
    fn create(&mut self, owner: usize, beginning: &str) -> OwnNode {
        let name = format!("{beginning}{:010}", self.created);
        self.nodes.insert(name.clone(), owner);
        self.created += 1;
        OwnNode { name, czxid: Some(i64::from(self.created)) }
    }

    fn list(&self) -> Listing {
        Queue::read(self.nodes.keys().cloned().collect(), self.naming)
    }

    /// Makes a node of this whole name.
    fn make(&mut self, owner: usize, name: &str) -> Made {
        match self.nodes.insert(name.to_owned(), owner) {
            Some(_) => Made::Exists,
            None => {
                self.created += 1;
                Made::Done { czxid: Some(i64::from(self.created)) }
            }
        }
    }

    fn swap(&mut self, owner: usize, create: &str, delete: &str) -> Made {
        if self.nodes.contains_key(create) {
            return Made::Exists;
        }
        if self.nodes.remove(delete).is_none() {
            return Made::Missing;
        }
        self.make(owner, create)
    }

    fn delete_beginning(&mut self, beginning: &str) {
        self.nodes.retain(|name, _| !name.starts_with(beginning));
    }
}

enum Doing {
    Idle,
    Queued(Acquiring, AcquireStep),
    /// The watch on the node is set.
    Watching(Acquiring, String),
    /// Waits in memory, for the word with this number.
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

struct Client {
    doing: Doing,
    kind: Kind,
    /// A create that was sent and not answered, and that the server may still carry out: how the name begins.
    late: Option<String>,
    ids: u32,
    /// Somebody deleted one of our nodes by hand; a grant by a node that is not there is then no error.
    robbed: bool,
    /// A conversion was not allowed to delete a node.
    refused: bool,
    /// What it was told, in answer to which question.
    told: Option<(usize, ReleaseNotice)>,
    /// When the servers last handed it a lock.
    handed_over: usize,
}

/// The session of each client.
const SESSIONS: [usize; CLIENTS] = [0, 0, 0, 1, 1];
const CLIENTS: usize = 5;
const D: &str = "/d";

/// A node that the cleanup has to delete.
struct Deletion {
    session: usize,
    name: String,
    at: Stage,
}

#[derive(Clone)]
enum Stage {
    /// To be sent; may the lock be handed over?
    New {
        hand_over: bool,
    },
    /// One transaction, on the condition that this node exists, is under way.
    HandingOver {
        to: String,
    },
    /// A deletion is under way.
    Plain,
    /// The servers have deleted it, which the client has not heard yet.
    Deleted,
    HandedOver {
        to: String,
        at: usize,
    },
    /// It was gone, or may not be deleted.
    Unclear,
}

struct World<'a> {
    directory: Directory,
    clients: Vec<Client>,
    /// Those of the sessions, which tell a client and the number of its question.
    lines: Vec<Line<(usize, usize)>>,
    deletions: Vec<Deletion>,
    questions: usize,
    choices: Choices<'a>,
}

impl World<'_> {
    fn settle_late(&mut self, i: usize) {
        if let Some(beginning) = self.clients[i].late.take() {
            if self.choices.chance(128) {
                self.directory.create(i, &beginning);
            }
        }
    }

    fn clean(&mut self, i: usize, leave: Leave) {
        for name in leave.nodes {
            self.reap(i, name, false);
        }
        for id in leave.unsettled {
            // The cleanup's barrier decides what is under way, then it looks.
            self.settle_late(i);
            let beginning = self.directory.naming.prefix(&id, self.clients[i].kind);
            if self.in_memory() {
                let found = self.directory.nodes.keys().find(|name| name.starts_with(&beginning)).cloned();
                found.into_iter().for_each(|name| self.reap(i, name, false));
            } else {
                self.directory.delete_beginning(&beginning);
            }
        }
    }

    fn in_memory(&self) -> bool {
        self.directory.naming.family == Family::Exclusive
    }

    fn reap(&mut self, i: usize, name: String, hand_over: bool) {
        if self.in_memory() {
            let session = SESSIONS[i];
            self.deletions.push(Deletion { session, name, at: Stage::New { hand_over } });
        } else {
            self.directory.nodes.remove(&name);
        }
    }

    /// One step of one deletion.
    fn delete_next(&mut self, k: usize) {
        let Deletion { session, name, at } = &self.deletions[k];
        let (session, name, at) = (*session, name.clone(), at.clone());
        let (lost, carried_out) = (self.choices.chance(40), self.choices.chance(128));
        let there = self.directory.nodes.contains_key(&name);
        let next = match at {
            Stage::New { hand_over } => match self.lines[session].heir(&name).filter(|_| hand_over) {
                Some(to) => Stage::HandingOver { to: to.to_string() },
                None => Stage::Plain,
            },
            Stage::HandingOver { to } => {
                let both = there && self.directory.nodes.contains_key(&to);
                if both && (!lost || carried_out) {
                    self.delete(&name);
                }
                match (lost, both) {
                    (true, _) => Stage::Plain,
                    (false, true) => Stage::HandedOver { to, at: self.directory.clock },
                    (false, false) => Stage::Plain,
                }
            }
            Stage::Plain if self.choices.chance(8) => {
                self.directory.stuck.insert(name.clone());
                Stage::Unclear
            }
            Stage::Plain if lost => {
                if carried_out {
                    self.delete(&name);
                }
                Stage::Plain
            }
            Stage::Plain if there => {
                self.delete(&name);
                Stage::Deleted
            }
            Stage::Plain => Stage::Unclear,
            heard => {
                self.deletions.remove(k);
                let told = match &heard {
                    Stage::Deleted => self.lines[session].gone(&name, Gone::Deleted),
                    Stage::HandedOver { to, .. } => self.lines[session].gone(&name, Gone::HandedOver { to }),
                    _ => self.lines[session].gone(&name, Gone::Unclear),
                };
                for ((client, question), word) in told {
                    if let (ReleaseNotice::HandedOver, Stage::HandedOver { at, .. }) = (&word, &heard) {
                        self.clients[client].handed_over = *at;
                    }
                    if matches!(self.clients[client].doing, Doing::Waiting(_, asked) if asked == question) {
                        self.clients[client].told = Some((question, word));
                    }
                }
                return;
            }
        };
        self.deletions[k].at = next;
    }

    fn new_id(&mut self, i: usize) -> String {
        self.clients[i].ids += 1;
        format!("{i}x{}", self.clients[i].ids)
    }

    fn step(&mut self, i: usize) {
        match std::mem::replace(&mut self.clients[i].doing, Doing::Idle) {
            Doing::Idle => {
                let patience = if self.choices.chance(64) { Blocking::Try } else { Blocking::Wait };
                let reads = self.directory.naming.family == Family::ReadWrite && self.choices.chance(140);
                let kind = if reads { Kind::Shared } else { Kind::Exclusive };
                let waits = if self.in_memory() { Waits::InMemory } else { Waits::AtTheServers };
                let (contender, step) = Acquiring::new(self.directory.naming, kind, patience, waits);
                self.clients[i].kind = kind;
                self.clients[i].robbed = false;
                self.clients[i].refused = false;
                self.clients[i].doing = Doing::Queued(contender, step);
            }
            Doing::Holding { name } => {
                if self.directory.naming.family == Family::ReadWrite && self.choices.chance(100) {
                    self.convert(i, name);
                } else {
                    // Not where it was lost, or something was written of which nothing is known.
                    let hand_over = self.choices.chance(220);
                    self.reap(i, name, hand_over);
                }
            }
            Doing::Converting { name, conversion, step } => self.converting(i, name, conversion, step),
            Doing::Watching(contender, name) => {
                let event = if !self.directory.nodes.contains_key(&name) || self.choices.chance(16) {
                    AcquireEvent::Changed
                } else if self.choices.chance(16) {
                    let leave = contender.leave(AcquireStep::Do(AcquireRequest::Watch { predecessor: name }));
                    return self.clean(i, leave);
                } else {
                    self.clients[i].doing = Doing::Watching(contender, name);
                    return;
                };
                self.on(i, contender, event);
            }
            Doing::Waiting(contender, question) => {
                let told = self.clients[i].told.take().filter(|(answered, _)| *answered == question);
                let event = match told {
                    Some((_, ReleaseNotice::HandedOver)) => AcquireEvent::HandedOver,
                    Some((_, ReleaseNotice::Watch { predecessor })) => {
                        AcquireEvent::Inherited { predecessor }
                    }
                    Some((_, ReleaseNotice::Look)) => AcquireEvent::Changed,
                    None if self.choices.chance(16) => {
                        let leave = contender.leave(AcquireStep::Do(AcquireRequest::List));
                        return self.clean(i, leave);
                    }
                    None => {
                        self.clients[i].doing = Doing::Waiting(contender, question);
                        return;
                    }
                };
                self.on(i, contender, event);
            }
            Doing::Queued(mut contender, AcquireStep::Do(AcquireRequest::Create)) => {
                let lost = self.choices.chance(40);
                let event = self.create(i, lost);
                if self.choices.chance(20) {
                    // The caller went while the create was under way.
                    let step = contender.on(event, &|_| false);
                    let leave = contender.leave(step);
                    return self.clean(i, leave);
                }
                self.on(i, contender, event);
            }
            Doing::Queued(_, AcquireStep::Finish(outcome)) => self.finish(i, outcome),
            Doing::Queued(contender, step) if self.choices.chance(10) => {
                let leave = contender.leave(step);
                self.clean(i, leave);
            }
            Doing::Queued(contender, AcquireStep::Pause { .. }) => self.on(i, contender, AcquireEvent::Retry),
            Doing::Queued(contender, AcquireStep::Do(request)) => {
                let lost = self.choices.chance(40);
                let own = contender.queued_as().map(str::to_owned);
                let line = &mut self.lines[SESSIONS[i]];
                match (&request, own.as_deref().filter(|_| self.directory.naming.family == Family::Exclusive))
                {
                    (AcquireRequest::List, Some(own)) => line.settled(own),
                    (AcquireRequest::Watch { predecessor }, Some(own)) => line.watch(own, predecessor),
                    _ => {}
                }
                let event = match request {
                    AcquireRequest::WaitFor { before } => {
                        self.questions += 1;
                        let own = own.unwrap_or_default();
                        line.know(D, &own);
                        if line.wait(&own, &before, (i, self.questions)) {
                            self.clients[i].doing = Doing::Waiting(contender, self.questions);
                            return;
                        }
                        AcquireEvent::WatchFailed(Failure::NoNode)
                    }
                    AcquireRequest::Create | AcquireRequest::MakeParents => {
                        AcquireEvent::ParentsMade(Answer::Is(()))
                    }
                    AcquireRequest::List if lost => AcquireEvent::Listed(Answer::No(Failure::Unknown)),
                    AcquireRequest::List => AcquireEvent::Listed(Answer::Is(self.directory.list())),
                    AcquireRequest::Inspect { .. } if lost => {
                        AcquireEvent::Inspected(Answer::No(Failure::Unknown))
                    }
                    AcquireRequest::Inspect { name } if self.directory.nodes.contains_key(&name) => {
                        if self.directory.naming.family == Family::Exclusive {
                            line.know(D, &name);
                        }
                        AcquireEvent::Inspected(Answer::Is(OwnNode { name, czxid: Some(1) }))
                    }
                    AcquireRequest::Inspect { .. } => AcquireEvent::Inspected(Answer::No(Failure::NoNode)),
                    AcquireRequest::Watch { .. } if lost => AcquireEvent::WatchFailed(Failure::Unknown),
                    AcquireRequest::Watch { predecessor }
                        if self.directory.nodes.contains_key(&predecessor) =>
                    {
                        self.clients[i].doing = Doing::Watching(contender, predecessor);
                        return;
                    }
                    AcquireRequest::Watch { .. } => AcquireEvent::WatchFailed(Failure::NoNode),
                };
                self.on(i, contender, event);
            }
        }
    }

    fn on(&mut self, i: usize, mut contender: Acquiring, event: AcquireEvent) {
        let line = &self.lines[SESSIONS[i]];
        let step = contender.on(event, &|name| line.knows(name));
        for name in contender.take_surplus() {
            self.reap(i, name, false);
        }
        self.clients[i].doing = Doing::Queued(contender, step);
        if let Doing::Queued(_, AcquireStep::Finish(_)) = &self.clients[i].doing {
            self.step(i);
        }
    }

    fn create(&mut self, i: usize, lost: bool) -> AcquireEvent {
        // What the session sent before is decided before a new create is.
        for (other, session) in SESSIONS.iter().enumerate() {
            if other == i || self.in_memory() && *session == SESSIONS[i] {
                self.settle_late(other);
            }
        }
        let id = self.new_id(i);
        let beginning = self.directory.naming.prefix(&id, self.clients[i].kind);
        let list_too = !self.in_memory() || !self.lines[SESSIONS[i]].is_in(D);
        let mut before = None;
        let create = if !lost {
            let node = self.directory.create(i, &beginning);
            if let (true, Child::Contender { sequence, .. }) =
                (self.in_memory(), classify(&node.name, self.directory.naming))
            {
                before = self.lines[SESSIONS[i]].created(D, &node.name, sequence);
            }
            Answer::Is(node)
        } else {
            match self.choices.below(3) {
                // Carried out, and the answer lost; or still under way; or never to come.
                0 => drop(self.directory.create(i, &beginning)),
                1 => self.clients[i].late = Some(beginning),
                _ => {}
            }
            Answer::No(Failure::Unknown)
        };
        let list = list_too.then(|| match self.choices.chance(40) {
            true => Answer::No(Failure::Unknown),
            false => Answer::Is(self.directory.list()),
        });
        AcquireEvent::Created { id, create, list, before }
    }

    fn finish(&mut self, i: usize, outcome: AcquireOutcome) {
        match outcome {
            AcquireOutcome::Granted { name, also, .. } => {
                self.clean(i, also);
                self.lines[SESSIONS[i]].settled(&name);
                if !self.directory.nodes.contains_key(&name) {
                    // It was there when the servers handed the lock over to it.
                    let robbed = self.directory.robbed.get(&name);
                    let in_time = robbed.is_some_and(|robbed| *robbed > self.clients[i].handed_over);
                    assert!(in_time, "granted by a node that is not there");
                }
                self.clients[i].doing = Doing::Holding { name };
            }
            AcquireOutcome::Ended { why, leave } => {
                assert_eq!(why, Ending::WouldBlock);
                self.clean(i, leave);
            }
        }
    }

    fn convert(&mut self, i: usize, name: String) {
        let id = self.new_id(i);
        let kind = match self.clients[i].kind {
            Kind::Shared => Kind::Exclusive,
            Kind::Exclusive => Kind::Shared,
        };
        let new = self.directory.naming.beside(&name, &id, kind).unwrap();
        let (conversion, step) = match kind {
            Kind::Shared => Conversion::downgrade(name.clone(), new),
            Kind::Exclusive => Conversion::upgrade(name.clone(), new),
        };
        self.clients[i].doing = Doing::Converting { name, conversion, step };
    }

    fn converting(&mut self, i: usize, name: String, mut conversion: Conversion, step: ConvertStep) {
        // Answers that are lost: the request was carried out, or not.
        let (lost, carried_out) = (self.choices.chance(40), self.choices.chance(128));
        let unknown = || ConvertEvent::Made(Made::Failed(Failure::Unknown));
        let directory = &mut self.directory;
        let event = match step {
            ConvertStep::Pause { .. } => ConvertEvent::Retry,
            ConvertStep::Do(ConvertRequest::List) if lost => {
                ConvertEvent::Listed(Answer::No(Failure::Unknown))
            }
            ConvertStep::Do(ConvertRequest::List) => ConvertEvent::Listed(Answer::Is(directory.list())),
            ConvertStep::Do(ConvertRequest::Inspect { .. }) if lost => {
                ConvertEvent::Inspected(Answer::No(Failure::Unknown))
            }
            ConvertStep::Do(ConvertRequest::Inspect { name }) => {
                ConvertEvent::Inspected(match directory.nodes.contains_key(&name) {
                    true => Answer::Is(1),
                    false => Answer::No(Failure::NoNode),
                })
            }
            ConvertStep::Do(ConvertRequest::Swap { create, delete }) => {
                let made = (!lost || carried_out).then(|| directory.swap(i, &create, &delete));
                made.filter(|_| !lost).map_or_else(unknown, ConvertEvent::Made)
            }
            ConvertStep::Do(ConvertRequest::Create { name }) => {
                let made = (!lost || carried_out).then(|| directory.make(i, &name));
                made.filter(|_| !lost).map_or_else(unknown, ConvertEvent::Made)
            }
            ConvertStep::Do(ConvertRequest::Delete { .. }) if self.choices.chance(20) => {
                self.clients[i].refused = true;
                ConvertEvent::Deleted(Answer::No(Failure::Refused))
            }
            ConvertStep::Do(ConvertRequest::Delete { name }) => {
                if !lost || carried_out {
                    directory.nodes.remove(&name);
                }
                ConvertEvent::Deleted(if lost { Answer::No(Failure::Unknown) } else { Answer::Is(()) })
            }
            ConvertStep::Finish(converted) => return self.converted(i, name, converted),
        };
        let step = conversion.on(event);
        self.clients[i].doing = Doing::Converting { name, conversion, step };
    }

    fn converted(&mut self, i: usize, name: String, converted: Converted) {
        match converted {
            Converted::Done { node, .. } => {
                let Child::Contender { kind, .. } = classify(&node, self.directory.naming) else {
                    panic!("converted to {node}");
                };
                self.clients[i].kind = kind;
                self.clients[i].doing = Doing::Holding { name: node };
            }
            Converted::Kept(_) => self.clients[i].doing = Doing::Holding { name },
            Converted::Lost { leave, .. } => {
                let client = &self.clients[i];
                assert!(client.robbed || client.refused, "lost without a reason");
                for name in &leave {
                    if self.clients[i].refused && self.choices.chance(100) {
                        self.directory.stuck.insert(name.clone());
                    } else {
                        self.delete(name);
                    }
                }
            }
            Converted::SessionOver => panic!("sessions end by `expire` here"),
        }
    }

    fn delete(&mut self, name: &str) {
        self.directory.nodes.remove(name);
    }

    /// The session of a client is over: its nodes go, and whatever it had under way.
    fn expire(&mut self, i: usize) {
        let all = self.in_memory();
        let over = |client: usize| client == i || all && SESSIONS[client] == SESSIONS[i];
        for (n, client) in self.clients.iter_mut().enumerate().filter(|(n, _)| over(*n)) {
            client.late = None;
            client.doing = Doing::Idle;
            self.directory.nodes.retain(|_, owner| *owner != n);
        }
        if all {
            self.lines[SESSIONS[i]] = Line::default();
            self.deletions.retain(|deletion| deletion.session != SESSIONS[i]);
        }
    }

    fn rob(&mut self) {
        let count = self.directory.nodes.len();
        // One, or the directory with all that is in it, which is then made anew.
        let all = self.in_memory() && self.choices.chance(40);
        let n = if all || count == 0 { 0 } else { self.choices.below(count) };
        let names: Vec<_> =
            self.directory.nodes.keys().skip(n).take(if all { count } else { 1 }).cloned().collect();
        if all {
            self.directory.created = 0;
        }
        for name in names {
            if let Some(owner) = self.directory.nodes.remove(&name) {
                self.clients[owner].robbed = true;
            }
            self.directory.robbed.insert(name, self.directory.clock);
        }
    }

    /// Who is inside by nodes that are there, and have been: readers and writers.
    fn inside(&self) -> (usize, usize) {
        let kind = |client: &Client| match &client.doing {
            Doing::Holding { name } if self.directory.nodes.contains_key(name) => Some(client.kind),
            // A reader is inside while it tries to become a writer. A writer that becomes a reader is the one or the other.
            Doing::Converting { name, .. } if self.directory.nodes.contains_key(name) => Some(client.kind),
            _ => None,
        };
        let of = |wanted| self.clients.iter().filter(|client| kind(client) == Some(wanted)).count();
        (of(Kind::Shared), of(Kind::Exclusive))
    }

    fn check(&self) {
        let (readers, writers) = self.inside();
        assert!(writers == 0 || writers == 1 && readers == 0, "{readers} readers, {writers} writers");
    }
}

fn simulate(bytes: &[u8], family: Family) {
    let naming = Naming { family, dialect: Dialect::Curator };
    let client = || Client {
        doing: Doing::Idle,
        kind: Kind::Exclusive,
        late: None,
        ids: 0,
        robbed: false,
        refused: false,
        told: None,
        handed_over: 0,
    };
    let mut world = World {
        directory: Directory {
            naming,
            created: 0,
            nodes: BTreeMap::new(),
            stuck: BTreeSet::new(),
            robbed: BTreeMap::new(),
            clock: 0,
        },
        clients: (0..CLIENTS).map(|_| client()).collect(),
        lines: SESSIONS.iter().map(|_| Line::default()).collect(),
        deletions: Vec::new(),
        questions: 0,
        choices: Choices { bytes: bytes.iter() },
    };
    while world.choices.bytes.len() > 0 {
        world.directory.clock += 1;
        match world.choices.next() {
            0..3 => world.rob(),
            3..6 => {
                let i = world.choices.below(CLIENTS);
                world.expire(i);
            }
            6..90 if !world.deletions.is_empty() => {
                let k = world.choices.below(world.deletions.len());
                world.delete_next(k);
            }
            _ => {
                let i = world.choices.below(CLIENTS);
                world.step(i);
            }
        }
        world.check();
    }
    // Now that all goes well, and the sessions of what is stuck are over, all that wait are served: no wake-up was lost.
    let Directory { nodes, stuck, .. } = &mut world.directory;
    nodes.retain(|name, _| !stuck.contains(name));
    for _ in 0..200 {
        for k in (0..world.deletions.len()).rev() {
            world.delete_next(k);
        }
        for i in 0..CLIENTS {
            if !matches!(world.clients[i].doing, Doing::Idle) {
                world.step(i);
                world.check();
            }
        }
    }
    let busy = world.clients.iter().filter(|client| !matches!(client.doing, Doing::Idle)).count();
    assert_eq!(busy, 0, "still waiting with nobody there");
    assert!(world.directory.nodes.is_empty(), "left behind: {:?}", world.directory.nodes);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_schedule_gives_two_holders_or_leaves_a_node(bytes in prop::collection::vec(any::<u8>(), 50..1_500)) {
        simulate(&bytes, Family::Exclusive);
    }

    #[test]
    fn no_schedule_lets_a_writer_in_beside_anybody(bytes in prop::collection::vec(any::<u8>(), 50..1_500)) {
        simulate(&bytes, Family::ReadWrite);
    }
}
