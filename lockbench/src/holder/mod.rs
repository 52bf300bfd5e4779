//! The process in which a holder of the matrix runs: it does the steps that it reads from stdin,
//! and answers on stdout.

mod client_lock;
mod ours;
mod redis;

use std::fs::File;
use std::future::Future;
use std::io::{self, BufRead as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::Error;
use crate::step::{HolderAnswer, Open, Step, now};

/// How often a holder asks its lock whether it is held.
const EVERY: Duration = Duration::from_millis(5);
/// How long a failed call is repeated, and how soon.
const PATIENCE: Duration = Duration::from_secs(30);
const AGAIN: Duration = Duration::from_millis(50);

/// A lock as its user has it: one session, one lock, held or not.
trait Holder: Sized + Send + Sync + 'static {
    fn open(open: &Open) -> impl Future<Output = Result<Self, Error>> + Send;

    /// Waits for the lock. Returns the fencing token, if it has one.
    fn acquire(&self) -> impl Future<Output = Result<Option<(i64, i64)>, Error>> + Send;

    /// Returns the lock's answer to a holder that asks; `None` if the lock was not granted, or was
    /// released.
    fn is_held(&self) -> Option<bool>;

    fn release(&self) -> impl Future<Output = Result<(), Error>> + Send;

    /// Returns data and their version.
    fn read(&self, node: &str) -> impl Future<Output = Result<(String, i64), Error>> + Send;

    /// Writes as this lock protects a write.
    fn write(
        &self,
        node: &str,
        value: &str,
        version: i64,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    fn close(&self) -> impl Future<Output = ()> + Send;
}

/// Runs this process as a holder until its input ends.
pub(crate) fn serve(name: &str) -> Result<(), Error> {
    match name {
        "ours" => obey::<ours::Ours>(),
        "client_lock" => obey::<client_lock::ClientLock>(),
        "redis" => obey::<redis::Redis>(),
        _ => Err(format!("there is no holder {name}").into()),
    }
}

fn obey<H: Holder>() -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let mut holder: Option<(Arc<H>, StatePoller)> = None;
    for line in io::stdin().lock().lines() {
        let step = serde_json::from_str(&line?)?;
        if matches!(step, Step::Quit(_)) {
            break;
        }
        let answer = runtime.block_on(do_step(&mut holder, step));
        let answer = answer.unwrap_or_else(|error| HolderAnswer {
            error: Some(error.to_string()),
            ..HolderAnswer::default()
        });
        let mut out = io::stdout().lock();
        writeln!(out, "{}", serde_json::to_string(&answer)?)?;
        out.flush()?;
    }
    if let Some((holder, _asking)) = holder {
        runtime.block_on(holder.close());
    }
    Ok(())
}

async fn do_step<H: Holder>(
    current: &mut Option<(Arc<H>, StatePoller)>,
    step: Step,
) -> Result<HolderAnswer, Error> {
    if let Step::Open(open) = step {
        if let Some((former, _asking)) = current.take() {
            former.close().await;
        }
        let holder = Arc::new(H::open(&open).await?);
        let asking = StatePoller::start(&holder, &open.journal)?;
        *current = Some((holder, asking));
        return Ok(HolderAnswer::default());
    }
    let (holder, _) = current.as_ref().ok_or("no session was opened")?;
    Ok(match step {
        Step::Acquire(_) => {
            let token = acquire(&**holder).await?;
            HolderAnswer {
                granted: Some(now()),
                token,
                ..HolderAnswer::default()
            }
        }
        Step::Ask(_) => HolderAnswer {
            held: Some(holder.is_held() == Some(true)),
            ..HolderAnswer::default()
        },
        Step::Release(_) => holder.release().await.map(|()| HolderAnswer::default())?,
        Step::Read { node } => {
            let (value, version) = holder.read(&node).await?;
            HolderAnswer {
                value: Some(value),
                version: Some(version),
                ..HolderAnswer::default()
            }
        }
        Step::Write {
            node,
            value,
            version,
        } => holder
            .write(&node, &value, version)
            .await
            .map(|()| HolderAnswer::default())?,
        Step::Open(_) | Step::Quit(_) => HolderAnswer::default(),
    })
}

/// Asks again after an error, as a caller does who needs the lock.
async fn acquire<H: Holder>(holder: &H) -> Result<Option<(i64, i64)>, Error> {
    let asked = Instant::now();
    loop {
        match holder.acquire().await {
            Err(error) if asked.elapsed() < PATIENCE => {
                eprintln!("not granted, asks again: {error}");
                sleep(AGAIN).await;
            }
            granted => return granted,
        }
    }
}

/// A thread that asks the lock all the time, and writes the answers down.
#[derive(Debug)]
struct StatePoller(Arc<AtomicBool>);

impl StatePoller {
    fn start<H: Holder>(holder: &Arc<H>, journal: &Path) -> Result<Self, Error> {
        let (holder, mut journal) = (Arc::clone(holder), File::create(journal)?);
        let ended = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&ended);
        thread::Builder::new().spawn(move || {
            while !end.load(Ordering::Relaxed) {
                let asked = now();
                if let Some(held) = holder.is_held() {
                    let line = format!("{asked} {} {}\n", now(), u8::from(held));
                    // Without a journal there is nothing to show, which the matrix reports.
                    let _ = journal.write_all(line.as_bytes());
                }
                thread::park_timeout(EVERY);
            }
        })?;
        Ok(Self(ended))
    }
}

impl Drop for StatePoller {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
