//! The layers of ARCHITECTURE.md, read from the imports in the source of the library.
//!
//! A file may import from its own layer and from lower ones, and no files import each other in a
//! circle, nor do folders. The file that defines the imported item counts: a re-export is followed,
//! and is no import by itself unless the file that re-exports also uses the name. Comments, strings
//! and code under `#[cfg(test)]` do not count.
//!
//! ```text
//! faces (src/*.rs, src/locks, src/recipes)  ->  src/engine  ->  src/session  ->  src/protocol (pure)  ->  values
//! ```

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::fmt;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::{read, sources, without_unit_tests};

/// The face that takes an object of the client library from the user: a session, or a connector.
const CLIENT: &str = "src/client.rs";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Layer {
    Values,
    Protocol,
    Session,
    Engine,
    Faces,
}

impl Layer {
    fn of(file: &str) -> Self {
        let Some((directory, _)) = file.trim_start_matches("src/").split_once('/') else {
            return Self::Faces;
        };
        match directory {
            "locks" | "recipes" => Self::Faces,
            "engine" => Self::Engine,
            "session" => Self::Session,
            "protocol" => Self::Protocol,
            "values" | "error" => Self::Values,
            _ => panic!("{file}: src/{directory} is in none of the layers of ARCHITECTURE.md"),
        }
    }
}

/// An import, or a use of a path that starts at `crate`, `self`, `super`, a child module or an
/// imported module.
#[derive(Clone, Debug)]
struct Import {
    from: String,
    line: usize,
    to: String,
    path: String,
}

impl fmt::Display for Import {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{} imports {} (`{}`)",
            self.from, self.line, self.to, self.path
        )
    }
}

/// A name that a module imports by `use`.
#[derive(Debug)]
struct Used {
    /// The local name; `None` for `*` and for `as _`.
    name: Option<String>,
    segments: Vec<String>,
    line: usize,
    is_reexport: bool,
}

/// A path in code.
#[derive(Debug)]
struct Named {
    segments: Vec<String>,
    line: usize,
}

#[derive(Debug, Default)]
struct Module {
    file: String,
    children: HashSet<String>,
    uses: Vec<Used>,
    paths: Vec<Named>,
    /// All identifiers outside `use`.
    names: HashSet<String>,
}

/// The modules of the library without its unit tests, by their paths from the crate's root.
#[derive(Debug, Default)]
struct Modules {
    all: BTreeMap<Vec<String>, Module>,
    /// Files of modules that are compiled for unit tests only.
    for_tests: HashSet<String>,
}

impl Modules {
    fn read() -> Self {
        let mut modules = Self::default();
        modules.read_file(&[], "src/lib.rs");
        let known: HashSet<&str> = modules
            .all
            .values()
            .map(|module| module.file.as_str())
            .chain(modules.for_tests.iter().map(String::as_str))
            .collect();
        for file in sources() {
            let file = file.to_str().unwrap();
            assert!(
                known.contains(file),
                "{file} is in no module that this test found"
            );
        }
        modules
    }

    fn read_file(&mut self, path: &[String], file: &str) {
        let tokens: TokenStream = read(file)
            .parse()
            .unwrap_or_else(|error| panic!("{file}: {error}"));
        self.read_module(path, file, tokens);
    }

    fn read_module(&mut self, path: &[String], file: &str, tokens: TokenStream) {
        self.all.insert(
            path.to_vec(),
            Module {
                file: file.to_owned(),
                ..Module::default()
            },
        );
        self.read_tokens(path, &tokens.into_iter().collect::<Vec<_>>());
    }

    fn read_tokens(&mut self, path: &[String], tokens: &[TokenTree]) {
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            match token {
                TokenTree::Punct(_) if is_test_attribute(&tokens[at..]) => {
                    let item = &tokens[at + 2..];
                    let end = item.iter().position(ends_item).unwrap_or(item.len() - 1);
                    self.note_test_file(path, &item[..end]);
                    at += 2 + end;
                }
                TokenTree::Ident(word) if *word == "use" && !is_punct(tokens.get(at + 1), '<') => {
                    let end = at
                        + tokens[at..]
                            .iter()
                            .position(|token| is_punct(Some(token), ';'))
                            .unwrap();
                    let is_reexport = is_public(&tokens[..at]);
                    read_use(&tokens[at + 1..end], &[], &mut |name, segments, line| {
                        let module = self.all.get_mut(path).unwrap();
                        module.uses.push(Used {
                            name,
                            segments,
                            line,
                            is_reexport,
                        });
                    });
                    at = end;
                }
                // The token must not be `mod $name` of a macro.
                TokenTree::Ident(word) if *word == "mod" && !is_punct(tokens.get(at + 1), '$') => {
                    let Some(TokenTree::Ident(name)) = tokens.get(at + 1) else {
                        panic!("a module's name")
                    };
                    let child: Vec<String> =
                        path.iter().cloned().chain([name.to_string()]).collect();
                    let parent = self.all.get_mut(path).unwrap();
                    parent.children.insert(name.to_string());
                    let file = parent.file.clone();
                    match tokens.get(at + 2) {
                        Some(TokenTree::Group(body)) => {
                            self.read_module(&child, &file, body.stream());
                        }
                        _ => self.read_file(&child, &file_of(&file, &name.to_string())),
                    }
                    at += 2;
                }
                TokenTree::Ident(first) => {
                    let mut segments = vec![first.to_string()];
                    let line = first.span().start().line;
                    while let Some(next) = next_segment(&tokens[at..]) {
                        segments.push(next);
                        at += 3;
                    }
                    let module = self.all.get_mut(path).unwrap();
                    module.names.insert(segments[0].clone());
                    module.paths.push(Named { segments, line });
                }
                TokenTree::Group(group) => {
                    self.read_tokens(path, &group.stream().into_iter().collect::<Vec<_>>());
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
            at += 1;
        }
    }

    /// Records an item under `#[cfg(test)]`: the file, if it is a module that has one.
    fn note_test_file(&mut self, path: &[String], item: &[TokenTree]) {
        let words: Vec<String> = item.iter().map(ToString::to_string).collect();
        if let [.., word, name] = &words[..]
            && word == "mod"
        {
            let file = file_of(&self.all[path].file, name);
            self.note_test_files(file);
        }
    }

    /// Notes the file of a module that is compiled for unit tests only, and those of the modules in
    /// it. Does nothing for an inline module.
    fn note_test_files(&mut self, file: String) {
        if !Path::new(env!("CARGO_MANIFEST_DIR")).join(&file).exists() {
            return;
        }
        let tokens: TokenStream = read(&file)
            .parse()
            .unwrap_or_else(|error| panic!("{file}: {error}"));
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        for words in tokens.windows(3) {
            if let [TokenTree::Ident(word), TokenTree::Ident(name), end] = words
                && *word == "mod"
                && is_punct(Some(end), ';')
            {
                self.note_test_files(file_of(&file, &name.to_string()));
            }
        }
        self.for_tests.insert(file);
    }

    /// Returns the module in which a relative path in `module` starts, and the rest of the path;
    /// `None` for a path to another crate.
    fn absolute(&self, module: &[String], segments: &[String]) -> Option<Vec<String>> {
        let mut base = module.to_vec();
        let mut rest = segments;
        match rest.first()?.as_str() {
            "crate" => {
                base.clear();
                rest = &rest[1..];
            }
            "self" | "super" => {
                while let [first, more @ ..] = rest {
                    match first.as_str() {
                        "self" => {}
                        "super" => drop(base.pop()),
                        _ => break,
                    }
                    rest = more;
                }
            }
            first if self.all[module].children.contains(first) => {}
            first => {
                let used = self.all[module]
                    .uses
                    .iter()
                    .find(|used| used.name.as_deref() == Some(first))?;
                if used.segments[0] == first {
                    return None;
                }
                let mut path = self.absolute(module, &used.segments)?;
                path.extend_from_slice(&rest[1..]);
                return Some(path);
            }
        }
        base.extend_from_slice(rest);
        Some(base)
    }

    /// Returns the file that defines the item of an absolute path; re-exports are followed.
    fn file(&self, path: &[String]) -> Option<String> {
        let depth = (0..=path.len())
            .rev()
            .find(|depth| self.all.contains_key(&path[..*depth]))?;
        let (module, rest) = path.split_at(depth);
        let reexport = rest.first().and_then(|name| {
            self.all[module]
                .uses
                .iter()
                .find(|used| used.name.as_ref() == Some(name))
                .and_then(|used| {
                    let mut target = self.absolute(module, &used.segments)?;
                    target.extend_from_slice(&rest[1..]);
                    self.file(&target)
                })
        });
        Some(reexport.unwrap_or_else(|| self.all[module].file.clone()))
    }

    /// All imports between two files.
    fn imports(&self) -> Vec<Import> {
        let mut imports = Vec::new();
        for (path, module) in &self.all {
            // Names in scope in a file's inline modules belong to the file.
            let is_named_in_file = |name: &String| {
                self.all
                    .values()
                    .any(|other| other.file == module.file && other.names.contains(name))
            };
            let used = module
                .uses
                .iter()
                .filter(|used| {
                    !used.is_reexport || used.name.as_ref().is_some_and(is_named_in_file)
                })
                .map(|used| (&used.segments, used.line));
            let named = module
                .paths
                .iter()
                .filter(|named| named.segments.len() > 1)
                .map(|named| (&named.segments, named.line));
            for (segments, line) in used.chain(named) {
                let target = self
                    .absolute(path, segments)
                    .and_then(|target| self.file(&target));
                if let Some(to) = target.filter(|to| *to != module.file) {
                    imports.push(Import {
                        from: module.file.clone(),
                        line,
                        to,
                        path: segments.join("::"),
                    });
                }
            }
        }
        imports.sort_by(|one, other| {
            (&one.from, one.line, &one.path).cmp(&(&other.from, other.line, &other.path))
        });
        imports
    }
}

/// Returns whether a file below `src` is compiled for unit tests only.
pub(super) fn is_model(path: &Path) -> bool {
    let path = path.to_string_lossy();
    path.contains("simulation/") || path.contains("_model") || path.ends_with("/tests.rs")
}

/// The names that the root of the crate re-exports, without its modules.
pub(super) fn public_names() -> Vec<String> {
    let modules = Modules::read();
    let root = modules.all[&[][..]]
        .uses
        .iter()
        .filter(|used| used.is_reexport);
    let names = root.filter_map(|used| used.name.clone());
    let names: Vec<String> = names
        .filter(|name| name.starts_with(char::is_uppercase))
        .collect();
    assert!(names.len() > 40, "{names:?}");
    names
}

fn is_punct(token: Option<&TokenTree>, wanted: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == wanted)
}

fn is_test_attribute(tokens: &[TokenTree]) -> bool {
    let Some(TokenTree::Group(group)) = tokens.get(1) else {
        return false;
    };
    is_punct(tokens.first(), '#') && group.to_string().replace(' ', "") == "[cfg(test)]"
}

fn ends_item(token: &TokenTree) -> bool {
    is_punct(Some(token), ';')
        || matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
}

/// Returns whether what comes before an item ends with `pub` or `pub(..)`.
fn is_public(before: &[TokenTree]) -> bool {
    let is_pub = |token: &TokenTree| matches!(token, TokenTree::Ident(word) if *word == "pub");
    match before {
        [.., word, TokenTree::Group(_)] if is_pub(word) => true,
        [.., word] => is_pub(word),
        [] => false,
    }
}

/// Returns the segment after the one that `tokens` begin with: `::name`.
fn next_segment(tokens: &[TokenTree]) -> Option<String> {
    match tokens.get(3) {
        Some(TokenTree::Ident(next))
            if is_punct(tokens.get(1), ':') && is_punct(tokens.get(2), ':') =>
        {
            Some(next.to_string())
        }
        _ => None,
    }
}

/// Flattens a tree of imports.
fn read_use(
    tokens: &[TokenTree],
    prefix: &[String],
    found: &mut dyn FnMut(Option<String>, Vec<String>, usize),
) {
    for tree in tokens.split(|token| is_punct(Some(token), ',')) {
        let mut segments = prefix.to_vec();
        let mut rest = tree.iter();
        while let Some(token) = rest.next() {
            let line = token.span().start().line;
            match token {
                TokenTree::Ident(word) if *word == "as" => {
                    let name = rest
                        .next()
                        .map(ToString::to_string)
                        .filter(|name| name != "_");
                    found(name, std::mem::take(&mut segments), line);
                }
                TokenTree::Ident(word) if *word == "self" && !segments.is_empty() => {}
                TokenTree::Ident(word) => segments.push(word.to_string()),
                TokenTree::Group(group) => {
                    let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                    read_use(&inner, &segments, found);
                    segments.clear();
                }
                TokenTree::Punct(punct) if punct.as_char() == '*' => {
                    found(None, std::mem::take(&mut segments), line);
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
        if let (Some(last), Some(token)) = (segments.last().cloned(), tree.last()) {
            found(Some(last), segments, token.span().start().line);
        }
    }
}

/// The file of a module that is declared in another.
fn file_of(parent: &str, name: &str) -> String {
    let directory = parent
        .trim_end_matches(".rs")
        .trim_end_matches("/lib")
        .trim_end_matches("/mod");
    let beside = format!("{directory}/{name}.rs");
    if Path::new(env!("CARGO_MANIFEST_DIR")).join(&beside).exists() {
        beside
    } else {
        format!("{directory}/{name}/mod.rs")
    }
}

/// Returns the shortest way from one file to another, as imports.
fn way<'a>(imports: &'a [Import], from: &str, to: &str) -> Option<Vec<&'a Import>> {
    let mut ways = VecDeque::from([(from, Vec::new())]);
    let mut seen = HashSet::new();
    while let Some((file, way)) = ways.pop_front() {
        for import in imports.iter().filter(|import| import.from == file) {
            let mut way: Vec<&Import> = way.clone();
            way.push(import);
            if import.to == to {
                return Some(way);
            }
            if seen.insert(&import.to) {
                ways.push_back((&import.to, way));
            }
        }
    }
    None
}

#[track_caller]
fn assert_none(found: &[String], rule: &str) {
    assert!(found.is_empty(), "{rule}\n\n{}", found.join("\n"));
}

#[test]
fn imports_follow_the_layers() {
    let imports = Modules::read().imports();
    assert!(imports.len() > 100, "{}", imports.len());
    let upward = imports
        .iter()
        .filter(|import| Layer::of(&import.to) > Layer::of(&import.from));
    let why = |import: &Import| {
        let (lower, higher) = (Layer::of(&import.from), Layer::of(&import.to));
        format!("{import}: {lower:?} may not import {higher:?}")
    };
    let rule = "A layer imports from itself and from those below it: Faces -> Engine -> Session -> Protocol -> Values.";
    assert_none(&upward.map(why).collect::<Vec<_>>(), rule);
}

/// Returns the files or folders that import themselves by way of others, each once, with the
/// shortest way.
fn circles(imports: &[Import]) -> Vec<String> {
    let all: BTreeSet<&str> = imports.iter().map(|import| import.from.as_str()).collect();
    let circle = |one: &str| {
        let steps: Vec<String> = way(imports, one, one)?
            .iter()
            .map(|import| format!("  {import}"))
            .collect();
        Some(format!("{one} is in a circle:\n{}", steps.join("\n")))
    };
    all.into_iter().filter_map(circle).collect()
}

#[test]
fn files_have_no_import_cycles() {
    assert_none(
        &circles(&Modules::read().imports()),
        "No files of src import each other in a circle.",
    );
}

/// A folder is a part, as is a file beside the folders of the engine: what a part uses does not use
/// it.
#[test]
fn folders_have_no_import_cycles() {
    let folder = |file: &str| {
        file.rsplit_once('/')
            .map_or("", |(folder, _)| folder)
            .to_owned()
    };
    let part = |file: &str| {
        Some(folder(file))
            .filter(|it| it != "src/engine")
            .unwrap_or_else(|| file.into())
    };
    let between = |import: Import| {
        let (from, to) = (part(&import.from), part(&import.to));
        (from != to).then(|| Import {
            path: import.to_string(),
            from,
            to,
            line: import.line,
        })
    };
    let imports: Vec<Import> = Modules::read()
        .imports()
        .into_iter()
        .filter_map(between)
        .collect();
    assert!(imports.len() > 50, "{}", imports.len());
    assert_none(
        &circles(&imports),
        "No folders of src import each other in a circle.",
    );
}

/// The comment says what the folder, or the file beside the engine's folders, is for, who may use
/// it, and what it never does.
#[test]
fn each_folder_states_its_purpose() {
    let is_part =
        |path: &&PathBuf| path.ends_with("mod.rs") || path.parent().unwrap().ends_with("engine");
    for path in sources().iter().filter(is_part) {
        let lines = read(path)
            .lines()
            .take_while(|line| line.starts_with("//! "))
            .count();
        assert!(
            (1..=9).contains(&lines),
            "{}: {lines} lines",
            path.display()
        );
    }
}

/// Returns the names that a file of the given layers must not use, one line each.
fn forbidden(
    is_meant: impl Fn(&str) -> bool,
    is_forbidden: impl Fn(&[String]) -> bool,
) -> Vec<String> {
    let modules = Modules::read();
    let mut found = Vec::new();
    for module in modules.all.values().filter(|module| is_meant(&module.file)) {
        let used = module.uses.iter().map(|used| (&used.segments, used.line));
        let named = module
            .paths
            .iter()
            .map(|named| (&named.segments, named.line));
        for (segments, line) in used
            .chain(named)
            .filter(|(segments, _)| is_forbidden(segments))
        {
            found.push(format!(
                "{}:{line} names `{}`",
                module.file,
                segments.join("::")
            ));
        }
    }
    found
}

#[test]
fn protocol_is_pure() {
    let impure = |segments: &[String]| {
        let has = |words: &[&str], is: fn(&str, &str) -> bool| {
            segments
                .iter()
                .any(|segment| words.iter().any(|word| is(segment, word)))
        };
        has(
            &[
                "tokio",
                "zookeeper",
                "Instant",
                "SystemTime",
                "thread",
                "uuid",
                "Uuid",
            ],
            |segment, word| segment.contains(word),
        ) || has(&["zk", "rand", "async", "await"], |segment, word| {
            segment == word
        }) || segments.len() > 1 && segments.last().is_some_and(|last| last == "now")
    };
    let mut found = forbidden(|file| Layer::of(file) == Layer::Protocol, impure);
    // The core imports no other crate either, except for the text of errors.
    let modules = Modules::read();
    for (path, module) in modules
        .all
        .iter()
        .filter(|(_, module)| Layer::of(&module.file) == Layer::Protocol)
    {
        let is_allowed = |used: &&Used| ["std", "thiserror"].contains(&used.segments[0].as_str());
        let foreign = |used: &&Used| modules.absolute(path, &used.segments).is_none();
        for used in module
            .uses
            .iter()
            .filter(|used| foreign(used) && !is_allowed(used))
        {
            found.push(format!(
                "{}:{} imports `{}`",
                module.file,
                used.line,
                used.segments.join("::")
            ));
        }
    }
    let rule = "src/protocol decides and does nothing else: no client, runtime, thread, clock, random number or other crate.";
    assert_none(&found, rule);
}

#[test]
fn zookeeper_stays_in_engine_and_session() {
    let is_meant =
        |file: &str| !matches!(Layer::of(file), Layer::Engine | Layer::Session) && file != CLIENT;
    let speaks = |segments: &[String]| {
        segments
            .iter()
            .any(|segment| segment.contains("zookeeper_client") || segment == "zk")
    };
    let found = forbidden(is_meant, speaks);
    let rule = "Only src/engine and src/session name the client library, and src/client.rs, which lends a session and takes a connector.";
    assert_none(&found, rule);
    // The types of the client library are public in two places.
    let shown: Vec<String> = sources()
        .iter()
        .flat_map(|path| signatures(&code(path)))
        .filter(|signature| signature.contains("zookeeper_client") || signature.contains("zk::"))
        .map(|signature| {
            signature
                .split(['(', '<'])
                .next()
                .unwrap_or_default()
                .to_owned()
        })
        .collect();
    assert_eq!(shown, ["async fn request", "fn connector"]);
}

/// A subscriber may block, or panic, which costs a line of `src/session/reports/log.rs` and nothing
/// else (docs/protocol.md#contained-lines).
// Shows: contained-lines
#[test]
fn logging_goes_through_the_journal() {
    // The exceptions are macros, and the reports of calls.
    let allowed =
        ["log", "journal", "observer"].map(|name| format!("src/session/reports/{name}.rs"));
    let is_meant = |file: &str| !allowed.iter().any(|allowed| allowed == file);
    let found = forbidden(is_meant, |segments| {
        segments.first().is_some_and(|first| first == "tracing")
    });
    assert_none(
        &found,
        "The library logs by the macros of src/session/reports/log.rs, not by those of tracing.",
    );
}

/// Returns the public signatures, each up to its body or end, which may be some lines below.
fn signatures(code: &str) -> Vec<String> {
    let end = |item: &str| item.split(['{', ';']).next().unwrap_or_default().to_owned();
    code.split("pub ").skip(1).map(end).collect()
}

/// The sender of a channel waits for a borrow by its receiver: here, the session's thread
/// (docs/protocol.md#no-lock-across-await).
#[test]
fn no_channel_is_public() {
    for path in sources() {
        for signature in signatures(&code(&path)) {
            let lends = ["Receiver<", "watch::Ref<", "MutexGuard<"]
                .iter()
                .any(|it| signature.contains(it));
            assert!(!lends, "{}: {signature}", path.display());
        }
    }
}

/// The types that a file defines.
fn types(path: &Path) -> Vec<String> {
    let name = |line: &str| {
        let mut words = line.split(' ').skip_while(|word| word.starts_with("pub"));
        let is_type = ["struct", "enum", "trait", "type"].contains(&words.next()?);
        let name = words.next()?.split(|c: char| !c.is_alphanumeric()).next()?;
        is_type.then(|| name.to_owned())
    };
    code(path).lines().filter_map(name).collect()
}

/// A reader need not ask which of two types a name means. Recipes stand for themselves.
#[test]
fn type_names_are_unique() {
    let inside = sources()
        .into_iter()
        .filter(|path| !is_model(path) && !path.starts_with("src/recipes"));
    let mut all: Vec<String> = inside.flat_map(|path| types(&path)).collect();
    all.sort();
    let twice: Vec<_> = all.windows(2).filter(|two| two[0] == two[1]).collect();
    assert!(all.len() > 300 && twice.is_empty(), "{twice:?}");
    let public = public_names();
    // A number is no further word for a lock that is held.
    all.retain(|name| (name.contains("Hold") || name.contains("Held")) && !public.contains(name));
    all.retain(|name| !name.ends_with("Number"));
    assert!(all.len() <= 4, "{all:?}");
}

/// A simulation replaces `background.rs`, so no other file may start a thread or task that the
/// simulation could not see.
#[test]
fn threads_start_in_one_place() {
    let begins = [
        "thread::spawn",
        "thread::Builder",
        "new_current_thread",
        "new_multi_thread",
        "Runtime::new",
    ];
    for path in sources() {
        if path.ends_with("session/threads/background.rs") {
            continue;
        }
        assert_without(&path, &begins);
        assert_without(
            &path,
            &[
                "tokio::spawn",
                "task::spawn",
                "spawn_blocking",
                "Handle::current",
                "LocalSet",
            ],
        );
        // `background::on_this_thread` adds a set's tasks to it.
        if code(&path).contains("JoinSet") {
            let spawns = code(&path).replace(".spawn(on_this_thread(", "");
            assert!(
                !spawns.contains(".spawn("),
                "{} spawns without `background::on_this_thread`",
                path.display()
            );
        }
    }
}

/// A source file without its comments and unit tests.
pub(super) fn code(path: &Path) -> String {
    let text = read(path);
    let text = without_unit_tests(&text);
    text.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect::<Vec<_>>()
        .join("\n")
}

fn assert_without(path: &Path, words: &[&str]) {
    let code = code(path);
    for word in words {
        assert!(!code.contains(word), "{} names {word}", path.display());
    }
}

/// A face contains a naming rule, options, documentation and examples.
#[test]
fn faces_have_no_protocol() {
    for face in ["mutex", "fair_lock", "read_write_lock"] {
        let protocol = [
            "list_children",
            "check_stat",
            "get_and_watch",
            "protocol::acquire",
            "queue::",
            "session::",
            "cleanup",
            "tokio::",
            "oneshot",
            "select!",
        ];
        assert_without(Path::new(&format!("src/locks/{face}.rs")), &protocol);
    }
}

/// No decision uses the wall clock, and nothing sleeps where it could block an executor. The
/// identities in nodes have times for people.
#[test]
fn wall_clock_and_sleep_are_unused() {
    for path in sources() {
        if path != Path::new(FOR_PEOPLE) {
            assert_without(&path, &["SystemTime", "UNIX_EPOCH"]);
        }
        assert_without(&path, &["thread::sleep", "unsafe "]);
    }
}

const FOR_PEOPLE: &str = "src/values/contender.rs";
