//! What the ratios must be.

use std::fmt;

use serde::Serialize;

use crate::report::{Measured, Round};
use crate::statistics::Spread;

/// A figure of one contender in one round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Quantity {
    /// Time per cycle.
    Time,
    /// Cycles per second.
    Rate,
    /// Processor time of the client per cycle.
    Cpu,
}

impl Quantity {
    pub(crate) fn of(self, measured: &Measured) -> f64 {
        match self {
            Self::Time => measured.micros_per_cycle(),
            Self::Rate => measured.cycles_per_second(),
            Self::Cpu => measured.cpu_micros_per_cycle(),
        }
    }

    /// Returns the better of two figures.
    fn better(self, one: f64, other: f64) -> f64 {
        match self {
            Self::Time | Self::Cpu => one.min(other),
            Self::Rate => one.max(other),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Time => "time per cycle",
            Self::Rate => "cycles per second",
            Self::Cpu => "client CPU per cycle",
        }
    }
}

/// Where the median of a figure must be.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
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

/// A bound for a contender's figure in a scenario: as it is, or relative to the best of some others in the
/// same round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Gate {
    pub(crate) scenario: &'static str,
    pub(crate) ours: &'static str,
    quantity: Quantity,
    pub(crate) bound: Bound,
    /// None: the figure itself is bounded.
    against: &'static [&'static str],
}

const fn gate(
    scenario: &'static str,
    ours: &'static str,
    quantity: Quantity,
    bound: Bound,
    against: &'static [&'static str],
) -> Gate {
    Gate { scenario, ours, quantity, bound, against }
}

/// All gates.
pub(crate) const ALL: &[Gate] = {
    use Bound::{AtLeast, AtMost};
    use Quantity::{Cpu, Rate, Time};
    &[
        gate("free_awaited", "ours", Time, AtMost(1.15), &["bare"]),
        gate("free_awaited", "ours", Time, AtMost(0.95), &["client_lock"]),
        gate("free_awaited", "ours", Cpu, AtMost(1.3), &["bare"]),
        gate("free_dropped", "ours", Time, AtMost(0.9), &["bare"]),
        gate("free_cold", "ours", Time, AtMost(1.5), &["bare"]),
        gate("sessions_8", "ours", Rate, AtLeast(1.05), &["client_lock"]),
        gate("sessions_32", "ours", Rate, AtLeast(1.05), &["client_lock"]),
        gate("locks_64", "ours", Rate, AtLeast(0.75), &["bare"]),
        gate("locks_64", "ours", Rate, AtLeast(1.4), &["client_lock"]),
    ]
};

/// What came of a gate.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Verdict {
    pub(crate) gate: String,
    pub(crate) bound: Bound,
    /// `None`: it was not measured.
    pub(crate) measured: Option<Spread>,
    pub(crate) met: bool,
}

impl Gate {
    /// Judges a scenario's rounds.
    pub(crate) fn judge(&self, rounds: &[Round]) -> Verdict {
        let measured = self.measured(rounds);
        Verdict {
            gate: self.to_string(),
            bound: self.bound,
            measured,
            met: measured.is_some_and(|spread| self.bound.holds(spread.median)),
        }
    }

    /// Returns the spread of the figure over all rounds; `None` if a contender is not in one of them.
    fn measured(&self, rounds: &[Round]) -> Option<Spread> {
        let figures: Option<Vec<f64>> = rounds
            .iter()
            .map(|round| {
                let ours = self.quantity.of(round.get(self.ours)?);
                let others: Option<Vec<f64>> =
                    self.against.iter().map(|other| Some(self.quantity.of(round.get(*other)?))).collect();
                let best = others?.into_iter().reduce(|one, other| self.quantity.better(one, other));
                Some(best.map_or(ours, |best| ours / best))
            })
            .collect();
        Spread::of(figures?)
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} of {}", self.scenario, self.quantity.name(), self.ours)?;
        match self.against {
            [] => Ok(()),
            [other] => write!(f, " / {other}"),
            others => write!(f, " / the better of {}", others.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario;

    /// A round for each pair of times per cycle.
    fn rounds(times: &[(f64, f64)]) -> Vec<Round> {
        let round = |&(ours, bare): &(f64, f64)| {
            [("ours", ours), ("bare", bare)]
                .map(|(name, time)| (name.to_owned(), Measured::of_cycles(10, time * 10.0)))
                .into()
        };
        times.iter().map(round).collect()
    }

    const TIME: Gate = gate("free_awaited", "ours", Quantity::Time, Bound::AtMost(1.15), &["bare"]);

    #[test]
    fn the_median_of_the_rounds_ratios_counts() {
        let verdict = TIME.judge(&rounds(&[(1.1, 1.0), (2.2, 2.0), (9.0, 1.0)]));
        assert!(verdict.met);
        assert!((verdict.measured.unwrap().median - 1.1).abs() < 1e-9);
        assert!(!TIME.judge(&rounds(&[(1.2, 1.0), (2.4, 2.0), (0.1, 1.0)])).met);
    }

    #[test]
    fn a_rate_must_be_high() {
        let rate = Gate { quantity: Quantity::Rate, bound: Bound::AtLeast(2.0), ..TIME };
        assert!(rate.judge(&rounds(&[(1.0, 2.0)])).met);
        assert!(!rate.judge(&rounds(&[(1.0, 1.9)])).met);
    }

    #[test]
    fn against_several_the_better_one_counts() {
        let both = Gate { against: &["bare", "ours"], bound: Bound::AtMost(1.0), ..TIME };
        assert!(both.judge(&rounds(&[(1.0, 3.0)])).met);
        assert!(!both.judge(&rounds(&[(3.0, 1.0)])).met);
    }

    #[test]
    fn what_was_not_measured_is_not_met() {
        assert!(!TIME.judge(&[]).met);
        let other = Gate { against: &["curator"], ..TIME };
        assert!(!other.judge(&rounds(&[(1.0, 1.0)])).met);
    }

    #[test]
    fn every_gate_is_about_a_scenario_and_contenders_that_there_are() {
        let scenarios = scenario::all();
        for gate in ALL {
            let scenario = scenarios.iter().find(|scenario| scenario.name == gate.scenario);
            let scenario = scenario.unwrap_or_else(|| panic!("{gate}"));
            for name in gate.against.iter().chain([&gate.ours]) {
                assert!(scenario.contenders.iter().any(|contender| contender.name == *name), "{gate}");
            }
        }
    }
}
