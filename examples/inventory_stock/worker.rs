//! A worker: a process that serves its share of the users.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use zookeeper_recipes::{
    AcquireError,
    Acquisition::{self, Acquired, Busy},
    AnyGuard, Client, ErrorKind, LockState, OrBusy, ReleaseError, Token,
};

use crate::common::worker::{Commands, close, send};
use crate::common::{Error, chain, monotonic};
use crate::lock::ProductLock;
use crate::options::Config;
use crate::protocol::{Assignment, Ending, Event, EventKind, Message, Outcome, Visit};
use crate::store::{Sale, Store};

/// How often a worker reports the users who have left.
const REPORT_INTERVAL: Duration = Duration::from_millis(20);

/// How often the state of a guard is checked.
const STATE_INTERVAL: Duration = Duration::from_millis(20);

/// How often a user starts again after losing the lock.
const ATTEMPTS: u32 = 3;

/// Runs a worker, from its assignment to the end of its session.
pub(crate) fn run() -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // The process has one connection to the database, so more threads would only wait for it.
        .max_blocking_threads(1)
        .build()?;
    runtime.block_on(work())
}

async fn work() -> Result<(), Error> {
    // Ctrl-C goes to all processes of a terminal. The sale stops its workers itself, so that they
    // can close their sessions.
    let _interrupts = signal(SignalKind::interrupt())?;
    let mut commands = Commands::listen()?;
    let Some(assignment) = commands.assignment::<Assignment>().await? else {
        return Ok(());
    };

    let store = Mutex::new(Store::open(&assignment.db)?);
    let config = &assignment.config;
    let client = Client::builder()
        .session_timeout(config.session_timeout)
        .connect(&assignment.servers)
        .await?;
    let products = config.products().map(|sku| {
        let lock = ProductLock::new(config.lock, &client, &assignment.lock_path(&sku))?;
        Ok::<_, Error>(Product {
            sku: sku.into(),
            lock,
            sold_out: watch::Sender::new(false),
        })
    });
    let products = products.collect::<Result<_, _>>()?;
    let shop = Arc::new(Shop {
        store,
        products,
        config: config.clone(),
    });

    send(&Message::Ready)?;
    if commands.next().await.is_some() {
        serve_all(&assignment, &shop, &mut commands).await?;
    }
    close(client).await
}

/// Serves the worker's users, until all have left or the worker is to stop.
async fn serve_all(
    assignment: &Assignment,
    shop: &Arc<Shop>,
    commands: &mut Commands,
) -> Result<(), Error> {
    let mut waiting = assignment.users();
    let mut visits = JoinSet::new();
    let mut left = Vec::new();
    let mut report = tokio::time::interval(REPORT_INTERVAL);
    report.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        while visits.len() < assignment.config.at_once {
            let Some(user) = waiting.next() else { break };
            visits.spawn(visit(Arc::clone(shop), user));
        }
        tokio::select! {
            visit = visits.join_next() => match visit {
                Some(visit) => left.push(visit?),
                None => break,
            },
            _ = report.tick() => if !left.is_empty() {
                send(&Message::Left(std::mem::take(&mut left)))?;
            },
            command = commands.next() => if command.is_none() {
                // Dropping the visits cancels them: those that wait for the lock leave its queue.
                return Ok(());
            },
        }
    }
    send(&Message::Left(left))?;
    send(&Message::Done)
}

async fn visit(shop: Arc<Shop>, user: u32) -> Visit {
    let outcome = match &shop.product_of(user).lock {
        Some(lock) => shop.serve(user, lock).await,
        None => shop.serve_unlocked(user).await,
    };
    Visit {
        user,
        outcome: outcome.unwrap_or_else(|error| Outcome::Failed(chain(&*error))),
    }
}

/// Returns `Busy` if another holds the lock until the user's time is up, and if the servers did not
/// answer in that time.
async fn in_time<G>(
    acquired: impl Future<Output = Result<G, AcquireError>>,
    time_left: impl Fn() -> Duration,
) -> Result<Acquisition<G>, AcquireError> {
    match acquired.await {
        Err(error) if error.kind() == Some(ErrorKind::Connection) && time_left().is_zero() => {
            Ok(Busy)
        }
        acquired => acquired.or_busy(),
    }
}

/// The state that the visits of one worker share.
struct Shop {
    store: Mutex<Store>,
    products: Vec<Product>,
    config: Config,
}

struct Product {
    sku: Arc<str>,
    lock: Option<ProductLock>,
    /// Set by the first user who sees that there is no stock, so that those who queue can leave.
    sold_out: watch::Sender<bool>,
}

impl Shop {
    fn product_of(&self, user: u32) -> &Product {
        &self.products[self.config.product_of(user)]
    }

    async fn serve(self: &Arc<Self>, user: u32, lock: &ProductLock) -> Result<Outcome, Error> {
        let product = self.product_of(user);
        let mut sold_out = product.sold_out.subscribe();
        let came = Instant::now();
        for _ in 0..ATTEMPTS {
            let time_left = || self.config.wait.saturating_sub(came.elapsed());
            // The read decides nothing, but saves the wait for the lock of a product that is sold
            // out.
            match self.look(product, lock, time_left).await? {
                Some(0) => return Ok(Outcome::SoldOut),
                Some(_) => {}
                None => return Ok(Outcome::TimedOut),
            }
            let queued = Instant::now();
            let guard = tokio::select! {
                biased;
                guard = in_time(lock.acquire(time_left()), time_left) => guard?,
                // Dropping the other future takes this user out of the queue.
                _ = sold_out.wait_for(|&sold_out| sold_out) => return Ok(Outcome::SoldOut),
            };
            let Acquired(guard) = guard else {
                return Ok(Outcome::TimedOut);
            };
            let (waited, entered) = (queued.elapsed(), monotonic());
            if !guard.is_held() {
                // Lost between its grant and now: this user has not been inside.
                continue;
            }
            match self
                .run_section(user, entered, Some((guard, waited)))
                .await?
            {
                Ending::Sold { .. } => return Ok(Outcome::Sold),
                Ending::SoldOut => return Ok(Outcome::SoldOut),
                // The process was paused for longer than its session, and others have had the lock,
                // so the user starts again.
                Ending::Refused | Ending::Failed => {}
            }
        }
        Err(format!("the lock was lost {ATTEMPTS} times in a row").into())
    }

    /// Reads the stock without buying, under the read lock if there is one; returns `None` if that
    /// was not granted in time.
    async fn look(
        self: &Arc<Self>,
        product: &Product,
        lock: &ProductLock,
        time_left: impl Fn() -> Duration,
    ) -> Result<Option<u32>, Error> {
        let guard = in_time(lock.acquire_read(time_left()), time_left).await?;
        let Acquired(guard) = guard else {
            return Ok(None);
        };
        let token = guard.as_ref().map(AnyGuard::fencing_token);
        let fenced = match token {
            Some(token) => {
                self.with_store(product, move |store, sku| store.read(sku, token))
                    .await?
            }
            None => None,
        };
        let left = match fenced {
            Some(left) => left,
            // Without a read lock, or with a lost one, the number is good enough for a display.
            None => self.left(product).await?,
        };
        if let Some(guard) = guard {
            match guard.release().await {
                Ok(()) | Err(ReleaseError::Lost(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Some(left))
    }

    /// Serves a user without a lock, and so without a token: what `--lock none` is to show.
    async fn serve_unlocked(self: &Arc<Self>, user: u32) -> Result<Outcome, Error> {
        match self.run_section(user, monotonic(), None).await? {
            Ending::Sold { .. } => Ok(Outcome::Sold),
            Ending::SoldOut => Ok(Outcome::SoldOut),
            Ending::Refused | Ending::Failed => Err("refused, without a token".into()),
        }
    }

    /// Runs a user's critical section and reports its steps. `lock` is the guard, and how long the
    /// user waited for it.
    async fn run_section(
        self: &Arc<Self>,
        user: u32,
        entered: u64,
        lock: Option<(AnyGuard, Duration)>,
    ) -> Result<Ending, Error> {
        let (guard, waited) = lock.unzip();
        let waited = waited
            .map(|waited| waited.as_nanos().try_into())
            .transpose()?;
        report_at(entered, user, EventKind::Entered { waited })?;
        let token = guard.as_ref().map(AnyGuard::fencing_token);
        let known_held = AtomicU64::new(entered);
        let bought = tokio::select! {
            biased;
            // The branch observes the guard only. A loss does not stop the purchase, because a
            // pause can come between any question to the guard and the write: the database refuses
            // late writes.
            error = watch_guard(guard.as_ref(), user, &known_held) => Err(error),
            bought = self.buy(user, token) => bought,
        };
        let left = monotonic();
        if guard.as_ref().is_none_or(AnyGuard::is_held) {
            known_held.store(left, Ordering::Relaxed);
        }
        let (ending, until) = (
            *bought.as_ref().unwrap_or(&Ending::Failed),
            known_held.into_inner(),
        );
        // The report is sent before the release, so that the next holder's first event comes after
        // it.
        report_at(left, user, EventKind::Ended { ending, until })?;
        if let Some(guard) = guard {
            match guard.release().await {
                Ok(()) => {}
                Err(ReleaseError::Lost(lost)) => {
                    report(user, EventKind::Lost(lost.reason().to_string()))?;
                }
                Err(error) => eprintln!("user {user}: {}", chain(&error)),
            }
        }
        bought
    }

    /// Reads the stock, thinks, and writes what is left of it after this user.
    async fn buy(self: &Arc<Self>, user: u32, token: Option<Token>) -> Result<Ending, Error> {
        let product = self.product_of(user);
        let left = match token {
            Some(token) => {
                self.with_store(product, move |store, sku| store.read(sku, token))
                    .await?
            }
            None => Some(self.left(product).await?),
        };
        let Some(left) = left else {
            return Ok(Ending::Refused);
        };
        report(user, EventKind::Read { left })?;
        let Some(rest) = left.checked_sub(1) else {
            product.sold_out.send_replace(true);
            return Ok(Ending::SoldOut);
        };
        tokio::time::sleep(self.config.think).await;
        match self
            .with_store(product, move |store, sku| {
                store.sell(sku, rest, user, token)
            })
            .await?
        {
            Sale::Committed => Ok(Ending::Sold { left: rest }),
            Sale::Fenced => Ok(Ending::Refused),
        }
    }

    /// Returns the stock without a token.
    async fn left(self: &Arc<Self>, product: &Product) -> Result<u32, Error> {
        let left = self
            .with_store(product, |store, sku| store.left(sku))
            .await?;
        if left == 0 && !*product.sold_out.borrow() {
            product.sold_out.send_replace(true);
        }
        Ok(left)
    }

    /// Runs one statement, or one transaction, on a thread that may block.
    async fn with_store<T: Send + 'static>(
        self: &Arc<Self>,
        product: &Product,
        action: impl FnOnce(&mut Store, &str) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (this, sku) = (Arc::clone(self), Arc::clone(&product.sku));
        let action = move || {
            let mut store = this.store.lock().unwrap_or_else(PoisonError::into_inner);
            action(&mut store, &sku)
        };
        tokio::task::spawn_blocking(action).await?
    }
}

/// Reports each change of the guard's state, and notes until when the lock is known to have been
/// held. Returns only if a report fails.
async fn watch_guard(guard: Option<&AnyGuard>, user: u32, known_held: &AtomicU64) -> Error {
    let Some(guard) = guard else {
        return std::future::pending().await;
    };
    let mut ticks = tokio::time::interval(STATE_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut known = LockState::Held;
    while !matches!(known, LockState::Lost(_)) {
        let state = tokio::select! {
            lost = guard.lost() => LockState::Lost(lost.reason()),
            _ = ticks.tick() => {
                let now = monotonic();
                let state = guard.state();
                if !matches!(state, LockState::Lost(_)) {
                    known_held.store(now, Ordering::Relaxed);
                }
                state
            }
        };
        if std::mem::replace(&mut known, state) == state {
            continue;
        }
        let reported = match state {
            LockState::Held => report(user, EventKind::Held),
            LockState::Lost(reason) => report(user, EventKind::Lost(reason.to_string())),
            _ => report(user, EventKind::Suspended),
        };
        if let Err(error) = reported {
            return error;
        }
    }
    std::future::pending().await
}

fn report(user: u32, kind: EventKind) -> Result<(), Error> {
    report_at(monotonic(), user, kind)
}

fn report_at(at: u64, user: u32, kind: EventKind) -> Result<(), Error> {
    send(&Message::Section(Event { user, at, kind }))
}
