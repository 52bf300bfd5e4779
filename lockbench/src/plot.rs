//! Pictures of a run, as SVG, for a page: few lines, and every one has its name beside it.

pub(crate) use plotter::shown;
use plotter::{Bar, Line, Scale};

use crate::contender::{self, Contender};
use crate::report::{ContenderReport, Report};

/// The contents of a picture.
struct Picture {
    file: &'static str,
    title: &'static str,
    subtitle: &'static str,
    shape: Shape,
}

enum Shape {
    /// Time per cycle of each contender in one scenario.
    Bars(&'static str),
    /// A figure of each contender over the number at the end of the scenarios' names.
    Lines {
        scenarios: &'static str,
        axis: &'static str,
        figure: fn(&ContenderReport) -> f64,
    },
}

const PICTURES: [Picture; 6] = [
    Picture {
        file: "free.svg",
        title: "A free lock, acquired and released",
        subtitle: "time per cycle in µs, servers on loopback; less is better; bare is two writes and no lock",
        shape: Shape::Bars("free_awaited"),
    },
    Picture {
        file: "free-distant.svg",
        title: "The same, with the servers a millisecond away",
        subtitle: "time per cycle in µs; less is better; what counts is how often a client waits for the servers",
        shape: Shape::Bars("free_awaited_distant"),
    },
    Picture {
        file: "sessions.svg",
        title: "One lock, many sessions",
        subtitle: "grants per second; more is better; both scales are logarithmic",
        shape: Shape::Lines {
            scenarios: "sessions_",
            axis: "sessions",
            figure: |figures| figures.cycles_per_second.median,
        },
    },
    Picture {
        file: "in-process.svg",
        title: "One lock, many tasks of one process",
        subtitle: "grants per second; more is better; both scales are logarithmic",
        shape: Shape::Lines {
            scenarios: "inproc_",
            axis: "tasks",
            figure: |figures| figures.cycles_per_second.median,
        },
    },
    Picture {
        file: "locks.svg",
        title: "Many free locks, one client",
        subtitle: "cycles per second; more is better; both scales are logarithmic",
        shape: Shape::Lines {
            scenarios: "locks_",
            axis: "locks",
            figure: |figures| figures.cycles_per_second.median,
        },
    },
    Picture {
        file: "waiters.svg",
        title: "What a grant costs when many wait",
        subtitle: "time per grant in µs; less is better; both scales are logarithmic",
        shape: Shape::Lines {
            scenarios: "waiters_",
            axis: "waiters of ten sessions",
            figure: |figures| figures.micros_per_cycle.median,
        },
    },
];

/// Draws what a run measured: files and what is in them.
pub(crate) fn draw(report: &Report) -> Vec<(&'static str, String)> {
    let draw = |picture: &Picture| {
        let (title, subtitle) = (picture.title, picture.subtitle);
        let svg = match picture.shape {
            Shape::Bars(scenario) => {
                let contenders = &report.scenarios.get(scenario)?.contenders;
                let bars = contenders.iter().map(|(name, figures)| Bar {
                    name,
                    color: color(name),
                    value: figures.micros_per_cycle.median,
                });
                plotter::bars(title, subtitle, bars.collect())
            }
            Shape::Lines {
                scenarios,
                axis,
                figure,
            } => {
                let lines = lines_of(report, scenarios, figure);
                if lines.is_empty() {
                    return None;
                }
                plotter::lines(title, subtitle, axis, Scale::Logarithmic, &lines)
            }
        };
        Some((picture.file, svg))
    };
    PICTURES.iter().filter_map(draw).collect()
}

/// Returns a line for each contender, over the numbers at the end of the scenarios' names.
fn lines_of(
    report: &Report,
    scenarios: &str,
    figure: fn(&ContenderReport) -> f64,
) -> Vec<Line<'static>> {
    let mut numbered: Vec<(u32, _)> = report
        .scenarios
        .iter()
        .filter_map(|(name, scenario)| {
            Some((name.strip_prefix(scenarios)?.parse().ok()?, scenario))
        })
        .collect();
    numbered.sort_by_key(|(number, _)| *number);
    let line = |contender: &Contender| {
        let point = |(number, scenario): &(u32, &crate::report::ScenarioReport)| {
            Some((
                f64::from(*number),
                figure(scenario.contenders.get(contender.name)?),
            ))
        };
        let points: Vec<_> = numbered.iter().filter_map(point).collect();
        (!points.is_empty()).then(|| Line {
            name: contender.name,
            color: color(contender.name),
            points,
        })
    };
    contender::ALL.iter().filter_map(line).collect()
}

fn color(name: &str) -> &'static str {
    match name {
        "ours" | "ours_read_write" => "#1b7f5c",
        "ours_fair" => "#2aa6a1",
        "bare" => "#8a8f98",
        "bare_apart" | "bare_turns" => "#a3a8b0",
        "client_lock" => "#b07d12",
        "curator" | "curator_read_write" => "#d1495b",
        "curator_shared" => "#e08a96",
        "kazoo" => "#3b6fb6",
        _ => "#7d4fb0",
    }
}
