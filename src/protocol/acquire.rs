//! The part of an attempt in one session, as a state machine.
//!
//! A lock is a directory. Each contender creates an ephemeral sequential node in it, whose number
//! is its place in the queue, and the contender whose node is first holds the lock.
//!
//! 1. **Create.** [`Acquiring`] creates the own node and lists the directory, with one flight for
//!    both. A missing directory is created once, and then the node (docs/protocol.md#directories).
//! 2. **Judge.** The list shows the place of the own node. The first node is granted the lock. Any
//!    other waits for the nearest node before it that excludes it, its *predecessor*, or fails if
//!    the attempt is a try.
//! 3. **Wait.** The attempt watches the predecessor on the servers, or waits in memory for a node
//!    of the same session (docs/protocol.md#watch-one-node). When the predecessor changes, the
//!    attempt lists again and continues with step 2.
//!
//! Three events interrupt these steps. A create without a reply may have happened: its node is
//! looked for in each list by the id in its name, and its Stat has to show that this session owns
//! it. An own node that is missing from a list was deleted by another process: the attempt creates
//! another, at the end of the queue. A request that fails is repeated after a pause, from the step
//! that [`AfterPause`] names, until the retry policy is exhausted.
//!
//! The [attempt](crate::engine::attempts::run) carries out each [`AcquireStep`] and returns its
//! [`AcquireEvent`], one at a time, until the step is [`AcquireStep::Finish`]. All decisions about
//! unknown outcomes are made here.
//!
//! # Invariants
//! 1. A grant needs a list that contains the attempt's own node and no node before it that it has
//!    to wait for, or a transaction that deleted the holder's node, directly before the own one,
//!    while that existed, or the reply to a create whose number follows what is known to be gone
//!    (docs/protocol.md#succession). Where the grant then has to wait because the session is in
//!    doubt, it needs another list after that (docs/protocol.md#suspended). A list without the own
//!    node grants nothing and proves nothing: the create may still be under way
//!    (docs/protocol.md#grant).
//! 2. Only a definite answer of the server means that a create did not happen. Everything else
//!    leaves the id of an *unknown create*, whose node may exist, or may come to exist later
//!    (docs/protocol.md#unknown-outcome).
//! 3. An id belongs to one create request. A repetition has an id of its own, so that a late commit
//!    of the first request can be told from the second (docs/protocol.md#one-id-per-create).
//! 4. Every outcome names all nodes that may be left: nodes that are known to exist by name, nodes
//!    that may exist by id ([`Orphans`]).
//! 5. Each repetition is counted against the retry policy (docs/protocol.md#bounded-retries),
//!    except those that follow from a definite answer: the directory was missing for the first
//!    time, or the predecessor is gone.

use std::sync::Arc;

use crate::protocol::failure::{Answer, Failure, FailureKind};
use crate::protocol::local_queue::Neighbour;
use crate::protocol::node_name::{Kind, Naming};
use crate::protocol::queue::{Listing, Position, Queue, Unusable};

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AcquireStep {
    /// Carry out a request.
    Do(AcquireRequest),
    /// Pause as the retry policy says for repetition number `failures` (from 0). Then `Retry`, or
    /// `GiveUp` if it is exhausted. `NoNode` if another process deleted the own node or the
    /// directory.
    Pause { failures: u32, why: FailureKind },
    /// The attempt has ended in this session.
    Finish(AcquireOutcome),
}

/// A request to the server, or a wait in memory.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AcquireRequest {
    /// Create a node with a fresh id, and list the directory. Both are sent before either is
    /// answered; the list is left out if the reply to the create may make it needless. Unlike all
    /// other requests, this one must not be dropped: its event has to be awaited and returned.
    Create,
    /// Create the directory and those above it.
    MakeParents,
    /// List the directory.
    List,
    /// Read the Stat of the own node `name`, which is known from a list only.
    Inspect { name: String },
    /// Watch `predecessor` on the servers, and wait until it changes.
    Watch { predecessor: String },
    /// Wait in memory for a node of the same session.
    WaitFor { before: Neighbour },
}

/// The result of a step.
#[derive(Debug)]
pub(crate) enum AcquireEvent {
    /// The result of [`AcquireRequest::Create`]: the id of the create, and the answers to the
    /// create and to the list, which are independent of each other. Without a list, `standing` is
    /// what is certain of the new node.
    Created {
        id: String,
        create: Answer<OwnNode>,
        list: Option<Answer<Listing>>,
        standing: Standing,
    },
    /// The answer to [`AcquireRequest::MakeParents`].
    ParentsMade(Answer<()>),
    /// The answer to [`AcquireRequest::List`].
    Listed(Answer<Listing>),
    /// The answer to [`AcquireRequest::Inspect`].
    Inspected(Answer<OwnNode>),
    /// The wait is over, and the predecessor may have changed, or be gone. Ends
    /// [`AcquireRequest::Watch`] and [`AcquireRequest::WaitFor`].
    WaitOver,
    /// The predecessor held the lock and was directly before the own node, and one transaction has
    /// deleted it while the own node existed. Ends [`AcquireRequest::WaitFor`].
    HandedOver,
    /// The node of [`AcquireRequest::WaitFor`] is gone; it waited for this `predecessor` of another
    /// session.
    Inherited { predecessor: String },
    /// The list that granted the lock to this node is old, or was sent before a doubt whether the
    /// servers keep the session. Another process may have deleted the node since.
    Outdated(OwnNode),
    /// The lock was granted to this node, and another process has deleted it. `waited` is whether
    /// the node has outlasted a wait since the grant.
    Deleted { node: OwnNode, waited: bool },
    /// The watch of [`AcquireRequest::Watch`] could not be set.
    WatchFailed(Failure),
    /// The pause of [`AcquireStep::Pause`] is over.
    Retry,
    /// The retry policy is exhausted, so [`AcquireStep::Pause`] does not pause.
    GiveUp,
}

impl AcquireEvent {
    /// Returns whether the predecessor may have changed, or is gone.
    pub(crate) fn is_change(&self) -> bool {
        match self {
            Self::WaitOver => true,
            // The predecessor was deleted before the watch was set.
            Self::WatchFailed(failure) => failure.kind == FailureKind::NoNode,
            _ => false,
        }
    }
}

/// A node of this attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnNode {
    pub(crate) name: String,
    /// The zxid of its creation; `None` if the node is known from a list only, or the server did
    /// not report the zxid (ZOOKEEPER-4026).
    pub(crate) czxid: Option<i64>,
}

/// The certain facts about a new node without a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Unknown,
    /// The new node is behind this nearest node of the same session.
    Behind(Neighbour),
    /// No node that the new node has to wait for is before it, or can come to be.
    First,
}

impl AcquireStep {
    /// Returns the nodes that only this step knows of, when it is not carried out.
    pub(crate) fn into_orphans(self) -> Orphans {
        match self {
            // The state machine has given the node of a grant to this step, so nothing else would
            // delete the node of a grant that no caller takes.
            Self::Finish(AcquireOutcome::Granted { name, also, .. }) => {
                let mut all = Orphans {
                    names: vec![name],
                    ids: Vec::new(),
                };
                all.extend(also);
                all
            }
            Self::Finish(AcquireOutcome::NotGranted { orphans, .. }) => orphans,
            // The nodes and ids of an attempt that continues are in the state machine.
            Self::Do(_) | Self::Pause { .. } => Orphans::default(),
        }
    }
}

/// How the attempt ended in this session.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AcquireOutcome {
    /// The lock is granted, by this node. `also` has the orphans to delete.
    Granted {
        name: String,
        czxid: i64,
        also: Orphans,
    },
    /// The lock is not granted.
    NotGranted { why: NoGrant, orphans: Orphans },
}

/// Why the attempt ended without a grant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum NoGrant {
    /// Another contender is ahead, and this attempt does not wait.
    WouldBlock,
    /// The servers refused the last request.
    Refused(Failure),
    /// The retry policy is exhausted. Has the last failure.
    KeptFailing(Failure),
    /// The retry policy is exhausted: other processes deleted the own node this many times in a
    /// row.
    NodeDeleted { times: u32 },
    /// The directory is unusable.
    Unusable(Unusable),
    /// The session can watch no more.
    TooManyWatches,
    /// The session is over.
    SessionGone,
}

impl NoGrant {
    /// Returns why an attempt ends at once after this failure of a request; `None` if it is
    /// repeated.
    pub(crate) fn of(failure: &Failure) -> Option<Self> {
        match failure.kind {
            FailureKind::SessionGone => Some(Self::SessionGone),
            FailureKind::Refused(_) => Some(Self::Refused(failure.clone())),
            // A pause would not help: the watches of a session belong to waiters, revocations,
            // persistent nodes, groups and directories, which need them for a time without a bound.
            FailureKind::TooManyWatches => Some(Self::TooManyWatches),
            FailureKind::NoNode | FailureKind::NotNow | FailureKind::Unknown => None,
        }
    }
}

/// The nodes that an attempt may leave in the directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Orphans {
    /// The names of those that exist.
    pub(crate) names: Vec<String>,
    /// The ids of creates whose outcome is unknown.
    pub(crate) ids: Vec<String>,
}

impl Orphans {
    pub(crate) fn extend(&mut self, other: Self) {
        self.names.extend(other.names);
        self.ids.extend(other.ids);
    }
}

/// Whether an attempt waits for contenders ahead, or fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum IfBusy {
    Wait,
    Fail,
}

/// How an attempt waits for a predecessor of its own session.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OwnPredecessor {
    Watched,
    /// The attempt waits for the nearest own node, even if nodes of other sessions are between: the
    /// attempt cannot be first before that node is gone.
    InMemory,
}

/// The state machine; see the [module](self).
pub(crate) struct Acquiring {
    naming: Naming,
    kind: Kind,
    if_busy: IfBusy,
    own_predecessor: OwnPredecessor,
    /// The node by which the attempt queues; `None` until it is known.
    node: Option<OwnNode>,
    /// Creates whose outcome is unknown, oldest first.
    unknown_creates: Vec<String>,
    /// Further nodes of this attempt, to be deleted at once: one of them could be before the node
    /// by which the attempt queues, which would then wait for itself.
    orphans: Vec<String>,
    after_pause: AfterPause,
    /// The last failure of a request.
    last_failure: Option<Failure>,
    /// Whether the missing directory has been created once: if it is missing again, that counts as
    /// a failure.
    made_parents: bool,
    /// How many repetitions in a row have failed.
    failures: u32,
    /// How often in a row other processes deleted the own node.
    deleted: u32,
    /// Whether a wait has ended since the last list.
    has_waited: bool,
    /// The list from which the next step follows, for the attempt that carries it out.
    list: Option<Arc<Queue>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum AfterPause {
    /// Repeat a create that failed, or whose outcome is unknown.
    Create,
    /// Create a node in place of one that another process deleted.
    CreateAnother,
    Parents,
    Look,
}

impl Acquiring {
    /// Returns the state machine and its first step.
    pub(crate) fn new(
        naming: Naming,
        kind: Kind,
        if_busy: IfBusy,
        own_predecessor: OwnPredecessor,
    ) -> (Self, AcquireStep) {
        // The first request is a create even for a try, whose caller has read the queue before
        // (docs/protocol.md#try-lock).
        let contender = Self {
            naming,
            kind,
            if_busy,
            node: None,
            unknown_creates: Vec::new(),
            orphans: Vec::new(),
            own_predecessor,
            after_pause: AfterPause::Create,
            last_failure: None,
            made_parents: false,
            failures: 0,
            deleted: 0,
            has_waited: false,
            list: None,
        };
        (contender, AcquireStep::Do(AcquireRequest::Create))
    }

    /// Makes the attempt wait for contenders ahead from now on.
    pub(crate) fn wait_if_busy(&mut self) {
        self.if_busy = IfBusy::Wait;
    }

    /// Returns how often in a row other processes deleted the own node; zero unless another is to
    /// be created for that.
    pub(crate) fn times_deleted(&self) -> u32 {
        if self.after_pause == AfterPause::CreateAnother {
            self.deleted
        } else {
            0
        }
    }

    /// Returns the name of the node by which the attempt queues; `None` until it is known to be its
    /// own.
    pub(crate) fn queued_as(&self) -> Option<&str> {
        // The czxid comes with the Stat, which also shows the owner of the node.
        self.node
            .as_ref()
            .filter(|node| node.czxid.is_some())
            .map(|node| &*node.name)
    }

    /// Takes the list from which the last step followed. The state does not keep the list, because
    /// many attempts wait, and a list is long.
    pub(crate) fn take_list(&mut self) -> Option<Arc<Queue>> {
        self.list.take()
    }

    /// Returns the ids of the creates whose outcome is unknown.
    pub(crate) fn unknown_creates(&self) -> &[String] {
        &self.unknown_creates
    }

    /// Takes the nodes to be deleted at once. To be called after each step.
    pub(crate) fn take_orphans(&mut self) -> Orphans {
        Orphans {
            names: std::mem::take(&mut self.orphans),
            ids: Vec::new(),
        }
    }

    /// Handles the result of the last step. Returns the next step. `waitable` returns whether the
    /// node of a name is one of this session that can be waited for in memory.
    pub(crate) fn on(
        &mut self,
        event: AcquireEvent,
        waitable: &dyn Fn(&str) -> bool,
    ) -> AcquireStep {
        match event {
            AcquireEvent::Created {
                id,
                create,
                list,
                standing,
            } => self.created(id, create, list, standing, waitable),
            // The create that found no directory was refused, and left nothing to look for.
            AcquireEvent::ParentsMade(Answer::Is(())) => AcquireStep::Do(AcquireRequest::Create),
            // NoNode is a failure like others: a directory above, just created or found, has been
            // removed, as the servers remove empty containers (docs/protocol.md#directories).
            AcquireEvent::ParentsMade(Answer::No(failure)) => {
                self.failed(failure, AfterPause::Parents)
            }
            AcquireEvent::Listed(Answer::Is(listing)) => self.judge(listing, waitable),
            AcquireEvent::Listed(Answer::No(failure)) => match (failure.kind, &self.node) {
                // Without an own node, the list was sent to show the outcome of a create without an
                // answer. The missing directory shows that the node does not exist yet; the lost
                // answer is the failure that counts.
                (FailureKind::NoNode, None) => self.pause(FailureKind::Unknown, AfterPause::Create),
                // ZooKeeper deletes only empty directories, so the own node was deleted before.
                (FailureKind::NoNode, Some(_)) => self.own_node_deleted(),
                _ => self.failed(failure, AfterPause::Look),
            },
            // The server sent an invalid Stat, so the owner is still unknown. The repetition is
            // counted, because the list that follows leads to this request again.
            AcquireEvent::Inspected(Answer::Is(OwnNode { czxid: None, .. })) => {
                self.failed(FailureKind::Unknown.into(), AfterPause::Look)
            }
            // The node is known to be the attempt's own, but not its place: others may have left
            // the queue since the last list, or another process may have deleted the node.
            AcquireEvent::Inspected(Answer::Is(node)) | AcquireEvent::Outdated(node) => {
                self.node = Some(node);
                AcquireStep::Do(AcquireRequest::List)
            }
            // The grant had taken the node out of the state. The node is put back, so that the
            // next step passes it to cleanup like any other.
            AcquireEvent::Deleted { node, waited } => {
                self.node = Some(node);
                self.deleted = if waited { 0 } else { self.deleted };
                self.own_node_deleted()
            }
            AcquireEvent::Inspected(Answer::No(failure)) => match failure.kind {
                // The node has existed in this session, so another process has deleted it since.
                FailureKind::NoNode => self.own_node_deleted(),
                // The owner is still unknown. The list that follows leads to this request again.
                _ => self.failed(failure, AfterPause::Look),
            },
            // The holder was first, no node can be between it and the own node, and the transaction
            // checked that the own node existed (docs/protocol.md#hand-over). So no list is needed.
            AcquireEvent::HandedOver => {
                (self.failures, self.deleted) = (0, 0);
                self.first()
            }
            // The nearest own node was behind `predecessor`, and so is this node. If `predecessor`
            // is gone too, the watch fails with NoNode, and a list follows.
            AcquireEvent::Inherited { predecessor } => {
                AcquireStep::Do(AcquireRequest::Watch { predecessor })
            }
            // The node that was waited for may be gone. The event may also be a change of its data,
            // a deletion that the servers refuse, or the end of the time that a try for permits
            // waits. Only a list distinguishes these cases.
            AcquireEvent::WaitOver => {
                // The wait itself succeeded, so the failures before it are not in a row with later
                // ones.
                self.failures = 0;
                self.has_waited = true;
                AcquireStep::Do(AcquireRequest::List)
            }
            AcquireEvent::WatchFailed(failure) => match failure.kind {
                // The predecessor was deleted before the wait began. The answer is definite, so it
                // is not counted as a failure. But the attempt has not waited, so neither counter
                // is reset. Repetitions end, because each list has fewer contenders ahead of the
                // own node.
                FailureKind::NoNode => AcquireStep::Do(AcquireRequest::List),
                // A list comes before another watch, because the predecessor may have changed in
                // the pause.
                _ => self.failed(failure, AfterPause::Look),
            },
            AcquireEvent::Retry => match self.after_pause {
                AfterPause::Create | AfterPause::CreateAnother => {
                    AcquireStep::Do(AcquireRequest::Create)
                }
                AfterPause::Parents => AcquireStep::Do(AcquireRequest::MakeParents),
                AfterPause::Look => AcquireStep::Do(AcquireRequest::List),
            },
            AcquireEvent::GiveUp => self.give_up(),
        }
    }

    /// Ends the attempt in this session. If a create is under way, its event has to be handled
    /// first. Returns the orphans, but for those of a step that is not carried out
    /// ([`AcquireStep::into_orphans`]).
    pub(crate) fn abandon(&mut self) -> Orphans {
        // The own node comes last: the error of a try finds it there.
        let mut all = Orphans {
            names: std::mem::take(&mut self.orphans),
            ids: std::mem::take(&mut self.unknown_creates),
        };
        all.names.extend(self.node.take().map(|node| node.name));
        all
    }

    /// The same after `step`, which is not carried out.
    #[cfg(test)]
    pub(crate) fn abandon_after(mut self, step: AcquireStep) -> Orphans {
        let mut all = self.abandon();
        all.extend(step.into_orphans());
        all
    }

    fn created(
        &mut self,
        id: String,
        create: Answer<OwnNode>,
        list: Option<Answer<Listing>>,
        standing: Standing,
        waitable: &dyn Fn(&str) -> bool,
    ) -> AcquireStep {
        match create {
            Answer::Is(node) => {
                if let Some(earlier) = self.node.replace(node) {
                    // A create is sent only while there is no node, so an earlier node is not
                    // expected; if there were one, nothing else would delete it.
                    self.orphans.push(earlier.name);
                }
            }
            Answer::No(failure) => return self.not_created(id, failure, list, waitable),
        }
        match (list, standing) {
            // The servers answer the requests of a session in order, so a list that was sent
            // behind the create shows the node, unless another process has deleted it.
            (Some(Answer::Is(listing)), _) => self.judge(listing, waitable),
            (Some(Answer::No(failure)), _) => match failure.kind {
                // The create succeeded, so the directory existed, and was deleted after the node.
                FailureKind::NoNode => self.own_node_deleted(),
                _ => self.failed(failure, AfterPause::Look),
            },
            // A node of an unknown create needs no list here: it is behind this node, or gone
            // (docs/protocol.md#succession).
            (None, Standing::First) => self.first(),
            // The wait begins without a list. Unknown creates need a list, which shows their nodes,
            // and so does a try, which has to be sure that the lock is held.
            (None, Standing::Behind(before)) if self.may_wait_without_list() => {
                AcquireStep::Do(AcquireRequest::WaitFor { before })
            }
            // Without a proof by the number, as when other contenders have come in between, only a
            // list shows the place of the node.
            (None, _) => AcquireStep::Do(AcquireRequest::List),
        }
    }

    fn not_created(
        &mut self,
        id: String,
        failure: Failure,
        list: Option<Answer<Listing>>,
        waitable: &dyn Fn(&str) -> bool,
    ) -> AcquireStep {
        match failure.kind {
            FailureKind::Unknown => {
                // The node may exist, or may come to exist. The id is kept until the outcome is
                // known, because a forgotten node would block the lock for the life of the session.
                self.unknown_creates.push(id);
                // The list that was sent with the create may show its node. A list without the node
                // proves nothing: the answer to the next create decides about this one
                // (docs/protocol.md#write-barrier).
                match list {
                    // The failure is kept for the error: a list that shows nothing of the create
                    // is no answer to it.
                    None => {
                        self.last_failure = Some(failure);
                        AcquireStep::Do(AcquireRequest::List)
                    }
                    Some(Answer::Is(listing)) if self.decides_create(&listing) => {
                        self.judge(listing, waitable)
                    }
                    // If the create was committed, the servers delete its node with the session.
                    Some(Answer::No(Failure {
                        kind: FailureKind::SessionGone,
                        ..
                    })) => self.end(NoGrant::SessionGone),
                    // The repetition has a fresh id, so a late commit of this create is not taken
                    // for the repetition.
                    Some(_) => self.failed(failure, AfterPause::Create),
                }
            }
            // A new lock has no directory yet, so this answer is usual.
            FailureKind::NoNode if !self.made_parents => {
                self.made_parents = true;
                AcquireStep::Do(AcquireRequest::MakeParents)
            }
            // The directory was removed between its creation and this create.
            FailureKind::NoNode => self.failed(failure, AfterPause::Parents),
            // The answer is definite: no node was created, so the id is forgotten.
            _ => self.failed(failure, AfterPause::Create),
        }
    }

    /// Returns whether the attempt may wait for a contender ahead before it has listed: it has a
    /// node, no unknown creates, and is no try.
    fn may_wait_without_list(&self) -> bool {
        self.if_busy == IfBusy::Wait
            && self.unknown_creates.is_empty()
            && self.queued_as().is_some()
    }

    /// Returns whether a list decides an unknown create: it shows the node of one, or an unusable
    /// directory.
    fn decides_create(&self, listing: &Listing) -> bool {
        // An unusable directory ends the attempt, with or without a node there.
        let Ok(queue) = listing else { return true };
        self.unknown_creates
            .iter()
            .any(|id| queue.find(&self.naming.prefix(id, self.kind)).is_some())
    }

    /// Decides the next step by a list of the directory.
    fn judge(&mut self, listing: Listing, waitable: &dyn Fn(&str) -> bool) -> AcquireStep {
        // The directory is checked first, because no position means anything once the numbers have
        // wrapped.
        let queue = match listing {
            Ok(queue) => queue,
            Err(unusable) => return self.end(NoGrant::Unusable(unusable)),
        };
        // The list may show that unknown creates have happened. The attempt queues by the first of
        // its nodes, which is ahead of the others; the others are orphans, which are deleted now
        // (docs/protocol.md#extra-node).
        let (naming, kind) = (self.naming, self.kind);
        let mut found = Vec::new();
        self.unknown_creates
            .retain(|id| match queue.find(&naming.prefix(id, kind)) {
                Some(name) => {
                    // A list shows a name only. The Stat has to show that this session owns the
                    // node, and the czxid for the token (docs/protocol.md#owner-check).
                    found.push(OwnNode {
                        name: name.to_owned(),
                        czxid: None,
                    });
                    false
                }
                None => true,
            });
        if !found.is_empty() {
            found.extend(self.node.take());
            // A node that the list does not show was deleted by another process, and is sorted
            // last: the attempt then queues by a node that exists.
            found.sort_by_key(|node| queue.rank(&node.name).unwrap_or(usize::MAX));
            self.node = Some(found.remove(0));
            self.orphans.extend(found.into_iter().map(|node| node.name));
        }
        // Without a node, the creates of the attempt are still undecided. The next create is
        // answered behind them, so the list after it shows their outcome.
        let Some(node) = &self.node else {
            return self.pause(FailureKind::Unknown, AfterPause::Create);
        };
        // The servers have created the node before they read this list, and none shows this session
        // an older state (docs/protocol.md#read-under-lock). So another process has deleted it.
        let Some(position) = queue.position(&node.name) else {
            return self.own_node_deleted();
        };
        // Contenders of another recipe queue in another order, and do not wait for this node. A
        // contender that came later does not end the wait (docs/protocol.md#mixed-recipes).
        if let Err(unusable) = queue.usable_by(&node.name) {
            return self.end(NoGrant::Unusable(unusable));
        }
        if std::mem::take(&mut self.has_waited) {
            // The node has outlasted a wait, so another process does not delete each node of this
            // attempt, and the count of deletions in a row begins again.
            self.deleted = 0;
        }
        match position {
            // The list shows the name only. If a server has replaced this session, the node belongs
            // to the other one, and would end with it. So neither a grant nor a wait follows before
            // the Stat shows the owner (docs/protocol.md#owner-check).
            _ if node.czxid.is_none() => AcquireStep::Do(AcquireRequest::Inspect {
                name: node.name.clone(),
            }),
            Position::First => self.first(),
            // A try does not wait, so its node becomes an orphan. The list names the contender
            // ahead, for the error.
            Position::Behind { .. } if self.if_busy == IfBusy::Fail => {
                self.list = Some(queue);
                self.end(NoGrant::WouldBlock)
            }
            Position::Behind { predecessor } => {
                let own = match self.own_predecessor {
                    OwnPredecessor::Watched => None,
                    OwnPredecessor::InMemory => queue
                        .before(&node.name)
                        .enumerate()
                        .find(|(_, name)| waitable(name)),
                };
                // Only if nothing is between the two can the lock be handed over to this node.
                let request = match own {
                    Some((between, name)) => AcquireRequest::WaitFor {
                        before: Neighbour {
                            name: name.into(),
                            is_adjacent: between == 0,
                        },
                    },
                    None => AcquireRequest::Watch {
                        predecessor: predecessor.to_owned(),
                    },
                };
                self.list = Some(queue);
                AcquireStep::Do(request)
            }
        }
    }

    /// Grants the lock, because the own node is first. The token is the czxid of the node, so a
    /// server that did not report it is asked for the Stat (docs/protocol.md#fencing-token).
    fn first(&mut self) -> AcquireStep {
        match self.node.take() {
            Some(OwnNode {
                name,
                czxid: Some(czxid),
            }) => AcquireStep::Finish(AcquireOutcome::Granted {
                name,
                czxid,
                also: self.abandon(),
            }),
            Some(OwnNode { name, czxid: None }) => {
                self.node = Some(OwnNode {
                    name: name.clone(),
                    czxid: None,
                });
                AcquireStep::Do(AcquireRequest::Inspect { name })
            }
            // The node is never missing here, because each caller of this function has checked it.
            // Another create would grant nothing by itself.
            None => self.pause(FailureKind::Unknown, AfterPause::Create),
        }
    }

    /// Starts again at the end of the queue, as Curator does, because another process has deleted
    /// the own node (docs/protocol.md#waiter-without-node).
    fn own_node_deleted(&mut self) -> AcquireStep {
        // The wait that has just ended was that of the deleted node, so it does not count for the
        // next one.
        self.has_waited = false;
        // Deletions have a separate count, because each wait resets that of the failures. With one
        // count, a process that deletes each node of this attempt while it waits would keep the
        // attempt busy without a bound.
        self.deleted = self.deleted.saturating_add(1);
        // The node goes to cleanup as well, whose deletion makes sure that it is gone.
        self.orphans.extend(self.node.take().map(|node| node.name));
        self.after_pause = AfterPause::CreateAnother;
        AcquireStep::Pause {
            failures: self.deleted - 1,
            why: FailureKind::NoNode,
        }
    }

    fn give_up(&mut self) -> AcquireStep {
        let last = self.last_failure.take();
        self.end(match self.after_pause {
            AfterPause::CreateAnother => NoGrant::NodeDeleted {
                times: self.deleted,
            },
            _ => NoGrant::KeptFailing(last.unwrap_or_else(|| FailureKind::Unknown.into())),
        })
    }

    fn failed(&mut self, failure: Failure, then: AfterPause) -> AcquireStep {
        if let Some(why) = NoGrant::of(&failure) {
            return self.end(why);
        }
        let kind = failure.kind;
        self.last_failure = Some(failure);
        self.pause(kind, then)
    }

    fn pause(&mut self, why: FailureKind, then: AfterPause) -> AcquireStep {
        self.after_pause = then;
        // Only a wait that ends resets the count, not a request that succeeds: otherwise a watch
        // that cannot be set would be repeated without a bound, because each list in between
        // succeeds.
        let failures = self.failures;
        self.failures = failures.saturating_add(1);
        AcquireStep::Pause { failures, why }
    }

    fn end(&mut self, why: NoGrant) -> AcquireStep {
        AcquireStep::Finish(AcquireOutcome::NotGranted {
            why,
            orphans: self.abandon(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Cause;
    use crate::protocol::failure::Refusal;
    use crate::protocol::node_name::{Dialect, Family};

    const MUTEX: Naming = Naming {
        family: Family::Exclusive,
        dialect: Dialect::Curator,
    };
    const REFUSED: FailureKind = FailureKind::Refused(Refusal::Other);
    const A: &str = "aaaa";
    const B: &str = "bbbb";

    impl Acquiring {
        /// Handles an event where no node of the session can be waited for in memory.
        fn step(&mut self, event: AcquireEvent) -> AcquireStep {
            self.on(event, &|_| false)
        }
    }

    fn name(id: &str, sequence: u32) -> String {
        format!("_c_{id}-lock-{sequence:010}")
    }

    fn node(id: &str, sequence: u32) -> OwnNode {
        OwnNode {
            name: name(id, sequence),
            czxid: Some(i64::from(sequence) + 100),
        }
    }

    fn created(id: &str, create: Answer<OwnNode>, list: Answer<Listing>) -> AcquireEvent {
        AcquireEvent::Created {
            id: id.to_owned(),
            create,
            list: Some(list),
            standing: Standing::Unknown,
        }
    }

    fn list(names: &[String]) -> Answer<Listing> {
        Answer::Is(Queue::read(names.to_vec(), MUTEX))
    }

    fn waiting() -> Acquiring {
        let (contender, first) = Acquiring::new(
            MUTEX,
            Kind::Exclusive,
            IfBusy::Wait,
            OwnPredecessor::Watched,
        );
        assert_eq!(first, AcquireStep::Do(AcquireRequest::Create));
        contender
    }

    fn granted(id: &str, sequence: u32) -> AcquireStep {
        let OwnNode { name, czxid } = node(id, sequence);
        AcquireStep::Finish(AcquireOutcome::Granted {
            name,
            czxid: czxid.unwrap(),
            also: Orphans::default(),
        })
    }

    fn ended(why: NoGrant, names: &[String], ids: &[&str]) -> AcquireStep {
        let ids = ids.iter().map(ToString::to_string).collect();
        AcquireStep::Finish(AcquireOutcome::NotGranted {
            why,
            orphans: Orphans {
                names: names.to_vec(),
                ids,
            },
        })
    }

    fn request_again(failures: u32) -> AcquireStep {
        AcquireStep::Pause {
            failures,
            why: FailureKind::Unknown,
        }
    }

    fn deleted(failures: u32) -> AcquireStep {
        AcquireStep::Pause {
            failures,
            why: FailureKind::NoNode,
        }
    }

    #[test]
    fn first_flight_grants_free_lock() {
        let mut contender = waiting();
        let step = contender.step(created(
            A,
            Answer::Is(node(A, 3)),
            list(&["foreign".to_owned(), name(A, 3)]),
        ));
        assert_eq!(step, granted(A, 3));
    }

    #[test]
    fn missing_predecessor_counts_as_changed() {
        let failed = |kind: FailureKind| AcquireEvent::WatchFailed(kind.into());
        for changed in [AcquireEvent::WaitOver, failed(FailureKind::NoNode)] {
            assert!(changed.is_change(), "{changed:?}");
        }
        for other in [
            failed(FailureKind::Unknown),
            failed(REFUSED),
            AcquireEvent::Retry,
            AcquireEvent::HandedOver,
        ] {
            assert!(!other.is_change(), "{other:?}");
        }
    }

    #[test]
    fn patient_try_waits_for_predecessor() {
        let (mut contender, _) = Acquiring::new(
            MUTEX,
            Kind::Exclusive,
            IfBusy::Fail,
            OwnPredecessor::Watched,
        );
        contender.wait_if_busy();
        let step = contender.step(created(
            A,
            Answer::Is(node(A, 3)),
            list(&[name(A, 3), name(B, 2)]),
        ));
        assert_eq!(
            step,
            AcquireStep::Do(AcquireRequest::Watch {
                predecessor: name(B, 2)
            })
        );
    }

    /// The failures before a wait that ended with a hand-over are not in a row with those after it.
    // Shows: suspended
    #[test]
    fn hand_over_resets_failures() {
        let mut contender = in_memory(IfBusy::Wait);
        let waitable = |name: &str| name.contains("ours");
        let lost = || Answer::no(FailureKind::Unknown);
        assert_eq!(
            contender.on(created(A, Answer::Is(node(A, 3)), lost()), &waitable),
            request_again(0)
        );
        assert_eq!(
            contender.on(AcquireEvent::Retry, &waitable),
            AcquireStep::Do(AcquireRequest::List)
        );
        let step = contender.on(
            AcquireEvent::Listed(list(&[name(A, 3), name("ours", 2)])),
            &waitable,
        );
        assert_eq!(step, wait_for(&name("ours", 2), true));
        assert_eq!(contender.step(AcquireEvent::HandedOver), granted(A, 3));
        let step = contender.step(AcquireEvent::Outdated(node(A, 3)));
        assert_eq!(step, AcquireStep::Do(AcquireRequest::List));
        assert_eq!(
            contender.step(AcquireEvent::Listed(lost())),
            request_again(0)
        );
    }

    /// The node may have been deleted during the doubt.
    // Shows: suspended
    #[test]
    fn doubted_contender_needs_another_list() {
        let mut contender = waiting();
        assert_eq!(
            contender.step(created(A, Answer::Is(node(A, 3)), list(&[name(A, 3)]))),
            granted(A, 3)
        );
        let doubt = || AcquireEvent::Outdated(node(A, 3));
        assert_eq!(
            contender.step(doubt()),
            AcquireStep::Do(AcquireRequest::List)
        );
        assert_eq!(
            contender.step(AcquireEvent::Listed(list(&[name(A, 3)]))),
            granted(A, 3)
        );
        assert_eq!(
            contender.step(doubt()),
            AcquireStep::Do(AcquireRequest::List)
        );
        let step = contender.step(AcquireEvent::Listed(Answer::no(FailureKind::NoNode)));
        assert_eq!(step, deleted(0));
        assert_eq!(
            contender.step(AcquireEvent::Retry),
            AcquireStep::Do(AcquireRequest::Create)
        );
    }

    /// The contender's own node may be gone too.
    // Shows: watch-one-node
    #[test]
    fn only_predecessor_gone_needs_a_look() {
        let mut contender = waiting();
        let step = contender.step(created(
            A,
            Answer::Is(node(A, 3)),
            list(&[name(A, 3), name(B, 2)]),
        ));
        assert_eq!(
            step,
            AcquireStep::Do(AcquireRequest::Watch {
                predecessor: name(B, 2)
            })
        );
        assert_eq!(
            contender.step(AcquireEvent::WaitOver),
            AcquireStep::Do(AcquireRequest::List)
        );
        assert_eq!(
            contender.step(AcquireEvent::Listed(list(&[name(A, 3)]))),
            granted(A, 3)
        );
    }

    fn in_memory(if_busy: IfBusy) -> Acquiring {
        Acquiring::new(MUTEX, Kind::Exclusive, if_busy, OwnPredecessor::InMemory).0
    }

    fn wait_for(name: &str, is_adjacent: bool) -> AcquireStep {
        AcquireStep::Do(AcquireRequest::WaitFor {
            before: Neighbour {
                name: name.into(),
                is_adjacent,
            },
        })
    }

    #[test]
    fn own_predecessor_is_awaited_in_memory() {
        let all = [
            name(A, 5),
            name("theirs", 4),
            name("ours", 3),
            name("ours", 2),
            name("theirs", 1),
        ];
        let waitable = |name: &str| name.contains("ours");
        let mut contender = in_memory(IfBusy::Wait);
        let step = contender.on(created(A, Answer::Is(node(A, 5)), list(&all)), &waitable);
        assert_eq!(step, wait_for(&name("ours", 3), false));
        assert_eq!(
            contender.on(AcquireEvent::WaitOver, &waitable),
            AcquireStep::Do(AcquireRequest::List)
        );
        let step = contender.on(
            AcquireEvent::Listed(list(&[name(A, 5), name("ours", 2)])),
            &waitable,
        );
        assert_eq!(step, wait_for(&name("ours", 2), true));
        let (mut elsewhere, _) = Acquiring::new(
            MUTEX,
            Kind::Exclusive,
            IfBusy::Wait,
            OwnPredecessor::Watched,
        );
        let step = elsewhere.on(created(A, Answer::Is(node(A, 5)), list(&all)), &waitable);
        assert_eq!(
            step,
            AcquireStep::Do(AcquireRequest::Watch {
                predecessor: name("theirs", 4)
            })
        );
    }

    #[test]
    fn handed_over_lock_is_granted() {
        let mut contender = in_memory(IfBusy::Wait);
        let all = [name(A, 3), name(B, 2), name("c", 1)];
        contender.on(created(A, Answer::Is(node(A, 3)), list(&all)), &|_| true);
        assert_eq!(contender.queued_as(), Some(&*name(A, 3)));
        // The predecessor held the lock, so the node before it is gone.
        assert_eq!(contender.step(AcquireEvent::HandedOver), granted(A, 3));
    }

    #[test]
    fn inherited_predecessor_is_watched() {
        let mut contender = in_memory(IfBusy::Wait);
        contender.on(
            created(A, Answer::Is(node(A, 3)), list(&[name(A, 3), name(B, 2)])),
            &|_| true,
        );
        let predecessor = name("c", 1);
        let step = contender.step(AcquireEvent::Inherited {
            predecessor: predecessor.clone(),
        });
        assert_eq!(step, AcquireStep::Do(AcquireRequest::Watch { predecessor }));
        assert_eq!(
            contender.step(AcquireEvent::WatchFailed(FailureKind::NoNode.into())),
            AcquireStep::Do(AcquireRequest::List)
        );
    }

    fn created_behind(create: Answer<OwnNode>, before: Option<&str>) -> AcquireEvent {
        let behind = |name: &str| {
            Standing::Behind(Neighbour {
                name: name.into(),
                is_adjacent: true,
            })
        };
        let standing = before.map_or(Standing::Unknown, behind);
        AcquireEvent::Created {
            id: A.to_owned(),
            create,
            list: None,
            standing,
        }
    }

    #[test]
    fn known_predecessor_needs_no_list() {
        let b = name(B, 2);
        let step = in_memory(IfBusy::Wait).step(created_behind(Answer::Is(node(A, 3)), Some(&b)));
        assert_eq!(step, wait_for(&b, true));
        // Otherwise it does: not known; not to wait; not known to be ours; another create may have
        // happened.
        let list = AcquireStep::Do(AcquireRequest::List);
        assert_eq!(
            in_memory(IfBusy::Wait).step(created_behind(Answer::Is(node(A, 3)), None)),
            list
        );
        assert_eq!(
            in_memory(IfBusy::Fail).step(created_behind(Answer::Is(node(A, 3)), Some(&b))),
            list
        );
        let unsaid = OwnNode {
            name: name(A, 3),
            czxid: None,
        };
        assert_eq!(
            in_memory(IfBusy::Wait).step(created_behind(Answer::Is(unsaid), Some(&b))),
            list
        );
        let mut contender = in_memory(IfBusy::Wait);
        assert_eq!(
            contender.step(created_behind(Answer::no(FailureKind::Unknown), None)),
            list
        );
        assert_eq!(
            contender.step(AcquireEvent::Listed(Answer::no(FailureKind::NoNode))),
            request_again(0)
        );
        assert_eq!(
            contender.step(AcquireEvent::Retry),
            AcquireStep::Do(AcquireRequest::Create)
        );
        assert_eq!(
            contender.step(created_behind(Answer::Is(node(B, 3)), Some(&b))),
            list
        );
    }

    #[test]
    fn reader_waits_for_writers_only() {
        let naming = Naming {
            family: Family::ReadWrite,
            dialect: Dialect::Curator,
        };
        let listed = |names: &[&str]| {
            Answer::Is(Queue::read(
                names.iter().map(ToString::to_string).collect(),
                naming,
            ))
        };
        let own = OwnNode {
            name: "_c_aaaa-__READ__0000000003".to_owned(),
            czxid: Some(103),
        };
        let (mut contender, _) =
            Acquiring::new(naming, Kind::Shared, IfBusy::Wait, OwnPredecessor::Watched);
        let first = "v-__WRIT__0000000001";
        let all = [
            "r-__READ__0000000000",
            first,
            "w-__WRIT__0000000002",
            &own.name,
        ];
        let step = contender.step(created(A, Answer::Is(own.clone()), listed(&all)));
        assert_eq!(
            step,
            AcquireStep::Do(AcquireRequest::Watch {
                predecessor: "w-__WRIT__0000000002".to_owned()
            })
        );
        // The nearest writer may have given up, and the one before it is still there.
        assert_eq!(
            contender.step(AcquireEvent::WaitOver),
            AcquireStep::Do(AcquireRequest::List)
        );
        let step = contender.step(AcquireEvent::Listed(listed(&[first, &own.name])));
        assert_eq!(
            step,
            AcquireStep::Do(AcquireRequest::Watch {
                predecessor: first.to_owned()
            })
        );
        assert_eq!(
            contender.step(AcquireEvent::WaitOver),
            AcquireStep::Do(AcquireRequest::List)
        );
        let step = contender.step(AcquireEvent::Listed(listed(&[
            "r-__READ__0000000000",
            &own.name,
        ])));
        let granted = AcquireOutcome::Granted {
            name: own.name.clone(),
            czxid: 103,
            also: Orphans::default(),
        };
        assert_eq!(step, AcquireStep::Finish(granted));
    }

    // Shows: watch-limit
    #[test]
    fn watch_limit_ends_the_wait() {
        let mut contender = waiting();
        contender.step(created(
            A,
            Answer::Is(node(A, 3)),
            list(&[name(A, 3), name(B, 2)]),
        ));
        let step = contender.step(AcquireEvent::WatchFailed(
            FailureKind::TooManyWatches.into(),
        ));
        assert_eq!(step, ended(NoGrant::TooManyWatches, &[name(A, 3)], &[]));
    }

    #[test]
    fn any_departed_predecessor_needs_a_look() {
        let mut contender = waiting();
        let all = [name(A, 3), name(B, 2), name("c", 1)];
        assert_eq!(
            contender.step(created(A, Answer::Is(node(A, 3)), list(&all))),
            AcquireStep::Do(AcquireRequest::Watch {
                predecessor: name(B, 2)
            })
        );
        // The predecessor gave up; the holder is still there.
        assert_eq!(
            contender.step(AcquireEvent::WaitOver),
            AcquireStep::Do(AcquireRequest::List)
        );
        let left = [name(A, 3), name("c", 1)];
        assert_eq!(
            contender.step(AcquireEvent::Listed(list(&left))),
            AcquireStep::Do(AcquireRequest::Watch {
                predecessor: name("c", 1)
            })
        );
        assert_eq!(
            contender.step(AcquireEvent::WaitOver),
            AcquireStep::Do(AcquireRequest::List),
            "a change of its data is no deletion"
        );
        assert_eq!(
            contender.step(AcquireEvent::Listed(list(&left))),
            AcquireStep::Do(AcquireRequest::Watch {
                predecessor: name("c", 1)
            })
        );
        assert_eq!(
            contender.step(AcquireEvent::WaitOver),
            AcquireStep::Do(AcquireRequest::List)
        );
        assert_eq!(
            contender.step(AcquireEvent::Listed(list(&[name(A, 3)]))),
            granted(A, 3)
        );
    }

    /// The create's reply is lost, the list comes over the new connection and shows no contender
    /// (docs/protocol.md#grant).
    // Shows: grant
    #[test]
    fn list_without_own_node_grants_nothing() {
        let mut contender = waiting();
        let step = contender.step(created(A, Answer::no(FailureKind::Unknown), list(&[])));
        assert_eq!(step, request_again(0));
        assert_eq!(contender.unknown_creates(), [A]);
        assert_eq!(
            contender.step(AcquireEvent::Retry),
            AcquireStep::Do(AcquireRequest::Create)
        );
        // The repetition is the barrier: its list shows whether the first create happened.
        let step = contender.step(created(B, Answer::Is(node(B, 8)), list(&[name(B, 8)])));
        let also = Orphans {
            names: Vec::new(),
            ids: vec![A.to_owned()],
        };
        assert_eq!(
            step,
            AcquireStep::Finish(AcquireOutcome::Granted {
                name: name(B, 8),
                czxid: 108,
                also
            })
        );
    }

    /// Whether the reply to the create, to the list that was sent with it, or to a later request
    /// says so.
    #[test]
    fn missing_own_node_queues_again() {
        let gone = || Answer::no(FailureKind::NoNode);
        let queues_again = |mut contender: Acquiring, event: AcquireEvent| {
            assert_eq!(contender.step(event), deleted(0));
            assert_eq!(
                contender.step(AcquireEvent::GiveUp),
                ended(NoGrant::NodeDeleted { times: 1 }, &[name(A, 3)], &[])
            );
            assert_eq!(
                contender.step(AcquireEvent::Retry),
                AcquireStep::Do(AcquireRequest::Create)
            );
        };
        queues_again(waiting(), created(A, Answer::Is(node(A, 3)), gone()));
        let mut listing = waiting();
        listing.step(created(
            A,
            Answer::Is(node(A, 3)),
            list(&[name(A, 3), name(B, 2)]),
        ));
        assert_eq!(
            listing.step(AcquireEvent::WaitOver),
            AcquireStep::Do(AcquireRequest::List)
        );
        queues_again(listing, AcquireEvent::Listed(gone()));
        let mut inspecting = waiting();
        let step = inspecting.step(created(
            A,
            Answer::no(FailureKind::Unknown),
            list(&[name(A, 3)]),
        ));
        assert_eq!(
            step,
            AcquireStep::Do(AcquireRequest::Inspect { name: name(A, 3) })
        );
        queues_again(
            inspecting,
            AcquireEvent::Inspected(Answer::no(FailureKind::NoNode)),
        );
    }

    /// The repetitions are counted, although each request is answered.
    #[test]
    fn invalid_stats_end_the_attempt() {
        let mut contender = waiting();
        let unsaid = || OwnNode {
            name: name(A, 1),
            czxid: None,
        };
        let inspect = AcquireStep::Do(AcquireRequest::Inspect { name: name(A, 1) });
        contender.step(created(A, Answer::Is(unsaid()), list(&[name(A, 1)])));
        for failures in 0..2 {
            let step = contender.step(AcquireEvent::Inspected(Answer::Is(unsaid())));
            assert_eq!(step, request_again(failures));
            assert_eq!(
                contender.step(AcquireEvent::Retry),
                AcquireStep::Do(AcquireRequest::List)
            );
            let listed = AcquireEvent::Listed(list(&[name(A, 1)]));
            assert_eq!(contender.step(listed), inspect);
        }
        contender.step(AcquireEvent::Inspected(Answer::Is(unsaid())));
        let end = contender.step(AcquireEvent::GiveUp);
        let AcquireStep::Finish(AcquireOutcome::NotGranted { why, .. }) = end else {
            panic!("{end:?}")
        };
        assert!(matches!(why, NoGrant::KeptFailing(_)), "{why:?}");
    }

    /// A list that shows nothing of the create is no answer to it.
    #[test]
    fn failure_of_last_create_is_reported() {
        let mut contender = waiting();
        let cause: Cause = Arc::new(FailureKind::NotNow);
        let failure = Failure {
            kind: FailureKind::Unknown,
            cause: Arc::clone(&cause),
        };
        contender.step(created(A, Answer::No(failure), list(&[])));
        let AcquireStep::Finish(AcquireOutcome::NotGranted {
            why: NoGrant::KeptFailing(failure),
            ..
        }) = contender.step(AcquireEvent::GiveUp)
        else {
            panic!("it ends")
        };
        assert_eq!(failure.cause.to_string(), cause.to_string());
    }

    #[test]
    fn last_steps_list_is_used_once() {
        let mut contender = waiting();
        contender.step(created(
            A,
            Answer::Is(node(A, 3)),
            list(&[name(A, 3), name(B, 2)]),
        ));
        assert_eq!(
            contender
                .take_list()
                .and_then(|list| list.rank(&name(A, 3))),
            Some(1)
        );
        assert!(contender.take_list().is_none());
    }

    // Shows: owner-check
    #[test]
    fn found_node_is_checked_first() {
        let mut contender = waiting();
        let step = contender.step(created(
            A,
            Answer::no(FailureKind::Unknown),
            list(&[name(A, 4)]),
        ));
        assert_eq!(
            step,
            AcquireStep::Do(AcquireRequest::Inspect { name: name(A, 4) })
        );
        assert_eq!(
            contender.step(AcquireEvent::Inspected(Answer::Is(node(A, 4)))),
            AcquireStep::Do(AcquireRequest::List)
        );
        assert_eq!(
            contender.step(AcquireEvent::Listed(list(&[name(A, 4)]))),
            granted(A, 4)
        );
    }

    // Shows: extra-node
    #[test]
    fn older_of_two_nodes_queues() {
        let mut contender = waiting();
        assert_eq!(
            contender.step(created(
                A,
                Answer::no(FailureKind::Unknown),
                Answer::no(FailureKind::Unknown)
            )),
            request_again(0)
        );
        assert_eq!(
            contender.step(AcquireEvent::Retry),
            AcquireStep::Do(AcquireRequest::Create)
        );
        let both = [name(A, 4), name(B, 5)];
        let step = contender.step(created(B, Answer::Is(node(B, 5)), list(&both)));
        assert_eq!(
            step,
            AcquireStep::Do(AcquireRequest::Inspect { name: name(A, 4) })
        );
        assert_eq!(
            contender.step(AcquireEvent::Inspected(Answer::Is(node(A, 4)))),
            AcquireStep::Do(AcquireRequest::List)
        );
        let also = Orphans {
            names: vec![name(B, 5)],
            ids: Vec::new(),
        };
        assert_eq!(
            contender.step(AcquireEvent::Listed(list(&both))),
            AcquireStep::Finish(AcquireOutcome::Granted {
                name: name(A, 4),
                czxid: 104,
                also
            })
        );
    }

    // Shows: fencing-token
    #[test]
    fn node_without_czxid_is_inspected() {
        let mut contender = waiting();
        let unsaid = OwnNode {
            name: name(A, 1),
            czxid: None,
        };
        let step = contender.step(created(A, Answer::Is(unsaid), list(&[name(A, 1)])));
        assert_eq!(
            step,
            AcquireStep::Do(AcquireRequest::Inspect { name: name(A, 1) })
        );
    }

    // Shows: create-and-list
    #[test]
    fn lost_list_is_requested_again() {
        let mut contender = waiting();
        let step = contender.step(created(
            A,
            Answer::Is(node(A, 1)),
            Answer::no(FailureKind::Unknown),
        ));
        assert_eq!(step, request_again(0));
        assert_eq!(
            contender.step(AcquireEvent::Retry),
            AcquireStep::Do(AcquireRequest::List)
        );
        assert_eq!(
            contender.step(AcquireEvent::Listed(Answer::no(FailureKind::Unknown))),
            request_again(1)
        );
    }

    #[test]
    fn missing_parents_follow_the_policy() {
        let mut contender = waiting();
        let no = || {
            created(
                A,
                Answer::no(FailureKind::NoNode),
                Answer::no(FailureKind::NoNode),
            )
        };
        assert_eq!(
            contender.step(no()),
            AcquireStep::Do(AcquireRequest::MakeParents)
        );
        assert_eq!(
            contender.step(AcquireEvent::ParentsMade(Answer::Is(()))),
            AcquireStep::Do(AcquireRequest::Create)
        );
        // The servers have removed the container in between.
        assert_eq!(contender.step(no()), deleted(0));
        assert_eq!(
            contender.step(AcquireEvent::Retry),
            AcquireStep::Do(AcquireRequest::MakeParents)
        );
        assert_eq!(
            contender.step(AcquireEvent::ParentsMade(Answer::no(REFUSED))),
            ended(NoGrant::Refused(REFUSED.into()), &[], &[])
        );
    }

    #[test]
    fn deleted_own_node_queues_again() {
        let mut contender = waiting();
        contender.step(created(
            A,
            Answer::Is(node(A, 3)),
            list(&[name(A, 3), name(B, 2), name("c", 1)]),
        ));
        assert_eq!(contender.times_deleted(), 0);
        assert_eq!(
            contender.step(AcquireEvent::WaitOver),
            AcquireStep::Do(AcquireRequest::List)
        );
        let step = contender.step(AcquireEvent::Listed(list(&[name("c", 1)])));
        assert_eq!(step, deleted(0));
        assert_eq!(
            contender.step(AcquireEvent::Retry),
            AcquireStep::Do(AcquireRequest::Create)
        );
        assert_eq!(contender.times_deleted(), 1);
        // The cleanup deletes the node in case it exists after all.
        assert_eq!(contender.take_orphans().names, [name(A, 3)]);
    }

    /// A wait may be long, and its node be deleted now and then.
    #[test]
    fn good_turn_resets_deletion_count() {
        let mut contender = waiting();
        let queue = |contender: &mut Acquiring, n| {
            let all = [name(A, n), name(B, 2), name("c", 1)];
            let watch = AcquireStep::Do(AcquireRequest::Watch {
                predecessor: name(B, 2),
            });
            assert_eq!(
                contender.step(created(A, Answer::Is(node(A, n)), list(&all))),
                watch
            );
            assert_eq!(
                contender.step(AcquireEvent::WaitOver),
                AcquireStep::Do(AcquireRequest::List)
            );
            all
        };
        let deleted_by_hand = |contender: &mut Acquiring, failures| {
            let step = contender.step(AcquireEvent::Listed(list(&[name(B, 2)])));
            assert_eq!(step, deleted(failures));
            assert_eq!(
                contender.step(AcquireEvent::Retry),
                AcquireStep::Do(AcquireRequest::Create)
            );
        };
        queue(&mut contender, 3);
        deleted_by_hand(&mut contender, 0);
        // Another process deletes each node before it has outlasted a wait, so the retry policy
        // ends the attempt.
        queue(&mut contender, 4);
        deleted_by_hand(&mut contender, 1);
        let all = queue(&mut contender, 5);
        let step = contender.step(AcquireEvent::Listed(list(&all)));
        assert_eq!(
            step,
            AcquireStep::Do(AcquireRequest::Watch {
                predecessor: name(B, 2)
            })
        );
        assert_eq!(
            contender.step(AcquireEvent::WaitOver),
            AcquireStep::Do(AcquireRequest::List)
        );
        deleted_by_hand(&mut contender, 0);
        assert_eq!(contender.times_deleted(), 1);
    }

    #[test]
    fn busy_try_deletes_its_node() {
        let (mut contender, _) = Acquiring::new(
            MUTEX,
            Kind::Exclusive,
            IfBusy::Fail,
            OwnPredecessor::Watched,
        );
        let step = contender.step(created(
            A,
            Answer::Is(node(A, 3)),
            list(&[name(A, 3), name(B, 2)]),
        ));
        assert_eq!(step, ended(NoGrant::WouldBlock, &[name(A, 3)], &[]));
    }

    // Shows: node-owners
    #[test]
    fn abandoned_create_leaves_an_orphan() {
        let abandon = |event| {
            let mut contender = waiting();
            let step = contender.step(event);
            contender.abandon_after(step)
        };
        // Granted in that very moment; waiting; unknown; not created; over.
        let granted = abandon(created(A, Answer::Is(node(A, 3)), list(&[name(A, 3)])));
        assert_eq!(
            granted,
            Orphans {
                names: vec![name(A, 3)],
                ids: Vec::new()
            }
        );
        let waiting = abandon(created(
            A,
            Answer::Is(node(A, 3)),
            list(&[name(A, 3), name(B, 2)]),
        ));
        assert_eq!(
            waiting,
            Orphans {
                names: vec![name(A, 3)],
                ids: Vec::new()
            }
        );
        let unknown = abandon(created(A, Answer::no(FailureKind::Unknown), list(&[])));
        assert_eq!(
            unknown,
            Orphans {
                names: Vec::new(),
                ids: vec![A.to_owned()]
            }
        );
        let refused = abandon(created(
            A,
            Answer::no(FailureKind::NoNode),
            Answer::no(FailureKind::NoNode),
        ));
        assert_eq!(refused, Orphans::default());
        let over = abandon(created(
            A,
            Answer::no(FailureKind::SessionGone),
            Answer::no(FailureKind::SessionGone),
        ));
        assert_eq!(over, Orphans::default());
    }

    /// A watch that cannot be set is counted although every list in between succeeds.
    #[test]
    fn failing_watch_is_bounded() {
        let mut contender = waiting();
        let both = [name(A, 3), name(B, 2)];
        let watch = || {
            AcquireStep::Do(AcquireRequest::Watch {
                predecessor: name(B, 2),
            })
        };
        assert_eq!(
            contender.step(created(A, Answer::Is(node(A, 3)), list(&both))),
            watch()
        );
        for failures in 0..3 {
            let why = FailureKind::NotNow;
            assert_eq!(
                contender.step(AcquireEvent::WatchFailed(FailureKind::NotNow.into())),
                AcquireStep::Pause { failures, why }
            );
            assert_eq!(
                contender.step(AcquireEvent::Retry),
                AcquireStep::Do(AcquireRequest::List)
            );
            assert_eq!(contender.step(AcquireEvent::Listed(list(&both))), watch());
        }
        // A watch was set and fired, so the failures before it do not count.
        assert_eq!(
            contender.step(AcquireEvent::WaitOver),
            AcquireStep::Do(AcquireRequest::List)
        );
        assert_eq!(
            contender.step(AcquireEvent::Listed(Answer::no(FailureKind::Unknown))),
            request_again(0)
        );
    }

    #[test]
    fn unusable_directories_end_the_attempt() {
        for (other, why) in [
            (
                "x-__WRIT__0000000001",
                Unusable::OtherOrder("x-__WRIT__0000000001".to_owned()),
            ),
            ("x-lock--000000001", Unusable::Exhausted),
        ] {
            let mut contender = waiting();
            let both = [name(A, 3), other.to_owned()];
            let step = contender.step(created(A, Answer::Is(node(A, 3)), list(&both)));
            assert_eq!(step, ended(NoGrant::Unusable(why), &[name(A, 3)], &[]));
        }
    }

    #[test]
    fn later_foreign_contender_ends_no_wait() {
        let mut contender = waiting();
        contender.step(created(
            A,
            Answer::Is(node(A, 3)),
            list(&[name(A, 3), name(B, 2), name("c", 1)]),
        ));
        assert_eq!(
            contender.step(AcquireEvent::WaitOver),
            AcquireStep::Do(AcquireRequest::List)
        );
        let later = "x-__READ__0000000004".to_owned();
        let step = contender.step(AcquireEvent::Listed(list(&[
            name(A, 3),
            later.clone(),
            name("c", 1),
        ])));
        assert_eq!(
            step,
            AcquireStep::Do(AcquireRequest::Watch {
                predecessor: name("c", 1)
            })
        );
        assert_eq!(
            contender.step(AcquireEvent::WaitOver),
            AcquireStep::Do(AcquireRequest::List)
        );
        assert_eq!(
            contender.step(AcquireEvent::Listed(list(&[name(A, 3), later]))),
            granted(A, 3)
        );
    }

    #[test]
    fn session_end_ends_every_state() {
        let over = || FailureKind::SessionGone;
        let mut contender = waiting();
        assert_eq!(
            contender.step(created(A, Answer::no(over()), Answer::no(over()))),
            ended(NoGrant::SessionGone, &[], &[])
        );
        let mut contender = waiting();
        contender.step(created(
            A,
            Answer::Is(node(A, 3)),
            list(&[name(A, 3), name(B, 2)]),
        ));
        assert_eq!(
            contender.step(AcquireEvent::WatchFailed(over().into())),
            ended(NoGrant::SessionGone, &[name(A, 3)], &[])
        );
    }
}
