//! The events that must occur in a run that is long enough: a fault that never struck, or an error
//! that no caller ever saw, tests nothing.
//!
//! The rows are those of a run's `faults` and `sometimes`. The rows of RELIABILITY.md's tables
//! follow from the faults in [`faults::ALL`]; the rows that no simulated world can have are listed
//! here with the reason.

use std::time::Duration;

use crate::faults;
use crate::report::Sum;

/// How soon a row has to occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The row must occur in any run of [`COMMON`] worlds.
    Common,
    /// The row must occur in any run of [`RARE`] worlds.
    Rare,
    /// The row may occur, and may not, for this reason.
    Free(&'static str),
    /// No world has it, for this reason.
    Never(&'static str),
}

use When::{Common, Free, Never, Rare};

/// Fewer than the gate plays in its three minutes of processor time, which is asked to demand these
/// rows. Each is in one of 35 worlds at least, so that a run without it is one of some thousands.
const COMMON: u64 = 300;
const RARE: u64 = 10_000;

/// The variants of an error, as [`World::sometimes`](crate::world::World::sometimes) counts them
/// behind a word.
pub struct Variants {
    pub word: &'static str,
    pub name: &'static str,
    /// The text in which the enum is declared: it is non-exhaustive, so no match outside of its
    /// crate shows what is missing here.
    pub source: &'static str,
    /// The rows of the enum itself.
    pub rows: &'static [(&'static str, When)],
    /// The rows of [`ErrorKind`](zookeeper_recipes::ErrorKind), if a request that failed is one of
    /// its variants, or it is that enum.
    pub kinds: &'static [(&'static str, When)],
}

impl Variants {
    fn rows(&self) -> impl Iterator<Item = (String, When)> {
        let rows = self.rows.iter().chain(self.kinds);
        rows.map(|(variant, when)| (format!("{} {variant}", self.word), *when))
    }
}

const OPTION: &str = "the options of worlds are valid";
const AUTH: &str = "no world has credentials";
const FOREIGN: &str = "no other program's nodes are at the paths of worlds";
const REFUSED: &str = "what servers of worlds refuse is access, to most requests by other names";
const NO_LIMIT: &str = "only semaphores have a limit";
const READS: &str = "a transaction reads nothing";
const WRITES: &str = "a read writes nothing";
const ENDS: &str = "the loss of the lock is reported instead";
const WAITS: &str = "a participant goes on waiting";
const LED: &str = "most participants wait for an attempt that was made before access was denied";
const LARGE: &str = "no world is as large as that";

pub const VARIANTS: &[Variants] = &[
    Variants {
        word: "lost",
        name: "LostReason",
        source: include_str!("../../src/error/lost.rs"),
        rows: &[
            ("SessionExpired", Common),
            (
                "SessionReplaced",
                Never("ZooKeeper replaces no session: ClickHouse Keeper does"),
            ),
            ("NodeDeleted", Common),
            ("LeaseExpired", Common),
            ("LeaseOver", Common),
            ("Closed", Common),
            ("GivenUp", Rare),
            (
                "NotConverted",
                Free("it takes a refusal behind a downgrade without an answer"),
            ),
        ],
        kinds: &[],
    },
    Variants {
        word: "refused",
        name: "AcquireError",
        source: include_str!("../../src/error/acquire.rs"),
        rows: &[
            ("TimedOut", Common),
            ("Orphaned", Common),
            ("TooManyWaiters", Never(LARGE)),
            ("TooManyWatches", Never(LARGE)),
            ("TooManyNodes", Never(LARGE)),
            ("NodeDeleted", Rare),
            ("LeaseOver", Rare),
            ("InvalidLease", Never(OPTION)),
            ("TooManyPermits", Common),
            ("TooManyAtOnce", Never(OPTION)),
            ("ZeroPermits", Never(OPTION)),
        ],
        kinds: &[
            ("Connection", Common),
            ("NoAuth", Common),
            (
                "Rejected",
                Free("the servers refuse a request of an acquire for its ACL only"),
            ),
            ("AuthFailed", Never(AUTH)),
            ("Closed", Common),
            ("MixedRecipes", Never(FOREIGN)),
            ("SequenceExhausted", Never(LARGE)),
            ("LimitMismatch", Rare),
            ("InvalidLimit", Never(OPTION)),
        ],
    },
    Variants {
        word: "refused",
        name: "TryLockError",
        source: include_str!("../../src/error/acquire.rs"),
        rows: &[
            ("Acquire", Never("the variant inside is what counts")),
            ("WouldBlock", Common),
        ],
        kinds: &[],
    },
    Variants {
        word: "not released",
        name: "ReleaseError",
        source: include_str!("../../src/error/release.rs"),
        rows: &[
            ("Lost", Common),
            ("Refused", Rare),
            (
                "TimedOut",
                Free("`flush` returns it, which is a row by itself"),
            ),
            (
                "SessionNotClosed",
                Never("only close and drain return it, which worlds ask when all is healed"),
            ),
            ("StillHeld", Never("only drain returns it")),
        ],
        kinds: &[],
    },
    Variants {
        word: "not downgraded",
        name: "ConversionError<G>",
        source: include_str!("../../src/error/convert.rs"),
        rows: &[
            (
                "WouldDeadlock",
                Never("worlds downgrade a guard that shares its hold with no other"),
            ),
            ("Lost", Rare),
        ],
        kinds: &[
            ("Connection", Never(ENDS)),
            (
                "NoAuth",
                Free("single requests are denied, and a downgrade is a transaction"),
            ),
            ("Rejected", Free(REFUSED)),
            ("AuthFailed", Never(AUTH)),
            ("Closed", Never(ENDS)),
            ("MixedRecipes", Never(FOREIGN)),
            ("SequenceExhausted", Never(LARGE)),
            ("LimitMismatch", Never(NO_LIMIT)),
            ("InvalidLimit", Never(NO_LIMIT)),
        ],
    },
    Variants {
        word: "not written",
        name: "TransactionError",
        source: include_str!("../../src/error/transaction.rs"),
        rows: &[
            ("Lost", Rare),
            ("InvalidPath", Never(OPTION)),
            ("Rejected", Common),
            ("Unknown", Common),
            ("TooLarge", Never(LARGE)),
        ],
        kinds: &[
            ("Connection", Never(READS)),
            ("NoAuth", Never(READS)),
            ("AuthFailed", Never(READS)),
            ("Closed", Never(READS)),
            ("MixedRecipes", Never(READS)),
            ("SequenceExhausted", Never(READS)),
            ("LimitMismatch", Never(READS)),
            ("InvalidLimit", Never(READS)),
        ],
    },
    Variants {
        word: "no job",
        name: "OnceError",
        source: include_str!("../../src/error/once.rs"),
        rows: &[
            ("Build", Never(OPTION)),
            ("Acquire", Rare),
            ("Lost", Rare),
            ("Failed", Rare),
            ("NotRecorded", Rare),
            ("Unknown", Rare),
        ],
        kinds: &[
            ("Connection", Rare),
            (
                "NoAuth",
                Free("it takes a denial that meets a look at the record"),
            ),
            ("Rejected", Free(REFUSED)),
            ("AuthFailed", Never(AUTH)),
            ("Closed", Rare),
            ("MixedRecipes", Never(FOREIGN)),
            ("SequenceExhausted", Never(LARGE)),
            ("LimitMismatch", Never(NO_LIMIT)),
            ("InvalidLimit", Never(NO_LIMIT)),
        ],
    },
    Variants {
        word: "does not lead",
        name: "AcquireError",
        source: include_str!("../../src/error/acquire.rs"),
        rows: &[
            ("TimedOut", Never(WAITS)),
            (
                "Orphaned",
                Free("it takes a latch and a refusal to delete its node"),
            ),
            ("TooManyWaiters", Never(LARGE)),
            ("TooManyWatches", Never(LARGE)),
            ("TooManyNodes", Never(LARGE)),
            ("NodeDeleted", Never(WAITS)),
            ("LeaseOver", Never(WAITS)),
            ("InvalidLease", Never(OPTION)),
            ("TooManyPermits", Never(NO_LIMIT)),
            ("TooManyAtOnce", Never(NO_LIMIT)),
            ("ZeroPermits", Never(NO_LIMIT)),
        ],
        kinds: &[
            ("Connection", Never(WAITS)),
            ("NoAuth", Free(LED)),
            ("Rejected", Free(REFUSED)),
            ("AuthFailed", Never(AUTH)),
            ("Closed", Rare),
            ("MixedRecipes", Never(FOREIGN)),
            ("SequenceExhausted", Never(LARGE)),
            ("LimitMismatch", Never(NO_LIMIT)),
            ("InvalidLimit", Never(NO_LIMIT)),
        ],
    },
    Variants {
        word: "not counted",
        name: "AtomicLongError",
        source: include_str!("../../src/error/atomic.rs"),
        rows: &[
            ("Unknown", Rare),
            ("Contended", Free("thirty tries are hardly ever all lost")),
            ("Overflow", Never(LARGE)),
            ("NotACounter", Never(FOREIGN)),
            ("NotPersistent", Never(FOREIGN)),
            ("VersionsUsedUp", Never(LARGE)),
        ],
        kinds: &[
            ("Connection", Rare),
            ("NoAuth", Rare),
            ("Rejected", Free(REFUSED)),
            ("AuthFailed", Never(AUTH)),
            ("Closed", Common),
            ("MixedRecipes", Never(FOREIGN)),
            ("SequenceExhausted", Never(LARGE)),
            ("LimitMismatch", Never(NO_LIMIT)),
            ("InvalidLimit", Never(NO_LIMIT)),
        ],
    },
    Variants {
        word: "not read",
        name: "TransactionError",
        source: include_str!("../../src/error/transaction.rs"),
        rows: &[
            ("Lost", Free("guards are read while they are held")),
            ("InvalidPath", Never(OPTION)),
            ("Rejected", Free(REFUSED)),
            ("Unknown", Never(WRITES)),
            ("TooLarge", Never(WRITES)),
        ],
        kinds: &[
            ("Connection", Rare),
            ("NoAuth", Free("no world denies access to data")),
            ("AuthFailed", Never(AUTH)),
            ("Closed", Never(ENDS)),
            ("MixedRecipes", Never(FOREIGN)),
            ("SequenceExhausted", Never(LARGE)),
            ("LimitMismatch", Never(NO_LIMIT)),
            ("InvalidLimit", Never(NO_LIMIT)),
        ],
    },
    Variants {
        word: "participants",
        name: "ErrorKind",
        source: include_str!("../../src/error/request.rs"),
        rows: &[],
        kinds: &[
            ("Connection", Rare),
            ("NoAuth", Common),
            ("Rejected", Free(REFUSED)),
            ("AuthFailed", Never(AUTH)),
            ("Closed", Common),
            ("MixedRecipes", Never(FOREIGN)),
            ("SequenceExhausted", Never(LARGE)),
            (
                "LimitMismatch",
                Free("a look meets the moment at which a limit is changed"),
            ),
            ("InvalidLimit", Never(OPTION)),
        ],
    },
    Variants {
        word: "not created",
        name: "PersistentNodeError",
        source: include_str!("../../src/error/persistent_node.rs"),
        rows: &[
            ("TimedOut", Common),
            ("TooManyNodes", Never(LARGE)),
            ("DataTooLarge", Never(LARGE)),
            ("NotConfirmed", Free("its calls wait for the servers")),
        ],
        kinds: &[
            ("Connection", Free("its calls wait for the servers")),
            ("NoAuth", Rare),
            ("Rejected", Free(REFUSED)),
            ("AuthFailed", Never(AUTH)),
            ("Closed", Rare),
            ("MixedRecipes", Never(FOREIGN)),
            ("SequenceExhausted", Never(LARGE)),
            ("LimitMismatch", Never(NO_LIMIT)),
            ("InvalidLimit", Never(NO_LIMIT)),
        ],
    },
    Variants {
        word: "not broken",
        name: "ErrorKind",
        source: include_str!("../../src/error/request.rs"),
        rows: &[],
        kinds: &[
            ("Connection", Rare),
            ("NoAuth", Rare),
            ("Rejected", Free(REFUSED)),
            ("AuthFailed", Never(AUTH)),
            ("Closed", Rare),
            ("MixedRecipes", Never(FOREIGN)),
            ("SequenceExhausted", Never(LARGE)),
            ("LimitMismatch", Never(NO_LIMIT)),
            ("InvalidLimit", Never(NO_LIMIT)),
        ],
    },
    Variants {
        word: "not asked to stop",
        name: "ErrorKind",
        source: include_str!("../../src/error/request.rs"),
        rows: &[],
        kinds: &[
            ("Connection", Rare),
            ("NoAuth", Free(REFUSED)),
            ("Rejected", Free(REFUSED)),
            ("AuthFailed", Never(AUTH)),
            ("Closed", Rare),
            ("MixedRecipes", Never(FOREIGN)),
            ("SequenceExhausted", Never(LARGE)),
            ("LimitMismatch", Never(NO_LIMIT)),
            ("InvalidLimit", Never(NO_LIMIT)),
        ],
    },
    Variants {
        word: "not resized",
        name: "ErrorKind",
        source: include_str!("../../src/error/request.rs"),
        rows: &[],
        kinds: &[
            ("Connection", Rare),
            ("NoAuth", Rare),
            ("Rejected", Free(REFUSED)),
            ("AuthFailed", Never(AUTH)),
            ("Closed", Rare),
            ("MixedRecipes", Never(FOREIGN)),
            ("SequenceExhausted", Never(LARGE)),
            ("LimitMismatch", Never(NO_LIMIT)),
            ("InvalidLimit", Never(OPTION)),
        ],
    },
    Variants {
        word: "not drained",
        name: "ReleaseError",
        source: include_str!("../../src/error/release.rs"),
        rows: &[
            ("Lost", Never("a drain releases nothing")),
            ("Refused", Never("a drain releases nothing")),
            (
                "TimedOut",
                Free("`flush` returns it, which is a row by itself"),
            ),
            ("SessionNotClosed", Rare),
            ("StillHeld", Rare),
        ],
        kinds: &[],
    },
    Variants {
        word: "not connected",
        name: "ConnectError",
        source: include_str!("../../src/error/connect.rs"),
        rows: &[
            ("TimedOut", Rare),
            ("InvalidConnectString", Never(OPTION)),
            ("InvalidNamespace", Never(OPTION)),
            ("InvalidName", Never(OPTION)),
            ("AuthFailed", Never(AUTH)),
            ("NoCredentials", Never(AUTH)),
            ("InvalidCredentials", Never(AUTH)),
            ("InvalidTls", Never(AUTH)),
            (
                "Setup",
                Never("worlds start no thread that the system could refuse"),
            ),
        ],
        kinds: &[],
    },
];

/// The rows beside errors.
const OTHERS: &[(&str, When)] = &[
    ("counted", Common),
    ("cached", Common),
    ("set", Common),
    ("compared and set", Common),
    ("compared and not set", Common),
    ("initialized", Rare),
    ("downgraded", Common),
    ("dropped call", Common),
    ("multi-lock", Common),
    ("split", Common),
    ("reentered", Common),
    ("extended", Common),
    ("looked", Common),
    ("asked to stop", Common),
    ("told to stop", Common),
    ("broken by API", Common),
    ("read", Common),
    ("written", Common),
    ("let in by its token", Common),
    ("refused for its token", Common),
    ("has led", Common),
    ("told of a leader", Common),
    ("interrupted", Common),
    ("job AlreadyRun", Common),
    ("job Ran", Common),
    ("joined", Common),
    ("left", Common),
    ("members", Common),
    ("members changed", Common),
    ("created", Common),
    ("data set", Common),
    ("deleted", Common),
    ("suspended", Common),
    ("held again", Common),
    ("stops late", Common),
    ("drained", Common),
    ("closed", Common),
    ("resized", Common),
    ("dropped sum", Common),
    ("flushed", Common),
    ("not flushed TimedOut", Common),
    ("calm", Common),
    ("granted Suspended", Free("it lasts for a moment")),
];

/// Where a row of RELIABILITY.md is shown.
pub enum Shown {
    /// Worlds show the row, by these rows.
    By(&'static [&'static str]),
    /// Tests in real time show the row, for this reason.
    Elsewhere(&'static str),
}

use Shown::{By, Elsewhere};

const LOGS: &str = "worlds have no tracing subscriber";

/// The rows of RELIABILITY.md's tables, by the first words of their faults, in their order.
pub const RELIABILITY: &[(&str, Shown)] = &[
    // Fault by fault.
    (
        "its link breaks or falls silent",
        By(&["fault: held link", "suspended", "held again"]),
    ),
    (
        "all its links fall silent",
        By(&["fault: held link", "lost LeaseExpired"]),
    ),
    (
        "no member can be reached, and a write",
        By(&["fault: server down", "suspended", "held again"]),
    ),
    ("the network forgets its connection", By(&["fault: reset"])),
    ("the leader is killed", By(&["fault: leader deposed"])),
    (
        "the member that it is connected to is killed",
        By(&["fault: member down", "fault: leader deposed"]),
    ),
    (
        "the majority of the members is killed",
        By(&["fault: quorum lost", "lost LeaseExpired"]),
    ),
    ("the leader hangs", By(&["fault: stalled disk"])),
    (
        "the same, with a T too short for it",
        By(&["fault: stalled disk", "lost LeaseExpired"]),
    ),
    (
        "its member is cut off from the others",
        By(&["fault: member cut off"]),
    ),
    (
        "the servers grant a T",
        Elsewhere("servers of worlds grant what is asked for"),
    ),
    ("every commit takes longer", By(&["fault: delayed replies"])),
    (
        "all servers are killed and come back",
        By(&["fault: server down"]),
    ),
    (
        "the same, for longer than 7T/5",
        By(&["fault: server down", "lost LeaseExpired"]),
    ),
    ("a reply is lost", By(&["fault: lost reply"])),
    ("its executor is blocked", By(&["fault: blocked executor"])),
    ("a tracing subscriber blocks", Elsewhere(LOGS)),
    (
        "the session's thread is blocked",
        Elsewhere("callers in worlds have wakers that do not block"),
    ),
    ("a tracing subscriber panics", Elsewhere(LOGS)),
    (
        "the work takes longer than the lease",
        By(&["lost LeaseOver"]),
    ),
    ("it is notified, and is slow to stop", By(&["stops late"])),
    (
        "it is a command of zklock",
        Elsewhere("a command needs a real process"),
    ),
    ("its process is killed", By(&["fault: crash"])),
    ("its process is paused", By(&["fault: frozen process"])),
    (
        "a waiter, not the holder, is killed or paused",
        By(&["fault: crash", "fault: frozen process"]),
    ),
    (
        "its client is drained",
        By(&["drained", "not drained StillHeld"]),
    ),
    (
        "its client is closed while calls wait",
        By(&["closed", "refused Closed"]),
    ),
    // Semaphores.
    ("a reply to the transaction", By(&["fault: lost reply"])),
    ("the connection is cut", By(&["fault: reset"])),
    ("the session expires", By(&["fault: session expired"])),
    (
        "the call is dropped or its deadline passes",
        By(&["dropped call", "refused TimedOut"]),
    ),
    (
        "its node in the queue is deleted",
        By(&["fault: node deleted"]),
    ),
    (
        "the node of one permit is deleted",
        By(&["fault: node deleted", "lost NodeDeleted"]),
    ),
    ("the lease of one permit ends", By(&["lost LeaseOver"])),
    ("the limit becomes smaller", By(&["resized"])),
    // Counters.
    ("a request is lost before", By(&["fault: lost request"])),
    (
        "a reply is lost",
        By(&["fault: lost reply", "not counted Unknown"]),
    ),
    (
        "the session ends during the write",
        By(&["fault: session expired"]),
    ),
    ("the call is dropped", By(&["dropped sum"])),
    (
        "the leader is killed, the servers restart",
        By(&["fault: leader deposed", "fault: server down"]),
    ),
    (
        "processes of this crate and of Curator",
        Elsewhere("Curator needs real processes"),
    ),
    (
        "the node is deleted by hand",
        Elsewhere("the checkers of numbers need the node"),
    ),
    // The rows show the mechanisms that notify the holder.
    ("no write is answered for T", By(&["lost LeaseExpired"])),
    (
        "the session's thread is blocked",
        Elsewhere("a simulated process is frozen as a whole"),
    ),
    ("the machine was suspended", By(&["fault: frozen process"])),
    (
        "the lease that the holder requested ends",
        By(&["lost LeaseOver"]),
    ),
    ("a renewal is overdue", By(&["suspended"])),
    (
        "the lock node was deleted by hand",
        By(&["lost NodeDeleted"]),
    ),
    ("the same, while a transaction", By(&["not written Lost"])),
    (
        "the session has expired",
        By(&["lost SessionExpired", "lost Closed"]),
    ),
    (
        "the task that serves the session has died",
        Elsewhere("nothing in a world ends it: `panics` would say so"),
    ),
];

/// A run may take this many times as long as requested to reach the worlds of which rows are
/// demanded.
const PATIENCE: u32 = 5;

/// Returns whether a run that has begun this many worlds begins another: for as long as it is to
/// be, and longer on a machine that is too slow for what is demanded of it.
pub fn goes_on(begun: u64, took: Duration, limit: Duration, is_demanded: bool) -> bool {
    took < limit || is_demanded && begun < COMMON && took < limit * PATIENCE
}

/// Whether this many worlds are enough for the rows of any run to be demanded of them.
pub fn enough(worlds: u64) -> Result<(), String> {
    if worlds >= COMMON {
        return Ok(());
    }
    Err(format!(
        "{worlds} worlds are too few for what has to happen in {COMMON} to be demanded of them"
    ))
}

/// Returns the rows that should have occurred in a run, and did not.
pub fn missing(sum: &Sum) -> Vec<String> {
    let is_due = |when| match when {
        Common => sum.worlds >= COMMON,
        Rare => sum.worlds >= RARE,
        Free(_) | Never(_) => false,
    };
    let errors = VARIANTS.iter().flat_map(Variants::rows);
    let others = OTHERS
        .iter()
        .map(|(name, when)| ((*name).to_owned(), *when));
    let sometimes = errors
        .chain(others)
        .filter(|(name, when)| is_due(*when) && !sum.sometimes.contains_key(name));
    let never = faults::ALL
        .iter()
        .filter(|name| is_due(Common) && !sum.faults.contains_key(**name));
    sometimes
        .map(|(name, _)| name)
        .chain(never.map(|name| format!("fault: {name}")))
        .collect()
}

/// Returns the rows of a run that no world should have, or that are in no table.
pub fn unknown(sum: &Sum) -> Vec<String> {
    let never = VARIANTS.iter().flat_map(Variants::rows);
    let never = never
        .filter(|(_, when)| matches!(when, Never(_)))
        .map(|(name, _)| name);
    let faults = sum
        .faults
        .keys()
        .filter(|name| !faults::ALL.contains(&name.as_str()));
    never
        .filter(|name| sum.sometimes.contains_key(name))
        .chain(faults.cloned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the variants of an enum, by its declaration, which may be in a macro that puts its
    /// variants further in.
    fn declared(source: &str, name: &str) -> Vec<String> {
        let (before, body) = source
            .split_once(&format!("pub enum {name} {{\n"))
            .expect("the enum is there");
        let (body, _) = body.split_once("\n}\n").expect("the end of the enum");
        let indent = if before.ends_with(' ') { 8 } else { 4 };
        let is_variant = |line: &&str| {
            let (space, rest) = line.split_at(indent.min(line.len()));
            space.trim().is_empty() && rest.starts_with(|c: char| c.is_ascii_uppercase())
        };
        let variant = |line: &str| {
            line.trim()
                .split(['(', '{', ',', ' '])
                .next()
                .unwrap_or_default()
                .to_owned()
        };
        body.lines().filter(is_variant).map(variant).collect()
    }

    #[test]
    fn every_error_variant_has_a_row() {
        let kinds = declared(include_str!("../../src/error/request.rs"), "ErrorKind");
        let names =
            |rows: &[(&'static str, When)]| rows.iter().map(|(row, _)| *row).collect::<Vec<_>>();
        for of in VARIANTS {
            let (rows, of_kinds) = (names(of.rows), names(of.kinds));
            let mut own = declared(of.source, of.name);
            let all = own.len();
            own.retain(|variant| variant != "Request");
            let has_kinds = own.len() < all || of.name == "ErrorKind";
            if of.name != "ErrorKind" {
                assert_eq!(own, rows, "{}", of.name);
            }
            // A kind of the name of a variant has one row.
            let expected = kinds
                .iter()
                .filter(|kind| has_kinds && !rows.contains(&kind.as_str()));
            assert!(expected.eq(of_kinds), "{}: {}", of.word, of.name);
        }
    }

    #[test]
    fn every_row_of_promises_is_shown() {
        let page = include_str!("../../RELIABILITY.md");
        let (tables, _) = page
            .split_once("## Servers that are not ZooKeeper")
            .expect("the heading behind the tables");
        let cells = tables
            .lines()
            .filter(|line| line.starts_with("| ") && !line.starts_with("| fault "));
        let faults: Vec<&str> = cells
            .filter_map(|line| line.split('|').nth(1))
            .map(str::trim)
            .collect();
        let plain = |text: &str| text.replace(['[', ']', '`'], "");
        assert_eq!(faults.len(), RELIABILITY.len(), "{faults:#?}");
        for (fault, (row, _)) in faults.iter().zip(RELIABILITY) {
            assert!(plain(fault).starts_with(row), "{fault:?} is not {row:?}");
        }
        let demanded = |name: &&str| {
            let of = VARIANTS.iter().flat_map(Variants::rows);
            let others = OTHERS
                .iter()
                .map(|(name, when)| ((*name).to_owned(), *when));
            let has = |when| matches!(when, Common | Rare);
            let fault = name
                .strip_prefix("fault: ")
                .is_some_and(|name| faults::ALL.contains(&name));
            fault
                || of
                    .chain(others)
                    .any(|(row, when)| row == **name && has(when))
        };
        for (row, shown) in RELIABILITY {
            if let By(names) = shown {
                let free: Vec<_> = names.iter().filter(|name| !demanded(name)).collect();
                assert!(free.is_empty(), "{row}: a run may do without {free:?}");
            }
        }
    }

    fn full(worlds: u64) -> Sum {
        let mut sum = Sum {
            worlds,
            ..Sum::from_seed(1)
        };
        let rows = VARIANTS
            .iter()
            .flat_map(Variants::rows)
            .filter(|(_, when)| !matches!(when, Never(_)));
        sum.sometimes.extend(rows.map(|(name, _)| (name, 1)));
        sum.sometimes
            .extend(OTHERS.iter().map(|(name, _)| ((*name).to_owned(), 1)));
        sum.faults
            .extend(faults::ALL.iter().map(|name| ((*name).to_owned(), 1)));
        sum
    }

    #[test]
    fn missing_row_fails_a_long_run() {
        let sum = full(RARE);
        assert_eq!((missing(&sum), unknown(&sum)), (vec![], vec![]));
        let mut sum = full(RARE);
        sum.sometimes.remove("not downgraded Lost");
        sum.sometimes.remove("lost LeaseOver");
        sum.faults.remove("quorum lost");
        assert_eq!(
            missing(&sum),
            [
                "lost LeaseOver",
                "not downgraded Lost",
                "fault: quorum lost"
            ]
        );
        sum.worlds = COMMON;
        assert_eq!(missing(&sum), ["lost LeaseOver", "fault: quorum lost"]);
        enough(sum.worlds).unwrap();
        sum.worlds = COMMON - 1;
        assert!(missing(&sum).is_empty());
        enough(sum.worlds).unwrap_err();
    }

    #[test]
    fn slow_machine_gets_more_time() {
        let limit = Duration::from_secs(10);
        let on = |begun, secs, is_demanded| {
            goes_on(begun, Duration::from_secs(secs), limit, is_demanded)
        };
        assert!(on(COMMON, 9, true) && on(0, 9, false));
        assert!(on(COMMON - 1, 10, true) && on(COMMON - 1, 49, true));
        assert!(!on(COMMON, 10, true) && !on(COMMON - 1, 10, false) && !on(0, 50, true));
    }

    #[test]
    fn reports_unknown_rows() {
        let mut sum = full(1);
        sum.sometimes.insert("refused AuthFailed".to_owned(), 1);
        sum.faults.insert("a new fault".to_owned(), 1);
        assert_eq!(unknown(&sum), ["refused AuthFailed", "a new fault"]);
    }
}
