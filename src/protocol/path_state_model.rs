//! Models of one [`PathState`] among contenders of other processes.
//!
//! Each model is a naive copy of the state: a list of waiting callers, and the hold that has the
//! node. An event changes the real state and the copy, and both must agree after it. The servers
//! are not simulated: an attempt is granted the lock when the schedule says so.
//!
//! - `Model`, of a mutex: every schedule of arrivals, departures, releases, losses and grants,
//!   short ones exhaustively and long ones at random. No two callers have the lock at once, no
//!   caller is forgotten, and the order of arrival and the bounds are kept.
//! - `SharedModel`, of readers that share a node: schedules at random. The node is deleted once,
//!   when the last reader has left.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use proptest::prelude::*;

use crate::protocol::moment::Moment;
use crate::protocol::node_name::Kind;
use crate::protocol::numbers::NodeNumber;
use crate::protocol::numbers::by_value::{attempt_number, hold_number};
use crate::protocol::path_state::{HandOff, PassOn, PathState};
use crate::protocol::waiters::{Arrival, Waiters};

/// An event of a schedule. An event that is impossible at that point is skipped.
#[derive(Clone, Copy, Debug)]
enum Event {
    Arrives,
    /// A caller comes that does not wait for others, and is granted a separate node. The node is
    /// opened if this client has no open one.
    Tries,
    /// A caller arrives with a deadline, which has passed at the next `Late`.
    ArrivesFor,
    Late,
    /// The waiting caller at this position behind the first gives up.
    Leaves(usize),
    /// The attempt that is wanted starts; an attempt under way is granted.
    Attempt,
    AttemptFails,
    Releases,
    ReleasesInDoubt,
    /// The caller leaves while its grant is on the way.
    LeavesUnseen,
    Loses,
    /// The holder keeps the node for a conversion, and releases it after that.
    Converts,
    /// More time passes than the bounds allow one node.
    Waits,
}

const EVENTS: [Event; 13] = [
    Event::Arrives,
    Event::Tries,
    Event::ArrivesFor,
    Event::Late,
    Event::Leaves(0),
    Event::Attempt,
    Event::AttemptFails,
    Event::Releases,
    Event::ReleasesInDoubt,
    Event::LeavesUnseen,
    Event::Loses,
    Event::Converts,
    Event::Waits,
];

const WRITERS: Kind = Kind::Exclusive;

const BOUNDS: HandOff = HandOff {
    max: 3,
    time: Duration::from_secs(1),
};

struct Model {
    path: PathState<u64, (), u64>,
    bounds: HandOff,
    /// The node of the holder, or of the last one.
    node: NodeNumber,
    now: Moment,
    next: u64,
    /// The callers that should be waiting, in order: their numbers and deadlines.
    waiting: VecDeque<(u64, Option<()>)>,
    /// The hold that has the node.
    holder: Option<u64>,
    /// A lost hold whose node is not deleted yet, and this node.
    lost: Option<(NodeNumber, u64)>,
    /// Holds whose nodes were not opened, because callers were waiting.
    apart: Vec<u64>,
    attempt: bool,
    /// Callers with lower numbers were waiting when the attempt began.
    began: u64,
    /// Since when the node is held, and how often it was handed over since.
    row: (Moment, u32),
}

impl Model {
    fn new(bounds: HandOff) -> Self {
        Self {
            path: PathState::new(bounds),
            bounds,
            node: NodeNumber::of_first_hold(hold_number(0)),
            now: Moment::at(Duration::ZERO),
            next: 1,
            waiting: VecDeque::new(),
            holder: None,
            lost: None,
            apart: Vec::new(),
            attempt: false,
            began: 0,
            row: (Moment::at(Duration::ZERO), 0),
        }
    }

    fn arrives(&mut self, deadline: Option<()>) {
        let number = self.next;
        self.next += 1;
        let at = Arrival::new(attempt_number(number), false);
        self.path.wait(WRITERS, at, number, deadline);
        self.waiting.push_back((number, deadline));
    }

    fn waiters(&mut self) -> &mut Waiters<u64, ()> {
        self.path.waiters.of_mut(WRITERS)
    }

    fn tries(&mut self) {
        // While this client has the lock, the servers grant a try nothing.
        if self.holder.is_some() || !self.apart.is_empty() {
            return;
        }
        let number = self.next;
        self.next += 1;
        let is_free = !self.attempt && self.waiting.is_empty();
        let node = self
            .path
            .add(hold_number(number), WRITERS, number, self.now);
        assert_eq!(self.path.open(node), is_free, "a second open node");
        if is_free {
            self.node_is(number);
        } else {
            // The callers that wait get the node of their attempt, which is behind this one.
            self.apart.push(number);
        }
    }

    /// A hold of a separate node is released, and its node is deleted.
    fn apart_releases(&mut self) {
        if let Some(hold) = self.apart.pop() {
            let node = NodeNumber::of_first_hold(hold_number(hold));
            assert_eq!(
                self.path.released(node, hold_number(hold), self.now, true),
                PassOn::Delete
            );
            self.path.hold_ended(node, hold_number(hold));
        }
    }

    /// A node was granted to the hold with this number.
    fn node_is(&mut self, number: u64) {
        self.row = (self.now, 0);
        self.node = NodeNumber::of_first_hold(hold_number(number));
        self.holder = Some(number);
    }

    /// The first waiting caller has the lock.
    fn granted(&mut self, number: u64) {
        assert_eq!(
            self.waiting.pop_front().map(|(first, _)| first),
            Some(number),
            "not in order"
        );
        self.holder = Some(number);
    }

    fn after_departure(&mut self) {
        let is_abandoned = self.attempt && self.waiting.is_empty();
        assert_eq!(self.waiters().abandon_attempt(), is_abandoned);
        self.attempt &= !is_abandoned;
    }

    fn releases(&mut self, healthy: bool) {
        // No other event ends a separate node, so each release ends one.
        self.apart_releases();
        let Some(holder) = self.holder.take() else {
            return;
        };
        let next = self
            .path
            .released(self.node, hold_number(holder), self.now, healthy);
        let bounds = self.bounds;
        // The first holder counts too: a node that was handed over n times has had n + 1 holders.
        let in_bounds = self.row.1 + 1 < bounds.max && self.now.since(self.row.0) < bounds.time;
        let may = healthy && in_bounds;
        match next {
            PassOn::To(at, number) => {
                assert!(may, "handed over beyond the bounds");
                assert_eq!(at.number(), attempt_number(number));
                self.row.1 += 1;
                self.path.enter(self.node, hold_number(number), number);
                self.granted(number);
            }
            PassOn::Delete => {
                assert!(!may || self.waiting.is_empty(), "a waiter was passed over");
                // An attempt that began here would send its create ahead of the deletion.
                assert!(
                    !self.waiters().wants_attempt(),
                    "the node is not on its way out yet"
                );
                self.path.hold_ended(self.node, hold_number(holder));
            }
            // Only readers share a node.
            PassOn::Stays => panic!("a second holder"),
        }
    }

    /// A lost hold is released. Its node must not be passed on, and another hold may have a node of
    /// this client by then.
    fn late_release(&mut self) {
        if let Some((node, hold)) = self.lost.take() {
            assert_eq!(
                self.path.released(node, hold_number(hold), self.now, true),
                PassOn::Delete
            );
            self.path.hold_ended(node, hold_number(hold));
        }
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Arrives => self.arrives(None),
            Event::Tries => self.tries(),
            Event::ArrivesFor => self.arrives(Some(())),
            Event::Late => {
                let is_late = |(_, deadline): &(u64, Option<()>)| deadline.is_some();
                let expected: Vec<_> = (0..)
                    .zip(&self.waiting)
                    .filter(|(_, waiting)| is_late(waiting))
                    .map(|(before, (number, _))| (*number, before))
                    .collect();
                assert_eq!(self.waiters().late(()), expected);
                self.waiting.retain(|waiting| !is_late(waiting));
                self.after_departure();
            }
            Event::Leaves(index) => {
                if let Some((number, _)) = self.waiting.remove(index) {
                    let at = Arrival::new(attempt_number(number), false);
                    assert_eq!(self.waiters().take(at), Some(number));
                    // A caller that has its answer also leaves, when its call is dropped.
                    assert_eq!(self.waiters().take(at), None);
                    self.after_departure();
                }
            }
            Event::Attempt => match (self.attempt, self.waiters().wants_attempt()) {
                // The attempt begins: from here on, its failure concerns those that wait now.
                (false, true) => {
                    assert!(self.holder.is_none(), "a second node");
                    self.waiters().attempt_begins();
                    (self.attempt, self.began) = (true, self.next);
                }
                // The attempt is granted the lock. The caller that is first by now gets it, even if
                // it arrived after the attempt had begun.
                (true, wanted) => {
                    assert!(!wanted, "a second attempt");
                    self.attempt = false;
                    // The node and the first hold have the number of the attempt.
                    let number = self.next;
                    self.next += 1;
                    self.path
                        .add(hold_number(number), WRITERS, number, self.now);
                    let served = self.path.granted(WRITERS, hold_number(number), number);
                    let [first] = served[..] else {
                        panic!("one has it, and another waits: {served:?}")
                    };
                    self.granted(first);
                    self.node_is(number);
                }
                (false, false) => {}
            },
            Event::AttemptFails => {
                // A later caller keeps waiting, and wants another attempt.
                if std::mem::take(&mut self.attempt) {
                    let began = self.began;
                    let is_failed = |waiting: &(u64, Option<()>)| waiting.0 < began;
                    let expected: Vec<_> = self
                        .waiting
                        .iter()
                        .filter(|waiting| is_failed(waiting))
                        .map(|(number, _)| *number)
                        .collect();
                    assert_eq!(self.waiters().failed(), expected);
                    self.waiting.retain(|waiting| !is_failed(waiting));
                }
            }
            // A grant that comes back from a caller that has left is released like any other.
            Event::Releases | Event::LeavesUnseen => self.releases(true),
            Event::ReleasesInDoubt => self.releases(false),
            Event::Loses => {
                if let Some(hold) = self.holder.take() {
                    // The model remembers one lost hold, so the one before is released now.
                    self.late_release();
                    self.path.hold_lost(self.node);
                    self.lost = Some((self.node, hold));
                }
            }
            Event::Converts => {
                if let Some(hold) = self.holder.take() {
                    self.path.reserve(self.node, hold_number(hold));
                    // The conversion may have made the node a reader's, so no caller gets it.
                    assert_eq!(
                        self.path
                            .released(self.node, hold_number(hold), self.now, true),
                        PassOn::Delete
                    );
                    self.path.hold_ended(self.node, hold_number(hold));
                }
            }
            Event::Waits => self.now = self.now.plus(BOUNDS.time),
        }
        assert_eq!(self.waiters().has_open_node(), self.holder.is_some());
        // Errors name the holders of this client, so the state must have each hold, and no other.
        let known: BTreeSet<_> = self.path.holders().copied().collect();
        let lost = self.lost.iter().map(|(_, hold)| *hold);
        let expected: BTreeSet<_> = lost.chain(self.holder).chain(self.apart.clone()).collect();
        assert_eq!(known, expected);
        // No caller is forgotten: each gets the node of the holder or of an attempt, or an attempt
        // is wanted.
        let is_served = self.holder.is_some() || self.attempt || self.waiters().wants_attempt();
        assert!(
            self.waiting.is_empty() || is_served,
            "forgotten: {:?}",
            self.waiting
        );
        assert_eq!(self.waiters().is_waited_for(), !self.waiting.is_empty());
        assert!(
            !self.waiters().wants_attempt() || self.holder.is_none(),
            "a second node"
        );
    }

    /// Checks that all waiting callers get the lock in the end.
    fn ends(mut self) {
        // In each round the holder releases, an attempt begins if one is wanted, and is granted the
        // lock. So each round serves at least one caller.
        for _ in 0..=3 * self.waiting.len() {
            self.happens(Event::Releases);
            self.happens(Event::Attempt);
            self.happens(Event::Attempt);
        }
        assert!(self.waiting.is_empty(), "forgotten: {:?}", self.waiting);
        self.happens(Event::Releases);
        self.late_release();
        assert_eq!(self.path.holders().count(), 0, "a hold that has ended");
    }
}

fn run(bounds: HandOff, events: &[Event]) {
    let mut model = Model::new(bounds);
    for &event in events {
        model.happens(event);
    }
    model.ends();
}

// Shows: hand-off
#[test]
fn short_schedules() {
    const LENGTH: u32 = 5;
    let all = EVENTS.len();
    for bounds in [BOUNDS, HandOff::NONE] {
        for schedule in 0..all.pow(LENGTH) {
            // The digits of the number, to the base of the number of events, are the schedule.
            let mut events = [Event::Arrives; LENGTH as usize];
            let mut rest = schedule;
            for event in &mut events {
                *event = EVENTS[rest % all];
                rest /= all;
            }
            // Nothing happens until a first caller arrives.
            if matches!(events[0], Event::Arrives | Event::Tries) {
                run(bounds, &events);
            }
        }
    }
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => Just(Event::Arrives),
        2 => Just(Event::Releases),
        2 => Just(Event::Attempt),
        1 => (0..4_usize).prop_map(Event::Leaves),
        4 => (0..EVENTS.len()).prop_map(|index| EVENTS[index]),
    ]
}

proptest! {
    // Shows: hand-off
    #[test]
    fn schedules_grant_once_and_forget_nobody(
        events in proptest::collection::vec(event(), 0..200),
        bounded in any::<bool>(),
    ) {
        run(if bounded { BOUNDS } else { HandOff::NONE }, &events);
    }
}

/// An event of a node that readers share.
#[derive(Clone, Copy, Debug)]
enum Shared {
    Joins,
    /// A reader that waited with the first.
    Admitted,
    /// The hold with this index ends, perhaps for the second time, if two threads end it.
    Leaves(usize),
    /// The same while the session is in doubt, or after a write of unknown outcome.
    LeavesInDoubt(usize),
    /// A reader arrives while the session is in doubt.
    JoinsInDoubt,
    /// A writer of this client comes.
    Closes,
    /// More time passes than the bounds allow one node.
    Waits,
    /// The reader with this index is lost, and its node may not be deleted yet.
    Loses(usize),
    Gone,
}

fn shared() -> impl Strategy<Value = Shared> {
    prop_oneof![
        4 => Just(Shared::Joins),
        1 => Just(Shared::Admitted),
        4 => (0..6_usize).prop_map(Shared::Leaves),
        1 => (0..6_usize).prop_map(Shared::LeavesInDoubt),
        1 => Just(Shared::JoinsInDoubt),
        1 => Just(Shared::Closes),
        1 => Just(Shared::Waits),
        1 => (0..6_usize).prop_map(Shared::Loses),
        1 => Just(Shared::Gone),
    ]
}

/// One node that readers share.
struct SharedModel {
    path: PathState<u64, (), u64>,
    node: NodeNumber,
    inside: BTreeSet<u64>,
    /// All holds, those that have left included.
    all: Vec<u64>,
    is_open: bool,
    deletions: u32,
    bounds: HandOff,
    now: Moment,
    /// How many readers count for the bounds: the first, and those that have joined.
    holders: u32,
}

/// The first hold of the node.
const FIRST: u64 = 1;
const START: Moment = Moment::at(Duration::ZERO);

impl SharedModel {
    fn new(bounds: HandOff) -> Self {
        let mut path = PathState::new(bounds);
        let node = path.add(hold_number(FIRST), Kind::Shared, FIRST, START);
        assert!(path.open(node));
        let (inside, all) = (BTreeSet::from([FIRST]), vec![FIRST]);
        Self {
            path,
            node,
            inside,
            all,
            is_open: true,
            deletions: 0,
            bounds,
            now: START,
            holders: 1,
        }
    }

    fn enters(&mut self, hold: u64) {
        self.path.enter(self.node, hold_number(hold), hold);
        self.inside.insert(hold);
        self.all.push(hold);
    }

    fn leaves(&mut self, hold: u64, healthy: bool) {
        // Two threads may end one hold. Only the first end finds the hold inside.
        let was_inside = self.inside.remove(&hold);
        let was_last = was_inside && self.inside.is_empty();
        self.is_open &= !was_inside || healthy && !was_last;
        match self
            .path
            .released(self.node, hold_number(hold), self.now, healthy)
        {
            PassOn::Delete => {
                assert!(self.inside.is_empty(), "deleted under a reader");
                self.deletions += u32::from(was_last);
                self.path.hold_ended(self.node, hold_number(hold));
            }
            PassOn::Stays => assert!(!was_last, "never deleted"),
            PassOn::To(..) => panic!("none waits"),
        }
    }

    fn joins(&mut self, healthy: bool, next: u64) {
        let in_bounds = self.holders < self.bounds.max && self.now.since(START) < self.bounds.time;
        let may = self.is_open && healthy && in_bounds;
        match self.path.join(self.now, healthy) {
            Some((node, other)) => {
                assert!(may && self.inside.contains(&other), "it is not open");
                assert_eq!(node, self.node);
                self.holders += 1;
                self.enters(next);
            }
            None => assert!(!may, "it is open"),
        }
        self.is_open = may;
    }

    fn happens(&mut self, event: Shared, next: u64) {
        match event {
            Shared::Joins => self.joins(true, next),
            Shared::JoinsInDoubt => self.joins(false, next),
            // Readers that waited for the grant enter without a check of the bounds.
            Shared::Admitted => {
                if self.is_open {
                    self.enters(next);
                }
            }
            Shared::Leaves(index) | Shared::LeavesInDoubt(index) => {
                if let Some(&hold) = self.all.get(index) {
                    self.leaves(hold, matches!(event, Shared::Leaves(_)));
                }
            }
            Shared::Closes => {
                self.path.waiters.of_mut(Kind::Shared).close();
                self.is_open = false;
            }
            Shared::Waits => self.now = self.now.plus(self.bounds.time),
            Shared::Loses(index) => {
                if self
                    .all
                    .get(index)
                    .is_some_and(|hold| self.inside.contains(hold))
                {
                    self.path.hold_lost(self.node);
                    self.is_open = false;
                }
            }
            Shared::Gone => {
                let notified: BTreeSet<_> = self
                    .path
                    .node_missing(self.node, hold_number(FIRST))
                    .into_iter()
                    .collect();
                assert_eq!(notified, self.inside, "one is not notified");
                self.inside.clear();
                self.is_open = false;
                // The holds that were returned report their losses.
                self.path.hold_lost(self.node);
            }
        }
        assert!(self.deletions <= 1);
        assert_eq!(
            self.path.waiters.of(Kind::Shared).has_open_node(),
            self.is_open
        );
        assert_eq!(self.path.holders().count(), self.inside.len());
    }
}

proptest! {
    /// A node is deleted once, after its last reader; never under a reader, also if one leaves
    /// twice. Readers join within the bounds, none joins a closed node, and all that are inside are
    /// notified of its end.
    // Shows: shared-read-node
    #[test]
    fn shared_read_node_ends_once(
        max in 1..20_u32,
        events in proptest::collection::vec(shared(), 0..60),
    ) {
        let mut model = SharedModel::new(HandOff { max, ..BOUNDS });
        for (next, event) in (FIRST + 1..).zip(events) {
            model.happens(event, next);
        }
        // All readers leave in the end, and those that have left before leave once more.
        model.happens(Shared::Closes, u64::MAX);
        for hold in model.all.clone() {
            model.leaves(hold, true);
        }
        assert!(model.inside.is_empty(), "never left");
    }
}
