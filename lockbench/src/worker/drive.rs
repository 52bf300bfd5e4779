//! A round of a contender in Rust: tasks that acquire and release until the time is over.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};
use tokio::task::JoinSet;
use tokio::time::sleep;
use zookeeper_client::{Acls, CreateMode};

use super::counter::Counters;
use crate::Error;
use crate::job::{Done, Job, Latency, Objects, Release};

/// How many histograms the tasks of a round share.
const SHARDS: usize = 16;
/// No latency is longer; in nanoseconds.
const LONGEST: u64 = 600_000_000_000;

/// A session of a kind of lock.
pub(crate) trait Contender: Sized + Send + Sync + 'static {
    /// The handle of a task.
    type Lock: Send + Sync + 'static;
    /// The guard of a task that holds the lock.
    type Guard: Send;

    /// Opens a session.
    fn connect(job: &Job) -> impl Future<Output = Result<Self, Error>> + Send;
    /// Makes the lock object of a path, and what it needs on the servers.
    fn lock(&self, job: &Job, path: &str)
    -> impl Future<Output = Result<Self::Lock, Error>> + Send;
    /// Acquires the lock, shared with other readers if it is for reading.
    fn acquire(
        &self,
        lock: &Self::Lock,
        reading: bool,
    ) -> impl Future<Output = Result<Self::Guard, Error>> + Send;
    /// Releases the lock. If it is not awaited, the servers may still have it when this returns.
    fn release(
        &self,
        guard: Self::Guard,
        how: Release,
    ) -> impl Future<Output = Result<(), Error>> + Send;
    /// Asks for the lock and gives up after a time. `Some` if it was granted.
    fn ask_for(
        &self,
        _lock: &Self::Lock,
        _time: Duration,
    ) -> impl Future<Output = Result<Option<Self::Guard>, Error>> + Send {
        async { Err("this contender does not give up".into()) }
    }
    /// Returns how many nodes hold the lock or wait for it.
    fn queued(&self, _lock: &Self::Lock) -> impl Future<Output = Result<usize, Error>> + Send {
        async { Err("this contender does not say who waits".into()) }
    }
    /// Waits until what was released in the background is gone.
    fn settle(&self) -> impl Future<Output = Result<(), Error>> + Send {
        async { Ok(()) }
    }
    /// Returns how many nodes a session has for a lock at most.
    fn most_nodes(_lock: &Self::Lock) -> usize {
        usize::MAX
    }
    /// Ends the session.
    fn close(&self) -> impl Future<Output = ()> + Send {
        async {}
    }
}

/// The sessions and locks of a job, which are kept between its rounds.
pub(crate) struct Setup<C: Contender> {
    sessions: Vec<Arc<C>>,
    tasks: Vec<TaskState<C>>,
    /// A session of its own, for foreign children.
    foreign: Option<zookeeper_client::Client>,
}

/// The state that a task uses in every round.
struct TaskState<C: Contender> {
    session: Arc<C>,
    lock: Arc<C::Lock>,
    directory: Arc<str>,
    path: usize,
}

impl<C: Contender> Setup<C> {
    pub(crate) async fn make(job: &Job) -> Result<Self, Error> {
        let mut sessions = Vec::with_capacity(job.sessions);
        for _ in 0..job.sessions {
            sessions.push(Arc::new(C::connect(job).await?));
        }
        let directories: Vec<Arc<str>> = (0..job.paths)
            .map(|i| format!("{}/{i}", job.root).into())
            .collect();
        // The foreign nodes are created first, because contenders would create the directories as
        // containers.
        let foreign = if job.keep_from_succession {
            Some(foreigner(job, &directories).await?)
        } else {
            None
        };
        let mut tasks: Vec<TaskState<C>> = Vec::with_capacity(job.sessions * job.tasks);
        for task in 0..job.sessions * job.tasks {
            let (number, path) = (task / job.tasks, task % job.paths);
            let session = sessions.get(number).ok_or("no session for this task")?;
            let directory = directories.get(path).ok_or("no path for this task")?;
            let mut mine = tasks.iter().skip(number * job.tasks);
            let made = match job.objects {
                Objects::Shared => mine.find(|seat| seat.path == path),
                Objects::PerTask => None,
            };
            let lock = match made {
                Some(seat) => Arc::clone(&seat.lock),
                None => Arc::new(session.lock(job, directory).await?),
            };
            tasks.push(TaskState {
                session: Arc::clone(session),
                lock,
                directory: Arc::clone(directory),
                path,
            });
        }
        Ok(Self {
            sessions,
            tasks,
            foreign,
        })
    }

    pub(crate) async fn close(&self) {
        for session in &self.sessions {
            session.close().await;
        }
    }
}

/// The state that the tasks of a round share.
struct Round {
    job: Job,
    deadline: Instant,
    counters: Counters,
    histograms: Vec<Mutex<Histogram<u64>>>,
}

/// The counts of a task in a round.
#[derive(Debug, Default, Clone, Copy)]
struct Tally {
    cycles: u64,
    exclusive: u64,
    /// Reads during which a writer counted.
    disturbed: u64,
    /// Spent in cycles.
    busy: Duration,
}

/// Runs one round.
pub(crate) async fn round<C: Contender>(setup: &Arc<Setup<C>>, job: &Job) -> Result<Done, Error> {
    if let Some(micros) = job.give_up_micros {
        return giving_up(setup, job, Duration::from_micros(micros)).await;
    }
    let shards = setup.tasks.len().min(SHARDS);
    let histograms: Result<Vec<_>, _> = (0..shards)
        .map(|_| Histogram::new_with_bounds(1, LONGEST, 3).map(Mutex::new))
        .collect();
    let (histograms, counters) = (histograms?, Counters::of(job)?);
    let (started, cpu) = (Instant::now(), cpu_time());
    let deadline = started + Duration::from_micros(job.micros);
    let round = Arc::new(Round {
        job: job.clone(),
        deadline,
        counters,
        histograms,
    });
    let mut running = JoinSet::new();
    for task in 0..setup.tasks.len() {
        running.spawn(cycles(Arc::clone(setup), Arc::clone(&round), task));
    }
    let mut all = Tally::default();
    while let Some(ended) = running.join_next().await {
        let tally = ended??;
        all.cycles += tally.cycles;
        all.exclusive += tally.exclusive;
        all.disturbed += tally.disturbed;
        all.busy = all.busy.max(tally.busy);
    }
    for session in &setup.sessions {
        session.settle().await?;
    }
    let elapsed = if job.keep_from_succession {
        all.busy
    } else {
        started.elapsed()
    };
    Ok(Done {
        cycles: all.cycles,
        elapsed_micros: micros(elapsed),
        cpu_micros: micros(cpu_time().saturating_sub(cpu)),
        latency_micros: latency(&round.histograms)?,
        lost_updates: round.counters.lost_of(all.exclusive) + all.disturbed,
        exclusive_cycles: Some(all.exclusive),
    })
}

/// Acquires and releases until the round is over.
async fn cycles<C: Contender>(
    setup: Arc<Setup<C>>,
    round: Arc<Round>,
    task: usize,
) -> Result<Tally, Error> {
    let seat = setup.tasks.get(task).ok_or("no such task")?;
    let histogram = round
        .histograms
        .get(task % round.histograms.len())
        .ok_or("no histogram")?;
    let mut tally = Tally::default();
    loop {
        if let Some(foreign) = &setup.foreign {
            // The future is boxed, because otherwise each of 100,000 tasks would reserve its size.
            Box::pin(come_and_go(foreign, &seat.directory)).await?;
        }
        let reading = reads(task, tally.cycles, round.job.read_percent);
        let asked = Instant::now();
        let guard = seat.session.acquire(&seat.lock, reading).await?;
        let waited = asked.elapsed();
        let counted = round.counters.read(seat.path)?;
        if round.job.hold_micros > 0 {
            sleep(Duration::from_micros(round.job.hold_micros)).await;
        }
        if reading {
            tally.disturbed += u64::from(round.counters.read(seat.path)? != counted);
        } else {
            round.counters.write(seat.path, counted)?;
            tally.exclusive += 1;
        }
        seat.session.release(guard, round.job.release).await?;
        tally.cycles += 1;
        let now = Instant::now();
        tally.busy += now - asked;
        let nanos = u64::try_from(waited.as_nanos()).unwrap_or(LONGEST);
        histogram
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .saturating_record(nanos.max(1));
        if now >= round.deadline
            || round
                .job
                .cycles_per_task
                .is_some_and(|most| tally.cycles >= most)
        {
            return Ok(tally);
        }
    }
}

/// Runs a round in which a task queues behind all others, which wait, and gives up.
async fn giving_up<C: Contender>(
    setup: &Arc<Setup<C>>,
    job: &Job,
    time: Duration,
) -> Result<Done, Error> {
    let [holder, gives_up, waiters @ ..] = setup.tasks.as_slice() else {
        return Err("one task holds the lock, and one gives up".into());
    };
    let held = holder.session.acquire(&holder.lock, false).await?;
    let mut waiting = JoinSet::new();
    for seat in waiters {
        let (session, lock) = (Arc::clone(&seat.session), Arc::clone(&seat.lock));
        waiting.spawn(async move { session.acquire(&lock, false).await.map(drop) });
    }
    // A lock may have fewer nodes than waiting tasks, which then wait in memory.
    let of_session = |session: &Arc<C>| {
        waiters
            .iter()
            .filter(|seat| Arc::ptr_eq(&seat.session, session))
            .count()
            .min(C::most_nodes(&holder.lock))
    };
    let nodes: usize = setup.sessions.iter().map(of_session).sum();
    while gives_up.session.queued(&gives_up.lock).await? < nodes {
        if let Some(ended) = waiting.try_join_next() {
            ended??;
            return Err("a waiter was granted a lock that is held".into());
        }
        // Each poll lists all contenders, so polls are rare.
        sleep(Duration::from_millis(20)).await;
    }
    let mut histogram = Histogram::<u64>::new_with_bounds(1, LONGEST, 3)?;
    let (started, cpu) = (Instant::now(), cpu_time());
    let (mut cycles, mut granted) = (0, 0);
    while started.elapsed() < Duration::from_micros(job.micros) || cycles == 0 {
        let asked = Instant::now();
        granted += u64::from(
            gives_up
                .session
                .ask_for(&gives_up.lock, time)
                .await?
                .is_some(),
        );
        gives_up.session.settle().await?;
        histogram.saturating_record(
            u64::try_from(asked.elapsed().as_nanos())
                .unwrap_or(LONGEST)
                .max(1),
        );
        cycles += 1;
    }
    let (elapsed, spent) = (started.elapsed(), cpu_time().saturating_sub(cpu));
    waiting.shutdown().await;
    holder.session.release(held, Release::Awaited).await?;
    for session in &setup.sessions {
        session.settle().await?;
    }
    Ok(Done {
        cycles,
        elapsed_micros: micros(elapsed),
        cpu_micros: micros(spent),
        latency_micros: latency(&[Mutex::new(histogram)])?,
        // The lock was held by another.
        lost_updates: granted,
        exclusive_cycles: Some(0),
    })
}

/// Opens a session for foreign children, and makes the directories that they need, which stay when
/// empty.
async fn foreigner(job: &Job, directories: &[Arc<str>]) -> Result<zookeeper_client::Client, Error> {
    let foreign = zookeeper_client::Client::connect(&job.servers).await?;
    for directory in directories {
        foreign
            .mkdir(
                directory,
                &CreateMode::Persistent.with_acls(Acls::anyone_all()),
            )
            .await?;
    }
    Ok(foreign)
}

/// Creates and deletes a child that is no contender, so that the next lock node's number does not
/// follow on that of the last.
async fn come_and_go(foreign: &zookeeper_client::Client, directory: &str) -> Result<(), Error> {
    let child = format!("{directory}/foreign");
    foreign
        .create(
            &child,
            b"",
            &CreateMode::Ephemeral.with_acls(Acls::anyone_all()),
        )
        .await?;
    Ok(foreign.delete(&child, None).await?)
}

/// Returns whether a cycle reads. The cycles of a task that write are spread evenly, and differ
/// between tasks.
fn reads(task: usize, cycle: u64, percent: u64) -> bool {
    // 37 has no divisor in common with 100: each hundred cycles go through all remainders.
    (task as u64 * 61 + cycle * 37) % 100 < percent
}

/// Returns the user and system time of this process.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

fn latency(histograms: &[Mutex<Histogram<u64>>]) -> Result<Latency, Error> {
    let mut all = Histogram::<u64>::new_with_bounds(1, LONGEST, 3)?;
    for histogram in histograms {
        all.add(&*histogram.lock().unwrap_or_else(PoisonError::into_inner))?;
    }
    let at = |quantile| all.value_at_quantile(quantile) as f64 / 1e3;
    Ok(Latency {
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
        p999: at(0.999),
        max: all.max() as f64 / 1e3,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_share_holds_per_hundred_cycles() {
        for percent in [0, 50, 95, 100] {
            for task in 0..5 {
                assert_eq!(
                    (0..100)
                        .filter(|&cycle| reads(task, cycle, percent))
                        .count() as u64,
                    percent
                );
            }
        }
    }

    #[test]
    fn percentiles_are_over_all_tasks() {
        let histogram = |values: &[u64]| {
            let mut histogram = Histogram::new_with_bounds(1, LONGEST, 3).unwrap();
            values
                .iter()
                .for_each(|&value| histogram.saturating_record(value));
            Mutex::new(histogram)
        };
        let all = latency(&[histogram(&[1_000, 2_000]), histogram(&[900_000])]).unwrap();
        assert_eq!((all.p50, all.max.round()), (2.0, 900.0));
    }
}
