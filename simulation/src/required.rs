//! What has to have happened in a run that is long enough: a fault that never struck, or an error that no caller ever
//! saw, tests nothing.
//!
//! The rows are those of a run's `faults` and `sometimes`. Those of RELIABILITY.md's tables are what comes of the faults
//! in [`faults::ALL`]; the rows that no simulated world can have are named here with the reason.

use crate::faults;
use crate::report::Sum;

/// How soon a row has to occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// In any run of [`COMMON`] worlds.
    Common,
    /// In any run of [`RARE`] worlds.
    Rare,
    /// It may occur, and may not.
    Free,
    /// No world has it, for this reason.
    Never(&'static str),
}

use When::{Common, Free, Never, Rare};

/// A minute's worlds on two quiet cores are about 1,000.
const COMMON: u64 = 300;
const RARE: u64 = 10_000;

/// The variants of an error, as [`World::sometimes`](crate::world::World::sometimes) counts them behind a word.
pub struct Variants {
    pub word: &'static str,
    pub name: &'static str,
    /// The text in which the enum is declared: it is non-exhaustive, so no match outside of its crate shows what is
    /// missing here.
    pub source: &'static str,
    pub rows: &'static [(&'static str, When)],
}

const OPTION: &str = "the options of worlds are valid";
const AUTH: &str = "no world has credentials";
const FOREIGN: &str = "no other program's nodes are at the paths of worlds";
const LARGE: &str = "no world is as large as that";

pub const VARIANTS: &[Variants] = &[
    Variants {
        word: "lost",
        name: "LostReason",
        source: include_str!("../../src/error/lost.rs"),
        rows: &[
            ("SessionExpired", Rare),
            ("SessionReplaced", Never("ZooKeeper replaces no session: ClickHouse Keeper does")),
            ("NodeDeleted", Common),
            ("LeaseExpired", Common),
            ("LeaseOver", Common),
            ("Closed", Free),
            ("GivenUp", Free),
            ("NotConverted", Free),
        ],
    },
    Variants {
        word: "refused",
        name: "AcquireError",
        source: include_str!("../../src/error/acquire.rs"),
        rows: &[
            ("TimedOut", Common),
            ("Connection", Common),
            ("NoAuth", Common),
            ("Orphaned", Common),
            ("MixedRecipes", Never(FOREIGN)),
            ("SequenceExhausted", Never(LARGE)),
            ("TooManyWaiters", Never(LARGE)),
            ("TooManyWatches", Never(LARGE)),
            ("NodeDeleted", Free),
            ("LeaseOver", Free),
            ("InvalidLease", Never(OPTION)),
            ("Rejected", Free),
            ("TooManyPermits", Free),
            ("TooManyAtOnce", Never(OPTION)),
            ("ZeroPermits", Never(OPTION)),
            ("LimitMismatch", Free),
            ("InvalidLimit", Never(OPTION)),
            ("AuthFailed", Never(AUTH)),
            ("Closed", Free),
        ],
    },
    Variants {
        word: "not released",
        name: "ReleaseError",
        source: include_str!("../../src/error/release.rs"),
        rows: &[
            ("Lost", Common),
            ("Refused", Rare),
            ("TimedOut", Free),
            (
                "SessionNotClosed",
                Never("only close and drain return it, which worlds ask when all is healed"),
            ),
        ],
    },
    Variants {
        word: "not upgraded",
        name: "ConversionFailure",
        source: include_str!("../../src/error/convert.rs"),
        rows: &[
            ("WouldDeadlock", Never("worlds upgrade by `try_upgrade`, which does not wait")),
            ("Contended", Common),
            ("Lost", Rare),
            ("MixedRecipes", Never(FOREIGN)),
            ("Rejected", Free),
        ],
    },
    Variants {
        word: "not written",
        name: "TransactionError",
        source: include_str!("../../src/error/transaction.rs"),
        rows: &[
            ("Lost", Free),
            ("Rejected", Free),
            ("Unknown", Common),
            ("InvalidPath", Never(OPTION)),
            ("TooLarge", Never(LARGE)),
        ],
    },
    Variants {
        word: "no job",
        name: "OnceError",
        source: include_str!("../../src/error/once.rs"),
        rows: &[
            ("Build", Never(OPTION)),
            ("Acquire", Rare),
            ("Read", Free),
            ("Lost", Rare),
            ("Failed", Rare),
            ("NotRecorded", Free),
            ("Unknown", Free),
        ],
    },
    Variants {
        word: "does not lead",
        name: "LeadError",
        source: include_str!("../../src/error/lead.rs"),
        rows: &[("Left", Free), ("Acquire", Rare)],
    },
    Variants {
        word: "not counted",
        name: "AtomicLongError",
        source: include_str!("../../src/error/atomic.rs"),
        rows: &[
            ("Connection", Rare),
            ("Unknown", Rare),
            ("Contended", Free),
            ("Overflow", Never(LARGE)),
            ("NotACounter", Never(FOREIGN)),
            ("NotPersistent", Never(FOREIGN)),
            ("VersionsUsedUp", Never(LARGE)),
            ("NoAuth", Rare),
            ("Rejected", Free),
            ("Mutex", Free),
            ("AuthFailed", Never(AUTH)),
            ("Closed", Free),
        ],
    },
    Variants {
        word: "not read",
        name: "ReadError",
        source: include_str!("../../src/error/read.rs"),
        rows: &[
            ("Lost", Free),
            ("InvalidPath", Never(OPTION)),
            ("Connection", Free),
            ("NoAuth", Free),
            ("Rejected", Free),
        ],
    },
    Variants {
        word: "participants",
        name: "InspectError",
        source: include_str!("../../src/error/inspect.rs"),
        rows: &[
            ("Connection", Rare),
            ("NoAuth", Free),
            ("MixedRecipes", Never(FOREIGN)),
            ("SequenceExhausted", Never(LARGE)),
            ("LimitMismatch", Free),
            ("InvalidLimit", Never(OPTION)),
            ("Rejected", Free),
            ("AuthFailed", Never(AUTH)),
            ("Closed", Free),
        ],
    },
    Variants {
        word: "not created",
        name: "PersistentNodeError",
        source: include_str!("../../src/error/persistent_node.rs"),
        rows: &[
            ("TimedOut", Free),
            ("Connection", Free),
            ("NoAuth", Free),
            ("Rejected", Free),
            ("DataTooLarge", Never(LARGE)),
            ("NotConfirmed", Free),
            ("AuthFailed", Never(AUTH)),
            ("Closed", Free),
        ],
    },
];

/// The rows beside errors.
const OTHERS: &[(&str, When)] = &[
    ("counted", Common),
    ("downgraded", Common),
    ("upgraded", Common),
    ("dropped call", Common),
    ("written", Common),
    ("has led", Common),
    ("job AlreadyRun", Common),
    ("job Ran", Common),
    ("refused WouldBlock", Common),
    ("granted Suspended", Free),
];

/// Returns the rows that should have occurred in a run, and did not.
pub fn missing(sum: &Sum) -> Vec<String> {
    let is_due = |when| match when {
        Common => sum.worlds >= COMMON,
        Rare => sum.worlds >= RARE,
        Free | Never(_) => false,
    };
    let errors = VARIANTS
        .iter()
        .flat_map(|of| of.rows.iter().map(|(variant, when)| (format!("{} {variant}", of.word), *when)));
    let others = OTHERS.iter().map(|(name, when)| ((*name).to_owned(), *when));
    let sometimes =
        errors.chain(others).filter(|(name, when)| is_due(*when) && !sum.sometimes.contains_key(name));
    let never = faults::ALL.iter().filter(|name| is_due(Common) && !sum.faults.contains_key(**name));
    sometimes.map(|(name, _)| name).chain(never.map(|name| format!("fault: {name}"))).collect()
}

/// Returns the rows of a run that no world should have, or that are in no table.
pub fn unknown(sum: &Sum) -> Vec<String> {
    let never = VARIANTS.iter().flat_map(|of| {
        let rows = of.rows.iter().filter(|(_, when)| matches!(when, Never(_)));
        rows.map(|(variant, _)| format!("{} {variant}", of.word))
    });
    let faults = sum.faults.keys().filter(|name| !faults::ALL.contains(&name.as_str()));
    never.filter(|name| sum.sometimes.contains_key(name)).chain(faults.cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The variants of an enum, by its declaration.
    fn declared(source: &str, name: &str) -> Vec<String> {
        let (_, body) = source.split_once(&format!("pub enum {name} {{\n")).expect("the enum is there");
        let (body, _) = body.split_once("\n}\n").expect("it ends");
        let own = |line: &&str| line.starts_with("    ") && line.as_bytes()[4].is_ascii_uppercase();
        let variant =
            |line: &str| line.trim().split(['(', '{', ',', ' ']).next().unwrap_or_default().to_owned();
        body.lines().filter(|line| line.len() > 4).filter(own).map(variant).collect()
    }

    #[test]
    fn every_variant_of_every_error_has_a_row() {
        for of in VARIANTS {
            let rows: Vec<&str> = of.rows.iter().map(|(variant, _)| *variant).collect();
            assert_eq!(declared(of.source, of.name), rows, "{}", of.name);
        }
    }

    fn full(worlds: u64) -> Sum {
        let mut sum = Sum { worlds, ..Sum::from_seed(1) };
        for of in VARIANTS {
            let rows = of.rows.iter().filter(|(_, when)| !matches!(when, Never(_)));
            sum.sometimes.extend(rows.map(|(variant, _)| (format!("{} {variant}", of.word), 1)));
        }
        sum.sometimes.extend(OTHERS.iter().map(|(name, _)| ((*name).to_owned(), 1)));
        sum.faults.extend(faults::ALL.iter().map(|name| ((*name).to_owned(), 1)));
        sum
    }

    #[test]
    fn a_row_that_never_occurred_fails_a_run_that_is_long_enough() {
        let sum = full(RARE);
        assert_eq!((missing(&sum), unknown(&sum)), (vec![], vec![]));
        let mut sum = full(RARE);
        sum.sometimes.remove("lost SessionExpired");
        sum.sometimes.remove("lost LeaseOver");
        sum.faults.remove("quorum lost");
        assert_eq!(missing(&sum), ["lost SessionExpired", "lost LeaseOver", "fault: quorum lost"]);
        sum.worlds = COMMON;
        assert_eq!(missing(&sum), ["lost LeaseOver", "fault: quorum lost"]);
        sum.worlds = COMMON - 1;
        assert!(missing(&sum).is_empty());
    }

    #[test]
    fn a_row_that_no_world_should_have_is_said() {
        let mut sum = full(1);
        sum.sometimes.insert("refused AuthFailed".to_owned(), 1);
        sum.faults.insert("a new fault".to_owned(), 1);
        assert_eq!(unknown(&sum), ["refused AuthFailed", "a new fault"]);
    }
}
