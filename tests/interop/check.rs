//! Judges a journal: who held the lock when, and the final value of the counter.
//!
//! | record | written |
//! |---|---|
//! | `enter W x\|r TOKEN SESSION` | after an exclusive or a shared grant; the token is the czxid of the lock node, and after a dot the number of its holder, if not the first |
//! | `asks W` | before permits of a semaphore are asked for |
//! | `enter W N TOKEN SESSION` | after a grant of `N` permits; `N@S,S` when they have slots; Curator's have no token that compares with ours: `-` |
//! | `may N` | by the parent, before the limit of a semaphore is set to `N` |
//! | `limit N` | by the parent, once all workers know that this is the limit |
//! | `read W V` | when the counter was read |
//! | `intent W N`, `commit W N` | before and after the counter is written, only by exclusive holders |
//! | `down W` | before a write lock is turned into a read lock |
//! | `leave W` | before the release, once the worker has made sure that it held the lock all the time |
//! | `lost W` | instead of `leave`, if it did not; for a victim also by the parent, see below |
//! | `dead P` | by the parent, when process `P` was killed and has ended |
//! | `trouble W ..`, `stays W ..`, `set P N`, `sees P N` | for readers and for the parent |
//!
//! A worker `W` is `<process>.<thread>`, a process `<side>-<number>`.
//!
//! A session may expire although no process was killed, if the machine lets none run for long
//! enough. A hold that its own worker reports as lost proves nothing for or against the lock, and
//! is left out. A killed process is different: until it is dead, its hold counts. If a process was
//! killed while it held the lock, the parent asks the servers whether its session outlived it, and
//! reports the hold as lost if not.

use std::collections::{BTreeMap, BTreeSet};

use super::journal::records;
use super::permits::{LimitHistory, Permits};

/// How many violations are shown.
const SHOWN: usize = 20;

/// The findings of a journal.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Complete holds and those that a kill cut short, by side; lost holds are not counted.
    pub(crate) grants: BTreeMap<String, usize>,
    /// The shared ones among the grants.
    pub(crate) shared: BTreeMap<String, usize>,
    /// How often a shared hold found another shared hold beside it.
    pub(crate) together: usize,
    /// How many write locks were turned into read locks.
    pub(crate) downgraded: usize,
    /// Killed processes by side, and the number of holds that a kill cut short.
    pub(crate) dead: BTreeMap<String, usize>,
    pub(crate) cut: BTreeMap<String, usize>,
    /// Acknowledged increments, and increments of victims that were found to have been made.
    pub(crate) committed: u64,
    pub(crate) adopted: u64,
    /// Holds that their workers reported as lost.
    pub(crate) lost: usize,
    pub(crate) trouble: Vec<String>,
    pub(crate) violations: Vec<String>,
}

impl Findings {
    pub(crate) fn total(&self) -> usize {
        self.grants.values().sum()
    }

    /// Returns an error with all violations, if there are any.
    pub(crate) fn verdict(&self) -> Result<(), String> {
        if self.violations.is_empty() {
            return Ok(());
        }
        let shown: Vec<_> = self
            .violations
            .iter()
            .take(SHOWN)
            .map(String::as_str)
            .collect();
        Err(format!(
            "{} violations:\n{}",
            self.violations.len(),
            shown.join("\n")
        ))
    }
}

/// A holder of the lock, as far as the journal has been read.
#[derive(Debug)]
struct Hold {
    exclusive: bool,
    read: Option<u64>,
    /// The value that the holder may have written without a record.
    pending: Option<u64>,
    /// Whether a later record reports the lock as lost.
    doubtful: bool,
    /// The permits of a semaphore's hold.
    permits: Option<Permits>,
}

/// The values that the counter may have.
#[derive(Debug)]
enum Counter {
    /// One of several values, which killed workers may have written.
    OneOf(BTreeSet<u64>),
    /// A lost hold may have written anything.
    Unknown,
}

#[derive(Debug)]
struct Checker {
    holds: BTreeMap<String, Hold>,
    counter: Counter,
    acknowledged: u64,
    /// The highest token of an exclusive hold so far.
    highest: Token,
    /// The limits of a semaphore.
    limits: LimitHistory,
    /// Where each hold that was lost begins.
    doubtful: BTreeSet<usize>,
    findings: Findings,
}

/// Reads a journal and the value of the counter at its end.
pub(crate) fn check(journal: &str, counter: u64) -> Findings {
    let records: Vec<Vec<&str>> = records(journal).map(|r| r.split(' ').collect()).collect();
    let mut checker = Checker {
        holds: BTreeMap::new(),
        counter: Counter::OneOf(BTreeSet::from([0])),
        acknowledged: 0,
        highest: (i64::MIN, 0),
        limits: LimitHistory::default(),
        doubtful: lost_holds(&records),
        findings: Findings::default(),
    };
    for (at, record) in records.iter().enumerate() {
        if checker.record(at, record).is_none() {
            checker.violation(at, &format!("no such record: {}", record.join(" ")));
        }
    }
    let end = records.len();
    let open: Vec<_> = checker.holds.keys().cloned().collect();
    for worker in open {
        checker.violation(end, &format!("{worker} has never ended"));
    }
    checker.value(end, "the end", counter);
    let findings = &checker.findings;
    let expected = findings.committed + findings.adopted;
    if findings.lost == 0 && counter != expected {
        checker.violation(
            end,
            &format!("the counter is {counter} after {expected} increments"),
        );
    }
    checker.findings
}

/// Returns where the holds that end with `lost` begin.
fn lost_holds(records: &[Vec<&str>]) -> BTreeSet<usize> {
    let mut entered = BTreeMap::new();
    let mut lost = BTreeSet::new();
    for (at, record) in records.iter().enumerate() {
        match record[..] {
            ["enter", worker, ..] => drop(entered.insert(worker, at)),
            ["lost", worker] => lost.extend(entered.get(worker)),
            _ => {}
        }
    }
    lost
}

/// Returns the holds that a process has not ended, and their sessions.
pub(crate) fn unfinished(journal: &str, process: &str) -> BTreeMap<String, String> {
    let mut holds = BTreeMap::new();
    for record in records(journal) {
        match record.split(' ').collect::<Vec<_>>()[..] {
            ["enter", worker, _, _, session] if self::process(worker) == process => {
                holds.insert(worker.to_owned(), session.to_owned());
            }
            ["leave" | "lost", worker] => drop(holds.remove(worker)),
            _ => {}
        }
    }
    holds
}

/// The two numbers of a token.
type Token = (i64, u64);

/// Parses a token; the inner `None` is a holder without a token.
fn number(token: &str) -> Option<Option<Token>> {
    if token == "-" {
        return Some(None);
    }
    let (czxid, holder) = token.split_once('.').unwrap_or((token, "0"));
    Some(Some((czxid.parse().ok()?, holder.parse().ok()?)))
}

fn process(worker: &str) -> &str {
    worker.split('.').next().unwrap_or(worker)
}

fn side(process: &str) -> String {
    process.split('-').next().unwrap_or(process).to_owned()
}

impl Checker {
    fn violation(&mut self, at: usize, what: &str) {
        self.findings
            .violations
            .push(format!("record {at}: {what}"));
    }

    /// Returns `None` for a line that is not a record, or is out of place.
    fn record(&mut self, at: usize, record: &[&str]) -> Option<()> {
        match *record {
            ["enter", worker, mode @ ("x" | "r"), token, _] => {
                self.enter(at, worker, mode == "x", number(token)?, None);
            }
            ["enter", worker, permits, token, _] => {
                self.enter(
                    at,
                    worker,
                    false,
                    number(token)?,
                    Some(permits.parse().ok()?),
                );
            }
            ["asks", worker] => self.limits.request(worker),
            ["may", limit] => self.limits.raise_limit(limit.parse().ok()?),
            ["limit", limit] => self.limits.set_limit(limit.parse().ok()?),
            ["read", worker, value] => {
                let value = value.parse().ok()?;
                self.holds.get_mut(worker)?.read = Some(value);
                self.value(at, worker, value);
            }
            ["intent", worker, value] => {
                let value: u64 = value.parse().ok()?;
                let hold = self.holds.get_mut(worker)?;
                hold.pending = Some(value);
                if !hold.exclusive || hold.read.is_none_or(|read| read + 1 != value) {
                    self.violation(at, &format!("{worker} may not write {value}"));
                }
                self.value(at, worker, value - 1);
            }
            ["commit", worker, value] => {
                let value = value.parse().ok()?;
                let hold = self
                    .holds
                    .get_mut(worker)
                    .filter(|hold| hold.pending == Some(value))?;
                hold.pending = None;
                hold.read = Some(value);
                if !hold.doubtful {
                    self.findings.committed += 1;
                    self.value(at, worker, value - 1);
                    self.wrote(value);
                }
            }
            ["down", worker] => {
                self.holds
                    .get_mut(worker)
                    .filter(|hold| hold.exclusive)?
                    .exclusive = false;
                self.findings.downgraded += 1;
            }
            ["leave", worker] => {
                let hold = self.holds.remove(worker)?;
                if hold.pending.is_some() {
                    self.violation(at, &format!("{worker} left with its write unfinished"));
                }
            }
            ["lost", worker] => {
                self.holds.remove(worker)?;
                self.findings.lost += 1;
                self.counter = Counter::Unknown;
            }
            ["dead", victim] => self.dead(victim),
            ["trouble", ..] => self.findings.trouble.push(record.join(" ")),
            ["stays" | "set" | "sees", ..] => {}
            _ => return None,
        }
        Some(())
    }

    fn later(&mut self, at: usize, worker: &str, token: Token, wrong: bool) {
        if wrong {
            self.violation(
                at,
                &format!("{worker} has the token {token:?} after {:?}", self.highest),
            );
        }
    }

    fn enter(
        &mut self,
        at: usize,
        worker: &str,
        exclusive: bool,
        token: Option<Token>,
        permits: Option<Permits>,
    ) {
        let doubtful = self.doubtful.contains(&at);
        if !doubtful {
            let side = side(process(worker));
            *self.findings.grants.entry(side.clone()).or_default() += 1;
            if !exclusive {
                *self.findings.shared.entry(side).or_default() += 1;
                self.findings.together +=
                    usize::from(self.holds.values().any(|hold| !hold.exclusive));
            }
            // A contender that is ahead in the queue keeps all others out, or is granted the lock
            // beside them. Therefore a contender that is granted after an exclusive hold was behind
            // it.
            if let Some(token) = token {
                self.later(at, worker, token, token <= self.highest);
                if exclusive {
                    self.highest = token;
                }
            }
        }
        if self.holds.contains_key(worker) {
            self.violation(at, &format!("{worker} enters twice"));
        }
        if let Some(permits) = &permits {
            let inside = self.holds.iter().filter(|(_, hold)| !hold.doubtful);
            let inside =
                inside.filter_map(|(holder, hold)| Some((&**holder, hold.permits.as_ref()?)));
            let found = self.limits.enter(
                worker,
                permits,
                (!doubtful).then_some(token.map(|token| token.0)),
                inside,
            );
            for violation in found {
                self.violation(at, &violation);
            }
        }
        let hold = Hold {
            exclusive,
            read: None,
            pending: None,
            doubtful,
            permits,
        };
        self.holds.insert(worker.to_owned(), hold);
        self.alone(at, worker);
    }

    /// Checks with whom `worker` shares the lock.
    fn alone(&mut self, at: usize, worker: &str) {
        let Some(me) = self.holds.get(worker).filter(|hold| !hold.doubtful) else {
            return;
        };
        let beside = |hold: &Hold| !hold.doubtful && (me.exclusive || hold.exclusive);
        let mode = |hold: &Hold| {
            if hold.exclusive {
                "exclusive"
            } else {
                "shared"
            }
        };
        let found: Vec<_> = self
            .holds
            .iter()
            .filter(|(other, hold)| *other != worker && beside(hold))
            .map(|(other, hold)| {
                format!(
                    "{worker} ({}) overlaps with {other} ({})",
                    mode(me),
                    mode(hold)
                )
            })
            .collect();
        for overlap in found {
            self.violation(at, &overlap);
        }
    }

    /// Checks a value that `who` has found in the counter.
    fn value(&mut self, at: usize, who: &str, value: u64) {
        if self.holds.values().any(|hold| hold.doubtful) {
            self.counter = Counter::Unknown;
            return;
        }
        match &self.counter {
            Counter::OneOf(values) if !values.contains(&value) => {
                let expected: Vec<_> = values.iter().map(u64::to_string).collect();
                self.violation(
                    at,
                    &format!(
                        "{who} finds {value} and not {}: a lost increment",
                        expected.join(" or ")
                    ),
                );
            }
            Counter::OneOf(_) if value == self.acknowledged + 1 => self.findings.adopted += 1,
            Counter::OneOf(_) | Counter::Unknown => {}
        }
        self.wrote(value);
    }

    fn wrote(&mut self, value: u64) {
        self.acknowledged = value;
        self.counter = Counter::OneOf(BTreeSet::from([value]));
    }

    /// Handles the end of a killed process: none of its threads acts any more.
    fn dead(&mut self, victim: &str) {
        *self.findings.dead.entry(side(victim)).or_default() += 1;
        let (gone, left) = std::mem::take(&mut self.holds)
            .into_iter()
            .partition(|(w, _)| process(w) == victim);
        self.holds = left;
        let gone: BTreeMap<String, Hold> = gone;
        for hold in gone.into_values() {
            *self.findings.cut.entry(side(victim)).or_default() += 1;
            if let (Some(value), Counter::OneOf(values)) = (hold.pending, &mut self.counter) {
                values.insert(value);
            }
        }
    }
}

/// Shows that the checker detects violations: each of these journals has one fault.
pub(crate) mod trials {
    use super::{Findings, check, unfinished};

    fn judged(records: &str, counter: u64) -> Findings {
        let record = |record: &str| match record.trim() {
            enter if enter.starts_with("enter ") => format!("\n{enter} 0x1 ."),
            other => format!("\n{other} ."),
        };
        let journal: String = records.split(';').map(record).collect();
        check(&journal, counter)
    }

    pub(crate) fn accepts(records: &str, counter: u64) -> Result<Findings, String> {
        let findings = judged(records, counter);
        findings.verdict().map_err(|e| format!("{records}\n{e}"))?;
        Ok(findings)
    }

    pub(crate) fn refuses(records: &str, counter: u64, why: &str) -> Result<(), String> {
        match &judged(records, counter).violations[..] {
            // Further violations may follow from the first.
            [first, ..] if first.contains(why) => Ok(()),
            found => Err(format!("expected `{why}` of\n{records}\nand got {found:?}")),
        }
    }

    pub(crate) fn accepts_a_locks_history() -> Result<(), String> {
        let one = "enter a-1.0 x 5; read a-1.0 0; intent a-1.0 1; commit a-1.0 1; leave a-1.0";
        let two = "enter b-1.0 x 7; read b-1.0 1; intent b-1.0 2; commit b-1.0 2; leave b-1.0";
        accepts(&format!("{one}; {two}"), 2)?;
        let readers = "enter a-1.1 r 8; enter b-1.1 r 9; read a-1.1 2; read b-1.1 2; leave a-1.1; leave b-1.1";
        let findings = accepts(&format!("{one}; {two}; {readers}"), 2)?;
        assert_eq!(
            (findings.total(), findings.shared.len(), findings.together),
            (4, 2, 1)
        );
        // The worker was killed before the write, or between the write and its acknowledgement: the
        // next holder shows which.
        let cut = "enter c-1.0 x 6; read c-1.0 1; intent c-1.0 2; dead c-1; enter b-1.0 x 7";
        accepts(
            &format!("{one}; {cut}; read b-1.0 1; intent b-1.0 2; commit b-1.0 2; leave b-1.0"),
            2,
        )?;
        let findings = accepts(
            &format!("{one}; {cut}; read b-1.0 2; intent b-1.0 3; commit b-1.0 3; leave b-1.0"),
            3,
        )?;
        assert_eq!((findings.committed, findings.adopted), (2, 1));
        // The journal is the same, without a later holder.
        accepts("enter c-1.0 x 6; read c-1.0 0; intent c-1.0 1; dead c-1", 1)?;
        // A kill cut the record short.
        accepts("enter c-1.0 x 6; dead c-1; enter b-1.0 x 7; leave b-1.0", 0)?;
        let torn =
            "\nenter c-1.0 x 6 0x1 .\nread c-1.\ndead c-1 .\nenter b-1.0 x 7 0x2 .\nleave b-1.0 .";
        check(torn, 0).verdict()?;
        // A downgrade keeps the token.
        accepts(
            "enter a-1.0 x 5; down a-1.0; enter b-1.0 r 7; leave a-1.0; leave b-1.0; \
             enter a-1.0 x 6; leave a-1.0",
            0,
        )?;
        assert_eq!(
            unfinished(&torn[..torn.find("dead").unwrap_or_default()], "c-1").len(),
            1
        );
        assert_eq!(unfinished(torn, "b-1").len(), 0);
        // The session had ended by itself, even before its process was killed.
        accepts(
            "enter c-1.0 x 6; enter b-1.0 x 7; lost c-1.0; dead c-1; leave b-1.0",
            0,
        )?;
        accepts(
            &format!("enter c-1.0 x 4; read c-1.0 0; {one}; lost c-1.0"),
            1,
        )
        .map(drop)
    }

    pub(crate) fn sees_overlaps() -> Result<(), String> {
        let overlap = "overlaps";
        refuses(
            "enter a-1.0 x 5; enter b-1.0 x 6; leave a-1.0; leave b-1.0",
            0,
            overlap,
        )?;
        refuses(
            "enter a-1.0 r 5; enter b-1.0 x 6; leave a-1.0; leave b-1.0",
            0,
            overlap,
        )?;
        refuses(
            "enter a-1.0 x 5; enter b-1.0 r 6; leave a-1.0; leave b-1.0",
            0,
            overlap,
        )?;
        refuses(
            "enter a-1.0 x 5; down a-1.0; enter b-1.0 x 6; leave a-1.0; leave b-1.0",
            0,
            overlap,
        )?;
        // The record comes before the worker's death, or after another's.
        refuses(
            "enter a-1.0 x 5; enter b-1.0 x 6; dead a-1; leave b-1.0",
            0,
            overlap,
        )?;
        refuses(
            "enter a-1.0 x 5; dead c-1; enter b-1.0 x 6; leave a-1.0; leave b-1.0",
            0,
            overlap,
        )
    }

    pub(crate) fn sees_tokens_that_fall() -> Result<(), String> {
        let token = "has the token";
        refuses(
            "enter a-1.0 x 5; leave a-1.0; enter b-1.0 x 4; leave b-1.0",
            0,
            token,
        )?;
        refuses(
            "enter a-1.0 x 5; leave a-1.0; enter b-1.0 x 5; leave b-1.0",
            0,
            token,
        )?;
        refuses(
            "enter a-1.0 x 5.1; leave a-1.0; enter b-1.0 x 5.1; leave b-1.0",
            0,
            token,
        )?;
        refuses(
            "enter a-1.0 x 5; leave a-1.0; enter b-1.0 r 4; leave b-1.0",
            0,
            token,
        )?;
        refuses(
            "enter a-1.0 x 5; down a-1.0; enter b-1.0 r 4; leave b-1.0; leave a-1.0",
            0,
            token,
        )
    }

    pub(crate) fn sees_lost_increments() -> Result<(), String> {
        let one = "enter a-1.0 x 5; read a-1.0 0; intent a-1.0 1; commit a-1.0 1; leave a-1.0";
        let two = "enter b-1.0 x 6; read b-1.0 0; intent b-1.0 1; commit b-1.0 1; leave b-1.0";
        refuses(&format!("{one}; {two}"), 1, "b-1.0 finds 0 and not 1")?;
        refuses(
            &format!("{one}; enter b-1.0 r 6; read b-1.0 0; leave b-1.0"),
            1,
            "b-1.0 finds 0 and not 1",
        )?;
        refuses(one, 0, "the end finds 0 and not 1")?;
        refuses(
            "enter a-1.0 r 5; read a-1.0 0; intent a-1.0 1; commit a-1.0 1; leave a-1.0",
            1,
            "may not write",
        )
    }

    pub(crate) fn sees_workers_that_stay() -> Result<(), String> {
        refuses("enter a-1.0 x 5", 0, "never ended")?;
        refuses(
            "enter a-1.0 x 5; read a-1.0 0; intent a-1.0 1; leave a-1.0",
            0,
            "unfinished",
        )?;
        refuses("leave a-1.0", 0, "no such record")
    }
}
