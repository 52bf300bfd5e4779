//! What is measured: the table of scenarios.

use std::time::Duration;

use crate::contender::{self, Contender};
use crate::job::{Job, Release};
use crate::servers::Ensemble;

/// What a scenario's ratios compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Measure {
    /// Time per cycle: less is better.
    Time,
    /// Cycles per second: more is better.
    Rate,
}

/// Who contends for what, and how it is measured.
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    pub(crate) about: &'static str,
    pub(crate) ensemble: Ensemble,
    pub(crate) measure: Measure,
    /// Of each contender; they share the paths.
    pub(crate) processes: usize,
    sessions: usize,
    tasks: usize,
    paths: usize,
    read_percent: u64,
    release: Release,
    keep_from_succession: bool,
    cycles_per_task: Option<u64>,
    pub(crate) contenders: Vec<Contender>,
}

/// How much time a run has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    /// Whether everything works.
    Smoke,
    /// Ten minutes for all.
    Quick,
    Full,
}

impl Effort {
    /// How many rounds each scenario has.
    pub(crate) fn rounds(self) -> usize {
        match self {
            Self::Smoke => 1,
            Self::Quick => 7,
            Self::Full => 15,
        }
    }

    /// How long each contender's part of a round lasts.
    pub(crate) fn length(self) -> Duration {
        match self {
            Self::Smoke => Duration::from_millis(50),
            Self::Quick => Duration::from_millis(400),
            Self::Full => Duration::from_secs(1),
        }
    }
}

impl Scenario {
    fn new(name: impl Into<String>, about: &'static str, measure: Measure, contenders: &[Contender]) -> Self {
        Self {
            name: name.into(),
            about,
            ensemble: Ensemble::One,
            measure,
            processes: 1,
            sessions: 1,
            tasks: 1,
            paths: 1,
            read_percent: 0,
            release: Release::Awaited,
            keep_from_succession: false,
            cycles_per_task: None,
            contenders: contenders.to_vec(),
        }
    }

    /// Returns what a contender is told in this scenario.
    pub(crate) fn job(&self, contender: &Contender, length: Duration, servers: String) -> Job {
        Job {
            scenario: self.name.clone(),
            recipe: contender.recipe,
            sessions: self.sessions,
            tasks: self.tasks,
            paths: self.paths,
            read_percent: self.read_percent,
            release: self.release,
            objects: contender.objects,
            keep_from_succession: self.keep_from_succession,
            micros: u64::try_from(length.as_micros()).unwrap_or(u64::MAX),
            cycles_per_task: self.cycles_per_task,
            root: format!("/lockbench/{}/{}", self.name, contender.name),
            servers,
            counter_file: None,
        }
    }

    /// How many counters the contenders need.
    pub(crate) fn paths(&self) -> usize {
        self.paths
    }
}

/// All scenarios, in the order in which they are run.
pub(crate) fn all() -> Vec<Scenario> {
    use contender::{BARE, CLIENT_LOCK, OURS, OURS_FAIR, OURS_READ_WRITE};

    let free = [OURS, BARE, CLIENT_LOCK];
    let mut all = vec![
        Scenario::new("free_awaited", "one task, one free lock, release awaited", Measure::Time, &free),
        Scenario {
            release: Release::Dropped,
            ..Scenario::new("free_dropped", "the same, guard dropped", Measure::Time, &free)
        },
        Scenario {
            keep_from_succession: true,
            ..Scenario::new(
                "free_cold",
                "the same as free_awaited, and between two cycles a foreign child comes and goes, unmeasured",
                Measure::Time,
                &free,
            )
        },
    ];
    all.push(Scenario {
        ensemble: Ensemble::Three,
        ..Scenario::new("free_awaited_three", "free_awaited on three members", Measure::Time, &free)
    });
    for sessions in [2, 8, 32, 128] {
        let name = format!("sessions_{sessions}");
        let about = "so many sessions, one task each, on one path";
        all.push(Scenario { sessions, ..Scenario::new(name, about, Measure::Rate, &[OURS, CLIENT_LOCK]) });
    }
    for tasks in [8, 64, 256] {
        let name = format!("inproc_{tasks}");
        let about = "so many tasks of one session on one path";
        let contenders = [OURS, OURS_FAIR, CLIENT_LOCK];
        all.push(Scenario { tasks, ..Scenario::new(name, about, Measure::Rate, &contenders) });
    }
    for processes in [1, 8, 32] {
        let name = format!("read_mostly_{processes}");
        let about = "so many processes of one task each, 95 reads and 5 writes in 100 cycles";
        all.push(Scenario {
            processes,
            read_percent: 95,
            ..Scenario::new(name, about, Measure::Rate, &[OURS_READ_WRITE])
        });
    }
    all.push(Scenario {
        tasks: 64,
        paths: 64,
        ..Scenario::new("locks_64", "64 tasks of one session, each with a free lock", Measure::Rate, &free)
    });
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_scenarios_and_no_two_contenders_of_one_have_the_same_name() {
        let all = all();
        let names: BTreeSet<_> = all.iter().map(|scenario| &scenario.name).collect();
        assert_eq!(names.len(), all.len());
        for scenario in &all {
            let names: BTreeSet<_> = scenario.contenders.iter().map(|contender| contender.name).collect();
            assert_eq!(names.len(), scenario.contenders.len(), "{}", scenario.name);
        }
    }
}
