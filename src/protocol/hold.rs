//! The state of one hold, from its grant until its node is gone: what is told to its guards, and what becomes of its
//! node. Pure.
//!
//! ```text
//!                 EndConversion               Release
//!      Converting ------------> Held ----------------------> Released: its node is deleted, or handed over
//!          |      <------------  |
//!          |    BeginConversion  |--- LeaseExpired ---------> Lost, its node kept for the holder until then
//!          |                     |--- SessionEnding, -Ended > Lost, its node goes with the session
//!          |                     '--- NodeDeleted ----------> Lost, its node gone
//!          |
//!          '--- LeaseExpired, SessionEnding, -Ended, Release, ConversionLost > Lost, its nodes left to the conversion
//! ```
//! A hold that is lost never is anything else again. Its node, where one is left, is deleted at the release of its last
//! guard, when the time for which it was kept is over, or by the conversion. Whether it is *suspended* is no state: it
//! is what the lease says at the moment of the question.

use std::sync::Arc;

use crate::error::LostReason;
use crate::protocol::lease::LeaseState;
use crate::protocol::moment::Moment;
use crate::protocol::node_name::Kind;

/// Whether a lock is still held, as far as this process can know.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// # let guard = zookeeper_recipes::InterProcessMutex::new(&client, "/jobs/nightly")?.lock().await?;
/// use zookeeper_recipes::LockState;
///
/// match guard.state() {
///     LockState::Held => println!("go on"),
///     LockState::Suspended => println!("begin nothing new"),
///     LockState::Lost(reason) => println!("stop: {reason}"),
///     _ => println!("a state of a later version"),
/// }
/// # assert!(matches!(guard.state(), LockState::Held));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LockState {
    /// The lock is held, and the renewals of its lease are in time.
    Held,
    /// A renewal is overdue, or the connection is interrupted.
    ///
    /// The lock is still held. The state becomes [`Held`](Self::Held) again if the servers answer in time, and
    /// [`Lost`](Self::Lost) if they do not. [`LockGuard::state_changed`](crate::LockGuard::state_changed) waits
    /// for either.
    Suspended,
    /// The lock is lost: another process may hold it. Final for this guard.
    Lost(LostReason),
}

/// One hold. `P` is its place: the right to have a node in the queue.
#[derive(Debug)]
pub(crate) struct HoldState<P> {
    /// By which it is held, or was. A conversion exchanges it.
    node: Arc<str>,
    kind: Kind,
    stage: Stage,
    /// Transactions under it whose outcome is not known, or not yet.
    writes: usize,
    /// Until its node is gone, or it needs none.
    place: Option<P>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Held,
    /// Held, but by which node only the conversion can say. No beat asks for it.
    Converting,
    Lost(LostReason, Leftover),
    /// Before it was lost. The cleanup has its node.
    Released,
}

/// What becomes of the node of a hold that is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leftover {
    /// The servers have it still, and with it the lock: it is kept for the holder, to stop in, until its last guard is
    /// gone, or until the servers may delete it.
    Kept { until: Moment },
    /// It goes with its session; if that is borrowed and lives on, it is deleted.
    OfSession,
    /// The conversion knows which nodes there are, and has them deleted.
    OfConversion,
    /// It is gone, or the cleanup has it.
    None,
}

/// What happens to a hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HoldEvent {
    /// Its lease has expired. The servers cannot delete its node before `until`.
    LeaseExpired { until: Moment },
    /// Its session is about to end: it has to be lost before the end is reported.
    SessionEnding(LostReason),
    /// Its session has ended.
    SessionEnded(LostReason),
    /// The servers have said that this node does not exist.
    NodeDeleted { node: Arc<str> },
    /// The time for which its node was kept is over.
    GraceOver,
    /// Its client is over, and has taken along the conversion that had it.
    ClientOver,
    /// Its last guard has gone, or its client is being closed.
    Release { lease: LeaseState },
    /// It is to be converted.
    BeginConversion,
    /// It is held by this node, as this kind, from here on.
    EndConversion { node: Arc<str>, kind: Kind },
    /// The lock could not be kept by the conversion, which deletes what is left.
    ConversionLost(LostReason),
    /// What a conversion has left is deleted. If that is the first to be heard of a loss, this is its reason.
    ConversionOver(LostReason),
}

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct Effects<P> {
    /// It has been lost: those that wait for that are to be told, once.
    pub(crate) lost: Option<LostReason>,
    /// Its node is gone by another hand.
    pub(crate) gone: Option<Arc<str>>,
    /// Its node is to be deleted.
    pub(crate) delete: Option<Deletion<P>>,
    /// Its place is free.
    pub(crate) free: Option<P>,
    /// What a release is told at once; otherwise it is told what comes of the deletion.
    pub(crate) report: Option<LostReason>,
    /// What was asked for cannot be: it is lost, or released.
    pub(crate) refused: bool,
}

/// A node to be deleted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Deletion<P> {
    pub(crate) node: Arc<str>,
    /// Whether the lock may be handed over to the next in line of the same session.
    pub(crate) hand_over: bool,
    /// Free when the node is gone.
    pub(crate) place: Option<P>,
}

/// What a session has to do for a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Care {
    /// To tell it when the lease has expired, and when the session ends.
    Watch,
    /// To tell it when its time is over, or the session.
    Keep {
        until: Moment,
    },
    Nothing,
}

impl<P> Default for Effects<P> {
    fn default() -> Self {
        Self { lost: None, gone: None, delete: None, free: None, report: None, refused: false }
    }
}

impl<P> HoldState<P> {
    pub(crate) fn new(node: Arc<str>, kind: Kind, place: Option<P>) -> Self {
        Self { node, kind, stage: Stage::Held, writes: 0, place }
    }

    /// The name of its node.
    pub(crate) fn node(&self) -> &Arc<str> {
        &self.node
    }

    /// What it is held as.
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// How it was lost, as far as that has been noticed.
    pub(crate) fn lost(&self) -> Option<LostReason> {
        match self.stage {
            Stage::Lost(reason, _) => Some(reason),
            Stage::Held | Stage::Converting | Stage::Released => None,
        }
    }

    /// How it stands while its lease is, or is not, valid.
    pub(crate) fn state(&self, valid: bool) -> LockState {
        match self.lost() {
            Some(reason) => LockState::Lost(reason),
            None if valid => LockState::Held,
            None => LockState::Suspended,
        }
    }

    /// Whether a beat may ask for this node: it is held by it, and no conversion is about to change that.
    pub(crate) fn is_held_by(&self, node: &str) -> bool {
        self.stage == Stage::Held && *self.node == *node
    }

    /// What its session has to do for it.
    pub(crate) fn care(&self) -> Care {
        match self.stage {
            Stage::Held
            | Stage::Converting
            | Stage::Lost(_, Leftover::OfSession | Leftover::OfConversion) => Care::Watch,
            Stage::Lost(_, Leftover::Kept { until }) => Care::Keep { until },
            Stage::Lost(_, Leftover::None) | Stage::Released => Care::Nothing,
        }
    }

    /// Whether it is lost or released.
    pub(crate) fn is_over(&self) -> bool {
        !matches!(self.stage, Stage::Held | Stage::Converting)
    }

    /// A transaction is about to be sent under it.
    pub(crate) fn begin_write(&mut self) {
        self.writes += 1;
    }

    /// The outcome of a transaction is known.
    pub(crate) fn end_write(&mut self) {
        self.writes = self.writes.saturating_sub(1);
    }

    /// Something has happened.
    pub(crate) fn on(&mut self, event: HoldEvent) -> Effects<P> {
        let mut effects = Effects::default();
        match event {
            HoldEvent::LeaseExpired { until } => match self.stage {
                Stage::Held => {
                    effects.lost = self.lose(LostReason::LeaseExpired, Leftover::Kept { until });
                }
                Stage::Converting => {
                    effects.lost = self.lose(LostReason::LeaseExpired, Leftover::OfConversion);
                }
                // The clock says nothing about one that has been released: no beat asks for it.
                Stage::Lost(..) | Stage::Released => {}
            },
            HoldEvent::SessionEnding(reason) => effects.lost = self.session_over(reason),
            HoldEvent::SessionEnded(reason) => {
                effects.lost = self.session_over(reason);
                // Its node goes with the session, although its guards may be kept for long.
                effects.free = self.place.take();
            }
            HoldEvent::NodeDeleted { node } => {
                // Unless it was released or converted since that was asked for.
                if self.is_held_by(&node) {
                    effects.lost = self.lose(LostReason::NodeDeleted, Leftover::None);
                    effects.gone = Some(node);
                    effects.free = self.place.take();
                }
            }
            HoldEvent::GraceOver => {
                if let Stage::Lost(reason, Leftover::Kept { .. }) = self.stage {
                    self.stage = Stage::Lost(reason, Leftover::None);
                    effects.delete = Some(self.deletion(false));
                }
            }
            HoldEvent::ClientOver => {
                effects.lost = match self.stage {
                    // By the drop of its conversion, but not to the guard that waits for that.
                    Stage::Released => self.lose(LostReason::Closed, Leftover::None),
                    _ => self.session_over(LostReason::Closed),
                }
            }
            HoldEvent::Release { lease } => self.release(lease, &mut effects),
            HoldEvent::BeginConversion => match self.stage {
                Stage::Held => self.stage = Stage::Converting,
                _ => effects.refused = true,
            },
            HoldEvent::EndConversion { node, kind } => match self.stage {
                Stage::Converting => {
                    (self.node, self.kind, self.stage) = (node, kind, Stage::Held);
                    if kind == Kind::Shared {
                        // The places bound the queue, not the number of readers inside (docs/protocol.md#places).
                        effects.free = self.place.take();
                    }
                }
                _ => effects.refused = true,
            },
            HoldEvent::ConversionLost(reason) => {
                if self.stage == Stage::Converting {
                    effects.lost = self.lose(reason, Leftover::OfConversion);
                }
            }
            HoldEvent::ConversionOver(reason) => {
                match self.stage {
                    Stage::Held | Stage::Converting => effects.lost = self.lose(reason, Leftover::None),
                    Stage::Lost(reason, Leftover::OfConversion) => {
                        self.stage = Stage::Lost(reason, Leftover::None);
                    }
                    Stage::Lost(..) | Stage::Released => return effects,
                }
                effects.free = self.place.take();
            }
        }
        effects
    }

    fn lose(&mut self, reason: LostReason, leftover: Leftover) -> Option<LostReason> {
        self.stage = Stage::Lost(reason, leftover);
        Some(reason)
    }

    fn session_over(&mut self, reason: LostReason) -> Option<LostReason> {
        match self.stage {
            Stage::Held => self.lose(reason, Leftover::OfSession),
            Stage::Converting => self.lose(reason, Leftover::OfConversion),
            Stage::Lost(..) | Stage::Released => None,
        }
    }

    fn release(&mut self, lease: LeaseState, effects: &mut Effects<P>) {
        match self.stage {
            Stage::Held => {
                self.stage = Stage::Released;
                // Neither while another process may have the lock, nor while a write may still come that the next holder
                // would not see: the next in line looks.
                let hand_over = lease != LeaseState::Expired && self.writes == 0;
                effects.delete = Some(self.deletion(hand_over));
            }
            // Its guard is the conversion's, which has come to an end that was not foreseen.
            Stage::Converting => effects.lost = self.lose(LostReason::Closed, Leftover::OfConversion),
            Stage::Lost(reason, leftover) => {
                match leftover {
                    // What there is to report is known, whatever becomes of the node.
                    Leftover::Kept { .. } => {
                        self.stage = Stage::Lost(reason, Leftover::None);
                        effects.delete = Some(self.deletion(false));
                        effects.report = Some(reason);
                    }
                    Leftover::OfSession => {
                        self.stage = Stage::Lost(reason, Leftover::None);
                        effects.delete = Some(self.deletion(false));
                    }
                    Leftover::OfConversion | Leftover::None => effects.report = Some(reason),
                }
            }
            Stage::Released => {}
        }
    }

    fn deletion(&mut self, hand_over: bool) -> Deletion<P> {
        Deletion { node: Arc::clone(&self.node), hand_over, place: self.place.take() }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    /// What tells one place from none.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Place;

    const UNTIL: Moment = Moment::at(Duration::from_secs(30));

    fn expired() -> HoldEvent {
        HoldEvent::LeaseExpired { until: UNTIL }
    }

    fn release() -> HoldEvent {
        HoldEvent::Release { lease: LeaseState::Valid }
    }

    fn deleted(node: &str) -> HoldEvent {
        HoldEvent::NodeDeleted { node: node.into() }
    }

    fn converted(kind: Kind) -> HoldEvent {
        HoldEvent::EndConversion { node: "new".into(), kind }
    }

    /// A hold by the node `own`, after these events.
    fn after(events: &[HoldEvent]) -> HoldState<Place> {
        let mut hold = HoldState::new("own".into(), Kind::Exclusive, Some(Place));
        for event in events {
            let _ = hold.on(event.clone());
        }
        hold
    }

    fn lost(reason: LostReason) -> Effects<Place> {
        Effects { lost: Some(reason), ..Effects::default() }
    }

    fn delete(hand_over: bool, place: Option<Place>) -> Effects<Place> {
        let delete = Some(Deletion { node: "own".into(), hand_over, place });
        Effects { delete, ..Effects::default() }
    }

    #[test]
    fn what_comes_of_each_event() {
        use HoldEvent::{
            BeginConversion, ClientOver, ConversionLost, ConversionOver, GraceOver, SessionEnded,
            SessionEnding,
        };
        use LostReason::{Closed, LeaseExpired, NodeDeleted, NotConverted, SessionExpired};
        let none = Effects::default;
        let refused = || Effects { refused: true, ..none() };
        let free = || Effects { free: Some(Place), ..none() };
        let report = |reason| Effects { report: Some(reason), ..none() };
        let held: &[HoldEvent] = &[];
        let converting: &[HoldEvent] = &[BeginConversion];
        let kept: &[HoldEvent] = &[expired()];
        let session_over: &[HoldEvent] = &[SessionEnding(SessionExpired)];
        let lost_converting: &[HoldEvent] = &[BeginConversion, expired()];
        let gone: &[HoldEvent] = &[deleted("own")];
        let released: &[HoldEvent] = &[release()];
        let table = [
            (held, expired(), lost(LeaseExpired), Care::Keep { until: UNTIL }),
            (held, SessionEnding(Closed), lost(Closed), Care::Watch),
            (held, SessionEnded(Closed), Effects { free: Some(Place), ..lost(Closed) }, Care::Watch),
            (held, deleted("another"), none(), Care::Watch),
            (
                held,
                deleted("own"),
                Effects { gone: Some("own".into()), free: Some(Place), ..lost(NodeDeleted) },
                Care::Nothing,
            ),
            (held, GraceOver, none(), Care::Watch),
            (held, release(), delete(true, Some(Place)), Care::Nothing),
            (held, BeginConversion, none(), Care::Watch),
            (held, converted(Kind::Shared), refused(), Care::Watch),
            (held, ConversionLost(NotConverted), none(), Care::Watch),
            (converting, expired(), lost(LeaseExpired), Care::Watch),
            (converting, SessionEnding(Closed), lost(Closed), Care::Watch),
            (converting, deleted("own"), none(), Care::Watch),
            (converting, release(), lost(Closed), Care::Watch),
            (converting, BeginConversion, refused(), Care::Watch),
            (converting, converted(Kind::Exclusive), none(), Care::Watch),
            (converting, converted(Kind::Shared), free(), Care::Watch),
            (converting, ConversionLost(NotConverted), lost(NotConverted), Care::Watch),
            (
                converting,
                ConversionOver(NodeDeleted),
                Effects { free: Some(Place), ..lost(NodeDeleted) },
                Care::Nothing,
            ),
            (converting, ClientOver, lost(Closed), Care::Watch),
            (kept, expired(), none(), Care::Keep { until: UNTIL }),
            (kept, deleted("own"), none(), Care::Keep { until: UNTIL }),
            (kept, SessionEnding(Closed), none(), Care::Keep { until: UNTIL }),
            (kept, SessionEnded(Closed), free(), Care::Keep { until: UNTIL }),
            (kept, GraceOver, delete(false, Some(Place)), Care::Nothing),
            (
                kept,
                release(),
                Effects { report: Some(LeaseExpired), ..delete(false, Some(Place)) },
                Care::Nothing,
            ),
            (kept, BeginConversion, refused(), Care::Keep { until: UNTIL }),
            (session_over, expired(), none(), Care::Watch),
            (session_over, SessionEnded(SessionExpired), free(), Care::Watch),
            (session_over, release(), delete(false, Some(Place)), Care::Nothing),
            (lost_converting, converted(Kind::Exclusive), refused(), Care::Watch),
            (lost_converting, release(), report(LeaseExpired), Care::Watch),
            (lost_converting, GraceOver, none(), Care::Watch),
            (lost_converting, ConversionOver(Closed), free(), Care::Nothing),
            (gone, release(), report(NodeDeleted), Care::Nothing),
            (gone, ConversionOver(Closed), none(), Care::Nothing),
            (released, expired(), none(), Care::Nothing),
            (released, SessionEnding(Closed), none(), Care::Nothing),
            (released, deleted("own"), none(), Care::Nothing),
            (released, release(), none(), Care::Nothing),
            (released, BeginConversion, refused(), Care::Nothing),
            (released, ClientOver, lost(Closed), Care::Nothing),
        ];
        for (before, event, effects, care) in table {
            let mut hold = after(before);
            assert_eq!(hold.on(event.clone()), effects, "{before:?}, {event:?}");
            assert_eq!(hold.care(), care, "{before:?}, {event:?}");
        }
    }

    #[test]
    fn a_lock_is_handed_over_only_with_a_lease_and_with_no_write_on_its_way() {
        for (lease, writes, expected) in [
            (LeaseState::Valid, 0, true),
            (LeaseState::Suspended, 0, true),
            (LeaseState::Expired, 0, false),
            (LeaseState::Valid, 1, false),
        ] {
            let mut hold = after(&[]);
            hold.begin_write();
            hold.begin_write();
            hold.end_write();
            if writes == 0 {
                hold.end_write();
            }
            let effects = hold.on(HoldEvent::Release { lease });
            assert_eq!(effects.delete.unwrap().hand_over, expected, "{lease:?}, {writes}");
        }
    }

    #[test]
    fn a_conversion_says_by_which_node_a_lock_is_held_and_as_what() {
        let mut hold = after(&[]);
        assert!(hold.is_held_by("own"));
        let _ = hold.on(HoldEvent::BeginConversion);
        assert!(!hold.is_held_by("own"), "no beat asks for it meanwhile");
        assert_eq!(hold.state(true), LockState::Held);
        let _ = hold.on(converted(Kind::Shared));
        assert!(hold.is_held_by("new") && !hold.is_held_by("own"));
        assert_eq!((&**hold.node(), hold.kind()), ("new", Kind::Shared));
    }

    #[test]
    fn what_is_not_lost_is_held_or_suspended_by_its_lease() {
        let hold = after(&[]);
        assert_eq!((hold.state(true), hold.state(false)), (LockState::Held, LockState::Suspended));
        let hold = after(&[expired()]);
        let lost = LockState::Lost(LostReason::LeaseExpired);
        assert_eq!((hold.state(true), hold.state(false)), (lost, lost));
    }

    #[derive(Clone, Debug)]
    enum Input {
        Event(HoldEvent),
        BeginWrite,
        EndWrite,
    }

    fn inputs() -> impl Strategy<Value = Vec<Input>> {
        let reason = prop_oneof![
            Just(LostReason::SessionExpired),
            Just(LostReason::Closed),
            Just(LostReason::SessionReplaced)
        ];
        let kind = prop_oneof![Just(Kind::Exclusive), Just(Kind::Shared)];
        let node = prop_oneof![Just("own"), Just("a"), Just("b")];
        let lease =
            prop_oneof![Just(LeaseState::Valid), Just(LeaseState::Suspended), Just(LeaseState::Expired)];
        let event = prop_oneof![
            Just(expired()),
            reason.clone().prop_map(HoldEvent::SessionEnding),
            reason.clone().prop_map(HoldEvent::SessionEnded),
            node.clone().prop_map(deleted),
            Just(HoldEvent::GraceOver),
            Just(HoldEvent::ClientOver),
            lease.prop_map(|lease| HoldEvent::Release { lease }),
            Just(HoldEvent::BeginConversion),
            (node, kind).prop_map(|(node, kind)| HoldEvent::EndConversion { node: node.into(), kind }),
            Just(HoldEvent::ConversionLost(LostReason::NotConverted)),
            reason.prop_map(HoldEvent::ConversionOver),
        ];
        // Conversions often enough to be in the middle of one when something else happens.
        let begin = Just(Input::Event(HoldEvent::BeginConversion));
        let input = prop_oneof![
            8 => event.prop_map(Input::Event),
            2 => begin,
            1 => Just(Input::BeginWrite),
            1 => Just(Input::EndWrite),
        ];
        proptest::collection::vec(input, 0..16)
    }

    proptest! {
        #[test]
        fn a_loss_is_told_once_and_the_node_and_the_place_go_once(inputs in inputs()) {
            let mut hold = HoldState::new("own".into(), Kind::Exclusive, Some(Place));
            let (mut lost, mut ended, mut places, mut writes) = (None, 0, 1, 0_usize);
            // In the end the session does, the conversion, if there is one, and the last guard.
            let end = [
                HoldEvent::ConversionOver(LostReason::Closed),
                release(),
                HoldEvent::SessionEnded(LostReason::Closed),
                release(),
            ];
            let mut converting = false;
            for input in inputs.into_iter().chain(end.map(Input::Event)) {
                let event = match input {
                    Input::Event(event) => event,
                    Input::BeginWrite => {
                        hold.begin_write();
                        writes += 1;
                        continue;
                    }
                    Input::EndWrite => {
                        hold.end_write();
                        writes = writes.saturating_sub(1);
                        continue;
                    }
                };
                let was_held = hold.is_held_by(&Arc::clone(hold.node()));
                let effects = hold.on(event.clone());
                // A loss is told once, and its reason stays.
                if let Some(reason) = effects.lost {
                    prop_assert_eq!(lost.replace(reason), None);
                }
                prop_assert_eq!(hold.lost(), lost);
                prop_assert!(lost.is_none() || !hold.is_held_by(&Arc::clone(hold.node())), "held after a loss");
                // The node is deleted once, by the cleanup or another hand, and is not handed over by one that may not hold.
                if let Some(deletion) = &effects.delete {
                    ended += 1;
                    prop_assert!(!converting, "the node is the conversion's to delete");
                    let expired = event == HoldEvent::Release { lease: LeaseState::Expired };
                    prop_assert!(!deletion.hand_over || was_held && lost.is_none() && writes == 0 && !expired);
                    prop_assert!(was_held || lost.is_some(), "deleted before the loss was told");
                }
                ended += u32::from(effects.gone.is_some());
                prop_assert!(ended <= 1);
                // The place is free once, and not before the node is given up, unless readers need none.
                let freed = effects.free.iter().chain(effects.delete.iter().filter_map(|deletion| deletion.place.as_ref()));
                places -= freed.count();
                prop_assert!(places == 1 || lost.is_some() || ended == 1 || hold.kind() == Kind::Shared);
                // A conversion that was begun is ended, unless the lock is lost.
                match event {
                    HoldEvent::BeginConversion => {
                        prop_assert_eq!(effects.refused, !was_held);
                        converting |= was_held;
                    }
                    HoldEvent::EndConversion { node, .. } => {
                        prop_assert_eq!(effects.refused, !converting || lost.is_some());
                        if !effects.refused {
                            prop_assert!(hold.is_held_by(&node));
                            converting = false;
                        }
                    }
                    HoldEvent::ConversionOver(_) => converting = false,
                    // What is released is not lost without being told, and what is not deleted is reported.
                    HoldEvent::Release { .. } => {
                        prop_assert!(
                            effects.delete.is_some() || effects.lost.is_some() || effects.report == lost
                        );
                    }
                    _ => {}
                }
            }
            prop_assert_eq!(places, 0);
            prop_assert_eq!(hold.care(), Care::Nothing);
        }
    }
}
