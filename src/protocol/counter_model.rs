//! Runs the real decisions of changes to a counter against a model of its node, under random
//! schedules: lost requests, lost answers, writes that are committed any time later, servers that
//! lag behind, callers that leave, other processes that count as well, and a node deleted by hand.
//!
//! A counter has no lock. Only the version in each write keeps these promises. In every schedule,
//!
//! - no number is handed out twice (docs/protocol.md#counter-ids);
//! - a change that was reported as made was made once, on the value that was there, even if writes
//!   without an answer arrive later; a change that was reported as not made never is; a change of
//!   unknown outcome was made at most once (docs/protocol.md#counter-writes);
//! - a value that was compared, or found to exist, existed at some moment during the call;
//! - every change ends.

use std::collections::BTreeSet;

use proptest::prelude::*;

use crate::protocol::counter::{
    Change, Changed, Changing, CounterEvent, CounterRequest, CounterStep, SeenCounter, Unchanged,
};

/// A stream of choices that proptest can shrink.
struct Choices<'a> {
    bytes: std::slice::Iter<'a, u8>,
}

impl Choices<'_> {
    fn next(&mut self) -> u8 {
        // When the choices run out, everything succeeds.
        self.bytes.next().copied().unwrap_or(u8::MAX)
    }

    fn are_left(&self) -> bool {
        !self.bytes.as_slice().is_empty()
    }

    /// Returns `true` with a chance of `n` in 256, and `false` when the choices have run out.
    fn chance(&mut self, n: u8) -> bool {
        self.next() < n
    }

    fn below(&mut self, n: usize) -> usize {
        usize::from(self.next()) % n
    }
}

/// The events of a schedule.
#[derive(Clone, Copy, Debug)]
struct Rules {
    /// The value only grows, as that of a counter of ids.
    rises: bool,
    /// A request without an answer may be carried out any time later.
    late: bool,
    /// The node is deleted by hand.
    deleted: bool,
}

/// A write that was carried out.
#[derive(Clone, Copy, Debug)]
struct Applied {
    call: usize,
    from: i64,
    to: i64,
    czxid: i64,
}

/// A change, as its caller sees it.
#[derive(Debug)]
struct Call {
    change: Change,
    /// The length of the history when it began.
    began: usize,
    /// The node from whose value the last write was computed.
    base: Option<i64>,
    /// `None` if the caller left.
    outcome: Option<(Result<Changed, Unchanged>, usize)>,
}

/// A process with one change under way.
struct Process {
    call: usize,
    changing: Changing,
    request: CounterRequest,
    /// Reads show it nothing older than this.
    seen: usize,
}

struct World<'a> {
    rules: Rules,
    choices: Choices<'a>,
    node: Option<SeenCounter>,
    /// The node after each transaction.
    history: Vec<Option<SeenCounter>>,
    parent: bool,
    zxid: i64,
    calls: Vec<Call>,
    processes: Vec<Process>,
    /// Requests that were sent and have not arrived yet.
    flying: Vec<(usize, CounterRequest)>,
    applied: Vec<Applied>,
    /// Numbers that a peer handed out, which counts in one step.
    peers: Vec<i64>,
}

const PROCESSES: usize = 3;

impl<'a> World<'a> {
    fn new(bytes: &'a [u8], rules: Rules) -> Self {
        let mut choices = Choices {
            bytes: bytes.iter(),
        };
        let mut world = Self {
            rules,
            parent: choices.chance(128),
            choices,
            node: None,
            history: vec![None],
            zxid: 0,
            calls: Vec::new(),
            processes: Vec::new(),
            flying: Vec::new(),
            applied: Vec::new(),
            peers: Vec::new(),
        };
        for _ in 0..PROCESSES {
            let process = world.begin();
            world.processes.push(process);
        }
        world
    }

    fn value(&self) -> i64 {
        self.node.map_or(0, |node| node.value)
    }

    fn latest(&self) -> usize {
        self.history.len() - 1
    }

    fn begin(&mut self) -> Process {
        let number = i64::try_from(self.choices.below(4)).unwrap();
        // The numbers are few, so that several processes often write the same value.
        let value = self.value();
        // A counter of ids must not go back, so `Set` and negative additions are for the other
        // schedules.
        let change = match (self.choices.below(8), self.rules.rises) {
            (0..3, _) => Change::Reserve(u32::try_from(number).unwrap().max(1)),
            (3, _) => Change::CompareAndSet {
                expected: value,
                new: value + number,
            },
            (4, _) => Change::Initialize(number),
            (5, true) => Change::Add(number.into()),
            (5, false) => Change::Set(number),
            (6, false) => Change::Add(i128::from(number) - 2),
            _ => Change::Add(1),
        };
        let (changing, step) = Changing::new(change);
        let CounterStep::Do(request) = step else {
            panic!("{step:?} before anything was asked")
        };
        self.calls.push(Call {
            change,
            began: self.latest(),
            base: None,
            outcome: None,
        });
        Process {
            call: self.calls.len() - 1,
            changing,
            request,
            seen: 0,
        }
    }

    fn set(&mut self, node: Option<SeenCounter>) {
        self.zxid += 1;
        self.node = node;
        // Each state is kept, because servers that lag behind show old ones.
        self.history.push(node);
    }

    /// Carries out a request at the leader.
    fn apply(&mut self, call: usize, request: CounterRequest) -> CounterEvent {
        match request {
            CounterRequest::MakeParents => {
                self.parent = true;
                CounterEvent::ParentsMade
            }
            // The leader decides by its own state, not by what the sender has read.
            CounterRequest::Create { .. } if !self.parent => CounterEvent::NoParent,
            CounterRequest::Create { .. } if self.node.is_some() => CounterEvent::Exists,
            CounterRequest::Create { value } => {
                let czxid = self.zxid + 1;
                // The create of any other change writes 0, the value that a missing node has, and
                // counts for nothing.
                if matches!(self.calls[call].change, Change::Initialize(_)) {
                    self.applied.push(Applied {
                        call,
                        from: 0,
                        to: value,
                        czxid,
                    });
                }
                self.set(Some(SeenCounter {
                    value,
                    version: 0,
                    czxid,
                }));
                CounterEvent::Created {
                    // Some answers have no valid Stat, so that the change has to read the node.
                    czxid: (!self.choices.chance(60)).then_some(czxid),
                }
            }
            CounterRequest::Write { value, version } => match self.node {
                None => CounterEvent::NoNode,
                Some(node) if node.version != version => CounterEvent::BadVersion,
                // The version may be right by chance, if the node was deleted and created again.
                Some(node) => {
                    self.applied.push(Applied {
                        call,
                        from: node.value,
                        to: value,
                        czxid: node.czxid,
                    });
                    self.set(Some(SeenCounter {
                        value,
                        version: version + 1,
                        ..node
                    }));
                    CounterEvent::Written { czxid: node.czxid }
                }
            },
            CounterRequest::Read { .. } | CounterRequest::Pause { .. } => {
                panic!("{request:?} is no write")
            }
        }
    }

    fn read(&mut self, process: usize, sync: bool) -> CounterEvent {
        if self.choices.chance(20) {
            // Another session knows nothing of the earlier one's reads.
            self.processes[process].seen = 0;
        }
        let latest = self.latest();
        // A server may lag behind, but never shows a session an older state than it has shown it.
        let lag = latest - self.processes[process].seen;
        let at = if !sync && self.choices.chance(80) {
            latest - self.choices.below(lag + 1)
        } else {
            latest
        };
        self.processes[process].seen = at;
        CounterEvent::Read(self.history[at])
    }

    /// Makes a process send its request, and handle the outcome.
    fn step(&mut self, p: usize) {
        let Process { call, request, .. } = self.processes[p];
        let event = match self.choices.next() {
            _ if matches!(request, CounterRequest::Pause { .. }) => CounterEvent::Paused,
            // The request is lost.
            0..30 => CounterEvent::Lost,
            // The request is under way, and is carried out at any time.
            30..60 if self.rules.late => {
                self.fly(call, request);
                CounterEvent::Lost
            }
            // An overloaded server refuses the request.
            60..65 => CounterEvent::NotDone,
            // The retry policy is exhausted, or the servers refuse the request.
            65..70 => {
                let lost = self.choices.chance(128);
                if lost {
                    self.fly(call, request);
                }
                CounterEvent::Failed { lost }
            }
            // The request is carried out, and the answer is lost.
            70..120 => match request {
                CounterRequest::Read { .. } => CounterEvent::Lost,
                request => {
                    self.apply(call, request);
                    CounterEvent::Lost
                }
            },
            _ => match request {
                CounterRequest::Read { sync } => self.read(p, sync),
                request => {
                    let answer = self.apply(call, request);
                    // The answer to a write comes after the commit, which the session sees from
                    // then on.
                    self.processes[p].seen = self.latest();
                    answer
                }
            },
        };
        match event {
            // A number belongs to the node from which it was computed.
            CounterEvent::Read(Some(SeenCounter { czxid, .. }))
            | CounterEvent::Created { czxid: Some(czxid) } => {
                self.calls[call].base = Some(czxid);
            }
            _ => {}
        }
        match self.processes[p].changing.on(event) {
            CounterStep::Do(request) => self.processes[p].request = request,
            CounterStep::Finish(outcome) => {
                self.calls[call].outcome = Some((outcome, self.latest()));
                self.processes[p] = self.begin();
            }
        }
    }

    fn fly(&mut self, call: usize, request: CounterRequest) {
        // A read that arrives late changes nothing.
        if self.rules.late && !matches!(request, CounterRequest::Read { .. }) {
            self.flying.push((call, request));
        }
    }

    fn land(&mut self) {
        if !self.flying.is_empty() {
            let at = self.choices.below(self.flying.len());
            let (call, request) = self.flying.swap_remove(at);
            self.apply(call, request);
        }
    }

    /// Lets something happen that is not a step of a process.
    fn happen(&mut self) {
        match self.choices.below(8) {
            0..4 => self.land(),
            4 => {
                // A caller leaves; its requests may still arrive.
                let p = self.choices.below(PROCESSES);
                let Process { call, request, .. } = self.processes[p];
                if !matches!(request, CounterRequest::Pause { .. }) {
                    self.fly(call, request);
                }
                self.processes[p] = self.begin();
            }
            // Another process deletes the node, or its directory once that is empty.
            5 if self.rules.deleted && self.node.is_some() => self.set(None),
            5 if self.rules.deleted => self.parent = false,
            _ => {
                // A peer adds 1. Its write names a version like any other, so one step stands for
                // its read and its write.
                if let Some(node) = self.node {
                    let value = node.value + 1;
                    self.peers.push(value);
                    self.set(Some(SeenCounter {
                        value,
                        version: node.version + 1,
                        ..node
                    }));
                }
            }
        }
    }

    /// Lets all work under way end without further faults.
    fn end(&mut self) {
        assert!(!self.choices.are_left());
        let last = self.calls.len();
        // A change ends after 30 tries at the latest, and a try takes a few steps. Calls that begin
        // now are not followed.
        for _ in 0..200 {
            for p in 0..PROCESSES {
                if self.processes[p].call < last {
                    self.step(p);
                }
            }
        }
        let waiting: Vec<_> = self
            .processes
            .iter()
            .filter(|process| process.call < last)
            .map(|process| process.request)
            .collect();
        assert!(waiting.is_empty(), "these do not end: {waiting:?}");
        // The requests without an answer may still be carried out.
        while !self.flying.is_empty() {
            self.land();
        }
    }

    fn check(&self) {
        let mut numbers = BTreeSet::new();
        // Numbers are unique only if the counter never goes back, by a lower value or by a
        // deletion.
        for number in &self.peers {
            assert!(
                !self.rules.rises || self.rules.deleted || numbers.insert(*number),
                "{number} twice"
            );
        }
        for (number, call) in self.calls.iter().enumerate() {
            let made: Vec<Applied> = self
                .applied
                .iter()
                .filter(|applied| applied.call == number)
                .copied()
                .collect();
            let Some((outcome, ended)) = call.outcome else {
                continue;
            };
            self.check_outcome(call, outcome, &made, &self.history[call.began..=ended]);
            if let (Change::Reserve(count), Ok(Changed::To(last))) = (call.change, outcome) {
                for number in last - i64::from(count) + 1..=last {
                    let fresh = numbers.insert(number);
                    assert!(
                        !self.rules.rises || self.rules.deleted || fresh,
                        "{number} twice"
                    );
                }
            }
        }
    }

    fn check_outcome(
        &self,
        call: &Call,
        outcome: Result<Changed, Unchanged>,
        made: &[Applied],
        during: &[Option<SeenCounter>],
    ) {
        let what = || format!("{call:?} {made:?}");
        let value = |node: &Option<SeenCounter>| node.map_or(0, |node| node.value);
        let written: Vec<&Applied> = match (call.change, outcome) {
            // Additions whose numbers were given up may have been made, too. A value that occurs
            // again, because the counter was set back or deleted, counts once.
            (Change::Reserve(_), Ok(Changed::To(last))) => {
                let it =
                    |applied: &&Applied| applied.to == last && Some(applied.czxid) == call.base;
                let last = if self.rules.rises && !self.rules.deleted {
                    usize::MAX
                } else {
                    1
                };
                made.iter().rev().filter(it).take(last).collect()
            }
            (Change::Reserve(_), _) => return,
            _ => made.iter().collect(),
        };
        match (call.change, outcome) {
            // One write was made, to the node that was read, from the value that the result claims.
            (Change::Add(_) | Change::Reserve(_), Ok(Changed::To(new))) => {
                let [applied] = written[..] else {
                    panic!("{}", what())
                };
                assert_eq!(applied.to, new, "{}", what());
                assert_eq!(Some(applied.czxid), call.base, "{}", what());
                assert_eq!(
                    i128::from(applied.to - applied.from),
                    call.change.delta(),
                    "{}",
                    what()
                );
            }
            (Change::CompareAndSet { expected, new }, Ok(Changed::Set(true))) => {
                assert_eq!(made.len(), 1, "{}", what());
                assert_eq!((made[0].from, made[0].to), (expected, new), "{}", what());
            }
            (Change::CompareAndSet { expected, .. }, Ok(Changed::Set(false))) => {
                // Nothing was written, and at some moment of the call the value was not the
                // expected one.
                assert!(made.is_empty(), "{}", what());
                assert!(
                    during.iter().any(|node| value(node) != expected),
                    "{}",
                    what()
                );
            }
            (Change::Initialize(_), Ok(Changed::Set(true))) => {
                // The node of a create without an answer may have been deleted, so that the
                // repetition has created another.
                assert!(
                    made.len() == 1 || self.rules.deleted && made.len() > 1,
                    "{}",
                    what()
                );
            }
            (Change::Initialize(_), Ok(Changed::Set(false))) => {
                assert!(self.rules.deleted || made.is_empty(), "{}", what());
                assert!(during.iter().any(Option::is_some), "{}", what());
            }
            (Change::Set(new), Ok(Changed::Set(true))) => {
                // Another process may have set the same value, which is a success for this caller,
                // too.
                assert!(made.len() <= 1, "{}", what());
                assert!(during.iter().any(|node| value(node) == new), "{}", what());
            }
            // The two writes may have been to two nodes at one path, one after the other, and both
            // committed.
            (_, Err(Unchanged::Unknown)) => {
                assert!(self.rules.deleted || made.len() <= 1, "{}", what());
            }
            (_, Err(Unchanged::Contended | Unchanged::Failed)) => {
                assert!(made.is_empty(), "{}", what());
            }
            _ => panic!("{}", what()),
        }
    }
}

fn simulate(bytes: &[u8], rules: Rules) {
    let mut world = World::new(bytes, rules);
    while world.choices.are_left() {
        if world.choices.chance(70) {
            world.happen();
        } else {
            let p = world.choices.below(PROCESSES);
            world.step(p);
        }
    }
    world.end();
    world.check();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    // Shows: counter-ids, counter-tries
    #[test]
    fn schedules_hand_out_numbers_once(bytes in prop::collection::vec(any::<u8>(), 20..800)) {
        simulate(&bytes, Rules { rises: true, late: true, deleted: false });
    }

    // Shows: counter-writes
    #[test]
    fn schedules_report_each_change_once(
        bytes in prop::collection::vec(any::<u8>(), 20..800)
    ) {
        simulate(&bytes, Rules { rises: false, late: true, deleted: false });
    }

    /// Without late writes: those may hit the next node, which is why a counter in use must not be
    /// deleted.
    // Shows: counter-deleted
    #[test]
    fn change_applies_to_the_node_read(bytes in prop::collection::vec(any::<u8>(), 20..800)) {
        simulate(&bytes, Rules { rises: true, late: false, deleted: true });
    }
}
