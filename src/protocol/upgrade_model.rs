//! Every interleaving of a few readers, writers and upgraders, with a fault anywhere, on the real rules of
//! [`queue`](crate::protocol::queue) and the real steps of [`conversion`](crate::protocol::convert): no contender is ever inside beside a writer,
//! none waits for ever, nothing is left but what the servers refused to delete, and fencing tokens are in order.
//!
//! What a contender does is cut where others can come between: each request is one step.

use std::collections::{BTreeMap, HashSet};

use crate::protocol::convert::{Conversion, ConvertEvent, ConvertRequest, ConvertStep, Converted, Made};
use crate::protocol::failure::{Answer, Failure};
use crate::protocol::node_name::{Dialect, Family, Kind, Naming};
use crate::protocol::queue::{Listing, Position, Queue};

const NAMING: Naming = Naming { family: Family::ReadWrite, dialect: Dialect::Curator };

/// What an actor is about to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// Not there yet.
    Start,
    /// Its node exists; takes a list.
    Look,
    /// From the moment that the servers made the list that says so.
    Inside,
    /// Inside as what it was, until the end of it.
    Converting(Conversion, ConvertStep),
    /// Deletes these, one after the other, and is outside.
    Leave(Vec<String>),
    End,
}

/// What an actor wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Reader,
    Writer,
    /// Reads, and tries to become the writer, once.
    Upgrader,
    /// The same, and back, and once more.
    Changer,
    /// Writes, becomes a reader, and tries to become the writer again.
    Downgrader,
}

impl Role {
    fn first(self) -> Kind {
        match self {
            Self::Reader | Self::Upgrader | Self::Changer => Kind::Shared,
            Self::Writer | Self::Downgrader => Kind::Exclusive,
        }
    }

    fn conversions(self) -> u32 {
        match self {
            Self::Reader | Self::Writer => 0,
            Self::Upgrader => 1,
            Self::Downgrader => 2,
            Self::Changer => 3,
        }
    }
}

/// What goes wrong, once, at any point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// A session ends: all of its nodes go at once.
    Crash,
    /// A node is deleted by hand.
    Robbery,
    /// The servers refuse to delete a node of a conversion, once or for good.
    Refusal,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Actor {
    phase: Phase,
    /// What it contends for, and is inside as.
    kind: Kind,
    /// Its place in the queue, and what it is inside by.
    node: String,
    ids: u32,
    conversions: u32,
    token: Token,
    /// It was refused the deletion of this node, and may be again.
    refused: Option<String>,
}

/// A zxid and a counter. Only creations count as transactions here: so that those of two nodes are next to each other.
type Token = (u32, u32);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Node {
    owner: usize,
    czxid: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    created: u32,
    nodes: BTreeMap<String, Node>,
    /// The highest token of a reader and of a writer that has been inside.
    highest: [Option<Token>; 2],
    actors: Vec<Actor>,
    /// The fault has struck.
    struck: bool,
}

impl State {
    fn start(roles: &[Role]) -> Self {
        let actor = |role: &Role| Actor {
            phase: Phase::Start,
            kind: role.first(),
            node: String::new(),
            ids: 0,
            conversions: 0,
            token: (0, 0),
            refused: None,
        };
        let actors = roles.iter().map(actor).collect();
        Self { created: 0, nodes: BTreeMap::new(), highest: [None; 2], actors, struck: false }
    }

    fn list(&self) -> Listing {
        Queue::read(self.nodes.keys().cloned().collect(), NAMING)
    }

    fn id(&mut self, i: usize) -> String {
        self.actors[i].ids += 1;
        format!("{i}x{}", self.actors[i].ids)
    }

    fn create(&mut self, i: usize, name: String) {
        self.nodes.insert(name, Node { owner: i, czxid: self.created });
        self.created += 1;
    }

    /// A grant, as a resource sees it: a reader is compared with the highest writer, a writer with both.
    fn grant(&mut self, i: usize, token: Token) {
        self.actors[i].token = token;
        if !self.nodes.contains_key(&self.actors[i].node) {
            // Deleted by hand: it does not have the lock, and its token may be refused.
            return;
        }
        let [readers, writers] = self.highest;
        assert!(writers < Some(token), "{token:?} after a writer: {self:#?}");
        if self.actors[i].kind == Kind::Exclusive {
            assert!(readers < Some(token), "{token:?} after a reader: {self:#?}");
        }
        self.shown(i);
    }

    fn shown(&mut self, i: usize) {
        let Actor { kind, token, .. } = self.actors[i];
        let highest = &mut self.highest[usize::from(kind == Kind::Exclusive)];
        *highest = (*highest).max(Some(token));
    }

    /// Who is inside by a node that is there: readers and writers.
    fn inside(&self) -> (usize, usize) {
        let inside = |actor: &&Actor| {
            matches!(actor.phase, Phase::Inside | Phase::Converting(..))
                && self.nodes.contains_key(&actor.node)
        };
        let of = |kind| self.actors.iter().filter(inside).filter(|actor| actor.kind == kind).count();
        (of(Kind::Shared), of(Kind::Exclusive))
    }

    /// The states that may come next by what happens to actor `i`, or what it does.
    fn next(&self, i: usize, roles: &[Role], fault: Fault) -> Vec<Self> {
        let mut all = self.faults(i, fault);
        let actor = &self.actors[i];
        let mut next = match actor.phase {
            Phase::Look if self.waits(&actor.node) => return all,
            Phase::End if self.owned(i).next().is_none() => return all,
            // Of those that want the same it does not matter who comes first.
            Phase::Start if (0..i).any(|j| roles[j] == roles[i] && self.actors[j].ids == 0) => return all,
            _ => self.clone(),
        };
        match &actor.phase {
            Phase::Start => {
                let id = next.id(i);
                let name = format!("{}{:010}", NAMING.prefix(&id, actor.kind), self.created);
                next.actors[i].node.clone_from(&name);
                next.create(i, name);
                next.actors[i].phase = Phase::Look;
            }
            // Deleted by hand: anew, at the back.
            Phase::Look if !self.nodes.contains_key(&actor.node) => next.actors[i].phase = Phase::Start,
            Phase::Look => {
                next.actors[i].phase = Phase::Inside;
                next.grant(i, (self.nodes[&actor.node].czxid, 0));
            }
            Phase::Inside => {
                assert!(self.owned(i).count() <= 1, "inside by two nodes: {self:#?}");
                if actor.conversions < roles[i].conversions() {
                    let mut other = self.clone();
                    other.convert(i);
                    all.push(other);
                }
                next.actors[i].phase = Phase::Leave(vec![actor.node.clone()]);
            }
            Phase::Converting(conversion, step) => {
                let ConvertStep::Do(request) = step else { panic!("{step:?}") };
                if fault == Fault::Refusal && !self.struck {
                    if let ConvertRequest::Delete { name } = request {
                        let mut other = self.clone();
                        other.struck = true;
                        other.actors[i].refused = Some(name.clone());
                        other.converting(i, conversion, ConvertEvent::Deleted(Answer::No(Failure::Refused)));
                        all.push(other);
                    }
                }
                let event = next.ask(i, request);
                next.converting(i, conversion, event);
            }
            Phase::Leave(names) => {
                let (name, rest) = names.split_first().unwrap();
                if actor.refused.as_ref() == Some(name) {
                    let mut other = self.clone();
                    other.leave(i, rest);
                    all.push(other);
                }
                next.nodes.remove(name);
                next.leave(i, rest);
            }
            // What could not be deleted goes with the session.
            Phase::End => next.end(i),
        }
        all.push(next);
        all
    }

    fn waits(&self, node: &str) -> bool {
        matches!(self.list().unwrap().position(node), Some(Position::Behind { .. }))
    }

    /// Goes on with leaving.
    fn leave(&mut self, i: usize, names: &[String]) {
        let actor = &mut self.actors[i];
        if names.is_empty() {
            actor.phase = Phase::End;
            let refused = actor.refused.clone();
            assert!(self.owned(i).all(|name| Some(name) == refused.as_ref()), "left: {self:#?}");
        } else {
            actor.phase = Phase::Leave(names.to_vec());
        }
    }

    fn faults(&self, i: usize, fault: Fault) -> Vec<Self> {
        let strike = |strike: &dyn Fn(&mut Self)| {
            let mut state = Self { struck: true, ..self.clone() };
            strike(&mut state);
            state
        };
        let over = matches!(self.actors[i].phase, Phase::Start | Phase::End);
        match fault {
            Fault::Crash if !self.struck && !over => vec![strike(&|state| state.end(i))],
            Fault::Robbery if !self.struck => self
                .owned(i)
                .map(|name| strike(&|state| state.nodes.retain(|node, _| node != name)))
                .collect(),
            _ => Vec::new(),
        }
    }

    fn owned(&self, i: usize) -> impl Iterator<Item = &String> {
        self.nodes.iter().filter(move |(_, node)| node.owner == i).map(|(name, _)| name)
    }

    fn end(&mut self, i: usize) {
        self.nodes.retain(|_, node| node.owner != i);
        self.actors[i].phase = Phase::End;
    }

    fn convert(&mut self, i: usize) {
        let id = self.id(i);
        let (own, kind) = (self.actors[i].node.clone(), self.actors[i].kind);
        let new = |kind| NAMING.beside(&own, &id, kind).unwrap();
        let (conversion, step) = match kind {
            Kind::Shared => Conversion::upgrade(own.clone(), new(Kind::Exclusive)),
            Kind::Exclusive => Conversion::downgrade(own.clone(), new(Kind::Shared)),
        };
        self.actors[i].conversions += 1;
        self.actors[i].phase = Phase::Converting(conversion, step);
    }

    /// What the servers do, and say.
    fn ask(&mut self, i: usize, request: &ConvertRequest) -> ConvertEvent {
        match request {
            ConvertRequest::Swap { create, delete } => ConvertEvent::Made(match self.nodes.remove(delete) {
                Some(_) => {
                    self.create(i, create.clone());
                    Made::Done { czxid: None }
                }
                None => Made::Missing,
            }),
            ConvertRequest::Create { name } => {
                self.create(i, name.clone());
                ConvertEvent::Made(Made::Done { czxid: Some(self.nodes[name].czxid.into()) })
            }
            ConvertRequest::List => ConvertEvent::Listed(Answer::Is(self.list())),
            ConvertRequest::Inspect { name } => ConvertEvent::Inspected(match self.nodes.get(name) {
                Some(node) => Answer::Is(node.czxid.into()),
                None => Answer::No(Failure::NoNode),
            }),
            ConvertRequest::Delete { name } => ConvertEvent::Deleted(match self.nodes.remove(name) {
                Some(_) => Answer::Is(()),
                None => Answer::No(Failure::NoNode),
            }),
        }
    }

    fn converting(&mut self, i: usize, conversion: &Conversion, event: ConvertEvent) {
        let mut conversion = conversion.clone();
        let step = conversion.on(event);
        let actor = &mut self.actors[i];
        let ConvertStep::Finish(converted) = step else {
            actor.phase = Phase::Converting(conversion, step);
            return;
        };
        actor.phase = match converted {
            Converted::Done { node, zxid } => {
                actor.node = node;
                actor.phase = Phase::Inside;
                match zxid {
                    Some(zxid) => {
                        actor.kind = Kind::Exclusive;
                        let token = (u32::try_from(zxid).unwrap(), actor.token.1 + 1);
                        self.grant(i, token);
                    }
                    None => {
                        actor.kind = Kind::Shared;
                        self.shown(i);
                    }
                }
                return;
            }
            Converted::Kept(_) => Phase::Inside,
            Converted::Lost { leave, .. } => return self.leave(i, &leave),
            Converted::SessionOver => panic!("sessions end by `end` here"),
        };
    }
}

/// Looks at every state that can be reached; answers how many there are.
fn explore(roles: &[Role], fault: Fault) -> usize {
    let start = State::start(roles);
    let mut seen = HashSet::from([start.clone()]);
    let mut open = vec![start];
    while let Some(state) = open.pop() {
        let (readers, writers) = state.inside();
        assert!(writers == 0 || writers == 1 && readers == 0, "{roles:?}, {fault:?}: {state:#?}");
        let next: Vec<_> = (0..roles.len()).flat_map(|i| state.next(i, roles, fault)).collect();
        let over = state.actors.iter().all(|actor| actor.phase == Phase::End);
        assert!(over || !next.is_empty(), "{roles:?} wait for ever, {fault:?}: {state:#?}");
        assert!(!over || !next.is_empty() || state.nodes.is_empty(), "{roles:?} left, {fault:?}: {state:#?}");
        open.extend(next.into_iter().filter(|next| seen.insert(next.clone())));
    }
    seen.len()
}

const ROLES: [Role; 4] = [Role::Reader, Role::Writer, Role::Upgrader, Role::Downgrader];

/// All teams of three.
fn any_three(fault: Fault) {
    let mut states = 0;
    for (i, a) in ROLES.into_iter().enumerate() {
        for (j, b) in ROLES.into_iter().enumerate().skip(i) {
            for c in ROLES.into_iter().skip(j) {
                states += explore(&[a, b, c], fault);
            }
        }
    }
    assert!(states > 10_000, "{states} states");
}

#[test]
fn any_three_with_a_crash() {
    any_three(Fault::Crash);
}

#[test]
fn any_three_with_a_node_deleted_by_hand() {
    any_three(Fault::Robbery);
}

#[test]
fn any_three_with_a_refused_deletion() {
    any_three(Fault::Refusal);
}

/// Tokens of one that becomes the writer twice, with writers and readers that queue before, between and after.
#[test]
fn tokens_of_one_that_changes_to_and_fro() {
    use Role::{Changer, Downgrader, Reader, Upgrader, Writer};
    for team in [
        [Changer, Reader, Reader],
        [Changer, Reader, Writer],
        [Changer, Writer, Writer],
        [Changer, Upgrader, Writer],
        [Changer, Downgrader, Writer],
    ] {
        assert!(explore(&team, Fault::Crash) > 1_000);
    }
    assert!(explore(&[Changer, Reader, Reader, Writer], Fault::None) > 10_000);
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
        assert!(explore(&team, Fault::None) > 1_000);
    }
}
