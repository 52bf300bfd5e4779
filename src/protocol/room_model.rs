//! A model of one [`Room`] among contenders of other processes: every schedule of arrivals, departures, releases,
//! losses and grants, small ones exhaustively and long ones at random. No two callers have the lock at once,
//! no caller is forgotten, and the order of arrival and the bounds are kept.

use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;

use crate::protocol::moment::Moment;
use crate::protocol::room::{HandOff, Kept, Next, Position, Room};

/// Something that happens, or does not if it cannot.
#[derive(Clone, Copy, Debug)]
enum Event {
    Arrives,
    /// A caller comes that does not wait for others; it is granted a separate node if the room has none.
    Tries,
    /// One with a deadline, which has passed at the next `Late`.
    ArrivesFor,
    Late,
    /// The waiting caller at this position behind the first gives up.
    Leaves(usize),
    /// The attempt that is wanted starts; an attempt under way is granted.
    Attempt,
    AttemptFails,
    Releases,
    ReleasesInDoubt,
    /// The holder leaves with the grant on its way to it.
    LeavesUnseen,
    Loses,
    /// One arrives while the session is in doubt.
    ArrivesInDoubt,
    /// Another client comes, as far as the watch can tell.
    OthersCome,
    /// A node that is kept has been so for long enough.
    Idle,
    /// The last handle goes.
    Closes,
    /// Time passes, more than the bound.
    Waits,
}

const EVENTS: [Event; 16] = [
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
    Event::ArrivesInDoubt,
    Event::OthersCome,
    Event::Idle,
    Event::Closes,
    Event::Waits,
];

const BOUNDS: HandOff = HandOff { max: 3, time: Duration::from_secs(1) };

#[derive(Clone, Copy, Debug)]
struct Options {
    bounds: HandOff,
    sticky: bool,
}

struct Model {
    room: Room<u64, ()>,
    options: Options,
    /// The hold of the node that is kept.
    kept: Option<u64>,
    /// The node that is there, by the number of its first hold.
    node: u64,
    /// Whether another client may want it, and whether a look at that has begun.
    others: bool,
    is_watched: bool,
    now: Moment,
    next: u64,
    /// The callers that should be waiting, in order: their numbers and deadlines.
    waiting: VecDeque<(u64, Option<()>)>,
    /// The hold that has the node.
    holder: Option<u64>,
    attempt: bool,
    /// Callers with lower numbers were waiting when the attempt began.
    began: u64,
    /// Since when the node is held, and how often it was handed over since.
    row: (Moment, u32),
}

impl Model {
    fn new(options: Options) -> Self {
        Self {
            room: Room::new(options.bounds, options.sticky),
            options,
            kept: None,
            node: 0,
            others: false,
            is_watched: false,
            now: Moment::at(Duration::ZERO),
            next: 1,
            waiting: VecDeque::new(),
            holder: None,
            attempt: false,
            began: 0,
            row: (Moment::at(Duration::ZERO), 0),
        }
    }

    fn takes_kept(&mut self, healthy: bool) -> bool {
        match self.room.take_kept(healthy) {
            Kept::None => assert!(self.kept.is_none(), "a node that is kept is not seen"),
            Kept::Granted => {
                assert!(healthy && !self.others, "kept in doubt, or from another");
                assert!(self.holder.is_none() && !self.attempt && self.waiting.is_empty(), "a second holder");
                self.holder = self.kept.take();
                assert!(self.holder.is_some(), "no node is kept");
                return true;
            }
            Kept::GivenUp => {
                assert!(!healthy, "given up without a reason");
                self.given_up(healthy);
            }
        }
        false
    }

    fn arrives(&mut self, deadline: Option<()>, healthy: bool) {
        let number = self.next;
        self.next += 1;
        if !self.takes_kept(healthy) {
            self.room.wait(Position::new(number, false), number, deadline);
            self.waiting.push_back((number, deadline));
        }
    }

    fn tries(&mut self) {
        if self.takes_kept(true) || self.holder.is_some() {
            return;
        }
        let number = self.next;
        self.next += 1;
        assert_eq!(self.room.adopt(number, self.now), !self.attempt, "a second node");
        if !self.attempt {
            self.node_is(number);
        }
    }

    /// A node was granted to the hold with this number.
    fn node_is(&mut self, number: u64) {
        self.row = (self.now, 0);
        (self.node, self.others, self.is_watched) = (number, false, false);
        self.holder = Some(number);
    }

    /// The node that was kept is released.
    fn given_up(&mut self, healthy: bool) {
        self.others = true;
        self.holder = self.kept.take();
        assert!(self.holder.is_some(), "no node is kept");
        self.releases(healthy);
    }

    /// The first one has the lock.
    fn granted(&mut self, number: u64) {
        assert_eq!(self.waiting.pop_front().map(|(first, _)| first), Some(number), "not in order");
        self.holder = Some(number);
    }

    fn after_departure(&mut self) {
        if self.room.is_idle() {
            assert!(self.waiting.is_empty());
            self.room.attempt_ends();
            self.attempt = false;
        }
    }

    fn releases(&mut self, healthy: bool) {
        let Some(holder) = self.holder.take() else { return };
        let idle = self.next;
        self.next += 1;
        let next = self.room.released(holder, idle, self.now, healthy);
        let alone = self.options.sticky && !self.others;
        let bounds = self.options.bounds;
        let in_bounds = self.row.1 + 1 < bounds.max && self.now.since(self.row.0) < bounds.time;
        let may = healthy && (alone || in_bounds);
        match next {
            Next::To(at, number) => {
                assert!(may, "handed over beyond the bounds");
                assert_eq!(at.number(), number);
                self.row = if alone { (self.now, 0) } else { (self.row.0, self.row.1 + 1) };
                self.granted(number);
            }
            Next::Delete => {
                assert!(!may || self.waiting.is_empty(), "a waiter was passed over");
                assert!(!(healthy && alone), "it was to be kept");
                assert!(!self.room.wants_attempt(), "the node is not on its way out yet");
                self.room.over(holder);
                return;
            }
            Next::Keep => {
                assert!(healthy && alone && self.waiting.is_empty(), "kept from another");
                self.kept = Some(idle);
            }
        }
        // Passing the node on begins the look, once.
        assert_eq!(self.room.begin_look(), (alone && !self.is_watched).then_some(self.node));
        self.is_watched |= alone;
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Arrives => self.arrives(None, true),
            Event::Tries => self.tries(),
            Event::ArrivesFor => self.arrives(Some(()), true),
            Event::Late => {
                let is_late = |(_, deadline): &(u64, Option<()>)| deadline.is_some();
                let expected: Vec<_> = (0..)
                    .zip(&self.waiting)
                    .filter(|(_, waiting)| is_late(waiting))
                    .map(|(before, (number, _))| (*number, before))
                    .collect();
                let late = self.room.late(()).into_iter().map(|late| (late.waiter, late.before));
                assert_eq!(late.collect::<Vec<_>>(), expected);
                self.waiting.retain(|waiting| !is_late(waiting));
                self.after_departure();
            }
            Event::Leaves(index) => {
                if let Some((number, _)) = self.waiting.remove(index) {
                    let at = Position::new(number, false);
                    assert_eq!(self.room.leave(at), Some(number));
                    assert_eq!(self.room.leave(at), None);
                    self.after_departure();
                }
            }
            Event::Attempt => match (self.attempt, self.room.wants_attempt()) {
                (false, true) => {
                    assert!(self.holder.is_none() && self.kept.is_none(), "a second node");
                    self.room.attempt_begins();
                    (self.attempt, self.began) = (true, self.next);
                }
                (true, wanted) => {
                    assert!(!wanted, "a second attempt");
                    self.attempt = false;
                    // As the servers do: with the number of the attempt.
                    let number = self.next;
                    self.next += 1;
                    let (_, first) = self.room.granted(number, self.now).expect("somebody waits");
                    self.granted(first);
                    self.node_is(number);
                }
                (false, false) => {}
            },
            Event::AttemptFails => {
                if std::mem::take(&mut self.attempt) {
                    let began = self.began;
                    let is_told = |waiting: &(u64, Option<()>)| waiting.0 < began;
                    let expected: Vec<_> = self
                        .waiting
                        .iter()
                        .filter(|waiting| is_told(waiting))
                        .map(|(number, _)| *number)
                        .collect();
                    assert_eq!(self.room.failed(), expected);
                    self.waiting.retain(|waiting| !is_told(waiting));
                }
            }
            Event::Releases | Event::LeavesUnseen => self.releases(true),
            Event::ReleasesInDoubt => self.releases(false),
            Event::ArrivesInDoubt => self.arrives(None, false),
            Event::OthersCome => {
                assert!(!self.room.others_come(u64::MAX), "of an earlier node");
                let is_there = self.holder.or(self.kept).is_some();
                let is_kept = self.room.others_come(self.node);
                assert_eq!(is_kept, self.kept.is_some());
                if is_kept {
                    self.given_up(true);
                } else if is_there {
                    self.others = true;
                }
            }
            Event::Idle => {
                let is_kept = self.room.give_up();
                assert_eq!(is_kept, self.kept.is_some());
                if is_kept {
                    self.given_up(true);
                }
            }
            Event::Closes => {
                let is_kept = self.room.close();
                assert_eq!(is_kept, self.kept.is_some());
                self.options.sticky = false;
                if is_kept {
                    self.given_up(true);
                }
            }
            Event::Loses => {
                if let Some(holder) = self.holder.take().or_else(|| self.kept.take()) {
                    self.room.over(holder);
                    // Its release comes too late to mean anything.
                    let late = self.room.released(holder, u64::MAX, self.now, true);
                    assert_eq!(late, Next::Delete);
                    self.room.over(holder);
                }
            }
            Event::Waits => self.now = self.now.plus(BOUNDS.time),
        }
        assert!(self.kept.is_none() || self.waiting.is_empty(), "waits for a node that is kept");
        assert!(self.kept.is_none() || self.options.sticky, "kept although no handle can use it");
        assert_eq!(self.room.has_node(), self.holder.or(self.kept).is_some());
        // All that wait are served, by the holder or an attempt, or one is wanted.
        let is_served = self.holder.is_some() || self.attempt || self.room.wants_attempt();
        assert!(self.waiting.is_empty() || is_served, "forgotten: {:?}", self.waiting);
        assert_eq!(self.room.is_waited_for(), !self.waiting.is_empty());
        assert!(!self.room.wants_attempt() || self.holder.is_none(), "a second node");
    }

    /// All that wait are served in the end.
    fn ends(mut self) {
        for _ in 0..=3 * self.waiting.len() {
            self.happens(Event::Releases);
            self.happens(Event::Attempt);
            self.happens(Event::Attempt);
        }
        assert!(self.waiting.is_empty(), "forgotten: {:?}", self.waiting);
    }
}

fn run(options: Options, events: &[Event]) {
    let mut model = Model::new(options);
    for &event in events {
        model.happens(event);
    }
    model.ends();
}

// Shows: hand-off, kept-node
#[test]
fn every_short_schedule_of_a_room() {
    const LENGTH: u32 = 5;
    let all = EVENTS.len();
    for (bounds, sticky) in [(BOUNDS, false), (BOUNDS, true), (HandOff::NONE, false), (HandOff::NONE, true)] {
        for schedule in 0..all.pow(LENGTH) {
            let mut events = [Event::Arrives; LENGTH as usize];
            let mut rest = schedule;
            for event in &mut events {
                *event = EVENTS[rest % all];
                rest /= all;
            }
            // Nothing happens until a first caller arrives.
            if matches!(events[0], Event::Arrives | Event::Tries) {
                run(Options { bounds, sticky }, &events);
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
    // Shows: hand-off, kept-node
    #[test]
    fn no_schedule_of_a_room_grants_twice_or_forgets_one(
        events in proptest::collection::vec(event(), 0..200),
        bounded in any::<bool>(),
        sticky in any::<bool>(),
    ) {
        run(Options { bounds: if bounded { BOUNDS } else { HandOff::NONE }, sticky }, &events);
    }
}
