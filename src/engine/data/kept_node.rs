//! An ephemeral node that is kept for as long as its handle lives, in one session after the other
//! (docs/protocol.md#persistent-node). One task per node.
//!
//! ```text
//!   keep: for each session --> Stay::run: create --> look, with a watch --> wait for a change
//!           ^                               ^                |
//!           |                               +--- write <-----+ the data are not the wanted ones
//!           |                                                |
//!           +---------- the session has ended ---------------+
//!                                                            v
//!   the handle was dropped --> withdraw: delete it, if it is this session's
//! ```
//!
//! The node at the path may belong to another owner, such as an earlier session of the same client.
//! Such a node is never written to or deleted, and the task waits for its end. Two handles of one
//! client take turns at a path, because each would take the other's node for its own after a create
//! without an answer.
//!
//! A create or a write without an answer may still be carried out. [`Stay`] remembers both: a
//! create as `in_doubt`, a write as `late_write`. A later write of the session whose answer arrives
//! decides every earlier create (docs/protocol.md#write-barrier). A write with the version of the
//! last look settles an earlier write, because at most one write for each version is carried out.
//!
//! The session counts the node before its create is sent (docs/protocol.md#session-nodes).

use std::mem;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use zookeeper_client as zk;

use crate::engine::lock::path_lock::Registry;
use crate::error::{Error, ErrorKind, PersistentNodeError, Purpose, RequestFailure};
use crate::protocol::failure::{Failure, FailureKind};
use crate::protocol::persistent_node::{PersistentNodeState, state_by};
use crate::session::contents::creates::NodeRoom;
use crate::session::contents::limits::{WatchUse, Watching, changed_or_after, read_and_watch};
use crate::session::core::{Core, NoSession};
use crate::session::live::zk_session::{Session, SessionGone};
use crate::session::reports::log;
use crate::session::request::repetition::{Repetition, Unanswered};
use crate::session::request::retry::{RetryPolicy, clean_up_pause};
use crate::session::threads::waker::contain_panic;
use crate::values::options::{Acl, ParentNodes};
use crate::values::path::{LockPath, above};

/// The turns of a client's handles to have the node at a path. Two handles of one session at once
/// could take each other's node for their own when creates are not answered.
pub(crate) type PathTurns = Registry<String, PathTurn>;

/// The turns at one path, in order of arrival.
pub(crate) struct PathTurn {
    path: String,
    turns: Arc<PathTurns>,
    mutex: tokio::sync::Mutex<()>,
}

impl PathTurn {
    /// Returns the turns at a path.
    pub(crate) fn at(turns: &Arc<PathTurns>, path: &LockPath) -> Arc<Self> {
        let path = path.server().to_owned();
        let mut known = turns.lock();
        if let Some(turn) = known.get(&path).and_then(Weak::upgrade) {
            return turn;
        }
        let turn = Self {
            path: path.clone(),
            turns: Arc::clone(turns),
            mutex: tokio::sync::Mutex::default(),
        };
        let turn = Arc::new(turn);
        known.insert(path, Arc::downgrade(&turn));
        turn
    }
}

impl Drop for PathTurn {
    fn drop(&mut self) {
        self.turns.forget(&self.path);
    }
}

/// The node that should exist.
#[derive(Clone)]
pub(crate) struct WantedNode {
    pub(crate) data: Arc<[u8]>,
    /// Counts the data that were requested, from 1.
    pub(crate) generation: u64,
}

/// The state that a node and its task share.
pub(crate) struct ManagedNode {
    pub(crate) path: LockPath,
    pub(crate) acl: Arc<[Acl]>,
    pub(crate) parents: ParentNodes,
    pub(crate) has_credentials: Option<bool>,
    pub(crate) state: watch::Sender<PersistentNodeState>,
    outcome: watch::Sender<Outcome>,
}

/// The outcome for the data that were requested.
#[derive(Clone, Default)]
struct Outcome {
    /// The generation of the data that the node was last given.
    written: u64,
    /// The generation of the data that were last refused: by the servers, or by this client for
    /// lack of room.
    refused: u64,
    /// Why the node does not exist.
    trouble: Option<PersistentNodeError>,
}

/// The orders of the handle: the wanted node. The sender is dropped with the handle.
pub(crate) type Orders = watch::Receiver<WantedNode>;

impl ManagedNode {
    pub(crate) fn new(
        client: &Core,
        path: LockPath,
        acl: Arc<[Acl]>,
        parents: ParentNodes,
    ) -> Arc<Self> {
        Arc::new(Self {
            path,
            acl,
            parents,
            has_credentials: client.credentials.exist,
            state: watch::Sender::new(PersistentNodeState::Absent),
            outcome: watch::Sender::default(),
        })
    }

    /// Records that the client of this node is closed.
    pub(crate) fn close_with(&self, client: &Core) {
        // A client that is still being closed has no final reason. The reason is `Closed` then,
        // because the node gets no task that could send a request.
        let why = match client.why_ended() {
            RequestFailure::AuthFailed => RequestFailure::AuthFailed,
            _ => RequestFailure::Closed,
        };
        self.set_trouble(Some(self.error(why)));
        self.set_state(PersistentNodeState::Closed);
    }

    /// Returns the error of a close whose deletion no server has confirmed.
    pub(crate) fn not_confirmed(&self) -> PersistentNodeError {
        PersistentNodeError::NotConfirmed {
            path: self.path.user().to_owned(),
        }
    }

    /// Returns why the node is closed, for a call that was waiting.
    pub(crate) fn ended(&self) -> PersistentNodeError {
        // A retryable error is omitted, because no request will be repeated any more.
        let refused = self.trouble().filter(|trouble| !trouble.is_retryable());
        refused.unwrap_or_else(|| self.error(RequestFailure::Closed))
    }

    /// Returns why the node does not exist, if that is known.
    pub(crate) fn trouble(&self) -> Option<PersistentNodeError> {
        self.outcome.borrow().trouble.clone()
    }

    fn set_trouble(&self, trouble: Option<PersistentNodeError>) {
        self.set_outcome(|outcome| outcome.trouble = trouble);
    }

    /// Changes the outcome, and wakes the callers that wait for it, whose wakers may panic.
    fn set_outcome(&self, change: impl FnOnce(&mut Outcome)) {
        // Only the task of this node changes the outcome, so no change is lost between the clone
        // and the replacement.
        let mut outcome = self.outcome.borrow().clone();
        change(&mut outcome);
        contain_panic(|| drop(self.outcome.send_replace(outcome)));
    }

    /// Publishes the state, and wakes the callers that wait for it, whose wakers may panic.
    fn set_state(&self, state: PersistentNodeState) {
        contain_panic(|| {
            self.state
                .send_if_modified(|known| mem::replace(known, state) != state);
        });
    }

    fn set_written(&self, generation: u64) {
        self.set_trouble(None);
        // The state is set first, so that a caller that has waited for the data finds the state
        // `Present`.
        self.set_state(PersistentNodeState::Present);
        self.set_outcome(|outcome| outcome.written = generation);
    }

    /// Records that the servers have refused these data, or that the session has no room for the
    /// node ([`has_no_room`](Stay::has_no_room)), which ends the calls that wait for these data or
    /// for earlier ones.
    fn set_refused(&self, generation: u64, why: PersistentNodeError) {
        // The outcome is set first, so that a caller that sees the state `Refused` finds the
        // reason.
        self.set_outcome(|outcome| (outcome.refused, outcome.trouble) = (generation, Some(why)));
        self.set_state(PersistentNodeState::Refused);
    }

    /// Returns the error of a request that failed.
    fn error(&self, why: impl Into<RequestFailure>) -> PersistentNodeError {
        Error::new(Purpose::Node, self.path.user(), why)
            .with_credentials(self.has_credentials)
            .into()
    }
}

/// Keeps the node there until the handle is dropped, which drops the sender of `orders`. Then
/// deletes the node, and sends the result to `closed`.
pub(crate) fn run(
    node: Arc<ManagedNode>,
    client: Arc<Core>,
    turn: Arc<PathTurn>,
    orders: Orders,
    closed: oneshot::Sender<Result<(), PersistentNodeError>>,
) -> impl Future<Output = ()> + Send + 'static {
    // The value is made here and not in the task, because the runtime of a closed client drops a
    // task without polling it. The node is `Closed` in that case, too.
    let closed_on_drop = ClosedOnDrop(Arc::clone(&node));
    async move {
        let _tells_closed = closed_on_drop;
        let ended = keep(&node, client, &turn, orders).await;
        // The state is set before `close` returns to its caller.
        node.set_state(PersistentNodeState::Closed);
        // The send fails if the handle was dropped without `close`, so that no caller waits.
        drop(closed.send(ended));
    }
}

/// Keeps the node there until the handle is dropped, and deletes it then. Returns `Ok` if the node
/// is known to be deleted.
async fn keep(
    node: &Arc<ManagedNode>,
    client: Arc<Core>,
    turn: &PathTurn,
    mut orders: Orders,
) -> Result<(), PersistentNodeError> {
    // First the turn at the path, which ends only with this task, so that the next handle creates
    // its node after the deletion of this one.
    let _has_turn = if let Ok(has_turn) = turn.mutex.try_lock() {
        has_turn
    } else {
        node.set_state(PersistentNodeState::Conflict);
        tokio::select! {
            has_turn = turn.mutex.lock() => {
                node.set_state(PersistentNodeState::Absent);
                has_turn
            }
            // This handle never had the path, so it has no node.
            () = dropped(&mut orders) => return Ok(()),
        }
    };
    // Whether an earlier session, whose end no server has confirmed, may still have a node of this
    // task.
    let (mut earlier_node_may_exist, mut pauses) = (false, 0);
    // Then one stay in each session, until the handle is dropped or the client has ended.
    loop {
        let session = tokio::select! {
            biased;
            () = dropped(&mut orders) => break,
            session = client.session() => session,
        };
        let session = match session {
            Ok(session) => session,
            // A node is wanted for as long as its handle lives, so the retry policy does not end
            // the tries (docs/protocol.md#persistent-node).
            Err(NoSession::Unreachable(error)) => {
                node.set_trouble(Some(
                    node.error(RequestFailure::Connection(Arc::new(error))),
                ));
                pauses += 1;
                tokio::select! {
                    () = tokio::time::sleep(clean_up_pause(pauses)) => continue,
                    () = dropped(&mut orders) => break,
                }
            }
            Err(ended) => {
                node.set_trouble(Some(node.error(ended)));
                break;
            }
        };
        pauses = 0;
        // The servers may still have these sessions, with their nodes, after this client has given
        // them up (docs/protocol.md#close-confirmed).
        let earlier = client.earlier_sessions(session.session_id);
        let mut stay = Stay {
            client: &client,
            node,
            session: &session,
            earlier: &earlier,
            in_doubt: false,
            own: None,
            late_write: None,
            generation: 0,
            work_in_progress: None,
            failures: 0,
            room: None,
        };
        let is_dropped = stay.run(&mut orders).await;
        let created = stay.may_exist();
        // No node of an earlier session is left if its deletion was confirmed, or if this session
        // has the node, because the path has only one. Otherwise `withdraw` looks for a node of the
        // earlier sessions.
        earlier_node_may_exist &= stay.own.is_none();
        let room = stay.room.take();
        drop(stay);
        let earlier_owners: &[i64] = if earlier_node_may_exist {
            &earlier
        } else {
            &[]
        };
        if is_dropped {
            // If nothing else uses the client, this drop ends the session, which deletes the node
            // as well.
            drop(client);
            return withdraw(node, &session, (created, room), earlier_owners).await;
        }
        // The session has ended, so `withdraw` sends no request. An error means that no server has
        // confirmed that the node of that session is deleted.
        earlier_node_may_exist = withdraw(node, &session, (created, room), earlier_owners)
            .await
            .is_err();
        node.set_state(PersistentNodeState::Absent);
    }
    if earlier_node_may_exist {
        Err(node.not_confirmed())
    } else {
        Ok(())
    }
}

struct ClosedOnDrop(Arc<ManagedNode>);

impl Drop for ClosedOnDrop {
    fn drop(&mut self) {
        self.0.set_state(PersistentNodeState::Closed);
    }
}

/// Waits until the handle is dropped. Marks orders that arrive meanwhile as seen.
async fn dropped(orders: &mut Orders) {
    while orders.changed().await.is_ok() {}
}

/// The stay of a node in one session.
struct Stay<'a> {
    client: &'a Core,
    node: &'a ManagedNode,
    session: &'a Arc<Session>,
    earlier: &'a [i64],
    /// Whether a create was sent whose outcome is unknown: it may have made the node, or may still
    /// do so.
    in_doubt: bool,
    /// `Some` if the node exists and is this task's: the generation of the data that it was given,
    /// or 0 if that is unknown.
    own: Option<u64>,
    /// The generation of the oldest data of which an unanswered write may still be applied. A read
    /// does not settle such a write, because the write may come after it. The write has no effect
    /// once the node has another version than the one it names (docs/protocol.md#write-barrier).
    late_write: Option<u64>,
    /// The generation of the data that were wanted at the last step.
    generation: u64,
    /// Counts as work of the session while a create or a write waits for its answer, and in the
    /// pause after one without an answer: the supervisor gives a connection more time for its
    /// answers only if an answer is waited for (docs/protocol.md#server-timeout). A look, which
    /// comes before the repetition of a write, does not count.
    work_in_progress: Option<watch::Receiver<()>>,
    /// The number of consecutive requests without an answer.
    failures: u32,
    /// The node's part of the bytes that the session's nodes may have
    /// (docs/protocol.md#session-nodes).
    room: Option<NodeRoom>,
}

enum NextStep {
    Create,
    Look,
    /// Wait until the node may have changed; without a watch, for an interval.
    Wait(Option<(zk::OneshotWatcher, Watching)>),
    /// Continue after a pause, or at once when other data are ordered.
    Pause(Duration),
}

impl Stay<'_> {
    /// Returns whether this task may have a node in this session.
    fn may_exist(&self) -> bool {
        self.in_doubt || self.own.is_some()
    }

    /// Takes steps until the session has ended or the handle is dropped. Returns whether the handle
    /// is dropped.
    async fn run(&mut self, orders: &mut Orders) -> bool {
        let mut next = NextStep::Create;
        while self.session.end_reason().is_none() {
            let wanted = orders.borrow_and_update().clone();
            let before = mem::replace(&mut self.generation, wanted.generation);
            // Data that were ordered during the last step are seen by now, so no wait would end by
            // them.
            if before != wanted.generation {
                next = match next {
                    NextStep::Wait(_) => NextStep::Look,
                    NextStep::Pause(_) => self.after_pause(),
                    request => request,
                };
            }
            // The step has a receiver of its own, because `dropped` marks new orders as seen on the
            // other one. The clone has seen the orders up to `wanted`.
            let (session, more) = (self.session, orders.clone());
            next = tokio::select! {
                biased;
                // The step may be dropped while its request is under way. So each step records what
                // its request may do before it sends the request.
                () = dropped(orders) => return true,
                next = self.step(next, &wanted, more) => next,
                // The step may be a wait, which the end of the session does not end by itself.
                _ = session.ended() => break,
            };
            // Neither a create nor a write is under way in these steps. A write without an answer
            // is repeated after a look, and counts again from then on.
            if matches!(next, NextStep::Look | NextStep::Wait(_)) {
                self.work_in_progress = None;
            }
        }
        // The handle may have been dropped while the session ended.
        orders.has_changed().is_err()
    }

    /// Takes a step. A wait or a pause ends early when other data are ordered.
    async fn step(&mut self, next: NextStep, wanted: &WantedNode, mut orders: Orders) -> NextStep {
        match next {
            NextStep::Create => self.create(wanted).await,
            NextStep::Look => self.look(wanted).await,
            NextStep::Wait(watched) => {
                let poll = self.session.lease.rule.heartbeat_interval();
                let (watcher, _watching) = watched.unzip();
                tokio::select! {
                    // Whatever the event is, the node is looked at, because the watch has ended
                    // with the event.
                    () = changed_or_after(watcher, poll) => {}
                    _ = orders.changed() => {}
                }
                NextStep::Look
            }
            NextStep::Pause(pause) => {
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    _ = orders.changed() => {}
                }
                self.after_pause()
            }
        }
    }

    /// Returns the step after a pause. A node that is there needs a look, because only a look shows
    /// the version for the next write.
    fn after_pause(&self) -> NextStep {
        if self.own.is_some() {
            NextStep::Look
        } else {
            NextStep::Create
        }
    }

    fn begin_work(&mut self) {
        let session = self.session;
        self.work_in_progress
            .get_or_insert_with(|| session.running.subscribe());
    }

    async fn create(&mut self, wanted: &WantedNode) -> NextStep {
        let (path, what) = (
            self.node.path.server(),
            (zk::CreateMode::Ephemeral, &*self.node.acl),
        );
        if self.room.is_none() {
            self.room = self.session.nodes.creates.room(path);
        }
        if self.room.is_none() {
            return self.has_no_room();
        }
        // The create is in doubt from before it is sent, because this future may be dropped.
        // `before` is whether an earlier create is in doubt.
        let before = mem::replace(&mut self.in_doubt, true);
        self.begin_work();
        let session = self.session;
        let answer = session
            .request(
                |handle| async move { session.create(&handle, path, &wanted.data, what).await },
            )
            .await;
        match answer {
            Ok(Ok(_)) => {
                (self.in_doubt, self.failures) = (false, 0);
                // The node has the wanted data from its creation. The look that follows sets the
                // watch.
                self.written(wanted);
                NextStep::Look
            }
            Ok(Err(error)) => {
                // A node at the path may be that of an earlier create without an answer, one of an
                // earlier session, or another's. The look decides.
                let is_there = error == zk::Error::NodeExists;
                let failure = self.session.failure(error);
                if !matches!(
                    failure.kind,
                    FailureKind::Unknown | FailureKind::SessionGone
                ) {
                    // This create was definitely not carried out. An earlier one may have been.
                    self.in_doubt = before;
                    if !self.may_exist() {
                        self.room = None;
                    }
                }
                if is_there {
                    return NextStep::Look;
                }
                if failure.kind == FailureKind::NoNode {
                    return self.make_parents(failure).await;
                }
                self.failed(&failure)
            }
            // The loop in `run` ends before the next step.
            Err(SessionGone) => NextStep::Look,
        }
    }

    /// Reports that the session has no room for the node. The create is tried again after an
    /// interval, because other nodes of the session may have been deleted by then.
    fn has_no_room(&mut self) -> NextStep {
        let error = PersistentNodeError::TooManyNodes {
            path: self.node.path.user().to_owned(),
            max: self.session.nodes.creates.max_bytes(),
        };
        let is_known = matches!(
            self.node.trouble(),
            Some(PersistentNodeError::TooManyNodes { .. })
        );
        // The log has one line for this condition, and not one for each try.
        if !is_known {
            log::warn!(path = self.node.path.user(), %error, "a node is not there");
        }
        self.node.set_refused(self.generation, error);
        self.work_in_progress = None;
        NextStep::Pause(self.session.lease.rule.heartbeat_interval())
    }

    async fn make_parents(&mut self, missing: Failure) -> NextStep {
        let (client, node, session) = (self.client, self.node, self.session);
        let made = session.request(|handle| async move {
            client
                .make_directories(&handle, above(node.path.server()), &node.acl, node.parents)
                .await
        });
        let failure = match made.await {
            // After three creations of the directory without a pause, a pause follows: another
            // client may keep deleting it.
            Ok(Ok(())) if self.failures < 3 => {
                self.failures += 1;
                return NextStep::Create;
            }
            Ok(Ok(())) => missing,
            Ok(Err(error)) => session.failure(error),
            Err(SessionGone) => return NextStep::Look,
        };
        self.failed(&failure)
    }

    /// Reads the node with a watch, decides whose it is, and writes the wanted data if the node has
    /// others.
    async fn look(&mut self, wanted: &WantedNode) -> NextStep {
        let path = self.node.path.server();
        // The watch counts from before it is set. Without room for it the node is read every T/6.
        let watching = self.session.watches.watch(path, WatchUse::Node);
        let watch = watching.is_some();
        let read = self
            .session
            .request(|handle| async move { read_and_watch(&handle, path, watch).await });
        let (data, stat, watcher) = match read.await {
            Ok(Ok(read)) => read,
            Ok(Err(zk::Error::NoNode)) => {
                // Another client has deleted the node, so it is created again.
                self.own = None;
                self.node.set_state(PersistentNodeState::Absent);
                return NextStep::Create;
            }
            Ok(Err(error)) => {
                let failure = self.session.failure(error);
                return self.failed(&failure);
            }
            Err(SessionGone) => return NextStep::Look,
        };
        // Only a session in which this task has sent a create can have a node of this task.
        let created = self.may_exist();
        let state = state_by(
            stat.ephemeral_owner,
            self.session.session_id,
            self.earlier,
            created,
        );
        // The node is another's, or of an earlier session. Its end is waited for, and a create
        // follows then.
        if state != PersistentNodeState::Present {
            (self.own, self.failures) = (None, 0);
            self.node.set_state(state);
            return NextStep::Wait(watcher.zip(watching));
        }
        let before = self.own.unwrap_or(0);
        // A look at a node of this session follows an answered create, which decides every earlier
        // one. The generation of the data is unknown, 0, if a create without an answer has made the
        // node.
        (self.in_doubt, self.own) = (false, Some(before));
        // The node is not written if it was given these data before, so data that another process
        // has written since stay. After a lost answer the generation is unknown, and the data
        // themselves are compared.
        let has_data = before == wanted.generation || data == *wanted.data;
        // An earlier write of other data may still be applied, and would replace the wanted data.
        // Another write of the wanted data prevents that, because it makes the next version.
        if has_data && self.late_write.is_none_or(|late| late == wanted.generation) {
            self.failures = 0;
            self.written(wanted);
            return NextStep::Wait(watcher.zip(watching));
        }
        // The watch is not waited for: a look with a new watch follows the write.
        drop(watcher);
        self.write(wanted, stat.version).await
    }

    /// Records that the node has the wanted data.
    fn written(&mut self, wanted: &WantedNode) {
        self.own = Some(wanted.generation);
        self.node.set_written(wanted.generation);
    }

    /// Writes the wanted data, if the node still has the version that the last look has shown.
    async fn write(&mut self, wanted: &WantedNode, version: i32) -> NextStep {
        let (path, session) = (self.node.path.server(), self.session);
        // The write counts as late from before it is sent, because this future may be dropped. An
        // earlier late write stays recorded, because only the answer to this one settles it.
        let before = self.late_write;
        self.late_write = before.or(Some(wanted.generation));
        self.begin_work();
        let written = session.request(|handle| async move {
            session
                .write(|| handle.set_data(path, &wanted.data, Some(version)))
                .await
        });
        match written.await {
            Ok(Ok(_)) => {
                self.late_write = None;
                self.written(wanted);
                NextStep::Look
            }
            Ok(Err(error)) => {
                let failure = self.session.failure(error.clone());
                match (&error, failure.kind) {
                    (zk::Error::BadVersion, _) => self.late_write = None,
                    (_, FailureKind::Unknown | FailureKind::SessionGone) => {}
                    _ => self.late_write = before,
                }
                if matches!(error, zk::Error::BadVersion | zk::Error::NoNode) {
                    // Another client has written to the node or deleted it, or an earlier write of
                    // this task was applied although its answer was lost. The look after the pause
                    // shows which.
                    self.failures += 1;
                    return NextStep::Pause(clean_up_pause(self.failures));
                }
                self.failed(&failure)
            }
            Err(SessionGone) => NextStep::Look,
        }
    }

    /// Returns the step after a request that failed: a pause, and then the same again.
    fn failed(&mut self, failure: &Failure) -> NextStep {
        self.failures = self.failures.saturating_add(1);
        match failure.kind {
            FailureKind::Refused(_) => {
                let error = self.node.error(failure.refused());
                let known = self.node.trouble().and_then(|known| known.kind());
                // The log has one line for several refusals in a row.
                if !matches!(known, Some(ErrorKind::NoAuth | ErrorKind::Rejected)) {
                    log::warn!(path = self.node.path.user(), %error, "a node is not there");
                }
                self.node.set_refused(self.generation, error);
                self.work_in_progress = None;
                NextStep::Pause(self.session.lease.rule.heartbeat_interval())
            }
            FailureKind::SessionGone => NextStep::Look,
            _ => {
                // A known refusal remains the reported reason, because a request without an answer
                // does not show that the servers would accept the node now.
                if *self.node.state.borrow() != PersistentNodeState::Refused {
                    self.node
                        .set_trouble(Some(self.node.error(failure.unanswered())));
                }
                NextStep::Pause(clean_up_pause(self.failures))
            }
        }
    }
}

/// Deletes the node, if this session owns it and this task has created it. Repeats the deletion
/// until its outcome is known or the session has ended. `earlier_owners` has the earlier sessions
/// that may have left a node of this task. Such a node is deleted with its session, and its
/// existence is an error until then.
async fn withdraw(
    node: &ManagedNode,
    session: &Session,
    (created, room): (bool, Option<NodeRoom>),
    earlier_owners: &[i64],
) -> Result<(), PersistentNodeError> {
    // No create of this task can have made a node in this session, and none is left of an earlier
    // session.
    if !created && earlier_owners.is_empty() {
        return Ok(());
    }
    // The servers delete the nodes of a session that they expire. A session that only the client
    // has given up may still have its node.
    let gone = || match session.is_expired_by_servers() && earlier_owners.is_empty() {
        true => Ok(()),
        false => Err(node.not_confirmed()),
    };
    let path = node.path.server();
    let (mut repetition, mut written) = (Repetition::new(RetryPolicy::CLEAN_UP), 0);
    // A deletion counts as work, like a write.
    let _work_in_progress = session.running.subscribe();
    let failure = loop {
        let deleted = repetition.repeat(session, |handle| async move {
            // No node has this version. The answer is a committed transaction of this session,
            // behind which a create that was not answered is decided
            // (docs/protocol.md#write-barrier).
            let barrier = session.write(|| handle.delete(path, Some(NO_VERSION)));
            match barrier.await {
                // There is no node, and every create of this session is decided.
                Ok(()) | Err(zk::Error::NoNode) => return Ok(Withdrawn::Done),
                Err(zk::Error::BadVersion) => {}
                Err(error) => return Err(error),
            }
            let stat = match handle.check_stat(path).await? {
                // The owner alone does not identify the node: another recipe of this session may
                // have created a node at the path.
                Some(stat) if created && stat.ephemeral_owner == session.session_id => stat,
                // A deletion by name could hit the node of another owner, because the servers may
                // expire the earlier session before they process the deletion.
                Some(stat) if earlier_owners.contains(&stat.ephemeral_owner) => {
                    return Ok(Withdrawn::Left);
                }
                // The node belongs to another owner, or has been deleted in the meantime.
                Some(_) | None => return Ok(Withdrawn::Done),
            };
            let deleted = session.write(|| handle.delete(path, Some(stat.version)));
            match deleted.await {
                Ok(()) | Err(zk::Error::NoNode) => Ok(Withdrawn::Done),
                // Another client has written to the node meanwhile.
                Err(zk::Error::BadVersion) => Ok(Withdrawn::Written),
                Err(error) => Err(error),
            }
        });
        match deleted.await {
            Ok(Withdrawn::Done) => return Ok(()),
            Ok(Withdrawn::Left) => return Err(node.not_confirmed()),
            Ok(Withdrawn::Written) => {
                written += 1;
                tokio::time::sleep(clean_up_pause(written)).await;
            }
            Err(Unanswered::NoSession(SessionGone)) => return gone(),
            Err(Unanswered::Refused(failure) | Unanswered::GaveUp(failure)) => break failure,
        }
    };
    let error = node.error(failure.refused());
    log::error!(path = node.path.user(), %error, "a node could not be deleted and stays until its session ends");
    // The node exists until the session ends, so its bytes count until then.
    if let Some(room) = room {
        room.keep_counted();
    }
    Err(error)
}

/// The outcome of a deletion.
enum Withdrawn {
    /// No node of this task exists.
    Done,
    /// The node of an earlier session exists.
    Left,
    /// Another client has written to the node between its read and its deletion.
    Written,
}

/// A version that no node has: versions count from 0, and -1 means any.
const NO_VERSION: i32 = i32::MIN;

/// Waits until the node has the data of this generation, or later ones. Returns an error if the
/// servers refuse these data or later ones, or if the node is closed.
pub(crate) async fn until_written(
    node: &ManagedNode,
    generation: u64,
) -> Result<(), PersistentNodeError> {
    let (mut outcomes, mut states) = (node.outcome.subscribe(), node.state.subscribe());
    loop {
        // Both values are marked as seen before they are judged, so a change after this point ends
        // the wait below.
        let (outcome, state) = (
            outcomes.borrow_and_update().clone(),
            *states.borrow_and_update(),
        );
        match state {
            _ if outcome.written >= generation => return Ok(()),
            PersistentNodeState::Refused if outcome.refused >= generation => {
                if let Some(refused) = outcome.trouble {
                    return Err(refused);
                }
            }
            PersistentNodeState::Closed => return Err(node.ended()),
            _ => {}
        }
        // An error is impossible: the node has the senders.
        tokio::select! {
            _ = outcomes.changed() => {}
            _ = states.changed() => {}
        }
    }
}
