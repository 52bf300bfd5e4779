//! The notifications by the number of waiters, as an SVG picture.

use std::fmt::Write;

use crate::measure::Point;

// All lengths are in pixels.
const LEFT: f64 = 70.0;
const TOP: f64 = 60.0;
const PLOT_WIDTH: f64 = 560.0;
const PLOT_HEIGHT: f64 = 320.0;
const WIDTH: f64 = LEFT + PLOT_WIDTH + 110.0;
const HEIGHT: f64 = TOP + PLOT_HEIGHT + 60.0;
/// The greatest number of ticks on an axis.
const TICKS: u32 = 6;

const NAIVE: &str = "#d1495b";
const SEQUENTIAL: &str = "#1b7f5c";

const STYLE: &str =
    "<style>text{font:12px sans-serif;fill:#222} .big{font-size:16px} .faint{fill:#667}</style>";

/// Draws a line for each lock.
pub(crate) fn draw(curve: &[Point]) -> String {
    let most_waiters = curve.last().map_or(1, |point| point.waiters);
    let most = curve
        .iter()
        .map(|point| point.naive.max(point.sequential))
        .fold(1.0, f64::max);
    let x = |waiters: u32| LEFT + f64::from(waiters) / f64::from(most_waiters) * PLOT_WIDTH;
    let y = |notifications: f64| TOP + (1.0 - notifications / most) * PLOT_HEIGHT;
    let mut svg = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">
{STYLE}
<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>
<rect x="{LEFT}" y="{TOP}" width="{PLOT_WIDTH}" height="{PLOT_HEIGHT}" fill="#f1f3f6"/>
"##
    );
    text(
        &mut svg,
        (LEFT, 28.0),
        "big",
        "start",
        "Notifications per release",
    );
    text(
        &mut svg,
        (LEFT, 46.0),
        "faint",
        "start",
        "all others wait while one has the lock",
    );
    for tick in ticks(most.ceil() as u32).filter(|&tick| f64::from(tick) <= most) {
        let at = y(f64::from(tick));
        let right = LEFT + PLOT_WIDTH;
        // Writing to a string does not fail.
        let _ = writeln!(
            svg,
            r##"<path d="M{LEFT} {at:.1}H{right}" stroke="#fff"/>"##
        );
        text(
            &mut svg,
            (LEFT - 8.0, at + 4.0),
            "faint",
            "end",
            &tick.to_string(),
        );
    }
    for tick in ticks(most_waiters) {
        text(
            &mut svg,
            (x(tick), TOP + PLOT_HEIGHT + 18.0),
            "faint",
            "middle",
            &tick.to_string(),
        );
    }
    let middle = LEFT + PLOT_WIDTH / 2.0;
    text(
        &mut svg,
        (middle, TOP + PLOT_HEIGHT + 40.0),
        "",
        "middle",
        "waiters",
    );
    for (name, color) in [("naive", NAIVE), ("sequential", SEQUENTIAL)] {
        let value = |point: &Point| {
            if name == "naive" {
                point.naive
            } else {
                point.sequential
            }
        };
        let points: Vec<_> = curve
            .iter()
            .map(|point| (x(point.waiters), y(value(point))))
            .collect();
        let line: Vec<_> = points
            .iter()
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        let line = line.join(" ");
        let _ = writeln!(
            svg,
            r#"<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>"#
        );
        for (point, (x, y)) in curve.iter().zip(&points) {
            let title = format!("{name}, {} waiters: {:.1}", point.waiters, value(point));
            let _ = writeln!(
                svg,
                r#"<circle cx="{x:.1}" cy="{y:.1}" r="4" fill="{color}"><title>{title}</title></circle>"#
            );
        }
        if let (Some((x, y)), Some(last)) = (points.last(), curve.last()) {
            let label = format!("{name}: {:.1}", value(last));
            text(&mut svg, (x + 10.0, y + 4.0), "", "start", &label);
        }
    }
    svg += "</svg>\n";
    svg
}

/// Returns round numbers from 0 to a maximum.
fn ticks(max: u32) -> impl Iterator<Item = u32> {
    let steps = (0..).flat_map(|power| [1, 2, 5].map(|digit| digit * 10_u32.saturating_pow(power)));
    let step = steps
        .into_iter()
        .find(|&step| max / step <= TICKS)
        .unwrap_or_else(|| max.max(1));
    (0..=max).step_by(step as usize)
}

/// Writes a text, which has no characters that XML would mistake.
fn text(svg: &mut String, (x, y): (f64, f64), class: &str, anchor: &str, text: &str) {
    // Writing to a string does not fail.
    let _ = writeln!(
        svg,
        r#"<text x="{x:.1}" y="{y:.1}" class="{class}" text-anchor="{anchor}">{text}</text>"#
    );
}
