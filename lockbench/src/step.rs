//! The messages between the matrix and a holder: one JSON object per line, like the jobs of `job`,
//! but a holder carries out one step of a lock at a time.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// An order to a holder. One line answers each; the end of the input ends the holder too.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Step {
    /// Closes the session that it has, and begins another.
    Open(Open),
    /// Waits for the lock.
    Acquire(bool),
    /// Asks the lock whether it is held, as a holder does before it acts.
    Ask(bool),
    /// Gives the lock back, held or lost.
    Release(bool),
    /// Reads a node, or key.
    Read {
        node: String,
    },
    /// Writes a node, or key, under the condition that this lock has for writes.
    Write {
        node: String,
        value: String,
        /// The version that [`Read`](Self::Read) returned.
        version: i64,
    },
    Quit(bool),
}

/// How a holder begins.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Open {
    pub(crate) servers: String,
    pub(crate) path: String,
    /// The session timeout, or the time to live of a key.
    pub(crate) millis: u64,
    /// Whether it listens to the state of its connection, or looks at the clock, where the lock
    /// leaves that to its user.
    pub(crate) careful: bool,
    /// Where it notes every few milliseconds whether it holds the lock.
    pub(crate) journal: PathBuf,
}

/// The answer of a holder. Fields that a step does not use are left out.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct HolderAnswer {
    /// When the lock was granted, by `CLOCK_MONOTONIC`, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) granted: Option<i64>,
    /// The fencing token, of a lock that has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<(i64, i64)>,
    /// Whether the lock says that it is held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) held: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<i64>,
    /// Why the step failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

/// A question of a holder to its lock, and the answer: a line of its journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Poll {
    /// When it asked and when it had the answer, by `CLOCK_MONOTONIC`, in nanoseconds.
    pub(crate) asked: i64,
    pub(crate) answered: i64,
    pub(crate) held: bool,
}

impl Poll {
    /// Reads a line: `asked answered 0|1`.
    pub(crate) fn read(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let mut number = || words.next()?.parse::<i64>().ok();
        let (asked, answered, held) = (number()?, number()?, number()?);
        Some(Self {
            asked,
            answered,
            held: held == 1,
        })
    }
}

/// Returns the time that processes of a machine share, in nanoseconds.
pub(crate) fn now() -> i64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_step_as_peers_do() {
        let text = serde_json::to_string(&Step::Acquire(true)).unwrap();
        assert_eq!(text, r#"{"acquire":true}"#);
        let open = r#"{"open": {"servers": "a:1", "path": "/p", "millis": 4000, "careful": true, "journal": "/j"}}"#;
        assert!(matches!(
            serde_json::from_str(open).unwrap(),
            Step::Open(Open { careful: true, .. })
        ));
    }

    #[test]
    fn reads_only_whole_journal_lines() {
        assert_eq!(
            Poll::read("3 5 1"),
            Some(Poll {
                asked: 3,
                answered: 5,
                held: true
            })
        );
        assert_eq!(Poll::read("3 5"), None);
    }
}
