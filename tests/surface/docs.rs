//! Rules for the documentation of public items: examples, sections, plain words.

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

/// Returns the attributes of each example after its opening fence: none, or `compile_fail`,
/// `no_run`, `sql` and others.
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
        // The block is an invocation of a macro: `/// docs` and a name.
        in_macro = line.ends_with("! {") && !line.starts_with(' ') || in_macro && line != "}";
        docs.clear();
    }
    items
}

/// The number of types with examples, which must not shrink.
const TYPES_WITH_EXAMPLES: usize = 51;
const METHODS_WITH_EXAMPLES: usize = 76;

#[test]
fn public_types_have_examples() {
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
fn fallible_cancellable_calls_say_how() {
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
const COMPARISONS: [&str; 2] = ["docs/migrating/redisson.md", "docs/migrating/redlock.md"];

/// Each section of theirs has an example that runs, or names the tests that show what it says.
#[test]
fn comparisons_have_examples_or_tests() {
    for page in COMPARISONS {
        let text = read(page);
        let sections: Vec<&str> = text.split("\n## ").skip(1).collect();
        assert!(sections.len() >= 4, "{page}: {}", sections.len());
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

/// Every method of Redisson's `RLock`, and every rule of Redlock, is on its page.
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
    names("docs/migrating/redisson.md", &of_lock);
    names("docs/migrating/redisson.md", &of_rlock);
    let of_redlock = [
        "independent",
        "`SET name value NX PX ttl`",
        "majority",
        "timeout",
        "drift",
        "random value",
    ];
    names("docs/migrating/redlock.md", &of_redlock);
    names(
        "docs/migrating/redlock.md",
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

/// The pages of the repository, apart from those of others.
fn pages() -> Vec<PathBuf> {
    let is_page = |file: &PathBuf| file.extension().is_some_and(|extension| extension == "md");
    let directories = [
        "docs",
        "simulation",
        "test-server",
        "zk-test-server",
        "zklock",
        "examples",
    ];
    let below = directories.into_iter().flat_map(files_below);
    let top = [
        "README",
        "ARCHITECTURE",
        "CONTRIBUTING",
        "PERFORMANCE",
        "RELIABILITY",
    ];
    let top = top.map(|name| PathBuf::from(format!("{name}.md")));
    let is_ours = |file: &PathBuf| !file.starts_with("simulation/zookeeper-client");
    below.filter(is_page).filter(is_ours).chain(top).collect()
}

/// The pages that are modules of the documentation, as `pages!` of `src/lib.rs` lists them.
fn pages_of_documentation() -> Vec<String> {
    let lib = read("src/lib.rs");
    let (_, list) = lib.split_once("\npages! {\n").unwrap();
    let (list, _) = list.split_once("\n}\n").unwrap();
    let files = list.split('"').skip(1).step_by(2);
    files
        .map(|file| file.trim_start_matches("../").to_owned())
        .collect()
}

/// Returns the rows that stand without the head of their table, as after an empty line: the first
/// row of a table is its head, and the line below that is the separator.
fn rows_without_head(page: &str) -> Vec<&str> {
    let prose: Vec<&str> = page.split("```").step_by(2).collect();
    let lines: Vec<&str> = prose.iter().flat_map(|part| part.lines()).collect();
    let is_row = |line: &str| line.starts_with('|');
    let mut found = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let is_first = number
            .checked_sub(1)
            .and_then(|above| lines.get(above))
            .is_none_or(|above| !is_row(above));
        let has_separator = lines
            .get(number + 1)
            .is_some_and(|below| below.starts_with("|-"));
        if is_row(line) && is_first && !has_separator {
            found.push(*line);
        }
    }
    found
}

#[test]
fn finds_rows_without_head() {
    let whole = "| a | b |\n|---|---|\n| 1 | 2 |\n";
    let cut = format!("{whole}\n| 3 | 4 |\n| 5 | 6 |\n\n{whole}");
    assert_eq!(rows_without_head(&cut), ["| 3 | 4 |"]);
    let output = format!("{whole}```text\n| 7 |\n```\n");
    assert_eq!(rows_without_head(&output), [""; 0]);
}

/// An empty line ends a table, and the rows below it are shown as text.
#[test]
fn tables_are_whole() {
    let mut tables = 0;
    for page in pages() {
        let text = read(&page);
        let found = rows_without_head(&text);
        assert!(found.is_empty(), "{}: {found:#?}", page.display());
        tables += text.matches("\n|---").count();
    }
    assert!(tables > 50, "{tables} found");
}

/// The labels and targets of the link definitions of a page.
fn definitions(page: &str) -> Vec<(&str, &str)> {
    page.lines()
        .filter_map(|line| line.strip_prefix('[')?.split_once("]: "))
        .collect()
}

/// A link works on a code host by the definition at the end of its page, and in the built
/// documentation by that of docs/links.md, which is included first.
#[test]
fn links_work_on_both_hosts() {
    let links = read("docs/links.md");
    let inside = definitions(&links);
    let mut checked = 0;
    for page in pages_of_documentation() {
        let text = read(&page);
        let prose: String = text.split("```").step_by(2).collect();
        for target in prose.split("](").skip(1) {
            let target = target.split(')').next().unwrap_or_default();
            let is_found = target.starts_with('#') || target.starts_with("https://");
            assert!(is_found, "{page}: {target} is no link of both");
        }
        let outside = definitions(&text);
        for (label, target) in &outside {
            let (_, inner) = inside
                .iter()
                .find(|(it, _)| it == label)
                .unwrap_or_else(|| panic!("{page}: docs/links.md lacks [{label}]"));
            if let Some(file) = target.split('#').next().filter(|it| it.ends_with(".md")) {
                let file = Path::new(&page).with_file_name(file);
                assert!(super::root().join(&file).exists(), "{page}: {target}");
            } else {
                assert!(target.starts_with("https://"), "{page}: {target}");
                let name = inner.rsplit(['#', ':']).next().unwrap_or_default();
                assert!(target.contains(name), "{page}: {target} is not {inner}");
            }
            checked += 1;
        }
        let used = prose.split("][").skip(1).map(|rest| (rest, false));
        let used = used.chain(prose.split("[`").skip(1).map(|rest| (rest, true)));
        for (rest, is_code) in used {
            let (label, after) = rest.split_once(']').unwrap_or_default();
            // An inline link, or the text of a link whose label follows.
            if is_code && after.starts_with(['(', '[', ':']) {
                continue;
            }
            let label = format!("{}{label}", if is_code { "`" } else { "" });
            let is_defined = outside.iter().any(|(it, _)| *it == label);
            assert!(is_defined, "{page} lacks [{label}]: ..");
        }
    }
    assert!(checked > 100, "{checked}");
}

/// The word after a phrase, without the punctuation behind it.
fn word_after<'a>(text: &'a str, phrase: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(phrase)?;
    let word = rest.split_whitespace().next()?;
    Some(word.trim_end_matches([',', '.', ':', ';']))
}

/// Returns the parts that a section with measurements must state, and does not.
fn missing_of_measurement(text: &str) -> Vec<&'static str> {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let is_date = |word: &str| {
        let mut parts = word.split('-').map(str::len);
        parts.by_ref().eq([4, 2, 2]) && word.chars().all(|c| c.is_ascii_digit() || c == '-')
    };
    let is_commit = |word: &str| word.len() == 7 && word.chars().all(|c| c.is_ascii_hexdigit());
    let date = word_after(&text, "easured on ").is_some_and(is_date);
    let commit = word_after(&text, " at commit ").is_some_and(is_commit);
    let machine = ["processors", "cores"].iter().any(|it| text.contains(it));
    [("date", date), ("commit", commit), ("machine", machine)]
        .into_iter()
        .filter_map(|(what, is_there)| (!is_there).then_some(what))
        .collect()
}

#[test]
fn measurement_needs_date_commit_machine() {
    let whole = "Measured on 2026-11-25 at commit 9671b12, on two processors.";
    assert!(missing_of_measurement(whole).is_empty());
    let without = "Measured on a quiet day at commit main.";
    assert_eq!(
        missing_of_measurement(without),
        ["date", "commit", "machine"]
    );
}

/// A column of figures is aligned to the right, so a table with one holds measurements.
#[test]
fn measured_tables_name_date_commit_machine() {
    let mut tables = 0;
    for page in pages() {
        let text = read(&page);
        let mut sections = text.split("\n## ");
        let intro = sections.next().unwrap_or_default();
        for section in sections {
            if section.contains("---:|") {
                let missing = missing_of_measurement(&format!("{intro} {section}"));
                let title = section.lines().next().unwrap_or_default();
                assert!(
                    missing.is_empty(),
                    "{}: {title}: no {missing:?}",
                    page.display()
                );
                tables += 1;
            }
        }
    }
    assert!(tables >= 4, "{tables} found");
}

/// An error answers each caller's questions: which lock or node is it about, and is it worth
/// another try?
#[test]
fn every_error_names_path_and_retryability() {
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
