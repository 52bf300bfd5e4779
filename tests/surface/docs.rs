//! What the documentation of the public items has to have: examples, sections, plain words.

use std::path::{Path, PathBuf};

use super::architecture::public_names;
use super::{files_below, read, sources, without_unit_tests};

/// A public item with the documentation above it.
pub(super) struct Item {
    pub(super) file: PathBuf,
    /// The line of its declaration, up to its body.
    pub(super) declaration: String,
    docs: Vec<String>,
}

impl Item {
    fn is_method(&self) -> bool {
        self.declaration.split_whitespace().any(|word| word == "fn")
    }

    fn is_asynchronous(&self) -> bool {
        self.declaration.contains("async fn") || self.declaration.contains("impl Future<")
    }

    fn has(&self, heading: &str) -> bool {
        self.docs.iter().any(|line| line.trim() == heading)
    }

    fn has_example(&self) -> bool {
        !examples(&self.docs).is_empty()
    }

    pub(super) fn name(&self) -> String {
        format!("{}: {}", self.file.display(), self.declaration)
    }
}

/// What each example has after its opening fence: nothing, or `compile_fail`, `no_run`, `sql` ..
fn fences(docs: &[String]) -> Vec<&str> {
    docs.iter()
        .filter_map(|line| line.trim().strip_prefix("```"))
        .step_by(2)
        .map(str::trim)
        .collect()
}

/// The examples that are run.
fn examples(docs: &[String]) -> Vec<&str> {
    fences(docs)
        .into_iter()
        .filter(|fence| matches!(*fence, "" | "rust"))
        .collect()
}

/// The text of a line of documentation.
fn documentation(line: &str) -> Option<&str> {
    let line = line.trim_start();
    line.strip_prefix("///")
        .or_else(|| line.strip_prefix("//!"))
}

/// All public types, traits and methods. A method that a macro makes for several types counts once.
pub(super) fn items() -> Vec<Item> {
    let exported = public_names();
    sources()
        .iter()
        .flat_map(|file| items_of(file, &exported))
        .collect()
}

fn items_of(file: &Path, exported: &[String]) -> Vec<Item> {
    let (mut items, mut docs, mut attribute) = (Vec::new(), Vec::new(), false);
    let (mut in_trait, mut in_macro) = (false, false);
    let text = read(file);
    let mut lines = without_unit_tests(&text).lines();
    while let Some(line) = lines.next() {
        let trimmed = line.trim();
        if trimmed.starts_with("///") {
            docs.extend(documentation(line).map(str::to_owned));
            continue;
        }
        if attribute || trimmed.starts_with("#[") {
            attribute = !trimmed.ends_with(']');
            continue;
        }
        let mut declaration = trimmed.to_owned();
        let words: Vec<&str> = trimmed
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .collect();
        let public = match &words[..] {
            ["pub", "struct" | "enum" | "trait" | "type", name, ..] => {
                exported.iter().any(|e| e == name)
            }
            ["pub", rest @ ..] if !trimmed.starts_with("pub(") => {
                rest.iter().take(3).any(|word| *word == "fn")
            }
            [name, ..] if in_macro && exported.iter().any(|e| e == name) => true,
            rest => in_trait && rest.iter().take(2).any(|word| *word == "fn"),
        };
        if public {
            while !in_macro && !declaration.ends_with(['{', ';', '}']) {
                let Some(line) = lines.next() else { break };
                declaration = format!("{declaration} {}", line.trim());
            }
            items.push(Item {
                file: file.to_owned(),
                declaration,
                docs: std::mem::take(&mut docs),
            });
        }
        in_trait = line.starts_with("pub trait") || in_trait && line != "}";
        // What a macro is called with: `/// docs` and a name.
        in_macro = line.ends_with("! {") && !line.starts_with(' ') || in_macro && line != "}";
        docs.clear();
    }
    items
}

/// As many as there are: a new type or method does not lower them.
const TYPES_WITH_EXAMPLES: usize = 51;
const METHODS_WITH_EXAMPLES: usize = 76;

#[test]
fn what_people_hold_has_examples() {
    let (methods, types): (Vec<_>, Vec<_>) = items().into_iter().partition(Item::is_method);
    for (items, least) in [
        (types, TYPES_WITH_EXAMPLES),
        (methods, METHODS_WITH_EXAMPLES),
    ] {
        let (with, without): (Vec<_>, Vec<_>) = items.into_iter().partition(Item::has_example);
        let without: Vec<String> = without.iter().map(Item::name).collect();
        println!(
            "{} have an example, {} have none:\n  {}",
            with.len(),
            without.len(),
            without.join("\n  ")
        );
        assert!(
            with.len() >= least,
            "{} have an example, {least} had one",
            with.len()
        );
    }
}

/// An example that is not run may be wrong. Signals are the exception: they would end the tests.
#[test]
fn examples_run() {
    for item in items() {
        for fence in fences(&item.docs) {
            let signal = item.docs.iter().any(|line| line.contains("ctrl_c"));
            assert!(
                !fence.contains("ignore") && (signal || fence != "no_run"),
                "{}",
                item.name()
            );
        }
    }
}

#[test]
fn what_may_fail_or_be_cancelled_says_how() {
    let methods: Vec<Item> = items().into_iter().filter(Item::is_method).collect();
    assert!(methods.len() > 90, "{} found", methods.len());
    for method in methods {
        let fails = method.declaration.contains("-> Result<")
            || method.declaration.contains("Output = Result<");
        assert!(
            !fails || method.has("# Errors"),
            "{} has no section on errors",
            method.name()
        );
        let cancellable = method.is_asynchronous();
        assert!(
            !cancellable || method.has("# Cancel safety"),
            "{} has none on cancelling",
            method.name()
        );
    }
}

/// Words that make a reader stop: who is meant, and what is "there"?
const RIDDLES: [&str; 6] = [
    "as they say",
    "as there.",
    "nobody",
    "somebody",
    "whoever",
    "answers with ",
];

fn riddles_in(file: &Path, text: &str) -> Vec<String> {
    let text = text.to_lowercase();
    let riddles = RIDDLES.iter().filter(|riddle| text.contains(**riddle));
    riddles
        .map(|riddle| format!("{}: {riddle}", file.display()))
        .collect()
}

/// The comments of a source file, without those of its unit tests.
fn comments(text: &str) -> impl Iterator<Item = &str> {
    let text = without_unit_tests(text);
    text.lines()
        .map(str::trim)
        .filter(|line| line.starts_with("//"))
}

/// The comments of a source file as one text, since a phrase may go over the end of a line.
fn comment_text(text: &str) -> String {
    let lines: Vec<&str> = comments(text)
        .map(|line| line.trim_start_matches(['/', '!']).trim())
        .collect();
    lines.join(" ")
}

/// The other source files whose comments are read.
const MORE: [&str; 7] = [
    "examples",
    "lockbench/src",
    "plotter/src",
    "service/src",
    "test-server/src",
    "zk-test-server/src",
    "zklock/src",
];

#[test]
fn comments_are_plain() {
    let mut found = Vec::new();
    for file in [sources(), MORE.map(files_below).concat()].concat() {
        let text = read(&file);
        found.extend(riddles_in(&file, &comment_text(&text)));
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// The pages that compare the locks with others.
const COMPARISONS: [&str; 2] = ["docs/redisson.md", "docs/redlock.md"];

/// Each section of theirs has an example that runs, or names the tests that show what it says.
#[test]
fn comparisons_show_what_they_say() {
    for page in COMPARISONS {
        let text = read(page);
        let sections: Vec<&str> = text.split("\n## ").skip(1).collect();
        assert!(sections.len() >= 8, "{page}: {}", sections.len());
        for section in sections {
            let lines: Vec<String> = section.lines().map(str::to_owned).collect();
            let is_test = |word: &str| word.contains("::") && !word.contains(char::is_uppercase);
            let shown =
                !examples(&lines).is_empty() || section.split('`').skip(1).step_by(2).any(is_test);
            assert!(shown, "{page}: {}", lines[0]);
            assert!(
                fences(&lines)
                    .iter()
                    .all(|fence| ["", "text"].contains(fence)),
                "{page}: {}",
                lines[0]
            );
        }
    }
}

/// Every method of Redisson's `RLock`, and every rule of RedLock, is on its page.
#[test]
fn comparisons_leave_nothing_out() {
    let names = |page: &str, all: &[&str]| {
        let text = read(page);
        // The summaries are tables.
        let rows: String = text.lines().filter(|line| line.starts_with('|')).collect();
        for name in all {
            assert!(rows.contains(name), "{page} has no {name}");
        }
    };
    let of_lock = [
        "`lock()`",
        "`lockInterruptibly()`",
        "`tryLock()`",
        "`tryLock(wait, unit)`",
        "`unlock()`",
    ];
    let of_rlock = [
        "`getName()`",
        "`lockInterruptibly(lease, unit)`",
        "`tryLock(wait, lease, unit)`",
        "`lock(lease, unit)`",
        "`forceUnlock()`",
        "`isLocked()`",
        "`isHeldByThread(id)`",
        "`isHeldByCurrentThread()`",
        "`getHoldCount()`",
        "`remainTimeToLive()`",
    ];
    names("docs/redisson.md", &of_lock);
    names("docs/redisson.md", &of_rlock);
    let of_redlock = [
        "independent",
        "`SET name value NX PX ttl`",
        "majority",
        "timeout",
        "drift",
        "random value",
    ];
    names("docs/redlock.md", &of_redlock);
    names(
        "docs/redlock.md",
        &[
            "random delay",
            "unlock on all",
            "extend",
            "`fsync`",
            "fencing token",
        ],
    );
}

#[test]
fn pages_are_plain() {
    let pages = [
        "README.md",
        "CHANGELOG.md",
        "RELIABILITY.md",
        "PERFORMANCE.md",
        "ARCHITECTURE.md",
        "zklock/README.md",
    ];
    let pages = [
        &pages[..],
        &["test-server/README.md", "zk-test-server/README.md"],
        &COMPARISONS,
    ]
    .concat();
    let riddles = |page: &&str| {
        let words: Vec<String> = read(page).split_whitespace().map(str::to_owned).collect();
        riddles_in(Path::new(page), &words.join(" "))
    };
    let found: Vec<String> = pages.iter().flat_map(riddles).collect();
    assert!(found.is_empty(), "{found:#?}");
}

/// Phrases with the number of times that the comments of the library and the pages may contain
/// them. A sentence with one of them is correct, and a page of such sentences is hard to read,
/// because each lacks a noun or a verb: "is told" does not say who notifies whom, "of its own"
/// means *separate* or *its own*, "one that" and "those that" stand for a noun that the reader must
/// find. The numbers are those of the last revision: lower them, and do not raise them.
const HEAVY: [(&str, usize, usize); 12] = [
    ("told", 10, 6),
    ("of its own", 9, 11),
    ("of their own", 1, 0),
    ("those that", 10, 0),
    ("those who", 0, 0),
    ("one that", 19, 5),
    ("notes that", 3, 0),
    ("has to", 21, 3),
    ("is over", 31, 9),
    ("beside", 0, 16),
    ("for ever", 1, 4),
    ("anew", 1, 7),
];

/// How often a phrase occurs as whole words, whatever the case and the punctuation around them.
fn occurrences(text: &str, phrase: &str) -> usize {
    let words: Vec<String> = text
        .split_whitespace()
        .map(|word| {
            word.trim_matches(|c: char| !c.is_alphanumeric())
                .to_lowercase()
        })
        .collect();
    let phrase: Vec<&str> = phrase.split(' ').collect();
    words
        .windows(phrase.len())
        .filter(|window| window.iter().eq(phrase.iter()))
        .count()
}

#[test]
fn occurrences_are_whole_words() {
    assert_eq!(
        occurrences(
            "It is *told*, told-apart; a loss\n(of its own) retold",
            "told"
        ),
        1
    );
    assert_eq!(
        occurrences("A loss of its\nown. Of its own!", "of its own"),
        2
    );
}

#[test]
fn heavy_phrases_do_not_come_back() {
    let others = [
        "README",
        "ARCHITECTURE",
        "CHANGELOG",
        "CONTRIBUTING",
        "PERFORMANCE",
        "RELIABILITY",
    ]
    .iter()
    .chain(&[
        "examples/README",
        "simulation/README",
        "simulation/mutants",
        "simulation/planted/README",
    ])
    .chain(&[
        "simulation/reverted/README",
        "test-server/README",
        "zklock/README",
    ])
    .chain(&["zk-test-server/README"])
    .map(|name| PathBuf::from(format!("{name}.md")));
    let is_page = |file: &PathBuf| file.extension().is_some_and(|extension| extension == "md");
    let pages: Vec<String> = files_below("docs")
        .into_iter()
        .filter(is_page)
        .chain(others)
        .map(read)
        .collect();
    assert!(pages.len() > 20, "{} pages", pages.len());
    let comments: Vec<String> = sources()
        .iter()
        .map(|file| comment_text(&read(file)))
        .collect();
    for (phrase, in_comments, in_pages) in HEAVY {
        let count = |texts: &[String]| -> usize {
            texts.iter().map(|text| occurrences(text, phrase)).sum()
        };
        let (comments, pages) = (count(&comments), count(&pages));
        println!("{phrase:?}: {comments} in comments, {pages} in pages");
        assert!(
            comments <= in_comments,
            "{phrase:?} occurs {comments} times in comments, not {in_comments}"
        );
        assert!(
            pages <= in_pages,
            "{phrase:?} occurs {pages} times in pages, not {in_pages}"
        );
    }
}

/// The comments outside of the library are wrapped at 100 columns.
#[test]
fn comments_are_wrapped() {
    for file in MORE.map(files_below).concat() {
        let text = read(&file);
        let is_comment = |line: &&str| line.trim_start().starts_with("//") && !line.contains("| ");
        for line in text.lines().filter(is_comment) {
            assert!(line.chars().count() <= 100, "{}: {line}", file.display());
        }
    }
}

/// What every caller asks of an error: which lock or node is it about, and is it worth another try?
#[test]
fn every_error_says_of_which_path_and_whether_to_try_again() {
    let mut errors = 0;
    for file in sources()
        .into_iter()
        .filter(|file| file.starts_with("src/error"))
    {
        let text = read(&file);
        for declaration in text.split("Error)]\n").skip(1) {
            let declaration = declaration.split("\npub ").nth(1).unwrap_or_default();
            let name = declaration
                .split(|c: char| !c.is_alphanumeric())
                .nth(1)
                .unwrap_or_default();
            let methods = [
                format!("\nimpl {name} {{"),
                format!("\nimpl<G> {name}<G> {{"),
            ];
            let methods = methods
                .iter()
                .find_map(|start| text.split(start.as_str()).nth(1));
            let methods = methods
                .and_then(|methods| methods.split("\n}").next())
                .unwrap_or_default();
            for question in ["pub fn path(&self)", "pub fn is_retryable(&self)"] {
                assert!(
                    methods.contains(question),
                    "{}: {name} has no `{question}`",
                    file.display()
                );
            }
            errors += 1;
        }
    }
    assert!(errors >= 11, "{errors} found");
}
