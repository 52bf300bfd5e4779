//! The pictures of docs/demos, drawn from recordings of a terminal.

use super::pictures::Picture;
use super::{assert_written, read};

// The height of a line, and the width of a character, in pixels.
const LINE: f64 = 17.0;
const COLUMN: f64 = 7.25;
/// As many as are beside each other in a picture.
const COLUMNS: usize = 96;
const TOP: f64 = 66.0;

/// The class of a text behind the escape sequence of a colour.
fn class(code: &str) -> &'static str {
    match code {
        "0" => "mono",
        "1;31" => "mono bad",
        "1;32" => "mono good",
        _ => panic!("a colour without a class: {code:?}"),
    }
}

/// Draws a part of a line, and returns the column behind it. Words that spaces set apart have their
/// own places, whatever the width of a space in the reader's font.
fn part(picture: &mut Picture, mut column: usize, y: f64, class: &str, text: &str) -> usize {
    for (place, words) in text.split("  ").enumerate() {
        column += if place > 0 { 2 } else { 0 } + words.len() - words.trim_start().len();
        if !words.trim().is_empty() {
            picture.text(
                (36.0 + COLUMN * column as f64, y),
                class,
                "start",
                words.trim(),
            );
        }
        column += words.trim_start().chars().count();
    }
    column
}

/// Draws a recording: commands behind `$ `, and their output, with colours as the only escape
/// sequences.
fn terminal(recording: &str, title: &str, subtitle: &str) -> String {
    let height = LINE * recording.lines().count() as f64 + 20.0;
    let mut picture = Picture::new(TOP + height + 20.0, title, subtitle);
    picture.rect((20.0, TOP), (720.0, height), "node");
    for (row, line) in recording.lines().enumerate() {
        let y = TOP + 8.0 + LINE * (row + 1) as f64;
        let mut parts = line.split("\x1b[");
        let first = if line.starts_with("$ ") {
            "mono head"
        } else {
            "mono"
        };
        let mut column = part(&mut picture, 0, y, first, parts.next().unwrap_or_default());
        for coloured in parts {
            let (code, text) = coloured.split_once('m').unwrap();
            column = part(&mut picture, column, y, class(code), text);
        }
        assert!(column <= COLUMNS, "{column} columns: {line}");
    }
    picture.end()
}

#[test]
fn the_pictures_of_the_demos_are_those_of_their_recordings() {
    for (name, title, subtitle) in [
        (
            "sale",
            "A flash sale",
            "eight processes sell three items to 99 users",
        ),
        (
            "members-killed",
            "Members of an ensemble are killed",
            "the lock stays with its holder",
        ),
        (
            "zklock",
            "A job that runs on one machine at a time",
            "zklock keeps a second command out, and asks the first one to end",
        ),
    ] {
        let recording = read(format!("docs/demos/{name}.txt"));
        assert_written(
            &format!("docs/demos/{name}.svg"),
            &terminal(&recording, title, subtitle),
        );
    }
}
