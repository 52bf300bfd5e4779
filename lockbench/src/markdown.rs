//! A run as files: a page with what was measured and the gates, and all figures and ratios as
//! comma-separated values.

use std::fmt::Write as _;

use crate::Error;
use crate::contender;
use crate::plot::shown;
use crate::report::{Report, ScenarioReport};
use crate::scenario::Scenario;

/// The facts without which a table of measurements is not written: they begin its page and name its
/// files.
pub(crate) const DATE: &str = "date";
pub(crate) const COMMIT: &str = "commit";

/// The files of a run, with the endings `.md`, `.csv` and `-ratios.csv` after the name.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) name: String,
    pub(crate) page: String,
    pub(crate) figures: String,
    pub(crate) ratios: String,
}

/// Returns the files of a run, which must say when and at which commit it was made.
pub(crate) fn files(report: &Report, scenarios: &[Scenario]) -> Result<Files, Error> {
    let fact = |name: &str| {
        report
            .machine
            .get(name)
            .ok_or_else(|| format!("the run has no {name}: measure it again"))
    };
    let (date, commit) = (fact(DATE)?, fact(COMMIT)?);
    let name = format!("{date}-{commit}");
    let facts: Vec<_> = report
        .machine
        .iter()
        .filter(|(name, _)| ![DATE, COMMIT].contains(&name.as_str()))
        .map(|(name, fact)| format!("{name} {fact}"))
        .collect();
    let head = format!(
        "# Measurements of {date} at commit {commit}\n\nMeasured on {date} at commit {commit}, with: {}.\n\
         [PERFORMANCE.md](../../PERFORMANCE.md) has the method and the conclusions. [All \
         figures]({name}.csv) and the\n[ratios]({name}-ratios.csv) of this crate's contenders \
         to the others are comma-separated values.\n",
        facts.join(", ")
    );
    let page = [
        head,
        contenders(),
        meanings(report, scenarios),
        gates(report),
    ]
    .concat();
    Ok(Files {
        name,
        page,
        figures: figures(report, scenarios),
        ratios: ratios(report, scenarios),
    })
}

fn contenders() -> String {
    let rows: String = contender::ALL
        .iter()
        .map(|c| format!("| `{}` | {} |\n", c.name, c.about))
        .collect();
    format!("\n## Contenders\n| contender | is |\n|---|---|\n{rows}")
}

fn meanings(report: &Report, scenarios: &[Scenario]) -> String {
    let mut groups: Vec<(String, String)> = Vec::new();
    for (scenario, measured) in measured(report, scenarios) {
        let absent: String = measured
            .absent
            .iter()
            .map(|(name, why)| format!("; `{name}` did not take part: {why}"))
            .collect();
        let (name, about) = (&scenario.name, format!("{}{absent}", scenario.about));
        // Scenarios that differ by their number share a row.
        match groups.last_mut() {
            Some((names, of_last)) if *of_last == about => {
                let _ = write!(names, ", `{name}`");
            }
            _ => groups.push((format!("`{name}`"), about)),
        }
    }
    let rows: String = groups
        .iter()
        .map(|(names, about)| format!("| {names} | {about} |\n"))
        .collect();
    format!("\n## Scenarios\nn is the number in the name.\n\n| scenario | is |\n|---|---|\n{rows}")
}

/// Returns how many times as fast each of ours is as the others, as comma-separated values.
fn ratios(report: &Report, scenarios: &[Scenario]) -> String {
    let mut text =
        String::from("scenario,contender,other,cycles per second of contender / other\n");
    for (scenario, measured) in measured(report, scenarios) {
        let ours = scenario.contenders.iter().filter(|ours| ours.is_ours());
        for (ours, other) in ours.flat_map(|ours| {
            let others = contender::ALL.iter().filter(|other| !other.is_ours());
            others.map(move |other| (ours.name, other.name))
        }) {
            if let Some(ratio) = measured.ratios.get(&format!("{ours}/{other}")) {
                let ratio = shown(ratio.cycles_per_second.median).replace(',', "");
                let _ = writeln!(text, "{},{ours},{other},{ratio}", scenario.name);
            }
        }
    }
    text
}

/// Returns all figures of all contenders, as comma-separated values.
fn figures(report: &Report, scenarios: &[Scenario]) -> String {
    let mut text = String::from(
        "scenario,contender,cycles per second,µs per cycle,lower quartile,upper quartile,p50 µs,\
         p99 µs,p99.9 µs,client CPU µs per cycle,requests per cycle,marked rounds,rounds\n",
    );
    for (scenario, measured) in measured(report, scenarios) {
        for contender in &scenario.contenders {
            let Some(figures) = measured.contenders.get(contender.name) else {
                continue;
            };
            let (time, latency) = (figures.micros_per_cycle, figures.latency_micros);
            let numbers = [
                Some(figures.cycles_per_second.median),
                Some(time.median),
                Some(time.lower_quartile),
                Some(time.upper_quartile),
                Some(latency.p50),
                Some(latency.p99),
                Some(latency.p999),
                Some(figures.cpu_micros_per_cycle.median),
                figures.requests_per_cycle.map(|requests| requests.median),
            ];
            let numbers = numbers.map(|number| {
                let number = number.map_or_else(String::new, shown);
                number.replace(',', "")
            });
            let _ = writeln!(
                text,
                "{},{},{},{},{}",
                scenario.name,
                contender.name,
                numbers.join(","),
                measured.marked_rounds,
                measured.rounds.len(),
            );
        }
    }
    text
}

fn gates(report: &Report) -> String {
    let mut text = String::from(
        "\n## Gates\n| gate | must be | is | quartiles | | aim |\n|---|---|---:|---:|---|---|\n",
    );
    for verdict in &report.gates {
        let word = if verdict.met { "met" } else { "**missed**" };
        let aim = verdict.aim.as_ref().map_or_else(String::new, |aim| {
            let word = if aim.reached {
                "reached"
            } else {
                "not reached"
            };
            format!("{}, {word}", aim.bound)
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

/// Returns the scenarios of a run, in the order of the table.
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

    fn run(facts: &[(&str, &str)]) -> Report {
        let facts = facts.iter();
        Report {
            machine: facts
                .map(|(name, fact)| ((*name).to_owned(), (*fact).to_owned()))
                .collect(),
            ..Report::default()
        }
    }

    #[test]
    fn files_name_date_and_commit() {
        let run = run(&[
            (DATE, "2026-11-25"),
            (COMMIT, "9671b12"),
            ("processors", "2"),
        ]);
        let files = files(&run, &[]).unwrap();
        assert_eq!(files.name, "2026-11-25-9671b12");
        let head = "Measured on 2026-11-25 at commit 9671b12, with: processors 2.";
        assert!(files.page.contains(head), "{}", files.page);
        assert!(files.page.contains("## Gates"), "{}", files.page);
        assert!(files.figures.starts_with("scenario,"), "{}", files.figures);
    }

    #[test]
    fn refuses_run_without_commit() {
        assert!(files(&run(&[(DATE, "2026-11-25")]), &[]).is_err());
        assert!(files(&run(&[(COMMIT, "9671b12")]), &[]).is_err());
    }
}
