//! A worker: a process that serves its share of the users.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use zookeeper_recipes::{Acquired, AnyGuard, Client, LockState, OptionalExt, ReleaseError, Token};

use crate::common::worker::{Orders, leave, say};
use crate::common::{Error, chain, monotonic};
use crate::lock::ShelfLock;
use crate::options::Terms;
use crate::protocol::{Event, How, Message, Outcome, Shift, Visit, What};
use crate::store::{Store, Written};

/// How often a worker reports.
const REPORT_EVERY: Duration = Duration::from_millis(20);

/// How often a holder looks whether its lock is in doubt.
const LOOK_EVERY: Duration = Duration::from_millis(20);

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
    let mut orders = Orders::listen()?;
    let Some(shift) = orders.shift::<Shift>().await? else { return Ok(()) };

    let store = Mutex::new(Store::open(&shift.db)?);
    let client =
        Client::builder().session_timeout(shift.terms.session_timeout).connect(&shift.servers).await?;
    let products = shift.terms.products().map(|sku| {
        let lock = ShelfLock::new(shift.terms.lock, &client, &shift.lock_path(&sku))?;
        Ok::<_, Error>(Product { sku: sku.into(), lock, sold_out: watch::Sender::new(false) })
    });
    let products = products.collect::<Result<_, _>>()?;
    let counter = Arc::new(Counter { store, products, terms: shift.terms.clone() });

    say(&Message::Ready)?;
    if orders.next().await.is_some() {
        serve_all(&shift, &counter, &mut orders).await?;
    }
    leave(client).await
}

/// Lets the users in, until all have left or nobody wants us to go on.
async fn serve_all(shift: &Shift, counter: &Arc<Counter>, orders: &mut Orders) -> Result<(), Error> {
    let mut waiting = shift.users();
    let mut inside = JoinSet::new();
    let mut left = Vec::new();
    let mut report = tokio::time::interval(REPORT_EVERY);
    report.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        while inside.len() < shift.terms.at_once {
            let Some(user) = waiting.next() else { break };
            inside.spawn(visit(Arc::clone(counter), user));
        }
        tokio::select! {
            joined = inside.join_next() => match joined {
                Some(visit) => left.push(visit?),
                None => break,
            },
            _ = report.tick() => if !left.is_empty() {
                say(&Message::Left(std::mem::take(&mut left)))?;
            },
            order = orders.next() => if order.is_none() {
                // Dropping the visits cancels them: what waits for the lock gives up its place.
                return Ok(());
            },
        }
    }
    say(&Message::Left(left))?;
    say(&Message::Done)
}

async fn visit(counter: Arc<Counter>, user: u32) -> Visit {
    let outcome = match &counter.product_of(user).lock {
        Some(lock) => counter.serve(user, lock).await,
        None => counter.serve_unlocked(user).await,
    };
    Visit { user, outcome: outcome.unwrap_or_else(|error| Outcome::Failed(chain(&*error))) }
}

/// Where the users are served.
struct Counter {
    store: Mutex<Store>,
    products: Vec<Product>,
    terms: Terms,
}

struct Product {
    sku: Arc<str>,
    lock: Option<ShelfLock>,
    /// A sign for those who queue, put up by the first user who sees that the shelf is empty.
    sold_out: watch::Sender<bool>,
}

impl Counter {
    fn product_of(&self, user: u32) -> &Product {
        &self.products[self.terms.product_of(user)]
    }

    async fn serve(self: &Arc<Self>, user: u32, lock: &ShelfLock) -> Result<Outcome, Error> {
        let product = self.product_of(user);
        let mut sold_out = product.sold_out.subscribe();
        let came = Instant::now();
        for _ in 0..ATTEMPTS {
            let patience = || self.terms.wait.saturating_sub(came.elapsed());
            // A look before decides nothing, but nobody needs to queue for an empty shelf.
            match self.look(product, lock, patience()).await? {
                Some(0) => return Ok(Outcome::SoldOut),
                Some(_) => {}
                None => return Ok(Outcome::TimedOut),
            }
            let queued = Instant::now();
            let guard = tokio::select! {
                biased;
                guard = lock.to_buy(patience()) => guard.optional()?,
                // Dropping the other future takes this user out of the queue.
                _ = sold_out.wait_for(|&sold_out| sold_out) => return Ok(Outcome::SoldOut),
            };
            let Acquired(guard) = guard else { return Ok(Outcome::TimedOut) };
            let (waited, entered) = (queued.elapsed(), monotonic());
            if !guard.is_held() {
                // Granted, and lost again before this process got to know of it. That was no turn.
                continue;
            }
            match self.turn(user, entered, Some((guard, waited))).await? {
                How::Sold { .. } => return Ok(Outcome::Sold),
                How::SoldOut => return Ok(Outcome::SoldOut),
                // We were away for longer than our session; the others went on. Start again.
                How::Refused | How::Failed => {}
            }
        }
        Err(format!("the lock was lost {ATTEMPTS} times in a row").into())
    }

    /// Looks at the shelf, under the read lock if there is one; nothing if it could not be had in time.
    async fn look(
        self: &Arc<Self>,
        product: &Product,
        lock: &ShelfLock,
        patience: Duration,
    ) -> Result<Option<u32>, Error> {
        let Acquired(guard) = lock.to_look(patience).await.optional()? else { return Ok(None) };
        let token = guard.as_ref().map(AnyGuard::fencing_token);
        let seen = match token {
            Some(token) => self.with_store(product, move |store, sku| store.look(sku, token)).await?,
            None => None,
        };
        let left = match seen {
            Some(left) => left,
            // No lock, or too late for it: it decides nothing.
            None => self.left(product).await?,
        };
        if let Some(guard) = guard {
            match guard.release().await {
                // It was a look all the same.
                Ok(()) | Err(ReleaseError::Lost(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Some(left))
    }

    /// The same without a lock, and so without a token. It is wrong.
    async fn serve_unlocked(self: &Arc<Self>, user: u32) -> Result<Outcome, Error> {
        match self.turn(user, monotonic(), None).await? {
            How::Sold { .. } => Ok(Outcome::Sold),
            How::SoldOut => Ok(Outcome::SoldOut),
            How::Refused | How::Failed => Err("refused, without a token".into()),
        }
    }

    /// A user's turn since that moment, with the lock and for how long they waited for it.
    async fn turn(
        self: &Arc<Self>,
        user: u32,
        entered: u64,
        lock: Option<(AnyGuard, Duration)>,
    ) -> Result<How, Error> {
        let (guard, waited) = lock.unzip();
        let waited = waited.map(|waited| waited.as_nanos().try_into()).transpose()?;
        tell_at(entered, user, What::Entered { waited })?;
        let token = guard.as_ref().map(AnyGuard::fencing_token);
        let known = AtomicU64::new(entered);
        let bought = tokio::select! {
            biased;
            // It only watches: what comes too late is for the database to refuse. A holder that asked its guard before it
            // writes could be paused between the answer and the write.
            error = watch_over(guard.as_ref(), user, &known) => Err(error),
            bought = self.buy(user, token) => bought,
        };
        let left = monotonic();
        if guard.as_ref().is_none_or(AnyGuard::is_held) {
            known.store(left, Ordering::Relaxed);
        }
        let until = known.into_inner();
        // Before the release: when the next user says that they have got the lock, this has been said.
        tell_at(left, user, What::Ended { how: *bought.as_ref().unwrap_or(&How::Failed), until })?;
        if let Some(guard) = guard {
            match guard.release().await {
                Ok(()) => {}
                Err(ReleaseError::Lost(lost)) => tell(user, What::Lost(lost.reason().to_string()))?,
                Err(error) => eprintln!("user {user}: {}", chain(&error)),
            }
        }
        bought
    }

    /// Looks, thinks, and buys what was there to be seen.
    async fn buy(self: &Arc<Self>, user: u32, token: Option<Token>) -> Result<How, Error> {
        let product = self.product_of(user);
        let left = match token {
            Some(token) => self.with_store(product, move |store, sku| store.look(sku, token)).await?,
            None => Some(self.left(product).await?),
        };
        let Some(left) = left else { return Ok(How::Refused) };
        tell(user, What::Saw { left })?;
        let Some(rest) = left.checked_sub(1) else {
            product.sold_out.send_replace(true);
            return Ok(How::SoldOut);
        };
        tokio::time::sleep(self.terms.think).await;
        match self.with_store(product, move |store, sku| store.sell(sku, rest, user, token)).await? {
            Written::Sold => Ok(How::Sold { left: rest }),
            Written::Fenced => Ok(How::Refused),
        }
    }

    async fn left(self: &Arc<Self>, product: &Product) -> Result<u32, Error> {
        let left = self.with_store(product, |store, sku| store.left(sku)).await?;
        if left == 0 && !*product.sold_out.borrow() {
            product.sold_out.send_replace(true);
        }
        Ok(left)
    }

    /// Runs one statement, or one transaction, where it may block.
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

/// Tells when the lock is in doubt, when it is not any more, and when it is lost, and notes until when it is known to
/// have been held. Ends with an error if there is nobody to tell.
async fn watch_over(guard: Option<&AnyGuard>, user: u32, known_held: &AtomicU64) -> Error {
    let Some(guard) = guard else { return std::future::pending().await };
    let mut ticks = tokio::time::interval(LOOK_EVERY);
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
        let told = match state {
            LockState::Held => tell(user, What::Held),
            LockState::Lost(reason) => tell(user, What::Lost(reason.to_string())),
            _ => tell(user, What::Suspended),
        };
        if let Err(error) = told {
            return error;
        }
    }
    std::future::pending().await
}

fn tell(user: u32, what: What) -> Result<(), Error> {
    tell_at(monotonic(), user, what)
}

fn tell_at(at: u64, user: u32, what: What) -> Result<(), Error> {
    say(&Message::Turn(Event { user, at, what }))
}
