//! The pages that say how the locks work, and the code and the tests that cite them, agree: what is
//! cited exists, every rule has a test that shows it, and the tests that other pages name exist.
//!
//! A test says which rules it shows, in a line above it, or above the line that registers it by its
//! name:
//!
//! ```text
//! // Shows: create-and-list, grant
//! #[tokio::test]
//! async fn create_and_list_go_out_in_one_flight() {
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

use super::{assert_written, files_below, read, root};

const PAGE: &str = "docs/protocol.md";

/// Where tests are, in real and in virtual time.
const TESTS: [&str; 4] = [
    "tests",
    "test-support/tests",
    "simulation/tests",
    "zklock/tests",
];

/// The tests of each rule, as a page.
const TESTS_PAGE: &str = "docs/protocol-tests.md";

/// Where a test may say which rules it shows.
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
    /// Whether a path to the file names a module: its stem, or a directory that it is in.
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

/// Where the protocol is cited: the code, the tests and the other pages.
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

/// All that may cite a page: the code, the tests and the other pages.
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

/// What stands behind each `mark` in a text, as long as it is an anchor's.
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

/// The anchors of the page: those that are set, and those of its headings.
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

/// The names in backquotes in a text.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Whether there is a test of this name below `tests`: a function of the module, or in a suite that
/// names its tests itself that name.
fn exists(name: &str, tests: &[File]) -> bool {
    let Some((module, function)) = name.rsplit_once("::") else {
        return false;
    };
    let module = module.rsplit("::").next().unwrap_or(module);
    tests.iter().any(|file| {
        file.is_in_module(module) && file.text.contains(&format!("fn {function}("))
            || file.text.contains(&format!("\"{name}\""))
            // One test for each of several cases.
            || file.text.contains(&format!("\"{name}::"))
    })
}

/// A rule of the page.
struct Rule {
    title: String,
    /// The first is the rule's; the others are those of its parts.
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

/// A test, and the anchors of the rules that it says it shows.
struct Shown {
    file: PathBuf,
    /// A function, or the name by which a suite registers it.
    test: String,
    anchors: Vec<String>,
}

const MARK: &str = "// Shows: ";

/// What the tests of a file say.
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

#[test]
fn every_rule_has_a_test_and_every_test_shows_rules_that_exist() {
    let (page, shown) = (read(PAGE), all_shown());
    let known: BTreeSet<String> = rules(&page)
        .into_iter()
        .flat_map(|rule| rule.anchors)
        .collect();
    let mut without_test = known.clone();
    for Shown {
        file,
        test,
        anchors,
    } in &shown
    {
        for anchor in anchors {
            assert!(
                known.contains(anchor),
                "{}: {test} shows {PAGE}#{anchor}",
                file.display()
            );
            without_test.remove(anchor);
        }
    }
    assert!(without_test.is_empty(), "no test shows {without_test:?}");
    assert!(shown.len() > 600, "{}", shown.len());
}

/// For each rule the tests that show it, file by file.
fn tests_page() -> String {
    let mut page = "\
# The tests that show each rule

Each rule of [the protocol](protocol.md) with its tests, and the file of each test. This page is written by
`WRITE_PAGES=1 cargo test --test surface` from the lines `// Shows: ..` above the tests: change those.
"
    .to_owned();
    let shown = all_shown();
    for rule in rules(&read(PAGE)) {
        let mut tests: BTreeMap<&Path, Vec<&str>> = BTreeMap::new();
        for Shown { file, test, .. } in shown.iter().filter(|shown| {
            shown
                .anchors
                .iter()
                .any(|anchor| rule.anchors.contains(anchor))
        }) {
            tests.entry(file).or_default().push(test);
        }
        // Writing to a string does not fail.
        let _ = writeln!(
            page,
            "\n**[{}](protocol.md#{})**",
            rule.title.trim_end_matches('.'),
            rule.anchors[0]
        );
        for (file, mut tests) in tests {
            tests.dedup();
            let mut line = format!("- [{0}](../{0}):", file.display());
            for (test, is_last) in tests
                .iter()
                .zip((1..=tests.len()).map(|number| number == tests.len()))
            {
                let word = format!(" `{test}`{}", if is_last { "" } else { "," });
                if line.len() + word.len() > 110 {
                    page += &line;
                    page.push('\n');
                    line = " ".to_owned();
                }
                line += &word;
            }
            page += &line;
            page.push('\n');
        }
    }
    page
}

#[test]
fn the_page_of_tests_is_up_to_date() {
    assert_written(TESTS_PAGE, &tests_page());
}

/// What RELIABILITY.md promises, and what the comparisons with others claim, names the tests that
/// show it.
#[test]
fn the_tests_that_the_promises_name_exist() {
    let tests = files(&TESTS);
    let is_name = |word: &&str| {
        word.chars()
            .all(|c| matches!(c, 'a'..='z' | '0'..='9' | '_' | ':'))
    };
    for (page, least) in [
        ("RELIABILITY.md", 30),
        ("docs/redlock.md", 12),
        ("docs/redisson.md", 0),
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
