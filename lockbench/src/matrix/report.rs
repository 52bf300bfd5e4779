//! The findings, as JSON and as tables.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::LOCKS;
use super::faults::{Fault, Outcome};
use super::lock_set::{Mode, Updates};
use crate::statistics::Spread;

/// All of it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) timeout_ms: u64,
    pub(crate) repeat: usize,
    pub(crate) seconds: u64,
    pub(crate) peers: BTreeMap<String, String>,
    pub(crate) locks: BTreeMap<String, Found>,
}

/// The findings about a lock.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Found {
    pub(crate) servers: String,
    pub(crate) faults: BTreeMap<Fault, Vec<Outcome>>,
    pub(crate) updates: BTreeMap<Mode, Updates>,
}

impl Report {
    pub(crate) fn new(timeout_ms: u64, repeat: usize) -> Self {
        Self {
            timeout_ms,
            repeat,
            ..Self::default()
        }
    }

    /// Returns whether ours let no two believe that they hold it, left nothing, and lost no guarded
    /// update.
    pub(crate) fn ours_is_fine(&self) -> bool {
        self.locks.get("ours").is_none_or(|ours| {
            let mut outcomes = ours.faults.values().flatten();
            let guarded = [Mode::Token, Mode::Conditional].map(|mode| ours.updates.get(&mode));
            outcomes.all(|outcome| {
                outcome.overlap_ms.is_none() && outcome.left == 0 && outcome.stuck == 0
            }) && guarded
                .into_iter()
                .flatten()
                .all(|updates| updates.lost == 0)
        })
    }

    pub(crate) fn markdown(&self) -> String {
        let mut text = String::new();
        for (fault, title, about) in TABLES {
            let row = |outcomes: &Vec<Outcome>| match fault {
                Fault::Killed | Fault::AcquireLost | Fault::ReleaseLost => {
                    spread(outcomes, |one| one.granted_ms)
                }
                Fault::Paused => spread(outcomes, |one| one.told_ms),
                Fault::Cut | Fault::Restarted => spread(outcomes, |one| one.margin_ms),
            };
            let rows: Vec<String> = LOCKS
                .iter()
                .filter_map(|lock| {
                    Some((lock.name, self.locks.get(lock.name)?.faults.get(&fault)?))
                })
                .map(|(name, outcomes)| {
                    format!(
                        "| `{name}` | {} | {} | {} | {} |",
                        overlaps(outcomes),
                        row(outcomes),
                        count(outcomes, |one| one.left),
                        count(outcomes, |one| one.stuck),
                    )
                })
                .collect();
            if !rows.is_empty() {
                // Writing to a text does not fail.
                let _ = write!(
                    text,
                    "**{title}**\n\n| lock | overlaps | {about} | nodes or keys left | calls stuck |\n\
                     |---|---|---|---:|---:|\n{}\n\n",
                    rows.join("\n")
                );
            }
        }
        let share = |updates: Option<&Updates>| match updates {
            Some(updates) if updates.acknowledged > 0 => {
                let share = 100.0 * updates.lost as f64 / updates.acknowledged as f64;
                format!("{share:.1} % of {}", updates.acknowledged)
            }
            _ => String::new(),
        };
        let rows: Vec<String> = LOCKS
            .iter()
            .filter_map(|lock| Some((lock, &self.locks.get(lock.name)?.updates)))
            .filter(|(_, updates)| !updates.is_empty())
            .map(|(lock, updates)| {
                let shares = Mode::ALL.map(|mode| share(updates.get(&mode)));
                format!(
                    "| `{}` | {} | {} |",
                    lock.name,
                    shares.join(" | "),
                    lock.condition
                )
            })
            .collect();
        if !rows.is_empty() {
            let _ = write!(
                text,
                "**lock-set: acknowledged updates that are lost**\n\n| lock | nothing is asked | the holder asks its \
                 lock | the store compares tokens | a conditional write | by |\n|---|---:|---:|---:|---:|---|\n{}\n",
                rows.join("\n")
            );
        }
        text
    }
}

const TABLES: [(Fault, &str, &str); 6] = [
    (
        Fault::Killed,
        "The holder is killed",
        "killed to next grant",
    ),
    (
        Fault::Paused,
        "The holder is stopped, and goes on after the next grant",
        "goes on to told",
    ),
    (
        Fault::Cut,
        "The holder's link is silent",
        "told to next grant",
    ),
    (
        Fault::AcquireLost,
        "The answer to the request for the lock is lost",
        "reset to grant",
    ),
    (
        Fault::ReleaseLost,
        "The answer to the release is lost",
        "release to next grant",
    ),
    (
        Fault::Restarted,
        "The server is killed and started again",
        "told to next grant",
    ),
];

/// Returns in how many trials two believed that they held the lock, and for how long at most.
fn overlaps(outcomes: &[Outcome]) -> String {
    let found: Vec<f64> = outcomes.iter().filter_map(|one| one.overlap_ms).collect();
    match found.iter().copied().reduce(f64::max) {
        Some(longest) => format!(
            "**{} of {}**, up to {}",
            found.len(),
            outcomes.len(),
            time(longest)
        ),
        None => format!("0 of {}", outcomes.len()),
    }
}

fn count(outcomes: &[Outcome], number: impl Fn(&Outcome) -> usize) -> usize {
    outcomes.iter().map(number).sum()
}

/// Returns the median, and the least and the most.
fn spread(outcomes: &[Outcome], number: impl Fn(&Outcome) -> Option<f64>) -> String {
    let values: Vec<f64> = outcomes.iter().filter_map(number).collect();
    let Some(spread) = Spread::of(values.iter().copied()) else {
        return String::new();
    };
    let (least, most) = (
        values.iter().copied().fold(f64::MAX, f64::min),
        values.iter().copied().fold(f64::MIN, f64::max),
    );
    format!(
        "{} ({} to {})",
        time(spread.median),
        time(least),
        time(most)
    )
}

fn time(ms: f64) -> String {
    if ms.abs() < 1000.0 {
        format!("{ms:.0} ms")
    } else {
        format!("{:.2} s", ms / 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(outcome: Outcome) -> Report {
        let mut report = Report::new(4000, 1);
        let found = Found {
            faults: BTreeMap::from([(Fault::Cut, vec![outcome])]),
            ..Found::default()
        };
        report.locks.insert("ours".to_owned(), found);
        report
    }

    #[test]
    fn report_flags_overlap() {
        let fine = report(Outcome {
            margin_ms: Some(1250.0),
            ..Outcome::default()
        });
        assert!(fine.ours_is_fine());
        assert!(
            fine.markdown()
                .contains("| `ours` | 0 of 1 | 1.25 s (1.25 s to 1.25 s) | 0 | 0 |"),
            "{}",
            fine.markdown()
        );
        let wrong = report(Outcome {
            overlap_ms: Some(80.0),
            ..Outcome::default()
        });
        assert!(!wrong.ours_is_fine());
        assert!(
            wrong.markdown().contains("**1 of 1**, up to 80 ms"),
            "{}",
            wrong.markdown()
        );
    }
}
