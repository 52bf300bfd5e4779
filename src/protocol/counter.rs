//! How a counter is changed, as a state machine.
//!
//! A counter is a persistent node of eight bytes (docs/protocol.md#counter-layout). A change is an
//! optimistic transaction on it, which [`Changing`] carries through:
//!
//! 1. **Read** the value and the version of the data. A missing node is 0, and is created with that
//!    value first.
//! 2. **Write** the new value with the version that was read. The servers commit at most one of all
//!    writes for one version.
//! 3. A write that is **refused**, because another process was first, begins again with step 1
//!    after a random pause, whose bound grows with the tries (docs/protocol.md#counter-tries).
//!
//! A write **without an answer** is sent again *with the same version*, and the answer to the
//! repetition settles both (docs/protocol.md#counter-writes). A commit means that the first write
//! never happened and never will. A refusal means that neither will happen from now on; whether the
//! first did before, a read behind a `sync` shows:
//! - the next version with another value was another process's write: the change begins again,
//! - the next version with the same value may be either's, and a later version may hide either: the
//!   change is [`Unchanged::Unknown`], except that `set` is satisfied by the same value.
//!
//! A number that is handed out as an id never ends as `Unknown`: a number that may be another
//! process's is given up, and the next is taken (docs/protocol.md#counter-ids).
//!
//! The versions start again with each node. So each write is also compared with the transaction
//! that created the node, in case the node was deleted and created again in between
//! (docs/protocol.md#counter-deleted).

/// How many tries end a change that other processes preceded each time, or whose directory was
/// missing. With the pauses between the former, the bound is reached after about ten seconds.
const MOST_TRIES: u32 = 30;

/// A change to a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Adds to the value. The type is wide enough for the subtraction of any `i64`.
    Add(i128),
    /// Adds this many numbers, which then belong to the caller. Numbers of an addition with an
    /// unknown outcome are given up, and others are taken (docs/protocol.md#counter-ids).
    Reserve(u32),
    Set(i64),
    CompareAndSet {
        expected: i64,
        new: i64,
    },
    /// Creates the node with this value.
    Initialize(i64),
}

impl Change {
    pub(crate) fn delta(self) -> i128 {
        match self {
            Self::Add(delta) => delta,
            Self::Reserve(count) => count.into(),
            Self::Set(_) | Self::CompareAndSet { .. } | Self::Initialize(_) => 0,
        }
    }
}

/// A counter's node as of the last read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct SeenCounter {
    pub(crate) value: i64,
    /// The number of changes of its data.
    pub(crate) version: i32,
    /// The transaction that created the node. The versions start again after a deletion by hand,
    /// and the transaction distinguishes the nodes.
    pub(crate) czxid: i64,
}

/// Why a node is not a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoCounter {
    /// The data has another length than eight bytes.
    Data { bytes: usize },
    /// The servers may delete the node by themselves, and the counter would begin again.
    NotPersistent,
}

/// Reads the value from a node's data: Curator's eight bytes, or none. `children` is the number of
/// changes of its children.
pub(crate) fn value_of(data: &[u8], ephemeral_owner: i64, children: i32) -> Result<i64, NoCounter> {
    if ephemeral_owner != 0 {
        return Err(NoCounter::NotPersistent);
    }
    match <[u8; 8]>::try_from(data) {
        Ok(value) => Ok(i64::from_be_bytes(value)),
        Err(_) if !data.is_empty() => Err(NoCounter::Data { bytes: data.len() }),
        // The node is a directory. Most directories are containers, which the servers delete when
        // they are empty, and a Stat does not distinguish them from persistent nodes.
        Err(_) if children != 0 => Err(NoCounter::NotPersistent),
        Err(_) => Ok(0),
    }
}

/// The request to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CounterRequest {
    /// Reads the node, behind a `sync` if the value must not be old.
    Read {
        sync: bool,
    },
    MakeParents,
    /// Creates the node. A create with the value 0 changes nothing, because a missing node is 0
    /// too.
    Create {
        value: i64,
    },
    Write {
        value: i64,
        version: i32,
    },
    /// Waits before another try. `tries` is how many have been refused.
    Pause {
        tries: u32,
    },
}

/// The outcome of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CounterEvent {
    /// The answer to a read; `None` if there is no node.
    Read(Option<SeenCounter>),
    Unusable(NoCounter),
    ParentsMade,
    /// The node was created, by the transaction `czxid`; `None` if the server did not report it.
    Created {
        czxid: Option<i64>,
    },
    Exists,
    NoParent,
    /// The write was committed, to the node that the transaction `czxid` created.
    Written {
        czxid: i64,
    },
    BadVersion,
    NoNode,
    /// The pause has ended.
    Paused,
    /// The request has no answer, and may have been carried out.
    Lost,
    /// The request was definitely not carried out, and may succeed if it is sent again.
    NotDone,
    /// The request failed and is not sent again. `lost` is whether it may have been carried out.
    Failed {
        lost: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CounterStep {
    Do(CounterRequest),
    Finish(Result<Changed, Unchanged>),
}

/// The result of a change that was made, or that the value or the node prevented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Changed {
    /// The counter was added to, and has this new value.
    To(i64),
    /// The counter was set, compared and set, or initialized; `false` if it was not, because of the
    /// value or the node that was found.
    Set(bool),
}

/// Why a change has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unchanged {
    /// Nothing was written.
    Overflow { value: i64 },
    /// Nothing was written.
    Unusable(NoCounter),
    /// Nothing was written: the node has the version -1, which means any version in a request.
    VersionsUsedUp,
    /// The value may have been written or not.
    Unknown,
    /// Nothing was written, except for numbers that a reservation has given up: other processes
    /// changed the counter, or deleted its directory, before each try.
    Contended,
    /// Nothing was written, except for numbers that a reservation has given up: the last request
    /// failed.
    Failed,
}

/// A write that has been sent, or is about to be.
#[derive(Clone, Copy)]
struct SentWrite {
    value: i64,
    version: i32,
    czxid: i64,
}

/// A change, from its start to its end.
#[derive(Clone)]
pub(crate) struct Changing {
    change: Change,
    request: CounterRequest,
    /// The last write.
    write: Option<SentWrite>,
    /// Whether a write has been sent of which nothing is known, neither that it was committed nor
    /// that it never will be.
    in_doubt: bool,
    tries: u32,
}

impl Changing {
    /// Returns a change, and its first step.
    pub(crate) fn new(change: Change) -> (Self, CounterStep) {
        let request = match change {
            Change::Initialize(value) => CounterRequest::Create { value },
            _ => CounterRequest::Read { sync: false },
        };
        let changing = Self {
            change,
            request,
            write: None,
            in_doubt: false,
            tries: 0,
        };
        (changing, CounterStep::Do(request))
    }

    /// Returns whether the outcome would be unknown to the caller if the change ended now. A
    /// reservation is never in doubt: numbers that may have been added are not handed out.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.in_doubt && !self.hands_out()
    }

    /// Returns whether the outcome is unknown to the caller while the last request is under way.
    pub(crate) fn changes_the_value(&self) -> bool {
        self.writes() && !self.hands_out()
    }

    fn hands_out(&self) -> bool {
        matches!(self.change, Change::Reserve(_))
    }

    /// Takes the outcome of the last request. Returns the next step.
    pub(crate) fn on(&mut self, event: CounterEvent) -> CounterStep {
        match event {
            // The request may have arrived. A write is repeated with the same version, so a second
            // commit is impossible.
            CounterEvent::Lost => {
                self.note_doubt();
                self.again()
            }
            CounterEvent::NotDone => self.again(),
            CounterEvent::Failed { lost } => {
                if lost {
                    self.note_doubt();
                }
                let unknown = self.is_in_doubt();
                not_done(if unknown {
                    Unchanged::Unknown
                } else {
                    Unchanged::Failed
                })
            }
            // The value may be old, because the connected server may lag behind. A write for an old
            // version is refused, which costs one more try.
            CounterEvent::Paused => self.ask(CounterRequest::Read { sync: false }),
            // A read in doubt is sent only after the repetition was refused, behind a `sync`.
            CounterEvent::Read(seen) if self.in_doubt => self.judge(seen),
            // The node has been replaced or overwritten since the write without an answer, so
            // nothing shows whether that write was committed.
            CounterEvent::Unusable(_) if self.in_doubt => not_done(Unchanged::Unknown),
            CounterEvent::Read(seen) => self.decide(seen),
            CounterEvent::Unusable(unusable) => not_done(Unchanged::Unusable(unusable)),
            CounterEvent::NoParent => self.try_again(|_| CounterRequest::MakeParents),
            CounterEvent::ParentsMade => self.create(),
            CounterEvent::Created { czxid } => self.created(czxid),
            CounterEvent::Exists => self.exists(),
            CounterEvent::Written { czxid } => self.written(czxid),
            CounterEvent::BadVersion => self.refused(true),
            CounterEvent::NoNode => self.refused(false),
        }
    }

    fn ask(&mut self, request: CounterRequest) -> CounterStep {
        self.request = request;
        CounterStep::Do(request)
    }

    /// Sends the last request once more, with the same version if it is a write.
    fn again(&self) -> CounterStep {
        CounterStep::Do(self.request)
    }

    /// Records that the last request may have been carried out, which matters if it changes the
    /// value.
    fn note_doubt(&mut self) {
        self.in_doubt |= self.writes();
    }

    /// Returns whether the last request changes the value.
    fn writes(&self) -> bool {
        match self.request {
            CounterRequest::Write { .. } => true,
            CounterRequest::Create { .. } => matches!(self.change, Change::Initialize(_)),
            CounterRequest::Read { .. }
            | CounterRequest::MakeParents
            | CounterRequest::Pause { .. } => false,
        }
    }

    fn create(&mut self) -> CounterStep {
        let value = if let Change::Initialize(value) = self.change {
            value
        } else {
            0
        };
        self.ask(CounterRequest::Create { value })
    }

    fn created(&mut self, czxid: Option<i64>) -> CounterStep {
        match (self.change, czxid) {
            // An earlier create that was carried out would have left a node, and this create would
            // have been refused.
            (Change::Initialize(_), _) => done(true),
            // A new node is known without a read: value and version are 0.
            (_, Some(czxid)) => self.decide(Some(SeenCounter {
                value: 0,
                version: 0,
                czxid,
            })),
            // Without the zxid of the creation, a later node at the same path could not be
            // distinguished from this one, so the node is read.
            (_, None) => self.ask(CounterRequest::Read { sync: false }),
        }
    }

    fn exists(&mut self) -> CounterStep {
        match self.change {
            // The node may be that of the create whose answer was lost; its value decides.
            Change::Initialize(_) if self.in_doubt => self.ask(CounterRequest::Read { sync: true }),
            Change::Initialize(_) => done(false),
            // The node is another process's, or that of an earlier create without an answer. In
            // both cases its value is read before it is changed.
            _ => self.next_try(),
        }
    }

    /// Decides the write for the value that was read.
    fn decide(&mut self, seen: Option<SeenCounter>) -> CounterStep {
        let value = seen.map_or(0, |seen| seen.value);
        let new = match self.change {
            Change::Add(_) | Change::Reserve(_) => {
                i64::try_from(i128::from(value) + self.change.delta())
            }
            // An initialization writes by its create only, and does not come here.
            Change::Set(new) | Change::Initialize(new) => Ok(new),
            Change::CompareAndSet { expected, new } if value == expected => Ok(new),
            // The connected server may lag behind the others, and so may the value that it shows.
            // Only a read behind a `sync` proves that the expected value is not the current one.
            Change::CompareAndSet { .. }
                if !matches!(self.request, CounterRequest::Read { sync: true }) =>
            {
                return self.ask(CounterRequest::Read { sync: true });
            }
            Change::CompareAndSet { .. } => return done(false),
        };
        let Ok(new) = new else {
            return not_done(Unchanged::Overflow { value });
        };
        match seen {
            // The node is created with 0 and written afterwards. A create with the new value would
            // not be safe to repeat: after a lost answer, `Exists` would not say whose value the
            // node has.
            None => self.create(),
            // A write with the version -1 would be unconditional.
            Some(SeenCounter { version: -1, .. }) => not_done(Unchanged::VersionsUsedUp),
            Some(SeenCounter { version, czxid, .. }) => {
                self.write = Some(SentWrite {
                    value: new,
                    version,
                    czxid,
                });
                self.ask(CounterRequest::Write {
                    value: new,
                    version,
                })
            }
        }
    }

    /// Ends the change after a commit. Of a write and its repetition, which have the same version,
    /// only one is ever committed.
    fn written(&mut self, czxid: i64) -> CounterStep {
        match self.write {
            Some(write) if write.czxid == czxid => self.finished(write.value),
            // The node was deleted by hand and created again, and has reached the same version. The
            // written value was computed from the former node (docs/protocol.md#counter-deleted).
            _ => self.unclear(),
        }
    }

    fn finished(&self, value: i64) -> CounterStep {
        CounterStep::Finish(Ok(match self.change {
            Change::Add(_) | Change::Reserve(_) => Changed::To(value),
            _ => Changed::Set(true),
        }))
    }

    /// Decides what follows a refused write: the node has another version, or does not exist. The
    /// write cannot be committed any more. If the answer to an earlier copy was lost, that copy may
    /// have been committed before.
    fn refused(&mut self, exists: bool) -> CounterStep {
        match self.change {
            _ if !self.in_doubt => self.next_try(),
            // A reservation gives the numbers of the first write up, committed or not.
            Change::Reserve(_) => self.next_try(),
            // The read needs a `sync`, because an earlier value of the counter proves nothing.
            _ if exists => self.ask(CounterRequest::Read { sync: true }),
            // The node is gone, and with it the version that would show whether the first write was
            // committed.
            _ => not_done(Unchanged::Unknown),
        }
    }

    /// Finds out from the current node whether a write was made whose answer was lost, and whose
    /// repetition was refused.
    fn judge(&mut self, seen: Option<SeenCounter>) -> CounterStep {
        if let Change::Initialize(value) = self.change {
            // The create was refused because a node exists. With another value in its first
            // version, that node was created by another process. With the same value it may be
            // either's, and a later version hides the first value.
            let others = seen.is_some_and(|seen| seen.version == 0 && seen.value != value);
            return if others {
                done(false)
            } else {
                not_done(Unchanged::Unknown)
            };
        }
        let (Some(seen), Some(write)) = (seen, self.write) else {
            return self.unclear();
        };
        // A single write has made the next version, and its value shows whether it can have been
        // the write without an answer.
        let is_next = seen.czxid == write.czxid && seen.version == write.version.wrapping_add(1);
        if is_next && seen.value != write.value {
            return self.next_try();
        }
        if is_next && matches!(self.change, Change::Set(_)) {
            // The write was this change's or had the same effect, which is all that `set` promises.
            return self.finished(write.value);
        }
        // Another process may have written the same value: if both callers claimed it, one of two
        // additions would be missing. A later version may hide any write.
        self.unclear()
    }

    fn unclear(&mut self) -> CounterStep {
        match self.change {
            // Numbers that may belong to another caller are given up: a gap does no harm.
            Change::Reserve(_) => self.next_try(),
            _ => not_done(Unchanged::Unknown),
        }
    }

    /// Begins another try. The earlier writes are settled, so nothing is in doubt.
    fn next_try(&mut self) -> CounterStep {
        (self.in_doubt, self.write) = (false, None);
        self.try_again(|tries| CounterRequest::Pause { tries })
    }

    /// Counts a try, and continues with a request unless the try was the last. The bound is for a
    /// node that other processes change or delete each time (docs/protocol.md#counter-tries).
    fn try_again(&mut self, request: impl FnOnce(u32) -> CounterRequest) -> CounterStep {
        self.tries = self.tries.saturating_add(1);
        if self.tries < MOST_TRIES {
            return self.ask(request(self.tries));
        }
        // An initialization is in doubt if its create had no answer and the repetition found no
        // directory.
        not_done(if self.is_in_doubt() {
            Unchanged::Unknown
        } else {
            Unchanged::Contended
        })
    }
}

fn done(is_set: bool) -> CounterStep {
    CounterStep::Finish(Ok(Changed::Set(is_set)))
}

fn not_done(why: Unchanged) -> CounterStep {
    CounterStep::Finish(Err(why))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes a change through these events, each with the request that it answers. Returns its last
    /// step.
    #[track_caller]
    fn after(change: Change, events: &[(CounterRequest, CounterEvent)]) -> CounterStep {
        let (mut changing, mut step) = Changing::new(change);
        for (request, event) in events {
            assert_eq!(step, CounterStep::Do(*request));
            step = changing.on(*event);
        }
        step
    }

    const READ: CounterRequest = CounterRequest::Read { sync: false };
    const SYNC: CounterRequest = CounterRequest::Read { sync: true };
    /// The pause after the first refused try.
    const PAUSE: CounterRequest = CounterRequest::Pause { tries: 1 };

    fn seen(value: i64, version: i32) -> CounterEvent {
        CounterEvent::Read(Some(SeenCounter {
            value,
            version,
            czxid: 7,
        }))
    }

    fn write(value: i64, version: i32) -> CounterRequest {
        CounterRequest::Write { value, version }
    }

    const WRITTEN: CounterEvent = CounterEvent::Written { czxid: 7 };

    #[test]
    fn free_change_reads_and_writes_once() {
        assert_eq!(
            after(
                Change::Add(5),
                &[(READ, seen(10, 3)), (write(15, 3), WRITTEN)]
            ),
            CounterStep::Finish(Ok(Changed::To(15)))
        );
    }

    // Shows: counter-layout
    #[test]
    fn missing_counter_starts_at_zero() {
        let created = CounterEvent::Created { czxid: Some(7) };
        assert_eq!(
            after(
                Change::Reserve(3),
                &[
                    (READ, CounterEvent::Read(None)),
                    (CounterRequest::Create { value: 0 }, CounterEvent::NoParent),
                    (CounterRequest::MakeParents, CounterEvent::ParentsMade),
                    // The create changes no value, so its answer may be lost, and its node found.
                    (CounterRequest::Create { value: 0 }, CounterEvent::Lost),
                    (CounterRequest::Create { value: 0 }, created),
                    (write(3, 0), WRITTEN),
                ]
            ),
            CounterStep::Finish(Ok(Changed::To(3)))
        );
    }

    // Shows: counter-writes
    #[test]
    fn unanswered_write_repeats_same_version() {
        assert_eq!(
            after(
                Change::Add(1),
                &[
                    (READ, seen(10, 3)),
                    (write(11, 3), CounterEvent::Lost),
                    (write(11, 3), WRITTEN)
                ]
            ),
            CounterStep::Finish(Ok(Changed::To(11)))
        );
    }

    // Shows: counter-writes
    #[test]
    fn equal_value_may_be_foreign() {
        let lost = [
            (READ, seen(10, 3)),
            (write(11, 3), CounterEvent::Lost),
            (write(11, 3), CounterEvent::BadVersion),
        ];
        let judged = |change, event| after(change, &[&lost[..], &[(SYNC, event)]].concat());
        assert_eq!(
            judged(Change::Add(1), seen(11, 4)),
            not_done(Unchanged::Unknown)
        );
        // Another process has made version 4 of version 3, so this write was not committed and
        // never will be.
        assert_eq!(judged(Change::Add(1), seen(12, 4)), CounterStep::Do(PAUSE));
        assert_eq!(
            judged(Change::Add(1), seen(12, 5)),
            not_done(Unchanged::Unknown)
        );
        let set = |event| judged(Change::Set(11), event);
        assert_eq!(set(seen(11, 4)), done(true), "this write or another one");
        assert_eq!(set(seen(12, 5)), not_done(Unchanged::Unknown));
    }

    #[test]
    fn unreadable_counter_leaves_write_unknown() {
        let lost = [(READ, seen(10, 3)), (write(11, 3), CounterEvent::Lost)];
        let node_is_gone = (write(11, 3), CounterEvent::NoNode);
        assert_eq!(
            after(Change::Add(1), &[&lost[..], &[node_is_gone]].concat()),
            not_done(Unchanged::Unknown)
        );
        let data = CounterEvent::Unusable(NoCounter::Data { bytes: 3 });
        let refused = [(write(11, 3), CounterEvent::BadVersion), (SYNC, data)];
        assert_eq!(
            after(Change::Add(1), &[&lost[..], &refused].concat()),
            not_done(Unchanged::Unknown)
        );
    }

    #[test]
    fn only_requested_change_can_be_unknown() {
        let writes = |change, events: &[CounterEvent]| {
            let mut changing = Changing::new(change).0;
            for event in events {
                changing.on(*event);
            }
            changing.changes_the_value()
        };
        assert!(!writes(Change::Add(1), &[]));
        assert!(writes(Change::Add(1), &[seen(10, 3)]));
        assert!(writes(Change::Initialize(4), &[]));
        // The numbers of the lost write are given up, and the next ones are taken.
        assert!(!writes(Change::Reserve(1), &[seen(10, 3)]));
    }

    // Shows: counter-ids
    #[test]
    fn ambiguous_number_is_given_up() {
        assert_eq!(
            after(
                Change::Reserve(1),
                &[
                    (READ, seen(10, 3)),
                    (write(11, 3), CounterEvent::Lost),
                    (write(11, 3), CounterEvent::BadVersion),
                    (PAUSE, CounterEvent::Paused),
                    (READ, seen(11, 4)),
                    (write(12, 4), WRITTEN),
                ]
            ),
            CounterStep::Finish(Ok(Changed::To(12)))
        );
    }

    // Shows: counter-writes
    #[test]
    fn unanswerable_write_is_unknown() {
        let lost = [
            (READ, seen(10, 3)),
            (write(11, 3), CounterEvent::Failed { lost: true }),
        ];
        assert_eq!(after(Change::Add(1), &lost), not_done(Unchanged::Unknown));
        assert_eq!(
            after(Change::Reserve(1), &lost),
            not_done(Unchanged::Failed)
        );
        let refused = [
            (READ, seen(10, 3)),
            (write(11, 3), CounterEvent::Failed { lost: false }),
        ];
        assert_eq!(after(Change::Add(1), &refused), not_done(Unchanged::Failed));
        let read = [(READ, CounterEvent::Failed { lost: true })];
        assert_eq!(after(Change::Add(1), &read), not_done(Unchanged::Failed));
    }

    // Shows: counter-deleted
    #[test]
    fn version_of_another_node_proves_nothing() {
        let other = CounterEvent::Written { czxid: 9 };
        assert_eq!(
            after(
                Change::Add(1),
                &[(READ, seen(10, 3)), (write(11, 3), other)]
            ),
            not_done(Unchanged::Unknown)
        );
        assert_eq!(
            after(
                Change::Reserve(1),
                &[(READ, seen(10, 3)), (write(11, 3), other)]
            ),
            CounterStep::Do(PAUSE)
        );
    }

    /// Tries that others came before.
    fn lost(tries: std::ops::Range<u32>) -> Vec<(CounterRequest, CounterEvent)> {
        let lost = |tries| {
            let pause = CounterRequest::Pause { tries };
            [
                (READ, seen(10, 3)),
                (write(11, 3), CounterEvent::BadVersion),
                (pause, CounterEvent::Paused),
            ]
        };
        tries.flat_map(lost).collect()
    }

    // Shows: counter-tries
    #[test]
    fn directory_is_made_after_lost_races() {
        let gone = [
            (READ, CounterEvent::Read(None)),
            (CounterRequest::Create { value: 0 }, CounterEvent::NoParent),
            (CounterRequest::MakeParents, CounterEvent::ParentsMade),
        ];
        let all = [&lost(1..20)[..], &gone].concat();
        assert_eq!(
            after(Change::Add(1), &all),
            CounterStep::Do(CounterRequest::Create { value: 0 })
        );
    }

    // Shows: counter-tries
    #[test]
    fn lost_races_are_bounded() {
        assert_eq!(
            after(Change::Add(1), &lost(1..MOST_TRIES)),
            CounterStep::Do(READ)
        );
        let mut all = lost(1..MOST_TRIES + 1);
        all.pop();
        assert_eq!(after(Change::Add(1), &all), not_done(Unchanged::Contended));
    }

    // Shows: counter-deleted
    #[test]
    fn uncountable_data_is_never_overwritten() {
        let overflow = |change, value| after(change, &[(READ, seen(value, 3))]);
        for (change, value) in [
            (Change::Add(1), i64::MAX),
            (Change::Add(-1), i64::MIN),
            (Change::Reserve(u32::MAX), i64::MAX - 7),
            (Change::Add(-i128::from(i64::MIN)), 0),
        ] {
            assert_eq!(
                overflow(change, value),
                not_done(Unchanged::Overflow { value })
            );
        }
        assert_eq!(
            overflow(Change::Add(-i128::from(i64::MIN)), -1),
            CounterStep::Do(write(i64::MAX, 3)),
            "the least number can be subtracted"
        );
        let data = NoCounter::Data { bytes: 3 };
        assert_eq!(
            after(Change::Add(1), &[(READ, CounterEvent::Unusable(data))]),
            not_done(Unchanged::Unusable(data))
        );
        // A request with the version -1 would apply to any version.
        assert_eq!(overflow(Change::Add(1), 5), CounterStep::Do(write(6, 3)));
        assert_eq!(
            after(Change::Add(1), &[(READ, seen(5, -1))]),
            not_done(Unchanged::VersionsUsedUp)
        );
        assert_eq!(
            after(Change::Add(1), &[(READ, seen(5, -2))]),
            CounterStep::Do(write(6, -2))
        );
    }

    // Shows: counter-writes
    #[test]
    fn differing_value_is_read_after_sync() {
        let compare = Change::CompareAndSet {
            expected: 4,
            new: 9,
        };
        assert_eq!(
            after(compare, &[(READ, seen(3, 3)), (SYNC, seen(3, 3))]),
            done(false)
        );
        assert_eq!(
            after(compare, &[(READ, seen(3, 3)), (SYNC, seen(4, 4))]),
            CounterStep::Do(write(9, 4))
        );
    }

    // Shows: counter-writes
    #[test]
    fn lost_creation_is_recognised_by_value() {
        let create = CounterRequest::Create { value: 5 };
        let change = Change::Initialize(5);
        assert_eq!(
            after(change, &[(create, CounterEvent::Exists)]),
            done(false)
        );
        let judged = |event| {
            after(
                change,
                &[
                    (create, CounterEvent::Lost),
                    (create, CounterEvent::Exists),
                    (SYNC, event),
                ],
            )
        };
        assert_eq!(judged(seen(6, 0)), done(false));
        assert_eq!(judged(seen(5, 0)), not_done(Unchanged::Unknown));
        assert_eq!(judged(seen(6, 1)), not_done(Unchanged::Unknown));
    }

    #[test]
    fn repeated_directory_deletions_end_the_call() {
        let again = [
            (CounterRequest::Create { value: 0 }, CounterEvent::NoParent),
            (CounterRequest::MakeParents, CounterEvent::ParentsMade),
        ];
        let all = [
            &[(READ, CounterEvent::Read(None))],
            &again.repeat(29)[..],
            &again[..1],
        ]
        .concat();
        assert_eq!(after(Change::Add(1), &all), not_done(Unchanged::Contended));
    }

    // Shows: counter-layout
    #[test]
    fn values_are_curators_eight_bytes() {
        for value in [0, 1, -1, i64::MAX, i64::MIN] {
            assert_eq!(value_of(&value.to_be_bytes(), 0, 0), Ok(value));
            assert_eq!(value_of(&value.to_be_bytes(), 0, 7), Ok(value));
        }
        assert_eq!(value_of(&[0, 0, 0, 0, 0, 0, 1, 2], 0, 0), Ok(258));
        assert_eq!(value_of(&[], 0, 0), Ok(0));
        for bytes in [1, 3, 4, 7, 9, 16] {
            assert_eq!(
                value_of(&vec![0; bytes], 0, 0),
                Err(NoCounter::Data { bytes })
            );
        }
        assert_eq!(
            value_of(&1_i64.to_be_bytes(), 0x1000_1234_5678, 0),
            Err(NoCounter::NotPersistent)
        );
        assert_eq!(
            value_of(&[], 0, 1),
            Err(NoCounter::NotPersistent),
            "a directory"
        );
    }
}
