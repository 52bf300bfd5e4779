//! The pages that explain the locks agree with the code and the tests that cite them: what is cited
//! exists, every rule has a test that shows it, and the tests that other pages name exist.
//!
//! A test says which rules it shows, in a line above it, or above the line that registers it by its
//! name:
//!
//! ```text
//! // Shows: create-and-list, grant
//! #[tokio::test]
//! async fn create_and_list_share_a_flight() {
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::architecture::is_model;
use super::{files_below, read, root, sources, without_unit_tests};

const PAGE: &str = "docs/protocol.md";

/// The directories of tests, in real and in virtual time.
const TESTS: [&str; 4] = [
    "tests",
    "test-support/tests",
    "simulation/tests",
    "zklock/tests",
];

/// The files in which a test may name the rules that it shows.
const MARKED: [&str; 8] = [
    "src",
    "tests",
    "test-support",
    "test-server/src",
    "test-server/tests",
    "simulation/src",
    "simulation/tests",
    "lockbench",
];

/// A text file of the project.
struct File {
    /// Relative to the root.
    path: PathBuf,
    text: String,
}

impl File {
    /// Returns whether a path to the file names a module: its stem, or a directory that it is in.
    fn is_in_module(&self, module: &str) -> bool {
        self.path
            .with_extension("")
            .components()
            .any(|part| part.as_os_str() == module)
    }
}

/// The source files below these directories, and the pages beside them.
fn files(directories: &[&str]) -> Vec<File> {
    let is_text = |path: &PathBuf| {
        path.extension()
            .is_some_and(|extension| ["rs", "md", "py", "java"].iter().any(|e| extension == *e))
    };
    let paths = directories
        .iter()
        .flat_map(|directory| files_below(directory))
        .filter(is_text);
    let found: Vec<_> = paths
        .map(|path| File {
            text: read(&path),
            path,
        })
        .collect();
    assert!(!found.is_empty(), "{directories:?}");
    found
}

/// The places that cite the protocol: the code, the tests and the other pages.
const CITING: [&str; 8] = [
    "src",
    "tests",
    "test-support",
    "test-server",
    "simulation/tests",
    "examples",
    "docs",
    "zklock",
];

/// Returns everything that may cite a page: the code, the tests and the other pages.
fn all_files() -> Vec<File> {
    let mut all = files(&CITING);
    for entry in std::fs::read_dir(root()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "md") {
            let text = std::fs::read_to_string(&path).unwrap();
            all.push(File {
                path: path.strip_prefix(root()).unwrap().to_owned(),
                text,
            });
        }
    }
    all
}

/// Returns the anchors that follow each `mark` in a text.
fn anchors_behind<'a>(text: &'a str, mark: &str) -> Vec<&'a str> {
    text.split(mark)
        .skip(1)
        .map(|rest| {
            let end = rest
                .find(|c: char| !matches!(c, 'a'..='z' | '0'..='9' | '-'))
                .unwrap_or(rest.len());
            &rest[..end]
        })
        .collect()
}

/// Returns the anchors of the page: explicit ones, and those of its headings.
fn anchors(page: &str) -> BTreeSet<String> {
    let set = anchors_behind(page, "<a id=\"");
    let mut anchors = BTreeSet::new();
    for anchor in set {
        assert!(
            !anchor.is_empty() && anchors.insert(anchor.to_owned()),
            "{anchor} is set twice"
        );
    }
    let headings = page.lines().filter_map(|line| line.strip_prefix("## "));
    anchors
        .extend(headings.map(|heading| heading.to_lowercase().replace(' ', "-").replace(',', "")));
    anchors
}

#[test]
fn every_cited_anchor_exists() {
    let page = read(PAGE);
    let anchors = anchors(&page);
    let (mark, mut cited) = (format!("{PAGE}#"), 0);
    for file in all_files() {
        let mut here = anchors_behind(&file.text, &mark);
        if file.path == Path::new(PAGE) {
            here.extend(anchors_behind(&page, "](#"));
        }
        for anchor in here {
            assert!(
                anchors.contains(anchor),
                "{} cites {PAGE}#{anchor}",
                file.path.display()
            );
            cited += 1;
        }
    }
    assert!(cited > 40, "{cited}");
}

/// A reader of a rule finds the code that keeps it. Tests and models do not keep rules.
#[test]
fn every_anchor_is_cited_in_code() {
    let page = read(PAGE);
    let mark = format!("{PAGE}#");
    let code: Vec<String> = sources()
        .iter()
        .filter(|path| !is_model(path))
        .map(|path| without_unit_tests(&read(path)).to_owned())
        .collect();
    let cited: BTreeSet<&str> = code
        .iter()
        .flat_map(|text| anchors_behind(text, &mark))
        .collect();
    let uncited: Vec<_> = anchors_behind(&page, "<a id=\"")
        .into_iter()
        .filter(|anchor| !cited.contains(anchor))
        .collect();
    assert!(uncited.is_empty(), "no code cites {uncited:?}");
}

/// The names in backquotes in a text.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Returns whether a test of this name exists below `tests`: a function of the module, or that name
/// in a suite that names its tests itself.
fn exists(name: &str, tests: &[File]) -> bool {
    let Some((module, function)) = name.rsplit_once("::") else {
        return false;
    };
    let module = module.rsplit("::").next().unwrap_or(module);
    tests.iter().any(|file| {
        file.is_in_module(module) && file.text.contains(&format!("fn {function}("))
            || file.text.contains(&format!("\"{name}\""))
            // The name may stand for one test per case.
            || file.text.contains(&format!("\"{name}::"))
    })
}

/// A rule of the page.
struct Rule {
    title: String,
    /// The first anchor is the rule's; the others are those of its parts.
    anchors: Vec<String>,
}

/// The rules of the page: a line of anchors, then a paragraph that begins with a title in bold.
fn rules(page: &str) -> Vec<Rule> {
    let mut rules: Vec<Rule> = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if !line.starts_with("<a id=\"") {
            continue;
        }
        let anchors: Vec<String> = anchors_behind(line, "<a id=\"")
            .into_iter()
            .map(str::to_owned)
            .collect();
        let title = lines
            .next()
            .and_then(|line| line.strip_prefix("**"))
            .and_then(|line| line.split_once("**"));
        let Some((title, _)) = title else {
            panic!("{}: there is no title below it", anchors[0])
        };
        rules.push(Rule {
            title: title.to_owned(),
            anchors,
        });
    }
    rules
}

/// A test, and the anchors of the rules that it shows.
struct Shown {
    file: PathBuf,
    /// A function, or the name by which a suite registers it.
    test: String,
    anchors: Vec<String>,
}

const MARK: &str = "// Shows: ";

/// Returns the rules that the tests of a file show.
fn shown_by(file: &File) -> Vec<Shown> {
    let (mut found, mut anchors) = (Vec::new(), Vec::new());
    let (mut marked_at, mut is_test) = (0, false);
    for (number, line) in file.text.lines().map(str::trim).enumerate() {
        if let Some(marked) = line.strip_prefix(MARK) {
            anchors.extend(marked.split(',').map(|anchor| anchor.trim().to_owned()));
            (marked_at, is_test) = (number, false);
            continue;
        }
        if anchors.is_empty() || line.starts_with("//") {
            continue;
        }
        let place = || format!("{}:{}", file.path.display(), marked_at + 1);
        assert!(
            !line.is_empty() && number < marked_at + 8,
            "{}: no test is below it",
            place()
        );
        is_test |= line.starts_with("#[") && line.contains("test");
        let registered = line
            .split('"')
            .skip(1)
            .step_by(2)
            .find(|text| text.contains("::"));
        let function = line
            .split_once("fn ")
            .and_then(|(_, rest)| rest.split_once('('));
        let test = if line.starts_with("#[") {
            continue;
        } else if let Some((function, _)) = function {
            // A behaviour of the suite is in a list of the file.
            let words = file.text.split(|c: char| !c.is_alphanumeric() && c != '_');
            let is_listed = words.filter(|word| *word == function).count() > 1;
            assert!(is_test || is_listed, "{}: {function} is no test", place());
            function
        } else if let Some(name) = registered {
            name
        } else {
            continue;
        };
        let anchors = std::mem::take(&mut anchors);
        found.push(Shown {
            file: file.path.clone(),
            test: test.to_owned(),
            anchors,
        });
    }
    assert!(
        anchors.is_empty(),
        "{}: no test is below the last mark",
        file.path.display()
    );
    found
}

fn all_shown() -> Vec<Shown> {
    let mut files = files(&MARKED);
    files.sort_by(|one, other| one.path.cmp(&other.path));
    files
        .iter()
        .filter(|file| file.path.extension().is_some_and(|it| it == "rs"))
        .flat_map(shown_by)
        .collect()
}

/// Prints each rule with the files and the names of the tests that show it, if the check passes.
#[test]
fn every_rule_has_a_test() {
    let shown = all_shown();
    let rules = rules(&read(PAGE));
    let known: BTreeSet<&String> = rules.iter().flat_map(|rule| &rule.anchors).collect();
    for Shown {
        file,
        test,
        anchors,
    } in &shown
    {
        let unknown = anchors.iter().find(|anchor| !known.contains(anchor));
        assert!(
            unknown.is_none(),
            "{}: {test} shows {unknown:?}",
            file.display()
        );
    }
    for rule in &rules {
        println!("\n{}", rule.title);
        for anchor in &rule.anchors {
            let mut tests: BTreeMap<&Path, Vec<&str>> = BTreeMap::new();
            for Shown { file, test, .. } in shown.iter().filter(|it| it.anchors.contains(anchor)) {
                tests.entry(file).or_default().push(test);
            }
            assert!(!tests.is_empty(), "no test shows {PAGE}#{anchor}");
            for (file, tests) in tests {
                println!("#{anchor}, {}: {}", file.display(), tests.join(", "));
            }
        }
    }
    assert!(shown.len() > 600, "{}", shown.len());
}

/// The promises of RELIABILITY.md, and the claims of the comparisons with others, name the tests
/// that show them.
#[test]
fn promised_tests_exist() {
    let tests = files(&TESTS);
    let is_name = |word: &&str| {
        word.chars()
            .all(|c| matches!(c, 'a'..='z' | '0'..='9' | '_' | ':'))
    };
    for (page, least) in [
        ("RELIABILITY.md", 30),
        ("docs/migrating/redlock.md", 12),
        ("docs/migrating/redisson.md", 0),
        ("zklock/README.md", 2),
    ] {
        let text = read(page);
        let named: Vec<&str> = quoted(&text)
            .filter(is_name)
            .filter(|word| word.contains("::"))
            .collect();
        assert!(named.len() > least, "{page}: {named:?}");
        for name in named {
            assert!(exists(name, &tests), "{page}: there is no test {name}");
        }
    }
}
