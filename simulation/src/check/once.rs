//! Of all runs of a job for an occasion at most one is recorded, and what it writes is committed
//! with the record.

use std::collections::BTreeMap;

/// The result of a caller's run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The caller's run is recorded.
    Ran,
    /// The caller's run, if it began one, is not and will not be recorded.
    NotRecorded,
    /// Another run, or its own, is recorded.
    AlreadyRun,
}

/// The runs of one job whose end was reported, with their results.
#[derive(Debug, Default)]
pub struct Runs(BTreeMap<String, Vec<(u64, Outcome)>>);

impl Runs {
    pub fn ended(&mut self, occasion: &str, run: u64, outcome: Outcome) -> Result<(), String> {
        let runs = self.0.entry(occasion.to_owned()).or_default();
        let before = runs
            .iter()
            .find(|(_, before)| *before == Outcome::Ran)
            .map(|(run, _)| *run);
        runs.push((run, outcome));
        match before {
            Some(before) if outcome == Outcome::Ran => Err(format!(
                "the runs {before} and {run} were both recorded for {occasion}"
            )),
            _ => Ok(()),
        }
    }

    /// Compares, at the end, the writes of runs for an occasion with its record. `may_be_pruned`
    /// says that a record may have been deleted since.
    pub fn check(
        &self,
        occasion: &str,
        writes: &[u64],
        is_recorded: bool,
        may_be_pruned: bool,
    ) -> Result<(), String> {
        if writes.len() > 1 {
            return Err(format!("{occasion} has the writes of the runs {writes:?}"));
        }
        if is_recorded && writes.is_empty() || !is_recorded && !writes.is_empty() && !may_be_pruned
        {
            return Err(format!(
                "{occasion} is recorded: {is_recorded}, with the writes of {writes:?}"
            ));
        }
        for (run, outcome) in self.0.get(occasion).into_iter().flatten() {
            let is_written = writes.contains(run);
            let wrong = match outcome {
                Outcome::Ran => !is_written,
                Outcome::NotRecorded => is_written,
                Outcome::AlreadyRun => writes.is_empty(),
            };
            if wrong {
                return Err(format!(
                    "the run {run} for {occasion} returned {outcome:?}, but the records are {writes:?}"
                ));
            }
        }
        Ok(())
    }

    /// Returns the occasions for which a result was reported.
    pub fn occasions(&self) -> impl Iterator<Item = &String> {
        self.0.keys()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_two_recorded_runs() {
        let mut runs = Runs::default();
        runs.ended("a", 1, Outcome::NotRecorded).unwrap();
        runs.ended("a", 2, Outcome::Ran).unwrap();
        runs.ended("b", 3, Outcome::Ran).unwrap();
        runs.ended("a", 4, Outcome::AlreadyRun).unwrap();
        runs.check("a", &[2], true, false).unwrap();
        runs.ended("a", 5, Outcome::Ran).unwrap_err();
        runs.check("a", &[2, 5], true, false).unwrap_err();
    }

    #[test]
    fn flags_record_without_its_writes() {
        let runs = Runs::default();
        runs.check("a", &[], false, false).unwrap();
        runs.check("a", &[], true, false).unwrap_err();
        runs.check("a", &[1], false, false).unwrap_err();
        runs.check("a", &[1], false, true).unwrap();
    }

    #[test]
    fn flags_wrong_outcome_of_run() {
        for (outcome, writes, fine) in [
            (Outcome::Ran, &[1][..], true),
            (Outcome::Ran, &[2], false),
            (Outcome::NotRecorded, &[2], true),
            (Outcome::NotRecorded, &[1], false),
            (Outcome::AlreadyRun, &[2], true),
        ] {
            let mut runs = Runs::default();
            runs.ended("a", 1, outcome).unwrap();
            assert_eq!(
                runs.check("a", writes, true, false).is_ok(),
                fine,
                "{outcome:?} {writes:?}"
            );
        }
    }
}
