//! The measurements, and how they are printed.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::gate::{Quantity, Verdict};
use crate::job::{Done, Latency};
use crate::machine::StolenTime;
use crate::plot::shown;
use crate::scenario::{Measure, Scenario};
use crate::statistics::Spread;

/// The measurements of a contender in a round, of all of its processes together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measured {
    cycles: u64,
    pub(crate) elapsed_micros: f64,
    cpu_micros: f64,
    /// The latencies; with several processes, the worst of each percentile.
    pub(crate) latency_micros: Latency,
    /// The number of requests that the ZooKeeper servers received in the round, pings and
    /// heartbeats included.
    pub(crate) requests: Option<u64>,
    /// The most lock nodes that were seen, where they are counted.
    pub(crate) lock_nodes: Option<u64>,
    /// The memory of the processes after the round.
    pub(crate) resident_bytes: Option<u64>,
    theft: StolenTime,
}

impl Measured {
    /// Sums up what the processes of a contender did.
    pub(crate) fn new(done: &[Done], theft: StolenTime) -> Self {
        let worst = |percentile: fn(&Latency) -> f64| {
            done.iter()
                .map(|done| percentile(&done.latency_micros))
                .fold(0.0, f64::max)
        };
        Self {
            cycles: done.iter().map(|done| done.cycles).sum(),
            elapsed_micros: done
                .iter()
                .map(|done| done.elapsed_micros)
                .fold(0.0, f64::max),
            cpu_micros: done.iter().map(|done| done.cpu_micros).sum(),
            latency_micros: Latency {
                p50: worst(|latency| latency.p50),
                p90: worst(|latency| latency.p90),
                p99: worst(|latency| latency.p99),
                p999: worst(|latency| latency.p999),
                max: worst(|latency| latency.max),
            },
            requests: None,
            lock_nodes: None,
            resident_bytes: None,
            theft,
        }
    }

    pub(crate) fn micros_per_cycle(&self) -> f64 {
        self.elapsed_micros / self.cycles as f64
    }

    pub(crate) fn cycles_per_second(&self) -> f64 {
        self.cycles as f64 / self.elapsed_micros * 1e6
    }

    pub(crate) fn cpu_micros_per_cycle(&self) -> f64 {
        self.cpu_micros / self.cycles as f64
    }

    pub(crate) fn requests_per_cycle(&self) -> Option<f64> {
        Some(self.requests? as f64 / self.cycles as f64)
    }

    #[cfg(test)]
    pub(crate) fn of_cycles(cycles: u64, elapsed_micros: f64) -> Self {
        let latency = Latency {
            p50: 1.0,
            p90: 1.0,
            p99: 1.0,
            p999: 1.0,
            max: 1.0,
        };
        let done = Done {
            cycles,
            elapsed_micros,
            cpu_micros: 1.0,
            latency_micros: latency,
            lost_updates: 0,
            exclusive_cycles: None,
        };
        Self::new(
            &[done],
            StolenTime {
                stolen: 0.0,
                others: 0.0,
            },
        )
    }
}

/// The measurements of each contender in a round.
pub(crate) type Round = BTreeMap<String, Measured>;

/// A scenario's rounds, and what follows from them.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct ScenarioReport {
    pub(crate) about: String,
    /// The reports by contender.
    pub(crate) contenders: BTreeMap<String, ContenderReport>,
    /// The ratios of each round, such as `ours/bare`.
    pub(crate) ratios: BTreeMap<String, RatioReport>,
    /// The contenders that did not take part, with the reason.
    pub(crate) absent: BTreeMap<String, String>,
    /// The memory of a task in scenarios with many, with all that belongs to it.
    pub(crate) bytes_per_task: BTreeMap<String, f64>,
    /// How many updates of the counters a lock lost, warming up included: with one it is no lock.
    #[serde(default)]
    pub(crate) lost_updates: BTreeMap<String, u64>,
    /// The number of rounds in which other programs used the processors.
    pub(crate) marked_rounds: usize,
    /// The measurements of each contender in each round.
    pub(crate) rounds: Vec<Round>,
}

/// A contender's figures over all rounds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ContenderReport {
    pub(crate) cycles_per_second: Spread,
    pub(crate) micros_per_cycle: Spread,
    pub(crate) cpu_micros_per_cycle: Spread,
    pub(crate) requests_per_cycle: Option<Spread>,
    /// The medians of the rounds' percentiles.
    pub(crate) latency_micros: Latency,
}

/// The figure of one contender divided by that of another.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RatioReport {
    pub(crate) time_per_cycle: Spread,
    pub(crate) cycles_per_second: Spread,
    pub(crate) cpu_per_cycle: Spread,
}

impl ScenarioReport {
    pub(crate) fn new(scenario: &Scenario, rounds: Vec<Round>) -> Self {
        let mut report = Self {
            about: scenario.about.to_owned(),
            marked_rounds: rounds
                .iter()
                .filter(|round| round.values().any(|m| m.theft.counts()))
                .count(),
            rounds,
            ..Self::default()
        };
        for contender in &scenario.contenders {
            if let Some(figures) = ContenderReport::new(&report.rounds, contender.name) {
                report.contenders.insert(contender.name.to_owned(), figures);
            }
        }
        for ours in scenario
            .contenders
            .iter()
            .filter(|contender| contender.is_ours())
        {
            for other in scenario
                .contenders
                .iter()
                .filter(|other| other.name != ours.name)
            {
                if let Some(ratios) = RatioReport::new(&report.rounds, ours.name, other.name) {
                    report
                        .ratios
                        .insert(format!("{}/{}", ours.name, other.name), ratios);
                }
            }
        }
        report
    }

    /// Returns the scenario's part of the table.
    pub(crate) fn table(&self, scenario: &Scenario) -> String {
        let mut text = format!("{}: {}\n", scenario.name, self.about);
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "  {:<18}{:>12}{:>12}{:>12}{:>12}{:>12}{:>10}   ratio to it, its quartiles",
            "", "cycles/s", "µs/cycle", "p50 µs", "p99 µs", "CPU µs", "requests"
        );
        let first = scenario
            .contenders
            .iter()
            .find(|contender| contender.is_ours());
        for contender in &scenario.contenders {
            let Some(figures) = self.contenders.get(contender.name) else {
                continue;
            };
            let _ = write!(
                text,
                "  {:<18}{:>12.0}{:>12.2}{:>12.2}{:>12.2}{:>12.2}{:>10}",
                contender.name,
                figures.cycles_per_second.median,
                figures.micros_per_cycle.median,
                figures.latency_micros.p50,
                figures.latency_micros.p99,
                figures.cpu_micros_per_cycle.median,
                figures
                    .requests_per_cycle
                    .map_or_else(String::new, |r| format!("{:.2}", r.median)),
            );
            let ratio = first.and_then(|ours| {
                self.ratios
                    .get(&format!("{}/{}", ours.name, contender.name))
            });
            if let Some(ratio) = ratio {
                let ratio = ratio.of(scenario.measure);
                let (low, high) = (ratio.lower_quartile, ratio.upper_quartile);
                let _ = write!(
                    text,
                    "   {}  [{} {}]",
                    shown(ratio.median),
                    shown(low),
                    shown(high)
                );
            }
            text.push('\n');
        }
        for (name, bytes) in &self.bytes_per_task {
            let _ = writeln!(
                text,
                "  {name}: {bytes:.0} bytes per task, its own included"
            );
        }
        for (name, lost) in &self.lost_updates {
            let _ = writeln!(text, "  {name} LOST {lost} UPDATES: it does not exclude");
        }
        for (name, why) in &self.absent {
            let _ = writeln!(text, "  {name} did not take part: {why}");
        }
        if self.marked_rounds > 0 {
            let _ = writeln!(
                text,
                "  in {} of {} rounds something else had a part of the processor",
                self.marked_rounds,
                self.rounds.len()
            );
        }
        text
    }
}

impl ContenderReport {
    fn new(rounds: &[Round], name: &str) -> Option<Self> {
        let rounds: Vec<&Measured> = rounds.iter().filter_map(|round| round.get(name)).collect();
        let spread = |figure: &dyn Fn(&Measured) -> f64| {
            Spread::of(rounds.iter().map(|round| figure(round)))
        };
        let percentile = |of: fn(&Latency) -> f64| {
            spread(&|round| of(&round.latency_micros)).map(|spread| spread.median)
        };
        Some(Self {
            cycles_per_second: spread(&Measured::cycles_per_second)?,
            micros_per_cycle: spread(&Measured::micros_per_cycle)?,
            cpu_micros_per_cycle: spread(&Measured::cpu_micros_per_cycle)?,
            requests_per_cycle: Spread::of(
                rounds.iter().filter_map(|round| round.requests_per_cycle()),
            ),
            latency_micros: Latency {
                p50: percentile(|latency| latency.p50)?,
                p90: percentile(|latency| latency.p90)?,
                p99: percentile(|latency| latency.p99)?,
                p999: percentile(|latency| latency.p999)?,
                max: percentile(|latency| latency.max)?,
            },
        })
    }
}

impl RatioReport {
    /// Returns the ratio that a scenario is about.
    pub(crate) fn of(&self, measure: Measure) -> Spread {
        match measure {
            Measure::Time => self.time_per_cycle,
            Measure::Rate => self.cycles_per_second,
        }
    }

    fn new(rounds: &[Round], ours: &str, other: &str) -> Option<Self> {
        let ratio = |quantity: Quantity| {
            Spread::of(rounds.iter().filter_map(|round| {
                Some(quantity.of(round.get(ours)?)? / quantity.of(round.get(other)?)?)
            }))
        };
        Some(Self {
            time_per_cycle: ratio(Quantity::Time)?,
            cycles_per_second: ratio(Quantity::Rate)?,
            cpu_per_cycle: ratio(Quantity::Cpu)?,
        })
    }
}

/// A whole run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Report {
    /// The servers' versions, the processors, what else helps to compare two runs.
    pub(crate) machine: BTreeMap<String, String>,
    pub(crate) scenarios: BTreeMap<String, ScenarioReport>,
    pub(crate) gates: Vec<Verdict>,
}

impl Report {
    /// Returns who did not exclude, and where.
    pub(crate) fn lost_updates(&self) -> Vec<String> {
        let lost = |(scenario, report): (&String, &ScenarioReport)| {
            let scenario = scenario.clone();
            let lines = report.lost_updates.iter();
            lines
                .map(|(name, lost)| format!("{scenario}: {name} lost {lost} updates"))
                .collect::<Vec<_>>()
        };
        self.scenarios.iter().flat_map(lost).collect()
    }

    /// Returns a line for each gate.
    pub(crate) fn gates_table(&self) -> String {
        let mut text = String::from("gates\n");
        for verdict in &self.gates {
            let measured = verdict.measured.map_or_else(
                || "not measured".to_owned(),
                |spread| {
                    format!(
                        "{:.3} [{:.3} {:.3}]",
                        spread.median, spread.lower_quartile, spread.upper_quartile
                    )
                },
            );
            let word = if verdict.met { "met   " } else { "MISSED" };
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "  {word}  {}: {measured}, {}",
                verdict.gate, verdict.bound
            );
            if let Some(aim) = &verdict.aim {
                let word = if aim.reached {
                    "reached"
                } else {
                    "not reached"
                };
                let _ = writeln!(text, "            aim {}: {word}; {}", aim.bound, aim.limit);
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_update_names_scenario_and_contender() {
        let of = |lost: &[(&str, u64)]| ScenarioReport {
            lost_updates: lost
                .iter()
                .map(|(name, lost)| ((*name).to_owned(), *lost))
                .collect(),
            ..ScenarioReport::default()
        };
        let scenarios = [
            ("rush".to_owned(), of(&[])),
            ("sessions_8".to_owned(), of(&[("redis", 3)])),
        ];
        let report = Report {
            scenarios: scenarios.into(),
            ..Report::default()
        };
        assert_eq!(report.lost_updates(), ["sessions_8: redis lost 3 updates"]);
    }
}
