//! One world: who is inside of what, what has happened, and what was wrong.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use simnet::host::Host;
use simnet::net::Link;
use tokio::sync::watch;
use tokio::time::Instant;
use zookeeper_recipes::{
    AcquireError, AnyGuard, Client, ConversionFailure, LockState, Lost, NodeVersion, ReadGuard, ReleaseError,
    SemaphorePermit, TransactionError, WriteGuard,
};

use crate::check::broken::Broken;
use crate::check::counter::Numbers;
use crate::check::exclusion::{Exclusion, Guard, Share};
use crate::check::margin::Margins;
use crate::check::stale::{self, Grants};
use crate::check::tokens::Tokens;
use crate::check::told::Told;
use crate::plan::Plan;

/// What came of a world. Two runs of a seed are equal in all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub grants: u64,
    pub losses: u64,
    pub connects: u64,
    pub virtual_ms: u64,
    /// The sum of the times for which locks were held.
    pub held_ms: u64,
    pub faults: BTreeMap<String, u64>,
    /// What may happen, and how often it has.
    pub sometimes: BTreeMap<String, u64>,
    pub least_margin_ms: Option<u64>,
    pub slowest_recovery_ms: u64,
    pub violations: Vec<String>,
    /// The number of entries of the server's log, and a hash of the last of them.
    pub log: (u64, u64),
    pub messages: u64,
    pub random_numbers: u64,
}

/// What a value is for developers, without what is in it: the variant of an enum.
pub fn variant(value: &dyn std::fmt::Debug) -> String {
    let text = format!("{value:?}");
    text.split(['(', '{', ' ', '\"']).next().unwrap_or_default().to_owned()
}

/// The variant of an error, and those below it.
pub fn refusal(error: &AcquireError) -> &'static str {
    match error {
        AcquireError::TimedOut { .. } => "TimedOut",
        AcquireError::Connection { .. } => "Connection",
        AcquireError::Orphaned { .. } => "Orphaned",
        AcquireError::TooManyWatches { .. } => "TooManyWatches",
        AcquireError::NodeDeleted { .. } => "NodeDeleted",
        AcquireError::LeaseOver { .. } => "LeaseOver",
        AcquireError::Closed { .. } => "Closed",
        // None of these is expected of a world.
        AcquireError::Rejected { .. } => "Rejected",
        AcquireError::NoAuth { .. } => "NoAuth",
        _ => "other",
    }
}

pub fn not_converted(reason: &ConversionFailure) -> &'static str {
    match reason {
        ConversionFailure::WouldDeadlock => "WouldDeadlock",
        ConversionFailure::Contended => "Contended",
        ConversionFailure::Lost(_) => "Lost",
        ConversionFailure::Rejected { .. } => "Rejected",
        _ => "other",
    }
}

pub fn not_released(error: &ReleaseError) -> &'static str {
    match error {
        ReleaseError::Lost(_) => "Lost",
        ReleaseError::TimedOut { .. } => "TimedOut",
        ReleaseError::SessionNotClosed { .. } => "SessionNotClosed",
        _ => "other",
    }
}

/// A machine with a client of the library.
pub struct Machine {
    pub number: u64,
    pub link: Arc<Link>,
    pub client: Client,
    pub process: Arc<Host>,
    /// Where the callers run.
    pub executor: Arc<Host>,
    /// Whether it has crashed.
    pub is_dead: AtomicBool,
    /// When it was frozen last, in milliseconds.
    pub thawed: AtomicU64,
}

impl Machine {
    pub fn is_dead(&self) -> bool {
        self.is_dead.load(Ordering::Relaxed)
    }
}

/// What a caller was granted.
pub enum Held {
    Lock(AnyGuard),
    Read(ReadGuard),
    Write(WriteGuard),
    Permit(SemaphorePermit),
}

macro_rules! each {
    ($held:expr, $guard:ident => $what:expr) => {
        match $held {
            Held::Lock($guard) => $what,
            Held::Read($guard) => $what,
            Held::Write($guard) => $what,
            Held::Permit($guard) => $what,
        }
    };
}

impl Held {
    pub fn is_held(&self) -> bool {
        each!(self, guard => guard.is_held())
    }

    pub fn state(&self) -> LockState {
        each!(self, guard => guard.state())
    }

    pub async fn lost(&self) -> Lost {
        each!(self, guard => guard.lost().await)
    }

    pub async fn release(self) -> Result<(), ReleaseError> {
        each!(self, guard => guard.release().await)
    }

    /// The token of an exclusive grant.
    fn token(&self) -> Option<(i64, u64)> {
        match self {
            Self::Lock(guard) => Some((guard.fencing_token().zxid(), guard.fencing_token().counter())),
            Self::Write(guard) => Some((guard.fencing_token().zxid(), guard.fencing_token().counter())),
            Self::Read(_) | Self::Permit(_) => None,
        }
    }

    fn nodes(&self) -> Vec<String> {
        match self {
            Self::Lock(guard) => vec![guard.node().to_string()],
            Self::Read(guard) => vec![guard.node().to_string()],
            Self::Write(guard) => vec![guard.node().to_string()],
            Self::Permit(permit) => permit.nodes().iter().map(ToString::to_string).collect(),
        }
    }

    fn permits(&self) -> u32 {
        match self {
            Self::Permit(permit) => permit.num_permits(),
            _ => 1,
        }
    }
}

/// A grant, and whose it is.
pub struct Grant {
    held: Held,
    machine: Arc<Machine>,
    /// Its nodes, if it is a lock's.
    nodes: Vec<String>,
    /// Whether its node was deleted by another process. It is told with the next heartbeat, and may stand beside
    /// others until then: RELIABILITY.md promises no more.
    is_broken: AtomicBool,
    granted: u64,
    /// The number of the last exclusive grant of its path, up to it.
    number: u64,
}

impl Grant {
    pub fn held(&self) -> &Held {
        &self.held
    }

    pub fn into_held(self) -> Held {
        self.held
    }
}

impl Guard for Arc<Grant> {
    fn is_held(&self) -> bool {
        !self.machine.is_dead() && !self.is_broken.load(Ordering::Relaxed) && self.held.is_held()
    }

    fn show(&self) -> String {
        format!("{:?} {:?} of {}", self.held.state(), self.nodes, self.machine.number)
    }
}

#[derive(Default)]
struct Place {
    inside: Exclusion<Arc<Grant>>,
    tokens: Tokens<(i64, u64)>,
    grants: Grants,
    numbers: Numbers,
}

pub struct World {
    pub plan: Plan,
    start: Instant,
    trace: bool,
    places: Vec<Mutex<Place>>,
    margins: Mutex<Margins>,
    told: Mutex<Told>,
    broken: Mutex<Broken>,
    pub report: Mutex<Report>,
    stopped: watch::Sender<bool>,
    next: AtomicU64,
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A caller that panics is a violation, and the world goes on.
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl World {
    pub fn new(plan: Plan, trace: bool) -> Self {
        Self {
            start: Instant::now(),
            trace,
            places: (0..plan.paths()).map(|_| Mutex::default()).collect(),
            margins: Mutex::default(),
            told: Mutex::default(),
            broken: Mutex::default(),
            report: Mutex::default(),
            stopped: watch::Sender::new(false),
            next: AtomicU64::new(1),
            plan,
        }
    }

    /// Has the callers come to an end.
    pub fn stop(&self) {
        self.stopped.send_replace(true);
    }

    pub fn is_stopped(&self) -> bool {
        *self.stopped.borrow()
    }

    pub async fn stopped(&self) {
        // The sender is here.
        let _ = self.stopped.subscribe().wait_for(|stopped| *stopped).await;
    }

    /// Virtual milliseconds since the beginning.
    pub fn now(&self) -> u64 {
        (Instant::now() - self.start).as_millis() as u64
    }

    pub fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub fn say(&self, text: impl FnOnce() -> String) {
        if self.trace {
            println!("{:>9} {}", self.now(), text());
        }
    }

    pub fn violation(&self, text: &str) {
        let text = format!("seed {} at {} ms: {text}", self.plan.seed, self.now());
        self.say(|| format!("VIOLATION {text}"));
        lock(&self.report).violations.push(text);
    }

    pub fn check(&self, outcome: Result<(), String>) {
        if let Err(text) = outcome {
            self.violation(&text);
        }
    }

    pub fn sometimes(&self, what: String) {
        *lock(&self.report).sometimes.entry(what).or_default() += 1;
    }

    pub fn fault(&self, name: &str, detail: impl FnOnce() -> String) {
        self.say(|| format!("fault: {name} {}", detail()));
        *lock(&self.report).faults.entry(name.to_owned()).or_default() += 1;
    }

    /// A caller is granted something at a path.
    pub fn enter(&self, place: usize, share: Share, held: Held, machine: &Arc<Machine>) -> (u64, Arc<Grant>) {
        let who = self.number();
        let (token, state, is_held) = (held.token(), held.state(), held.is_held());
        let permits = held.permits();
        let nodes = held.nodes();
        let is_broken = lock(&self.broken).since(&nodes).is_some();
        // One that is not held any more when its caller learns of it may be behind another already.
        let number =
            lock(&self.places[place]).grants.granted(share == Share::Exclusive && is_held && !is_broken);
        let holder = Arc::clone(machine);
        let grant = Grant {
            held,
            machine: holder,
            nodes,
            is_broken: AtomicBool::new(is_broken),
            granted: self.now(),
            number,
        };
        let grant = Arc::new(grant);
        self.say(|| {
            format!(
                "+ {who} of {} in {place}: {share:?} {token:?} {state:?} {:?}",
                machine.number, grant.nodes
            )
        });
        let (overlap, backwards) = {
            let mut state = lock(&self.places[place]);
            let overlap = state.inside.enter(who, share, permits, Arc::clone(&grant));
            let backwards = match token.filter(|_| is_held && !is_broken) {
                Some(token) => state.tokens.granted(who, token),
                None => Ok(()),
            };
            (overlap, backwards)
        };
        self.check(overlap.map_err(|text| format!("at {}: {text}", path(place))));
        self.check(backwards.map_err(|text| format!("at {}: {text}", path(place))));
        lock(&self.margins).granted(place, self.now());
        lock(&self.report).grants += 1;
        if state != LockState::Held {
            self.sometimes(format!("granted {state:?}"));
        }
        (who, grant)
    }

    /// A caller gives back what it was granted, or does not wait any more to be told that it is lost.
    pub fn leave(&self, place: usize, who: u64, grant: &Grant) {
        self.say(|| format!("- {who}"));
        lock(&self.report).held_ms += self.now() - grant.granted;
        lock(&self.told).left(who);
        lock(&self.places[place]).inside.leave(who);
    }

    /// A caller is told that it has lost what it was granted.
    pub fn lost(&self, place: usize, who: u64, grant: &Grant, lost: &Lost) {
        let reason = lost.reason();
        self.say(|| format!("! {who} lost: {reason:?}"));
        let outcome = lock(&self.told).told(who, grant.held.is_held());
        self.check(outcome);
        lock(&self.report).losses += 1;
        self.sometimes(format!("lost {}", variant(&reason)));
        // One that was frozen has been told late.
        let awake = self.now() > grant.machine.thawed.load(Ordering::Relaxed) + 100;
        if awake && variant(&reason) == "LeaseExpired" && grant.held.token().is_some() {
            lock(&self.margins).lost(place, self.now());
        }
    }

    /// Writes by the guard of a holder.
    pub async fn write(&self, place: usize, who: u64, grant: &Grant) {
        let was_stale = lock(&self.places[place]).grants.is_stale(grant.number);
        let node = data(place);
        let written = each!(&grant.held, guard => guard.transaction().set_data(&node, "", NodeVersion::Any).commit().await);
        let outcome = match &written {
            Ok(()) => "written",
            Err(TransactionError::Lost(_)) => "not written Lost",
            Err(TransactionError::Unknown { .. }) => "not written Unknown",
            Err(_) => "not written other",
        };
        self.sometimes(outcome.to_owned());
        // Permits do not exclude each other.
        let counts = !matches!(grant.held, Held::Permit(_));
        self.check(stale::written(who, was_stale && counts, written.is_ok()));
    }

    /// Runs a closure on the numbers of a counter.
    pub fn numbers<T>(&self, place: usize, look: impl FnOnce(&mut Numbers) -> T) -> T {
        look(&mut lock(&self.places[place]).numbers)
    }

    /// Looks at all who wait to be told of a loss.
    pub fn look(&self) {
        let now = self.now();
        for place in &self.places {
            let guards: Vec<(u64, Arc<Grant>)> =
                lock(place).inside.guards().map(|(who, guard)| (who, Arc::clone(guard))).collect();
            for (who, grant) in guards {
                let machine = &grant.machine;
                let thawed = machine.thawed.load(Ordering::Relaxed);
                let asleep = machine.is_dead() || machine.executor.is_frozen() || now <= thawed + 100;
                let is_held = grant.held.is_held();
                let outcome = lock(&self.told).look(now, who, is_held, asleep);
                self.check(outcome);
                // A heartbeat tells it, and without one the lease ends.
                let (limit, may_act) = (2 * self.plan.timeout_ms(), is_held && !asleep);
                let outcome = lock(&self.broken).look(now, &grant.nodes, grant.granted, may_act, limit);
                self.check(outcome.map_err(|text| format!("{who} of {} {text}", machine.number)));
            }
        }
    }

    /// A node has been deleted by another process.
    pub fn broken(&self, node: &str) {
        lock(&self.broken).deleted(node, self.now());
        for place in &self.places {
            for (_, grant) in lock(place).inside.guards() {
                if grant.nodes.iter().any(|own| own == node) {
                    grant.is_broken.store(true, Ordering::Relaxed);
                }
            }
        }
    }

    pub fn least_margin(&self) -> Option<u64> {
        lock(&self.margins).least
    }
}

/// The node that holders write.
pub fn data(place: usize) -> String {
    format!("/data/p{place}")
}

pub fn path(place: usize) -> String {
    format!("/locks/p{place}")
}
