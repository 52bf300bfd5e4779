//! Who held a lock when, as a picture: SVG, which every browser shows.

use std::fmt::Write;

use crate::diary::{Diary, Incident, Mark, Overlap, Turn};
use crate::options::{Lock, Terms};
use crate::protocol::How;

/// Everything is in pixels.
const LEFT: f64 = 100.0;
const PLOT: f64 = 960.0;
const RIGHT: f64 = 40.0;
const TOP: f64 = 70.0;
/// Of a turn. Turns of one worker that overlap, with locks of different products, are drawn one below the other.
const LANE: f64 = 14.0;
const GAP: f64 = 8.0;
/// What cannot be seen cannot be judged.
const THINNEST: f64 = 1.0;
/// At most so many ticks on the axis.
const TICKS: f64 = 12.0;

const SOLD: &str = "#1b7f5c";
const SOLD_OUT: &str = "#9aa5b1";
const REFUSED: &str = "#d1495b";
const OPEN: &str = "#3d405b";
const SUSPENDED: &str = "#edae49";
const OVERLAP: &str = "#e6007e";

const HEAD: &str = r##"<style>text{font:12px sans-serif;fill:#222} .big{font-size:16px} .faint{fill:#667}</style>
<defs><pattern id="stopped" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
<rect width="6" height="6" fill="#fff"/><rect width="2" height="6" fill="#b8c0cc"/></pattern></defs>
"##;

/// Draws the sale: a row for each worker, a bar for each turn.
pub(crate) fn draw(diary: &Diary, terms: &Terms) -> String {
    let rows = rows(diary, terms);
    let bottom = rows.last().map_or(TOP, |row| row.y + row.height + GAP);
    let (width, height) = (LEFT + PLOT + RIGHT, bottom + 102.0);
    let scale = Scale { diary, seconds: diary.seconds(diary.closed).max(1e-3) };
    let mut svg = Svg::default();
    svg.line(&format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">"#
    ));
    svg.line(HEAD);
    svg.line(&format!(r##"<rect width="{width}" height="{height}" fill="#fff"/>"##));
    let held = match terms.lock {
        Lock::None => "Who was inside when, without a lock",
        Lock::Mutex | Lock::Fair => "Who held the lock when",
        Lock::ReadWrite => "Who held the write lock when",
    };
    svg.text(LEFT, 28.0, "big", held);
    let products = if terms.skus == 1 { "one product" } else { &format!("{} products", terms.skus) };
    let subtitle = format!(
        "{} users, {products}, {} in stock of each, {} workers, {:.3} s",
        terms.users, terms.stock, terms.workers, scale.seconds
    );
    svg.text(LEFT, 48.0, "faint", &subtitle);
    axis(&mut svg, &scale, bottom);
    for (number, row) in (1..).zip(&rows) {
        svg.text(10.0, row.y + LANE - 3.0, "", &format!("worker {number}"));
        svg.rect((LEFT, row.y, PLOT, row.height), "#f1f3f6", "");
    }
    for incident in &diary.incidents {
        draw_incident(&mut svg, &scale, &rows, incident);
    }
    for (worker, row) in (0..).zip(&rows) {
        for (turn, lane) in &row.turns {
            draw_turn(&mut svg, &scale, row.y + *lane as f64 * LANE, turn, killed_at(diary, worker));
        }
    }
    // Over everything else: they must not be overlooked.
    for overlap in &diary.overlaps() {
        draw_overlap(&mut svg, &scale, &rows, overlap);
    }
    legend(&mut svg, bottom + 44.0);
    svg.line("</svg>");
    svg.0
}

/// A worker's.
struct Row<'a> {
    y: f64,
    height: f64,
    /// Each with its lane.
    turns: Vec<(&'a Turn, usize)>,
}

fn rows<'a>(diary: &'a Diary, terms: &Terms) -> Vec<Row<'a>> {
    let mut rows: Vec<_> =
        (0..terms.workers).map(|_| Row { y: 0.0, height: LANE, turns: Vec::new() }).collect();
    let mut lanes: Vec<Vec<u64>> = vec![Vec::new(); terms.workers as usize];
    for turn in &diary.turns {
        let end = end_of(turn, killed_at(diary, turn.worker), diary);
        let lanes = &mut lanes[turn.worker as usize];
        // The first lane that is free by then.
        let lane = lanes.iter().position(|&until| until <= turn.from).unwrap_or(lanes.len());
        if lane == lanes.len() {
            lanes.push(0);
        }
        lanes[lane] = end;
        rows[turn.worker as usize].turns.push((turn, lane));
    }
    let mut y = TOP;
    for (row, lanes) in rows.iter_mut().zip(&lanes) {
        row.y = y;
        row.height = LANE * lanes.len().max(1) as f64;
        y += row.height + GAP;
    }
    rows
}

fn killed_at(diary: &Diary, worker: u32) -> Option<u64> {
    diary.incidents.iter().find_map(|incident| match *incident {
        Incident::Killed { worker: killed, at } if killed == worker => Some(at),
        _ => None,
    })
}

fn was_lost(turn: &Turn) -> bool {
    turn.marks.iter().any(|(_, mark)| matches!(mark, Mark::Lost(_)))
}

/// When the worker believed that the turn was over; one that never did was killed.
fn end_of(turn: &Turn, killed: Option<u64>, diary: &Diary) -> u64 {
    match turn.ended {
        Some((at, _)) if was_lost(turn) => at,
        // Its release came after that; meanwhile somebody else may have got the lock.
        Some(_) => turn.until,
        None => killed.unwrap_or(diary.closed),
    }
}

struct Scale<'a> {
    diary: &'a Diary,
    seconds: f64,
}

impl Scale<'_> {
    fn x(&self, moment: u64) -> f64 {
        self.at(self.diary.seconds(moment))
    }

    fn at(&self, seconds: f64) -> f64 {
        LEFT + (seconds / self.seconds).clamp(0.0, 1.0) * PLOT
    }
}

fn axis(svg: &mut Svg, scale: &Scale<'_>, bottom: f64) {
    // 1, 2 or 5 times a power of ten.
    let least = scale.seconds / TICKS;
    let power = 10_f64.powf(least.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|&step| step >= least);
    let step = step.unwrap_or(power * 10.0);
    let decimals = if power < 1.0 { (-power.log10()).round() as usize } else { 0 };
    for tick in 0..=(scale.seconds / step + 1e-9) as u32 {
        let seconds = f64::from(tick) * step;
        let x = scale.at(seconds);
        svg.line(&format!(
            r##"<line x1="{x:.1}" x2="{x:.1}" y1="{:.1}" y2="{bottom:.1}" stroke="#d5dae1"/>"##,
            TOP - 6.0
        ));
        svg.text(x - 8.0, bottom + 14.0, "faint", &format!("{seconds:.decimals$} s"));
    }
}

fn draw_incident(svg: &mut Svg, scale: &Scale<'_>, rows: &[Row<'_>], incident: &Incident) {
    match *incident {
        Incident::Killed { worker, at } => {
            let (row, x) = (&rows[worker as usize], scale.x(at));
            svg.rect((x, row.y, LEFT + PLOT - x, row.height), "#fff", "killed");
            cross(svg, x, row.y + LANE / 2.0);
        }
        Incident::Paused { worker, from, until } => {
            let row = &rows[worker as usize];
            let (x, end) = (scale.x(from), scale.x(until));
            let title =
                format!("stopped for {:.3} s", scale.diary.seconds(until) - scale.diary.seconds(from));
            svg.rect((x, row.y - 3.0, end - x, row.height + 6.0), "url(#stopped)", &title);
        }
        Incident::Expired { worker, at } => {
            let row = &rows[worker as usize];
            expiry(svg, scale.x(at), (row.y - 3.0, row.y + row.height + 3.0));
        }
    }
}

fn draw_overlap(svg: &mut Svg, scale: &Scale<'_>, rows: &[Row<'_>], overlap: &Overlap) {
    let turn = &scale.diary.turns[overlap.turn];
    let row = &rows[turn.worker as usize];
    let Some((_, lane)) = row.turns.iter().find(|(drawn, _)| std::ptr::eq(*drawn, turn)) else { return };
    let (x, end) = (scale.x(overlap.from), scale.x(overlap.until));
    let y = row.y + *lane as f64 * LANE;
    let title = format!("two inside at once: user {} came in beside another", turn.user);
    svg.rect((x, y + 2.0, (end - x).max(THINNEST), LANE - 4.0), OVERLAP, &title);
}

fn draw_turn(svg: &mut Svg, scale: &Scale<'_>, y: f64, turn: &Turn, killed: Option<u64>) {
    let end = end_of(turn, killed, scale.diary);
    let (x, end_x) = (scale.x(turn.from), scale.x(end));
    let (colour, outcome) = match turn.ended {
        Some((_, How::Sold { left })) => (SOLD, format!("bought one, left {left}")),
        Some((_, How::SoldOut)) => (SOLD_OUT, "found an empty shelf".to_owned()),
        Some((_, How::Refused)) => (REFUSED, "was refused by the token".to_owned()),
        Some((_, How::Failed)) => (REFUSED, "failed".to_owned()),
        None => (OPEN, "never came out".to_owned()),
    };
    let (from, until) = (scale.diary.seconds(turn.from), scale.diary.seconds(end));
    let title =
        format!("user {}, sku-{}: {from:.3} s to {until:.3} s, {outcome}", turn.user, 42 + turn.product);
    // What was held for certain is full; what the worker only believed is an outline.
    let known = scale.x(turn.until.max(turn.from).min(end));
    let known = if turn.ended.is_none() { end_x } else { known };
    svg.rect((x, y + 2.0, (known - x).max(THINNEST), LANE - 4.0), colour, &title);
    if was_lost(turn) {
        svg.line(&format!(
            r#"<rect x="{known:.2}" y="{:.2}" width="{:.2}" height="{:.2}" fill="none" stroke="{colour}" stroke-dasharray="3 2"/>"#,
            y + 2.5,
            end_x - known,
            LANE - 5.0
        ));
    }
    for (number, (at, mark)) in turn.marks.iter().enumerate() {
        let x = scale.x(*at);
        match mark {
            Mark::Suspended => {
                let until = turn.marks.get(number + 1).map_or(end, |(at, _)| *at);
                let width = (scale.x(until) - x).max(THINNEST);
                svg.rect((x, y + 2.0, width, LANE - 4.0), SUSPENDED, "suspended: not sure of the lock");
            }
            Mark::Held => {}
            Mark::Lost(reason) => lost(svg, x, y + LANE / 2.0, &format!("lost: {reason}")),
        }
    }
}

/// The sign for a loss.
fn lost(svg: &mut Svg, x: f64, y: f64, title: &str) {
    let (left, right, top, bottom) = (x - 5.0, x + 5.0, y - 6.0, y + 5.0);
    svg.line(&format!(
        r##"<path d="M{left:.1} {bottom:.1}L{x:.1} {top:.1}L{right:.1} {bottom:.1}Z" fill="#fff" stroke="{REFUSED}" stroke-width="2"><title>{}</title></path>"##,
        escape(title)
    ));
}

/// The sign for the end of a session.
fn expiry(svg: &mut Svg, x: f64, (top, bottom): (f64, f64)) {
    svg.line(&format!(
        r##"<path d="M{x:.1} {top:.1}V{bottom:.1}" stroke="#000" stroke-width="2" stroke-dasharray="2 2"><title>session expired</title></path>"##
    ));
}

/// The sign for an end.
fn cross(svg: &mut Svg, x: f64, y: f64) {
    let (left, right, top, bottom) = (x - 5.0, x + 5.0, y - 5.0, y + 5.0);
    svg.line(&format!(
        r##"<path d="M{left:.1} {top:.1}L{right:.1} {bottom:.1}M{left:.1} {bottom:.1}L{right:.1} {top:.1}" stroke="#000" stroke-width="2.5"/>"##
    ));
}

fn legend(svg: &mut Svg, y: f64) {
    let bars = [
        (SOLD, "sold one"),
        (SOLD_OUT, "found an empty shelf"),
        (REFUSED, "refused"),
        (OPEN, "never came out"),
    ];
    let more = [(OVERLAP, "two inside at once"), (SUSPENDED, "suspended"), ("url(#stopped)", "stopped")];
    let mut x = LEFT;
    for (colour, words) in bars.into_iter().chain(more) {
        svg.rect((x, y - 9.0, 18.0, 10.0), colour, "");
        svg.text(x + 24.0, y, "", words);
        x += 46.0 + 7.0 * words.len() as f64;
    }
    let y = y + 22.0;
    lost(svg, LEFT + 9.0, y - 4.0, "lost");
    svg.text(LEFT + 24.0, y, "", "lost");
    cross(svg, LEFT + 83.0, y - 4.0);
    svg.text(LEFT + 98.0, y, "", "killed");
    expiry(svg, LEFT + 164.0, (y - 11.0, y + 3.0));
    svg.text(LEFT + 174.0, y, "", "session expired");
    let words = "Dashed: the worker went on without knowing whether it still held the lock. A bar has a title: point at it.";
    svg.text(LEFT, y + 22.0, "faint", words);
}

#[derive(Default)]
struct Svg(String);

impl Svg {
    fn line(&mut self, line: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "{line}");
    }

    fn text(&mut self, x: f64, y: f64, class: &str, words: &str) {
        self.line(&format!(r#"<text x="{x:.1}" y="{y:.1}" class="{class}">{}</text>"#, escape(words)));
    }

    /// x, y, width and height.
    fn rect(&mut self, (x, y, width, height): (f64, f64, f64, f64), fill: &str, title: &str) {
        let title =
            if title.is_empty() { String::new() } else { format!("<title>{}</title>", escape(title)) };
        self.line(&format!(
            r#"<rect x="{x:.2}" y="{y:.2}" width="{width:.2}" height="{height:.2}" fill="{fill}">{title}</rect>"#
        ));
    }
}

fn escape(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
