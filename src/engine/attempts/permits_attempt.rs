//! The last step of an attempt to get permits of a semaphore. At the head of the queue, the attempt
//! carries out the steps of [`Taking`], until one transaction has exchanged its lock node for the
//! leases (docs/protocol.md#permits-by-one-transaction).
//!
//! Only the head of the queue takes permits, so no other contender takes any at the same time, and
//! a call for many permits is not overtaken by calls for few. The head reads the leases and the
//! limit. If enough permits are free, a transaction creates all leases and deletes the lock node,
//! so that the next attempt becomes the head. Otherwise the head waits until a lease or the limit
//! may have changed.
//!
//! If a transaction is not answered, its leases may exist. The head continues only after a list has
//! shown whether they do, by the ids in their names. If the attempt ends before that, the ids are
//! left to cleanup, from `leases` of [`InSession`].
//!
//! A try behaves in the same way, but looks before it queues, and does not wait for permits that
//! are held (docs/protocol.md#try-permits).

use std::ops::ControlFlow;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use zookeeper_client as zk;

use crate::engine::attempts::attempt::{Attempt, End, Granted, Stop, wait};
use crate::engine::attempts::in_session::InSession;
use crate::engine::granted::Grant;
use crate::engine::lock::lock_options::SemaphoreOptions;
use crate::engine::lock::path_lock::PathLock;
use crate::engine::request::look::{Subject, read_first, refused_again, refused_in, saw_leases};
use crate::engine::request::requests::{AttemptContext, make_directories, meaning, new_id, stat};
use crate::engine::semaphore_limit::{Watches, invalid, limit, look, look_and_watch, mismatch};
use crate::engine::shared_path::NewLock;
use crate::engine::shared_queue::SharedQueue;
use crate::error::AcquireError;
use crate::protocol::acquire::{AcquireEvent, IfBusy, Orphans, OwnNode};
use crate::protocol::failure::{Answer, Failure, FailureKind};
use crate::protocol::hold::HoldState;
use crate::protocol::late::WaitsFor;
use crate::protocol::local_queue::Gone;
use crate::protocol::node_name::Kind;
use crate::protocol::numbers::HoldNumber;
use crate::protocol::permits::{
    NoPermits, PermitsEvent, PermitsOutcome, PermitsRequest, PermitsStep, Seen, Take, Taken,
    Taking, free, lease_beginning,
};
use crate::session::contents::limits::watch_event;
use crate::session::contents::nodes::NodeOwner;
use crate::session::live::zk_session::{Session, SessionGone};
use crate::session::reports::observer::How;
use crate::session::threads::clock;
use crate::session::write::to_library;
use crate::values::path::LockPath;

/// How long a try waits behind the same head of the queue, once it has seen enough free permits.
/// Each contender needs a few round trips at the head before the next one's turn. Without this
/// time, only one of ten simultaneous tries for ten free permits would succeed.
pub(crate) const TRY_QUEUES_FOR: Duration = Duration::from_millis(200);

/// The most bytes of one transaction. ZooKeeper closes the connection at a request over 1 MiB.
const MAX_BYTES: usize = 1_000_000;

/// Returns about how many permits one transaction can take.
fn most_at_once(path_lock: &PathLock, semaphore: &SemaphoreOptions) -> u32 {
    let options = &path_lock.options;
    let acl: usize = options
        .acl
        .iter()
        .map(|acl| acl.scheme.len() + acl.id.len() + 12)
        .sum();
    // The name of a lease has at most eighty bytes, and the header of an operation less than fifty.
    let each = semaphore.leases.server().len() + path_lock.most_data() + acl + 130;
    u32::try_from(MAX_BYTES / each).unwrap_or(u32::MAX).max(1)
}

impl Attempt {
    /// Makes the attempt stop once it is known that it wants [too many](too_many) permits. If one
    /// transaction cannot take that many, waits until the reason is known, and returns it.
    pub(super) async fn refuse_excess(
        &self,
        semaphore: &SemaphoreOptions,
        stop: &mut Stop,
    ) -> Result<(), End> {
        let wanted = self.wanted;
        let exceeds = wanted > most_at_once(&self.path_lock, semaphore);
        // A try checks the limit itself, and one permit never exceeds it.
        if exceeds || wanted > 1 && self.ask.budget.if_busy() == IfBusy::Wait {
            let too_many = too_many(Arc::clone(&self.path_lock), wanted);
            stop.refuse_by(Some(Box::pin(too_many)));
        }
        if exceeds {
            // The wait ends with the error of `too_many`, at the deadline, or when the caller
            // leaves.
            self.progress.set_waits_for(WaitsFor::Leases);
            return Err(stop.wait().await.into());
        }
        Ok(())
    }
}

/// Waits until it is known that a call asks for more permits than the limit, or than one
/// transaction can take. The connected server may lag behind, so a limit that is too low is
/// believed only if it is read behind a `sync`.
async fn too_many(path_lock: Arc<PathLock>, asked: u32) -> AcquireError {
    let path = path_lock.path.user().to_owned();
    if let Some(semaphore) = &path_lock.options.semaphore {
        let most = most_at_once(&path_lock, semaphore);
        // Such a call cannot be granted under any limit. The limit only decides which error is
        // reported.
        if asked > most {
            return match limit(&path_lock, semaphore, true).await {
                Ok(limit) if asked > limit => AcquireError::TooManyPermits { path, asked, limit },
                Ok(_) => AcquireError::TooManyAtOnce { path, asked, most },
                Err(error) => error.into(),
            };
        }
        if limit(&path_lock, semaphore, false)
            .await
            .is_ok_and(|limit| asked > limit)
        {
            match limit(&path_lock, semaphore, true).await {
                Ok(limit) if asked > limit => {
                    return AcquireError::TooManyPermits { path, asked, limit };
                }
                Ok(_) | Err(_) => {}
            }
        }
    }
    std::future::pending().await
}

/// The attempt at the head of the queue.
struct AtHead<'a> {
    semaphore: &'a SemaphoreOptions,
    /// The node in the queue, and the zxid of its creation, which is the token of the permits.
    lock: String,
    czxid: i64,
    taking: Taking,
    watches: Option<Watches>,
    /// The last look.
    seen: Option<Seen>,
    check: LockNodeCheck,
    /// The directory or the node that the last request was about.
    directory: &'a LockPath,
}

/// The checks that the lock node of a waiting head exists. They continue from one wait to the
/// next, because leases may change more often than a check is due.
struct LockNodeCheck {
    /// When the next check is due.
    at: Instant,
    /// Whether a check has shown the node, so that deletions no longer count as consecutive
    /// (docs/protocol.md#waiter-without-node).
    has_outlasted_wait: bool,
}

impl<'a> InSession<'a> {
    /// Looks whether enough permits are free, for a try that has no node yet. The connected server
    /// may lag behind, so a try ends only by what is seen behind a `sync`
    /// (docs/protocol.md#try-permits).
    pub(crate) async fn look_for_permits(
        &mut self,
        semaphore: &'a SemaphoreOptions,
    ) -> Result<(), End> {
        let AttemptContext {
            path_lock, session, ..
        } = self.context;
        self.attempt.progress.set_waits_for(WaitsFor::Leases);
        let mut unknown = None;
        for certain in [false, true] {
            // The holder of the oldest permit is read together with the second look
            // (docs/protocol.md#held-by).
            let read = read_first(path_lock, session, unknown.take());
            let both = async { tokio::join!(look(path_lock, semaphore, session, certain), read) };
            let ((looked, _), _) = self.wait(both).await?;
            // Without an answer the try continues, and its create reports the error.
            let Answer::Is(seen) = &looked else { break };
            unknown = self.saw(semaphore, seen);
            // The state machine only judges this look: its steps are not carried out.
            let (mut taking, _) = Taking::new(self.attempt.wanted, semaphore.permits, IfBusy::Fail);
            match taking.on(PermitsEvent::Looked(looked)) {
                PermitsStep::Finish(PermitsOutcome::NotGranted { why, .. }) if certain => {
                    return Err(self.no_permits(semaphore, &semaphore.leases, why));
                }
                // The connected server may lag behind, so a second look follows, behind a `sync`.
                PermitsStep::Finish(_) => {}
                // Enough permits are free, or will be once this client's deletions are done.
                _ => break,
            }
        }
        Ok(())
    }

    /// Takes the permits at the head of the queue, where the attempt has the node `lock`. Continues
    /// with `Deleted` if another process has deleted that node.
    pub(crate) async fn take_permits(
        &mut self,
        semaphore: &'a SemaphoreOptions,
        lock: String,
        czxid: i64,
    ) -> Result<ControlFlow<Granted, AcquireEvent>, End> {
        // From now on the head reads the limit in each look, and reports a call for too many
        // permits.
        self.stop.refuse_by(None);
        let (taking, mut step) = Taking::new(
            self.attempt.wanted,
            semaphore.permits,
            self.attempt.ask.budget.if_busy(),
        );
        let mut head = AtHead {
            semaphore,
            lock,
            czxid,
            taking,
            watches: None,
            seen: None,
            check: LockNodeCheck {
                at: Instant::now() + self.context.session.lease.rule.heartbeat_interval(),
                has_outlasted_wait: false,
            },
            directory: &semaphore.leases,
        };
        let outcome = loop {
            let event = match step {
                PermitsStep::Do(request) => self.ask_at_head(&mut head, request).await,
                PermitsStep::Wait => self.wait_at_head(&mut head).await,
                PermitsStep::Pause { failures, why } => {
                    let again = self.pause(failures, why, 0).await;
                    again.map(|again| {
                        if again {
                            PermitsEvent::Retry
                        } else {
                            PermitsEvent::GiveUp
                        }
                    })
                }
                PermitsStep::Finish(outcome) => break Ok(outcome),
            };
            match event {
                Ok(event) => step = head.taking.on(event),
                Err(end) => break Err(end),
            }
        };
        match outcome {
            Ok(PermitsOutcome::Granted { names }) => {
                let permits = self.grant_permits(&head, names).await?;
                Ok(ControlFlow::Break(Granted::Permits(permits)))
            }
            Ok(PermitsOutcome::LockDeleted { orphans }) => {
                // The lock node goes back to `Acquiring`, which passes it to cleanup and creates
                // another at the end of the queue (docs/protocol.md#waiter-without-node).
                self.end_leases(orphans);
                self.unowned = Orphans::default();
                let node = OwnNode {
                    name: head.lock,
                    czxid: Some(czxid),
                };
                Ok(ControlFlow::Continue(AcquireEvent::Deleted {
                    node,
                    waited: head.check.has_outlasted_wait,
                }))
            }
            Ok(PermitsOutcome::NotGranted { why, orphans }) => {
                // The lock node still exists. It stays in `unowned`, from which cleanup gets it.
                self.end_leases(orphans);
                Err(self.no_permits(semaphore, head.directory, why))
            }
            // The caller has left, the deadline has passed, or the session has ended. An earlier
            // transaction without an answer may still commit, so its leases are left to cleanup by
            // their ids.
            Err(end) => {
                self.end_leases(head.taking.abandon());
                Err(end)
            }
        }
    }

    /// Leaves these leases to cleanup. All other leases whose creates were sent are known nodes by
    /// now, or do not exist.
    fn end_leases(&mut self, orphans: Orphans) {
        let sent = std::mem::take(&mut self.leases).ids;
        // The orphans are first: their creates then count as abandoned, and `end` skips such
        // creates.
        self.pass_leases_to_cleanup(orphans);
        for id in sent {
            self.context.session.nodes.creates.end(&id);
        }
    }

    async fn ask_at_head(
        &mut self,
        head: &mut AtHead<'a>,
        request: PermitsRequest,
    ) -> Result<PermitsEvent, End> {
        let (
            AttemptContext {
                path_lock, session, ..
            },
            semaphore,
        ) = (self.context, head.semaphore);
        (head.directory, self.subject) = (&semaphore.leases, Subject::Directory);
        match request {
            PermitsRequest::Look {
                watch,
                limit_exists,
            } => {
                self.attempt.progress.set_waits_for(WaitsFor::Leases);
                // The watches of the last look no longer count, so that the session has room for
                // new ones.
                head.watches = None;
                let looked = async {
                    if watch {
                        look_and_watch(path_lock, semaphore, session, limit_exists).await
                    } else {
                        (look(path_lock, semaphore, session, false).await, None)
                    }
                };
                let ((looked, directory), watches) = self.wait(looked).await?;
                (head.directory, head.watches) = (directory, watches);
                if let Answer::Is(seen) = &looked {
                    self.saw(semaphore, seen);
                    head.seen = Some(seen.clone());
                }
                Ok(PermitsEvent::Looked(looked))
            }
            PermitsRequest::MakeLeases => {
                self.attempt.progress.set_waits_for(WaitsFor::Parents);
                self.subject = Subject::Parent;
                let made = make_directories(self.context, &semaphore.leases);
                Ok(PermitsEvent::Made(self.wait(made).await?))
            }
            PermitsRequest::Take(take) => self.take(head, take).await,
            PermitsRequest::Inspect { names } => {
                // `None` is not expected: at least one permit is wanted.
                let Some(first) = names.first() else {
                    return Ok(PermitsEvent::LockDeleted);
                };
                let path = &semaphore.leases.child(first);
                Ok(PermitsEvent::Inspected(
                    match self.wait(stat(session, path)).await? {
                        Answer::Is(stat) if session.check_owner(&stat) => Answer::Is(names),
                        // The leases belong to the session that has replaced ours, and end with it
                        // (docs/protocol.md#replaced-session).
                        Answer::Is(_) => Answer::no(FailureKind::SessionGone),
                        Answer::No(failure) => Answer::No(failure),
                    },
                ))
            }
        }
    }

    /// Sends the transaction, and waits for its outcome, even if the attempt is stopped. The caller
    /// then gets its answer at once, and the leases go to cleanup afterwards.
    async fn take(&mut self, head: &mut AtHead<'a>, take: Take) -> Result<PermitsEvent, End> {
        let (
            AttemptContext {
                path_lock, session, ..
            },
            semaphore,
        ) = (self.context, head.semaphore);
        self.attempt.progress.set_waits_for(WaitsFor::Permits);
        let slot = self.wait(session.windows.creates.slot()).await?;
        let ids: Vec<String> = take
            .slots
            .iter()
            .map(|_| new_id(path_lock.options.naming()))
            .collect();
        // The numbers of the slots have different lengths. The longest name counts for each lease,
        // so that no lease takes more than its reserved room.
        let longest = take.slots.iter().max().copied().unwrap_or_default();
        let beginning = lease_beginning(ids.first().map_or("", |id| id), longest, take.limit);
        let path = semaphore.leases.child(&beginning);
        if !session.nodes.creates.begin(&ids, &path) {
            return Err(path_lock.too_many_nodes(session).into());
        }
        // The ids are recorded before the transaction is sent, so that cleanup gets them if this
        // task panics.
        self.leases.ids.extend(ids.iter().cloned());
        let mut taken = Box::pin(async {
            let taken = exchange(path_lock, semaphore, session, &head.lock, &take, ids).await;
            drop(slot);
            taken
        });
        // The end of the session needs no branch, because it ends the request.
        let stopped = tokio::select! {
            biased;
            (event, directory) = &mut taken => {
                drop(taken);
                head.directory = directory;
                return Ok(event);
            }
            stopped = self.stop.wait() => stopped,
        };
        // The caller is answered before the outcome is known. In the caller's next try neither the
        // lock node nor the leases may count as live contenders (docs/protocol.md#live-contender).
        // So both are marked before the answer: the lock node by its name, and the leases, which
        // may not exist yet, by the ids of their creates.
        session.nodes.mark_leaving(path_lock.path.child(&head.lock));
        let ids = self.leases.ids.iter().cloned();
        let creates = &session.nodes.creates;
        let abandoned: Vec<_> = ids.map(|id| creates.abandon(id)).collect();
        let ticket = self.attempt.send_error(End::from(stopped));
        // The outcome decides what is left: leases by name, or by id if it is unknown.
        let (event, _) = taken.await;
        let mut left = head.taking.on(event).into_orphans();
        // The ids of a transaction whose outcome is still unknown go to cleanup, too, before the
        // marks above are dropped. Their creates count until cleanup knows the outcome.
        left.extend(head.taking.abandon());
        self.pass_leases_to_cleanup(left);
        drop(abandoned);
        // Whatever has stopped the attempt, its caller has an answer or has left by now.
        Err(End::CallerGone(ticket))
    }

    /// Waits until the leases or the limit change, or the lock node is gone.
    async fn wait_at_head(&mut self, head: &mut AtHead<'_>) -> Result<PermitsEvent, End> {
        let (
            AttemptContext {
                path_lock, session, ..
            },
            semaphore,
        ) = (self.context, head.semaphore);
        let Some(Watches {
            leases,
            limit,
            counted: _counted,
        }) = head.watches.take()
        else {
            // Not expected: the head waits only after a look that has set both watches.
            return Ok(PermitsEvent::WatchFailed(FailureKind::Unknown.into()));
        };
        self.attempt.progress.set_waits_for(WaitsFor::Deletion);
        // A lease of this client that the servers refuse to delete stays until the session ends. If
        // only such leases are in the way, the wait would last as long.
        if let Some(seen) = head.seen.take() {
            let wanted = self.attempt.wanted;
            if let Some(error) = self
                .wait(refused_orphan_error(
                    path_lock, semaphore, session, wanted, &seen,
                ))
                .await?
            {
                return Err(error.into());
            }
        }
        self.queues(None);
        let (lock, check) = (path_lock.path.child(&head.lock), &mut head.check);
        let attempt = &*self.attempt;
        let refused = refused_in(&semaphore.leases, session, &mut self.refusals);
        let change = async {
            tokio::select! {
                biased;
                event = watch_event(leases) => {
                    // The look that follows shows which are left.
                    attempt.one_is_gone();
                    meaning(session, event).into()
                }
                event = watch_event(limit) => meaning(session, event).into(),
                // The deletion of a lease of this client was refused. The next look decides whether
                // the permits of others suffice.
                () = refused => PermitsEvent::WaitOver,
                // Another process has deleted the lock node, so the next contender may be the head
                // too.
                () = until_deleted(session, &lock, check) => PermitsEvent::LockDeleted,
            }
        };
        wait(self.context, Box::pin(change), self.stop).await
    }

    /// Records what a look shows, so that an error names these contenders even if the next request
    /// is not answered. Returns the name of the oldest lease if permits are missing and its holder
    /// is not known.
    fn saw(&self, semaphore: &SemaphoreOptions, seen: &Seen) -> Option<Arc<str>> {
        let AttemptContext {
            path_lock, session, ..
        } = self.context;
        let live = seen.leases.len().saturating_sub(seen.leaving);
        let is_busy = free(seen.limit(semaphore.permits), live) < self.attempt.wanted;
        let leases = is_busy.then(|| saw_leases(path_lock, session, semaphore, &seen.leases));
        let (ahead, unknown) = leases.flatten().unzip();
        self.attempt.saw_ahead(ahead);
        unknown.flatten()
    }

    /// Grants the permits. The lock node is gone.
    async fn grant_permits(
        &mut self,
        head: &AtHead<'_>,
        names: Vec<String>,
    ) -> Result<Vec<Grant>, End> {
        let AttemptContext {
            path_lock, session, ..
        } = self.context;
        let how = if self.queued { How::Event } else { How::List };
        let ask = self.attempt.ask;
        let lease_end = ask.lease.and_then(|lease| clock::now().end_of(lease));
        // The transaction that created the leases has deleted the lock node, and was answered. So
        // the next lock node may be granted by its number (docs/protocol.md#succession).
        session
            .nodes
            .gone(&path_lock.path.child(&head.lock), Gone::Deleted);
        let leases = &head.semaphore.leases;
        let grant = |(name, number): (String, HoldNumber)| {
            // The session counts the node, because it sends heartbeats while it has nodes.
            session.nodes.add(leases.child(&name), no_owner());
            let state = HoldState::new(name.into(), Kind::Exclusive).with_lease_end(lease_end);
            path_lock.shared.grant(NewLock {
                session,
                cleanup: &path_lock.client.cleanup,
                directory: leases.clone(),
                number,
                state,
                // ZooKeeper 3.8.0 does not report the zxid of a lease, which a transaction creates
                // (ZOOKEEPER-4026), and tokens have to rise in the order of the queue.
                token: (head.czxid, 0),
                how,
                location: ask.location,
            })
        };
        let grants = names
            .into_iter()
            .zip(self.attempt.number.holds(self.attempt.wanted))
            .map(grant)
            .collect();
        self.unowned = Orphans::default();
        self.end_leases(Orphans::default());
        self.attempt.saw_ahead(None);
        self.attempt.progress.set_waits_for(WaitsFor::Renewal);
        // Permits, like locks, are not granted in doubt. Heartbeats check the leases from now on,
        // so no second look is needed after this wait (docs/protocol.md#suspended). If the wait
        // ends without a renewal, the drop of `grants` releases the permits.
        self.wait(session.lease.until_valid()).await?;
        Ok(grants)
    }

    /// Returns how the attempt ends without permits. The last request was about `directory`.
    fn no_permits(
        &mut self,
        semaphore: &SemaphoreOptions,
        directory: &LockPath,
        why: NoPermits,
    ) -> End {
        let path_lock = self.context.path_lock;
        End::from(match why {
            NoPermits::Other(why) => return self.not_granted(directory, why),
            NoPermits::TooMany { limit } => {
                let (path, asked) = (path_lock.path.user().to_owned(), self.attempt.wanted);
                AcquireError::TooManyPermits { path, asked, limit }
            }
            NoPermits::LimitMismatch { theirs, lease } => {
                mismatch(path_lock, semaphore, theirs, &lease).into()
            }
            NoPermits::InvalidLimit { found } => invalid(path_lock, semaphore, found).into(),
        })
    }
}

impl From<Answer<()>> for PermitsEvent {
    /// Returns the event of a watch.
    fn from(meaning: Answer<()>) -> Self {
        match meaning {
            Answer::Is(()) => Self::WaitOver,
            Answer::No(failure) => Self::WatchFailed(failure),
        }
    }
}

/// Waits until a node of this session is known to be gone. No heartbeat checks the node of a
/// waiter, so this function reads it as often as a heartbeat would
/// (docs/protocol.md#semaphore-queue).
async fn until_deleted(session: &Session, path: &str, check: &mut LockNodeCheck) {
    loop {
        tokio::time::sleep_until(check.at.into()).await;
        let stat = session.request(|handle| async move { handle.check_stat(path).await });
        // If the wait ends while this request is under way, the next wait sends it again.
        let stat = stat.await;
        check.at = Instant::now() + session.lease.rule.heartbeat_interval();
        match stat {
            Ok(Ok(None)) => return,
            Ok(Ok(Some(_))) => check.has_outlasted_wait = true,
            // Without an answer the next round asks again.
            Ok(Err(_)) | Err(SessionGone) => {}
        }
    }
}

/// Returns an error if enough permits would be free without the leases of this client that the
/// servers refuse to delete, after asking for their deletion once more
/// (docs/protocol.md#refused-orphan).
async fn refused_orphan_error(
    path_lock: &PathLock,
    semaphore: &SemaphoreOptions,
    session: &Session,
    wanted: u32,
    seen: &Seen,
) -> Option<AcquireError> {
    let mut orphans = session.nodes.refused_orphans(Some(&semaphore.leases));
    orphans.retain(|orphan| seen.leases.contains(&orphan.name));
    let others = seen.leases.len().saturating_sub(orphans.len());
    if orphans.is_empty() || free(seen.limit(semaphore.permits), others) < wanted {
        return None;
    }
    refused_again(path_lock, session, orphans).await
}

/// Sends the transaction that creates the leases and deletes the lock node. Returns its outcome
/// and, for an error, the directory or the node that was refused. The leases are created first, so
/// that a server that applies one operation after the other does not show too few of them to the
/// next head.
async fn exchange<'a>(
    path_lock: &'a PathLock,
    semaphore: &'a SemaphoreOptions,
    session: &Arc<Session>,
    lock: &str,
    take: &Take,
    ids: Vec<String>,
) -> (PermitsEvent, &'a LockPath) {
    let beginnings = ids
        .iter()
        .zip(&take.slots)
        .map(|(id, slot)| lease_beginning(id, *slot, take.limit));
    let leases: Vec<String> = beginnings
        .map(|beginning| semaphore.leases.child(&beginning))
        .collect();
    let acls = to_library(&path_lock.options.acl);
    let options = zk::CreateMode::EphemeralSequential.with_acls(zk::Acls::new(&acls));
    let lock = path_lock.path.child(lock);
    let (leases, options, lock, data) = (&leases, &options, &lock, &path_lock.node_data());
    let committed = session.request(|handle| async move {
        let put = |writer: &mut zk::MultiWriter<'_>| {
            leases
                .iter()
                .try_for_each(|lease| writer.add_create(lease, data, options))?;
            writer.add_delete(lock, None)?;
            let version = take.limit_version;
            version.map_or(Ok(()), |version| {
                writer.add_check_version(semaphore.limit.server(), version)
            })
        };
        let operations = leases.len() + 1 + usize::from(take.limit_version.is_some());
        session.commit(&handle, operations, put).await
    });
    let mut directory = &semaphore.leases;
    let outcome = match committed.await {
        Err(SessionGone) => Taken::Failed(FailureKind::SessionGone.into()),
        Ok(Ok(results)) => taken(leases, results),
        Ok(Err(zk::MultiWriteError::RequestFailed { source })) => {
            Taken::Failed(session.failure(source))
        }
        Ok(Err(zk::MultiWriteError::OperationFailed { index, source })) => {
            // The operations are the leases, the lock node and, if there is one, the node with the
            // limit.
            let of_lock = index == leases.len();
            if of_lock {
                directory = &path_lock.path;
            } else if index > leases.len() {
                directory = &semaphore.limit;
            }
            match source {
                zk::Error::NoNode if of_lock => Taken::LockGone,
                // The limit was changed or deleted since the look, so the head has to look again.
                zk::Error::NoNode | zk::Error::BadVersion if index > leases.len() => {
                    Taken::LimitChanged
                }
                zk::Error::NoNode => Taken::NoDirectory,
                source => Taken::Failed(session.failure(source)),
            }
        }
    };
    let may_be_done = match &outcome {
        Taken::Done { .. } => true,
        Taken::Failed(failure) => failure.kind == FailureKind::Unknown,
        Taken::LockGone | Taken::LimitChanged | Taken::NoDirectory => false,
    };
    // After a definite refusal there is no lease, so the reserved room is free again. After the end
    // of the session, the count is frozen (`Creates::freeze`).
    if !may_be_done {
        ids.iter().for_each(|id| session.nodes.creates.end(id));
    }
    (PermitsEvent::Taken { ids, outcome }, directory)
}

/// Returns the leases of a committed transaction.
fn taken(leases: &[String], results: Vec<zk::MultiWriteResult>) -> Taken {
    let mut names = Vec::with_capacity(leases.len());
    for result in results {
        let zk::MultiWriteResult::Create { path, .. } = result else {
            continue;
        };
        let Some((_, name)) = path.rsplit_once('/') else {
            continue;
        };
        names.push(name.to_owned());
    }
    if names.len() != leases.len() {
        // Not expected. The transaction was committed, and a list will show its leases by their
        // ids.
        return Taken::Failed(Failure::from(FailureKind::Unknown));
    }
    Taken::Done { names }
}

/// The owner of a lease: no contender waits for it in memory.
fn no_owner() -> Weak<dyn NodeOwner> {
    Weak::<SharedQueue>::new()
}
