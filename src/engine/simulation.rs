//! Contenders against a model of a lock directory, under random schedules with lost replies, creates that come
//! through late, cancellations, expired sessions and nodes deleted by hand: whatever happens, no two of them hold
//! the lock, and none leaves anything behind.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::contender::{
    Answer, Contender, Ending, Event, Failure, Leave, Node, Outcome, Patience, Request, Step,
};
use super::name::{Family, prefix};

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

#[derive(Default)]
struct Directory {
    created: u32,
    /// Name to owner.
    nodes: BTreeMap<String, usize>,
}

impl Directory {
    fn create(&mut self, owner: usize, id: &str) -> Node {
        let name = format!("{}{:010}", prefix(id, Family::Exclusive), self.created);
        self.created += 1;
        self.nodes.insert(name.clone(), owner);
        Node { name, czxid: Some(i64::from(self.created)) }
    }

    fn list(&self) -> Vec<String> {
        self.nodes.keys().cloned().collect()
    }

    fn delete_id(&mut self, id: &str) {
        let beginning = prefix(id, Family::Exclusive);
        self.nodes.retain(|name, _| !name.starts_with(&beginning));
    }
}

enum Doing {
    Idle,
    Queued(Contender, Step),
    /// The watch on the node is set.
    Watching(Contender, String),
    Holding {
        name: String,
    },
}

struct Client {
    doing: Doing,
    /// A create that was sent and not answered, and that the server may still carry out.
    late: Option<String>,
    ids: u32,
    /// Somebody deleted one of our nodes by hand; a grant by a node that is not there is then no error.
    robbed: bool,
}

struct World<'a> {
    directory: Directory,
    clients: Vec<Client>,
    choices: Choices<'a>,
    grants: usize,
}

impl World<'_> {
    fn settle_late(&mut self, i: usize) {
        if let Some(id) = self.clients[i].late.take() {
            if self.choices.chance(128) {
                self.directory.create(i, &id);
            }
        }
    }

    fn clean(&mut self, i: usize, leave: Leave) {
        for name in leave.nodes {
            self.directory.nodes.remove(&name);
        }
        for id in leave.unsettled {
            // The reaper's barrier decides what is under way, then it looks.
            self.settle_late(i);
            self.directory.delete_id(&id);
        }
    }

    fn step(&mut self, i: usize) {
        match std::mem::replace(&mut self.clients[i].doing, Doing::Idle) {
            Doing::Idle => {
                let patience = if self.choices.chance(64) { Patience::Try } else { Patience::Wait };
                let (contender, step) = Contender::new(Family::Exclusive, patience);
                self.clients[i].robbed = false;
                self.clients[i].doing = Doing::Queued(contender, step);
            }
            Doing::Holding { name } => {
                self.directory.nodes.remove(&name);
            }
            Doing::Watching(contender, name) => {
                let event = if !self.directory.nodes.contains_key(&name) {
                    Event::Deleted
                } else if self.choices.chance(16) {
                    Event::Changed
                } else if self.choices.chance(16) {
                    let leave = contender.leave(Step::Do(Request::Watch { predecessor: name }));
                    return self.clean(i, leave);
                } else {
                    self.clients[i].doing = Doing::Watching(contender, name);
                    return;
                };
                self.on(i, contender, event);
            }
            Doing::Queued(mut contender, Step::Do(Request::CreateAndList)) => {
                let lost = self.choices.chance(40);
                let event = self.create(i, lost);
                if self.choices.chance(20) {
                    // The caller went while the create was under way.
                    let step = contender.on(event);
                    let leave = contender.leave(step);
                    return self.clean(i, leave);
                }
                self.on(i, contender, event);
            }
            Doing::Queued(_, Step::Finish(outcome)) => self.finish(i, outcome),
            Doing::Queued(contender, step) if self.choices.chance(10) => {
                let leave = contender.leave(step);
                self.clean(i, leave);
            }
            Doing::Queued(contender, Step::Pause { .. }) => self.on(i, contender, Event::Retry),
            Doing::Queued(contender, Step::Do(request)) => {
                let lost = self.choices.chance(40);
                let event = match request {
                    Request::CreateAndList | Request::MakeParents => Event::ParentsMade(Answer::Is(())),
                    Request::List if lost => Event::Listed(Answer::No(Failure::Unknown)),
                    Request::List => Event::Listed(Answer::Is(self.directory.list())),
                    Request::Inspect { .. } if lost => Event::Inspected(Answer::No(Failure::Unknown)),
                    Request::Inspect { name } if self.directory.nodes.contains_key(&name) => {
                        Event::Inspected(Answer::Is(Node { name, czxid: Some(1) }))
                    }
                    Request::Inspect { .. } => Event::Inspected(Answer::No(Failure::NoNode)),
                    Request::Watch { .. } if lost => Event::WatchFailed(Failure::Unknown),
                    Request::Watch { predecessor } if self.directory.nodes.contains_key(&predecessor) => {
                        self.clients[i].doing = Doing::Watching(contender, predecessor);
                        return;
                    }
                    Request::Watch { .. } => Event::Changed,
                };
                self.on(i, contender, event);
            }
        }
    }

    fn on(&mut self, i: usize, mut contender: Contender, event: Event) {
        let step = contender.on(event);
        for name in contender.take_surplus() {
            self.directory.nodes.remove(&name);
        }
        self.clients[i].doing = Doing::Queued(contender, step);
        if let Doing::Queued(_, Step::Finish(_)) = &self.clients[i].doing {
            self.step(i);
        }
    }

    fn create(&mut self, i: usize, lost: bool) -> Event {
        // What the session sent before is decided before a new create is.
        self.settle_late(i);
        self.clients[i].ids += 1;
        let id = format!("{i}x{}", self.clients[i].ids);
        let create = if !lost {
            Answer::Is(self.directory.create(i, &id))
        } else {
            match self.choices.below(3) {
                // Carried out, and the answer lost; or still under way; or never to come.
                0 => drop(self.directory.create(i, &id)),
                1 => self.clients[i].late = Some(id.clone()),
                _ => {}
            }
            Answer::No(Failure::Unknown)
        };
        let list = if self.choices.chance(40) {
            Answer::No(Failure::Unknown)
        } else {
            Answer::Is(self.directory.list())
        };
        Event::Created { id, create, list }
    }

    fn finish(&mut self, i: usize, outcome: Outcome) {
        match outcome {
            Outcome::Granted { name, also, .. } => {
                self.clean(i, also);
                if self.directory.nodes.contains_key(&name) {
                    self.clients[i].doing = Doing::Holding { name };
                    self.grants += 1;
                } else {
                    assert!(self.clients[i].robbed, "granted by a node that is not there");
                }
            }
            Outcome::Ended { why, leave } => {
                assert_eq!(why, Ending::WouldBlock);
                self.clean(i, leave);
            }
        }
    }

    /// The session is over: its nodes go, and whatever it had under way.
    fn expire(&mut self, i: usize) {
        self.clients[i].late = None;
        self.clients[i].doing = Doing::Idle;
        self.directory.nodes.retain(|_, owner| *owner != i);
    }

    fn rob(&mut self) {
        let count = self.directory.nodes.len();
        if count > 0 {
            let n = self.choices.below(count);
            if let Some((name, owner)) = self.directory.nodes.iter().nth(n).map(|(n, o)| (n.clone(), *o)) {
                self.directory.nodes.remove(&name);
                self.clients[owner].robbed = true;
            }
        }
    }

    /// Who holds the lock by a node that is there.
    fn holders(&self) -> usize {
        let holds = |client: &&Client| matches!(&client.doing, Doing::Holding { name } if self.directory.nodes.contains_key(name));
        self.clients.iter().filter(holds).count()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_schedule_gives_two_holders_or_leaves_a_node(bytes in prop::collection::vec(any::<u8>(), 50..1_500)) {
        let client = || Client { doing: Doing::Idle, late: None, ids: 0, robbed: false };
        let mut world = World {
            directory: Directory::default(),
            clients: (0..4).map(|_| client()).collect(),
            choices: Choices { bytes: bytes.iter() },
            grants: 0,
        };
        while world.choices.bytes.len() > 0 {
            match world.choices.next() {
                0..3 => world.rob(),
                3..6 => {
                    let i = world.choices.below(4);
                    world.expire(i);
                }
                _ => {
                    let i = world.choices.below(4);
                    world.step(i);
                }
            }
            prop_assert!(world.holders() <= 1, "{} holders", world.holders());
        }
        // Now that all goes well, everybody who waits is served: no wake-up was lost.
        for _ in 0..200 {
            for i in 0..4 {
                if !matches!(world.clients[i].doing, Doing::Idle) {
                    world.step(i);
                    prop_assert!(world.holders() <= 1);
                }
            }
        }
        let busy = world.clients.iter().filter(|client| !matches!(client.doing, Doing::Idle)).count();
        prop_assert_eq!(busy, 0, "still waiting with nobody there");
        prop_assert_eq!(world.directory.list(), Vec::<String>::new(), "left behind");
    }
}
