//! The published packages: their pages without links into the repository, and the public interface
//! as a list.

use std::fmt::Write;

use super::docs::items;
use super::{assert_written, read, without_unit_tests};

/// Returns the text before the end of a link's text, the target, and the rest.
fn link(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once("](")?;
    let (target, after) = rest.split_once(')')?;
    Some((before, target, after))
}

#[test]
fn pages_of_packages_link_absolutely() {
    for page in [
        "test-server/README.md",
        "zk-test-server/README.md",
        "zklock/README.md",
    ] {
        let text = read(page);
        let mut rest = text.as_str();
        while let Some((_, target, after)) = link(rest) {
            assert!(
                target.starts_with('#') || target.starts_with("https://"),
                "{page}: {target}"
            );
            rest = after;
        }
    }
}

/// Returns the variants and the public fields after the declaration of a type in this file.
pub(super) fn members<'a>(text: &'a str, declaration: &str) -> Vec<&'a str> {
    let is_type = declaration.starts_with("pub enum") || declaration.starts_with("pub struct");
    let body = text
        .split(declaration)
        .nth(1)
        .and_then(|rest| rest.split("\n}\n").next());
    let lines = body
        .filter(|_| is_type && declaration.ends_with('{'))
        .unwrap_or_default()
        .lines();
    let mut is_in_attribute = false;
    let is_shown = |line: &&str| {
        let line = line.trim_start();
        // An attribute of several lines has the text of an error and its arguments.
        let is_attribute = is_in_attribute || line.starts_with("#[");
        is_in_attribute = is_attribute && !line.ends_with(']');
        line.starts_with("pub ")
            || declaration.starts_with("pub enum") && !(is_attribute || line.starts_with("//"))
    };
    lines
        .filter(is_shown)
        .filter(|line| !line.trim().is_empty())
        .collect()
}

/// The list of the interface shows each change in the review. Implementations of traits are not
/// listed.
#[test]
fn public_interface_is_as_listed() {
    let (mut list, mut file) = (String::new(), None);
    for item in items() {
        if file.as_ref() != Some(&item.file) {
            let _ = writeln!(list, "\n{}", item.file.display());
        }
        let _ = writeln!(
            list,
            "  {}",
            item.declaration.trim_end_matches([' ', '{', ';', ','])
        );
        for member in members(without_unit_tests(&read(&item.file)), &item.declaration) {
            let _ = writeln!(list, "  {}", member.trim_end_matches(','));
        }
        file = Some(item.file);
    }
    assert!(list.lines().count() > 300, "{list}");
    assert_written("tests/surface/public-api.txt", list.trim_start());
}
