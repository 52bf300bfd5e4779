//! All schedules with few deviations of clients whose readers share a read node ([`PathState`]),
//! together with writers. The states of the path and the order of the queue are the real ones; the
//! servers and the attempts are modelled here.
//!
//! In every schedule, no reader holds the lock together with a writer, every caller is served in
//! the end, and each shared node is deleted once, with its last reader
//! (docs/protocol.md#shared-read-node).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::choices::{Choices, Turns, count};
use crate::protocol::moment::Moment;
use crate::protocol::node_name::{Dialect, Family, Kind, Naming};
use crate::protocol::numbers::NodeNumber;
use crate::protocol::numbers::by_value::hold_number;
use crate::protocol::path_state::{HandOff, PassOn, PathState};
use crate::protocol::queue::{Listing, Position, Queue};

const NAMING: Naming = Naming {
    family: Family::ReadWrite,
    dialect: Dialect::Curator,
};
const NOW: Moment = Moment::at(Duration::ZERO);
const UNBOUNDED: HandOff = HandOff {
    max: u32::MAX,
    time: Duration::MAX,
};

/// The actors, which make steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Task {
    Caller(usize),
    /// The deletion of the next node that is to be deleted.
    Deletion,
}

#[derive(Clone, Debug)]
enum Event {
    Step(Task),
    Hold(Task),
    Leave(usize),
    Expire(usize),
    DeleteNode(String),
    /// The time is over in which further readers join the node of this client.
    Close(usize),
}

#[derive(Clone, Debug)]
enum Doing {
    Idle,
    Waits(String),
    /// Reads by this hold of a shared node.
    Reads {
        node: usize,
        hold: u64,
    },
    Writes(String),
}

#[derive(Clone, Debug)]
struct Caller {
    client: usize,
    kind: Kind,
    attempts: u32,
    doing: Doing,
}

struct SharedNode {
    client: usize,
    name: String,
    number: NodeNumber,
    is_deleted: bool,
}

struct World<'a> {
    callers: Vec<Caller>,
    paths: Vec<PathState<usize, (), usize>>,
    shared: Vec<SharedNode>,
    numbers: u64,
    created: u32,
    /// The nodes that exist, and their clients.
    nodes: BTreeMap<String, usize>,
    deletions: Vec<String>,
    choices: &'a mut Choices,
}

impl World<'_> {
    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn insert(&mut self, name: String, client: usize) {
        self.created += 1;
        self.nodes.insert(name, client);
    }

    fn create(&mut self, i: usize) {
        let Caller { client, kind, .. } = self.callers[i];
        let name = format!(
            "{}{:010}",
            NAMING.prefix(&format!("{i}x{}", self.number()), kind),
            self.created
        );
        self.insert(name.clone(), client);
        self.callers[i].doing = Doing::Waits(name);
    }

    fn list(&self) -> Listing {
        Queue::read(self.nodes.keys().cloned().collect(), NAMING)
    }

    fn waits(&self, name: &str) -> bool {
        matches!(
            self.list().unwrap().position(name),
            Some(Position::Behind { .. })
        )
    }

    fn ready(&self) -> Vec<Task> {
        let is_ready = |caller: &Caller| match &caller.doing {
            Doing::Idle => caller.attempts > 0,
            // A caller whose node is gone is ready, too, because it has to queue again.
            Doing::Waits(name) => !self.waits(name),
            Doing::Reads { .. } | Doing::Writes(_) => true,
        };
        let callers = (0..self.callers.len())
            .filter(|i| is_ready(&self.callers[*i]))
            .map(Task::Caller);
        let deletion = (!self.deletions.is_empty()).then_some(Task::Deletion);
        callers.chain(deletion).collect()
    }

    fn step(&mut self, task: Task) {
        match task {
            Task::Caller(i) => self.call(i),
            // Nodes are deleted in the order in which they were given to cleanup. Some are gone
            // already.
            Task::Deletion => drop(self.nodes.remove(&self.deletions.remove(0))),
        }
    }

    fn call(&mut self, i: usize) {
        match self.callers[i].doing.clone() {
            Doing::Idle => {
                self.callers[i].attempts -= 1;
                let Caller { client, kind, .. } = self.callers[i];
                // A reader that finds an open node of its client needs no request. A writer always
                // queues.
                match if kind == Kind::Shared {
                    self.join(client, i)
                } else {
                    None
                } {
                    Some(reads) => self.callers[i].doing = reads,
                    None => self.create(i),
                }
            }
            // A waiter without a node is never granted the lock
            // (docs/protocol.md#waiter-without-node).
            Doing::Waits(name) if !self.nodes.contains_key(&name) => self.create(i),
            Doing::Waits(name) if self.callers[i].kind == Kind::Exclusive => {
                self.callers[i].doing = Doing::Writes(name);
            }
            Doing::Waits(name) => {
                let (client, hold) = (self.callers[i].client, self.number());
                // A reader that has queued by itself has a separate node. One node of a client is
                // open at a time, so if another is open, no reader joins this one.
                let number = self.paths[client].add(hold_number(hold), Kind::Shared, i, NOW);
                self.paths[client].open(number);
                self.callers[i].doing = Doing::Reads {
                    node: self.shared.len(),
                    hold,
                };
                self.shared.push(SharedNode {
                    client,
                    name,
                    number,
                    is_deleted: false,
                });
            }
            Doing::Reads { node, hold } => {
                self.callers[i].doing = Doing::Idle;
                self.leave(node, hold);
            }
            Doing::Writes(name) => {
                self.deletions.push(name);
                self.callers[i].doing = Doing::Idle;
            }
        }
    }

    /// Makes a reader join the open node of its client, if there is one.
    fn join(&mut self, c: usize, i: usize) -> Option<Doing> {
        let new = self.number();
        // A session is always healthy here, because its end takes all of its holds away in one
        // step.
        let (number, _) = self.paths[c].join(NOW, true)?;
        let is_open = |node: &SharedNode| node.client == c && node.number == number;
        let node = self.shared.iter().position(is_open)?;
        self.paths[c].enter(number, hold_number(new), i);
        Some(Doing::Reads { node, hold: new })
    }

    fn leave(&mut self, node: usize, hold: u64) {
        let SharedNode { client, number, .. } = self.shared[node];
        match self.paths[client].released(number, hold_number(hold), NOW, true) {
            // Other readers hold the lock with the node.
            PassOn::Stays => {}
            PassOn::Delete => {
                // The path forgets the node only when the deletion is on its way, so that no create
                // of this client is sent ahead of it.
                self.delete_shared(node);
                self.paths[client].hold_ended(number, hold_number(hold));
            }
            // Only a writer's node is handed to a waiting caller.
            PassOn::To(..) => panic!("none waits in memory"),
        }
    }

    fn delete_shared(&mut self, node: usize) {
        let readers = self.callers.iter().filter(
            |caller| matches!(&caller.doing, Doing::Reads { node: other, .. } if *other == node),
        );
        assert_eq!(readers.count(), 0, "deleted under a reader");
        assert!(
            !std::mem::replace(&mut self.shared[node].is_deleted, true),
            "deleted twice"
        );
        self.deletions.push(self.shared[node].name.clone());
    }

    /// The nodes with these names are gone, and their holders are notified.
    fn gone(&mut self, names: &BTreeSet<String>) {
        self.nodes.retain(|name, _| !names.contains(name));
        for (number, node) in self
            .shared
            .iter()
            .enumerate()
            .filter(|(_, node)| names.contains(&node.name))
        {
            // Which hold reports the end of the node matters only during a conversion, which does
            // not occur here.
            let notified = self.paths[node.client].node_missing(node.number, hold_number(0));
            self.paths[node.client].hold_lost(node.number);
            for (i, caller) in self.callers.iter_mut().enumerate() {
                let reads = matches!(caller.doing, Doing::Reads { node, .. } if node == number);
                assert_eq!(
                    reads,
                    notified.contains(&i),
                    "expected every reader to be notified"
                );
                if reads {
                    caller.doing = Doing::Idle;
                }
            }
        }
        for caller in &mut self.callers {
            if matches!(&caller.doing, Doing::Writes(name) if names.contains(name)) {
                caller.doing = Doing::Idle;
            }
        }
    }

    fn expire(&mut self, c: usize) {
        let names = self
            .nodes
            .iter()
            .filter(|(_, client)| **client == c)
            .map(|(name, _)| name.clone())
            .collect();
        self.gone(&names);
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Step(task) => self.step(task),
            // The turns keep the task from its next step.
            Event::Hold(_) => {}
            Event::Leave(i) => {
                // The caller leaves the queue, and cleanup has its node.
                if let Doing::Waits(name) =
                    std::mem::replace(&mut self.callers[i].doing, Doing::Idle)
                {
                    self.deletions.push(name);
                }
            }
            Event::Expire(c) => self.expire(c),
            Event::DeleteNode(name) => self.gone(&BTreeSet::from([name])),
            // The clock stands still in this model, so the end of the bounds is an event.
            Event::Close(client) => self.paths[client].waiters.of_mut(Kind::Shared).close(),
        }
    }

    fn events(&self, turn: Task) -> Vec<Event> {
        let mut events = vec![Event::Step(turn), Event::Hold(turn)];
        let waits = |i: &usize| matches!(self.callers[*i].doing, Doing::Waits(_));
        events.extend((0..self.callers.len()).filter(waits).map(Event::Leave));
        events.extend(self.nodes.keys().cloned().map(Event::DeleteNode));
        let clients: BTreeSet<_> = self.nodes.values().copied().collect();
        events.extend(clients.into_iter().map(Event::Expire));
        let is_open = |client: &usize| self.paths[*client].waiters.of(Kind::Shared).has_open_node();
        events.extend((0..self.paths.len()).filter(is_open).map(Event::Close));
        events
    }

    fn check(&self) {
        let (mut readers, mut writers) = (0, 0);
        for caller in &self.callers {
            match &caller.doing {
                Doing::Reads { node, .. } => {
                    // Readers whose node was deleted by another process, or with its session, were
                    // notified in the same step. So each reader's node exists.
                    assert!(
                        self.nodes.contains_key(&self.shared[*node].name),
                        "deleted under a reader"
                    );
                    readers += 1;
                }
                Doing::Writes(name) if self.nodes.contains_key(name) => writers += 1,
                _ => {}
            }
        }
        assert!(
            writers == 0 || writers == 1 && readers == 0,
            "{readers} readers, {writers} writers"
        );
    }

    fn run(mut self) {
        let mut turns = Turns::new();
        loop {
            // A reader keeps the lock until all others wait, so that later readers can join its
            // node.
            let reads = |task| match task {
                Task::Caller(i) => matches!(self.callers[i].doing, Doing::Reads { .. }),
                _ => false,
            };
            let Some(turn) = turns.next_patient(&self.ready(), reads) else {
                // No task is ready: all callers must have been served, or one of them has missed the
                // end of its predecessor.
                let is_done =
                    |caller: &Caller| matches!(caller.doing, Doing::Idle) && caller.attempts == 0;
                assert!(
                    self.callers.iter().all(is_done),
                    "wait for ever: {:#?}, {:?}",
                    self.callers,
                    self.nodes
                );
                break;
            };
            let events = self.events(turn);
            let event = events[self.choices.below(events.len())].clone();
            self.choices.note(&event);
            match event {
                Event::Step(task) => turns.had(task),
                Event::Hold(task) => turns.hold(task),
                _ => {}
            }
            self.happens(event);
            self.check();
        }
        assert!(self.nodes.is_empty(), "never deleted: {:?}", self.nodes);
    }
}

const READER: Caller = Caller {
    client: 0,
    kind: Kind::Shared,
    attempts: 1,
    doing: Doing::Idle,
};
const WRITER: Caller = Caller {
    kind: Kind::Exclusive,
    ..READER
};

/// Returns the caller for the other client, with two attempts.
fn other(caller: Caller) -> Caller {
    Caller {
        client: 1,
        attempts: 2,
        ..caller
    }
}

#[test]
fn shared_read_schedules_with_few_deviations() {
    let reads = |team: &[Caller], most, at_least| {
        count(
            &format!("shared read nodes, {} contenders", team.len()),
            most,
            at_least,
            |choices| {
                let world = World {
                    callers: team.to_vec(),
                    paths: (0..2).map(|_| PathState::new(UNBOUNDED)).collect(),
                    shared: Vec::new(),
                    numbers: 0,
                    created: 0,
                    nodes: BTreeMap::new(),
                    deletions: Vec::new(),
                    choices,
                };
                world.run();
            },
        );
    };
    reads(&[READER, other(WRITER)], 2, 1_150);
    reads(&[READER, READER, other(READER)], 2, 2_000);
    reads(&[READER, READER, other(READER), other(WRITER)], 1, 140);
}
