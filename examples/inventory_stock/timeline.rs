//! The holders of a lock over time, as an SVG picture.

use plotter::{Picture, shown};

use crate::history::{History, Incident, Mark, Overlap, Section};
use crate::options::{Config, Lock};
use crate::protocol::Ending;

// Lengths are in pixels.
const LEFT: f64 = 100.0;
const PLOT: f64 = 960.0;
const RIGHT: f64 = 40.0;
const TOP: f64 = 70.0;
/// The height of a section. Sections of one worker that overlap, with locks of different products,
/// are drawn one below the other.
const LANE: f64 = 14.0;
const GAP: f64 = 8.0;
/// The width of a section that would be too short to be seen.
const THINNEST: f64 = 1.0;
/// The greatest number of ticks on the axis, besides that at 0.
const TICKS: u32 = 12;

const SOLD: &str = "#1b7f5c";
const SOLD_OUT: &str = "#9aa5b1";
const REFUSED: &str = "#d1495b";
const UNFINISHED: &str = "#3d405b";
const SUSPENDED: &str = "#edae49";
const OVERLAP: &str = "#e6007e";
const STOPPED: &str = "url(#stopped)";

/// The pattern of [`STOPPED`].
const HATCHING: &str = r##"<defs><pattern id="stopped" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
<rect width="6" height="6" fill="#fff"/><rect width="2" height="6" fill="#b8c0cc"/></pattern></defs>"##;

/// Draws the sale: a row for each worker, a bar for each critical section.
pub(crate) fn draw(history: &History, config: &Config) -> String {
    let rows = rows(history, config);
    let bottom = rows.last().map_or(TOP, |row| row.y + row.height + GAP);
    let (width, height) = (LEFT + PLOT + RIGHT, bottom + 102.0);
    let scale = Scale {
        history,
        seconds: history.seconds(history.finished).max(1e-3),
    };
    let held = match config.lock {
        Lock::None => "Who was inside when, without a lock",
        Lock::Mutex | Lock::Fair => "Who held the lock when",
        Lock::ReadWrite => "Who held the write lock when",
    };
    let products = if config.skus == 1 {
        "one product"
    } else {
        &format!("{} products", config.skus)
    };
    let subtitle = format!(
        "{} users, {products}, {} in stock of each, {} workers, {:.3} s",
        config.users, config.stock, config.workers, scale.seconds
    );
    let mut svg = Picture::new((width, height), LEFT, held, &subtitle);
    svg.add(format_args!("{HATCHING}"));
    axis(&mut svg, &scale, bottom);
    for (number, row) in (1..).zip(&rows) {
        let name = format!("worker {number}");
        svg.text((10.0, row.y + LANE - 3.0), "", &name);
        svg.rect((LEFT, row.y), (PLOT, row.height), "#f1f3f6", "");
    }
    for incident in &history.incidents {
        draw_incident(&mut svg, &scale, &rows, incident);
    }
    for (worker, row) in (0..).zip(&rows) {
        for (section, lane) in &row.sections {
            draw_section(
                &mut svg,
                &scale,
                row.y + *lane as f64 * LANE,
                section,
                killed_at(history, worker),
            );
        }
    }
    // Overlaps are drawn over everything else, so that they are visible.
    for overlap in &history.overlaps() {
        draw_overlap(&mut svg, &scale, &rows, overlap);
    }
    legend(&mut svg, bottom + 44.0);
    svg.finish()
}

/// The row of one worker.
struct Row<'a> {
    y: f64,
    height: f64,
    /// The sections, each with its lane.
    sections: Vec<(&'a Section, usize)>,
}

fn rows<'a>(history: &'a History, config: &Config) -> Vec<Row<'a>> {
    let mut rows: Vec<_> = (0..config.workers)
        .map(|_| Row {
            y: 0.0,
            height: LANE,
            sections: Vec::new(),
        })
        .collect();
    let mut lanes: Vec<Vec<u64>> = vec![Vec::new(); config.workers as usize];
    for section in &history.sections {
        let end = end_of(section, killed_at(history, section.worker), history);
        let lanes = &mut lanes[section.worker as usize];
        // The first free lane is used.
        let lane = lanes
            .iter()
            .position(|&until| until <= section.from)
            .unwrap_or(lanes.len());
        if lane == lanes.len() {
            lanes.push(0);
        }
        lanes[lane] = end;
        rows[section.worker as usize].sections.push((section, lane));
    }
    let mut y = TOP;
    for (row, lanes) in rows.iter_mut().zip(&lanes) {
        row.y = y;
        row.height = LANE * lanes.len().max(1) as f64;
        y += row.height + GAP;
    }
    rows
}

fn killed_at(history: &History, worker: u32) -> Option<u64> {
    history
        .incidents
        .iter()
        .find_map(|incident| match *incident {
            Incident::Killed { worker: killed, at } if killed == worker => Some(at),
            _ => None,
        })
}

fn was_lost(section: &Section) -> bool {
    section
        .marks
        .iter()
        .any(|(_, mark)| matches!(mark, Mark::Lost(_)))
}

/// Returns when the section's bar ends.
fn end_of(section: &Section, killed: Option<u64>, history: &History) -> u64 {
    match section.ended {
        // After the loss the worker continued without the lock.
        Some((at, _)) if was_lost(section) => at,
        Some(_) => section.until,
        None => killed.unwrap_or(history.finished),
    }
}

struct Scale<'a> {
    history: &'a History,
    seconds: f64,
}

impl Scale<'_> {
    fn x(&self, moment: u64) -> f64 {
        self.at(self.history.seconds(moment))
    }

    fn at(&self, seconds: f64) -> f64 {
        LEFT + (seconds / self.seconds).clamp(0.0, 1.0) * PLOT
    }
}

fn axis(svg: &mut Picture, scale: &Scale<'_>, bottom: f64) {
    for seconds in plotter::ticks(scale.seconds, TICKS) {
        let (x, top) = (scale.at(seconds), TOP - 6.0);
        let steps = format!("M{x:.1} {top:.1}V{bottom:.1}");
        svg.path(&steps, r##"stroke="#d5dae1""##, "");
        let label = format!("{} s", shown(seconds));
        svg.text((x, bottom + 14.0), "faint middle", &label);
    }
}

fn draw_incident(svg: &mut Picture, scale: &Scale<'_>, rows: &[Row<'_>], incident: &Incident) {
    match *incident {
        Incident::Killed { worker, at } => {
            let (row, x) = (&rows[worker as usize], scale.x(at));
            svg.rect((x, row.y), (LEFT + PLOT - x, row.height), "#fff", "killed");
            cross(svg, x, row.y + LANE / 2.0);
        }
        Incident::Paused {
            worker,
            from,
            until,
        } => {
            let row = &rows[worker as usize];
            let (x, end) = (scale.x(from), scale.x(until));
            let title = format!(
                "stopped for {:.3} s",
                scale.history.seconds(until) - scale.history.seconds(from)
            );
            svg.rect(
                (x, row.y - 3.0),
                (end - x, row.height + 6.0),
                STOPPED,
                &title,
            );
        }
        Incident::Expired { worker, at } => {
            let row = &rows[worker as usize];
            expiry(svg, scale.x(at), (row.y - 3.0, row.y + row.height + 3.0));
        }
    }
}

fn draw_overlap(svg: &mut Picture, scale: &Scale<'_>, rows: &[Row<'_>], overlap: &Overlap) {
    let section = &scale.history.sections[overlap.section];
    let row = &rows[section.worker as usize];
    let Some((_, lane)) = row
        .sections
        .iter()
        .find(|(drawn, _)| std::ptr::eq(*drawn, section))
    else {
        return;
    };
    let (x, end) = (scale.x(overlap.from), scale.x(overlap.until));
    let y = row.y + *lane as f64 * LANE;
    let title = format!(
        "two inside at once: user {} went in beside another",
        section.user
    );
    svg.rect(
        (x, y + 2.0),
        ((end - x).max(THINNEST), LANE - 4.0),
        OVERLAP,
        &title,
    );
}

fn draw_section(
    svg: &mut Picture,
    scale: &Scale<'_>,
    y: f64,
    section: &Section,
    killed: Option<u64>,
) {
    let end = end_of(section, killed, scale.history);
    let (x, end_x) = (scale.x(section.from), scale.x(end));
    let (colour, outcome) = match section.ended {
        Some((_, Ending::Sold { left })) => (SOLD, format!("bought one, left {left}")),
        Some((_, Ending::SoldOut)) => (SOLD_OUT, "found nothing left".to_owned()),
        Some((_, Ending::Refused)) => (REFUSED, "was refused by the token".to_owned()),
        Some((_, Ending::Failed)) => (REFUSED, "failed".to_owned()),
        None => (UNFINISHED, "never came out".to_owned()),
    };
    let (from, until) = (
        scale.history.seconds(section.from),
        scale.history.seconds(end),
    );
    let title = format!(
        "user {}, sku-{}: {from:.3} s to {until:.3} s, {outcome}",
        section.user,
        42 + section.product
    );
    // The bar is filled while the lock is known to have been held, and an outline after that.
    let known = scale.x(section.until.max(section.from).min(end));
    let known = if section.ended.is_none() {
        end_x
    } else {
        known
    };
    svg.rect(
        (x, y + 2.0),
        ((known - x).max(THINNEST), LANE - 4.0),
        colour,
        &title,
    );
    if was_lost(section) {
        let (top, bottom) = (y + 2.5, y + LANE - 2.5);
        let outline = format!("M{known:.1} {top:.1}H{end_x:.1}V{bottom:.1}H{known:.1}Z");
        let style = format!(r#"fill="none" stroke="{colour}" stroke-dasharray="3 2""#);
        svg.path(&outline, &style, "");
    }
    for (number, (at, mark)) in section.marks.iter().enumerate() {
        let x = scale.x(*at);
        match mark {
            Mark::Suspended => {
                let until = section.marks.get(number + 1).map_or(end, |(at, _)| *at);
                let width = (scale.x(until) - x).max(THINNEST);
                svg.rect(
                    (x, y + 2.0),
                    (width, LANE - 4.0),
                    SUSPENDED,
                    "suspended: not sure of the lock",
                );
            }
            Mark::Held => {}
            Mark::Lost(reason) => lost(svg, x, y + LANE / 2.0, &format!("lost: {reason}")),
        }
    }
}

/// Draws the mark of a loss.
fn lost(svg: &mut Picture, x: f64, y: f64, title: &str) {
    let (left, right, top, bottom) = (x - 5.0, x + 5.0, y - 6.0, y + 5.0);
    let triangle = format!("M{left:.1} {bottom:.1}L{x:.1} {top:.1}L{right:.1} {bottom:.1}Z");
    let style = format!(r##"fill="#fff" stroke="{REFUSED}" stroke-width="2""##);
    svg.path(&triangle, &style, title);
}

/// Draws the mark of a session that expired.
fn expiry(svg: &mut Picture, x: f64, (top, bottom): (f64, f64)) {
    let steps = format!("M{x:.1} {top:.1}V{bottom:.1}");
    let style = r##"stroke="#000" stroke-width="2" stroke-dasharray="2 2""##;
    svg.path(&steps, style, "session expired");
}

/// Draws the mark of a worker that was killed.
fn cross(svg: &mut Picture, x: f64, y: f64) {
    let (left, right, top, bottom) = (x - 5.0, x + 5.0, y - 5.0, y + 5.0);
    let steps = format!(
        "M{left:.1} {top:.1}L{right:.1} {bottom:.1}M{left:.1} {bottom:.1}L{right:.1} {top:.1}"
    );
    svg.path(&steps, r##"stroke="#000" stroke-width="2.5""##, "");
}

fn legend(svg: &mut Picture, y: f64) {
    let bars = [
        (SOLD, "sold one"),
        (SOLD_OUT, "found nothing left"),
        (REFUSED, "refused"),
        (UNFINISHED, "never came out"),
    ];
    let more = [
        (OVERLAP, "two inside at once"),
        (SUSPENDED, "suspended"),
        (STOPPED, "stopped"),
    ];
    let mut x = LEFT;
    for (colour, words) in bars.into_iter().chain(more) {
        svg.rect((x, y - 9.0), (18.0, 10.0), colour, "");
        svg.text((x + 24.0, y), "", words);
        x += 46.0 + 7.0 * words.len() as f64;
    }
    let y = y + 22.0;
    lost(svg, LEFT + 9.0, y - 4.0, "lost");
    svg.text((LEFT + 24.0, y), "", "lost");
    cross(svg, LEFT + 83.0, y - 4.0);
    svg.text((LEFT + 98.0, y), "", "killed");
    expiry(svg, LEFT + 164.0, (y - 11.0, y + 3.0));
    svg.text((LEFT + 174.0, y), "", "session expired");
    let words = "Dashed: the worker went on without knowing whether it still held the lock. A bar has a title: point at it.";
    svg.text((LEFT, y + 22.0), "faint", words);
}
