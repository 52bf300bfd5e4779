//! A model checker for read-write locks and their conversions: runs every interleaving of a few
//! readers, writers and upgraders on one lock, with a fault at any point. The order of the queue is
//! that of [`queue`](crate::protocol::queue), and the steps of a conversion are those of
//! [`convert`](crate::protocol::convert); the servers and the rest of an attempt are modelled here.
//!
//! In every state that can be reached, checks that
//! - no contender holds the lock together with a writer (docs/protocol.md#read-write),
//! - no contender waits forever,
//! - every node is deleted in the end, unless the servers refuse it
//!   (docs/protocol.md#conversion-ends),
//! - each fencing token is accepted by a resource that has seen the earlier ones
//!   (docs/protocol.md#token-order, docs/protocol.md#reader-tokens,
//!   docs/protocol.md#upgraded-token).
//!
//! A step of a contender ends where other contenders can come in between, so each request is one
//! step.

use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;

use crate::protocol::convert::{
    Conversion, ConvertEvent, ConvertRequest, ConvertStep, Converted, Created,
};
use crate::protocol::failure::{Answer, FailureKind, Refusal};
use crate::protocol::node_name::{Dialect, Family, Kind, Naming};
use crate::protocol::queue::{Listing, Position, Queue};

const NAMING: Naming = Naming {
    family: Family::ReadWrite,
    dialect: Dialect::Curator,
};

/// The next step of a contender.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Activity {
    /// Creates its node.
    Create,
    /// Its node exists: lists the directory, and is granted the lock if it is first.
    Wait,
    /// Holds the lock. Begins when the servers make the list that grants it.
    Hold,
    /// Converts its hold, which keeps its kind until the conversion is done. The step is the next
    /// one.
    Convert(Conversion, ConvertStep),
    /// No longer holds the lock: deletes these nodes, one after the other.
    Release(Vec<String>),
    /// Has ended. Nodes whose deletion was refused are left.
    Done,
}

/// The way a contender uses the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Reader,
    Writer,
    /// A reader that tries to become the writer, once.
    Upgrader,
    /// A reader that upgrades, downgrades and upgrades again.
    Changer,
    /// A writer that downgrades and upgrades again.
    Downgrader,
}

impl Role {
    fn initial_kind(self) -> Kind {
        match self {
            Self::Reader | Self::Upgrader | Self::Changer => Kind::Shared,
            Self::Writer | Self::Downgrader => Kind::Exclusive,
        }
    }

    /// Returns how often it converts its hold at most.
    fn conversions(self) -> u32 {
        match self {
            Self::Reader | Self::Writer => 0,
            Self::Upgrader => 1,
            Self::Downgrader => 2,
            Self::Changer => 3,
        }
    }
}

/// The fault, which happens at most once, at any point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// A session expires: all of its nodes are deleted at once.
    Expiry,
    /// Another process deletes a node (docs/protocol.md#node-deleted-by-hand).
    Deletion,
    /// The servers refuse to delete a node of a conversion, for now or for good
    /// (docs/protocol.md#refused-orphan).
    Refusal,
}

/// One contender, in a separate session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Actor {
    activity: Activity,
    /// The kind of lock that it waits for, or holds.
    kind: Kind,
    /// The node by which it waits, or holds the lock.
    node: String,
    /// How many ids it has used.
    ids: u32,
    /// How many conversions it has begun.
    conversions: u32,
    token: ModelToken,
    /// The node whose deletion was refused, and may be refused again.
    refused: Option<String>,
}

/// A fencing token, as its zxid and counter. Only creates get a zxid in the model, so that those of
/// two nodes can be adjacent.
type ModelToken = (u32, u32);

/// A node on the servers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ModelNode {
    /// The index of the actor whose session created it.
    owner: usize,
    czxid: u32,
}

/// A state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ModelState {
    /// How many nodes have been created: the next zxid, and the next sequence number.
    created: u32,
    nodes: BTreeMap<String, ModelNode>,
    /// The highest token that a resource has seen, of a reader and of a writer.
    highest: [Option<ModelToken>; 2],
    actors: Vec<Actor>,
    /// Whether the fault has happened.
    faulted: bool,
}

impl ModelState {
    fn start(roles: &[Role]) -> Self {
        let actor = |role: &Role| Actor {
            activity: Activity::Create,
            kind: role.initial_kind(),
            node: String::new(),
            ids: 0,
            conversions: 0,
            token: (0, 0),
            refused: None,
        };
        let actors = roles.iter().map(actor).collect();
        Self {
            created: 0,
            nodes: BTreeMap::new(),
            highest: [None; 2],
            actors,
            faulted: false,
        }
    }

    /// The servers' answer to a list.
    fn list(&self) -> Listing {
        Queue::read(self.nodes.keys().cloned().collect(), NAMING)
    }

    /// Returns a fresh id of actor `i`.
    fn next_id(&mut self, i: usize) -> String {
        self.actors[i].ids += 1;
        format!("{i}x{}", self.actors[i].ids)
    }

    fn create(&mut self, i: usize, name: String) {
        self.nodes.insert(
            name,
            ModelNode {
                owner: i,
                czxid: self.created,
            },
        );
        self.created += 1;
    }

    /// Gives actor `i` a token, and shows it to a resource, which compares a reader with the
    /// highest writer and a writer with both (docs/protocol.md#reader-tokens).
    fn grant(&mut self, i: usize, token: ModelToken) {
        self.actors[i].token = token;
        if !self.nodes.contains_key(&self.actors[i].node) {
            // Deleted by another process: the actor has lost the lock, and its token may be
            // refused.
            return;
        }
        let [readers, writers] = self.highest;
        assert!(
            writers < Some(token),
            "{token:?} is refused after a writer: {self:#?}"
        );
        if self.actors[i].kind == Kind::Exclusive {
            assert!(
                readers < Some(token),
                "{token:?} is refused after a reader: {self:#?}"
            );
        }
        self.show_token(i);
    }

    fn show_token(&mut self, i: usize) {
        let Actor { kind, token, .. } = self.actors[i];
        let highest = &mut self.highest[usize::from(kind == Kind::Exclusive)];
        *highest = (*highest).max(Some(token));
    }

    /// Returns how many readers and writers hold the lock by a node that exists.
    fn holders(&self) -> (usize, usize) {
        let holds = |actor: &&Actor| {
            matches!(actor.activity, Activity::Hold | Activity::Convert(..))
                && self.nodes.contains_key(&actor.node)
        };
        let count = |kind| {
            self.actors
                .iter()
                .filter(holds)
                .filter(|actor| actor.kind == kind)
                .count()
        };
        (count(Kind::Shared), count(Kind::Exclusive))
    }

    /// Returns the states that may follow, by a step of actor `i` or a fault that hits it. None if
    /// it waits. `list` is the servers' answer to a list.
    fn next(&self, i: usize, roles: &[Role], fault: Fault, list: &Queue) -> Vec<Self> {
        let waits = |node: &str| matches!(list.position(node), Some(Position::Behind { .. }));
        let mut all = self.faults(i, fault);
        let actor = &self.actors[i];
        let mut next = match actor.activity {
            Activity::Wait if waits(&actor.node) => return all,
            Activity::Done if self.owned(i).next().is_none() => return all,
            // Actors of the same role are alike, so they begin in one order only.
            Activity::Create if (0..i).any(|j| roles[j] == roles[i] && self.actors[j].ids == 0) => {
                return all;
            }
            _ => self.clone(),
        };
        match &actor.activity {
            Activity::Create => {
                let id = next.next_id(i);
                let name = format!("{}{:010}", NAMING.prefix(&id, actor.kind), self.created);
                next.actors[i].node.clone_from(&name);
                next.create(i, name);
                next.actors[i].activity = Activity::Wait;
            }
            // Deleted by another process: queues again, at the end
            // (docs/protocol.md#waiter-without-node).
            Activity::Wait if !self.nodes.contains_key(&actor.node) => {
                next.actors[i].activity = Activity::Create;
            }
            Activity::Wait => {
                next.actors[i].activity = Activity::Hold;
                next.grant(i, (self.nodes[&actor.node].czxid, 0));
            }
            Activity::Hold => {
                assert!(
                    self.owned(i).count() <= 1,
                    "holds the lock by two nodes: {self:#?}"
                );
                if actor.conversions < roles[i].conversions() {
                    let mut other = self.clone();
                    other.convert(i);
                    all.push(other);
                }
                next.actors[i].activity = Activity::Release(vec![actor.node.clone()]);
            }
            Activity::Convert(conversion, step) => {
                let ConvertStep::Do(request) = step else {
                    panic!("{step:?}")
                };
                if fault == Fault::Refusal && !self.faulted {
                    if let ConvertRequest::Delete { name } = request {
                        let mut other = self.clone();
                        other.faulted = true;
                        other.actors[i].refused = Some(name.clone());
                        other.advance(
                            i,
                            conversion,
                            ConvertEvent::Deleted(Answer::no(FailureKind::Refused(Refusal::Other))),
                        );
                        all.push(other);
                    }
                }
                let event = next.serve(i, request);
                next.advance(i, conversion, event);
            }
            Activity::Release(names) => {
                let (name, rest) = names.split_first().unwrap();
                if actor.refused.as_ref() == Some(name) {
                    let mut other = self.clone();
                    other.release(i, rest);
                    all.push(other);
                }
                next.nodes.remove(name);
                next.release(i, rest);
            }
            // The session is closed, which deletes the remaining nodes.
            Activity::Done => next.end(i),
        }
        all.push(next);
        all
    }

    /// Releases the rest of the nodes; with none left, checks that all but a refused one are
    /// deleted.
    fn release(&mut self, i: usize, names: &[String]) {
        let actor = &mut self.actors[i];
        if names.is_empty() {
            actor.activity = Activity::Done;
            let refused = actor.refused.clone();
            assert!(
                self.owned(i).all(|name| Some(name) == refused.as_ref()),
                "nodes are left: {self:#?}"
            );
        } else {
            actor.activity = Activity::Release(names.to_vec());
        }
    }

    /// Returns the states after the fault has hit actor `i`.
    fn faults(&self, i: usize, fault: Fault) -> Vec<Self> {
        let after = |fault: &dyn Fn(&mut Self)| {
            let mut state = Self {
                faulted: true,
                ..self.clone()
            };
            fault(&mut state);
            state
        };
        let has_no_session = matches!(self.actors[i].activity, Activity::Create | Activity::Done);
        match fault {
            Fault::Expiry if !self.faulted && !has_no_session => vec![after(&|state| state.end(i))],
            Fault::Deletion if !self.faulted => self
                .owned(i)
                .map(|name| after(&|state| state.nodes.retain(|node, _| node != name)))
                .collect(),
            _ => Vec::new(),
        }
    }

    /// Returns the nodes of actor `i`.
    fn owned(&self, i: usize) -> impl Iterator<Item = &String> {
        self.nodes
            .iter()
            .filter(move |(_, node)| node.owner == i)
            .map(|(name, _)| name)
    }

    /// Ends the session of actor `i`.
    fn end(&mut self, i: usize) {
        self.nodes.retain(|_, node| node.owner != i);
        self.actors[i].activity = Activity::Done;
    }

    /// Begins a conversion of the hold of actor `i`.
    fn convert(&mut self, i: usize) {
        let id = self.next_id(i);
        let (own, kind) = (self.actors[i].node.clone(), self.actors[i].kind);
        let new = |kind| NAMING.converted_name(&own, &id, kind).unwrap();
        let (conversion, step) = match kind {
            Kind::Shared => Conversion::upgrade(own.clone(), new(Kind::Exclusive)),
            Kind::Exclusive => Conversion::downgrade(own.clone(), new(Kind::Shared)),
        };
        self.actors[i].conversions += 1;
        self.actors[i].activity = Activity::Convert(conversion, step);
    }

    /// Carries out a request of actor `i` on the servers. Returns its answer.
    fn serve(&mut self, i: usize, request: &ConvertRequest) -> ConvertEvent {
        match request {
            ConvertRequest::Swap { create, delete } => {
                ConvertEvent::Created(match self.nodes.remove(delete) {
                    Some(_) => {
                        self.create(i, create.clone());
                        Created::Done { czxid: None }
                    }
                    None => Created::Missing,
                })
            }
            ConvertRequest::Create { name } => {
                self.create(i, name.clone());
                ConvertEvent::Created(Created::Done {
                    czxid: Some(self.nodes[name].czxid.into()),
                })
            }
            ConvertRequest::List => ConvertEvent::Listed(Answer::Is(self.list())),
            ConvertRequest::Inspect { name } => {
                ConvertEvent::Inspected(match self.nodes.get(name) {
                    Some(node) => Answer::Is(node.czxid.into()),
                    None => Answer::no(FailureKind::NoNode),
                })
            }
            ConvertRequest::Delete { name } => {
                ConvertEvent::Deleted(match self.nodes.remove(name) {
                    Some(_) => Answer::Is(()),
                    None => Answer::no(FailureKind::NoNode),
                })
            }
        }
    }

    /// Goes on with a conversion of actor `i` after an answer.
    fn advance(&mut self, i: usize, conversion: &Conversion, event: ConvertEvent) {
        let mut conversion = conversion.clone();
        let step = conversion.on(event);
        let actor = &mut self.actors[i];
        let ConvertStep::Finish(converted) = step else {
            actor.activity = Activity::Convert(conversion, step);
            return;
        };
        actor.activity = match converted {
            Converted::Done { node, zxid } => {
                actor.node = node;
                actor.activity = Activity::Hold;
                match zxid {
                    Some(zxid) => {
                        actor.kind = Kind::Exclusive;
                        let token = (u32::try_from(zxid).unwrap(), actor.token.1 + 1);
                        self.grant(i, token);
                    }
                    None => {
                        actor.kind = Kind::Shared;
                        self.show_token(i);
                    }
                }
                return;
            }
            Converted::Kept(_) => Activity::Hold,
            Converted::Lost { delete, .. } => return self.release(i, &delete),
            Converted::SessionGone => panic!("a session of the model ends by `end` only"),
        };
    }
}

/// Checks every state that can be reached. Returns how many there are.
fn explore(roles: &[Role], fault: Fault) -> usize {
    let start = Rc::new(ModelState::start(roles));
    let mut seen = HashSet::from([Rc::clone(&start)]);
    let mut open = vec![start];
    while let Some(state) = open.pop() {
        let (readers, writers) = state.holders();
        assert!(
            writers == 0 || writers == 1 && readers == 0,
            "{roles:?}, {fault:?}: {state:#?}"
        );
        let list = state.list().unwrap();
        let next: Vec<_> = (0..roles.len())
            .flat_map(|i| state.next(i, roles, fault, &list))
            .collect();
        let all_done = state
            .actors
            .iter()
            .all(|actor| actor.activity == Activity::Done);
        assert!(
            all_done || !next.is_empty(),
            "{roles:?} wait for ever, {fault:?}: {state:#?}"
        );
        assert!(
            !all_done || !next.is_empty() || state.nodes.is_empty(),
            "{roles:?} leave nodes, {fault:?}: {state:#?}"
        );
        open.extend(
            next.into_iter()
                .map(Rc::new)
                .filter(|next| seen.insert(Rc::clone(next))),
        );
    }
    seen.len()
}

const ROLES: [Role; 4] = [Role::Reader, Role::Writer, Role::Upgrader, Role::Downgrader];

/// Checks all teams of three.
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

// Shows: upgrade
#[test]
fn any_three_with_an_expired_session() {
    any_three(Fault::Expiry);
}

// Shows: upgrade
#[test]
fn any_three_with_a_node_deleted_by_hand() {
    any_three(Fault::Deletion);
}

// Shows: upgrade
#[test]
fn any_three_with_a_refused_deletion() {
    any_three(Fault::Refusal);
}

/// The tokens of a contender that becomes the writer twice, with writers and readers that queue
/// before, between and after.
// Shows: token-order, upgraded-token
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
        assert!(explore(&team, Fault::Expiry) > 1_000);
    }
    assert!(explore(&[Changer, Reader, Reader, Writer], Fault::None) > 10_000);
}

/// Teams of four in which several contenders convert their holds.
// Shows: upgrade
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
