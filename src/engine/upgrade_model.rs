//! Every interleaving of a few readers, writers and upgraders, with crashes anywhere, on the real rules of
//! [`queue`](super::queue): nobody is ever inside beside a writer, and nobody waits for ever.
//!
//! What a contender does is cut where others can come between: a node is created; a list is taken; what the list said is
//! acted on.

use std::collections::{BTreeSet, HashSet};

use super::name::{Dialect, Family, Kind, Naming};
use super::queue::{Place, Queue, Upgrade};

const NAMING: Naming = Naming { family: Family::ReadWrite, dialect: Dialect::Curator };

/// What an actor is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Phase {
    /// Not there yet.
    Start,
    /// Its node exists; takes a list.
    Look,
    /// A list said that it is inside.
    Enter,
    Inside,
    /// It has put its write node beside; takes a list.
    Judge,
    /// A list said that it may be the writer.
    Rise,
    /// A list said that it may not: takes its write node back.
    Retreat,
    /// Inside as the writer that it became.
    Risen,
    /// Gives its write node back, then the rest.
    Leave,
    End,
}

/// What an actor wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Reader,
    Writer,
    /// Reads, and tries to become the writer, once.
    Upgrader,
    /// Writes, becomes a reader, and tries to become the writer again.
    Downgrader,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Actor {
    phase: Phase,
    sequence: Option<u32>,
    /// What it is inside as.
    writes: bool,
    /// It has changed once already.
    downgraded: bool,
    tried: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct State {
    created: u32,
    /// Kind, number and owner of each node.
    nodes: BTreeSet<(u32, bool, usize)>,
    actors: Vec<Actor>,
    crashes: u32,
}

fn name(&(sequence, writes, owner): &(u32, bool, usize)) -> String {
    let kind = if writes { Kind::Exclusive } else { Kind::Shared };
    format!("{}{sequence:010}", NAMING.prefix(&owner.to_string(), kind))
}

impl State {
    fn queue(&self) -> std::sync::Arc<Queue> {
        Queue::read(self.nodes.iter().map(name).collect(), NAMING).unwrap()
    }

    fn delete(&mut self, node: (u32, bool, usize)) {
        self.nodes.remove(&node);
    }

    fn inside(&self) -> (usize, usize) {
        let inside = |actor: &&Actor| {
            // Whoever has not acted on what it was told is inside as what it was before.
            matches!(actor.phase, Phase::Inside | Phase::Judge | Phase::Rise | Phase::Retreat | Phase::Risen)
        };
        let writers = self.actors.iter().filter(inside).filter(|actor| actor.writes).count();
        (self.actors.iter().filter(inside).count() - writers, writers)
    }

    /// The states that may come next by what actor `i` does.
    fn next(&self, i: usize, role: Role, crashes: u32) -> Vec<Self> {
        let mut all = Vec::new();
        let actor = &self.actors[i];
        let mut with = |change: &dyn Fn(&mut Self)| {
            let mut next = self.clone();
            change(&mut next);
            all.push(next);
        };
        if self.crashes < crashes && !matches!(actor.phase, Phase::Start | Phase::End) {
            // Its session ends: all of its nodes go at once.
            with(&|state| {
                state.crashes += 1;
                state.nodes.retain(|&(_, _, owner)| owner != i);
                state.actors[i].phase = Phase::End;
            });
        }
        let own = |writes| (actor.sequence.unwrap_or_default(), writes, i);
        let to = |state: &mut Self, phase| state.actors[i].phase = phase;
        match actor.phase {
            Phase::Start => with(&|state| {
                let writes = matches!(role, Role::Writer | Role::Downgrader);
                state.actors[i].sequence = Some(state.created);
                state.actors[i].writes = writes;
                state.nodes.insert((state.created, writes, i));
                state.created += 1;
                to(state, Phase::Look);
            }),
            Phase::Look => {
                if self.queue().place(&name(&own(actor.writes))) == Some(Place::First) {
                    with(&|state| to(state, Phase::Enter));
                }
            }
            Phase::Enter => with(&|state| to(state, Phase::Inside)),
            Phase::Inside => {
                with(&|state| to(state, Phase::Leave));
                if role == Role::Downgrader && !actor.downgraded {
                    with(&|state| {
                        state.nodes.remove(&own(true));
                        state.nodes.insert(own(false));
                        state.actors[i].writes = false;
                        state.actors[i].downgraded = true;
                        state.created += 1;
                    });
                }
                if !actor.writes && !actor.tried && matches!(role, Role::Upgrader | Role::Downgrader) {
                    with(&|state| {
                        state.nodes.insert(own(true));
                        state.actors[i].tried = true;
                        state.created += 1;
                        to(state, Phase::Judge);
                    });
                }
            }
            Phase::Judge => {
                let upgrade = self.queue().upgrade(&name(&own(false)), &name(&own(true)));
                with(&|state| {
                    to(state, if upgrade == Upgrade::Alone { Phase::Rise } else { Phase::Retreat });
                });
            }
            Phase::Rise => with(&|state| {
                state.actors[i].writes = true;
                to(state, Phase::Risen);
            }),
            Phase::Retreat => with(&|state| {
                state.nodes.remove(&own(true));
                to(state, Phase::Inside);
            }),
            Phase::Risen => {
                // Its read node goes some time, before or after it leaves.
                if self.nodes.contains(&own(false)) {
                    with(&|state| state.delete(own(false)));
                }
                with(&|state| to(state, Phase::Leave));
            }
            Phase::Leave if self.nodes.contains(&own(true)) => with(&|state| state.delete(own(true))),
            Phase::Leave if self.nodes.contains(&own(false)) => with(&|state| state.delete(own(false))),
            Phase::Leave => with(&|state| to(state, Phase::End)),
            Phase::End => {}
        }
        all
    }
}

/// Looks at every state that can be reached; answers how many there are.
fn explore(roles: &[Role], crashes: u32) -> usize {
    let actor = Actor { phase: Phase::Start, sequence: None, writes: false, downgraded: false, tried: false };
    let actors = vec![actor; roles.len()];
    let start = State { created: 0, nodes: BTreeSet::new(), actors, crashes: 0 };
    let mut seen = HashSet::from([start.clone()]);
    let mut open = vec![start];
    while let Some(state) = open.pop() {
        let (readers, writers) = state.inside();
        assert!(writers == 0 || writers == 1 && readers == 0, "{roles:?}: {state:#?}");
        let next: Vec<_> = (0..roles.len()).flat_map(|i| state.next(i, roles[i], crashes)).collect();
        let over = state.actors.iter().all(|actor| actor.phase == Phase::End);
        assert!(over || !next.is_empty(), "{roles:?} wait for ever: {state:#?}");
        assert!(!over || state.nodes.is_empty(), "{roles:?} left: {state:#?}");
        open.extend(next.into_iter().filter(|next| seen.insert(next.clone())));
    }
    seen.len()
}

const ROLES: [Role; 4] = [Role::Reader, Role::Writer, Role::Upgrader, Role::Downgrader];

/// All teams of three, with a crash.
#[test]
fn any_three_with_a_crash() {
    let mut states = 0;
    for (i, a) in ROLES.into_iter().enumerate() {
        for (j, b) in ROLES.into_iter().enumerate().skip(i) {
            for c in ROLES.into_iter().skip(j) {
                states += explore(&[a, b, c], 1);
            }
        }
    }
    assert!(states > 10_000, "{states} states");
}

/// The teams of four in which upgraders meet.
#[test]
fn four_of_whom_two_change() {
    use Role::{Downgrader, Reader, Upgrader, Writer};
    for team in [
        [Upgrader, Upgrader, Reader, Writer],
        [Upgrader, Downgrader, Reader, Writer],
        [Upgrader, Upgrader, Upgrader, Reader],
    ] {
        assert!(explore(&team, 0) > 1_000);
    }
}
