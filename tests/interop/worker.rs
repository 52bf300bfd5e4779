//! The workers of this crate: this test binary, started again as a worker.
//!
//! The workers of all languages have the same arguments and do the same; see [`Task`].

use std::env;
use std::io::BufRead as _;
use std::path::PathBuf;
use std::process::{self, ExitCode};
use std::sync::PoisonError;

use test_support::prelude::*;
use tokio::sync::Notify;

use super::Failure;
use super::journal::{Journal, read_counter, write_counter};

/// The first argument, which makes this binary a worker.
const WORKER: &str = "interop-worker";

/// The arguments of a worker process, in their order on the command line.
///
/// Each letter of `crew` is a thread: `x` acquires the lock exclusively, `r` to read, and `c`,
/// which only this crate has, also downgrades it; a digit acquires that many permits of a semaphore
/// at once. A thread repeats these steps: acquire, write `enter`, read the counter, let others run,
/// write the counter back under an exclusive lock, check that the lock is still held, write
/// `leave`, release. In some rounds it waits for a short time only and leaves the queue.
///
/// The line `stay P` on stdin makes the next holder that reaches the point `P` stay there
/// ([`points`]). The line `limit N` sets a semaphore's limit. The end of stdin ends the worker.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    pub(crate) servers: String,
    pub(crate) session_ms: u64,
    pub(crate) path: String,
    pub(crate) dir: PathBuf,
    pub(crate) name: String,
    pub(crate) recipe: String,
    pub(crate) crew: String,
}

/// The points at which an exclusive holder can stay to be killed: before and after each step.
pub(crate) const POINTS: [&str; 4] = ["entered", "intended", "written", "committed"];
/// The points of a read-write lock, at one of which a reader can stay.
const READ_WRITE_POINTS: [&str; 5] = ["entered", "reading", "intended", "written", "committed"];

/// The points of a holder of permits.
const PERMIT_POINTS: [&str; 2] = ["entered", "used"];

/// Returns the points at which the holders of a recipe can stay.
pub(crate) fn points(recipe: &str) -> &'static [&'static str] {
    match recipe {
        "read-write" | "kazoo-read-write" => &READ_WRITE_POINTS,
        permits if permits.contains("permits-") => &PERMIT_POINTS,
        _ => &POINTS,
    }
}

/// The timeout of a call.
const PATIENCE: Duration = Duration::from_secs(10);
/// The timeout of every ninth call, which mostly times out.
const IMPATIENCE: Duration = Duration::from_millis(4);
const IMPATIENT: usize = 9;
/// How long a writer among kazoo's readers pauses after each round; `workers.py` gives the reason.
const REST: Duration = Duration::from_millis(100);

impl Task {
    /// Returns the arguments of the worker.
    pub(crate) fn args(&self) -> [String; 7] {
        [
            self.servers.clone(),
            self.session_ms.to_string(),
            self.path.clone(),
            self.dir.to_string_lossy().into_owned(),
            self.name.clone(),
            self.recipe.clone(),
            self.crew.clone(),
        ]
    }

    /// Returns the command that starts this binary as the worker.
    pub(crate) fn command(&self) -> Result<process::Command, Failure> {
        let mut command = process::Command::new(env::current_exe()?);
        command.arg(WORKER).args(self.args());
        Ok(command)
    }

    fn from_args(mut args: impl Iterator<Item = String>) -> Option<Self> {
        Some(Self {
            servers: args.next()?,
            session_ms: args.next()?.parse().ok()?,
            path: args.next()?,
            dir: args.next()?.into(),
            name: args.next()?,
            recipe: args.next()?,
            crew: args.next()?,
        })
    }
}

/// Runs a worker if that is what the command line asks for.
pub(crate) fn run_if_asked() -> Option<ExitCode> {
    let mut args = env::args().skip(1);
    if args.next()? != WORKER {
        return None;
    }
    let task = Task::from_args(args);
    let done = task
        .ok_or_else(|| "not a worker's arguments".into())
        .and_then(|task| run(&task));
    Some(match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}: {e:?}");
            ExitCode::FAILURE
        }
    })
}

fn run(task: &Task) -> Result<(), Failure> {
    let orders = Orders::listen();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let journal = Arc::new(Journal::open(&task.dir)?);
        let builder = Client::builder()
            .session_timeout(Duration::from_millis(task.session_ms))
            .retry_policy(RetryPolicy::forever(Duration::from_millis(100)));
        let client = loop {
            match builder.clone().connect(&task.servers).await {
                Ok(client) => break client,
                // The machine is busy because all workers start at once.
                Err(e) if e.is_retryable() => {
                    journal.append(&format!("trouble {} {e:?}", task.name).replace('\n', " "))?;
                }
                Err(e) => return Err(e.into()),
            }
        };
        let mut threads = JoinSet::new();
        if let Some(limit) = limit(&task.recipe) {
            let semaphore = InterProcessSemaphore::new(&client, &task.path, limit)?;
            let orders = Arc::clone(&orders);
            tokio::spawn(set_limits(
                semaphore,
                orders,
                Arc::clone(&journal),
                task.name.clone(),
            ));
        }
        for (index, role) in task.crew.chars().enumerate() {
            let thread = Thread {
                name: format!("{}.{index}", task.name),
                client: client.clone(),
                lock: Lock::new(&client, task, role)?,
                dir: task.dir.clone(),
                journal: Arc::clone(&journal),
                orders: Arc::clone(&orders),
                round: 0,
                rests: task.recipe == "kazoo-read-write" && role != 'r',
            };
            threads.spawn(thread.run());
        }
        // The first failure ends the process, whatever the other threads do: the parent watches
        // processes.
        while let Some(ended) = threads.join_next().await {
            ended??;
        }
        client.close().await?;
        Ok(())
    })
}

/// The orders of the parent so far.
#[derive(Debug, Default)]
struct Orders {
    stay: Mutex<Option<String>>,
    limit: Mutex<Option<u32>>,
    ordered: Notify,
    stays: AtomicBool,
    enough: AtomicBool,
}

impl Orders {
    fn listen() -> Arc<Self> {
        let orders = Arc::new(Self::default());
        let heard = Arc::clone(&orders);
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines().map_while(Result::ok) {
                if let Some(point) = line.strip_prefix("stay ") {
                    *heard.stay.lock().unwrap_or_else(PoisonError::into_inner) =
                        Some(point.to_owned());
                }
                if let Some(limit) = line.strip_prefix("limit ") {
                    *heard.limit.lock().unwrap_or_else(PoisonError::into_inner) =
                        limit.parse().ok();
                    heard.ordered.notify_one();
                }
            }
            heard.enough.store(true, Ordering::Relaxed);
            if heard.stays.load(Ordering::Relaxed) {
                // The parent that would kill this process is gone.
                process::exit(2);
            }
        });
        orders
    }

    fn enough(&self) -> bool {
        self.enough.load(Ordering::Relaxed)
    }

    /// Returns whether a holder stays at this point; only one does.
    fn stay_at(&self, point: &str) -> bool {
        self.stay
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take_if(|p| p == point)
            .is_some()
    }
}

/// The limit of a recipe that has permits.
fn limit(recipe: &str) -> Option<u32> {
    recipe
        .strip_prefix("live-")
        .unwrap_or(recipe)
        .strip_prefix("permits-")?
        .parse()
        .ok()
}

/// Sets the limit whenever the parent says so.
async fn set_limits(
    semaphore: InterProcessSemaphore,
    orders: Arc<Orders>,
    journal: Arc<Journal>,
    name: String,
) -> Result<(), Failure> {
    loop {
        orders.ordered.notified().await;
        let limit = orders
            .limit
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(limit) = limit else { continue };
        let record = match semaphore.set_limit(limit).await {
            Ok(()) => format!("set {name} {limit}"),
            Err(e) => format!("trouble {name} {e:?}").replace('\n', " "),
        };
        journal.append(&record)?;
    }
}

/// A lock as the role uses it.
#[derive(Debug)]
enum Lock {
    Permits(InterProcessSemaphore, u32),
    /// The only permit of a semaphore.
    Permit(InterProcessSemaphore),
    Mutex(InterProcessMutex),
    Fair(InterProcessFairLock),
    Read(InterProcessReadLock),
    Write(InterProcessWriteLock),
    /// The writer and the reader take turns, with downgrades from one to the other.
    Both(InterProcessReadLock, InterProcessWriteLock),
    /// A multi-lock of the path and of a second path behind it.
    Multi(InterProcessMultiLock),
    /// No lock, for a run that must fail.
    None,
    /// No lock, and its holder fails.
    Fails,
}

impl Lock {
    fn new(client: &Client, task: &Task, role: char) -> Result<Self, Failure> {
        let (recipe, dialect) = match task.recipe.strip_prefix("kazoo-") {
            Some(recipe) => (recipe, Dialect::Kazoo),
            None => (&*task.recipe, Dialect::Curator),
        };
        let path = &task.path;
        let read_write = || {
            InterProcessReadWriteLock::builder(client, path)
                .dialect(dialect)
                .build()
        };
        if let (Some(limit), Some(count)) = (limit(recipe), role.to_digit(10)) {
            return Ok(Self::Permits(
                InterProcessSemaphore::new(client, path, limit)?,
                count,
            ));
        }
        Ok(match (recipe, role) {
            ("mutex", 'x') => Self::Mutex(
                InterProcessMutex::builder(client, path)
                    .dialect(dialect)
                    .build()?,
            ),
            ("fair", 'x') => Self::Fair(
                InterProcessFairLock::builder(client, path)
                    .dialect(dialect)
                    .build()?,
            ),
            ("read-write", 'x') => Self::Write(read_write()?.write_lock()),
            ("read-write", 'r') => Self::Read(read_write()?.read_lock()),
            ("read-write", 'c') => {
                Self::Both(read_write()?.read_lock(), read_write()?.write_lock())
            }
            ("semaphore-mutex", 'x') => Self::Permit(InterProcessSemaphore::new(client, path, 1)?),
            ("multi", 'x') => Self::Multi(InterProcessMultiLock::from_paths(
                client,
                [&format!("{path}-too"), path],
            )?),
            ("none", 'x') => Self::None,
            ("none", 'f') => Self::Fails,
            (recipe, role) => return Err(format!("no role {role} in {recipe}").into()),
        })
    }

    async fn acquire(&self, timeout: Duration, round: usize) -> Result<Option<Held>, AcquireError> {
        let held = match self {
            Self::Mutex(mutex) => mutex.acquire(timeout).await.map(Held::Guard),
            Self::Fair(fair) if round % 2 == 0 => fair.acquire(timeout).await.map(Held::Guard),
            Self::Fair(fair) => {
                // The caller keeps its place between two calls; dropping the place leaves the
                // queue.
                let mut place = fair.enqueue().await?;
                place.position().await?;
                match place.acquire(IMPATIENCE).await {
                    Err(AcquireError::TimedOut { .. }) => {
                        place.acquire(timeout).await.map(Held::Guard)
                    }
                    early => early.map(Held::Guard),
                }
            }
            Self::Both(read, _) if round % 2 == 0 => read.acquire(timeout).await.map(Held::Read),
            Self::Read(read) => read.acquire(timeout).await.map(Held::Read),
            Self::Both(_, write) | Self::Write(write) => {
                write.acquire(timeout).await.map(Held::Write)
            }
            Self::Permit(semaphore) => semaphore.acquire(timeout).await.map(Held::Permit),
            Self::Permits(semaphore, 1) => semaphore.acquire(timeout).await.map(Held::Permits),
            Self::Permits(semaphore, count) => semaphore
                .acquire_many(*count, timeout)
                .await
                .map(Held::Permits),
            Self::Multi(multi) => multi.acquire(timeout).await.map(Held::Multi),
            Self::None | Self::Fails => Ok(Held::Nothing),
        };
        Ok(Option::from(held.or_busy()?))
    }
}

#[derive(Debug)]
enum Held {
    Guard(LockGuard),
    Read(ReadGuard),
    Write(WriteGuard),
    Permits(SemaphorePermit),
    Permit(SemaphorePermit),
    Multi(MultiLockGuard),
    Nothing,
}

impl Held {
    fn is_exclusive(&self) -> bool {
        !matches!(self, Self::Read(_) | Self::Permits(_))
    }

    /// Returns the mode for the record `enter`.
    fn mode(&self) -> String {
        match self {
            Self::Read(_) => "r".to_owned(),
            Self::Permits(permits) => {
                let slots: Vec<_> = permits.slots().iter().map(u32::to_string).collect();
                format!("{}@{}", permits.num_permits(), slots.join(","))
            }
            _ => "x".to_owned(),
        }
    }

    fn token(&self) -> (i64, u64) {
        match self {
            Self::Guard(guard) => (
                guard.fencing_token().zxid(),
                guard.fencing_token().counter(),
            ),
            Self::Read(guard) => (
                guard.fencing_token().zxid(),
                guard.fencing_token().counter(),
            ),
            Self::Write(guard) => (
                guard.fencing_token().zxid(),
                guard.fencing_token().counter(),
            ),
            Self::Permits(guard) | Self::Permit(guard) => (
                guard.fencing_token().zxid(),
                guard.fencing_token().counter(),
            ),
            // The last guard is that of the path itself.
            Self::Multi(guard) => guard
                .fencing_tokens()
                .last()
                .map_or((0, 0), |token| (token.zxid(), token.counter())),
            Self::Nothing => (0, 0),
        }
    }

    fn is_held(&self) -> bool {
        match self {
            Self::Guard(guard) => guard.is_held(),
            Self::Read(guard) => guard.is_held(),
            Self::Write(guard) => guard.is_held(),
            Self::Permits(guard) | Self::Permit(guard) => guard.is_held(),
            Self::Multi(guard) => guard.is_held(),
            Self::Nothing => true,
        }
    }

    /// Waits until the lock is lost.
    async fn lost(&self) {
        let _lost = match self {
            Self::Guard(guard) => guard.lost().await,
            Self::Read(guard) => guard.lost().await,
            Self::Write(guard) => guard.lost().await,
            Self::Permits(guard) | Self::Permit(guard) => guard.lost().await,
            Self::Multi(guard) => guard.lost().await,
            Self::Nothing => std::future::pending().await,
        };
    }

    async fn release(self) -> Result<(), ReleaseError> {
        match self {
            Self::Guard(guard) => guard.release().await,
            Self::Read(guard) => guard.release().await,
            Self::Write(guard) => guard.release().await,
            Self::Permits(guard) | Self::Permit(guard) => guard.release().await,
            Self::Multi(guard) => guard.release().await,
            Self::Nothing => Ok(()),
        }
    }
}

/// A contender of a process.
#[derive(Debug)]
struct Thread {
    name: String,
    client: Client,
    lock: Lock,
    dir: PathBuf,
    journal: Arc<Journal>,
    orders: Arc<Orders>,
    round: usize,
    rests: bool,
}

impl Thread {
    async fn run(mut self) -> Result<(), Failure> {
        while !self.orders.enough() {
            self.round += 1;
            let impatient = self.round % IMPATIENT == 0;
            let patience = if impatient { IMPATIENCE } else { PATIENCE };
            if matches!(self.lock, Lock::Permits(..)) {
                self.note("asks", "")?;
            }
            match self.lock.acquire(patience, self.round).await {
                Ok(Some(held)) => self.hold(held).await?,
                Ok(None) => {}
                // The servers had no time to answer.
                Err(error) if impatient && error.kind() == Some(ErrorKind::Connection) => {}
                // For example, the session has ended: the next one begins with the next round.
                Err(e) => self.note("trouble", &format!("{e:?}").replace('\n', " "))?,
            }
            if self.rests {
                // The pause gives kazoo's readers, which wait for later writers too, their turn.
                tokio::time::sleep(REST).await;
            }
        }
        Ok(())
    }

    fn note(&self, what: &str, more: &str) -> Result<(), Failure> {
        let name = &self.name;
        Ok(self
            .journal
            .append(format!("{what} {name} {more}").trim_end())?)
    }

    async fn hold(&self, mut held: Held) -> Result<(), Failure> {
        if matches!(self.lock, Lock::Fails) {
            return Err("as it was told".into());
        }
        let mode = held.mode();
        let session = self.client.session_id().unwrap_or_default();
        let (czxid, holder) = held.token();
        self.note("enter", &format!("{mode} {czxid}.{holder} {session:#x}"))?;
        self.work(&held).await?;
        if matches!(self.lock, Lock::Both(..)) {
            held = self.downgrade(held).await?;
        }
        let kept = held.is_held();
        self.note(if kept { "leave" } else { "lost" }, "")?;
        if let Err(e) = held.release().await {
            self.note("trouble", &e.to_string())?;
        }
        Ok(())
    }

    /// Turns the hold into a reader's, if it is the writer's.
    async fn downgrade(&self, held: Held) -> Result<Held, Failure> {
        let token = held.token();
        let Held::Write(writer) = held else {
            return Ok(held);
        };
        // Other readers may hold the lock from now on.
        self.note("down", "")?;
        let reader = match writer.downgrade().await {
            Ok(reader) => Held::Read(reader),
            Err(e) => {
                self.note("trouble", &format!("{e:?}"))?;
                return Ok(Held::Write(e.into_guard()));
            }
        };
        // A reader that was the writer shows the writer's token.
        if reader.token() != token {
            return Err(format!("the token {token:?} became {:?}", reader.token()).into());
        }
        self.work(&reader).await?;
        Ok(reader)
    }

    async fn work(&self, held: &Held) -> Result<(), Failure> {
        if matches!(held, Held::Permits(_)) {
            self.may_stay(held, "entered").await?;
            // The hold is long enough for other readers to join, even if requests take longer than
            // usual.
            tokio::time::sleep(Duration::from_millis(30)).await;
            return self.may_stay(held, "used").await;
        }
        if held.is_exclusive() {
            self.increment(held).await
        } else {
            self.look(held).await
        }
    }

    async fn look(&self, held: &Held) -> Result<(), Failure> {
        self.note("read", &read_counter(&self.dir)?.to_string())?;
        self.may_stay(held, "reading").await?;
        let_others_run().await;
        self.note("read", &read_counter(&self.dir)?.to_string())
    }

    /// Increments the counter that the lock protects. Without the lock another worker's increment
    /// is lost sooner or later.
    async fn increment(&self, held: &Held) -> Result<(), Failure> {
        let value = read_counter(&self.dir)?;
        self.note("read", &value.to_string())?;
        self.may_stay(held, "entered").await?;
        self.note("intent", &(value + 1).to_string())?;
        self.may_stay(held, "intended").await?;
        let_others_run().await;
        write_counter(&self.dir, value + 1)?;
        self.may_stay(held, "written").await?;
        self.note("commit", &(value + 1).to_string())?;
        self.may_stay(held, "committed").await
    }

    /// A holder that stays does no more work, but still reports the loss of its lock. On a busy
    /// machine the loss may come before the kill, and the session may have other nodes for longer.
    async fn may_stay(&self, held: &Held, point: &str) -> Result<(), Failure> {
        if self.orders.stay_at(point) {
            self.orders.stays.store(true, Ordering::Relaxed);
            self.note("stays", point)?;
            held.lost().await;
            self.note("lost", "")?;
            std::future::pending::<()>().await;
        }
        Ok(())
    }
}

/// Simulates the work of a holder, which takes long enough for any other contender that believes
/// the lock to be free.
async fn let_others_run() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}
