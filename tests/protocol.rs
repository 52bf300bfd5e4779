//! The pages that say how the locks work, and the code and the tests that cite them, agree: what is cited
//! exists, and the tests that the pages name exist.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const PAGE: &str = "docs/protocol.md";

/// Where tests are, in real and in virtual time.
const TESTS: [&str; 3] = ["tests", "test-support/tests", "simulation/tests"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A text file of the project.
struct File {
    /// Relative to the root.
    path: PathBuf,
    text: String,
}

impl File {
    /// Whether a path to the file names a module: its stem, or a directory that it is in.
    fn is_in_module(&self, module: &str) -> bool {
        self.path.with_extension("").components().any(|part| part.as_os_str() == module)
    }
}

/// The source files below these directories, and the pages beside them.
fn files(directories: &[&str]) -> Vec<File> {
    let mut found = Vec::new();
    let mut rest: Vec<PathBuf> = directories.iter().map(|directory| root().join(directory)).collect();
    while let Some(directory) = rest.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                rest.push(path);
                continue;
            }
            if path
                .extension()
                .is_some_and(|extension| ["rs", "md", "py", "java"].iter().any(|e| extension == *e))
            {
                let text = std::fs::read_to_string(&path).unwrap();
                found.push(File { path: path.strip_prefix(root()).unwrap().to_owned(), text });
            }
        }
    }
    assert!(!found.is_empty(), "{directories:?}");
    found
}

/// All that may cite a page: the code, the tests and the other pages.
fn all_files() -> Vec<File> {
    let mut all =
        files(&["src", "tests", "test-support", "test-server", "simulation/tests", "examples", "docs"]);
    for entry in std::fs::read_dir(root()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "md") {
            let text = std::fs::read_to_string(&path).unwrap();
            all.push(File { path: path.strip_prefix(root()).unwrap().to_owned(), text });
        }
    }
    all
}

/// What stands behind each `mark` in a text, as long as it is an anchor's.
fn anchors_behind<'a>(text: &'a str, mark: &str) -> Vec<&'a str> {
    text.split(mark)
        .skip(1)
        .map(|rest| {
            let end = rest.find(|c: char| !matches!(c, 'a'..='z' | '0'..='9' | '-')).unwrap_or(rest.len());
            &rest[..end]
        })
        .collect()
}

/// The anchors of the page: those that are set, and those of its headings.
fn anchors(page: &str) -> BTreeSet<String> {
    let set = anchors_behind(page, "<a id=\"");
    let mut anchors = BTreeSet::new();
    for anchor in set {
        assert!(!anchor.is_empty() && anchors.insert(anchor.to_owned()), "{anchor} is set twice");
    }
    let headings = page.lines().filter_map(|line| line.strip_prefix("## "));
    anchors.extend(headings.map(|heading| heading.to_lowercase().replace(' ', "-")));
    anchors
}

#[test]
fn every_anchor_that_is_cited_exists() {
    let page = read(PAGE);
    let anchors = anchors(&page);
    let (mark, mut cited) = (format!("{PAGE}#"), 0);
    for file in all_files() {
        let mut here = anchors_behind(&file.text, &mark);
        if file.path == Path::new(PAGE) {
            here.extend(anchors_behind(&page, "](#"));
        }
        for anchor in here {
            assert!(anchors.contains(anchor), "{} cites {PAGE}#{anchor}", file.path.display());
            cited += 1;
        }
    }
    assert!(cited > 40, "{cited}");
}

/// The names in backquotes in a text.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Whether there is a test of this name: a function, or in a suite that names its tests itself that name;
/// with its module, below `tests`, and without one, beside the code.
fn exists(name: &str, tests: &[File], sources: &[File]) -> bool {
    let is_function = |file: &File, function: &str| file.text.contains(&format!("fn {function}("));
    match name.rsplit_once("::") {
        None => sources.iter().any(|file| is_function(file, name)),
        Some((module, function)) => {
            let module = module.rsplit("::").next().unwrap_or(module);
            tests.iter().any(|file| {
                file.is_in_module(module) && is_function(file, function)
                    || file.text.contains(&format!("\"{name}\""))
                    // One test for each of several cases.
                    || file.text.contains(&format!("\"{name}::"))
            })
        }
    }
}

/// Every rule names the tests that show it.
#[test]
fn the_tests_that_the_rules_name_exist() {
    let (page, tests, sources) = (read(PAGE), files(&TESTS), files(&["src"]));
    let mut named = 0;
    for rule in page.split("<a id=\"").skip(1) {
        let anchor = rule.split('"').next().unwrap();
        let shown_by = rule.split("\n\nShown by:").nth(1).unwrap_or_else(|| panic!("{anchor} names no test"));
        for name in quoted(shown_by.split("\n\n").next().unwrap()) {
            assert!(exists(name, &tests, &sources), "{anchor}: there is no test {name}");
            named += 1;
        }
    }
    assert!(named > 200, "{named}");
}

/// What RELIABILITY.md promises, and what the comparisons with others claim, names the tests that show it.
#[test]
fn the_tests_that_the_promises_name_exist() {
    let tests = files(&TESTS);
    let is_name = |word: &&str| word.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '_' | ':'));
    for (page, least) in [("RELIABILITY.md", 30), ("docs/redlock.md", 12), ("docs/redisson.md", 0)] {
        let text = read(page);
        let named: Vec<&str> = quoted(&text).filter(is_name).filter(|word| word.contains("::")).collect();
        assert!(named.len() > least, "{page}: {named:?}");
        for name in named {
            assert!(exists(name, &tests, &[]), "{page}: there is no test {name}");
        }
    }
}

/// A number says nothing to a reader who has no list of them, and changes when the list does.
#[test]
fn rules_are_cited_by_their_anchors() {
    for file in
        files(&["src", "tests", "test-support", "test-server", "simulation/tests", "examples", "docs"])
    {
        for (number, line) in file.text.lines().enumerate() {
            let words: Vec<&str> = line.split([' ', '_', '(', '[']).collect();
            let by_number = words.windows(2).any(|pair| {
                let [what, which] = pair else { return false };
                let what = what.to_lowercase();
                ["rule", "rules", "finding", "findings", "invariant", "invariants"].contains(&what.as_str())
                    && which.starts_with(|c: char| c.is_ascii_digit())
            });
            assert!(!by_number, "{}:{}: {line}", file.path.display(), number + 1);
        }
    }
}
