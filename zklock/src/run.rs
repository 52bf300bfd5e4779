//! Running a command under a lock.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::sync::{oneshot, watch};
use zookeeper_recipes::{
    AnyGuard, Client, Guard, InterProcessFairLock, InterProcessLock, InterProcessMutex,
    InterProcessReadWriteLock, InterProcessSemaphore, LockState, Lost, LostReason, OnceError,
    OnceJob, OnceOutcome, OnceRun, ReleaseError, SemaphorePermit, Token,
};

use crate::clock;
use crate::connect::{close, connect};
use crate::exit::{self, BUSY, End, Failure, LOST, UNREACHABLE};
use crate::job::{Ended, HeldLock, Job, Session, Variable};
use crate::look::of_holder;
use crate::messages::say;
use crate::options::{Lead, OnLost, Run, Work};
use crate::signals::Signals;

/// How long `zklock` waits for the answer to a release.
const LAST_ANSWER: Duration = Duration::from_secs(1);

/// What a command finds in its environment, and a hold without a command prints.
type Environment = [Variable; 4];

/// A lock of the kind that was asked for.
enum Asked {
    Lock(Box<dyn InterProcessLock>),
    Permit(InterProcessSemaphore),
}

/// The guard of a lock of either kind.
enum Granted {
    Lock(AnyGuard),
    Permit(SemaphorePermit),
}

/// What is done under a lock.
struct Task<'a> {
    client: &'a Client,
    work: &'a Work,
    argv: &'a [OsString],
    lease: Option<Duration>,
}

/// How a hold ended.
enum Outcome {
    Ended(End),
    Lost(Failure),
}

/// Runs a command under a lock, or holds the lock.
pub(crate) async fn run(options: &Run) -> Result<End, Failure> {
    let mut signals = catch()?;
    let client = match or_signal(&mut signals, connect(&options.connection)).await {
        Ok(client) => client?,
        Err(signal) => return Ok(exit::by_signal(signal)),
    };
    let path = options.path.as_deref().unwrap_or_default();
    let result = match &options.once {
        Some(occasion) => once(&client, path, occasion, options, &mut signals).await,
        None => locked(&client, path, options, &mut signals).await,
    };
    let is_answered = close(&client).await;
    match result {
        // The servers may have been silent for most of the wait, in which the lock was free.
        Err(busy) if busy.code == BUSY && !is_answered => Err(Failure::new(
            UNREACHABLE,
            format!("no server answers; as far as is known, {}", busy.text),
        )),
        Err(busy) if busy.code == BUSY && options.conflict_exit_code == 0 => {
            options.work.say(&busy.text);
            Ok(End::Code(0))
        }
        Err(busy) if busy.code == BUSY => Err(Failure {
            code: options.conflict_exit_code,
            ..busy
        }),
        result => result,
    }
}

/// Runs a command in each term of this process as the leader.
pub(crate) async fn lead(options: &Lead) -> Result<End, Failure> {
    let mut signals = catch()?;
    let client = match or_signal(&mut signals, connect(&options.connection)).await {
        Ok(client) => client?,
        Err(signal) => return Ok(exit::by_signal(signal)),
    };
    let result = terms(&client, options, &mut signals).await;
    close(&client).await;
    result
}

async fn terms(client: &Client, options: &Lead, signals: &mut Signals) -> Result<End, Failure> {
    let asked = Asked::Lock(Box::new(InterProcessMutex::new(client, &options.path)?));
    let task = Task {
        client,
        work: &options.work,
        argv: &options.command,
        lease: None,
    };
    loop {
        let entry = asked.enter(client, &options.path, Duration::MAX, &options.work);
        let granted = match or_signal(signals, entry).await {
            Ok(granted) => granted?,
            Err(signal) => return Ok(exit::by_signal(signal)),
        };
        signals.forget();
        match granted.hold(&options.path, &task, signals).await? {
            Outcome::Ended(end) => return Ok(end),
            Outcome::Lost(failure) => say(&failure.text),
        }
        // The signal may have come while the command of the lost term was ended.
        if let Some(signal) = signals.asked_to_end() {
            return Ok(exit::by_signal(signal));
        }
    }
}

fn catch() -> Result<Signals, Failure> {
    Signals::to_pass_on().map_err(|error| Failure::system("signals cannot be caught", &error))
}

/// Waits for a future, or for a signal to end it.
async fn or_signal<T>(signals: &mut Signals, future: impl Future<Output = T>) -> Result<T, Signal> {
    tokio::select! {
        biased;
        output = future => Ok(output),
        signal = signals.next() => Err(signal),
    }
}

async fn locked(
    client: &Client,
    path: &str,
    options: &Run,
    signals: &mut Signals,
) -> Result<End, Failure> {
    let asked = Asked::new(client, path, options)?;
    let started = Instant::now();
    let wait = if options.nonblock {
        Duration::ZERO
    } else {
        options.wait.unwrap_or(Duration::MAX)
    };
    let entry = asked.enter(client, path, wait, &options.work);
    let granted = match or_signal(signals, entry).await {
        Ok(granted) => granted?,
        Err(signal) => return Ok(exit::by_signal(signal)),
    };
    options.work.say(&format!(
        "granted after {:?}: {}",
        started.elapsed(),
        granted.node()
    ));
    let task = Task {
        client,
        work: &options.work,
        argv: &options.command,
        lease: options.lease,
    };
    match granted.hold(path, &task, signals).await? {
        Outcome::Ended(end) => Ok(end),
        Outcome::Lost(failure) => Err(failure),
    }
}

impl Asked {
    fn new(client: &Client, path: &str, options: &Run) -> Result<Self, Failure> {
        let lock: Box<dyn InterProcessLock> = match options.permits {
            Some(limit) => {
                return Ok(Self::Permit(InterProcessSemaphore::new(
                    client, path, limit,
                )?));
            }
            None if options.shared => {
                Box::new(InterProcessReadWriteLock::new(client, path)?.read_lock())
            }
            None if options.exclusive => {
                Box::new(InterProcessReadWriteLock::new(client, path)?.write_lock())
            }
            None if options.fair => Box::new(InterProcessFairLock::new(client, path)?),
            None => Box::new(InterProcessMutex::new(client, path)?),
        };
        Ok(Self::Lock(lock))
    }

    /// Acquires the lock, if no lock of a kind that it does not exclude is at its path.
    async fn enter(
        &self,
        client: &Client,
        path: &str,
        wait: Duration,
        work: &Work,
    ) -> Result<Granted, Failure> {
        let granted = self.acquire_aloud(wait, work).await?;
        self.refuse_other_kind(client, path).await?;
        Ok(granted)
    }

    /// Returns an error if permits meet another kind of lock: their nodes are in other directories,
    /// so that neither waits for the other. Once this one is granted, as here, at least one of two
    /// that are granted at the same time sees the other.
    async fn refuse_other_kind(&self, client: &Client, path: &str) -> Result<(), Failure> {
        let others = match self {
            // The limit does not matter to a look.
            Self::Lock(_) => {
                InterProcessSemaphore::new(client, path, 1)?
                    .holders()
                    .await?
            }
            Self::Permit(_) => InterProcessMutex::new(client, path)?.holders().await?,
        };
        match others.first() {
            None => Ok(()),
            Some(other) => Err(Failure::new(
                exit::USAGE,
                format!(
                    "the path {path:?} is in use by another kind of lock, held by {}: use a path of its own for \
                     each kind",
                    of_holder(other)
                ),
            )),
        }
    }

    /// Acquires the lock. If it is not free and people have asked for more words, says who holds
    /// it.
    async fn acquire_aloud(&self, wait: Duration, work: &Work) -> Result<Granted, Failure> {
        if work.verbose && !wait.is_zero() {
            match self.acquire(Duration::ZERO).await {
                Ok(granted) => return Ok(granted),
                Err(busy) if busy.code == BUSY => work.say(&format!("waits: {}", busy.text)),
                // The call that follows, which waits longer, reports the error.
                Err(_) => {}
            }
        }
        self.acquire(wait).await
    }

    async fn acquire(&self, wait: Duration) -> Result<Granted, Failure> {
        Ok(match self {
            Self::Lock(lock) if wait.is_zero() => Granted::Lock(lock.try_lock().await?),
            Self::Lock(lock) => Granted::Lock(lock.acquire(wait).await?),
            Self::Permit(semaphore) if wait.is_zero() => {
                Granted::Permit(semaphore.try_acquire().await?)
            }
            Self::Permit(semaphore) => Granted::Permit(semaphore.acquire(wait).await?),
        })
    }
}

impl Granted {
    fn node(&self) -> String {
        match self {
            Self::Lock(guard) => guard.node().to_string(),
            Self::Permit(permit) => permit
                .nodes()
                .first()
                .map(ToString::to_string)
                .unwrap_or_default(),
        }
    }

    fn environment(&self, path: &str) -> Environment {
        let (token, slot) = match self {
            Self::Lock(guard) => match guard.fencing_token() {
                Token::Write(token) => (token.to_string(), None),
                Token::Read(token) => (token.to_string(), None),
            },
            Self::Permit(permit) => (
                permit.fencing_token().to_string(),
                Some(permit.slot().to_string()),
            ),
        };
        environment(path, Some(self.node()), token, slot)
    }

    async fn hold(
        self,
        path: &str,
        task: &Task<'_>,
        signals: &mut Signals,
    ) -> Result<Outcome, Failure> {
        let environment = self.environment(path);
        match self {
            Self::Lock(guard) => task.hold(guard, &environment, signals).await,
            Self::Permit(permit) => task.hold(permit, &environment, signals).await,
        }
    }
}

fn environment(
    path: &str,
    node: Option<String>,
    token: String,
    slot: Option<String>,
) -> Environment {
    let path = Some(path.to_owned());
    [
        ("ZKLOCK_PATH", path),
        ("ZKLOCK_NODE", node),
        ("ZKLOCK_TOKEN", Some(token)),
        ("ZKLOCK_SLOT", slot),
    ]
}

impl Task<'_> {
    async fn hold<G: Guard>(
        &self,
        guard: G,
        environment: &Environment,
        signals: &mut Signals,
    ) -> Result<Outcome, Failure> {
        if self.argv.is_empty() {
            return self.only_hold(guard, environment, signals).await;
        }
        let state = || guard.state();
        let held = self.held(&state, environment);
        let session = held.session;
        let (mut job, is_revoked) = (None, AtomicBool::new(false));
        let revoked = async {
            guard.revoked().await;
            is_revoked.store(true, Ordering::Relaxed);
        };
        let running = Job::run(&mut job, self.argv, self.work, &held, signals, revoked);
        let outcome = match guard.while_held(running).await {
            Ok(ended) => {
                let ended = Job::finish(&mut job, ended?, signals).await?;
                match ended.outcome() {
                    // A candidate contends again, as after a loss.
                    Err(failure) if matches!(ended, Ended::Overdue) => Ok(Outcome::Lost(failure)),
                    Ok(end) => match taken_from(guard, session).await {
                        Some(lost) => self.end_without(&lost, end),
                        None => Ok(Outcome::Ended(end)),
                    },
                    Err(failure) => Err(failure),
                }
            }
            // The guard is dropped once the command is dead: until then the node of the lock stays.
            Err(lost) => self.lose(&lost, job, environment, signals).await,
        };
        match outcome? {
            // A candidate that was asked for the lock does not contend again.
            Outcome::Lost(failure) if is_revoked.into_inner() => Err(failure),
            outcome => Ok(outcome),
        }
    }

    /// What a job needs to know of the lock, which is not lost.
    fn held<'a>(
        &self,
        state: &'a (dyn Fn() -> LockState + Sync),
        environment: &'a Environment,
    ) -> HeldLock<'a> {
        HeldLock {
            // Without a session the lock is lost, and there is no time.
            session: Session(self.client.session_timeout().unwrap_or_default()),
            state,
            lease: self.lease,
            is_killed_by_drop: false,
            environment,
        }
    }

    async fn lose(
        &self,
        lost: &Lost,
        job: Option<Job>,
        environment: &Environment,
        signals: &mut Signals,
    ) -> Result<Outcome, Failure> {
        let Some(job) = job else {
            return Ok(Outcome::Lost(Failure::new(LOST, lost.to_string())));
        };
        self.work.say(&lost.to_string());
        let went_on = job.lose(lost, self.work, environment, signals).await?;
        // The reason is told once: at the loss, to people who have asked for that, or now.
        let why = if self.work.verbose {
            String::new()
        } else {
            format!(": {lost}")
        };
        match went_on {
            Some(status) => {
                say(&format!("the command went on after the loss{why}"));
                Ok(Outcome::Ended(exit::of_status(status)))
            }
            None => {
                let text = format!("the command was ended after the loss{why}");
                Ok(Outcome::Lost(Failure::new(LOST, text)))
            }
        }
    }

    /// The end of a command whose lock was taken away before, without notice.
    fn end_without(&self, lost: &Lost, end: End) -> Result<Outcome, Failure> {
        let text = format!(
            "{lost}; the command ended before that was noticed, so another process may have had the lock too"
        );
        if matches!(self.work.on_lost, OnLost::Warn) {
            say(&text);
            return Ok(Outcome::Ended(end));
        }
        Err(Failure::new(LOST, text))
    }

    /// Holds the lock until a signal or a request ends that.
    async fn only_hold<G: Guard>(
        &self,
        guard: G,
        environment: &Environment,
        signals: &mut Signals,
    ) -> Result<Outcome, Failure> {
        let no_thread = |error| Failure::system("the thread for standard output", &error);
        let unprinted = print(environment.clone()).map_err(no_thread)?;
        tokio::select! {
            biased;
            lost = guard.lost() => return Ok(Outcome::Lost(Failure::new(LOST, lost.to_string()))),
            error = unprinted => return Err(Failure::output(&error)),
            signal = signals.next() => return Ok(Outcome::Ended(exit::by_signal(signal))),
            () = guard.revoked() => self.work.say("another process asks for the lock"),
            () = crate::job::lease_over(self.lease) => self.work.say("the lease is over"),
        }
        Ok(Outcome::Ended(End::Code(0)))
    }
}

/// Releases a lock. Returns the loss if another process had taken the lock away: a command may end
/// before the guard has noticed.
async fn taken_from(guard: impl Guard, session: Session) -> Option<Lost> {
    // The clock is read first: a pause between the two does not make the session last longer.
    let now = clock::now();
    let state = guard.state();
    let lasts_until = session.deadline(now, state);
    // The release continues if the time is over, and nothing is known then.
    let released = tokio::time::timeout(LAST_ANSWER, guard.release()).await;
    let Ok(Err(ReleaseError::Lost(lost))) = released else {
        return None;
    };
    let is_taken = match lost.reason() {
        LostReason::NodeDeleted => true,
        // The servers let no session expire that early by themselves. Later, the session may have
        // lasted until the command had ended.
        LostReason::SessionExpired | LostReason::SessionReplaced => {
            clock::now() < lasts_until || matches!(state, LockState::Lost(_))
        }
        _ => false,
    };
    is_taken.then_some(lost)
}

/// Prints an environment, in a thread: a pipe that is full blocks that thread alone. The returned
/// future resolves if that fails.
fn print(environment: Environment) -> io::Result<impl Future<Output = io::Error>> {
    let (failed, failure) = oneshot::channel();
    let print = move || {
        let lines = environment.into_iter().filter_map(|(name, value)| {
            let value = value?;
            Some(format!("{name}={value}\n"))
        });
        let mut out = io::stdout().lock();
        let text: String = lines.collect();
        if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            // The receiver is gone if the hold has ended.
            let _ = failed.send(error);
        }
    };
    std::thread::Builder::new()
        .name("output".to_owned())
        .spawn(print)?;
    Ok(async {
        match failure.await {
            Ok(error) => error,
            Err(_) => std::future::pending().await,
        }
    })
}

/// Runs a command once for an occasion.
async fn once(
    client: &Client,
    path: &str,
    occasion: &str,
    options: &Run,
    signals: &mut Signals,
) -> Result<End, Failure> {
    let mut once = OnceJob::new(client, path, occasion);
    if let Some(wait) = options
        .wait
        .or_else(|| options.nonblock.then_some(Duration::ZERO))
    {
        once = once.wait(wait);
    }
    let task = Task {
        client,
        work: &options.work,
        argv: &options.command,
        lease: options.lease,
    };
    let (progress, mut left) = (watch::Sender::new(Progress::Waits), Left::default());
    let mut outside = catch()?;
    let outcome = {
        let run = once.run(|run| task.run_once(path, run, &progress, &mut left, signals));
        let mut run = std::pin::pin!(run);
        tokio::select! {
            biased;
            outcome = &mut run => Some(outcome),
            (signal, progress) = next_outside(&progress, &mut outside) => match progress {
                Progress::Waits => return Ok(exit::by_signal(signal)),
                // The record may be on its way.
                _ => tokio::time::timeout(LAST_ANSWER, run).await.ok(),
            },
        }
    };
    if let Some(job) = left.job {
        // The command was killed when the lock was lost.
        job.kill(&mut outside).await?;
    }
    match (outcome, left.end) {
        (Some(Ok(OnceOutcome::AlreadyRun { by, .. })), Some(_)) => {
            let text = format!(
                "the command succeeded, but the lock was lost before that was recorded for {occasion}, and another \
                 process has run it, too: {by}"
            );
            Err(Failure::new(LOST, text))
        }
        (Some(Ok(OnceOutcome::AlreadyRun { .. })), None) => {
            options.work.say(&format!("it has run for {occasion}"));
            Ok(End::Code(0))
        }
        (Some(Ok(_)), _) => Ok(End::Code(0)),
        // A signal has ended the wait for the record.
        (None, Some(Ok(End::Code(0))) | None) => {
            let text = format!(
                "the command succeeded, and a signal came before that was known to be recorded for {occasion}: it \
                 may run again"
            );
            Err(Failure::new(UNREACHABLE, text))
        }
        // The lock was lost when the command had ended.
        (Some(Err(OnceError::Lost(lost))), Some(Ok(End::Code(0)))) => {
            let text = format!(
                "the command succeeded, and that is not recorded for {occasion}, so it will run again: {lost}"
            );
            Err(Failure::new(UNREACHABLE, text))
        }
        (None | Some(Err(OnceError::Failed { .. } | OnceError::Lost(_))), Some(end)) => end,
        (Some(Err(error)), _) => Err(error.into()),
    }
}

/// How far a job that runs once has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Waits,
    Runs,
    HasRun,
}

/// What a job that runs once leaves, also if its future is dropped because the lock is lost.
#[derive(Default)]
struct Left {
    /// The command that was running.
    job: Option<Job>,
    /// How the command has ended.
    end: Option<Result<End, Failure>>,
}

/// Waits for a signal before the command runs, which gets them itself meanwhile, or after that.
async fn next_outside(
    progress: &watch::Sender<Progress>,
    signals: &mut Signals,
) -> (Signal, Progress) {
    loop {
        let signal = signals.next().await;
        let progress = *progress.borrow();
        if progress != Progress::Runs {
            return (signal, progress);
        }
    }
}

impl Task<'_> {
    /// Runs the command. If it fails, it is not recorded.
    async fn run_once(
        &self,
        path: &str,
        run: OnceRun,
        progress: &watch::Sender<Progress>,
        left: &mut Left,
        signals: &mut Signals,
    ) -> Result<(), &'static str> {
        progress.send_replace(Progress::Runs);
        let environment = environment(path, None, run.fencing_token().to_string(), None);
        let state = || run.state();
        let held = HeldLock {
            is_killed_by_drop: true,
            ..self.held(&state, &environment)
        };
        let place = &mut left.job;
        let mut ended = Job::run(place, self.argv, self.work, &held, signals, run.revoked()).await;
        if let Ok(known) = ended {
            // The end counts also if the lock is lost meanwhile.
            left.end = Some(known.outcome());
            if matches!(known, Ended::Itself(_)) {
                progress.send_replace(Progress::HasRun);
            }
            ended = Job::finish(place, known, signals).await;
        }
        progress.send_replace(Progress::HasRun);
        let end = ended.and_then(|ended| ended.outcome());
        let is_done = matches!(end, Ok(End::Code(0)));
        left.end = Some(end);
        is_done.then_some(()).ok_or("the command failed")
    }
}
