//! The pictures of docs/how-a-lock-works.md, and how pictures are drawn. They have a background, so
//! that they can be read on any page, a dark one where the reader prefers that.

use std::fmt::Write;

use super::assert_written;

// All lengths are in pixels.
const WIDTH: f64 = 760.0;

const STYLE: &str = "\
<style>
text{font:12px sans-serif;fill:#1f2328} .big{font-size:16px} .head{font-weight:bold} .faint{fill:#59636e}
.mono{font-family:monospace} .good{font-weight:bold;fill:#116329} .bad{font-weight:bold;fill:#a40e26}
.page{fill:#fff} .node{fill:#f0f2f5;stroke:#8c959f} .held{fill:#cdeeda;stroke:#1b7f5c}
.doubt{fill:#fbe9b7;stroke:#b07d12}
.lost{fill:#f9d3d7;stroke:#d1495b} .other{fill:#dbe7f7;stroke:#3b6fb6} .lane{stroke:#8c959f;fill:none}
.grid{stroke:#8c959f;fill:none;stroke-dasharray:2 4}
.way{stroke:#3b6fb6;fill:none;stroke-width:1.5} .vain{stroke:#d1495b;fill:none;stroke-width:1.5}
.tip{fill:#3b6fb6}
@media (prefers-color-scheme: dark) {
text{fill:#e6edf3} .faint{fill:#9aa4af} .good{fill:#56d364} .bad{fill:#ff8f86}
.page{fill:#0d1117} .node{fill:#21262d;stroke:#7d8590}
.held{fill:#12402f;stroke:#3fb98a} .doubt{fill:#4a3a0c;stroke:#d9a93a} .lost{fill:#4f1d24;stroke:#f0808d}
.other{fill:#1b3556;stroke:#79aef0} .lane,.grid{stroke:#7d8590} .way{stroke:#79aef0} .vain{stroke:#f0808d}
.tip{fill:#79aef0}
}
</style>
<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" \
markerWidth=\"6\" markerHeight=\"6\" orient=\"auto\">\
<path class=\"tip\" d=\"M0 0L8 4L0 8z\"/></marker></defs>
";

/// A picture that grows.
pub(super) struct Picture {
    svg: String,
}

impl Picture {
    pub(super) fn new(height: f64, title: &str, subtitle: &str) -> Self {
        let svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
             height=\"{height}\" role=\"img\">\n<title>{title}</title>\n{STYLE}\
             <rect class=\"page\" width=\"{WIDTH}\" height=\"{height}\"/>\n"
        );
        let mut picture = Self { svg };
        picture.text((40.0, 30.0), "big", "start", title);
        picture.text((40.0, 50.0), "faint", "start", subtitle);
        picture
    }

    /// Adds an element. Writing to a string does not fail.
    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        let _ = writeln!(self.svg, "{element}");
    }

    pub(super) fn text(&mut self, (x, y): (f64, f64), class: &str, anchor: &str, text: &str) {
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        self.add(format_args!(
            r#"<text x="{x:.1}" y="{y:.1}" class="{class}" text-anchor="{anchor}">{text}</text>"#
        ));
    }

    pub(super) fn rect(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), class: &str) {
        self.add(format_args!(
            r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" rx="5" class="{class}"/>"#
        ));
    }

    /// Draws a path, with a tip at its end if it is a way to something.
    fn path(&mut self, class: &str, path: &str) {
        let tip = if class == "way" {
            r#" marker-end="url(#tip)""#
        } else {
            ""
        };
        self.add(format_args!(r#"<path class="{class}" d="{path}"{tip}/>"#));
    }

    pub(super) fn end(self) -> String {
        self.svg + "</svg>\n"
    }
}

/// A node in a queue: its name, its client, whether it holds the lock, how many places before it
/// the node is that it watches, and how many tasks of its client wait in memory.
type Node = (&'static str, &'static str, bool, Option<usize>, u32);

/// Draws the nodes of a queue beside each other, and an arrow from each to the one that it watches.
fn draw_queue(picture: &mut Picture, top: f64, nodes: &[Node], width: f64, gap: f64) {
    const HEIGHT: f64 = 44.0;
    let count = nodes.len() as f64;
    let left = (WIDTH - width * count - gap * (count - 1.0)) / 2.0;
    let middle = |place: usize| left + (width + gap) * place as f64 + width / 2.0;
    for (place, &(name, client, holds, watches, in_memory)) in nodes.iter().enumerate() {
        let (x, class) = (middle(place), if holds { "held" } else { "node" });
        picture.rect((x - width / 2.0, top), (width, HEIGHT), class);
        picture.text((x, top + 19.0), "head", "middle", name);
        picture.text(
            (x, top + 35.0),
            "",
            "middle",
            if holds { "holds" } else { "waits" },
        );
        picture.text((x, top + HEIGHT + 18.0), "faint", "middle", client);
        let tasks = in_memory + 1;
        let first = x - f64::from(tasks - 1) * 8.0;
        for task in (0..tasks).filter(|_| in_memory > 0) {
            let class = if task == 0 && holds { "held" } else { "node" };
            let x = first + f64::from(task) * 16.0;
            picture.add(format_args!(
                r#"<circle cx="{x:.1}" cy="{:.1}" r="5" class="{class}"/>"#,
                top + HEIGHT + 34.0
            ));
        }
        if let Some(before) = watches {
            let to = middle(place - before);
            let height = 14.0 + 16.0 * before as f64;
            let (from, to) = (x - 14.0, to + 14.0);
            let path = format!(
                "M{from:.1} {:.1}C{from:.1} {:.1} {to:.1} {:.1} {to:.1} {:.1}",
                top - 2.0,
                top - height,
                top - height,
                top - 3.0
            );
            picture.path("way", &path);
        }
    }
}

fn queue() -> String {
    let mutex = [
        ("lock-12", "client A", true, None, 2),
        ("lock-13", "client B", false, Some(1), 3),
        ("lock-14", "client C", false, Some(1), 0),
        ("lock-15", "client D", false, Some(1), 1),
    ];
    let read_write = [
        ("read 31", "client A", true, None, 0),
        ("read 32", "client B", true, None, 0),
        ("write 33", "client C", false, Some(1), 0),
        ("read 34", "client D", false, Some(1), 0),
        ("read 35", "client E", false, Some(2), 0),
        ("write 36", "client F", false, Some(1), 0),
    ];
    let subtitle = "a box is a node of the lock's directory, by number; an arrow leads to the node that is watched";
    let mut picture = Picture::new(448.0, "Who waits for whom", subtitle);
    picture.text(
        (40.0, 90.0),
        "head",
        "start",
        "A mutex: each client watches its predecessor only",
    );
    draw_queue(&mut picture, 136.0, &mutex, 120.0, 50.0);
    let in_memory = "circles: tasks of that client, which wait in memory and hand the one node on";
    picture.text((40.0, 240.0), "faint", "start", in_memory);
    let head =
        "A read-write lock: a reader watches the last writer before it, a writer its predecessor";
    picture.text((40.0, 284.0), "head", "start", head);
    draw_queue(&mut picture, 344.0, &read_write, 92.0, 22.0);
    picture.text(
        (40.0, 430.0),
        "faint",
        "start",
        "the two readers in front are inside together",
    );
    picture.end()
}

fn lease() -> String {
    // Where the renewal is sent, and how long the session timeout T is.
    const START: f64 = 120.0;
    const T: f64 = 468.0;
    const CLIENT: f64 = 172.0;
    const SERVERS: f64 = 268.0;
    const TICKS: f64 = 316.0;
    let at = |part: f64| START + T * part;
    let subtitle =
        "after the renewal no heartbeat is answered; below, the times for T = 30 s, the default";
    let mut picture = Picture::new(372.0, "The time line of a lease", subtitle);
    let states = [
        (0.0, 1.0 / 3.0, "held", "held", "grants are made"),
        (
            1.0 / 3.0,
            2.0 / 3.0,
            "doubt",
            "suspended",
            "no grants are made",
        ),
        (
            2.0 / 3.0,
            1.0,
            "lost",
            "lost, holder notified",
            "T/3 to stop in",
        ),
        (1.0, 1.3, "other", "another holder", "at the earliest"),
    ];
    for (from, to, class, state, what) in states {
        picture.rect((at(from), 80.0), (T * (to - from), 44.0), class);
        let middle = at(f64::midpoint(from, to));
        picture.text((middle, 99.0), "head", "middle", state);
        picture.text((middle, 115.0), "", "middle", what);
    }
    for (y, name) in [(CLIENT, "client"), (SERVERS, "servers")] {
        picture.text((40.0, y + 4.0), "head", "start", name);
        picture.path(
            "lane",
            &format!("M{:.1} {y}H{:.1}", at(0.0) - 16.0, at(1.3)),
        );
    }
    // The renewal and its answer.
    let (there, back) = (at(0.03), at(0.06));
    picture.path(
        "way",
        &format!("M{:.1} {CLIENT}L{there:.1} {:.1}", at(0.0), SERVERS - 2.0),
    );
    picture.path(
        "way",
        &format!("M{there:.1} {SERVERS}L{back:.1} {:.1}", CLIENT + 2.0),
    );
    picture.text(
        (at(0.0) + 6.0, 162.0),
        "",
        "start",
        "renewal sent, answered",
    );
    // Heartbeats that do not arrive.
    for part in [1.0 / 6.0, 2.0 / 6.0, 3.0 / 6.0] {
        let (x, y) = (at(part) + 14.0, f64::midpoint(CLIENT, SERVERS));
        picture.path("vain", &format!("M{:.1} {CLIENT}L{x:.1} {y}", at(part)));
        let (left, right, above, below) = (x - 5.0, x + 5.0, y - 5.0, y + 5.0);
        picture.path(
            "vain",
            &format!("M{left:.1} {above}L{right:.1} {below}M{right:.1} {above}L{left:.1} {below}"),
        );
    }
    picture.text((at(0.1), 252.0), "faint", "start", "heartbeats, every T/6");
    // What the client knows, and what the servers do.
    picture.text(
        (at(2.0 / 3.0) + 6.0, 162.0),
        "",
        "start",
        "the lease expires",
    );
    picture.text(
        (at(1.0) + 6.0, SERVERS - 10.0),
        "",
        "start",
        "session expires",
    );
    for (part, name, seconds) in [
        (0.0, "0", "0 s"),
        (1.0 / 6.0, "T/6", "5 s"),
        (1.0 / 3.0, "T/3", "10 s"),
        (0.5, "T/2", "15 s"),
        (2.0 / 3.0, "2T/3", "20 s"),
        (1.0, "T", "30 s"),
    ] {
        if [0.0, 2.0 / 3.0, 1.0].contains(&part) {
            let top = if part == 1.0 { SERVERS - 22.0 } else { CLIENT };
            picture.path(
                "grid",
                &format!(
                    "M{:.1} 124V168M{:.1} {top}V{:.1}",
                    at(part),
                    at(part),
                    TICKS - 14.0
                ),
            );
        }
        picture.path(
            "lane",
            &format!("M{:.1} {:.1}V{:.1}", at(part), SERVERS - 4.0, SERVERS + 4.0),
        );
        picture.text((at(part), TICKS), "head", "middle", name);
        picture.text((at(part), TICKS + 18.0), "faint", "middle", seconds);
    }
    picture.text((40.0, TICKS), "", "start", "since sent");
    picture.end()
}

#[test]
fn the_pictures_of_how_a_lock_works_are_up_to_date() {
    assert_written("docs/how-a-lock-works/queue.svg", &queue());
    assert_written("docs/how-a-lock-works/lease.svg", &lease());
}
