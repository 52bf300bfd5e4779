//! The bounds that the figures must keep, and the targets that they should reach.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::report::{Measured, ScenarioReport};
use crate::statistics::Spread;

/// A figure of one contender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quantity {
    /// Time per cycle, in microseconds.
    Time,
    /// Cycles per second.
    Rate,
    /// Processor time of the client per cycle, in microseconds.
    Cpu,
    /// Time of a round, in seconds.
    Seconds,
    /// The most lock nodes that were seen during a round.
    LockNodes,
    /// The memory of a waiting task, with all that belongs to it, in bytes.
    Memory,
    /// By how much the memory of a process is larger after the last round than after the second, in
    /// MiB. What an allocator gave back before the first round, it takes again in that.
    Growth,
}

impl Quantity {
    /// Returns what a round shows of it; `None` if it was not measured, or takes more than a round.
    pub(crate) fn of(self, measured: &Measured) -> Option<f64> {
        match self {
            Self::Time => Some(measured.micros_per_cycle()),
            Self::Rate => Some(measured.cycles_per_second()),
            Self::Cpu => Some(measured.cpu_micros_per_cycle()),
            Self::Seconds => Some(measured.elapsed_micros / 1e6),
            Self::LockNodes => measured.lock_nodes.map(|nodes| nodes as f64),
            Self::Memory | Self::Growth => None,
        }
    }

    /// Returns the better of two figures.
    fn better(self, one: f64, other: f64) -> f64 {
        if self == Self::Rate {
            one.max(other)
        } else {
            one.min(other)
        }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Time => "time per cycle",
            Self::Rate => "cycles per second",
            Self::Cpu => "client CPU per cycle",
            Self::Seconds => "seconds",
            Self::LockNodes => "lock nodes",
            Self::Memory => "bytes per waiter",
            Self::Growth => "growth of memory in MiB",
        })
    }
}

/// Where the median of a figure must be.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

impl Bound {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::AtMost(bound) => value <= bound,
            Self::AtLeast(bound) => value >= bound,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(bound) => write!(f, "at most {bound}"),
            Self::AtLeast(bound) => write!(f, "at least {bound}"),
        }
    }
}

/// The divisor of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Against {
    /// Nothing.
    One,
    /// The best of these contenders in the same round.
    Best(&'static [&'static str]),
    /// The same contender in another scenario.
    Scenario(&'static str),
}

/// Where a figure is to get, and what keeps it from there.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Aim {
    bound: Bound,
    /// Measured, or counted: a limit of the servers, of the client library, or of what is promised.
    limit: &'static str,
}

/// A bound for a contender's figure in a scenario: beyond it something has become worse.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Gate {
    scenario: &'static str,
    ours: &'static str,
    quantity: Quantity,
    bound: Bound,
    against: Against,
    /// `None`: the bound is what was aimed at.
    aim: Option<Aim>,
}

impl Gate {
    /// Returns the same, which falls short of `bound` because of `limit`.
    const fn short_of(self, bound: Bound, limit: &'static str) -> Self {
        Self {
            aim: Some(Aim { bound, limit }),
            ..self
        }
    }
}

const fn relative(
    scenario: &'static str,
    ours: &'static str,
    quantity: Quantity,
    bound: Bound,
    against: &'static [&'static str],
) -> Gate {
    Gate {
        scenario,
        ours,
        quantity,
        bound,
        against: Against::Best(against),
        aim: None,
    }
}

const fn absolute(
    scenario: &'static str,
    ours: &'static str,
    quantity: Quantity,
    at_most: f64,
) -> Gate {
    Gate {
        scenario,
        ours,
        quantity,
        bound: Bound::AtMost(at_most),
        against: Against::One,
        aim: None,
    }
}

/// Checks that the cost of a grant grows no faster than the list that the servers must send.
const fn growth(more: &'static str, ours: &'static str, fewer: &'static str, times: f64) -> Gate {
    let against = Against::Scenario(fewer);
    Gate {
        scenario: more,
        ours,
        quantity: Quantity::Time,
        bound: Bound::AtMost(times),
        against,
        aim: None,
    }
}

/// The reason why a free lock takes longer than `bare`, which shares its caller's runtime.
const THREAD: &str = "the session has a thread of its own, so that a busy executor costs no lock; `bare_apart` has \
                      one, too";
/// The reason why contending sessions do not reach more.
const QUEUE: &str = "five requests a grant, as Curator and `Client::lock` have, and the servers have most of the \
                     time";
/// The reason of a figure that some runs reach, and others not.
const NOISE: &str = "reached in some runs, and in others not: the gate has room for those";

/// All gates. Where one falls short of an aim, it is where the figure is, with room for a busy
/// machine: beyond it, something has become worse.
const ALL: &[Gate] = {
    use Bound::{AtLeast, AtMost};
    use Quantity::{Cpu, Growth, LockNodes, Memory, Rate, Seconds, Time};
    &[
        relative("free_awaited", "ours", Time, AtMost(1.45), &["bare"]).short_of(AtMost(1.15), THREAD),
        relative("free_awaited", "ours", Time, AtMost(1.35), &["bare_apart"]),
        relative("free_awaited", "ours", Time, AtMost(0.9), &["curator"])
            .short_of(AtMost(0.75), NOISE),
        relative("free_awaited", "ours", Time, AtMost(1.1), &["client_lock"])
            .short_of(AtMost(0.95), "`Client::lock` does not wait for its deletion"),
        relative("free_awaited", "ours", Cpu, AtMost(1.9), &["bare"]).short_of(AtMost(1.3), THREAD),
        relative("free_awaited", "ours", Cpu, AtMost(1.5), &["bare_apart"]),
        relative("free_awaited_distant", "ours", Time, AtMost(1.12), &["bare"])
            .short_of(AtMost(1.03), NOISE),
        relative("free_dropped", "ours", Time, AtMost(1.25), &["bare"]).short_of(
            AtMost(0.9),
            "the create is sent behind the deletion, and without TCP_NODELAY leaves when that is answered \
             (docs/upstream/nodelay.patch)",
        ),
        relative("free_cold", "ours", Time, AtMost(2.1), &["bare"]).short_of(
            AtMost(1.5),
            "without TCP_NODELAY the list is a flight of its own: three, where `bare` has two",
        ),
        relative("sessions_8", "ours", Rate, AtLeast(0.85), &["curator"]).short_of(AtLeast(1.25), QUEUE),
        relative("sessions_8", "ours", Rate, AtLeast(0.8), &["client_lock"]).short_of(AtLeast(1.05), QUEUE),
        relative("sessions_32", "ours", Rate, AtLeast(0.85), &["curator"]).short_of(AtLeast(1.25), QUEUE),
        relative("sessions_32", "ours", Rate, AtLeast(0.75), &["client_lock"]).short_of(AtLeast(1.05), QUEUE),
        relative("inproc_256", "ours", Rate, AtLeast(50.0), &["curator", "curator_shared"]),
        relative("inproc_256", "ours_fair", Rate, AtLeast(1.8), &["curator", "curator_shared"]).short_of(
            AtLeast(8.0),
            "a write between two grants, which alone takes longer than an eighth of Curator's cycle: \
             `bare_turns` does nothing else",
        ),
        relative("inproc_256", "ours_fair", Rate, AtLeast(0.6), &["bare_turns"]),
        absolute("rush", "ours", Seconds, 1.0),
        absolute("rush", "ours", LockNodes, 1.0),
        absolute("rush", "ours", Memory, 2048.0),
        absolute("growth", "ours", Growth, 1.0),
        relative("locks_64", "ours", Rate, AtLeast(0.65), &["bare"]).short_of(AtLeast(0.75), NOISE),
        relative("locks_64", "ours", Rate, AtLeast(1.05), &["client_lock"]).short_of(AtLeast(1.4), NOISE),
        growth("waiters_100", "ours", "waiters_10", 10.0),
        growth("waiters_100", "ours_fair", "waiters_10", 10.0),
        growth("waiters_1000", "ours", "waiters_100", 10.0),
        growth("waiters_1000", "ours_fair", "waiters_100", 10.0),
        growth("waiters_5000", "ours", "waiters_1000", 5.0),
        growth("waiters_5000", "ours_fair", "waiters_1000", 5.0),
    ]
};

/// The verdict on a gate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Verdict {
    pub(crate) gate: String,
    pub(crate) bound: Bound,
    /// `None`: it was not measured.
    pub(crate) measured: Option<Spread>,
    pub(crate) met: bool,
    /// Where the figure is to get, if that is further.
    #[serde(default)]
    pub(crate) aim: Option<Short>,
}

/// An aim, and whether a figure is there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Short {
    pub(crate) bound: Bound,
    pub(crate) reached: bool,
    pub(crate) limit: String,
}

/// The measurements, by scenario.
pub(crate) type Reports = BTreeMap<String, ScenarioReport>;

/// Judges the gates of all scenarios that were measured.
pub(crate) fn judge(reports: &Reports) -> Vec<Verdict> {
    let measured = |gate: &&Gate| reports.contains_key(gate.scenario);
    ALL.iter()
        .filter(measured)
        .map(|gate| gate.judge(reports))
        .collect()
}

impl Gate {
    /// Judges what was measured.
    fn judge(&self, reports: &Reports) -> Verdict {
        let measured = self.measured(reports);
        let holds = |bound: Bound| measured.is_some_and(|spread| bound.holds(spread.median));
        Verdict {
            gate: self.to_string(),
            bound: self.bound,
            measured,
            met: holds(self.bound),
            aim: self.aim.map(|Aim { bound, limit }| Short {
                bound,
                reached: holds(bound),
                limit: limit.to_owned(),
            }),
        }
    }

    /// Returns the spread of the figure over all rounds; `None` if it is missing in one of them.
    fn measured(&self, reports: &Reports) -> Option<Spread> {
        let report = reports.get(self.scenario)?;
        let ours = self.figures(report, self.ours)?;
        let figures = match self.against {
            Against::One => ours,
            Against::Best(others) => {
                let others: Option<Vec<_>> = others
                    .iter()
                    .map(|name| self.figures(report, name))
                    .collect();
                let best = others?.into_iter().reduce(|one, other| {
                    one.into_iter()
                        .zip(other)
                        .map(|(one, other)| self.quantity.better(one, other))
                        .collect()
                });
                ours.into_iter()
                    .zip(best?)
                    .map(|(ours, best)| ours / best)
                    .collect()
            }
            Against::Scenario(other) => {
                let other = Spread::of(self.figures(reports.get(other)?, self.ours)?)?;
                ours.into_iter().map(|ours| ours / other.median).collect()
            }
        };
        Spread::of(figures)
    }

    /// Returns a contender's figure in each round, or the one for all of them.
    fn figures(&self, report: &ScenarioReport, name: &str) -> Option<Vec<f64>> {
        let rounds = || report.rounds.iter().map(|round| round.get(name));
        match self.quantity {
            Quantity::Memory => Some(vec![*report.bytes_per_task.get(name)?]),
            Quantity::Growth => {
                let resident: Option<Vec<u64>> =
                    rounds().map(|round| round?.resident_bytes).collect();
                let resident = resident?;
                let (early, last) = (*resident.get(1)?, *resident.last()?);
                Some(vec![(last as f64 - early as f64) / f64::from(1 << 20)])
            }
            quantity => rounds().map(|round| quantity.of(round?)).collect(),
        }
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} of {}", self.scenario, self.quantity, self.ours)?;
        match self.against {
            Against::One => Ok(()),
            Against::Best([other]) => write!(f, " / {other}"),
            Against::Best(others) => write!(f, " / the better of {}", others.join(", ")),
            Against::Scenario(other) => write!(f, " / the same in {other}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Round;
    use crate::scenario;

    /// Returns a scenario with a round for each pair of times per cycle.
    fn reports(times: &[(f64, f64)]) -> Reports {
        let round = |&(ours, bare): &(f64, f64)| -> Round {
            [("ours", ours), ("bare", bare)]
                .map(|(name, time)| (name.to_owned(), Measured::of_cycles(10, time * 10.0)))
                .into()
        };
        let report = ScenarioReport {
            rounds: times.iter().map(round).collect(),
            ..ScenarioReport::default()
        };
        [("free_awaited".to_owned(), report)].into()
    }

    const TIME: Gate = relative(
        "free_awaited",
        "ours",
        Quantity::Time,
        Bound::AtMost(1.15),
        &["bare"],
    );

    #[test]
    fn median_of_round_ratios_counts() {
        let verdict = TIME.judge(&reports(&[(1.1, 1.0), (2.2, 2.0), (9.0, 1.0)]));
        assert!(verdict.met);
        assert!((verdict.measured.unwrap().median - 1.1).abs() < 1e-9);
        assert!(
            !TIME
                .judge(&reports(&[(1.2, 1.0), (2.4, 2.0), (0.1, 1.0)]))
                .met
        );
    }

    #[test]
    fn met_gate_may_miss_its_aim() {
        let gate = TIME.short_of(Bound::AtMost(1.05), "a limit");
        let verdict = |ours| gate.judge(&reports(&[(ours, 1.0)]));
        assert!(verdict(1.1).met && !verdict(1.1).aim.unwrap().reached);
        assert!(verdict(1.0).met && verdict(1.0).aim.unwrap().reached);
        assert!(!verdict(1.2).met);
    }

    #[test]
    fn aim_is_stricter_than_its_gate() {
        for gate in ALL {
            let further = match (gate.bound, gate.aim.map(|aim| aim.bound)) {
                (_, None) => true,
                (Bound::AtMost(gate), Some(Bound::AtMost(aim))) => aim < gate,
                (Bound::AtLeast(gate), Some(Bound::AtLeast(aim))) => aim > gate,
                _ => false,
            };
            assert!(further, "{gate}");
        }
    }

    #[test]
    fn rate_gate_sets_a_minimum() {
        let rate = Gate {
            quantity: Quantity::Rate,
            bound: Bound::AtLeast(2.0),
            ..TIME
        };
        assert!(rate.judge(&reports(&[(1.0, 2.0)])).met);
        assert!(!rate.judge(&reports(&[(1.0, 1.9)])).met);
    }

    #[test]
    fn best_rival_of_each_round_counts() {
        let both = Gate {
            against: Against::Best(&["bare", "ours"]),
            bound: Bound::AtMost(1.0),
            ..TIME
        };
        assert!(both.judge(&reports(&[(1.0, 3.0)])).met);
        assert!(!both.judge(&reports(&[(3.0, 1.0)])).met);
    }

    #[test]
    fn other_scenario_counts_by_its_median() {
        let mut all = reports(&[(30.0, 1.0)]);
        all.insert(
            "few".to_owned(),
            reports(&[(3.0, 1.0), (4.0, 1.0), (90.0, 1.0)])["free_awaited"].clone(),
        );
        let gate = |times| growth("free_awaited", "ours", "few", times);
        assert!(gate(7.5).judge(&all).met);
        assert!(!gate(7.4).judge(&all).met);
    }

    #[test]
    fn memory_gate_limits_growth() {
        let gate = absolute("free_awaited", "ours", Quantity::Growth, 1.0);
        let grown = |mebibytes: [u64; 3]| {
            let mut all = reports(&[(1.0, 1.0); 3]);
            for (round, size) in all
                .get_mut("free_awaited")
                .unwrap()
                .rounds
                .iter_mut()
                .zip(mebibytes)
            {
                round.get_mut("ours").unwrap().resident_bytes = Some(size << 20);
            }
            gate.judge(&all).met
        };
        assert!(grown([5, 15, 11]));
        assert!(!grown([5, 10, 12]));
        assert!(!gate.judge(&reports(&[(1.0, 1.0)])).met, "not measured");
    }

    #[test]
    fn unmeasured_gate_is_not_met() {
        assert!(!TIME.judge(&Reports::new()).met);
        let other = Gate {
            against: Against::Best(&["curator"]),
            ..TIME
        };
        assert!(!other.judge(&reports(&[(1.0, 1.0)])).met);
    }

    #[test]
    fn gates_name_existing_scenarios_and_contenders() {
        let scenarios = scenario::all();
        let find = |name: &str| scenarios.iter().find(|scenario| scenario.name == name);
        for gate in ALL {
            let scenario = find(gate.scenario).unwrap_or_else(|| panic!("{gate}"));
            let others = match gate.against {
                Against::Best(others) => others,
                Against::Scenario(other) => {
                    assert!(find(other).is_some(), "{gate}");
                    &[]
                }
                Against::One => &[],
            };
            for name in others.iter().chain([&gate.ours]) {
                assert!(
                    scenario
                        .contenders
                        .iter()
                        .any(|contender| contender.name == *name),
                    "{gate}"
                );
            }
        }
    }
}
