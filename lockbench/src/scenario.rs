//! The table of scenarios.

use std::time::Duration;

use crate::contender::{
    BARE, BARE_APART, BARE_TURNS, CLIENT_LOCK, CURATOR, CURATOR_READ_WRITE, CURATOR_SHARED,
    Contender, KAZOO, OURS, OURS_FAIR, OURS_READ_WRITE, REDIS,
};
use crate::job::{Job, Release};
use crate::servers::{Ensemble, Place};

/// The figures that the ratios of a scenario compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Measure {
    /// Time per cycle: less is better.
    Time,
    /// Cycles per second: more is better.
    Rate,
}

/// A scenario: the contenders, their locks, and how they are measured.
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    pub(crate) about: &'static str,
    pub(crate) place: Place,
    pub(crate) measure: Measure,
    /// The processes of each contender, which share the paths.
    pub(crate) processes: usize,
    sessions: usize,
    tasks: usize,
    pub(crate) paths: usize,
    read_percent: u64,
    release: Release,
    keep_from_succession: bool,
    cycles_per_task: Option<u64>,
    hold_micros: u64,
    pub(crate) give_up_micros: Option<u64>,
    /// Instead of the effort's, where a round takes long.
    most_rounds: usize,
    /// The least effort that has it.
    pub(crate) from: Effort,
    pub(crate) contenders: Vec<Contender>,
}

/// How much time a run has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Effort {
    /// Whether everything works.
    Smoke,
    /// Ten minutes for all.
    Quick,
    Full,
}

impl Effort {
    fn rounds(self) -> usize {
        match self {
            Self::Smoke => 1,
            Self::Quick => 7,
            Self::Full => 15,
        }
    }

    /// Returns how long each contender's part of a round lasts.
    pub(crate) fn length(self) -> Duration {
        match self {
            Self::Smoke => Duration::from_millis(30),
            Self::Quick => Duration::from_millis(400),
            Self::Full => Duration::from_secs(1),
        }
    }
}

impl Scenario {
    fn new(
        name: impl Into<String>,
        about: &'static str,
        measure: Measure,
        contenders: &[Contender],
    ) -> Self {
        Self {
            name: name.into(),
            about,
            place: Place {
                ensemble: Ensemble::One,
                distant: false,
            },
            measure,
            processes: 1,
            sessions: 1,
            tasks: 1,
            paths: 1,
            read_percent: 0,
            release: Release::Awaited,
            keep_from_succession: false,
            cycles_per_task: None,
            hold_micros: 0,
            give_up_micros: None,
            most_rounds: usize::MAX,
            from: Effort::Smoke,
            contenders: contenders.to_vec(),
        }
    }

    fn distant(self) -> Self {
        Self {
            place: Place {
                distant: true,
                ..self.place
            },
            ..self
        }
    }

    fn on_three(self) -> Self {
        Self {
            place: Place {
                ensemble: Ensemble::Three,
                ..self.place
            },
            ..self
        }
    }

    /// Returns the same in a small way: what shows that it works, and not how fast.
    pub(crate) fn small(self) -> Self {
        Self {
            processes: self.processes.min(4),
            sessions: self.sessions.min(32),
            tasks: self.tasks.min(100),
            paths: self.paths.min(100),
            cycles_per_task: self.cycles_per_task.map(|cycles| cycles.min(10)),
            hold_micros: 300,
            ..self
        }
    }

    /// Returns the same with few tasks, and on other paths.
    pub(crate) fn few(&self) -> Self {
        Self {
            name: format!("{}_few", self.name),
            sessions: self.sessions,
            tasks: self.tasks.min(1000),
            paths: self.paths.min(1000),
            ..self.clone().small()
        }
    }

    /// Returns how many rounds there are.
    pub(crate) fn rounds(&self, effort: Effort) -> usize {
        effort.rounds().min(self.most_rounds)
    }

    /// Returns how many tasks a contender has, in all of its processes.
    pub(crate) fn all_tasks(&self) -> usize {
        self.processes * self.sessions * self.tasks
    }

    /// Returns the job of a contender in this scenario.
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
            hold_micros: self.hold_micros,
            give_up_micros: self.give_up_micros,
            root: format!("/lockbench/{}/{}", self.name, contender.name),
            servers,
            counter_file: None,
        }
    }
}

/// Returns all scenarios, in the order in which they are run.
pub(crate) fn all() -> Vec<Scenario> {
    [
        free(),
        sessions(),
        in_process(),
        in_memory(),
        read_mostly(),
        locks(),
        waiters(),
    ]
    .concat()
}

/// Scenarios of one task and one lock that is free.
fn free() -> Vec<Scenario> {
    let all = [OURS, BARE, BARE_APART, CLIENT_LOCK, CURATOR, KAZOO, REDIS];
    let awaited = |name, about| Scenario::new(name, about, Measure::Time, &all);
    let cold = [OURS, BARE, BARE_APART, CLIENT_LOCK];
    vec![
        awaited("free_awaited", "one task, one free lock, release awaited"),
        awaited(
            "free_awaited_distant",
            "the same with 1 ms of delay each way",
        )
        .distant(),
        awaited("free_awaited_three", "the same on three members").on_three(),
        Scenario {
            release: Release::Dropped,
            ..Scenario::new(
                "free_dropped",
                "one task, one free lock, guard dropped",
                Measure::Time,
                &cold,
            )
        },
        Scenario {
            keep_from_succession: true,
            ..Scenario::new(
                "free_cold",
                "one free lock; between two cycles a foreign child comes and goes, unmeasured",
                Measure::Time,
                &cold,
            )
        },
    ]
}

/// Many sessions and one lock.
fn sessions() -> Vec<Scenario> {
    let all = [OURS, OURS_FAIR, CLIENT_LOCK, CURATOR, KAZOO, REDIS];
    let about = "n sessions of one task each, on one path";
    let of = |sessions| Scenario {
        sessions,
        ..Scenario::new(format!("sessions_{sessions}"), about, Measure::Rate, &all)
    };
    let three = Scenario {
        name: "sessions_8_three".to_owned(),
        about: "8 sessions on three members",
        ..of(8)
    };
    vec![of(2), of(8), of(32), of(128), three.on_three()]
}

/// Many tasks of one session and one lock.
fn in_process() -> Vec<Scenario> {
    let about = "n tasks of one session, on one path";
    let of = |tasks: usize, contenders: &[Contender]| Scenario {
        tasks,
        ..Scenario::new(format!("inproc_{tasks}"), about, Measure::Rate, contenders)
    };
    let all = [
        OURS,
        OURS_FAIR,
        CLIENT_LOCK,
        CURATOR,
        CURATOR_SHARED,
        KAZOO,
        REDIS,
    ];
    // Some scenarios leave out the contenders that need a second or more until each of 256 tasks
    // has held the lock once.
    let most = [
        OURS,
        OURS_FAIR,
        BARE_TURNS,
        CLIENT_LOCK,
        CURATOR,
        CURATOR_SHARED,
        REDIS,
    ];
    vec![
        of(8, &all),
        of(64, &most),
        Scenario {
            most_rounds: 5,
            ..of(256, &most)
        },
        Scenario {
            most_rounds: 3,
            ..of(10_000, &[OURS, OURS_FAIR])
        },
        Scenario {
            name: "inproc_10000_mutex".to_owned(),
            from: Effort::Full,
            most_rounds: 3,
            ..of(10_000, &[OURS, REDIS])
        },
    ]
}

/// Handed over in memory: in a rush, and for long.
fn in_memory() -> Vec<Scenario> {
    let rush =
        "100,000 users of one process at once; time until all have held the lock and their answer";
    vec![
        Scenario {
            tasks: 100_000,
            cycles_per_task: Some(1),
            most_rounds: 5,
            ..Scenario::new("rush", rush, Measure::Time, &[OURS])
        },
        Scenario {
            tasks: 256,
            cycles_per_task: Some(800),
            most_rounds: 5,
            ..Scenario::new(
                "growth",
                "1,000,000 cycles of 256 tasks",
                Measure::Time,
                &[OURS],
            )
        },
    ]
}

/// Readers and few writers, in several processes.
fn read_mostly() -> Vec<Scenario> {
    let of = |processes, tasks, contenders: &[Contender]| Scenario {
        processes,
        tasks,
        read_percent: 95,
        ..Scenario::new(
            format!("read_mostly_{processes}"),
            "n processes, 8 tasks in all or one for each process; 95 of 100 cycles read",
            Measure::Rate,
            contenders,
        )
    };
    let all = [OURS_READ_WRITE, CURATOR_READ_WRITE];
    vec![
        of(1, 8, &all),
        of(8, 1, &all),
        of(32, 1, &[OURS_READ_WRITE]),
    ]
}

/// Many locks that are free.
fn locks() -> Vec<Scenario> {
    let of = |locks: usize, contenders: &[Contender]| Scenario {
        tasks: locks,
        paths: locks,
        ..Scenario::new(
            format!("locks_{locks}"),
            "n tasks of one session, each with a separate free lock",
            Measure::Rate,
            contenders,
        )
    };
    let all = [OURS, BARE, BARE_APART, CLIENT_LOCK, CURATOR, KAZOO, REDIS];
    let many = [OURS, BARE, CLIENT_LOCK, REDIS];
    vec![
        of(64, &all),
        Scenario {
            most_rounds: 3,
            from: Effort::Full,
            ..of(10_000, &many)
        },
    ]
}

/// Scenarios of the cost of a grant when many tasks wait.
fn waiters() -> Vec<Scenario> {
    let of = |waiters: usize| Scenario {
        sessions: 10,
        tasks: waiters / 10,
        most_rounds: 3,
        ..Scenario::new(
            format!("waiters_{waiters}"),
            "n tasks of ten sessions, on one path",
            Measure::Time,
            &[OURS, OURS_FAIR],
        )
    };
    let gives_up = |waiters: usize| Scenario {
        name: format!("gives_up_{waiters}"),
        about: "a task acquires a lock that has n waiters, and gives up after 20 ms, which are in the time",
        give_up_micros: Some(20_000),
        ..of(waiters)
    };
    let all = [10, 100, 1000, 5000];
    all.into_iter()
        .map(of)
        .chain(all.into_iter().map(gives_up))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_of_scenarios_and_contenders_differ() {
        let all = all();
        let names: BTreeSet<_> = all.iter().map(|scenario| &scenario.name).collect();
        assert_eq!(names.len(), all.len());
        for scenario in &all {
            let names: BTreeSet<_> = scenario
                .contenders
                .iter()
                .map(|contender| contender.name)
                .collect();
            assert_eq!(names.len(), scenario.contenders.len(), "{}", scenario.name);
        }
    }

    #[test]
    fn multi_process_scenarios_share_no_process() {
        for scenario in all().iter().filter(|scenario| scenario.processes > 1) {
            let processes: BTreeSet<_> = scenario
                .contenders
                .iter()
                .map(Contender::processes)
                .collect();
            assert_eq!(
                processes.len(),
                scenario.contenders.len(),
                "{}",
                scenario.name
            );
        }
    }
}
