//! Runs the real decisions of a semaphore's heads against a model of its directories, with lost
//! replies, late commits, cancellations, expired sessions, nodes deleted by other processes, limits
//! that change, directories that are removed, and heads of Curator's, which create their lease
//! before they look: under random schedules, and all with few
//! [deviations](crate::protocol::simulation::choices).
//!
//! In every schedule,
//!
//! - a transaction that commits leaves no more leases than the limit in force
//!   (docs/protocol.md#permits-by-one-transaction);
//! - no two leases of ours have one slot, and all slots are below the limit
//!   (docs/protocol.md#slots);
//! - a caller that is granted permits has all of them, unless another process has deleted some, and
//!   a caller that is not granted has none (docs/protocol.md#permits-unknown-outcome);
//! - every attempt ends, and nothing is left.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::protocol::acquire::{IfBusy, Orphans};
use crate::protocol::failure::{Answer, FailureKind, Refusal};
use crate::protocol::node_name::id;
use crate::protocol::permits::{
    LimitNode, PermitsEvent, PermitsOutcome, PermitsRequest, PermitsStep, Seen, Take, Taken,
    Taking, lease_beginning, slot_of,
};
use crate::protocol::simulation::choices::{Choices, Turns, count};

/// The limit that all handles state.
const STATED: u32 = 3;

/// A transaction, as it was sent.
struct Sent {
    take: Take,
    ids: Vec<String>,
    lock: u64,
}

#[derive(Default)]
struct Servers {
    created: u64,
    /// The queue of locks: each node and its owner.
    locks: Vec<(u64, usize)>,
    /// The leases and their owners.
    leases: BTreeMap<String, usize>,
    /// Whether the directory of leases exists.
    directory: bool,
    limit: Option<(u32, i32)>,
    version: i32,
    /// How often something changed that a head watches.
    changes: u64,
}

impl Servers {
    fn number(&mut self) -> u64 {
        self.created += 1;
        self.created
    }

    fn limit(&self) -> u32 {
        self.limit.map_or(STATED, |(limit, _)| limit)
    }

    fn is_head(&self, lock: u64) -> bool {
        self.locks.first().is_some_and(|(first, _)| *first == lock)
    }

    fn has_lock(&self, lock: u64) -> bool {
        self.locks.iter().any(|(other, _)| *other == lock)
    }

    fn seen(&self) -> Seen {
        let limit = match self.limit {
            Some((permits, version)) => LimitNode::Is { permits, version },
            None => LimitNode::Missing,
        };
        Seen {
            leases: self.leases.keys().cloned().collect(),
            // Releases are carried out at once here, so no lease of this client is waiting for its
            // deletion.
            leaving: 0,
            limit,
        }
    }

    fn create(&mut self, owner: usize, beginning: &str) -> String {
        let name = format!("{beginning}{:010}", self.number());
        // The directory is missing here only for a head of Curator's, which creates it with its
        // lease.
        self.directory = true;
        self.leases.insert(name.clone(), owner);
        self.changes += 1;
        name
    }

    fn delete_lease(&mut self, name: &str) {
        self.changes += u64::from(self.leases.remove(name).is_some());
    }

    fn commit(&mut self, owner: usize, sent: &Sent) -> Taken {
        // ZooKeeper reports the first operation that fails. The creates come first in the
        // transaction, then the deletion of the lock node, then the check of the limit.
        if !self.directory {
            return Taken::NoDirectory;
        }
        if !self.has_lock(sent.lock) {
            return Taken::LockGone;
        }
        if sent.take.limit_version.is_some()
            && self.limit.map(|(_, version)| version) != sent.take.limit_version
        {
            return Taken::LimitChanged;
        }
        let leases = sent.ids.iter().zip(&sent.take.slots);
        let names = leases
            .map(|(id, slot)| self.create(owner, &lease_beginning(id, *slot, sent.take.limit)));
        let names = names.collect();
        self.locks.retain(|(lock, _)| *lock != sent.lock);
        // A node with a limit that was created a moment ago is the one thing that a head cannot
        // check.
        let limit = if sent.take.limit_version.is_some() {
            self.limit()
        } else {
            sent.take.limit
        };
        assert_eq!(
            limit, sent.take.limit,
            "taken under another limit than that in force"
        );
        assert!(
            self.leases.len() <= limit as usize,
            "{} of {limit}: {:?}",
            self.leases.len(),
            self.leases
        );
        // Leases of Curator's have no slot, and count for the limit only.
        let mut slots: Vec<u32> = self
            .leases
            .keys()
            .filter_map(|name| slot_of(name))
            .map(|(k, _)| k)
            .collect();
        slots.sort_unstable();
        assert!(
            slots.windows(2).all(|pair| pair[0] < pair[1]),
            "one slot twice: {:?}",
            self.leases
        );
        assert!(
            sent.take.slots.iter().all(|slot| *slot < limit),
            "{:?} of {limit}",
            sent.take.slots
        );
        Taken::Done { names }
    }
}

#[expect(clippy::large_enum_variant, reason = "there are four of them")]
enum Doing {
    /// Queues next; ends when it has done so as often as it may.
    Idle,
    Queued(u64),
    AtHead {
        lock: u64,
        taking: Taking,
        step: PermitsStep,
        /// An answer on its way.
        answer: Option<PermitsEvent>,
        /// The number of changes when the watches were set, if the last look has set any.
        watched: Option<u64>,
    },
    /// A head of Curator's, with its lease.
    Java {
        lock: u64,
        lease: String,
    },
    Holds(Vec<String>),
    Done,
}

struct Actor {
    /// How many permits it wants; `None` is one of Curator's, which takes one.
    wanted: Option<u32>,
    if_busy: IfBusy,
    tries: u32,
    doing: Doing,
    /// The version of the node with the limit, if the last look has shown one.
    limit_version: Option<i32>,
    /// Transactions without an answer, which may be committed before the next request of the
    /// session.
    late: Vec<Sent>,
}

/// A fault or a change for an actor.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Leaves,
    SessionExpires,
    /// Another process deletes the lock node.
    LockDeleted,
    LeaseDeleted,
    LimitChanges,
    DirectoryRemoved,
}

const FAULTS: [Fault; 6] = [
    Fault::Leaves,
    Fault::SessionExpires,
    Fault::LockDeleted,
    Fault::LeaseDeleted,
    Fault::LimitChanges,
    Fault::DirectoryRemoved,
];

struct World {
    servers: Servers,
    actors: Vec<Actor>,
    /// Leases that another process has deleted.
    by_hand: Vec<String>,
}

impl World {
    /// Decides the outcome of transactions that were not answered.
    fn decide(&mut self, i: usize, choices: &mut Choices) {
        for sent in std::mem::take(&mut self.actors[i].late) {
            // Otherwise the transaction was lost with its connection.
            if !choices.chance(128) {
                self.servers.commit(i, &sent);
            }
        }
    }

    /// The nodes that an attempt leaves: cleanup deletes them, after all earlier requests.
    fn leave(&mut self, i: usize, lock: u64, orphans: &Orphans, choices: &mut Choices) {
        // The deletion of the lock node follows in the same session, so no transaction comes later.
        self.decide(i, choices);
        self.servers.locks.retain(|(other, _)| *other != lock);
        let left: Vec<String> = self.servers.leases.keys().cloned().collect();
        for name in left {
            // Cleanup knows some leases by name and others by the id of a create without an answer.
            let unknown = id(&name).is_some_and(|id| orphans.ids.iter().any(|other| other == id));
            if unknown || orphans.names.contains(&name) {
                self.servers.delete_lease(&name);
            }
        }
        self.nothing_of(i);
    }

    fn nothing_of(&self, i: usize) {
        let left: Vec<_> = self
            .servers
            .leases
            .iter()
            .filter(|(_, owner)| **owner == i)
            .collect();
        assert!(left.is_empty(), "left behind by {i}: {left:?}");
    }

    /// Returns whether an actor has something to do, and is not done.
    fn is_ready(&self, i: usize) -> bool {
        match &self.actors[i].doing {
            // Only the head looks at the leases. The others watch the lock node before their own.
            Doing::Queued(lock) => self.servers.is_head(*lock) || !self.servers.has_lock(*lock),
            Doing::AtHead {
                lock,
                step: PermitsStep::Wait,
                answer: None,
                watched,
                ..
            } => {
                // The head is woken by a change of the leases or the limit. The head does not watch
                // its lock node, and notices a deletion by a check from time to time.
                self.servers.changes != watched.expect("it waits without a watch")
                    || !self.servers.has_lock(*lock)
            }
            Doing::Java { lease, .. } => {
                // Curator's head has created its lease, and waits until the leases, with its own,
                // are within the limit.
                let leases = &self.servers.leases;
                !leases.contains_key(lease) || leases.len() <= self.servers.limit() as usize
            }
            Doing::Idle | Doing::AtHead { .. } | Doing::Holds(_) => true,
            Doing::Done => false,
        }
    }

    /// Lets one actor that is ready do one thing.
    fn step(&mut self, i: usize, choices: &mut Choices) {
        let doing = std::mem::replace(&mut self.actors[i].doing, Doing::Idle);
        let next = match doing {
            Doing::Idle if self.actors[i].tries == 0 => Doing::Done,
            Doing::Idle => {
                self.actors[i].tries -= 1;
                let lock = self.servers.number();
                self.servers.locks.push((lock, i));
                Doing::Queued(lock)
            }
            // Another process deleted the lock node.
            Doing::Queued(lock) if !self.servers.has_lock(lock) => Doing::Idle,
            Doing::Queued(lock) => match self.actors[i].wanted {
                Some(wanted) => {
                    let (taking, step) = Taking::new(wanted, STATED, self.actors[i].if_busy);
                    Doing::AtHead {
                        lock,
                        taking,
                        step,
                        answer: None,
                        watched: None,
                    }
                }
                None => {
                    let lease = self.servers.create(i, &format!("_c_java{i:032}-lease-"));
                    Doing::Java { lock, lease }
                }
            },
            // Curator deletes the lock node by a separate request, after it has counted the leases.
            // If another process has deleted its lease, the head queues again.
            Doing::Java { lock, lease } => {
                self.servers.locks.retain(|(other, _)| *other != lock);
                match self.servers.leases.contains_key(&lease) {
                    true => Doing::Holds(vec![lease]),
                    false => Doing::Idle,
                }
            }
            Doing::Holds(names) => {
                names
                    .iter()
                    .for_each(|name| self.servers.delete_lease(name));
                // A lease that is left would be that of a second transaction, and no caller would
                // return it.
                self.nothing_of(i);
                Doing::Idle
            }
            Doing::Done => Doing::Done,
            Doing::AtHead {
                lock,
                taking,
                step,
                answer,
                watched,
            } => self.at_head(i, lock, taking, step, answer, watched, choices),
        };
        self.actors[i].doing = next;
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one state")]
    fn at_head(
        &mut self,
        i: usize,
        lock: u64,
        mut taking: Taking,
        mut step: PermitsStep,
        answer: Option<PermitsEvent>,
        mut watched: Option<u64>,
        choices: &mut Choices,
    ) -> Doing {
        let event = match (&step, answer) {
            // An answer is handled in a separate turn, so that faults happen while it is under way.
            (_, Some(answer)) => answer,
            // Without a change the head has a turn only if its lock node is gone.
            (PermitsStep::Wait, None) if watched == Some(self.servers.changes) => {
                PermitsEvent::LockDeleted
            }
            (PermitsStep::Wait, None) => PermitsEvent::WaitOver,
            (PermitsStep::Pause { .. }, None) => match choices.chance(20) {
                true => PermitsEvent::GiveUp,
                false => PermitsEvent::Retry,
            },
            (PermitsStep::Do(request), None) => {
                // The servers carry out the requests of a session in order: earlier transactions
                // without an answer are decided before this request.
                self.decide(i, choices);
                let answer = self.answer(i, lock, request, choices);
                if let PermitsRequest::Look { watch, .. } = request {
                    // The list and its watch are one request, so nothing changes between them.
                    watched = watch.then_some(self.servers.changes);
                }
                return Doing::AtHead {
                    lock,
                    taking,
                    step,
                    answer: Some(answer),
                    watched,
                };
            }
            (PermitsStep::Finish(PermitsOutcome::Granted { names }), None) => {
                for name in names {
                    let there = self.servers.leases.get(name) == Some(&i);
                    assert!(
                        there || self.by_hand.contains(name),
                        "{name} was granted and is not there"
                    );
                }
                assert_eq!(
                    Some(names.len()),
                    self.actors[i].wanted.map(|n| n as usize),
                    "not as many as asked for"
                );
                // More leases would be those of two transactions that have both committed.
                let own = self
                    .servers
                    .leases
                    .values()
                    .filter(|owner| **owner == i)
                    .count();
                assert!(
                    own <= names.len(),
                    "expected no more leases than the caller was granted"
                );
                assert!(!self.servers.has_lock(lock), "its lock is left");
                return Doing::Holds(names.clone());
            }
            (PermitsStep::Finish(PermitsOutcome::LockDeleted { orphans }), None) => {
                // A head that still has its lock node would lose its place in the queue for
                // nothing.
                assert!(!self.servers.has_lock(lock), "it is there");
                self.leave(i, lock, orphans, choices);
                return Doing::Idle;
            }
            (PermitsStep::Finish(PermitsOutcome::NotGranted { orphans, .. }), None) => {
                self.leave(i, lock, orphans, choices);
                return Doing::Idle;
            }
        };
        step = taking.on(event);
        Doing::AtHead {
            lock,
            taking,
            step,
            answer: None,
            watched,
        }
    }

    fn answer(
        &mut self,
        i: usize,
        lock: u64,
        request: &PermitsRequest,
        choices: &mut Choices,
    ) -> PermitsEvent {
        let unknown = || FailureKind::Unknown.into();
        match request {
            PermitsRequest::Look { .. } if choices.chance(40) => {
                PermitsEvent::Looked(Answer::No(unknown()))
            }
            PermitsRequest::Look { .. } => {
                self.actors[i].limit_version = self.servers.limit.map(|(_, version)| version);
                PermitsEvent::Looked(Answer::Is(self.servers.seen()))
            }
            PermitsRequest::MakeLeases if choices.chance(40) => {
                PermitsEvent::Made(Answer::No(unknown()))
            }
            PermitsRequest::MakeLeases => {
                self.servers.directory = true;
                PermitsEvent::Made(Answer::Is(()))
            }
            PermitsRequest::Inspect { .. } if choices.chance(40) => {
                PermitsEvent::Inspected(Answer::No(unknown()))
            }
            PermitsRequest::Inspect { names } => {
                // As in the engine, the first lease stands for all of its transaction.
                PermitsEvent::Inspected(match self.servers.leases.contains_key(&names[0]) {
                    true => Answer::Is(names.clone()),
                    false => Answer::no(FailureKind::NoNode),
                })
            }
            PermitsRequest::Take(take) => {
                assert_eq!(
                    take.limit_version, self.actors[i].limit_version,
                    "the limit that was read is checked"
                );
                // The ids are fresh for each request, so the leases of a repetition have other
                // names.
                let ids: Vec<String> = take
                    .slots
                    .iter()
                    .map(|_| format!("{:036}", self.servers.number()))
                    .collect();
                let sent = Sent {
                    take: take.clone(),
                    ids: ids.clone(),
                    lock,
                };
                let outcome = match choices.rarely(102, 4) {
                    // The transaction is carried out, and its answer is lost.
                    1 => {
                        self.servers.commit(i, &sent);
                        Taken::Failed(unknown())
                    }
                    // The connection is lost while the transaction is under way: the next request
                    // of the session decides whether it is committed.
                    2 => {
                        self.actors[i].late.push(sent);
                        Taken::Failed(unknown())
                    }
                    3 => Taken::Failed(FailureKind::NotNow.into()),
                    4 => Taken::Failed(FailureKind::Refused(Refusal::Other).into()),
                    _ => self.servers.commit(i, &sent),
                };
                PermitsEvent::Taken { ids, outcome }
            }
        }
    }

    /// Lets a fault or a change happen.
    fn fault(&mut self, fault: Fault, i: usize, choices: &mut Choices) {
        match fault {
            Fault::Leaves => {
                let doing = std::mem::replace(&mut self.actors[i].doing, Doing::Idle);
                self.actors[i].doing = match doing {
                    Doing::Queued(lock) => {
                        self.servers.locks.retain(|(other, _)| *other != lock);
                        Doing::Idle
                    }
                    Doing::AtHead {
                        lock,
                        mut taking,
                        mut step,
                        answer,
                        ..
                    } => {
                        // A transaction that was sent has been answered; other answers are dropped.
                        if let Some(taken @ PermitsEvent::Taken { .. }) = answer {
                            step = taking.on(taken);
                        }
                        let mut orphans = taking.abandon();
                        orphans.extend(step.into_orphans());
                        self.leave(i, lock, &orphans, choices);
                        Doing::Idle
                    }
                    other => other,
                };
            }
            // The servers carry out nothing of an expired session, and delete its nodes.
            Fault::SessionExpires => {
                self.actors[i].late.clear();
                self.servers.locks.retain(|(_, owner)| *owner != i);
                let own = self.servers.leases.iter().filter(|(_, owner)| **owner == i);
                let own: Vec<String> = own.map(|(name, _)| name.clone()).collect();
                own.iter().for_each(|name| self.servers.delete_lease(name));
                if !matches!(self.actors[i].doing, Doing::Done) {
                    self.actors[i].doing = Doing::Idle;
                }
            }
            // Curator's head does not notice the deletion of its lock node, so its nodes are not
            // deleted.
            Fault::LockDeleted => {
                let ours: Vec<u64> = self
                    .servers
                    .locks
                    .iter()
                    .filter_map(|(lock, owner)| self.actors[*owner].wanted.map(|_| *lock))
                    .collect();
                if !ours.is_empty() {
                    let lock = ours[choices.below(ours.len())];
                    self.servers.locks.retain(|(other, _)| *other != lock);
                }
            }
            Fault::LeaseDeleted => {
                let leases: Vec<String> = self.servers.leases.keys().cloned().collect();
                if !leases.is_empty() {
                    let name = leases[choices.below(leases.len())].clone();
                    self.servers.delete_lease(&name);
                    self.by_hand.push(name);
                }
            }
            Fault::LimitChanges => {
                self.servers.version += 1;
                // The new limit may be below the number of leases that are held, and of permits
                // that are wanted.
                let permits = u32::try_from(1 + choices.below(4)).expect("few");
                self.servers.limit = Some((permits, self.servers.version));
                self.servers.changes += 1;
            }
            Fault::DirectoryRemoved => {
                // The servers delete a directory only when it is empty.
                if self.servers.leases.is_empty() {
                    self.servers.directory = false;
                }
            }
        }
    }
}

impl World {
    fn new(actors: Vec<Actor>) -> Self {
        Self {
            servers: Servers::default(),
            actors,
            by_hand: Vec::new(),
        }
    }

    fn is_holder(&self, i: usize) -> bool {
        matches!(self.actors[i].doing, Doing::Holds(_))
    }

    fn is_done(&self) -> bool {
        self.actors
            .iter()
            .all(|actor| matches!(actor.doing, Doing::Done))
    }

    fn check_end(&self) {
        assert!(
            self.is_done(),
            "they wait for ever: {:?}",
            self.servers.leases
        );
        assert!(
            self.servers.leases.is_empty() && self.servers.locks.is_empty(),
            "something is left"
        );
    }
}

fn actor(wanted: Option<u32>, if_busy: IfBusy, tries: u32) -> Actor {
    Actor {
        wanted,
        if_busy,
        tries,
        doing: Doing::Idle,
        limit_version: None,
        late: Vec::new(),
    }
}

/// Returns how many permits were granted, so that a test can see that the model does something.
fn run(choices: &[u8]) -> usize {
    let mut choices = Choices::drawn(choices.to_vec());
    let wanted = [Some(1), Some(2), Some(1), None];
    let if_busy = |choices: &mut Choices| {
        if choices.chance(40) {
            IfBusy::Fail
        } else {
            IfBusy::Wait
        }
    };
    let actors = wanted
        .into_iter()
        .map(|wanted| actor(wanted, if_busy(&mut choices), 3))
        .collect();
    let mut world = World::new(actors);
    let mut granted = 0;
    let mut idle = 0;
    for turn in 0.. {
        assert!(turn < 20_000, "they do not end");
        if choices.chance(20) {
            let i = choices.below(world.actors.len());
            let fault = FAULTS[choices.below(FAULTS.len())];
            world.fault(fault, i, &mut choices);
            idle = 0;
        }
        // At the end all take turns, so that each attempt can be served.
        let i = match choices.is_over() {
            true => turn % world.actors.len(),
            false => choices.below(world.actors.len()),
        };
        // A holder keeps its permits for some turns.
        let held_before = world.is_holder(i);
        let keeps = held_before && choices.chance(128);
        let is_ready = !keeps && world.is_ready(i);
        if is_ready {
            world.step(i, &mut choices);
        }
        granted += usize::from(!held_before && world.is_holder(i));
        idle = if is_ready || keeps { 0 } else { idle + 1 };
        // If no actor was ready in all these turns, all wait for each other, and `check_end` fails.
        if world.is_done() || idle > 2_000 {
            break;
        }
    }
    world.check_end();
    granted
}

/// The next event when all take turns, except for a few deviations.
#[derive(Clone, Copy, Debug)]
enum Event {
    Step,
    /// The one whose turn it is makes no step until all others wait.
    Hold,
    Fault(Fault, usize),
}

/// Runs one schedule in which the actors take turns.
fn take_turns(actors: Vec<Actor>, choices: &mut Choices) {
    let mut world = World::new(actors);
    let all = world.actors.len();
    let mut turns = Turns::new();
    loop {
        let ready: Vec<usize> = (0..all).filter(|i| world.is_ready(*i)).collect();
        // If none is ready, all are done, or a wake-up was lost, which `check_end` finds.
        let Some(i) = turns.next(&ready) else { break };
        let mut events = vec![Event::Step, Event::Hold];
        let contends = |i: &usize| !matches!(world.actors[*i].doing, Doing::Idle | Doing::Done);
        // An actor that contends may leave or lose its session in each turn. The other faults
        // concern the directories, so they are offered once.
        for i in (0..all).filter(contends) {
            events
                .extend([Fault::Leaves, Fault::SessionExpires].map(|fault| Event::Fault(fault, i)));
        }
        events.extend(
            FAULTS
                .into_iter()
                .skip(2)
                .map(|fault| Event::Fault(fault, i)),
        );
        let event = events[choices.below(events.len())];
        choices.note(&event);
        match event {
            Event::Step => {
                turns.had(i);
                world.step(i, choices);
            }
            Event::Hold => turns.hold(i),
            Event::Fault(fault, i) => world.fault(fault, i, choices),
        }
    }
    world.check_end();
}

#[test]
fn semaphore_schedules_with_few_deviations() {
    let semaphore = |wanted: &[Option<u32>], tries, most, at_least| {
        let what = format!("semaphore, {} contenders", wanted.len());
        count(&what, most, at_least, |choices| {
            take_turns(
                wanted
                    .iter()
                    .map(|wanted| actor(*wanted, IfBusy::Wait, tries))
                    .collect(),
                choices,
            );
        });
    };
    semaphore(&[Some(2), Some(2)], 1, 2, 17_000);
    semaphore(&[Some(2), None], 1, 2, 10_000);
    semaphore(&[Some(1), Some(2), Some(1)], 1, 1, 230);
    semaphore(&[Some(1), Some(3), None, Some(2)], 2, 1, 750);
}

#[test]
fn all_are_served_without_faults() {
    assert_eq!(run(&[]), 12);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, ..ProptestConfig::default() })]

    // Shows: permits-by-one-transaction, slots
    #[test]
    fn schedules_respect_limit_and_leave_nothing(
        choices in proptest::collection::vec(any::<u8>(), 0..600)
    ) {
        run(&choices);
    }
}
