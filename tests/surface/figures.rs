//! How much there is to read: lines of code, counted the same way each time, so that growth is a decision.

use std::path::{Path, PathBuf};

use super::architecture::{code, public_names};
use super::{files_below, read, sources};

/// The largest figures that pass. A change that makes one smaller lowers it here.
const AT_MOST: [(&str, usize); 5] = [
    ("lines of the library", 20_259),
    ("lines of its engine, protocol and session", 14_344),
    ("doc lines of the library", 11_154),
    ("public names", 76),
    ("lines of tests", 31_556),
];

/// Lines that are neither blank nor comments nor part of unit tests.
fn lines(path: &Path) -> usize {
    code(path).lines().filter(|line| !line.trim().is_empty()).count()
}

fn doc_lines(path: &Path) -> usize {
    let text = read(path);
    text.lines().map(str::trim).filter(|line| line.starts_with("///") || line.starts_with("//!")).count()
}

/// Whether a file below `src` is compiled for unit tests only.
pub(super) fn is_model(path: &Path) -> bool {
    let path = path.to_string_lossy();
    path.contains("simulation/") || path.contains("_model") || path.ends_with("/tests.rs")
}

#[test]
fn the_library_does_not_grow_unnoticed() {
    let library: Vec<_> = sources().into_iter().filter(|path| !is_model(path)).collect();
    let inner = ["src/engine", "src/protocol", "src/session"];
    let is_inner = |path: &&PathBuf| inner.iter().any(|folder| path.starts_with(folder));
    let directories = ["tests", "simulation/tests", "test-support"];
    let tests = directories.into_iter().flat_map(files_below);
    let tests = tests.filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    let figures: [usize; 5] = [
        library.iter().map(|path| lines(path)).sum(),
        library.iter().filter(is_inner).map(|path| lines(path)).sum(),
        library.iter().map(|path| doc_lines(path)).sum(),
        public_names().len(),
        tests.map(|path| lines(&path)).sum(),
    ];
    for ((name, most), figure) in AT_MOST.into_iter().zip(figures) {
        println!("{name}: {figure}, at most {most}");
    }
    for ((name, most), figure) in AT_MOST.into_iter().zip(figures) {
        assert!(figure <= most, "{name}: {figure}, at most {most}");
    }
}
