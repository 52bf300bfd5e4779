//! Pictures of a run, as SVG, for a page: few lines, and every one has its name beside it.

use std::fmt::Write as _;

use crate::contender::{self, Contender};
use crate::report::{ContenderReport, Report};

// All lengths are in pixels.
const WIDTH: f64 = 760.0;
const LEFT: f64 = 80.0;
const TOP: f64 = 64.0;
const PLOT_WIDTH: f64 = 520.0;
const PLOT_HEIGHT: f64 = 300.0;
/// Between two bars, and between two names.
const BAR: f64 = 26.0;
const NAME: f64 = 15.0;

const STYLE: &str =
    "<style>text{font:12px sans-serif;fill:#222} .big{font-size:16px} .faint{fill:#667}</style>";

/// What a picture shows.
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

/// One contender's line.
struct Line {
    name: String,
    points: Vec<(f64, f64)>,
}

/// Draws what a run measured: files and what is in them.
pub(crate) fn draw(report: &Report) -> Vec<(&'static str, String)> {
    let draw = |picture: &Picture| {
        let svg = match &picture.shape {
            Shape::Bars(scenario) => {
                let contenders = &report.scenarios.get(*scenario)?.contenders;
                let bar = |(name, figures): (&String, &ContenderReport)| {
                    (name.clone(), figures.micros_per_cycle.median)
                };
                bars(picture, &contenders.iter().map(bar).collect::<Vec<_>>())
            }
            Shape::Lines {
                scenarios,
                axis,
                figure,
            } => {
                let lines = lines_of(report, scenarios, *figure);
                if lines.is_empty() {
                    return None;
                }
                lines_over(picture, axis, &lines)
            }
        };
        Some((picture.file, svg))
    };
    PICTURES.iter().filter_map(draw).collect()
}

/// Returns a line for each contender, over the numbers at the end of the scenarios' names.
fn lines_of(report: &Report, scenarios: &str, figure: fn(&ContenderReport) -> f64) -> Vec<Line> {
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
            name: contender.name.to_owned(),
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

/// Draws a bar for each value, the shortest first.
fn bars(picture: &Picture, values: &[(String, f64)]) -> String {
    let mut values = values.to_vec();
    values.sort_by(|one, other| one.1.total_cmp(&other.1));
    let longest = values.last().map_or(1.0, |(_, value)| *value);
    let mut svg = begin(picture, TOP + BAR * values.len() as f64 + 16.0);
    let left = LEFT + 50.0;
    for ((name, value), number) in values.iter().zip(0_u32..) {
        let y = TOP + BAR * f64::from(number);
        let width = value / longest * PLOT_WIDTH;
        text(&mut svg, (left - 8.0, y + 14.0), "", "end", name);
        let _ = writeln!(
            svg,
            r#"<rect x="{left}" y="{y}" width="{width:.1}" height="{:.1}" fill="{}"/>"#,
            BAR - 7.0,
            color(name)
        );
        text(
            &mut svg,
            (left + width + 6.0, y + 14.0),
            "faint",
            "start",
            &shown(*value),
        );
    }
    svg + "</svg>\n"
}

/// Draws lines, both scales logarithmic.
fn lines_over(picture: &Picture, axis: &str, lines: &[Line]) -> String {
    let points = || lines.iter().flat_map(|line| line.points.iter().copied());
    let scale_x = Scale::over(points().map(|(x, _)| x), LEFT, LEFT + PLOT_WIDTH);
    let scale_y = Scale::decades(points().map(|(_, y)| y), TOP + PLOT_HEIGHT, TOP);
    let mut svg = begin(picture, TOP + PLOT_HEIGHT + 56.0);
    let right = LEFT + PLOT_WIDTH;
    let _ = writeln!(
        svg,
        r##"<rect x="{LEFT}" y="{TOP}" width="{PLOT_WIDTH}" height="{PLOT_HEIGHT}" fill="#f1f3f6"/>"##
    );
    for tick in scale_y.powers_of_ten() {
        let at = scale_y.place(tick);
        let _ = writeln!(
            svg,
            r##"<path d="M{LEFT} {at:.1}H{right}" stroke="#fff"/>"##
        );
        text(
            &mut svg,
            (LEFT - 8.0, at + 4.0),
            "faint",
            "end",
            &shown(tick),
        );
    }
    let mut ticks: Vec<f64> = points().map(|(x, _)| x).collect();
    ticks.sort_by(f64::total_cmp);
    ticks.dedup();
    for tick in ticks {
        text(
            &mut svg,
            (scale_x.place(tick), TOP + PLOT_HEIGHT + 18.0),
            "faint",
            "middle",
            &shown(tick),
        );
    }
    text(
        &mut svg,
        (LEFT + PLOT_WIDTH / 2.0, TOP + PLOT_HEIGHT + 40.0),
        "",
        "middle",
        axis,
    );
    let mut names = Vec::new();
    for line in lines {
        let places: Vec<_> = line
            .points
            .iter()
            .map(|(x, y)| (scale_x.place(*x), scale_y.place(*y)))
            .collect();
        let path: Vec<_> = places
            .iter()
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        let color = color(&line.name);
        let _ = writeln!(
            svg,
            r#"<polyline points="{}" fill="none" stroke="{color}" stroke-width="2"/>"#,
            path.join(" ")
        );
        for ((x, y), (number, value)) in places.iter().zip(&line.points) {
            let _ = writeln!(
                svg,
                r#"<circle cx="{x:.1}" cy="{y:.1}" r="4" fill="{color}"><title>{}, {number}: {}</title></circle>"#,
                line.name,
                shown(*value)
            );
        }
        if let Some(end) = places.last() {
            names.push((*end, line.name.as_str(), color));
        }
    }
    write_names(&mut svg, names);
    svg + "</svg>\n"
}

/// Writes the name of each line behind its end; those that end above each other are moved apart.
fn write_names(svg: &mut String, mut names: Vec<((f64, f64), &str, &str)>) {
    names.sort_by(|((x, y), ..), ((other_x, other_y), ..)| {
        x.total_cmp(other_x).then(y.total_cmp(other_y))
    });
    for column in names.chunk_by(|((x, _), ..), ((other, _), ..)| x == other) {
        let places = apart(
            &column.iter().map(|((_, y), ..)| *y).collect::<Vec<_>>(),
            NAME,
        );
        for (((x, _), name, color), y) in column.iter().zip(places) {
            let (x, y) = (x + 12.0, y + 4.0);
            let _ = writeln!(
                svg,
                r#"<text x="{x:.1}" y="{y:.1}" style="fill:{color}">{name}</text>"#
            );
        }
    }
}

/// Moves sorted places apart, so that each is so far below the one before, and none moves farther
/// than it must.
fn apart(places: &[f64], distance: f64) -> Vec<f64> {
    let mut apart: Vec<f64> = Vec::with_capacity(places.len());
    for place in places {
        apart.push(
            apart
                .last()
                .map_or(*place, |last| place.max(last + distance)),
        );
    }
    apart
}

/// Where values lie, logarithmically.
struct Scale {
    least: f64,
    most: f64,
    from: f64,
    to: f64,
}

impl Scale {
    /// From the least value to the greatest.
    fn over(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let (least, most) = values.fold(
            (f64::INFINITY, f64::NEG_INFINITY),
            |(least, most), value| (value.log10().min(least), value.log10().max(most)),
        );
        // A single value lies in the middle.
        let widen = if most > least { 0.0 } else { 0.5 };
        Self {
            least: least - widen,
            most: most + widen,
            from,
            to,
        }
    }

    /// The same, up to powers of ten on both sides.
    fn decades(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let Self { least, most, .. } = Self::over(values, from, to);
        Self {
            least: least.floor(),
            most: most.ceil(),
            from,
            to,
        }
    }

    fn place(&self, value: f64) -> f64 {
        self.from + (value.log10() - self.least) / (self.most - self.least) * (self.to - self.from)
    }

    fn powers_of_ten(&self) -> impl Iterator<Item = f64> {
        (self.least as i32..=self.most as i32).map(|power| 10_f64.powi(power))
    }
}

fn begin(picture: &Picture, height: f64) -> String {
    let mut svg = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">
{STYLE}
<rect width="{WIDTH}" height="{height}" fill="#fff"/>
"##
    );
    text(&mut svg, (LEFT, 28.0), "big", "start", picture.title);
    text(&mut svg, (LEFT, 46.0), "faint", "start", picture.subtitle);
    svg
}

/// Writes a text, which has no characters that XML would mistake.
fn text(svg: &mut String, (x, y): (f64, f64), class: &str, anchor: &str, text: &str) {
    // Writing to a string does not fail.
    let _ = writeln!(
        svg,
        r#"<text x="{x:.1}" y="{y:.1}" class="{class}" text-anchor="{anchor}">{text}</text>"#
    );
}

/// Returns a number with as many digits as say something, and commas between thousands.
pub(crate) fn shown(value: f64) -> String {
    if value.abs() < 10.0 {
        // Two digits that say something.
        let digits = if value.abs() < 0.1 { 4 } else { 2 };
        let short = format!("{value:.digits$}");
        return short.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    let digits = format!("{value:.0}");
    let mut shown = String::new();
    for (position, digit) in digits.char_indices() {
        if position > 0 && (digits.len() - position) % 3 == 0 {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let all = [0.0, 0.0023, 0.25, 1.0, 9.999, 42.4, 1234.0, 1_234_567.0].map(shown);
        assert_eq!(
            all,
            ["0", "0.0023", "0.25", "1", "10", "42", "1,234", "1,234,567"]
        );
    }

    #[test]
    fn names_do_not_overlap() {
        assert_eq!(apart(&[10.0, 12.0, 60.0], 15.0), [10.0, 25.0, 60.0]);
    }

    #[test]
    fn a_scale_is_logarithmic_and_holds_all_values() {
        let scale = Scale::decades([20.0, 5000.0].into_iter(), 0.0, 300.0);
        assert_eq!(
            (scale.place(10.0), scale.place(100.0), scale.place(10_000.0)),
            (0.0, 100.0, 300.0)
        );
        assert_eq!(scale.powers_of_ten().count(), 4);
        let one = Scale::over([64.0].into_iter(), 0.0, 100.0);
        assert!((one.place(64.0) - 50.0).abs() < 1e-9);
    }

    #[test]
    fn the_picture_has_a_bar_for_each_and_the_longest_is_as_wide_as_the_plot() {
        let svg = bars(
            &PICTURES[0],
            &[("bare".to_owned(), 400.0), ("kazoo".to_owned(), 1600.0)],
        );
        assert!(
            svg.contains(r#"width="130.0""#) && svg.contains(r#"width="520.0""#),
            "{svg}"
        );
        assert!(svg.find(">bare<").unwrap() < svg.find(">kazoo<").unwrap());
    }

    #[test]
    fn a_line_goes_through_all_of_its_points() {
        let line = Line {
            name: "ours".to_owned(),
            points: vec![(1.0, 10.0), (10.0, 100.0)],
        };
        let svg = lines_over(&PICTURES[2], "sessions", &[line]);
        assert!(
            svg.contains(r#"<polyline points="80.0,364.0 600.0,64.0""#),
            "{svg}"
        );
    }

    /// Also that of one which ends before the others.
    #[test]
    fn a_name_stands_behind_the_end_of_its_line() {
        let line = |name: &str, points| Line {
            name: name.to_owned(),
            points,
        };
        let lines = [
            line("ours", vec![(1.0, 10.0), (100.0, 100.0)]),
            line("curator", vec![(1.0, 10.0), (10.0, 100.0)]),
            line("kazoo", vec![(1.0, 10.0), (10.0, 100.0)]),
        ];
        let svg = lines_over(&PICTURES[2], "sessions", &lines);
        for (name, x, y) in [("ours", 612, 68), ("curator", 352, 68), ("kazoo", 352, 83)] {
            let found = svg
                .lines()
                .find(|line| line.ends_with(&format!(">{name}</text>")))
                .unwrap();
            assert!(
                found.contains(&format!(r#"x="{x}.0" y="{y}.0""#)),
                "{found}"
            );
        }
    }
}
