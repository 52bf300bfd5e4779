//! A model of one [`Room`] among contenders of other processes: every schedule of arrivals, departures, releases,
//! losses and grants, small ones exhaustively and long ones at random. None is granted the lock beside
//! another, none is forgotten, the order of arrival is kept, and so are the bounds.

use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;

use crate::protocol::moment::Moment;
use crate::protocol::room::{Arrival, HandOff, Next, Patience, Position, Room};

/// Something that happens, or does not if it cannot.
#[derive(Clone, Copy, Debug)]
enum Event {
    Arrives,
    Tries,
    /// One with a deadline, which has passed at the next `Late`.
    ArrivesFor,
    Late,
    /// The one that has waited for so many positions behind the first gives up.
    Leaves(usize),
    /// The attempt that is wanted starts; one that is under way is granted.
    Attempt,
    AttemptFails,
    Releases,
    ReleasesInDoubt,
    /// The holder leaves with the grant on its way to it.
    LeavesUnseen,
    Loses,
    /// Time passes, more than the bound.
    Waits,
}

const EVENTS: [Event; 12] = [
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
    Event::Waits,
];

const BOUNDS: HandOff = HandOff { max: 2, time: Duration::from_secs(1) };

struct Model {
    room: Room<u64, ()>,
    now: Moment,
    next: u64,
    /// Those that should be waiting, in order: their numbers and patience.
    waiting: VecDeque<(u64, Patience<()>)>,
    /// The hold that has the node.
    holder: Option<u64>,
    attempt: Option<Patience<()>>,
    /// Since when the node is held, and how often it was handed over since.
    row: (Moment, u32),
}

impl Model {
    fn new(bounds: Option<HandOff>) -> Self {
        Self {
            room: Room::new(bounds),
            now: Moment::at(Duration::ZERO),
            next: 1,
            waiting: VecDeque::new(),
            holder: None,
            attempt: None,
            row: (Moment::at(Duration::ZERO), 0),
        }
    }

    fn arrives(&mut self, patience: Patience<()>) {
        let number = self.next;
        self.next += 1;
        let alone = self.holder.is_none() && self.attempt.is_none() && self.waiting.is_empty();
        match self.room.arrive(Position::new(number, patience, false), number, patience) {
            Arrival::Waits => {
                assert!(patience != Patience::Try || alone, "a try waits for another");
                self.waiting.push_back((number, patience));
            }
            Arrival::Busy(refused) => assert!(refused == number && patience == Patience::Try && !alone),
        }
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
            self.attempt = None;
        }
    }

    fn releases(&mut self, bounds: Option<HandOff>, healthy: bool) {
        let Some(holder) = self.holder.take() else { return };
        let next = self.room.released(holder, self.now, healthy);
        let in_bounds = bounds.is_some_and(|bounds| {
            self.row.1 < bounds.max && self.now.since(self.row.0) < bounds.time && healthy
        });
        match next {
            Next::To(at, number) => {
                assert!(in_bounds, "handed over beyond the bounds");
                assert_eq!(at.number(), number);
                self.row.1 += 1;
                self.granted(number);
            }
            Next::Delete => {
                assert!(!in_bounds || self.waiting.is_empty(), "a waiter was passed over");
                assert!(self.room.wanted().is_none(), "the node is not on its way out yet");
                self.room.over(holder);
            }
        }
    }

    fn happens(&mut self, bounds: Option<HandOff>, event: Event) {
        match event {
            Event::Arrives => self.arrives(Patience::Until(None)),
            Event::Tries => self.arrives(Patience::Try),
            Event::ArrivesFor => self.arrives(Patience::Until(Some(()))),
            Event::Late => {
                let is_late =
                    |(_, patience): &(u64, Patience<()>)| matches!(patience, Patience::Until(Some(_)));
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
                if let Some((number, patience)) = self.waiting.remove(index) {
                    let at = Position::new(number, patience, false);
                    assert_eq!(self.room.leave(at), Some(number));
                    assert_eq!(self.room.leave(at), None);
                    self.after_departure();
                }
            }
            Event::Attempt => match (self.attempt, self.room.wanted()) {
                (None, Some(patience)) => {
                    assert!(self.holder.is_none(), "a second node");
                    self.room.attempt_begins();
                    self.attempt = Some(patience);
                }
                (Some(_), wanted) => {
                    assert_eq!(wanted, None, "a second attempt");
                    self.attempt = None;
                    // As the servers do: with the number of the attempt.
                    let number = self.next;
                    self.next += 1;
                    self.row = (self.now, 0);
                    let (_, first) = self.room.granted(number, self.now).expect("somebody waits");
                    self.granted(first);
                    self.holder = Some(number);
                }
                (None, None) => {}
            },
            Event::AttemptFails => {
                if let Some(patience) = self.attempt.take() {
                    let told = self.room.failed(patience);
                    let is_told =
                        |waiting: &(u64, Patience<()>)| patience != Patience::Try || waiting.1 == patience;
                    let expected: Vec<_> = self
                        .waiting
                        .iter()
                        .filter(|waiting| is_told(waiting))
                        .map(|(number, _)| *number)
                        .collect();
                    assert_eq!(told, expected);
                    self.waiting.retain(|waiting| !is_told(waiting));
                }
            }
            Event::Releases | Event::LeavesUnseen => self.releases(bounds, true),
            Event::ReleasesInDoubt => self.releases(bounds, false),
            Event::Loses => {
                if let Some(holder) = self.holder.take() {
                    self.room.over(holder);
                    // Its release comes too late to mean anything.
                    let late = self.room.released(holder, self.now, true);
                    assert_eq!(late, Next::Delete);
                    self.room.over(holder);
                }
            }
            Event::Waits => self.now = self.now.plus(BOUNDS.time),
        }
        // All that wait are served, by the holder or an attempt, or one is wanted.
        let is_served = self.holder.is_some() || self.attempt.is_some() || self.room.wanted().is_some();
        assert!(self.waiting.is_empty() || is_served, "forgotten: {:?}", self.waiting);
        assert_eq!(self.room.is_waited_for(), !self.waiting.is_empty());
        assert!(self.room.wanted().is_none() || self.holder.is_none(), "a second node");
    }

    /// All that wait are served in the end.
    fn ends(mut self, bounds: Option<HandOff>) {
        for _ in 0..=3 * self.waiting.len() {
            self.happens(bounds, Event::Releases);
            self.happens(bounds, Event::Attempt);
            self.happens(bounds, Event::Attempt);
        }
        assert!(self.waiting.is_empty(), "forgotten: {:?}", self.waiting);
    }
}

fn run(bounds: Option<HandOff>, events: &[Event]) {
    let mut model = Model::new(bounds);
    for &event in events {
        model.happens(bounds, event);
    }
    model.ends(bounds);
}

#[test]
fn every_short_schedule_of_a_room() {
    const LENGTH: u32 = 5;
    let all = EVENTS.len();
    for schedule in 0..all.pow(LENGTH) {
        let mut events = [Event::Arrives; LENGTH as usize];
        let mut rest = schedule;
        for event in &mut events {
            *event = EVENTS[rest % all];
            rest /= all;
        }
        run(Some(BOUNDS), &events);
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
    #[test]
    fn no_schedule_of_a_room_grants_twice_or_forgets_one(
        events in proptest::collection::vec(event(), 0..200),
        bounded in any::<bool>(),
    ) {
        run(bounded.then_some(BOUNDS), &events);
    }
}
