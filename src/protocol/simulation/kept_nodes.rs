//! All schedules with few deviations of clients that keep the node of a mutex ([`Room`]). The room
//! is the real one; the servers, the attempts and the watch of a node that is kept are modelled
//! here.
//!
//! In every schedule, one caller of all clients holds the lock at a time, every caller that waits
//! is served in the end, also behind a node that another client keeps, and each node is deleted
//! once (docs/protocol.md#hand-off, docs/protocol.md#kept-node).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::choices::{Choices, Turns, count};
use crate::protocol::moment::Moment;
use crate::protocol::node_name::Kind;
use crate::protocol::room::{Arrival, HandOff, Newcomer, PassOn, Room};

const BOUNDS: HandOff = HandOff {
    max: 2,
    time: Duration::from_secs(1),
};

/// The actors, which make steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Task {
    Caller(usize),
    /// The attempt of a client.
    Attempt(usize),
    /// The deletion of a node.
    Deletion(u64),
    Watch(usize),
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Step(Task),
    Hold(Task),
    Leave(usize),
    Expire(usize),
    DeleteNode(u64),
    /// The watch of a client is interrupted.
    Interrupt(usize),
    /// The node of a client has been kept for long enough.
    Idle(usize),
}

#[derive(Clone, Copy, Debug)]
enum Doing {
    Idle,
    Waits(Arrival),
    Holds,
}

#[derive(Clone, Copy, Debug)]
struct Caller {
    client: usize,
    /// Whether it waits for no other contender.
    tries: bool,
    /// How many attempts are left.
    attempts: u32,
    doing: Doing,
}

impl Caller {
    fn is_done(&self) -> bool {
        matches!(self.doing, Doing::Idle) && self.attempts == 0
    }
}

/// The node by which a client has the lock, by its number, the number of the hold, and the holder;
/// without one it is kept.
#[derive(Clone, Copy, Debug)]
struct Has {
    node: u64,
    /// The number of the node in the room, which is that of its first hold.
    number: u64,
    hold: u64,
    caller: Option<usize>,
}

struct Client {
    room: Room<usize, (), u64>,
    has: Option<Has>,
    /// The node of the attempt under way.
    attempt: Option<u64>,
    /// The node that is watched for others, and whether the watch is set.
    watch: Option<(u64, bool)>,
}

struct World<'a> {
    callers: Vec<Caller>,
    clients: Vec<Client>,
    numbers: u64,
    /// The nodes that exist, and their clients.
    nodes: BTreeMap<u64, usize>,
    /// The nodes that are about to be deleted, and their clients; and all that ever were.
    deletions: BTreeMap<u64, usize>,
    deleted: BTreeSet<u64>,
    choices: &'a mut Choices,
}

impl World<'_> {
    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn create(&mut self, c: usize) -> u64 {
        let node = self.number();
        self.nodes.insert(node, c);
        node
    }

    fn delete(&mut self, c: usize, node: u64) {
        assert!(self.deleted.insert(node), "deleted twice");
        self.deletions.insert(node, c);
    }

    fn is_first(&self, node: u64) -> bool {
        self.nodes
            .first_key_value()
            .is_some_and(|(first, _)| *first == node)
    }

    fn others(&self, c: usize) -> bool {
        self.nodes.values().any(|client| *client != c)
    }

    fn ready(&self) -> Vec<Task> {
        let is_ready = |caller: &Caller| match caller.doing {
            Doing::Idle => caller.attempts > 0,
            Doing::Waits(_) => false,
            Doing::Holds => true,
        };
        let callers = (0..self.callers.len()).filter(|i| is_ready(&self.callers[*i]));
        let attempts = (0..self.clients.len()).filter(|c| {
            let client = &self.clients[*c];
            client.attempt.map_or_else(
                || client.room.wants_attempt(),
                |node| self.is_first(node) || !self.nodes.contains_key(&node),
            )
        });
        let watches = (0..self.clients.len()).filter(|c| {
            self.clients[*c]
                .watch
                .is_some_and(|(_, is_set)| !is_set || self.others(*c))
        });
        let deletions = self.deletions.keys().copied().map(Task::Deletion);
        let tasks = callers
            .map(Task::Caller)
            .chain(attempts.map(Task::Attempt))
            .chain(deletions);
        tasks.chain(watches.map(Task::Watch)).collect()
    }

    fn step(&mut self, task: Task) {
        match task {
            Task::Caller(i) => match self.callers[i].doing {
                Doing::Idle => {
                    self.callers[i].attempts -= 1;
                    self.arrive(i);
                }
                Doing::Waits(_) => {}
                Doing::Holds => {
                    self.callers[i].doing = Doing::Idle;
                    let healthy = !self.choices.chance(40);
                    self.release(self.callers[i].client, healthy);
                }
            },
            Task::Attempt(c) => self.attempt(c),
            Task::Deletion(node) => {
                self.nodes.remove(&node);
                self.deletions.remove(&node);
            }
            Task::Watch(c) => match self.clients[c].watch {
                Some((node, false)) if !self.others(c) => {
                    self.clients[c].watch = Some((node, true));
                }
                _ => self.others_come(c),
            },
        }
    }

    fn arrive(&mut self, i: usize) {
        let (
            number,
            Caller {
                client: c, tries, ..
            },
        ) = (self.number(), self.callers[i]);
        let is_kept = |client: &Client| client.has.is_some_and(|has| has.caller.is_none());
        let healthy = !(is_kept(&self.clients[c]) && self.choices.chance(40));
        match self.clients[c]
            .room
            .newcomer(Moment::at(Duration::ZERO), healthy)
        {
            Newcomer::Has(hold) => {
                self.clients[c].room.enter(hold, hold);
                return self.has_it(c, i);
            }
            Newcomer::Joins(_) => panic!("a second holder"),
            Newcomer::GivenUp(_) => self.release(c, healthy),
            Newcomer::Waits => {}
        }
        if !tries {
            let at = Arrival::new(number, false);
            self.clients[c].room.wait(at, i, None);
            self.callers[i].doing = Doing::Waits(at);
        } else if self.nodes.is_empty() {
            // It looks before it makes a node.
            let (node, hold) = (self.create(c), self.number());
            assert!(
                self.clients[c]
                    .room
                    .adopt(hold, hold, Moment::at(Duration::ZERO)),
                "another node of this client"
            );
            self.clients[c].has = Some(Has {
                node,
                number: hold,
                hold,
                caller: None,
            });
            self.has_it(c, i);
        }
    }

    /// A caller has the node of its client.
    fn has_it(&mut self, c: usize, i: usize) {
        self.clients[c]
            .has
            .as_mut()
            .expect("there is a node")
            .caller = Some(i);
        self.callers[i].doing = Doing::Holds;
    }

    /// The node of a client is released by its holder, or given up.
    fn release(&mut self, c: usize, healthy: bool) {
        let idle = self.number();
        let now = Moment::at(Duration::ZERO);
        let Has {
            node, number, hold, ..
        } = self.clients[c].has.take().expect("there is a node");
        let next = self.clients[c].room.released(number, hold, now, healthy);
        let hold = match next {
            PassOn::To(at, _) => at.number(),
            PassOn::Keep => idle,
            PassOn::Stays => panic!("a second holder"),
            PassOn::Delete => {
                self.delete(c, node);
                return self.clients[c].room.over(number, hold);
            }
        };
        self.clients[c].room.enter(hold, hold);
        self.clients[c].has = Some(Has {
            node,
            number,
            hold,
            caller: None,
        });
        if let PassOn::To(_, i) = next {
            self.has_it(c, i);
        }
        if let Some(number) = self.clients[c].room.begin_look() {
            self.clients[c].watch = Some((number, false));
        }
    }

    fn attempt(&mut self, c: usize) {
        let Some(node) = self.clients[c].attempt else {
            self.clients[c].room.attempt_begins();
            return self.clients[c].attempt = Some(self.create(c));
        };
        if self.nodes.contains_key(&node) {
            let hold = self.number();
            self.clients[c].attempt = None;
            self.clients[c].has = Some(Has {
                node,
                number: hold,
                hold,
                caller: None,
            });
            match self.clients[c]
                .room
                .granted(hold, hold, Moment::at(Duration::ZERO))[..]
            {
                [i] => self.has_it(c, i),
                _ => self.release(c, true),
            }
        } else {
            self.clients[c].attempt = Some(self.create(c));
        }
    }

    fn others_come(&mut self, c: usize) {
        if let Some((node, _)) = self.clients[c].watch.take() {
            if self.clients[c].room.others_come(node).is_some() {
                self.release(c, true);
            }
        }
    }

    fn leave(&mut self, i: usize) {
        let Doing::Waits(at) = self.callers[i].doing else {
            return;
        };
        self.callers[i].doing = Doing::Idle;
        let c = self.callers[i].client;
        assert_eq!(self.clients[c].room.leave(at), Some(i));
        if self.clients[c].room.abandon_attempt() {
            if let Some(node) = self.clients[c].attempt.take() {
                self.delete(c, node);
            }
        }
    }

    /// The client has lost the lock, if it had it by this node.
    fn lose(&mut self, c: usize, node: u64) {
        let Some(has) = self.clients[c].has.take_if(|has| has.node == node) else {
            return;
        };
        self.clients[c].room.gone(has.number);
        self.clients[c].room.lost(has.number);
        if let Some(i) = has.caller {
            self.callers[i].doing = Doing::Idle;
        }
    }

    fn expire(&mut self, c: usize) {
        self.nodes.retain(|_, client| *client != c);
        self.deletions.retain(|_, client| *client != c);
        self.others_come(c);
        if let Some(has) = self.clients[c].has {
            self.lose(c, has.node);
        }
        self.deletions.retain(|_, client| *client != c);
    }

    fn events(&self, turn: Task) -> Vec<Event> {
        let mut events = vec![Event::Step(turn), Event::Hold(turn)];
        let waits = |i: &usize| matches!(self.callers[*i].doing, Doing::Waits(_));
        events.extend((0..self.callers.len()).filter(waits).map(Event::Leave));
        events.extend(self.nodes.keys().copied().map(Event::DeleteNode));
        for (c, client) in self.clients.iter().enumerate() {
            if self.nodes.values().any(|owner| *owner == c) {
                events.push(Event::Expire(c));
            }
            if client.watch.is_some() {
                events.push(Event::Interrupt(c));
            }
            if client.has.is_some_and(|has| has.caller.is_none()) {
                events.push(Event::Idle(c));
            }
        }
        events
    }

    fn check(&self) {
        let holds = |client: &&Client| {
            client
                .has
                .is_some_and(|has| has.caller.is_some() && self.nodes.contains_key(&has.node))
        };
        assert!(
            self.clients.iter().filter(holds).count() <= 1,
            "two hold the lock"
        );
    }

    fn run(mut self) {
        let mut turns = Turns::new();
        loop {
            let Some(turn) = turns.next(&self.ready()) else {
                assert!(
                    self.callers.iter().all(Caller::is_done),
                    "wait for ever: {:?}",
                    self.callers
                );
                // The last handles go.
                let kept = |client: &mut Client| client.room.close().is_some();
                let Some(c) = self.clients.iter_mut().position(kept) else {
                    break;
                };
                self.release(c, true);
                continue;
            };
            let events = self.events(turn);
            let event = events[self.choices.below(events.len())];
            self.choices.note(&event);
            match event {
                Event::Step(task) => {
                    turns.had(task);
                    self.step(task);
                }
                Event::Hold(task) => turns.hold(task),
                Event::Leave(i) => self.leave(i),
                Event::Expire(c) => self.expire(c),
                Event::DeleteNode(node) => {
                    if let Some(c) = self.nodes.remove(&node) {
                        self.lose(c, node);
                    }
                }
                Event::Interrupt(c) => self.others_come(c),
                Event::Idle(c) => {
                    assert!(self.clients[c].room.give_up().is_some(), "it is kept");
                    self.release(c, true);
                }
            }
            self.check();
        }
        assert!(self.nodes.is_empty(), "never deleted: {:?}", self.nodes);
        assert!(
            self.clients.iter().all(|client| !client.room.has_node()),
            "a node that is not there"
        );
    }
}

/// Runs all schedules of callers, each of which is given by its client.
fn enumerate(clients: &[usize], tries: bool, bounds: HandOff, most: usize, at_least: usize) {
    count(
        &format!("kept node, {} contenders", clients.len()),
        most,
        at_least,
        |choices| {
            let room = || Client {
                room: Room::new(Kind::Exclusive, bounds, true),
                has: None,
                attempt: None,
                watch: None,
            };
            let caller = |client: &usize| Caller {
                client: *client,
                tries: tries && *client > 0,
                attempts: 2,
                doing: Doing::Idle,
            };
            let world = World {
                callers: clients.iter().map(caller).collect(),
                clients: (0..2).map(|_| room()).collect(),
                numbers: 0,
                nodes: BTreeMap::new(),
                deletions: BTreeMap::new(),
                deleted: BTreeSet::new(),
                choices,
            };
            world.run();
        },
    );
}

#[test]
fn every_schedule_of_kept_nodes_with_few_deviations() {
    let waits = false;
    enumerate(&[0, 1], waits, HandOff::NONE, 2, 8_500);
    enumerate(&[0, 1], true, HandOff::NONE, 1, 60);
    enumerate(&[0, 0, 1], waits, BOUNDS, 2, 15_000);
    enumerate(&[0, 0, 1, 1], waits, BOUNDS, 1, 200);
}
