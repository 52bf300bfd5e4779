//! A world: the holders of its locks, the events, and the violations.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use simnet::Rng;
use simnet::host::Host;
use simnet::net::Link;
use tokio::sync::watch;
use tokio::time::Instant;
use zookeeper_recipes::{Client, FenceGate, LockState, Lost, LostReason};
use zookeeper_test_server::{LogEntry, LogKind, Op, Server, ServerError};

use crate::check::broken::Broken;
use crate::check::closed;
use crate::check::counter::Numbers;
use crate::check::errors::{self, Scene};
use crate::check::exclusion::{Exclusion, Guard, Share};
use crate::check::fencing::FencedResource;
use crate::check::fifo::Fifo;
use crate::check::history::{self, Entry, Whose};
use crate::check::leases;
use crate::check::limits::Limits;
use crate::check::margin::Margins;
use crate::check::members::Members;
use crate::check::notified::Notified;
use crate::check::once::Runs;
use crate::check::reads::{self, Reads};
use crate::check::recovery::{self, Ticket, Waits};
use crate::check::register::Register;
use crate::check::revoked::Revoked;
use crate::check::slots;
use crate::check::stale::{self, Grants};
use crate::check::tokens::Tokens;
use crate::grants::{Grant, Held, Part};
use crate::plan::{Kind, Plan};
use crate::worlds;

/// The result of a world. Two runs of a seed are equal in all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub grants: u64,
    pub losses: u64,
    pub connects: u64,
    pub virtual_ms: u64,
    /// The sum of the times for which locks were held.
    pub held_ms: u64,
    pub faults: BTreeMap<String, u64>,
    /// The events that may happen, and how often they have.
    pub sometimes: BTreeMap<String, u64>,
    pub least_margin_ms: Option<u64>,
    pub slowest_recovery_ms: u64,
    pub violations: Vec<String>,
    /// The number of entries of the server's log, and a hash of the last of them.
    pub log: (u64, u64),
    pub messages: u64,
    pub processes: u64,
    pub random_numbers: u64,
}

/// Returns the name of a value's variant, without its contents.
pub fn variant(value: &dyn std::fmt::Debug) -> String {
    let text = format!("{value:?}");
    // The kind of a request that failed, in an enum of what else may happen.
    let text = text
        .split_once("::Request(")
        .map_or(&*text, |(_, request)| request);
    let name = text.split(['(', '{', ' ', '\"']).next().unwrap_or_default();
    // Errors say what type they are, too.
    name.rsplit(':').next().unwrap_or_default().to_owned()
}

/// A machine with a client of the library.
pub struct Machine {
    pub number: u64,
    /// The links, one to each member.
    pub links: Vec<Arc<Link>>,
    pub client: Client,
    pub process: Arc<Host>,
    /// Where the callers run.
    pub executor: Arc<Host>,
    /// Whether it has crashed.
    pub is_dead: AtomicBool,
    /// Whether its client was closed, and its callers are to stop.
    pub has_left: AtomicBool,
    /// Whether its client is being closed, or was.
    pub is_closing: AtomicBool,
    /// When it was frozen last, in milliseconds.
    pub thawed: AtomicU64,
}

impl Machine {
    /// Returns whether its client is closed, or is being closed, or will never be.
    pub fn is_leaving(&self) -> bool {
        self.is_over() || self.is_closing.load(Ordering::Relaxed)
    }

    /// Returns whether its callers are to stop.
    pub fn is_over(&self) -> bool {
        self.is_dead() || self.has_left.load(Ordering::Relaxed)
    }

    pub fn is_dead(&self) -> bool {
        self.is_dead.load(Ordering::Relaxed)
    }
}

#[derive(Default)]
struct Place {
    inside: Exclusion<Arc<Grant>>,
    tokens: Tokens<(i64, u64)>,
    grants: Grants,
    numbers: Numbers,
    reads: Reads,
    /// A resource beside ZooKeeper.
    gate: FenceGate,
    fenced: FencedResource,
    register: Register,
    members: Members,
    fifo: Fifo,
    runs: Runs,
    limits: Option<Limits>,
    waits: Waits<Option<Arc<Machine>>>,
}

pub struct World {
    pub plan: Plan,
    pub server: Arc<Server>,
    start: Instant,
    /// The same by the clock of the servers' log.
    log_start: std::time::Instant,
    /// The machines of sessions, as far as they are known.
    owners: Mutex<BTreeMap<i64, u64>>,
    /// When the last fault ends that keeps answers of servers from clients.
    shaken: AtomicU64,
    trace: bool,
    places: Vec<Mutex<Place>>,
    /// The callers that wait for one path or several, and those that hold any.
    anywhere: Mutex<Waits<Option<Arc<Machine>>>>,
    /// The callers that wait for several paths.
    together: Mutex<BTreeMap<u64, Together>>,
    margins: Mutex<Margins>,
    notified: Mutex<Notified>,
    broken: Mutex<Broken>,
    revoked: Mutex<Revoked>,
    pub report: Mutex<Report>,
    stopped: watch::Sender<bool>,
    next: AtomicU64,
    /// When nothing was broken any more, in milliseconds.
    healed: AtomicU64,
    processes: AtomicU64,
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A caller that panics is a violation, and the world continues.
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl World {
    pub fn new(plan: Plan, server: &Arc<Server>, trace: bool) -> Self {
        Self {
            start: Instant::now(),
            log_start: std::time::Instant::now(),
            owners: Mutex::default(),
            shaken: AtomicU64::new(0),
            server: Arc::clone(server),
            trace,
            places: (0..plan.paths()).map(|_| Mutex::default()).collect(),
            anywhere: Mutex::default(),
            together: Mutex::default(),
            margins: Mutex::default(),
            notified: Mutex::default(),
            broken: Mutex::default(),
            revoked: Mutex::default(),
            report: Mutex::default(),
            stopped: watch::Sender::new(false),
            next: AtomicU64::new(1),
            healed: AtomicU64::new(if plan.calm { 0 } else { u64::MAX }),
            processes: AtomicU64::new(0),
            plan,
        }
    }

    /// Makes the callers end.
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

    /// Records that nothing is broken from now on.
    pub fn heal(&self) {
        self.healed.fetch_min(self.now(), Ordering::Relaxed);
        self.say(|| "healed".to_owned());
    }

    /// Returns since when nothing is broken, if that is so.
    fn healed(&self) -> Option<u64> {
        Some(self.healed.load(Ordering::Relaxed)).filter(|at| *at <= self.now())
    }

    /// Counts a process.
    pub fn process(&self) -> u64 {
        self.processes.fetch_add(1, Ordering::Relaxed);
        self.number()
    }

    pub fn processes(&self) -> u64 {
        self.processes.load(Ordering::Relaxed)
    }

    /// Returns the virtual milliseconds since the beginning.
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

    /// Counts the outcome of a call: its success, or the variant of its error.
    pub fn note<T, E: std::fmt::Debug>(&self, well: &str, badly: &str, outcome: Result<T, E>) {
        match outcome {
            Ok(_) => self.sometimes(well.to_owned()),
            Err(error) => self.note_error(badly, Some(error)),
        }
    }

    /// Counts the variant of an error.
    pub fn note_error<E: std::fmt::Debug>(&self, what: &str, error: Option<E>) {
        if let Some(error) = error {
            self.say(|| format!("{what}: {error:?}"));
            self.sometimes(format!("{what} {}", variant(&error)));
        }
    }

    pub fn fault(&self, name: &str, detail: impl FnOnce() -> String) {
        self.say(|| format!("fault: {name} {}", detail()));
        *lock(&self.report)
            .faults
            .entry(name.to_owned())
            .or_default() += 1;
    }

    /// Records that a fault keeps answers of servers from clients for this time.
    pub fn shakes(&self, time: Duration) {
        self.shaken
            .fetch_max(self.now() + time.as_millis() as u64, Ordering::Relaxed);
    }

    /// Records the owner of a session.
    fn know_session(&self, machine: &Machine) {
        if let Some(session) = machine.client.session_id() {
            lock(&self.owners).insert(session, machine.number);
        }
    }

    fn entry<'a>(&self, entry: &'a LogEntry) -> Entry<'a> {
        let makes = matches!(entry.op, Op::Create | Op::Multi);
        Entry {
            at: entry
                .at
                .saturating_duration_since(self.log_start)
                .as_millis() as u64,
            session: entry.session,
            path: &entry.path,
            may_have_others: entry.op == Op::Multi && entry.path.starts_with("/locks"),
            is_create: makes && entry.kind == LogKind::Applied && entry.error == 0,
            is_delete: entry.op == Op::Delete && entry.kind == LogKind::Applied,
            is_denied: entry.error == ServerError::NoAuth.code(),
            is_connect: entry.op == Op::Connect && entry.kind == LogKind::Applied,
        }
    }

    /// Looks at the servers' log. `None` if it does not go back as far as that.
    fn history<T>(
        &self,
        since: u64,
        look: impl FnOnce(&mut dyn Iterator<Item = Entry<'_>>) -> T,
    ) -> Option<T> {
        let (mut look, mut found) = (Some(look), None);
        // The condition is asked once, and does not wait.
        let _ = self.server.wait_until_blocking(
            |view| {
                let mut first = view.log().map(|entry| (entry.n, self.entry(entry).at));
                let is_whole = first
                    .next()
                    .is_none_or(|(number, at)| number == 0 || at < since);
                let mut log = view.log().rev().map(|entry| self.entry(entry));
                found = look.take().filter(|_| is_whole).map(|look| look(&mut log));
                true
            },
            Duration::ZERO,
        );
        found
    }

    fn whose(&self, machine: &Machine) -> impl Fn(i64) -> Whose + use<> {
        let (owners, own) = (lock(&self.owners).clone(), machine.number);
        move |session| match owners.get(&session) {
            Some(owner) if *owner == own => Whose::Own,
            Some(_) => Whose::Others,
            None => Whose::Unknown,
        }
    }

    /// Returns whether the servers have denied something below a path to a machine, whose call
    /// began at `began`.
    fn was_denied(&self, machine: &Machine, path: &str, began: u64) -> bool {
        if !lock(&self.report).faults.contains_key("access denied") {
            return false;
        }
        // An answer may be late, and the call may go by one that was asked for before it.
        let since = began.saturating_sub(2 * self.plan.recovery_ms());
        let whose = self.whose(machine);
        self.history(since, |log| history::denied(log, path, since, whose))
            .unwrap_or(true)
    }

    /// Returns when a client has connected last, since a moment; that moment if it has not
    /// connected since.
    fn connected(&self, machine: &Machine, since: u64) -> u64 {
        self.know_session(machine);
        let whose = self.whose(machine);
        // A log that does not go back as far as that shows nothing.
        self.history(since, |log| history::connected(log, since, whose))
            .unwrap_or(Some(self.now()))
            .unwrap_or(since)
    }

    /// Returns whether another contender's node was made at a path since a call of a machine began.
    /// Only where the client makes no other calls, and what servers show is no older than it, and
    /// where answers arrive: without one a client does not know that its own last node is gone
    /// (seed 1382). The call itself has made this many at most.
    fn has_come(&self, wait: Wait, machine: &Machine, own: u32) -> bool {
        let plan = &self.plan;
        let resizes = plan.resizes && plan.kinds[wait.place] == Kind::Semaphore;
        if plan.callers > 1 || plan.members > 1 || resizes {
            return true;
        }
        let whose = self.whose(machine);
        let path = path(wait.place);
        self.history(wait.began, |log| {
            history::came(log, &path, wait.began, own, whose)
        })
        .unwrap_or(true)
    }

    /// Records that a caller is granted a lock at some paths.
    pub fn enter(
        &self,
        shares: &[(usize, Share)],
        held: Held,
        machine: &Arc<Machine>,
    ) -> Arc<Grant> {
        let who = self.number();
        let (tokens, state, nodes) = (held.tokens(), held.state(), held.nodes());
        let is_broken = {
            // Without known nodes, any of them may have been the caller's own.
            let unknown = nodes.is_empty()
                && shares
                    .iter()
                    .any(|(place, _)| self.is_broken_lately(*place));
            unknown || lock(&self.broken).may_be(&nodes)
        };
        // The list may have come late, and a renewal after it.
        let limit = 2 * self.plan.timeout_ms();
        if self.now() > machine.thawed.load(Ordering::Relaxed) + limit {
            let outcome = lock(&self.broken).granted(self.now(), &nodes, limit);
            self.check(outcome.map_err(|text| format!("{who} of {} {text}", machine.number)));
        }
        // A grant that is lost before its caller takes it may already be behind another.
        let counts = held.is_held() && !is_broken;
        let part = |&(place, share): &(usize, Share)| {
            let is_next = share == Share::Exclusive && counts;
            Part {
                place,
                share,
                number: lock(&self.places[place]).grants.granted(is_next),
            }
        };
        let grant = Arc::new(Grant {
            who,
            parts: shares.iter().map(part).collect(),
            held,
            machine: Arc::clone(machine),
            nodes,
            is_broken: AtomicBool::new(is_broken),
            granted: self.now(),
            counts,
            is_told: AtomicBool::new(false),
            is_suspended: AtomicBool::new(false),
            listens: AtomicU64::new(0),
            lease_end: Mutex::default(),
        });
        self.say(|| {
            format!(
                "+ {who} of {} in {shares:?}: {tokens:?} {state:?} {:?}",
                machine.number, grant.nodes
            )
        });
        for (part, token) in grant.parts.iter().zip(tokens) {
            let (slots, overlap, backwards) = {
                let mut place = lock(&self.places[part.place]);
                let others: Vec<(u64, Vec<u32>)> = {
                    let held = place
                        .inside
                        .guards()
                        .filter(|(_, other)| counts && other.is_held());
                    held.map(|(other, guard)| (other, guard.held.slots()))
                        .collect()
                };
                let slots = slots::unique(&grant.held.slots(), others);
                let slots = slots.map_err(|text| format!("{who} {text}"));
                place.waits.enters();
                let overlap =
                    place
                        .inside
                        .enter(who, part.share, grant.held.permits(), Arc::clone(&grant));
                let backwards = match token.filter(|_| counts) {
                    Some(token) => place.tokens.granted(who, token),
                    None => Ok(()),
                };
                (slots, overlap, backwards)
            };
            for outcome in [slots, overlap, backwards] {
                self.check(outcome.map_err(|text| format!("at {}: {text}", path(part.place))));
            }
            lock(&self.margins).granted(part.place, self.now());
        }
        lock(&self.anywhere).enters();
        lock(&self.report).grants += 1;
        if let Some(state) = state.filter(|state| *state != LockState::Held) {
            self.sometimes(format!("granted {state:?}"));
        }
        self.show_tokens(&grant);
        grant
    }

    /// Uses the resources of a holder's paths, which compare tokens; the holder may have lost its
    /// lock without a notice, or may not have stopped yet.
    fn show_tokens(&self, grant: &Grant) {
        // A process that has crashed does nothing.
        if !grant.counts || grant.machine.is_dead() {
            return;
        }
        for (part, token) in grant.parts.iter().zip(grant.held.shows()) {
            let Some(token) = token else { continue };
            let (is_accepted, outcome) = {
                let mut place = lock(&self.places[part.place]);
                let is_accepted = place.gate.admit(token).is_ok();
                let is_alone = part.share == Share::Exclusive;
                (
                    is_accepted,
                    place
                        .fenced
                        .shown(grant.who, part.number, is_alone, is_accepted),
                )
            };
            self.sometimes(
                if is_accepted {
                    "let in by its token"
                } else {
                    "refused for its token"
                }
                .to_owned(),
            );
            self.check(outcome.map_err(|text| format!("at {}: {text}", path(part.place))));
        }
    }

    /// Records that a caller releases its grant, or does not wait for its loss any more.
    pub fn leave(&self, grant: &Grant) {
        let who = grant.who;
        self.say(|| format!("- {who}"));
        self.show_tokens(grant);
        lock(&self.report).held_ms += self.now() - grant.granted;
        lock(&self.notified).left(who);
        for part in &grant.parts {
            let mut place = lock(&self.places[part.place]);
            place.inside.leave(who);
            place.waits.leaves(self.now());
        }
        lock(&self.anywhere).leaves(self.now());
    }

    /// Records that a caller waits for several paths, of which it has, or may have, a part, until
    /// the wait is dropped.
    pub fn waits_for_all(
        &self,
        shares: &[(usize, Share)],
        machine: &Arc<Machine>,
    ) -> WaitForAll<'_> {
        let began = self.now();
        let places = shares.iter().map(|(place, _)| *place).collect();
        let ticket = lock(&self.anywhere).begins(began, Some(Arc::clone(machine)));
        let mut together = lock(&self.together);
        let number = together.last_key_value().map_or(0, |(last, _)| last + 1);
        together.insert(
            number,
            Together {
                began,
                machine: Arc::clone(machine),
                places,
            },
        );
        WaitForAll {
            world: self,
            number,
            ticket,
        }
    }

    /// Records that a caller has, or may have, a part of several paths until the result is dropped.
    pub fn within(&self, shares: &[(usize, Share)]) -> Within<'_> {
        let places: Vec<usize> = shares.iter().map(|(place, _)| *place).collect();
        places
            .iter()
            .for_each(|place| lock(&self.places[*place]).waits.enters());
        Within {
            world: self,
            places,
            may_hold: false,
        }
    }

    /// Records that a caller may hold the lock at a path, without waiting for it, until the result
    /// is dropped.
    pub fn may_hold(&self, place: usize) -> Within<'_> {
        lock(&self.places[place]).waits.enters();
        lock(&self.anywhere).enters();
        Within {
            world: self,
            places: vec![place],
            may_hold: true,
        }
    }

    /// Records that a caller is notified of the loss of its grant.
    pub fn lost(&self, grant: &Grant, lost: &Lost) {
        let (who, reason) = (grant.who, lost.reason());
        // The holder's work was in progress at the notice, or when its process stood still.
        self.show_tokens(grant);
        grant.is_told.store(true, Ordering::Relaxed);
        self.say(|| format!("! {who} lost: {reason:?}"));
        let outcome = lock(&self.notified).notified(who, grant.held.is_held());
        self.check(outcome);
        lock(&self.report).losses += 1;
        self.sometimes(format!("lost {}", variant(&reason)));
        let scene = self.scene(&grant.machine, "", grant.granted, false);
        let outcome = errors::of_loss(&variant(&reason), scene);
        self.check(outcome.map_err(|text| format!("{who} of {} {text}", grant.machine.number)));
        self.check_told(&grant.nodes, lost);
        if reason == LostReason::LeaseOver {
            let outcome = leases::notified(*lock(&grant.lease_end), self.now());
            self.check(outcome.map_err(|text| format!("{who} of {} {text}", grant.machine.number)));
        }
        // A process that was frozen is notified late.
        let awake = self.now() > grant.machine.thawed.load(Ordering::Relaxed) + 100;
        if awake && variant(&reason) == "LeaseExpired" {
            for part in grant
                .parts
                .iter()
                .filter(|part| part.share == Share::Exclusive)
            {
                lock(&self.margins).lost(part.place, self.now());
            }
        }
    }

    /// Checks a notice to a caller that another process has deleted one of its nodes.
    pub fn check_told(&self, nodes: &[String], lost: &Lost) {
        if variant(&lost.reason()) == "NodeDeleted" && !nodes.is_empty() {
            let outcome = lock(&self.broken).notified(nodes);
            self.check(outcome);
        }
    }

    /// Writes by the guard of a holder, in one of the ways of a transaction.
    pub async fn write(&self, grant: &Arc<Grant>, rng: &mut Rng) {
        let Some(part) = grant.parts.first() else {
            return;
        };
        let is_stale = |part: &Part| lock(&self.places[part.place]).grants.is_stale(part.number);
        let was_stale = grant.parts.iter().any(is_stale);
        let node = data(part.place);
        let scratch = format!("{node}/{}", grant.who);
        let text = part.number.to_string();
        let Some(begun) = grant.held.transaction() else {
            return;
        };
        let version = match rng.range(0, 3) {
            // The version that was read must match, which holders that share may have passed.
            0 => self.read(grant).await,
            _ => None,
        };
        let written = match rng.range(0, 3) {
            0 => begun.set_data(&node, text, version),
            1 => begun
                .check(&node, version)
                .create(&scratch, "")
                .set_data(&node, text, version),
            _ => begun
                .create(&scratch, "")
                .set_data(&node, text, version)
                .delete(&scratch, None),
        };
        let written = written.commit().await;
        match &written {
            Ok(()) => self.sometimes("written".to_owned()),
            Err(error) => self.sometimes(format!("not written {}", variant(error))),
        }
        // Permits do not exclude each other.
        if matches!(part.share, Share::Permits(_)) {
            return;
        }
        self.check(stale::written(grant.who, was_stale, written.is_ok()));
        if written.is_ok() && part.share == Share::Exclusive {
            lock(&self.places[part.place]).reads.written(part.number);
        }
    }

    /// Reads by the guard of a holder. Returns the version.
    pub async fn read(&self, grant: &Arc<Grant>) -> Option<i32> {
        let part = grant.parts.first()?;
        let floor = lock(&self.places[part.place]).reads.begin();
        match grant.held.get_data(&data(part.place)).await? {
            Ok(stored) => {
                self.sometimes("read".to_owned());
                let (stored, version) = stored?;
                let number = String::from_utf8_lossy(&stored).parse().unwrap_or(0);
                let counts = grant.is_held() && !matches!(part.share, Share::Permits(_));
                let outcome = reads::read(grant.who, floor, part.number, number);
                self.check(if counts { outcome } else { Ok(()) });
                Some(version)
            }
            Err(error) => {
                self.sometimes(format!("not read {}", variant(&error)));
                None
            }
        }
    }

    /// Runs a closure on the numbers of a counter.
    pub fn numbers<T>(&self, place: usize, look: impl FnOnce(&mut Numbers) -> T) -> T {
        look(&mut lock(&self.places[place]).numbers)
    }

    /// Runs a closure on the limits of a semaphore.
    pub fn limits<T>(&self, place: usize, look: impl FnOnce(&mut Limits) -> T) -> T {
        look(
            lock(&self.places[place])
                .limits
                .get_or_insert_with(|| Limits::new(self.plan.permits)),
        )
    }

    /// Returns whether a grant is held, and none of its nodes was deleted by another process.
    pub fn holds(&self, grant: &Arc<Grant>) -> bool {
        grant.is_held()
    }

    /// Records that a holder is about to be asked to stop.
    pub fn asks_to_stop(&self, node: &str) {
        lock(&self.revoked).asks(node);
    }

    pub fn asked_to_stop(&self, node: &str) {
        lock(&self.revoked).asked(node, self.now());
    }

    /// Records that a holder has exchanged its nodes.
    pub fn converted(&self, before: &[String], after: &[String]) {
        lock(&self.revoked).converted(before, after);
    }

    /// Records that a holder was notified of a request to release.
    pub fn revoked(&self, grant: &Grant) {
        self.sometimes("told to stop".to_owned());
        let outcome = lock(&self.revoked).notified(&grant.nodes);
        self.check(outcome.map_err(|text| format!("{} {text}", grant.who)));
    }

    /// Runs a closure on the values of a number that is set.
    pub fn register<T>(&self, place: usize, look: impl FnOnce(&mut Register) -> T) -> T {
        look(&mut lock(&self.places[place]).register)
    }

    /// Runs a closure on the members of a group.
    pub fn members<T>(&self, place: usize, look: impl FnOnce(&mut Members) -> T) -> T {
        look(&mut lock(&self.places[place]).members)
    }

    /// Runs a closure on those who wait at a path.
    pub fn fifo<T>(&self, place: usize, look: impl FnOnce(&mut Fifo) -> T) -> T {
        look(&mut lock(&self.places[place]).fifo)
    }

    /// Records that a machine's client has ended by a close, or by a drain that reports success.
    pub fn client_ended(&self, machine: &Arc<Machine>, is_drained: bool) {
        let (mut held, mut in_hands) = (0, 0);
        for place in &self.places {
            for (_, grant) in lock(place).inside.guards() {
                if Arc::ptr_eq(&grant.machine, machine) && !matches!(grant.held, Held::Run(_)) {
                    held += usize::from(grant.held.is_held());
                    let is_taken = grant.held.state() == Some(LockState::Lost(LostReason::Closed));
                    in_hands += usize::from(is_taken);
                }
            }
        }
        self.check(
            closed::ended(held, in_hands, is_drained)
                .map_err(|text| format!("{}: {text}", machine.number)),
        );
    }

    pub fn is_healed(&self) -> bool {
        self.healed().is_some()
    }

    /// Returns whether all that was broken has healed long enough ago for clients to be connected,
    /// and answers to come soon.
    pub fn is_quiet(&self) -> bool {
        let long = self.plan.recovery_ms();
        let is_over = |healed: u64| self.now() >= healed + long;
        self.healed().is_some_and(is_over) && !self.plan.far && !self.is_stopped()
    }

    /// Returns how much longer a caller waits for what is free to be granted: as long as that may
    /// take, when nothing is broken.
    pub fn longer(&self) -> Duration {
        let waits = self.is_healed() && !self.is_stopped() && !self.plan.calm;
        Duration::from_millis(if waits { self.plan.recovery_ms() } else { 0 })
    }

    /// Records that a caller waits for the lock at a path, until the wait is given back to
    /// [`ends`](Self::ends). Without a machine it may wait for more than is free.
    pub fn waits(&self, place: usize, machine: Option<&Arc<Machine>>) -> Wait {
        // Nodes of callers that have left, or are dead, have no waiter.
        let has_nodes = !worlds::left(&self.plan, &self.server, place).is_empty();
        let began = self.now();
        let ticket = lock(&self.places[place])
            .waits
            .begins(began, machine.cloned());
        if let Some(machine) = machine {
            self.know_session(machine);
        }
        let anywhere = lock(&self.anywhere).begins(began, machine.cloned());
        Wait {
            place,
            counts: machine.is_some(),
            ticket,
            anywhere,
            began,
            has_nodes,
        }
    }

    /// A wait ends with a grant, or without one.
    pub fn ends(&self, wait: Wait, is_granted: bool) {
        let now = self.now();
        lock(&self.anywhere).ends(wait.anywhere, now);
        let mut place = lock(&self.places[wait.place]);
        let waited = self
            .healed()
            .and_then(|healed| place.waits.waited(wait.ticket, now, healed));
        place.waits.ends(wait.ticket, now);
        drop(place);
        if let Some(waited) = waited.filter(|_| is_granted && wait.counts && !self.plan.calm) {
            let mut report = lock(&self.report);
            report.slowest_recovery_ms = report.slowest_recovery_ms.max(waited);
        }
    }

    /// Judges the error of a call that has not ended yet, and that was to wait so long.
    pub fn refused(&self, wait: Wait, machine: &Machine, error: &str, wait_ms: u64, leased: bool) {
        let (alone_since, left) = {
            let waits = &lock(&self.places[wait.place]).waits;
            (waits.alone_since(wait.ticket), waits.left())
        };
        self.know_session(machine);
        // A try lists before it creates a node, and may find a node of an earlier call.
        let own = u32::from(error != "WouldBlock");
        let scene = self.scene(
            machine,
            &path(wait.place),
            wait.began,
            error == "NoAuth" || error == "Orphaned",
        );
        // Cleanup takes a moment where nothing is broken, and a session timeout after the end of a
        // session.
        let traces = if scene.undisturbed {
            500
        } else {
            2 * self.plan.timeout_ms() + 5_000
        };
        let scene = Scene {
            // A holder whose end was reported a moment ago does not count any more, and the answer
            // that names the next may not have arrived.
            undisturbed: scene.undisturbed && wait_ms >= 5_000 && self.now() >= left + traces,
            reachable: scene.reachable && wait_ms >= 5_000 && self.now() >= left + traces,
            contended: wait.has_nodes
                || alone_since.is_none_or(|since| wait.began < since + traces)
                    && (!scene.reachable || self.has_come(wait, machine, own)),
            resized: self.plan.resizes && self.plan.kinds[wait.place] == Kind::Semaphore,
            leased,
            ..scene
        };
        let outcome = errors::of_call(error, scene);
        self.check(
            outcome.map_err(|text| format!("{} at {}: {text}", machine.number, path(wait.place))),
        );
    }

    /// Judges the error of a call for several paths, which was to wait so long.
    pub fn refused_all(
        &self,
        machine: &Machine,
        shares: &[(usize, Share)],
        began: u64,
        error: &str,
        wait_ms: u64,
    ) {
        let left = shares
            .iter()
            .map(|(place, _)| lock(&self.places[*place]).waits.left())
            .max()
            .unwrap_or(0);
        self.know_session(machine);
        let may_be_denied = error == "NoAuth" || error == "Orphaned";
        let scene = self.scene(machine, "/locks", began, may_be_denied);
        let patient = wait_ms >= 5_000 && self.now() >= left + 2 * self.plan.timeout_ms() + 5_000;
        let scene = Scene {
            undisturbed: scene.undisturbed && patient,
            reachable: scene.reachable && patient,
            contended: true,
            leased: true,
            ..scene
        };
        let outcome = errors::of_call(error, scene);
        self.check(
            outcome.map_err(|text| format!("{} for all of {shares:?} {text}", machine.number)),
        );
    }

    /// Judges an error of another recipe at a path, by one of the functions of `errors`.
    pub fn refused_by(
        &self,
        judge: fn(&str, Scene) -> Result<(), String>,
        machine: &Machine,
        place: usize,
        began: u64,
        error: &str,
    ) {
        self.know_session(machine);
        let scene = Scene {
            contended: true,
            ..self.scene(machine, &path(place), began, true)
        };
        let outcome = judge(error, scene);
        self.check(
            outcome.map_err(|text| format!("{} at {}: {text}", machine.number, path(place))),
        );
    }

    /// Returns the facts about a call of a machine that began at `began`, with the permissions that
    /// were denied to it below a path.
    fn scene(&self, machine: &Machine, path: &str, began: u64, may_be_denied: bool) -> Scene {
        let limit = if self.plan.calm {
            0
        } else {
            self.plan.recovery_ms()
        };
        let is_healed = self.healed().is_some_and(|healed| began >= healed + limit);
        let since = self.shaken.load(Ordering::Relaxed) + self.plan.recovery_ms();
        // Long links take seconds now and then, and connections are given up; with a short session
        // timeout, those of others are too, by two messages that straggle (seed 51184).
        let lasts = Duration::from_millis(self.now().saturating_sub(began));
        let straggles =
            |link: &Arc<Link>| link.since_straggler().is_some_and(|since| since <= lasts);
        let is_steady = !self.plan.far && !machine.links.iter().any(straggles);
        Scene {
            undisturbed: is_healed && !machine.is_dead() && is_steady,
            reachable: began >= since && !machine.is_leaving() && is_steady,
            denied: may_be_denied && self.was_denied(machine, path, began),
            closing: machine.is_closing.load(Ordering::Relaxed),
            broken: self.plan.broken > 0,
            ..Scene::default()
        }
    }

    /// Runs a closure on the runs of a job.
    pub fn runs<T>(&self, place: usize, look: impl FnOnce(&mut Runs) -> T) -> T {
        look(&mut lock(&self.places[place]).runs)
    }

    /// Looks at all who wait for several paths, or for anything while nothing is held at any path.
    fn look_at_waits(&self) {
        let (now, limit) = (self.now(), self.plan.recovery_ms());
        let Some(healed) = self.healed() else { return };
        let lives =
            |machine: &Option<Arc<Machine>>| machine.as_ref().is_some_and(|one| !one.is_over());
        let longest = lock(&self.anywhere).longest(now, healed, lives);
        // A multi-lock that has a part is no holder, and one who waits for that part waits for both
        // calls.
        let calls = if self.plan.far && self.plan.multi > 0 {
            recovery::FAR_MS
        } else {
            0
        };
        self.check(
            recovery::in_time(longest, limit + calls).map_err(|text| format!("everything {text}")),
        );
        for one in lock(&self.together)
            .values()
            .filter(|one| !one.machine.is_over())
        {
            // The caller counts as one that may hold a part.
            let free = one
                .places
                .iter()
                .map(|place| lock(&self.places[*place]).waits.free_but_for(1));
            let waited = recovery::waited_for_all(now, healed.max(one.began), free);
            let outcome = recovery::in_time(waited, limit);
            self.check(outcome.map_err(|text| format!("all of {:?} {text}", one.places)));
        }
    }

    /// Records how long something took that was asked for when nothing was broken.
    pub fn took(&self, waited: u64) {
        let mut report = lock(&self.report);
        report.slowest_recovery_ms = report.slowest_recovery_ms.max(waited);
    }

    /// Checks all callers that wait for a grant, or for the notice of a loss.
    pub fn look(&self) {
        let now = self.now();
        self.look_at_waits();
        for (number, place) in self.places.iter().enumerate() {
            let longest = self.healed().map(|healed| {
                let lives = |machine: &Option<Arc<Machine>>| {
                    machine.as_ref().is_some_and(|one| !one.is_over())
                };
                lock(place).waits.longest(now, healed, lives)
            });
            let outcome = recovery::in_time(longest.unwrap_or(0), self.plan.recovery_ms());
            self.check(outcome.map_err(|text| format!("{} {text}", path(number))));
            let guards: Vec<(u64, Arc<Grant>)> = lock(place)
                .inside
                .guards()
                .map(|(who, guard)| (who, Arc::clone(guard)))
                .collect();
            for (who, grant) in guards {
                let machine = &grant.machine;
                let thawed = machine.thawed.load(Ordering::Relaxed);
                let asleep =
                    machine.is_dead() || machine.executor.is_frozen() || now <= thawed + 100;
                let is_held = grant.held.is_held();
                let knows = grant.is_told.load(Ordering::Relaxed);
                let outcome = lock(&self.notified).look(now, who, is_held, asleep || knows);
                self.check(outcome);
                match grant.held.state() {
                    Some(LockState::Suspended)
                        if !grant.is_suspended.swap(true, Ordering::Relaxed) =>
                    {
                        self.sometimes("suspended".to_owned());
                    }
                    Some(LockState::Held) if grant.is_suspended.swap(false, Ordering::Relaxed) => {
                        self.sometimes("held again".to_owned());
                    }
                    _ => {}
                }
                let outcome = leases::look(*lock(&grant.lease_end), now, is_held && !asleep);
                self.check(outcome.map_err(|text| format!("{who} of {} {text}", machine.number)));
                // A heartbeat tells it within T/6, and without one the lease ends.
                let (limit, may_act) = (self.plan.timeout_ms(), is_held && !asleep);
                let connected = || self.connected(machine, grant.granted);
                let outcome = lock(&self.broken).look(
                    now,
                    &grant.nodes,
                    grant.granted,
                    may_act,
                    limit,
                    connected,
                );
                self.check(outcome.map_err(|text| format!("{who} of {} {text}", machine.number)));
                let listens = grant.listens.load(Ordering::Relaxed);
                if may_act && listens > 0 {
                    let outcome = lock(&self.revoked).look(now, &grant.nodes, listens, limit * 2);
                    self.check(
                        outcome.map_err(|text| format!("{who} of {} {text}", machine.number)),
                    );
                }
            }
        }
    }

    /// Returns whether another process has deleted a node at a path lately, of which its holder may
    /// not have been notified yet.
    pub fn is_broken_lately(&self, place: usize) -> bool {
        lock(&self.broken).below(
            &path(place),
            self.now().saturating_sub(2 * self.plan.timeout_ms()),
        )
    }

    /// Records that another process has deleted a node.
    pub fn broken(&self, node: &str) {
        lock(&self.broken).deleted(node, self.now());
        self.may_break(node);
    }

    /// Records that another process may delete a node from now on.
    pub fn may_break(&self, node: &str) {
        lock(&self.broken).suspect(node);
        for place in &self.places {
            for (_, grant) in lock(place).inside.guards() {
                let is_own = match &grant.nodes[..] {
                    [] => grant
                        .parts
                        .iter()
                        .any(|part| node.starts_with(&path(part.place))),
                    nodes => nodes.iter().any(|own| own == node),
                };
                if is_own {
                    grant.is_broken.store(true, Ordering::Relaxed);
                }
            }
        }
    }

    pub fn least_margin(&self) -> Option<u64> {
        lock(&self.margins).least
    }
}

/// A call that waits for what is at a path.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    place: usize,
    /// Whether it can be granted what is free.
    counts: bool,
    ticket: Ticket,
    anywhere: Ticket,
    began: u64,
    /// Whether there were nodes of contenders when it began.
    has_nodes: bool,
}

/// A caller that waits for several paths.
struct Together {
    began: u64,
    machine: Arc<Machine>,
    places: Vec<usize>,
}

/// A call that waits for several paths.
pub struct WaitForAll<'w> {
    world: &'w World,
    number: u64,
    ticket: Ticket,
}

impl Drop for WaitForAll<'_> {
    fn drop(&mut self) {
        lock(&self.world.together).remove(&self.number);
        lock(&self.world.anywhere).ends(self.ticket, self.world.now());
    }
}

/// A caller that has, or may have, a part of several paths.
pub struct Within<'w> {
    world: &'w World,
    places: Vec<usize>,
    /// Whether it may hold all of it.
    may_hold: bool,
}

impl Drop for Within<'_> {
    fn drop(&mut self) {
        let now = self.world.now();
        self.places
            .iter()
            .for_each(|place| lock(&self.world.places[*place]).waits.leaves(now));
        if self.may_hold {
            lock(&self.world.anywhere).leaves(now);
        }
    }
}

/// Returns the node that holders write.
pub fn data(place: usize) -> String {
    format!("/data/p{place}")
}

pub fn path(place: usize) -> String {
    format!("/locks/p{place}")
}
