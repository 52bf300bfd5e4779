//! A worker: a process that serves its share of the users.

use std::io::{BufRead, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use zookeeper_recipes::{Client, FencingToken, InterProcessMutex, OptionalExt};

use crate::options::{Lock, Terms};
use crate::protocol::{Message, Outcome, Shift, Visit, monotonic};
use crate::store::{Store, Written};
use crate::{Error, chain};

/// The argument that makes a process a worker.
pub(crate) const ARGUMENT: &str = "worker";

/// As long as the article's: for so long nobody gets the lock of a worker that crashed.
pub(crate) const SESSION_TIMEOUT: Duration = Duration::from_secs(5);

/// How many users a worker lets in at a time; the others come later. All at once would be a longer queue, and on a
/// slow machine one whose end nobody reaches within their patience.
const AT_ONCE: usize = 4;

/// How often a worker reports.
const REPORT_EVERY: Duration = Duration::from_millis(20);

/// How often a user whose write was refused starts again.
const ATTEMPTS: u32 = 3;

pub(crate) fn run() -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // One connection to the database, one thread that waits for it.
        .max_blocking_threads(1)
        .build()?;
    runtime.block_on(work())
}

async fn work() -> Result<(), Error> {
    // Ctrl-C reaches all processes of a terminal. The sale ends its workers itself, so that they can leave properly.
    let _interrupts = signal(SignalKind::interrupt())?;
    let mut orders = stdin_lines();
    let Some(first) = orders.recv().await else { return Ok(()) };
    let shift: Shift = serde_json::from_str(&first)?;

    let counter = Arc::new(Counter {
        store: Mutex::new(Store::open(&shift.db)?),
        sku: shift.sku.clone(),
        terms: shift.terms.clone(),
    });
    let client = Client::builder().session_timeout(SESSION_TIMEOUT).connect(&shift.servers).await?;
    let mutex = InterProcessMutex::new(&client, &shift.lock_path)?;

    say(&Message::Ready)?;
    if orders.recv().await.is_some() {
        serve_all(&shift, &counter, &mutex, &mut orders).await?;
    }
    client.close().await?;
    Ok(())
}

/// Lets the users in, until all have left or nobody wants us to go on.
async fn serve_all(
    shift: &Shift,
    counter: &Arc<Counter>,
    mutex: &InterProcessMutex,
    orders: &mut mpsc::UnboundedReceiver<String>,
) -> Result<(), Error> {
    let mut waiting = shift.users();
    let mut inside = JoinSet::new();
    let mut left = Vec::new();
    let mut report = tokio::time::interval(REPORT_EVERY);
    report.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        while inside.len() < AT_ONCE {
            let Some(user) = waiting.next() else { break };
            inside.spawn(visit(Arc::clone(counter), mutex.clone(), user));
        }
        tokio::select! {
            joined = inside.join_next() => match joined {
                Some(visit) => left.push(visit?),
                None => break,
            },
            _ = report.tick() => if !left.is_empty() {
                say(&Message::Left(std::mem::take(&mut left)))?;
            },
            order = orders.recv() => if order.is_none() {
                // Dropping the visits cancels them: what waits for the lock gives up its place.
                return Ok(());
            },
        }
    }
    say(&Message::Left(left))?;
    say(&Message::Done)
}

async fn visit(counter: Arc<Counter>, mutex: InterProcessMutex, user: u32) -> Visit {
    let mut visit =
        Visit { user, outcome: Outcome::TimedOut, waits: Vec::new(), inside: Vec::new(), fenced: 0 };
    let outcome = match counter.terms.lock {
        Lock::Mutex => counter.serve(&mutex, &mut visit).await,
        Lock::None => counter.serve_unlocked(&mut visit).await,
    };
    visit.outcome = outcome.unwrap_or_else(|error| Outcome::Failed(chain(&*error)));
    visit
}

/// Where the users are served.
struct Counter {
    store: Mutex<Store>,
    sku: String,
    terms: Terms,
}

impl Counter {
    async fn serve(self: &Arc<Self>, mutex: &InterProcessMutex, visit: &mut Visit) -> Result<Outcome, Error> {
        for _ in 0..ATTEMPTS {
            // A look without the lock decides nothing, but nobody needs to queue for an empty shelf.
            if self.left().await? == 0 {
                return Ok(Outcome::SoldOut);
            }
            let came = Instant::now();
            let Some(guard) = mutex.acquire(self.terms.wait).await.optional()? else {
                return Ok(Outcome::TimedOut);
            };
            let entered = monotonic();
            visit.waits.push(came.elapsed().as_nanos().try_into()?);
            let bought = self.buy(visit.user, Some(guard.fencing_token())).await;
            visit.inside.push((entered, monotonic()));
            if let Err(error) = guard.release().await {
                // If it was lost, the database has decided by the token whether the sale was in time.
                eprintln!("user {}: {}", visit.user, chain(&error));
            }
            match bought? {
                Bought::Sold => return Ok(Outcome::Sold),
                Bought::SoldOut => return Ok(Outcome::SoldOut),
                // We were away for longer than our session; the others went on. Start again.
                Bought::Fenced => visit.fenced += 1,
            }
        }
        Err(format!("the database refused {ATTEMPTS} writes in a row").into())
    }

    /// The same without a lock, and so without a token. It is wrong.
    async fn serve_unlocked(self: &Arc<Self>, visit: &mut Visit) -> Result<Outcome, Error> {
        let entered = monotonic();
        let bought = self.buy(visit.user, None).await;
        visit.inside.push((entered, monotonic()));
        match bought? {
            Bought::Sold => Ok(Outcome::Sold),
            Bought::SoldOut => Ok(Outcome::SoldOut),
            Bought::Fenced => Err("the stock's row is gone".into()),
        }
    }

    /// Looks, thinks, and buys what was there to be seen.
    async fn buy(self: &Arc<Self>, user: u32, token: Option<FencingToken>) -> Result<Bought, Error> {
        let Some(rest) = self.left().await?.checked_sub(1) else {
            return Ok(Bought::SoldOut);
        };
        tokio::time::sleep(self.terms.think).await;
        match self.with_store(move |store, sku| store.sell(sku, rest, user, token)).await? {
            Written::Sold => Ok(Bought::Sold),
            Written::Fenced => Ok(Bought::Fenced),
        }
    }

    async fn left(self: &Arc<Self>) -> Result<u32, Error> {
        self.with_store(|store, sku| store.left(sku)).await
    }

    /// Runs one statement, or one transaction, where it may block.
    async fn with_store<T: Send + 'static>(
        self: &Arc<Self>,
        action: impl FnOnce(&mut Store, &str) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let this = Arc::clone(self);
        let action = move || {
            let mut store = this.store.lock().unwrap_or_else(PoisonError::into_inner);
            action(&mut store, &this.sku)
        };
        tokio::task::spawn_blocking(action).await?
    }
}

enum Bought {
    Sold,
    SoldOut,
    Fenced,
}

/// The lines of stdin. On a thread of its own: a read cannot be cancelled, and the process ends without it.
fn stdin_lines() -> mpsc::UnboundedReceiver<String> {
    let (sender, lines) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    lines
}

fn say(message: &Message) -> Result<(), Error> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&line)?;
    Ok(stdout.flush()?)
}
