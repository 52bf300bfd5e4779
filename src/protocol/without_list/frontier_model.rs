//! A model checker for grants by the next number: every interleaving of two clients at one
//! directory, which may be removed and made again whenever it is empty, with a few faults at any
//! point.
//!
//! The knowledge of a client is the real [`Frontier`]; the servers, the connection and the watch
//! are modelled here. The nodes of a client may overlap. A client's requests are carried out in
//! order, and it handles events and answers in the order in which the servers sent them, each as
//! late as it likes. In every state that can be reached, checks that no contender holds the lock
//! together with a writer, and at each grant without a list that no node that would block the new
//! one is before it (docs/protocol.md#succession, docs/protocol.md#directory-watch).

use std::collections::{HashSet, VecDeque};
use std::rc::Rc;

use super::frontier::{Frontier, Numbered};
use crate::protocol::node_name::Kind;
use crate::protocol::own_nodes::Gone;

/// A defect in the rule, to show that the model finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    None,
    /// Whether the watch has fired is not looked at.
    EventIgnored,
    /// An interruption of the connection is not looked at.
    InterruptionIgnored,
    /// When the watched directory was created is not looked at.
    IncarnationIgnored,
    /// A node whose deletion is refused counts as deleted.
    UnclearCounts,
    /// A node counts as gone when its deletion is sent.
    GoneWhenAsked,
    /// The node that a downgrade has exchanged counts as deleted.
    DowngradeForgotten,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Creating,
    /// Created, and not known to be first.
    Lists,
    Holds,
    Deleting,
    Done,
}

/// One node. Its index is its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Node {
    client: usize,
    kind: Kind,
    stage: Stage,
    /// Its number and zxid, once it was created.
    created: (i32, i64),
    exists: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Request {
    Create(usize),
    Delete(usize),
    Watch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Reply {
    Created(usize),
    /// Whether by this request.
    Deleted(usize, bool),
    /// When the directory was created that is watched, if there is one.
    Watches(Option<i64>),
    Fired,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Client {
    frontier: Frontier,
    requests: VecDeque<Request>,
    replies: VecDeque<Reply>,
    asked: bool,
    /// When the directory was created that it knows to be watched.
    watch: Option<i64>,
    /// Whether the servers have a watch of it.
    watched: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    /// When the directory was created, and its count of creates; `None` if there is none.
    directory: Option<(i64, i32)>,
    zxid: i64,
    nodes: Vec<Node>,
    clients: [Client; 2],
    /// The events that can still happen: nodes of each client, removals of the directory, faults.
    left: [u8; 2],
    removals: u8,
    faults: u8,
}

impl State {
    fn name(i: usize) -> String {
        i.to_string()
    }

    fn numbered(&self, i: usize) -> Numbered {
        let Node {
            kind,
            created: (sequence, czxid),
            ..
        } = self.nodes[i];
        Numbered {
            kind,
            sequence,
            czxid,
        }
    }

    /// Returns whether a node exists that this one must wait for.
    fn has_to_wait(&self, i: usize) -> bool {
        let own = &self.nodes[i];
        self.nodes.iter().enumerate().any(|(other, node)| {
            let excludes = node.kind == Kind::Exclusive || own.kind == Kind::Exclusive;
            other != i
                && node.exists
                && excludes
                && (node.created.0, node.kind) < (own.created.0, own.kind)
        })
    }

    fn create(&mut self) -> (i32, i64) {
        self.zxid += 1;
        let (czxid, creates) = self.directory.unwrap_or((self.zxid, 0));
        self.zxid += 1;
        self.directory = Some((czxid, creates + 1));
        (creates, self.zxid)
    }

    fn grant(&mut self, i: usize) {
        self.nodes[i].stage = Stage::Holds;
        let (node, client) = (self.numbered(i), &mut self.clients[self.nodes[i].client]);
        client.frontier.granted(&Self::name(i), node, false);
        if !client.asked {
            client.asked = true;
            client.requests.push_back(Request::Watch);
        }
    }

    /// The servers carry out the next request of a client.
    fn serve(&mut self, c: usize) -> bool {
        let Some(request) = self.clients[c].requests.pop_front() else {
            return false;
        };
        let reply = match request {
            Request::Create(i) => {
                self.nodes[i].created = self.create();
                self.nodes[i].exists = true;
                Reply::Created(i)
            }
            Request::Delete(i) => Reply::Deleted(i, std::mem::take(&mut self.nodes[i].exists)),
            Request::Watch => {
                self.clients[c].watched = self.directory.is_some();
                Reply::Watches(self.directory.map(|(czxid, _)| czxid))
            }
        };
        self.clients[c].replies.push_back(reply);
        true
    }

    /// A client handles the next message of the servers.
    fn handle(&mut self, c: usize, mistake: Mistake) -> bool {
        let Some(reply) = self.clients[c].replies.pop_front() else {
            return false;
        };
        match reply {
            Reply::Created(i) => {
                let (node, client) = (self.numbered(i), &mut self.clients[c]);
                let directory = match mistake {
                    Mistake::IncarnationIgnored => client.watch.map(|_| i64::MIN),
                    _ => client.watch,
                };
                if directory.is_some_and(|directory| client.frontier.decide_first(node, directory))
                {
                    // As by a list, it may have been deleted by another process since.
                    let in_order = !self.nodes[i].exists || !self.has_to_wait(i);
                    assert!(in_order, "granted behind another: {self:?}");
                    self.grant(i);
                } else {
                    self.nodes[i].stage = Stage::Lists;
                }
            }
            Reply::Deleted(i, by_us) => {
                let how = if by_us || mistake == Mistake::UnclearCounts {
                    Gone::Deleted
                } else {
                    Gone::Unclear
                };
                self.clients[c].frontier.gone(&Self::name(i), how);
                self.nodes[i].stage = Stage::Done;
            }
            Reply::Watches(czxid) => {
                self.clients[c].watch = czxid;
                self.clients[c].asked = czxid.is_some();
            }
            Reply::Fired if mistake == Mistake::EventIgnored => {}
            Reply::Fired => (self.clients[c].watch, self.clients[c].asked) = (None, false),
        }
        true
    }

    /// The connection of a client breaks. Requests that were not carried out are repeated, and
    /// answers that were not handled are lost: the node of a create is found by a list, and a
    /// deletion is unclear.
    fn interrupt(&mut self, c: usize, mistake: Mistake) {
        let client = &mut self.clients[c];
        client.requests.retain(|request| *request != Request::Watch);
        for reply in std::mem::take(&mut client.replies) {
            match reply {
                Reply::Created(i) => self.nodes[i].stage = Stage::Lists,
                Reply::Deleted(i, _) => client.replies.push_back(Reply::Deleted(i, false)),
                Reply::Watches(_) | Reply::Fired => {}
            }
        }
        // Not every server sets the watch again, or reports earlier events.
        client.watched = false;
        if mistake != Mistake::InterruptionIgnored {
            client.watch = None;
        }
        client.asked = client.watch.is_some();
    }

    /// The holder of a write node exchanges it for a read node, by one transaction.
    fn downgrade(&mut self, i: usize, mistake: Mistake) {
        let (
            zxid,
            Node {
                client,
                created: (sequence, _),
                ..
            },
        ) = (self.create().1, self.nodes[i].clone());
        self.nodes[i].exists = false;
        self.nodes[i].stage = Stage::Done;
        let created = (sequence, zxid);
        self.nodes.push(Node {
            client,
            kind: Kind::Shared,
            stage: Stage::Holds,
            created,
            exists: true,
        });
        let how = if mistake == Mistake::DowngradeForgotten {
            Gone::Deleted
        } else {
            Gone::Unclear
        };
        self.clients[client].frontier.gone(&Self::name(i), how);
    }

    /// Returns all states that may be next.
    fn next(&self, kinds: &[Kind], mistake: Mistake) -> Vec<Self> {
        let mut all = Vec::new();
        let mut add = |change: &mut dyn FnMut(&mut Self) -> bool| {
            let mut next = self.clone();
            if change(&mut next) {
                all.push(next);
            }
        };
        for c in 0..2 {
            if !self.clients[c].requests.is_empty() {
                add(&mut |state| state.serve(c));
            }
            if !self.clients[c].replies.is_empty() {
                add(&mut |state| state.handle(c, mistake));
            }
            for &kind in kinds.iter().filter(|_| self.left[c] > 0) {
                add(&mut |state| {
                    state.left[c] -= 1;
                    let stage = Stage::Creating;
                    let node = Node {
                        client: c,
                        kind,
                        stage,
                        created: (0, 0),
                        exists: false,
                    };
                    state.clients[c]
                        .requests
                        .push_back(Request::Create(state.nodes.len()));
                    state.nodes.push(node);
                    true
                });
            }
            if self.faults > 0 {
                add(&mut |state| {
                    state.faults -= 1;
                    state.interrupt(c, mistake);
                    true
                });
            }
        }
        for (i, node) in self.nodes.iter().enumerate() {
            match node.stage {
                Stage::Lists if !node.exists => add(&mut |state| {
                    state.nodes[i].stage = Stage::Done;
                    true
                }),
                Stage::Lists if !self.has_to_wait(i) => add(&mut |state| {
                    state.grant(i);
                    true
                }),
                Stage::Holds => {
                    add(&mut |state| {
                        state.nodes[i].stage = Stage::Deleting;
                        let client = &mut state.clients[node.client];
                        client.requests.push_back(Request::Delete(i));
                        if mistake == Mistake::GoneWhenAsked {
                            client.frontier.gone(&Self::name(i), Gone::Deleted);
                        }
                        true
                    });
                    let is_writer = node.kind == Kind::Exclusive;
                    if self.faults > 0 && kinds.len() > 1 && node.exists && is_writer {
                        add(&mut |state| {
                            state.faults -= 1;
                            state.downgrade(i, mistake);
                            true
                        });
                    }
                }
                Stage::Deleting if self.faults > 0 => add(&mut |state| {
                    // The servers refuse its deletion: it stays.
                    let refused = |request: &Request| *request == Request::Delete(i);
                    let client = &mut state.clients[node.client];
                    if client
                        .requests
                        .front()
                        .is_none_or(|request| !refused(request))
                    {
                        return false;
                    }
                    state.faults -= 1;
                    client.requests.pop_front();
                    client.replies.push_back(Reply::Deleted(i, false));
                    true
                }),
                _ => {}
            }
            if self.faults > 0 && node.exists {
                add(&mut |state| {
                    // Another process deletes it.
                    state.faults -= 1;
                    state.nodes[i].exists = false;
                    true
                });
            }
        }
        if self.directory.is_some() {
            if self.removals > 0 && self.nodes.iter().all(|node| !node.exists) {
                add(&mut |state| {
                    state.removals -= 1;
                    state.directory = None;
                    for client in &mut state.clients {
                        if std::mem::take(&mut client.watched) {
                            client.replies.push_back(Reply::Fired);
                        }
                    }
                    true
                });
            }
            if self.faults > 0 {
                add(&mut |state| {
                    // A foreign child, which goes again.
                    state.faults -= 1;
                    state.create();
                    true
                });
            }
        }
        all
    }

    /// Makes states equal that differ only in parts without any further effect.
    fn reduce(&mut self) {
        for node in &mut self.nodes {
            if node.stage == Stage::Lists && !node.exists {
                // All that can become of it.
                node.stage = Stage::Done;
            }
            if node.stage == Stage::Done && !node.exists {
                (node.client, node.kind, node.created) = (0, Kind::Exclusive, (0, 0));
            }
        }
        for (c, client) in self.clients.iter_mut().enumerate() {
            let creates = |node: &Node| node.client == c && node.stage == Stage::Creating;
            if self.left[c] == 0 && !self.nodes.iter().any(creates) {
                // Its knowledge is used when a create is answered.
                client.requests.retain(|request| *request != Request::Watch);
                client
                    .replies
                    .retain(|reply| !matches!(reply, Reply::Watches(_) | Reply::Fired));
                (client.frontier, client.watch, client.watched) =
                    (Frontier::default(), None, false);
                client.asked = true;
            }
        }
        self.renumber();
    }

    /// Numbers the transactions that are known anywhere from 1 in their order, which alone matters.
    fn renumber(&mut self) {
        let mut known = Vec::new();
        self.each_zxid(&mut |zxid| known.push(*zxid));
        known.sort_unstable();
        known.dedup();
        let rank = |zxid: i64| {
            known
                .binary_search(&zxid)
                .ok()
                .and_then(|at| i64::try_from(at).ok())
        };
        self.each_zxid(&mut |zxid| *zxid = rank(*zxid).unwrap() + 1);
        self.zxid = i64::try_from(known.len()).unwrap();
    }

    fn each_zxid(&mut self, f: &mut dyn FnMut(&mut i64)) {
        self.directory.iter_mut().for_each(|(czxid, _)| f(czxid));
        for node in self.nodes.iter_mut().filter(|node| node.created.1 != 0) {
            f(&mut node.created.1);
        }
        for client in &mut self.clients {
            client.frontier.each_zxid(f);
            client.watch.iter_mut().for_each(&mut *f);
            for reply in &mut client.replies {
                if let Reply::Watches(Some(czxid)) = reply {
                    f(czxid);
                }
            }
        }
    }

    fn check(&self) {
        let holds = |kind| {
            let inside =
                move |node: &&Node| node.kind == kind && node.exists && node.stage == Stage::Holds;
            self.nodes.iter().filter(inside).count()
        };
        let (readers, writers) = (holds(Kind::Shared), holds(Kind::Exclusive));
        assert!(writers == 0 || writers == 1 && readers == 0, "{self:?}");
    }
}

/// Runs everything that can happen. Returns how many states there are.
fn explore(kinds: &[Kind], left: [u8; 2], removals: u8, faults: u8, mistake: Mistake) -> usize {
    let start = Rc::new(State {
        directory: None,
        zxid: 0,
        nodes: Vec::new(),
        clients: Default::default(),
        left,
        removals,
        faults,
    });
    let mut seen = HashSet::from([Rc::clone(&start)]);
    let mut rest = vec![start];
    while let Some(state) = rest.pop() {
        for mut next in state.next(kinds, mistake) {
            next.check();
            next.reduce();
            let next = Rc::new(next);
            if seen.insert(Rc::clone(&next)) {
                rest.push(next);
            }
        }
    }
    seen.len()
}

const WRITERS: [Kind; 1] = [Kind::Exclusive];
const BOTH: [Kind; 2] = [Kind::Shared, Kind::Exclusive];

// Shows: succession
#[test]
fn two_clients_with_removed_directory() {
    assert!(explore(&WRITERS, [3, 1], 1, 0, Mistake::None) > 10_000);
}

// Shows: succession
#[test]
fn mutexes_with_fault_at_any_point() {
    assert!(explore(&WRITERS, [2, 1], 1, 1, Mistake::None) > 10_000);
}

// Shows: succession
#[test]
fn readers_and_writers_with_any_fault() {
    assert!(explore(&BOTH, [2, 1], 1, 1, Mistake::None) > 100_000);
}

/// The model proves something only if it would find these defects.
// Shows: succession, directory-watch
#[test]
fn model_finds_each_mistake() {
    for mistake in [
        Mistake::EventIgnored,
        Mistake::InterruptionIgnored,
        Mistake::IncarnationIgnored,
        Mistake::UnclearCounts,
        Mistake::GoneWhenAsked,
        Mistake::DowngradeForgotten,
    ] {
        let found = std::panic::catch_unwind(|| explore(&BOTH, [2, 1], 1, 1, mistake)).is_err();
        assert!(found, "{mistake:?} is not found");
    }
}
