//! A run as tables of a page.

use std::fmt::Write as _;

use crate::Error;
use crate::contender::{self, Contender};
use crate::plot::shown;
use crate::report::{Report, ScenarioReport};
use crate::scenario::{Measure, Scenario};

/// Between these two lines of a page are the tables.
const BEGIN: &str = "<!-- lockbench: begin -->";
const END: &str = "<!-- lockbench: end -->";

/// Returns a page with the tables of a run in the place of those that it has.
pub(crate) fn fill(page: &str, report: &Report, scenarios: &[Scenario]) -> Result<String, Error> {
    let lines = format!("there is no line {BEGIN} with a line {END} after it");
    let (before, rest) = page.split_once(BEGIN).ok_or_else(|| lines.clone())?;
    let (_, after) = rest.split_once(END).ok_or(lines)?;
    Ok(format!(
        "{before}{BEGIN}\n{}{END}{after}",
        tables(report, scenarios)
    ))
}

fn tables(report: &Report, scenarios: &[Scenario]) -> String {
    let legend = [contenders(), meanings(report, scenarios)].concat();
    let measured = [
        factors(report, scenarios),
        figures(report, scenarios),
        gates(report),
    ]
    .concat();
    [machine(report), legend, measured].concat()
}

fn machine(report: &Report) -> String {
    let facts: Vec<_> = report
        .machine
        .iter()
        .map(|(name, fact)| format!("{name} {fact}"))
        .collect();
    format!("Measured with: {}.\n", facts.join(", "))
}

fn contenders() -> String {
    let rows: String = contender::ALL
        .iter()
        .map(|c| format!("| `{}` | {} |\n", c.name, c.about))
        .collect();
    format!("\n### Contenders\n| contender | is |\n|---|---|\n{rows}")
}

fn meanings(report: &Report, scenarios: &[Scenario]) -> String {
    let row = |(scenario, measured): (&Scenario, &ScenarioReport)| {
        let absent: String = measured
            .absent
            .iter()
            .map(|(name, why)| format!("; `{name}` did not take part: {why}"))
            .collect();
        format!("| `{}` | {}{absent} |\n", scenario.name, scenario.about)
    };
    let rows: String = measured(report, scenarios).map(row).collect();
    format!("\n### Scenarios\n| scenario | is |\n|---|---|\n{rows}")
}

/// How many times as fast each of ours is as the others.
fn factors(report: &Report, scenarios: &[Scenario]) -> String {
    let others: Vec<&Contender> = contender::ALL
        .iter()
        .filter(|contender| !contender.is_ours())
        .collect();
    let mut text = String::from("\n### How many times as fast\n");
    let names: Vec<_> = others
        .iter()
        .map(|other| format!("`{}`", other.name))
        .collect();
    let _ = writeln!(text, "| scenario | ours | | than {} |", names.join(" | "));
    let _ = writeln!(text, "|---|---|---:|{}", "---:|".repeat(others.len()));
    for (scenario, measured) in measured(report, scenarios) {
        for ours in scenario
            .contenders
            .iter()
            .filter(|contender| contender.is_ours())
        {
            let Some(figures) = measured.contenders.get(ours.name) else {
                continue;
            };
            let value = match scenario.measure {
                Measure::Time => format!("{} µs", shown(figures.micros_per_cycle.median)),
                Measure::Rate => format!("{}/s", shown(figures.cycles_per_second.median)),
            };
            let factor = |other: &&Contender| {
                let ratio = measured
                    .ratios
                    .get(&format!("{}/{}", ours.name, other.name))?;
                Some(shown(ratio.cycles_per_second.median))
            };
            let factors: Vec<_> = others
                .iter()
                .map(|other| factor(other).unwrap_or_default())
                .collect();
            let _ = writeln!(
                text,
                "| `{}` | `{}` | {value} | {} |",
                scenario.name,
                ours.name,
                factors.join(" | ")
            );
        }
    }
    text
}

/// All figures of all contenders.
fn figures(report: &Report, scenarios: &[Scenario]) -> String {
    let mut text = String::from("\n### All figures\n");
    text += "| scenario | contender | cycles/s | µs/cycle | quartiles | p50 µs | p99 µs | p99.9 µs \
             | client CPU µs | requests | marked rounds |\n";
    text += "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n";
    for (scenario, measured) in measured(report, scenarios) {
        for contender in &scenario.contenders {
            let Some(figures) = measured.contenders.get(contender.name) else {
                continue;
            };
            let (time, latency) = (figures.micros_per_cycle, figures.latency_micros);
            let _ = writeln!(
                text,
                "| `{}` | `{}` | {} | {} | {} to {} | {} | {} | {} | {} | {} | {} of {} |",
                scenario.name,
                contender.name,
                shown(figures.cycles_per_second.median),
                shown(time.median),
                shown(time.lower_quartile),
                shown(time.upper_quartile),
                shown(latency.p50),
                shown(latency.p99),
                shown(latency.p999),
                shown(figures.cpu_micros_per_cycle.median),
                figures
                    .requests_per_cycle
                    .map_or_else(String::new, |requests| shown(requests.median)),
                measured.marked_rounds,
                measured.rounds.len(),
            );
        }
    }
    text
}

fn gates(report: &Report) -> String {
    let mut text = String::from(
        "\n### Gates\n| gate | must be | is | quartiles | | aim |\n|---|---|---:|---:|---|---|\n",
    );
    for verdict in &report.gates {
        let word = if verdict.met { "met" } else { "**missed**" };
        let aim = verdict.aim.as_ref().map_or_else(String::new, |aim| {
            let word = if aim.reached {
                "reached"
            } else {
                "not reached"
            };
            format!("{}, {word}: {}", aim.bound, aim.limit)
        });
        let _ = match verdict.measured {
            Some(is) => writeln!(
                text,
                "| {} | {} | {:.3} | {:.3} to {:.3} | {word} | {aim} |",
                verdict.gate, verdict.bound, is.median, is.lower_quartile, is.upper_quartile
            ),
            None => {
                writeln!(
                    text,
                    "| {} | {} | not measured | | {word} | {aim} |",
                    verdict.gate, verdict.bound
                )
            }
        };
    }
    text
}

/// The scenarios of a run, in the order of the table.
fn measured<'a>(
    report: &'a Report,
    scenarios: &'a [Scenario],
) -> impl Iterator<Item = (&'a Scenario, &'a ScenarioReport)> {
    scenarios
        .iter()
        .filter_map(|scenario| Some((scenario, report.scenarios.get(&scenario.name)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_between_the_lines_is_replaced_and_nothing_else() {
        let page = format!("# Title\n{BEGIN}\nold\n{END}\nthe end\n");
        let filled = fill(&page, &Report::default(), &[]).unwrap();
        assert!(
            filled.starts_with("# Title\n") && filled.ends_with("\nthe end\n"),
            "{filled}"
        );
        assert!(
            filled.contains("### Gates") && !filled.contains("old"),
            "{filled}"
        );
        assert_eq!(fill(&filled, &Report::default(), &[]).unwrap(), filled);
    }

    #[test]
    fn a_page_without_the_lines_is_refused() {
        assert!(fill("# Title\n", &Report::default(), &[]).is_err());
    }
}
