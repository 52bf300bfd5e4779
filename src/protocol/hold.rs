//! The state of one hold, from its grant until its node is deleted: what its guards report, what
//! happens to its node, and in which order the holder, the session and other contenders hear of it.
//! Pure.
//!
//! ```text
//!               EndConversion             Release
//!    Converting ------------> Held ------------------> Released: node deleted, handed over, or
//!        |      <------------  |                        left to other readers of this client
//!        |    BeginConversion  |--- LeaseExpired -----> Lost, node kept until `until`
//!        |                     |--- LeaseOver --------> Lost, node deleted at once
//!        |                     |--- OtherLost --------> Lost, node kept until `until`, or deleted
//!        |                     |                        at once
//!        |                     |--- Ended ------------> Lost, node deleted with the session, or
//!        |                     |                        by a release
//!        |                     '--- NodeDeleted ------> Lost, node gone
//!        |
//!        |--- LeaseExpired, LeaseOver, OtherLost, Ended, Release, ConversionLost
//!        |                                        '---> Lost, nodes left to the conversion
//!        '--- ConversionOver, also from Held ---------> Lost, nodes deleted or with cleanup
//! ```
//! `LeaseExpired` is about the session lease, which ends without a renewal, and `LeaseOver` about
//! the lease that the caller has set for this hold (docs/protocol.md#lease-over).
//!
//! Lost is final: later events do not change the reason of the loss. The node of a lost hold, if it
//! still exists, is deleted when the last guard is released, when the time for which it is kept is
//! over, or by the conversion
//! (docs/protocol.md#lost-lock-keeps-its-node). *Suspended* is not a state of the hold but of the
//! lease at the moment of the question.
//!
//! # Events and effects
//! Events come from any thread: a guard that is released or questioned, the heartbeat, the thread
//! that looks at the clock, the end of the session. [`HoldState::on`] changes the state, under a
//! mutex that is held for nothing else, and returns the [effects](Effect) of that change. The
//! thread that brought the event carries them out after it has unlocked the state, one after the
//! other, and decides nothing by itself. Two threads with two events may do that at the same time:
//! each change of the state has its effects once, so a loss is reported once and a node deleted
//! once, whichever thread is first.
//!
//! The order of the effects is a promise, and stands in one place, `Decision::in_order`:
//! 1. The state itself, by which every guard answers, and the records of this client by which
//!    another hold may be granted or lost.
//! 2. The session, which checks the node by heartbeats as long as it knows the hold.
//! 3. The holder: its tasks that wait for the loss are woken. Their wakers are code of other
//!    executors, which may call back into this hold. All of the above is true by then.
//! 4. The contenders of other clients, by the deletion of the node
//!    (docs/protocol.md#lease-over): the holder was notified before.
//! 5. The waiting callers of this client that need another node, whose create is sent behind the
//!    deletion.
//!
//! One effect has an answer. [`Effect::PassOn`] asks the callers of this client whether one of them
//! has the node next (docs/protocol.md#hand-off). If one has, [`Effects::passed_on`] replaces the
//! effects that belong to the deletion.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

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
    /// The lock is held, and the renewals of its session lease are in time.
    Held,
    /// A renewal is overdue, or the connection is interrupted.
    ///
    /// The lock is still held. The state becomes [`Held`](Self::Held) again if the servers answer
    /// in time, and [`Lost`](Self::Lost) if they do not.
    /// [`LockGuard::state_changed`](crate::LockGuard::state_changed) waits for either.
    Suspended,
    /// The lock is lost: another process may hold it. Final for this guard.
    Lost(LostReason),
}

impl fmt::Display for LockState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held => f.write_str("held"),
            Self::Suspended => f.write_str("suspended"),
            Self::Lost(reason) => write!(f, "lost: {reason}"),
        }
    }
}

/// The state of one hold.
#[derive(Debug)]
pub(crate) struct HoldState {
    /// The node by which it is held, or was. A conversion exchanges it.
    node: Arc<str>,
    kind: Kind,
    stage: Stage,
    /// When the lease that the caller has set is over; `None` if there is none. Not the session's
    /// lease.
    lease_end: Option<Moment>,
    /// How many transactions under it have an unknown outcome, or none yet.
    writes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Held,
    /// The lock is held, but only the conversion knows by which node, which no heartbeat checks.
    Converting,
    Lost(LostReason, Leftover),
    /// The lock was released before it was lost. Its node is with cleanup or gone, was handed over
    /// to the next caller of this client, or is left to the other readers that share it.
    Released,
}

/// What happens to the node of a lost hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leftover {
    /// The node is kept on the servers, to give the holder time to stop, until the last guard is
    /// dropped, or until the moment from which the servers may delete the node.
    Kept { until: Moment },
    /// The end of the session deletes the node, or a release before that.
    OfSession,
    /// The conversion, which knows both of its nodes, deletes them.
    OfConversion,
    /// Nothing is left to this hold: the node is gone or with cleanup, or other readers of this
    /// client still share it.
    None,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HoldEvent {
    /// The session lease has expired. The servers cannot delete the node before `until`.
    LeaseExpired { until: Moment },
    /// The lease that the caller has set may be over at `now`.
    LeaseOver { now: Moment },
    /// The caller sets another end of the lease, `None` for no lease.
    Extend { now: Moment, end: Option<Moment> },
    /// The session has ended, or is about to, or the holder has given the lock up: the node goes
    /// with the session, or by a release before that.
    Ended(LostReason),
    /// The servers have said that this node does not exist.
    NodeDeleted { node: Arc<str> },
    /// The servers have said the same to another hold of this client, which had the node, or has it
    /// too.
    SharedNodeDeleted { node: Arc<str> },
    /// Another hold of the same value is lost, and the value with it. The node of this hold is kept
    /// until `until`, or deleted at once if there is no such moment.
    OtherLost {
        reason: LostReason,
        until: Option<Moment>,
    },
    /// The time for which its node was kept is over. Only the heartbeat task of the session sends
    /// this event, by `Session::release_overdue`.
    GraceOver,
    /// The last guard is dropped or released, or the client is being closed.
    Release { lease: LeaseState, now: Moment },
    /// A conversion begins: from here on only the conversion knows the node of the lock.
    BeginConversion,
    /// A conversion ends: the lock is held by this node, as this kind, from here on.
    EndConversion { node: Arc<str>, kind: Kind },
    /// The conversion has lost the lock, and deletes its nodes.
    ConversionLost(LostReason),
    /// The nodes of a lost conversion are deleted, or left to cleanup. The reason counts if the
    /// hold is not lost yet.
    ConversionOver(LostReason),
}

impl HoldEvent {
    /// Returns whether the node may have to be deleted after this event. A flush counts the node
    /// from before the event, so that none that begins after the lock is seen as released or lost
    /// misses the deletion (docs/protocol.md#flush).
    pub(crate) fn may_delete(&self) -> bool {
        match self {
            Self::LeaseOver { .. }
            | Self::Extend { .. }
            | Self::OtherLost { .. }
            | Self::GraceOver
            | Self::Release { .. } => true,
            // These events delete no node, or only nodes of a conversion, which keeps a ticket of
            // its own.
            Self::LeaseExpired { .. }
            | Self::Ended(_)
            | Self::NodeDeleted { .. }
            | Self::SharedNodeDeleted { .. }
            | Self::BeginConversion
            | Self::EndConversion { .. }
            | Self::ConversionLost(_)
            | Self::ConversionOver(_) => false,
        }
    }

    /// Returns the event of another hold of the same value when one is lost; `None` if their
    /// session ends, which tells each of its own. As after an expired lease, the holder has time to
    /// stop, until the servers might have deleted the other node by themselves; not if the holder
    /// has chosen the end itself.
    pub(crate) fn of_other(
        reason: LostReason,
        same_session: bool,
        kept_until: Moment,
    ) -> Option<Self> {
        let until = match reason {
            LostReason::SessionExpired | LostReason::SessionReplaced | LostReason::Closed
                if same_session =>
            {
                return None;
            }
            // A caller that has set the lease has chosen the end, and needs no time to stop.
            LostReason::LeaseOver => None,
            LostReason::SessionExpired
            | LostReason::SessionReplaced
            | LostReason::Closed
            | LostReason::NodeDeleted
            | LostReason::LeaseExpired
            | LostReason::GivenUp
            | LostReason::NotConverted => Some(kept_until),
        };
        Some(Self::OtherLost { reason, until })
    }
}

/// Something that must be done after an event. The order is that of `Decision::in_order`, which
/// has the reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The report of the call that was granted the lock ends with this loss, or with the release.
    ReportEnd(Option<LostReason>),
    /// The other holds that have this node are lost with it, since it does not exist.
    LoseSharers(Arc<str>),
    /// The hold leaves its node, by this deletion: another caller of this client may have the node
    /// next, or may have it already. The answer goes to [`Effects::passed_on`].
    PassOn(Deletion),
    /// The session registers the hold by its new state, or forgets it.
    UpdateSession,
    /// The log says that the lock was lost.
    LogLoss(LostReason),
    /// The tasks that wait for the loss are woken.
    WakeWaiters,
    /// The other holds of the same value are lost with this one.
    LoseOtherHolds(LostReason),
    /// The session forgets this node, which does not exist.
    ForgetNode(Arc<str>),
    /// A release that waits for no deletion returns: with this loss, or with success.
    Answer(Option<LostReason>),
    /// The node is deleted.
    Delete(Deletion),
    /// The callers of this client at this path know that the hold has ended, and left its node.
    LeaveNode,
    /// The callers of this client at this path know that the hold is lost, and has left its node
    /// unless the node is kept.
    LoseNode,
}

/// The effects of one event, in the order in which they are to be carried out.
#[must_use]
pub(crate) struct Effects {
    /// The effects that are left. An array needs no allocation: a lock is handed over in memory
    /// some 300,000 times in a second (the scenario `inproc_8` of `lockbench`).
    left: std::array::IntoIter<Option<Effect>, 11>,
    /// How the hold is lost, after the event.
    lost: Option<LostReason>,
    /// Whether the event is refused, since the hold is lost or released.
    pub(crate) is_refused: bool,
}

impl Default for Effects {
    /// Returns no effects.
    fn default() -> Self {
        Self {
            left: [const { None }; 11].into_iter(),
            lost: None,
            is_refused: false,
        }
    }
}

impl Effects {
    /// Handles the answer to [`Effect::PassOn`]: the deletion that is left to do. `None` if another
    /// hold has the node, or another process has deleted it. Then a release has succeeded, and no
    /// caller has to wait for another node.
    pub(crate) fn passed_on(&mut self, deletion: Option<Deletion>) {
        let stays = deletion.is_none();
        // A release reports the result of the deletion. Without a deletion the result is known now,
        // so the answer takes the place of the deletion.
        let mut rest = Some(deletion.map_or(Effect::Answer(self.lost), Effect::Delete));
        for slot in self.left.as_mut_slice() {
            match slot {
                Some(Effect::Delete(_)) => *slot = rest.take(),
                // The hold has left its node by `PassOn` already, so the path has nothing more to
                // learn.
                Some(Effect::LeaveNode | Effect::LoseNode) if stays => *slot = None,
                _ => {}
            }
        }
    }

    /// Returns how the node is to be deleted; `None` if it need not be. The other effects are left
    /// out, for a hold that no caller has had.
    pub(crate) fn into_deletion(mut self) -> Option<Deletion> {
        self.find_map(|effect| match effect {
            Effect::Delete(deletion) => Some(deletion),
            _ => None,
        })
    }
}

impl Iterator for Effects {
    type Item = Effect;

    fn next(&mut self) -> Option<Effect> {
        self.left.by_ref().flatten().next()
    }
}

/// What an event has changed, from which its effects follow.
#[derive(Debug, Default, PartialEq, Eq)]
struct Decision {
    /// The hold has just been lost.
    lost: Option<LostReason>,
    /// The hold is released, or its conversion is over after a loss: nothing of it is left at its
    /// path.
    leaves: bool,
    /// Another hold of the same value was lost before.
    is_of_other: bool,
    /// The node of the hold, or the node that it had, does not exist.
    gone: Option<Arc<str>>,
    /// The node of the hold is to be deleted.
    delete: Option<Deletion>,
    /// What a release reports at once. `None` if it reports the result of the deletion.
    report: Option<LostReason>,
    /// The event is refused, since the hold is lost or released.
    refused: bool,
}

impl Decision {
    /// Returns the effects in the order in which they are carried out. `lost` is how the hold is
    /// lost by now.
    fn in_order(self, lost: Option<LostReason>) -> Effects {
        let (new_loss, leaves) = (self.lost, self.leaves);
        let is_logged = |reason: &LostReason| match reason {
            // The node of this hold is not deleted: the log names the deleted one.
            LostReason::NodeDeleted => !self.is_of_other,
            // The holder has given the lock up by itself.
            LostReason::GivenUp => false,
            _ => true,
        };
        let is_released = leaves && lost.is_none();
        let is_lost = new_loss.is_some() || self.delete.is_some() || self.gone.is_some();
        let end = match (leaves, is_lost) {
            (true, _) => Some(Effect::LeaveNode),
            (false, true) => Some(Effect::LoseNode),
            (false, false) => None,
        };
        let left = [
            // The report comes before the holder is woken: a guard that is dropped then would
            // report a release.
            (new_loss.is_some() || is_released).then_some(Effect::ReportEnd(new_loss)),
            // The other holds of the node are lost before the session or a holder knows of this
            // loss: from here on none says that it is held, and no caller has the node next or
            // joins them. A late answer of the servers may reach a hold that has passed its node
            // on, which then notifies the holds that have the node now. While holds are short,
            // every answer is late in this sense.
            self.gone.clone().map(Effect::LoseSharers),
            // The next hold of the node is registered before the session forgets this one: in
            // between the session would have no lock, and no heartbeat.
            self.delete.clone().map(Effect::PassOn),
            // The session comes before the holder and the deletion: heartbeats must not check a
            // node that is about to be deleted, and the node of a lost lock is kept even if a later
            // step fails.
            Some(Effect::UpdateSession),
            // The line in the log comes before the lines of the holder, which is woken next.
            new_loss.filter(is_logged).map(Effect::LogLoss),
            // The holder comes before everything that lets others in.
            new_loss.map(|_| Effect::WakeWaiters),
            // The nodes of the other holds of the value may be deleted at once, and the tasks that
            // wait for this one have been woken by then.
            new_loss.map(Effect::LoseOtherHolds),
            // The attempts of this client that wait behind the node go on from here, behind the
            // holder.
            self.gone.map(Effect::ForgetNode),
            // The release of a lost hold reports the loss, and does not wait for the deletion.
            // Otherwise, and after `Ended`, the release reports the result of the deletion.
            self.report.map(|reason| Effect::Answer(Some(reason))),
            // The deletion lets other clients in, behind all of the above.
            self.delete.map(Effect::Delete),
            // The next attempt of this client must start after the deletion.
            end,
        ];
        Effects {
            left: left.into_iter(),
            lost,
            is_refused: self.refused,
        }
    }
}

/// The deletion of a hold's node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Deletion {
    pub(crate) node: Arc<str>,
    /// Whether the hold lets another of the same session have the lock next without a look at the
    /// queue: in memory, by the same node, or by a transaction that deletes the node
    /// (docs/protocol.md#hand-off, docs/protocol.md#waiting-in-memory).
    pub(crate) may_pass_on: bool,
}

/// How a session registers a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Registration {
    /// The session notifies the hold when the session lease has expired, when the lease of the hold
    /// is over, and when the session ends.
    Active { lease_end: Option<Moment> },
    /// The hold is lost. The session notifies it when the time for which its node is kept is over,
    /// or when the session ends, which changes nothing any more.
    Kept { until: Moment },
    /// The hold is forgotten.
    None,
}

impl HoldState {
    pub(crate) fn new(node: Arc<str>, kind: Kind) -> Self {
        Self {
            node,
            kind,
            stage: Stage::Held,
            lease_end: None,
            writes: 0,
        }
    }

    /// Sets when its lease is over; `None` if it has none.
    pub(crate) fn with_lease_end(self, lease_end: Option<Moment>) -> Self {
        Self { lease_end, ..self }
    }

    /// Returns the name of its node.
    pub(crate) fn node(&self) -> &Arc<str> {
        &self.node
    }

    /// Returns the kind as which it is held.
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns how it was lost; `None` if no loss has been noticed.
    pub(crate) fn lost(&self) -> Option<LostReason> {
        match self.stage {
            Stage::Lost(reason, _) => Some(reason),
            Stage::Held | Stage::Converting | Stage::Released => None,
        }
    }

    /// Returns whether the lease that the caller has set is over.
    pub(crate) fn is_lease_over(&self, now: Moment) -> bool {
        self.lease_end.is_some_and(|end| end <= now)
    }

    /// Returns whether the caller has set a lease.
    pub(crate) fn has_lease(&self) -> bool {
        self.lease_end.is_some()
    }

    /// Returns how much of the lease that the caller has set is left; `None` without one.
    pub(crate) fn lease_remaining(&self, now: Moment) -> Option<Duration> {
        let end = self.lease_end?;
        Some(if self.is_lost_or_released() {
            Duration::ZERO
        } else {
            end.since(now)
        })
    }

    /// Returns the state that guards report, given whether the lease is valid.
    pub(crate) fn state(&self, valid: bool) -> LockState {
        match self.lost() {
            Some(reason) => LockState::Lost(reason),
            None if valid => LockState::Held,
            None => LockState::Suspended,
        }
    }

    /// Returns whether a heartbeat may check this node: it is held by it, and no conversion is
    /// under way.
    pub(crate) fn is_held_by(&self, node: &str) -> bool {
        self.stage == Stage::Held && *self.node == *node
    }

    /// Returns whether this is its node, or was its last one, and no conversion has to do with it.
    pub(crate) fn has_node(&self, node: &str) -> bool {
        *self.node == *node && !self.is_left_to_conversion()
    }

    /// Returns how its session registers it.
    pub(crate) fn registration(&self) -> Registration {
        match self.stage {
            Stage::Held | Stage::Converting => Registration::Active {
                lease_end: self.lease_end,
            },
            Stage::Lost(_, Leftover::OfSession | Leftover::OfConversion) => {
                // The hold still counts as one of the session's, so that heartbeats and spare
                // connections keep the session alive until the holder or the conversion has
                // finished with the node.
                Registration::Active { lease_end: None }
            }
            Stage::Lost(_, Leftover::Kept { until }) => Registration::Kept { until },
            Stage::Lost(_, Leftover::None) | Stage::Released => Registration::None,
        }
    }

    /// Returns whether it is lost or released.
    pub(crate) fn is_lost_or_released(&self) -> bool {
        matches!(self.stage, Stage::Lost(..) | Stage::Released)
    }

    /// Notes that a transaction is about to be sent under it.
    pub(crate) fn begin_write(&mut self) {
        self.writes += 1;
    }

    /// Notes that the outcome of a transaction is known.
    pub(crate) fn end_write(&mut self) {
        self.writes = self.writes.saturating_sub(1);
    }

    /// Handles an event. Returns what has to be done, in order.
    pub(crate) fn on(&mut self, event: HoldEvent) -> Effects {
        let decision = self.decide(event);
        decision.in_order(self.lost())
    }

    fn decide(&mut self, event: HoldEvent) -> Decision {
        let mut decision = Decision::default();
        match event {
            HoldEvent::LeaseExpired { until } => match self.stage {
                // The session may still live on the servers. The node is kept, so that no other
                // client is granted the lock while the holder stops
                // (docs/protocol.md#lost-lock-keeps-its-node).
                Stage::Held => {
                    decision.lost = self.lose(LostReason::LeaseExpired, Leftover::Kept { until });
                }
                // Only the conversion can find out which of its two nodes exists.
                Stage::Converting => {
                    decision.lost = self.lose(LostReason::LeaseExpired, Leftover::OfConversion);
                }
                Stage::Lost(..) | Stage::Released => {}
            },
            HoldEvent::LeaseOver { now } => self.end_lease(now, &mut decision),
            HoldEvent::Extend { now, end } => {
                // A lease that is over is not extended, even if no other task has noticed the end.
                self.end_lease(now, &mut decision);
                if !self.is_lost_or_released() {
                    // A lease of zero is over by now. It ends here instead of at the next look at
                    // the clock, so that the caller finds the lock lost when the call returns.
                    self.lease_end = end;
                    self.end_lease(now, &mut decision);
                }
                decision.refused = self.is_lost_or_released();
            }
            HoldEvent::Ended(reason) => decision.lost = self.end(reason),
            HoldEvent::NodeDeleted { node } => {
                // The lock may have been lost, released or converted since the check was sent.
                if self.is_held_by(&node) {
                    self.lose_node(node, &mut decision);
                } else if self.has_node(&node) {
                    // This hold has ended before, so its holder learns nothing new. Other holds may
                    // have the node by now, and attempts may wait behind it: both are notified by
                    // the effects of `gone`.
                    self.end_leftover();
                    decision.gone = Some(node);
                }
            }
            HoldEvent::SharedNodeDeleted { node } => {
                // The hold that has found this out notifies all others. So if this hold has ended
                // before, no other hold is left to notify.
                if self.is_held_by(&node) {
                    self.lose_node(node, &mut decision);
                } else if self.has_node(&node) {
                    self.end_leftover();
                }
            }
            HoldEvent::OtherLost { reason, until } => {
                decision.is_of_other = true;
                match (self.stage, until) {
                    // The holder works with the whole value until it is notified, so the node of
                    // this hold is kept while the holder stops (docs/protocol.md#multi-lock-loss).
                    (Stage::Held, Some(until)) => {
                        decision.lost = self.lose(reason, Leftover::Kept { until });
                    }
                    (Stage::Held, None) => {
                        decision.lost = self.lose(reason, Leftover::None);
                        decision.delete = Some(self.deletion(false));
                    }
                    (Stage::Converting, _) => {
                        decision.lost = self.lose(reason, Leftover::OfConversion);
                    }
                    (Stage::Lost(..) | Stage::Released, _) => {}
                }
            }
            HoldEvent::GraceOver => {
                // The last guard may have been dropped in the meantime, which has deleted the node.
                if let Stage::Lost(reason, Leftover::Kept { .. }) = self.stage {
                    self.stage = Stage::Lost(reason, Leftover::None);
                    decision.delete = Some(self.deletion(false));
                }
            }
            HoldEvent::Release { lease, now } => self.release(lease, now, &mut decision),
            HoldEvent::BeginConversion => match self.stage {
                Stage::Held => self.stage = Stage::Converting,
                // A lock that is lost or released is not converted: another client may hold it.
                _ => decision.refused = true,
            },
            HoldEvent::EndConversion { node, kind } => match self.stage {
                Stage::Converting => {
                    (self.node, self.kind, self.stage) = (node, kind, Stage::Held);
                }
                // The lock was lost while the transaction was under way. The conversion deletes the
                // node that its transaction has left.
                _ => decision.refused = true,
            },
            HoldEvent::ConversionLost(reason) => {
                // `ConversionOver` follows in either case, once the nodes are deleted.
                if self.stage == Stage::Converting {
                    decision.lost = self.lose(reason, Leftover::OfConversion);
                }
            }
            HoldEvent::ConversionOver(reason) => match self.stage {
                // The session has ended, or the task of the conversion has ended early, for example
                // by a panic. If that was after `EndConversion`, the lock is held again, but both
                // nodes go to cleanup.
                Stage::Held | Stage::Converting => {
                    decision.lost = self.lose(reason, Leftover::None);
                    decision.leaves = true;
                }
                // The guards were notified of the loss before. Now that the nodes are left to
                // cleanup or deleted, another attempt of this client may start.
                Stage::Lost(reason, Leftover::OfConversion) => {
                    self.stage = Stage::Lost(reason, Leftover::None);
                    decision.leaves = true;
                }
                Stage::Lost(..) | Stage::Released => {}
            },
        }
        decision
    }

    /// Records that the node of a lost hold, which was kept, does not exist any more.
    fn end_leftover(&mut self) {
        if let Stage::Lost(reason, Leftover::Kept { .. }) = self.stage {
            self.stage = Stage::Lost(reason, Leftover::None);
        }
    }

    /// Returns whether a conversion deletes the node, and notifies what waits behind the node.
    fn is_left_to_conversion(&self) -> bool {
        matches!(
            self.stage,
            Stage::Converting | Stage::Lost(_, Leftover::OfConversion)
        )
    }

    fn lose_node(&mut self, node: Arc<str>, decision: &mut Decision) {
        decision.lost = self.lose(LostReason::NodeDeleted, Leftover::None);
        decision.gone = Some(node);
    }

    fn lose(&mut self, reason: LostReason, leftover: Leftover) -> Option<LostReason> {
        self.stage = Stage::Lost(reason, leftover);
        Some(reason)
    }

    fn end(&mut self, reason: LostReason) -> Option<LostReason> {
        match self.stage {
            // If the session has ended, the servers delete the node. If the holder has given the
            // lock up, the session lives on, and the release deletes the node.
            Stage::Held => self.lose(reason, Leftover::OfSession),
            Stage::Converting => self.lose(reason, Leftover::OfConversion),
            Stage::Lost(..) | Stage::Released => None,
        }
    }

    /// Loses the hold if the lease that its caller has set is over. The node is not kept, as after
    /// an expired lease of the session: the caller has chosen the end.
    fn end_lease(&mut self, now: Moment, decision: &mut Decision) {
        if !self.is_lease_over(now) {
            return;
        }
        match self.stage {
            Stage::Held => {
                decision.lost = self.lose(LostReason::LeaseOver, Leftover::None);
                decision.delete = Some(self.deletion(false));
            }
            Stage::Converting => {
                decision.lost = self.lose(LostReason::LeaseOver, Leftover::OfConversion);
            }
            Stage::Lost(..) | Stage::Released => {}
        }
    }

    fn release(&mut self, lease: LeaseState, now: Moment, decision: &mut Decision) {
        // A hold that has left its node before does not leave again. The effects of that end may
        // still be under way in another thread, where the deletion comes before the departure. A
        // hold that is left to a conversion leaves with that.
        decision.leaves = match self.stage {
            Stage::Held => true,
            Stage::Lost(_, leftover) => {
                matches!(leftover, Leftover::Kept { .. } | Leftover::OfSession)
            }
            Stage::Converting | Stage::Released => false,
        };
        match self.stage {
            Stage::Held if self.is_lease_over(now) => {
                self.end_lease(now, decision);
                decision.report = decision.lost;
            }
            Stage::Held => {
                self.stage = Stage::Released;
                // The lock is not handed over if another process may have it, or if a write may
                // still be committed that the next holder would not see: then the next attempt
                // lists the queue. The further conditions are at `PathState::next_holder`.
                let may_pass_on = lease != LeaseState::Expired && self.writes == 0;
                decision.delete = Some(self.deletion(may_pass_on));
            }
            // The conversion has been dropped before its end, and was the last to have the hold.
            Stage::Converting => {
                decision.lost = self.lose(LostReason::Closed, Leftover::OfConversion);
            }
            Stage::Lost(reason, leftover) => {
                match leftover {
                    // The release reports the loss, and does not wait for the deletion.
                    Leftover::Kept { .. } => {
                        self.stage = Stage::Lost(reason, Leftover::None);
                        decision.delete = Some(self.deletion(false));
                        decision.report = Some(reason);
                    }
                    // The release has the answer to the deletion: the holder has given the lock up,
                    // or the session is gone, and the node with it.
                    Leftover::OfSession => {
                        self.stage = Stage::Lost(reason, Leftover::None);
                        decision.delete = Some(self.deletion(false));
                    }
                    // The release waits for no deletion: the node is gone, or others delete it.
                    Leftover::OfConversion | Leftover::None => decision.report = Some(reason),
                }
            }
            Stage::Released => {}
        }
    }

    fn deletion(&self, may_pass_on: bool) -> Deletion {
        Deletion {
            node: Arc::clone(&self.node),
            may_pass_on,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Moment = Moment::at(Duration::from_secs(10));
    const UNTIL: Moment = Moment::at(Duration::from_secs(30));

    /// Of a hold without a lease.
    const WATCH: Registration = Registration::Active { lease_end: None };

    fn expired() -> HoldEvent {
        HoldEvent::LeaseExpired { until: UNTIL }
    }

    fn release() -> HoldEvent {
        HoldEvent::Release {
            lease: LeaseState::Valid,
            now: NOW,
        }
    }

    #[test]
    fn flush_counts_possible_deletions() {
        assert!(release().may_delete());
        assert!(!expired().may_delete());
    }

    /// The end of a lease, and a moment before it.
    const END: Moment = Moment::at(Duration::from_secs(20));
    const BEFORE: Moment = Moment::at(Duration::from_nanos(19_999_999_999));

    fn over(now: Moment) -> HoldEvent {
        HoldEvent::LeaseOver { now }
    }

    fn extend(end: Moment) -> HoldEvent {
        HoldEvent::Extend {
            now: NOW,
            end: Some(end),
        }
    }

    fn release_at(now: Moment) -> HoldEvent {
        HoldEvent::Release {
            lease: LeaseState::Valid,
            now,
        }
    }

    fn deleted(node: &str) -> HoldEvent {
        HoldEvent::NodeDeleted { node: node.into() }
    }

    fn shared_deleted(node: &str) -> HoldEvent {
        HoldEvent::SharedNodeDeleted { node: node.into() }
    }

    fn converted(kind: Kind) -> HoldEvent {
        HoldEvent::EndConversion {
            node: "new".into(),
            kind,
        }
    }

    /// A hold with the node `own`, after these events.
    fn after(events: &[HoldEvent]) -> HoldState {
        let mut hold = HoldState::new("own".into(), Kind::Exclusive);
        for event in events {
            let _ = hold.decide(event.clone());
        }
        hold
    }

    fn lost(reason: LostReason) -> Decision {
        Decision {
            lost: Some(reason),
            ..Decision::default()
        }
    }

    fn delete(may_pass_on: bool) -> Decision {
        let delete = Some(Deletion {
            node: "own".into(),
            may_pass_on,
        });
        Decision {
            delete,
            ..Decision::default()
        }
    }

    fn released(delete: Decision) -> Decision {
        Decision {
            leaves: true,
            ..delete
        }
    }

    /// Returns whether a hold in this stage leaves its node by the event.
    fn leaves(stage: Stage, event: &HoldEvent) -> bool {
        let is_left_to_conversion = matches!(
            stage,
            Stage::Converting | Stage::Lost(_, Leftover::OfConversion)
        );
        let has_left = matches!(stage, Stage::Lost(_, Leftover::None) | Stage::Released);
        match event {
            HoldEvent::Release { .. } => !has_left && !is_left_to_conversion,
            HoldEvent::ConversionOver(_) => {
                !has_left && (is_left_to_conversion || stage == Stage::Held)
            }
            _ => false,
        }
    }

    fn of_other(decision: Decision) -> Decision {
        Decision {
            is_of_other: true,
            ..decision
        }
    }

    // Shows: leaders-work
    #[test]
    fn abandoned_hold_keeps_node_until_release() {
        let mut hold = after(&[]);
        assert_eq!(
            hold.decide(HoldEvent::Ended(LostReason::GivenUp)),
            lost(LostReason::GivenUp)
        );
        assert_eq!(hold.registration(), WATCH);
        for nothing in [
            expired(),
            shared_deleted("own"),
            HoldEvent::Ended(LostReason::GivenUp),
        ] {
            assert_eq!(hold.decide(nothing), Decision::default());
        }
        assert_eq!(
            hold.decide(release()),
            released(delete(false)),
            "it reports the deletion, and no loss"
        );
        assert_eq!(
            after(&[release()]).decide(HoldEvent::Ended(LostReason::GivenUp)),
            Decision::default()
        );
    }

    // Shows: one-value
    #[test]
    fn transitions_at_loss_of_sibling_hold() {
        use LostReason::{LeaseExpired, LeaseOver, NodeDeleted, SessionExpired};
        let of_others = |reason| HoldEvent::of_other(reason, true, UNTIL);
        assert_eq!(of_others(SessionExpired), None, "the session tells each");
        let of_next = HoldEvent::of_other(SessionExpired, false, UNTIL);
        assert_eq!(
            of_next,
            Some(HoldEvent::OtherLost {
                reason: SessionExpired,
                until: Some(UNTIL)
            })
        );
        let at_once = of_others(LeaseOver).unwrap();
        let later = of_others(NodeDeleted).unwrap();
        let gone = of_other(Decision {
            lost: Some(LeaseOver),
            ..delete(false)
        });
        assert_eq!(after(&[]).decide(at_once.clone()), gone);
        let mut kept = after(&[]);
        assert_eq!(kept.decide(later.clone()), of_other(lost(NodeDeleted)));
        assert_eq!(kept.registration(), Registration::Kept { until: UNTIL });
        assert_eq!(kept.decide(HoldEvent::GraceOver), delete(false));
        // The conversion has the nodes.
        for event in [&at_once, &later] {
            let mut converting = after(&[HoldEvent::BeginConversion]);
            assert!(converting.decide(event.clone()).lost.is_some());
            assert_eq!(converting.registration(), WATCH);
            // What is lost or released already stays as it is.
            for before in [expired(), release(), deleted("own")] {
                let decision = after(&[before]).decide(event.clone());
                assert_eq!(decision, of_other(Decision::default()));
            }
        }
        assert_eq!(
            of_others(LeaseExpired),
            Some(HoldEvent::OtherLost {
                reason: LeaseExpired,
                until: Some(UNTIL)
            })
        );
    }

    // Shows: lost-lock-keeps-its-node
    #[test]
    fn transitions_of_each_event() {
        use HoldEvent::{BeginConversion, ConversionLost, ConversionOver, Ended, GraceOver};
        use LostReason::{Closed, LeaseExpired, NodeDeleted, NotConverted, SessionExpired};
        let none = Decision::default;
        let refused = || Decision {
            refused: true,
            ..none()
        };
        let own_gone = || Decision {
            gone: Some("own".into()),
            ..lost(NodeDeleted)
        };
        let gone_before = || Decision {
            gone: Some("own".into()),
            ..none()
        };
        let report = |reason| Decision {
            report: Some(reason),
            ..none()
        };
        let held: &[HoldEvent] = &[];
        let converting: &[HoldEvent] = &[BeginConversion];
        let kept: &[HoldEvent] = &[expired()];
        let ended: &[HoldEvent] = &[Ended(SessionExpired)];
        let lost_converting: &[HoldEvent] = &[BeginConversion, expired()];
        let gone: &[HoldEvent] = &[deleted("own")];
        let released: &[HoldEvent] = &[release()];
        let table = [
            (
                held,
                expired(),
                lost(LeaseExpired),
                Registration::Kept { until: UNTIL },
            ),
            (held, Ended(Closed), lost(Closed), WATCH),
            (held, deleted("another"), none(), WATCH),
            (held, shared_deleted("another"), none(), WATCH),
            (held, deleted("own"), own_gone(), Registration::None),
            (held, shared_deleted("own"), own_gone(), Registration::None),
            (held, GraceOver, none(), WATCH),
            (held, release(), delete(true), Registration::None),
            (held, BeginConversion, none(), WATCH),
            (held, converted(Kind::Shared), refused(), WATCH),
            (held, ConversionLost(NotConverted), none(), WATCH),
            (converting, expired(), lost(LeaseExpired), WATCH),
            (converting, Ended(Closed), lost(Closed), WATCH),
            (converting, deleted("own"), none(), WATCH),
            (converting, shared_deleted("own"), none(), WATCH),
            (converting, release(), lost(Closed), WATCH),
            (converting, BeginConversion, refused(), WATCH),
            (converting, converted(Kind::Exclusive), none(), WATCH),
            (converting, converted(Kind::Shared), none(), WATCH),
            (
                converting,
                ConversionLost(NotConverted),
                lost(NotConverted),
                WATCH,
            ),
            (
                converting,
                ConversionOver(NodeDeleted),
                lost(NodeDeleted),
                Registration::None,
            ),
            (kept, expired(), none(), Registration::Kept { until: UNTIL }),
            (kept, deleted("own"), gone_before(), Registration::None),
            (kept, shared_deleted("own"), none(), Registration::None),
            (
                kept,
                Ended(Closed),
                none(),
                Registration::Kept { until: UNTIL },
            ),
            (kept, GraceOver, delete(false), Registration::None),
            (
                kept,
                release(),
                Decision {
                    report: Some(LeaseExpired),
                    ..delete(false)
                },
                Registration::None,
            ),
            (
                kept,
                BeginConversion,
                refused(),
                Registration::Kept { until: UNTIL },
            ),
            (ended, expired(), none(), WATCH),
            (ended, Ended(SessionExpired), none(), WATCH),
            (ended, release(), delete(false), Registration::None),
            (
                lost_converting,
                converted(Kind::Exclusive),
                refused(),
                WATCH,
            ),
            (lost_converting, release(), report(LeaseExpired), WATCH),
            (lost_converting, GraceOver, none(), WATCH),
            (
                lost_converting,
                ConversionOver(Closed),
                none(),
                Registration::None,
            ),
            (gone, release(), report(NodeDeleted), Registration::None),
            (gone, ConversionOver(Closed), none(), Registration::None),
            (released, expired(), none(), Registration::None),
            (released, Ended(Closed), none(), Registration::None),
            (released, deleted("own"), gone_before(), Registration::None),
            (released, shared_deleted("own"), none(), Registration::None),
            (released, release(), none(), Registration::None),
            (released, BeginConversion, refused(), Registration::None),
        ];
        for (before, event, decision, registration) in table {
            let mut hold = after(before);
            let decision = Decision {
                leaves: leaves(hold.stage, &event),
                ..decision
            };
            assert_eq!(
                hold.decide(event.clone()),
                decision,
                "{before:?}, {event:?}"
            );
            assert_eq!(hold.registration(), registration, "{before:?}, {event:?}");
        }
    }

    /// The effects of an event of the hold in this state, with this answer about who has the node
    /// next: the same deletion, or none.
    fn effects(before: &[HoldEvent], event: HoldEvent, stays: bool) -> Vec<Effect> {
        let mut effects = after(before).on(event);
        let mut found = Vec::new();
        while let Some(effect) = effects.next() {
            if let Effect::PassOn(deletion) = &effect {
                effects.passed_on((!stays).then(|| deletion.clone()));
            }
            found.push(effect);
        }
        found
    }

    // Shows: hand-off, lease-over, lost-lock-keeps-its-node, node-deleted-by-hand
    #[test]
    fn effects_have_an_order() {
        use Effect::*;
        use LostReason::{Closed, GivenUp, LeaseExpired, LeaseOver, NodeDeleted};
        let deletion = |may_pass_on| Deletion {
            node: "own".into(),
            may_pass_on,
        };
        let node = || Arc::from("own");
        let leased: &[HoldEvent] = &[extend(END)];
        // A release, by which the node goes, or is another's.
        assert_eq!(
            effects(&[], release(), false),
            [
                ReportEnd(None),
                PassOn(deletion(true)),
                UpdateSession,
                Delete(deletion(true)),
                LeaveNode,
            ]
        );
        assert_eq!(
            effects(&[], release(), true),
            [
                ReportEnd(None),
                PassOn(deletion(true)),
                UpdateSession,
                Answer(None)
            ]
        );
        // A lease that is over ends the holder's use before that of the node.
        let is_over = [
            ReportEnd(Some(LeaseOver)),
            PassOn(deletion(false)),
            UpdateSession,
            LogLoss(LeaseOver),
            WakeWaiters,
            LoseOtherHolds(LeaseOver),
            Delete(deletion(false)),
            LoseNode,
        ];
        assert_eq!(effects(leased, over(END), false), is_over);
        assert_eq!(effects(&[], extend(NOW), false), is_over);
        let [first @ .., _, _] = &is_over;
        let mut stays = first.to_vec();
        stays.push(Answer(Some(LeaseOver)));
        assert_eq!(effects(leased, over(END), true), stays);
        // A release that finds the lease over reports that, and waits for nothing.
        assert_eq!(
            effects(leased, release_at(END), false),
            [
                ReportEnd(Some(LeaseOver)),
                PassOn(deletion(false)),
                UpdateSession,
                LogLoss(LeaseOver),
                WakeWaiters,
                LoseOtherHolds(LeaseOver),
                Answer(Some(LeaseOver)),
                Delete(deletion(false)),
                LeaveNode,
            ]
        );
        // The node is kept, and goes later, by the clock or by a release.
        assert_eq!(
            effects(&[], expired(), false),
            [
                ReportEnd(Some(LeaseExpired)),
                UpdateSession,
                LogLoss(LeaseExpired),
                WakeWaiters,
                LoseOtherHolds(LeaseExpired),
                LoseNode,
            ]
        );
        assert_eq!(
            effects(&[expired()], HoldEvent::GraceOver, false),
            [
                PassOn(deletion(false)),
                UpdateSession,
                Delete(deletion(false)),
                LoseNode,
            ]
        );
        assert_eq!(
            effects(&[expired()], release(), false),
            [
                PassOn(deletion(false)),
                UpdateSession,
                Answer(Some(LeaseExpired)),
                Delete(deletion(false)),
                LeaveNode,
            ]
        );
        // The node is gone: all that have it are lost, and the attempts behind it go on.
        let is_gone = [
            ReportEnd(Some(NodeDeleted)),
            LoseSharers(node()),
            UpdateSession,
            LogLoss(NodeDeleted),
            WakeWaiters,
            LoseOtherHolds(NodeDeleted),
            ForgetNode(node()),
            LoseNode,
        ];
        assert_eq!(effects(&[], deleted("own"), false), is_gone);
        assert_eq!(effects(&[], shared_deleted("own"), false), is_gone);
        // The hold has passed the node on.
        let sharers = [
            LoseSharers(node()),
            UpdateSession,
            ForgetNode(node()),
            LoseNode,
        ];
        assert_eq!(effects(&[release()], deleted("own"), false), sharers);
        for before in [release(), expired()] {
            let once = effects(&[before], shared_deleted("own"), false);
            assert_eq!(
                once,
                [UpdateSession],
                "a node that is told of without an end"
            );
        }
        // What the log does not say.
        let value = |reason| HoldEvent::of_other(reason, true, UNTIL).unwrap();
        for (event, is_logged) in [
            (value(NodeDeleted), false),
            (value(LeaseExpired), true),
            (HoldEvent::Ended(GivenUp), false),
            (HoldEvent::Ended(Closed), true),
        ] {
            let found = effects(&[], event.clone(), false);
            let logs = found.iter().any(|effect| matches!(effect, LogLoss(_)));
            assert_eq!(logs, is_logged, "{event:?}");
        }
        // A release that is repeated is none.
        assert_eq!(effects(&[release()], release(), false), [UpdateSession]);
        // A hold leaves its node once.
        assert_eq!(
            effects(&[extend(END), over(END)], release(), false),
            [UpdateSession, Answer(Some(LeaseOver))]
        );
        // The caller of a dropped conversion has no answer: its hold was closed.
        assert_eq!(
            effects(&[HoldEvent::BeginConversion], release(), false),
            [
                ReportEnd(Some(Closed)),
                UpdateSession,
                LogLoss(Closed),
                WakeWaiters,
                LoseOtherHolds(Closed),
                LoseNode,
            ]
        );
        // The hold leaves its node when the conversion, which has both nodes, is over.
        let dropped = [HoldEvent::BeginConversion, release()];
        assert_eq!(
            effects(&dropped, HoldEvent::ConversionOver(Closed), false),
            [UpdateSession, LeaveNode]
        );
    }

    #[test]
    fn answer_may_change_a_deletion() {
        let mut effects = after(&[]).on(release());
        let Some(Effect::PassOn(deletion)) = effects.nth(1) else {
            panic!("not passed on");
        };
        assert!(deletion.may_pass_on);
        let changed = Deletion {
            may_pass_on: false,
            ..deletion
        };
        effects.passed_on(Some(changed.clone()));
        assert_eq!(effects.into_deletion(), Some(changed));
        assert_eq!(after(&[expired()]).on(expired()).into_deletion(), None);
    }

    // Shows: lease-over
    #[test]
    fn transitions_of_each_event_under_lease() {
        use HoldEvent::{BeginConversion, ConversionOver, Ended, GraceOver};
        use LostReason::{Closed, LeaseExpired, LeaseOver, SessionExpired};
        let none = Decision::default;
        let refused = || Decision {
            refused: true,
            ..none()
        };
        let ended = || Decision {
            lost: Some(LeaseOver),
            ..delete(false)
        };
        let leased = Registration::Active {
            lease_end: Some(END),
        };
        let later = Moment::at(Duration::from_secs(25));
        let held: &[HoldEvent] = &[extend(END)];
        let unleased: &[HoldEvent] = &[];
        let converting: &[HoldEvent] = &[extend(END), BeginConversion];
        let lost_converting: &[HoldEvent] = &[extend(END), BeginConversion, over(END)];
        let lease_over: &[HoldEvent] = &[extend(END), over(END)];
        let kept: &[HoldEvent] = &[extend(END), expired()];
        let with_session: &[HoldEvent] = &[extend(END), Ended(SessionExpired)];
        let released: &[HoldEvent] = &[extend(END), release()];
        let table = [
            (unleased, over(UNTIL), none(), WATCH),
            (unleased, extend(END), none(), leased),
            (
                unleased,
                extend(NOW),
                Decision {
                    refused: true,
                    ..ended()
                },
                Registration::None,
            ),
            (held, over(BEFORE), none(), leased),
            (held, over(END), ended(), Registration::None),
            (
                held,
                extend(later),
                none(),
                Registration::Active {
                    lease_end: Some(later),
                },
            ),
            (
                held,
                extend(NOW),
                Decision {
                    refused: true,
                    ..ended()
                },
                Registration::None,
            ),
            (
                held,
                HoldEvent::Extend {
                    now: BEFORE,
                    end: None,
                },
                none(),
                WATCH,
            ),
            (
                held,
                HoldEvent::Extend {
                    now: END,
                    end: None,
                },
                Decision {
                    refused: true,
                    ..ended()
                },
                Registration::None,
            ),
            (
                held,
                expired(),
                lost(LeaseExpired),
                Registration::Kept { until: UNTIL },
            ),
            (held, release_at(BEFORE), delete(true), Registration::None),
            (
                held,
                release_at(END),
                Decision {
                    report: Some(LeaseOver),
                    ..ended()
                },
                Registration::None,
            ),
            (converting, over(END), lost(LeaseOver), WATCH),
            (converting, over(BEFORE), none(), leased),
            (converting, converted(Kind::Exclusive), none(), leased),
            (
                lost_converting,
                converted(Kind::Exclusive),
                refused(),
                WATCH,
            ),
            (
                lost_converting,
                ConversionOver(Closed),
                none(),
                Registration::None,
            ),
            (lease_over, over(END), none(), Registration::None),
            (lease_over, extend(later), refused(), Registration::None),
            (
                lease_over,
                release(),
                Decision {
                    report: Some(LeaseOver),
                    ..none()
                },
                Registration::None,
            ),
            (lease_over, expired(), none(), Registration::None),
            (lease_over, GraceOver, none(), Registration::None),
            (lease_over, BeginConversion, refused(), Registration::None),
            (lease_over, Ended(Closed), none(), Registration::None),
            (kept, over(END), none(), Registration::Kept { until: UNTIL }),
            (
                kept,
                extend(later),
                refused(),
                Registration::Kept { until: UNTIL },
            ),
            (with_session, over(END), none(), WATCH),
            (released, over(END), none(), Registration::None),
            (released, extend(later), refused(), Registration::None),
        ];
        for (before, event, decision, registration) in table {
            let mut hold = after(before);
            let decision = Decision {
                leaves: leaves(hold.stage, &event),
                ..decision
            };
            assert_eq!(
                hold.decide(event.clone()),
                decision,
                "{before:?}, {event:?}"
            );
            assert_eq!(hold.registration(), registration, "{before:?}, {event:?}");
        }
    }

    #[test]
    fn state_displays_name_and_reason() {
        let lost = LockState::Lost(LostReason::LeaseOver);
        let shown = [LockState::Held, LockState::Suspended, lost].map(|state| state.to_string());
        assert_eq!(shown, ["held", "suspended", "lost: its lease is over"]);
    }

    // Shows: lease-over
    #[test]
    fn remaining_lease_is_computed() {
        assert_eq!(after(&[]).lease_remaining(NOW), None);
        assert!(!after(&[]).has_lease());
        let from_the_grant = after(&[]).with_lease_end(Some(END));
        assert!(from_the_grant.has_lease());
        assert_eq!(
            from_the_grant.lease_remaining(NOW),
            Some(Duration::from_secs(10))
        );
        let leased = after(&[extend(END)]);
        assert_eq!(leased.lease_remaining(NOW), Some(Duration::from_secs(10)));
        assert_eq!(
            (leased.is_lease_over(BEFORE), leased.is_lease_over(END)),
            (false, true)
        );
        assert_eq!(leased.lease_remaining(UNTIL), Some(Duration::ZERO));
        // Nothing is left of the lease of a lost lock, for each kind of loss.
        assert_eq!(
            after(&[extend(END), expired()]).lease_remaining(NOW),
            Some(Duration::ZERO)
        );
        assert_eq!(
            after(&[extend(END), over(END)]).lease_remaining(NOW),
            Some(Duration::ZERO)
        );
        assert_eq!(after(&[expired()]).lease_remaining(NOW), None);
        // A conversion keeps the lease, and what is too long is none.
        let converted = after(&[
            extend(END),
            HoldEvent::BeginConversion,
            converted(Kind::Shared),
        ]);
        assert_eq!(
            converted.lease_remaining(NOW),
            Some(Duration::from_secs(10))
        );
        assert_eq!(
            after(&[
                extend(END),
                HoldEvent::Extend {
                    now: NOW,
                    end: None
                }
            ])
            .lease_remaining(NOW),
            None
        );
    }

    #[test]
    fn hand_over_needs_an_unexpired_lease() {
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
            let effects = hold.decide(HoldEvent::Release { lease, now: NOW });
            assert_eq!(
                effects.delete.unwrap().may_pass_on,
                expected,
                "{lease:?}, {writes}"
            );
        }
    }

    #[test]
    fn conversion_reports_node_and_mode() {
        let mut hold = after(&[]);
        assert!(hold.is_held_by("own"));
        let _ = hold.decide(HoldEvent::BeginConversion);
        assert!(
            !hold.is_held_by("own"),
            "no heartbeat checks it during a conversion"
        );
        assert_eq!(hold.state(true), LockState::Held);
        let _ = hold.decide(converted(Kind::Shared));
        assert!(hold.is_held_by("new") && !hold.is_held_by("own"));
        assert_eq!((&**hold.node(), hold.kind()), ("new", Kind::Shared));
    }

    #[test]
    fn lease_decides_held_or_suspended() {
        let hold = after(&[]);
        assert_eq!(
            (hold.state(true), hold.state(false)),
            (LockState::Held, LockState::Suspended)
        );
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
        let lease = prop_oneof![
            Just(LeaseState::Valid),
            Just(LeaseState::Suspended),
            Just(LeaseState::Expired)
        ];
        let moment = prop_oneof![Just(NOW), Just(BEFORE), Just(END), Just(UNTIL)];
        let event = prop_oneof![
            Just(expired()),
            reason.clone().prop_map(HoldEvent::Ended),
            node.clone().prop_map(deleted),
            node.clone().prop_map(shared_deleted),
            Just(HoldEvent::GraceOver),
            proptest::option::of(Just(UNTIL)).prop_map(|until| HoldEvent::OtherLost {
                reason: LostReason::NodeDeleted,
                until
            }),
            (lease, moment.clone()).prop_map(|(lease, now)| HoldEvent::Release { lease, now }),
            moment.clone().prop_map(over),
            (moment.clone(), proptest::option::of(moment))
                .prop_map(|(now, end)| HoldEvent::Extend { now, end }),
            Just(HoldEvent::BeginConversion),
            (node, kind).prop_map(|(node, kind)| HoldEvent::EndConversion {
                node: node.into(),
                kind
            }),
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
        // Shows: lease-over, lost-lock-keeps-its-node
        #[test]
        fn loss_and_deletion_happen_once(inputs in inputs()) {
            let mut hold = HoldState::new("own".into(), Kind::Exclusive);
            let (mut lost, mut ended, mut writes) = (None, 0, 0_usize);
            // In the end the session ends, the conversion, if there is one, and the last guard.
            let end = [
                HoldEvent::ConversionOver(LostReason::Closed),
                release(),
                HoldEvent::Ended(LostReason::Closed),
                release(),
            ];
            let mut lease_end = None;
            // Whether a conversion is under way.
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
                let lost_before = lost;
                let effects = hold.decide(event.clone());
                prop_assert!(effects.delete.is_none() || event.may_delete(), "missed by a flush");
                // A loss is told once, and its reason stays.
                if let Some(reason) = effects.lost {
                    prop_assert_eq!(lost.replace(reason), None);
                }
                // A lease that is over is the end of a lock that is held, however it is noticed,
                // and nothing else is. It is not extended, and one that is set is what is watched.
                let over_at = |now: Moment| lease_end.is_some_and(|end: Moment| end <= now);
                let ends = match &event {
                    HoldEvent::LeaseOver { now } => over_at(*now) && (was_held || converting),
                    HoldEvent::Extend { now, end } => {
                        let over = over_at(*now) || end.is_some_and(|end| end <= *now);
                        prop_assert_eq!(effects.refused, hold.is_lost_or_released());
                        if !effects.refused {
                            lease_end = *end;
                        }
                        over && (was_held || converting)
                    }
                    HoldEvent::Release { now, .. } => over_at(*now) && was_held,
                    _ => false,
                };
                let ends = ends && lost_before.is_none();
                prop_assert_eq!(effects.lost == Some(LostReason::LeaseOver), ends);
                if !hold.is_lost_or_released() {
                    prop_assert_eq!(hold.registration(), Registration::Active { lease_end });
                }
                prop_assert_eq!(hold.lost(), lost);
                prop_assert!(lost.is_none() || !hold.is_held_by(&Arc::clone(hold.node())), "held after a loss");
                // The node is deleted once, by cleanup or another process, and a hold that may be
                // lost is not handed over.
                if let Some(deletion) = &effects.delete {
                    ended += 1;
                    prop_assert!(!converting, "the node is the conversion's to delete");
                    let expired = matches!(event, HoldEvent::Release { lease: LeaseState::Expired, .. });
                    prop_assert!(!deletion.may_pass_on || was_held && lost.is_none() && writes == 0 && !expired);
                    prop_assert!(was_held || lost.is_some(), "deleted before the loss was told");
                }
                prop_assert!(ended <= 1);
                // What is deleted may be found missing. What is missing is not deleted, but at the
                // end of a session, whose nodes go without an answer.
                let is_gone = effects.gone.is_some() && !matches!(hold.stage, Stage::Lost(_, Leftover::OfSession));
                ended = ended.max(u32::from(is_gone));
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
                    // What is released is not lost without being told, and what is not deleted is
                    // reported.
                    HoldEvent::Release { .. } => {
                        prop_assert!(
                            effects.delete.is_some() || effects.lost.is_some() || effects.report == lost
                        );
                    }
                    _ => {}
                }
            }
            prop_assert_eq!(hold.registration(), Registration::None);
        }
    }
}
