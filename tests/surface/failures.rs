//! The failure handbook explains every error and every warning.

use super::docs::items;
use super::packages::members;
use super::{read, sources, without_unit_tests};

const PAGE: &str = "docs/failures.md";

/// Returns the variants of public errors and of their contents, and the errors without variants.
fn errors() -> Vec<String> {
    let is_error = |name: &str| {
        ["Error", "Kind", "Reason", "Failure"]
            .iter()
            .any(|end| name.ends_with(end))
    };
    let mut errors = vec![
        "StaleToken".to_owned(),
        "ParseTokenError".to_owned(),
        "InvalidPath".to_owned(),
    ];
    for item in items()
        .iter()
        .filter(|item| item.file.starts_with("src/error"))
    {
        let Some(name) = item.declaration.strip_prefix("pub enum ") else {
            continue;
        };
        let name = name.split(|c: char| !c.is_alphanumeric()).next().unwrap();
        let text = read(&item.file);
        let lines = members(without_unit_tests(&text), &item.declaration);
        let variants = lines.iter().map(|line| line.trim_start());
        let variants =
            variants.filter(|line| is_error(name) && line.starts_with(char::is_uppercase));
        let variants =
            variants.map(|line| line.split(|c: char| !c.is_alphanumeric()).next().unwrap());
        errors.extend(variants.map(|variant| format!("{name}::{variant}")));
    }
    errors
}

/// The texts of the lines that are logged as warnings or errors, with their levels.
fn warnings() -> Vec<String> {
    let mut warnings = Vec::new();
    for text in sources().iter().map(read) {
        for (call, level) in [
            ("log::warn!(", "WARN"),
            ("log::error!(", "ERROR"),
            ("Level::WARN, ", "WARN"),
        ] {
            for line in without_unit_tests(&text).split(call).skip(1) {
                let line = line.split(");").next().unwrap();
                let text = line
                    .trim_end()
                    .trim_end_matches('"')
                    .rsplit('"')
                    .next()
                    .unwrap();
                warnings.push(format!("| {level} | {text} |"));
            }
        }
    }
    warnings
}

#[test]
fn failures_page_lists_all_errors() {
    let page = read(PAGE);
    let (errors, warnings) = (errors(), warnings());
    assert!(
        errors.len() > 80 && warnings.len() >= 20,
        "{errors:#?} {warnings:#?}"
    );
    let rows = errors
        .iter()
        .map(|error| format!("| `{error}` |"))
        .chain(warnings);
    let missing: Vec<_> = rows.filter(|row| !page.contains(row)).collect();
    assert!(missing.is_empty(), "{PAGE} lacks {missing:#?}");
}
