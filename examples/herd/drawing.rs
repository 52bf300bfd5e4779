//! The notifications by the number of waiters, as an SVG picture.

use plotter::{Line, Scale, shown};

use crate::measure::Point;

/// Draws a line for each lock.
pub(crate) fn draw(curve: &[Point]) -> String {
    let line = |name, color, value: fn(&Point) -> f64| Line {
        name,
        color,
        points: curve
            .iter()
            .map(|point| (f64::from(point.waiters), value(point)))
            .collect(),
    };
    let subtitle = curve.last().map_or_else(String::new, |last| {
        format!(
            "{} wait: the naive lock notifies {}, the sequential one {}",
            last.waiters,
            shown(last.naive),
            shown(last.sequential)
        )
    });
    plotter::lines(
        "Notifications per release",
        &subtitle,
        "waiters",
        Scale::Linear,
        &[
            line("naive", "#d1495b", |point| point.naive),
            line("sequential", "#1b7f5c", |point| point.sequential),
        ],
    )
}
