//! Plots as SVG pictures, for the examples and the benchmark.
//!
//! [`bars`] and [`lines`] return whole pictures; other pictures are drawn with a [`Picture`]. All
//! lengths are in pixels.

use std::fmt::{Arguments, Write as _};

const WIDTH: f64 = 760.0;
const LEFT: f64 = 80.0;
const TOP: f64 = 64.0;
const PLOT_WIDTH: f64 = 520.0;
const PLOT_HEIGHT: f64 = 300.0;
/// The distances between two bars, and between two names.
const BAR: f64 = 26.0;
const NAME: f64 = 15.0;

const STYLE: &str = "<style>text{font:12px sans-serif;fill:#222} .big{font-size:16px} \
.faint{fill:#667} .middle{text-anchor:middle} .end{text-anchor:end}</style>";

/// A picture. Each element is drawn over the earlier ones.
#[derive(Debug)]
pub struct Picture {
    svg: String,
}

impl Picture {
    /// Returns a white picture with a title and a subtitle, both of which begin at `left`.
    pub fn new((width, height): (f64, f64), left: f64, title: &str, subtitle: &str) -> Self {
        let mut picture = Self { svg: String::new() };
        picture.add(format_args!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">"#
        ));
        picture.add(format_args!("{STYLE}"));
        picture.rect((0.0, 0.0), (width, height), "#fff", "");
        picture.text((left, 28.0), "big", title);
        picture.text((left, 46.0), "faint", subtitle);
        picture
    }

    /// Adds an element of SVG that has no method here.
    pub fn add(&mut self, element: Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = writeln!(self.svg, "{element}");
    }

    /// Adds a text that begins at a point. The class `middle` or `end` moves its middle or its end
    /// to the point; `big` and `faint` are the other classes.
    pub fn text(&mut self, (x, y): (f64, f64), classes: &str, words: &str) {
        self.add(format_args!(
            r#"<text x="{x:.1}" y="{y:.1}" class="{classes}">{}</text>"#,
            escaped(words)
        ));
    }

    /// Adds a rectangle. A browser shows the title to a reader who points at the rectangle; an
    /// empty title is left out.
    pub fn rect(
        &mut self,
        (x, y): (f64, f64),
        (width, height): (f64, f64),
        fill: &str,
        title: &str,
    ) {
        self.add(format_args!(
            r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" fill="{fill}">{}</rect>"#,
            title_element(title)
        ));
    }

    /// Adds a path, given by its steps, such as `M10 20H30`, and its attributes. The title is that
    /// of [`Self::rect`].
    pub fn path(&mut self, steps: &str, attributes: &str, title: &str) {
        self.add(format_args!(
            r#"<path d="{steps}" {attributes}>{}</path>"#,
            title_element(title)
        ));
    }

    /// Returns the picture as the text of an SVG file.
    pub fn finish(self) -> String {
        self.svg + "</svg>\n"
    }
}

fn title_element(title: &str) -> String {
    if title.is_empty() {
        return String::new();
    }
    format!("<title>{}</title>", escaped(title))
}

fn escaped(words: &str) -> String {
    words
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// A bar of [`bars`].
#[derive(Debug, Clone)]
pub struct Bar<'a> {
    /// The text before the bar.
    pub name: &'a str,
    /// The color of the bar.
    pub color: &'a str,
    /// The length of the bar.
    pub value: f64,
}

/// Draws bars below each other, the shortest first.
pub fn bars(title: &str, subtitle: &str, mut bars: Vec<Bar<'_>>) -> String {
    bars.sort_by(|one, other| one.value.total_cmp(&other.value));
    let longest = bars.last().map_or(1.0, |bar| bar.value);
    let size = (WIDTH, TOP + BAR * bars.len() as f64 + 16.0);
    let mut picture = Picture::new(size, LEFT, title, subtitle);
    let left = LEFT + 50.0;
    for (number, bar) in bars.iter().enumerate() {
        let y = TOP + BAR * number as f64;
        let width = bar.value / longest * PLOT_WIDTH;
        picture.text((left - 8.0, y + 14.0), "end", bar.name);
        picture.rect((left, y), (width, BAR - 7.0), bar.color, "");
        let end = (left + width + 6.0, y + 14.0);
        picture.text(end, "faint", &shown(bar.value));
    }
    picture.finish()
}

/// A line of [`lines`].
#[derive(Debug, Clone)]
pub struct Line<'a> {
    /// The text behind the end of the line.
    pub name: &'a str,
    /// The color of the line.
    pub color: &'a str,
    /// The points of the line, from the left to the right.
    pub points: Vec<(f64, f64)>,
}

/// Draws lines, and the name of each behind its end. `axis` names the horizontal axis. Numbers on a
/// logarithmic scale must be greater than 0.
pub fn lines(title: &str, subtitle: &str, axis: &str, scale: Scale, lines: &[Line<'_>]) -> String {
    let (right, bottom) = (LEFT + PLOT_WIDTH, TOP + PLOT_HEIGHT);
    let points = || lines.iter().flat_map(|line| line.points.iter().copied());
    let mut columns: Vec<f64> = points().map(|(x, _)| x).collect();
    columns.sort_by(f64::total_cmp);
    columns.dedup();
    let x_axis = Axis::new(scale, columns.iter().copied(), LEFT, right);
    let y_axis = Axis::new(scale, points().map(|(_, y)| y), bottom, TOP).up_to_decades();

    let mut picture = Picture::new((WIDTH, bottom + 56.0), LEFT, title, subtitle);
    picture.rect((LEFT, TOP), (PLOT_WIDTH, PLOT_HEIGHT), "#f1f3f6", "");
    for tick in y_axis.ticks() {
        let y = y_axis.place(tick);
        let steps = format!("M{LEFT} {y:.1}H{right}");
        picture.path(&steps, r##"stroke="#fff""##, "");
        picture.text((LEFT - 8.0, y + 4.0), "faint end", &shown(tick));
    }
    for column in columns {
        let place = (x_axis.place(column), bottom + 18.0);
        picture.text(place, "faint middle", &shown(column));
    }
    picture.text((LEFT + PLOT_WIDTH / 2.0, bottom + 40.0), "middle", axis);
    let mut ends = Vec::new();
    for line in lines {
        let place = |(x, y): &(f64, f64)| (x_axis.place(*x), y_axis.place(*y));
        let places: Vec<_> = line.points.iter().map(place).collect();
        draw_line(&mut picture, line, &places);
        ends.extend(places.last().map(|end| (*end, line)));
    }
    write_names(&mut picture, ends);
    picture.finish()
}

fn draw_line(picture: &mut Picture, line: &Line<'_>, places: &[(f64, f64)]) {
    let color = line.color;
    let corners: Vec<_> = places
        .iter()
        .map(|(x, y)| format!("{x:.1},{y:.1}"))
        .collect();
    picture.add(format_args!(
        r#"<polyline points="{}" fill="none" stroke="{color}" stroke-width="2"/>"#,
        corners.join(" ")
    ));
    for ((x, y), (number, value)) in places.iter().zip(&line.points) {
        let title = format!("{}, {number}: {}", line.name, shown(*value));
        picture.add(format_args!(
            r#"<circle cx="{x:.1}" cy="{y:.1}" r="4" fill="{color}">{}</circle>"#,
            title_element(&title)
        ));
    }
}

/// Writes the name of each line behind its end. Names above each other are moved apart.
fn write_names(picture: &mut Picture, mut ends: Vec<((f64, f64), &Line<'_>)>) {
    ends.sort_by(|((x, y), _), ((other_x, other_y), _)| {
        x.total_cmp(other_x).then(y.total_cmp(other_y))
    });
    let mut last = None;
    for ((x, end), line) in ends {
        let y = match last {
            Some((last_x, last_y)) if last_x == x => end.max(last_y + NAME),
            _ => end,
        };
        last = Some((x, y));
        picture.add(format_args!(
            r#"<text x="{:.1}" y="{:.1}" style="fill:{}">{}</text>"#,
            x + 12.0,
            y + 4.0,
            line.color,
            escaped(line.name)
        ));
    }
}

/// How the axes of [`lines`] are divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// From 0 to the greatest number.
    Linear,
    /// From the least number to the greatest, up to powers of ten for the vertical axis.
    Logarithmic,
}

impl Scale {
    fn of(self, value: f64) -> f64 {
        match self {
            Self::Linear => value,
            Self::Logarithmic => value.log10(),
        }
    }
}

/// Where the values on an axis lie.
struct Axis {
    scale: Scale,
    least: f64,
    most: f64,
    from: f64,
    to: f64,
}

impl Axis {
    fn new(scale: Scale, values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let (least, most) = values.map(|value| scale.of(value)).fold(
            (f64::INFINITY, f64::NEG_INFINITY),
            |(least, most), value| (value.min(least), value.max(most)),
        );
        let (least, most) = match scale {
            Scale::Linear => (0.0, if most > 0.0 { most } else { 1.0 }),
            Scale::Logarithmic if most > least => (least, most),
            // A single value lies in the middle.
            Scale::Logarithmic => (least - 0.5, most + 0.5),
        };
        Self {
            scale,
            least,
            most,
            from,
            to,
        }
    }

    /// Extends a logarithmic axis to powers of ten at both ends.
    fn up_to_decades(self) -> Self {
        match self.scale {
            Scale::Linear => self,
            Scale::Logarithmic => Self {
                least: self.least.floor(),
                most: self.most.ceil(),
                ..self
            },
        }
    }

    fn place(&self, value: f64) -> f64 {
        let part = (self.scale.of(value) - self.least) / (self.most - self.least);
        self.from + part * (self.to - self.from)
    }

    fn ticks(&self) -> Vec<f64> {
        match self.scale {
            Scale::Linear => ticks(self.most, 6).collect(),
            Scale::Logarithmic => (self.least as i32..=self.most as i32)
                .map(|power| 10_f64.powi(power))
                .collect(),
        }
    }
}

/// Returns 0 and the multiples of a round number up to `max`, at most `count` of them.
pub fn ticks(max: f64, count: u32) -> impl Iterator<Item = f64> {
    let least = max / f64::from(count);
    let power = 10_f64.powf(least.log10().floor());
    let step = [1.0, 2.0, 5.0]
        .map(|digit| digit * power)
        .into_iter()
        .find(|&step| step >= least)
        .unwrap_or(10.0 * power);
    // Multiples of a fraction are not exact.
    (0..=(max / step + 1e-9) as u32).map(move |number| f64::from(number) * step)
}

/// Returns a number for a reader: with four decimals below 0.1, two below 10 and none above,
/// without zeros at the end, and with commas between thousands.
pub fn shown(value: f64) -> String {
    if value.abs() < 10.0 {
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

    const EMPTY: Line<'_> = Line {
        name: "",
        color: "#000",
        points: Vec::new(),
    };

    #[test]
    fn escapes_text() {
        let line = Line {
            name: "a<b & c",
            points: vec![(1.0, 1.0)],
            ..EMPTY
        };
        let svg = lines("<script>", "", "", Scale::Linear, &[line]);
        assert!(svg.contains(">&lt;script&gt;</text>"), "{svg}");
        assert!(svg.contains("<title>a&lt;b &amp; c, 1: 1</title>"), "{svg}");
        assert!(svg.contains(">a&lt;b &amp; c</text>"), "{svg}");
        assert!(!svg.contains("a<b") && !svg.contains("& "), "{svg}");
    }

    #[test]
    fn points_lie_on_their_scale() {
        let line = Line {
            points: vec![(1.0, 20.0), (10.0, 200.0), (100.0, 1000.0)],
            ..EMPTY
        };
        for (scale, places) in [
            // The vertical axis is from 10 to 1000, 150 for each power of ten.
            (Scale::Logarithmic, "80.0,318.8 340.0,168.8 600.0,64.0"),
            (Scale::Linear, "85.2,358.0 132.0,304.0 600.0,64.0"),
        ] {
            let svg = lines("", "", "", scale, std::slice::from_ref(&line));
            assert!(
                svg.contains(&format!(r#"<polyline points="{places}""#)),
                "{svg}"
            );
        }
    }

    #[test]
    fn bars_are_as_long_as_values() {
        let bar = |name, value| Bar {
            name,
            color: "#000",
            value,
        };
        let svg = bars("", "", vec![bar("kazoo", 1600.0), bar("bare", 400.0)]);
        let (short, long) = (svg.find(r#"width="130.0""#), svg.find(r#"width="520.0""#));
        assert!(short.is_some() && short < long, "{svg}");
    }

    #[test]
    fn names_do_not_overlap() {
        let line = |name, points: &[_]| Line {
            name,
            points: points.to_vec(),
            ..EMPTY
        };
        let all = [
            line("ours", &[(1.0, 10.0), (100.0, 100.0)]),
            line("curator", &[(1.0, 10.0), (10.0, 100.0)]),
            line("kazoo", &[(1.0, 10.0), (10.0, 100.0)]),
        ];
        let svg = lines("", "", "", Scale::Logarithmic, &all);
        for (name, x, y) in [("ours", 612, 68), ("curator", 352, 68), ("kazoo", 352, 83)] {
            let text = format!(r#"<text x="{x}.0" y="{y}.0" style="fill:#000">{name}</text>"#);
            assert!(svg.contains(&text), "{text} in {svg}");
        }
    }

    #[test]
    fn ticks_are_round() {
        for (max, expected) in [
            (50.0, vec![0.0, 10.0, 20.0, 30.0, 40.0, 50.0]),
            (7.0, vec![0.0, 2.0, 4.0, 6.0]),
            (0.3, vec![0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3]),
        ] {
            let found: Vec<_> = ticks(max, 6).map(shown).collect();
            let expected: Vec<_> = expected.into_iter().map(shown).collect();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn numbers_are_short() {
        let all = [0.0, 0.0023, 0.25, 1.0, 9.999, 42.4, 1234.0, 1_234_567.0].map(shown);
        assert_eq!(
            all,
            ["0", "0.0023", "0.25", "1", "10", "42", "1,234", "1,234,567"]
        );
    }
}
