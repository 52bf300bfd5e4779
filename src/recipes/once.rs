//! Jobs that run once per occasion (docs/protocol.md#once-record).
//!
//! `OnceJob::run` looks for the record of the occasion, acquires the lock of the job, and looks
//! again. Then it runs the job under the lock, and writes the record by a transaction, together
//! with the writes that the job has added. The record is final. Its requests are in `job_records`.
//!
//! After each step the lock may be lost, and another process may run the job. So a run that loses
//! the lock before its transaction, or gets no answer to it, looks for the record once more, and
//! reports what it finds.

use std::error::Error;
use std::fmt;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use crate::client::Client;
use crate::engine::acquisition::LockRef;
use crate::engine::data::job_records::{Recorded, Records};
use crate::engine::while_held::read::ReadNode;
use crate::error::{BuildError, LostReason, OnceError, TransactionError};
use crate::locks::guard::LockGuard;
use crate::locks::guard_set::revoked;
use crate::locks::mutex::InterProcessMutex;
use crate::locks::transaction::{Transaction, get_data};
use crate::protocol::hold::LockState;
use crate::protocol::once;
use crate::session::reports::log;
use crate::session::threads::mutex::Mutex;
use crate::values::path::LockPath;
use crate::values::shown::Quoted;
use crate::values::token::FencingToken;

/// How many records are kept by default.
const DEFAULT_KEEP: usize = 100;
/// How many records are kept at most: fewer than a call looks at to find the oldest.
const MAX_KEEP: usize = 1_000;

/// A job that runs once per occasion: exactly one of the processes that request it runs it.
///
/// `path` names the job, and the job runs once for each `occasion`: a day, an hour, the number of
/// an invoice run. All processes must compute the same name for an occasion. The name may come from
/// a clock, but nothing else does: neither the end of a run, nor the end of its lock. A process
/// whose clock is slow requests the same occasion later, and finds the record. No request is sent
/// before [`run`](Self::run).
///
/// # What is promised
/// - **Recorded at most once.** The record is committed in one transaction with a check of the
///   lock's node.
/// - **Run until it is recorded.** If a run fails, panics, loses the lock or ends with its process,
///   the next call runs the job, as does a call that is waiting.
/// - **Never two runs at once, while the lock is held.** The lock lasts as long as the job, and you
///   need not choose a timeout, because the lock ends with the session of its process. When the
///   lock is lost, the job is dropped, before another process runs it.
///
/// A run that was dropped, or that ended with its process, **may have done a part of its work**,
/// and a process that was paused may continue its run for a moment
/// ([`LockGuard`](crate::LockGuard#what-it-proves-and-what-it-does-not)). So a job either can be
/// repeated, or passes its [token](OnceRun::fencing_token) to the resource that it writes to, or
/// commits its writes to ZooKeeper [with the record](OnceRun::record_with), where they take effect
/// exactly once.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// # async fn send_report() -> std::io::Result<u32> { Ok(3) }
/// use zookeeper_recipes::{OnceJob, OnceOutcome};
///
/// let report = OnceJob::new(&client, "/jobs/report", "2026-11-22");
/// match report.run(|_| async { send_report().await }).await? {
///     OnceOutcome::Ran(mails) => println!("{mails} sent"),
///     OnceOutcome::AlreadyRun { by, .. } => println!("sent by {by}"),
/// }
///
/// // A second request for the same occasion.
/// let report = OnceJob::new(&client, "/jobs/report", "2026-11-22");
/// let outcome = report.run(|_| async { send_report().await }).await?;
/// assert!(matches!(outcome, OnceOutcome::AlreadyRun { .. }));
/// # Ok(())
/// # }
/// ```
///
/// # Layout
/// The lock is a mutex at `<path>/lock`, and the record of an occasion the persistent node
/// `<path>/done/<occasion>`, with one line: who ran it, and the token of the run. The occasion may
/// be any text; characters that are not allowed in a path are [escaped](crate::LockPath::segment).
#[derive(Clone)]
#[doc(alias = "cron")]
#[doc(alias = "scheduler")]
#[doc(alias = "ShedLock")]
#[doc(alias = "idempotency")]
#[must_use = "it does nothing until `run` is called"]
pub struct OnceJob {
    client: Client,
    path: String,
    occasion: String,
    keep: usize,
    wait: Option<Duration>,
}

/// The outcome of a call.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use std::time::SystemTime;
/// use zookeeper_recipes::{OnceJob, OnceOutcome};
///
/// let nightly = OnceJob::new(&client, "/jobs/nightly", "2026-11-22");
/// let rows = nightly.clone().run(|_| async { Ok::<_, String>(42) }).await?;
/// assert_eq!(rows, OnceOutcome::Ran(42));
/// if let OnceOutcome::AlreadyRun { by, at, .. } = nightly.run(|_| async { Ok::<_, String>(42) }).await? {
///     println!("by {by} at {:?}", SystemTime::UNIX_EPOCH + at);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnceOutcome<T> {
    /// This call ran the job, and the run is recorded. Contains the job's result.
    Ran(T),
    /// The job has been recorded for this occasion by another run. This call may have run the job
    /// too, and lost the lock before its run was recorded; the result of that run is dropped.
    #[non_exhaustive]
    AlreadyRun {
        /// The identity of the process that ran the job: `host/pid/name`, as in the
        /// [identity](crate::Identity) of a lock's holder.
        by: String,
        /// When it was recorded: the time since the beginning of 1970 (UTC) by the clock of the
        /// servers.
        at: Duration,
    },
}

impl<T> OnceOutcome<T> {
    /// Returns the outcome of a call that has found this record.
    fn already_run(record: &ReadNode) -> Self {
        let at = Duration::from_millis(record.ctime.try_into().unwrap_or(0));
        Self::AlreadyRun {
            by: once::by(&record.data),
            at,
        }
    }
}

impl OnceJob {
    /// Creates a job for an occasion. The arguments are not checked before [`run`](Self::run).
    ///
    /// `path` names the job; the occasion may be any text.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use std::time::Duration;
    /// use zookeeper_recipes::OnceJob;
    ///
    /// let hourly = OnceJob::new(&client, "/jobs/refresh", "2026-11-22T14").keep(48);
    /// hourly.wait(Duration::from_secs(60)).run(|_| async { Ok::<_, std::io::Error>(()) }).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(client: &Client, path: impl AsRef<str>, occasion: impl AsRef<str>) -> Self {
        Self {
            client: client.clone(),
            path: path.as_ref().to_owned(),
            occasion: occasion.as_ref().to_owned(),
            keep: DEFAULT_KEEP,
            wait: None,
        }
    }

    /// Sets the minimum number of records that are kept, which are those of the occasions that were
    /// recorded last. The number must be from 1 to 1,000, and is 100 by default.
    ///
    /// After a run has added a record, it deletes the oldest records if there are a quarter more
    /// than this number. The job runs again for an occasion whose record was deleted, so keep
    /// records for all occasions that may still be requested.
    pub fn keep(mut self, records: usize) -> Self {
        self.keep = records;
        self
    }

    /// Sets how long a call waits at most while another process has the lock, and probably runs the
    /// job; by default, until that process is done. When the time has passed, [`run`](Self::run)
    /// returns [`AcquireError::TimedOut`](crate::AcquireError::TimedOut) in [`OnceError::Acquire`].
    /// The run time of the job does not count. With zero, the call does not wait for others.
    pub fn wait(mut self, timeout: Duration) -> Self {
        self.wait = Some(timeout);
        self
    }

    /// Runs the job, unless it is recorded for the occasion, and records it.
    ///
    /// If another process has the lock, the call waits for the lock, and then finds the record, or
    /// runs the job. The job is dropped when the lock is lost. The record is committed before the
    /// call returns [`OnceOutcome::Ran`], even if a reply is lost. A call for a recorded occasion
    /// costs one request.
    ///
    /// # Panics
    /// If the job panics, the lock is released, nothing is recorded, and the panic is propagated.
    ///
    /// # Errors
    /// - [`OnceError::Failed`] with the job's error.
    /// - [`OnceError::Lost`] if the lock was lost, and the job dropped.
    /// - [`OnceError::Acquire`] if the time of [`wait`](Self::wait) has passed.
    /// - See [`OnceError`] for the other variants.
    ///
    /// # Cancel safety
    /// If the future is dropped, the job is dropped, and the lock is released in the background.
    /// Nothing is recorded, unless the job was done and the record was being written: then the job
    /// may or may not be recorded.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use zookeeper_recipes::{OnceJob, OnceOutcome};
    ///
    /// let nightly = OnceJob::new(&client, "/jobs/nightly", "2026-11-22");
    /// let outcome = nightly.run(|_| async { Ok::<_, std::io::Error>(42) });
    /// assert_eq!(outcome.await?, OnceOutcome::Ran(42));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run<T, E, F>(
        self,
        job: impl FnOnce(OnceRun) -> F,
    ) -> Result<OnceOutcome<T>, OnceError>
    where
        F: Future<Output = Result<T, E>>,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let (mutex, records) = self.parts()?;
        // A record is final, so a recorded occasion costs one read and no lock. A missing record
        // counts only under the lock, because this server may lag behind.
        if let Some(found) = records.find().await? {
            return Ok(OnceOutcome::already_run(&found));
        }
        let guard = match self.enter(&mutex, &records).await? {
            Ok(guard) => guard,
            Err(found) => return Ok(OnceOutcome::already_run(&found)),
        };
        let writes = Writes::default();
        let run = OnceRun {
            occasion: self.occasion.as_str().into(),
            token: guard.fencing_token(),
            hold: guard.hold().lock_ref(),
            writes: Arc::clone(&writes),
        };
        // If the lock is lost, the job is dropped. Its occasion is not recorded then, so another
        // run may follow.
        let output = match guard.while_held(job(run)).await?.map_err(Into::into) {
            Ok(output) => output,
            Err(error) => {
                release(guard).await;
                let (path, occasion) = (self.path, self.occasion);
                return Err(OnceError::Failed {
                    path,
                    occasion,
                    source: error.into(),
                });
            }
        };
        // The transaction checks the lock's node, so no other run can be between this job and its
        // record.
        let recorded = self.record(&records, &guard, &writes).await;
        if matches!(recorded, Recorded::Ours) {
            records.prune(&guard.hold().lock_ref(), self.keep).await;
        }
        // The release deletes the node, even if tasks of this client wait for the lock: a node is
        // not handed off while a write under it has an unknown outcome. So the next grant ends the
        // doubt.
        let token = guard.hold().token;
        release(guard).await;
        let (error, is_unknown) = match recorded {
            Recorded::Ours => return Ok(OnceOutcome::Ran(output)),
            Recorded::Another(found) => return Ok(OnceOutcome::already_run(&found)),
            // Another process may have been granted the lock, and may have recorded its run. The
            // read is behind a `sync`, because there is no lock that makes the read current.
            Recorded::No(error @ TransactionError::Lost(_)) => match records.find_synced().await {
                Ok(Some(found)) => return Ok(OnceOutcome::already_run(&found)),
                Ok(None) => (error, false),
                Err(_) => (error, true),
            },
            Recorded::No(error) => (error, false),
            // Under the next grant the outcome is certain, because the node on which the write
            // depends is deleted.
            Recorded::InDoubt(error) => match self.enter(&mutex, &records).await {
                Ok(Err(found)) if once::is_of(&found.data, token) => {
                    return Ok(OnceOutcome::Ran(output));
                }
                Ok(Err(found)) => return Ok(OnceOutcome::already_run(&found)),
                Ok(Ok(guard)) => {
                    release(guard).await;
                    (error, false)
                }
                Err(_) => (error, true),
            },
        };
        let (path, occasion, source) = (self.path, self.occasion, Box::new(error));
        Err(match is_unknown {
            true => OnceError::Unknown {
                path,
                occasion,
                source,
            },
            false => OnceError::NotRecorded {
                path,
                occasion,
                source,
            },
        })
    }

    /// Returns the lock and the records.
    fn parts(&self) -> Result<(InterProcessMutex, Records), BuildError> {
        if !(1..=MAX_KEEP).contains(&self.keep) {
            let (path, option) = (self.path.clone(), "keep");
            return Err(BuildError::InvalidOption {
                path,
                option,
                reason: "it is between 1 and 1,000",
            });
        }
        let namespace = &self.client.core.namespace;
        // If the given path is invalid, the error names it as it was given.
        LockPath::parse(namespace, &self.path)?;
        let directory = LockPath::parse(namespace, &format!("{}/done", self.path))?;
        let occasion = LockPath::segment(&self.occasion);
        let record = LockPath::parse(namespace, &format!("{}/done/{occasion}", self.path))?;
        let mutex = InterProcessMutex::new(&self.client, format!("{}/lock", self.path))?;
        Ok((
            mutex,
            Records {
                client: Arc::clone(&self.client.core),
                directory,
                record,
            },
        ))
    }

    /// Acquires the lock. Returns its guard, or the record if the job has been recorded in the
    /// meantime.
    async fn enter(
        &self,
        mutex: &InterProcessMutex,
        records: &Records,
    ) -> Result<Result<LockGuard, ReadNode>, OnceError> {
        let guard = match self.wait {
            Some(timeout) => mutex.acquire(timeout).await?,
            None => mutex.lock().await?,
        };
        let Some(found) = records.find_under(&guard.hold().lock_ref()).await? else {
            return Ok(Ok(guard));
        };
        release(guard).await;
        Ok(Err(found))
    }

    async fn record(&self, records: &Records, guard: &LockGuard, writes: &Writes) -> Recorded {
        // Writes that a task of the job adds after this are not recorded, because the job has
        // ended.
        let writes = mem::take(&mut *writes.lock());
        let transaction = writes
            .into_iter()
            .fold(guard.transaction(), |all, more| more(all));
        match transaction.checked() {
            Ok((_, operations)) => {
                let token = guard.hold().token;
                let data = once::record(&self.client.core.process.who, token);
                records
                    .write(&guard.hold().lock_ref(), operations, data, token)
                    .await
            }
            Err(error) => Recorded::No(error),
        }
    }
}

/// Releases the lock. The record does not depend on the outcome.
async fn release(guard: LockGuard) {
    if let Err(error) = guard.release().await {
        log::debug!(%error, "the lock of a job was lost before its release");
    }
}

/// A function that adds writes to the transaction of the record.
type AddWrites = Box<dyn for<'t> FnOnce(Transaction<'t>) -> Transaction<'t> + Send>;

/// The writes that are committed with the record.
type Writes = Arc<Mutex<Vec<AddWrites>>>;

/// A run of a job, which holds the lock; [`OnceJob::run`] passes it to the job.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::{OnceJob, OnceRun};
///
/// async fn report(run: OnceRun) -> std::io::Result<()> {
///     println!("the report of {}, with token {}", run.occasion(), run.fencing_token());
///     Ok(())
/// }
/// OnceJob::new(&client, "/jobs/report", "2026-11-22").run(report).await?;
/// # Ok(())
/// # }
/// ```
pub struct OnceRun {
    occasion: Arc<str>,
    token: FencingToken,
    hold: LockRef,
    writes: Writes,
}

impl OnceRun {
    /// Returns the occasion.
    #[must_use]
    pub fn occasion(&self) -> &str {
        &self.occasion
    }

    /// Returns the fencing token of the run, by which a resource can refuse late writes of an
    /// earlier run.
    ///
    /// See [`LockGuard::fencing_token`].
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.token
    }

    /// Returns the state of the job's lock: [`Lost`](LockState::Lost) once the lock is lost, or,
    /// with the reason [`GivenUp`](LostReason::GivenUp), once it is released because the job has
    /// ended.
    ///
    /// Each call reads the clock; see [`LockGuard::state`]. A job is dropped when its lock is lost,
    /// so the state is for code that may outlive the job: a process that the job has started, or
    /// another thread.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use zookeeper_recipes::{LockState, OnceJob};
    ///
    /// let report = OnceJob::new(&client, "/jobs/report", "2026-11-22");
    /// report.run(|run| async move {
    ///     assert_eq!(run.state(), LockState::Held);
    ///     Ok::<_, std::io::Error>(())
    /// }).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn state(&self) -> LockState {
        // The end of the hold is read first, so that a hold that has ended by then has a reason,
        // unless it was released.
        let is_over = self.hold.held.is_lost_or_released();
        match self.hold.state() {
            lost @ LockState::Lost(_) => lost,
            _ if is_over => LockState::Lost(LostReason::GivenUp),
            held => held,
        }
    }

    /// Returns a future that resolves when another process requests that the job's lock be
    /// released. The job decides whether to end; see [`LockGuard::revoked`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the watch ends. The next one resolves for the same request.
    pub fn revoked(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        revoked(&self.hold)
    }

    /// Reads a node, with the version of its data, for a write that depends on the data. Returns
    /// `None` if there is no such node.
    ///
    /// See [`LockGuard::get_data`].
    ///
    /// # Errors
    /// [`TransactionError::Lost`] if the lock is lost; see [`TransactionError`] for the other
    /// variants.
    ///
    /// # Cancel safety
    /// Cancel safe: this only reads.
    pub async fn get_data(
        &self,
        path: impl AsRef<str>,
    ) -> Result<Option<(Vec<u8>, i32)>, TransactionError> {
        get_data(&[&self.hold], path.as_ref()).await
    }

    /// Commits writes to ZooKeeper in the transaction of the record. They take effect if, and only
    /// if, this run is recorded, and so exactly once.
    ///
    /// The closure adds the writes after the job has returned `Ok`. If the servers refuse a write,
    /// the job is not recorded either, and [`OnceError::NotRecorded`] names that write.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # server.create("/accounts/7", b"100")?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use zookeeper_recipes::{OnceJob, OnceRun};
    ///
    /// type BoxError = Box<dyn std::error::Error + Send + Sync>;
    ///
    /// async fn pay_interest(run: OnceRun) -> Result<(), BoxError> {
    ///     let (balance, version) = run.get_data("/accounts/7").await?.ok_or("there is no such account")?;
    ///     let paid = String::from_utf8(balance)?.parse::<u64>()? + 1;
    ///     run.record_with(move |writes| writes.set_data("/accounts/7", paid.to_string(), version));
    ///     Ok(())
    /// }
    /// for _ in 0..2 {
    ///     OnceJob::new(&client, "/jobs/interest", "2026-11-22").run(pay_interest).await?;
    /// }
    /// # assert_eq!(server.node("/accounts/7").unwrap().data, b"101");
    /// # Ok(())
    /// # }
    /// ```
    pub fn record_with(
        &self,
        writes: impl for<'t> FnOnce(Transaction<'t>) -> Transaction<'t> + Send + 'static,
    ) {
        self.writes.lock().push(Box::new(writes));
    }
}

impl fmt::Debug for OnceRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let writes = self.writes.lock().len();
        let (occasion, token) = (Quoted(&self.occasion), self.token);
        write!(
            f,
            "OnceRun {{ occasion: {occasion}, token: {token}, writes: {writes} }}"
        )
    }
}

impl fmt::Debug for OnceJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "OnceJob({}, {})",
            Quoted(&self.path),
            Quoted(&self.occasion)
        )
    }
}
