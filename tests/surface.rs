//! Properties that users build on, beyond the behaviour of locks: the properties of the types, the
//! texts of the errors, the defaults, and the contents of the crate.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[path = "surface/architecture.rs"]
mod architecture;
#[path = "surface/docs.rs"]
mod docs;
#[path = "surface/failures.rs"]
mod failures;
#[path = "surface/packages.rs"]
mod packages;
#[path = "surface/rules.rs"]
mod rules;
#[path = "surface/shapes.rs"]
mod shapes;

use std::error::Error;
use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use test_support::prelude::*;

use tokio::net::TcpListener;

fn free<T: Send + Sync + Unpin + Debug + 'static>() {}
fn borrowed<T: Send + Sync + Debug>() {}
fn copied<T: Copy + Eq + Hash + Send + Sync + Unpin + Debug + 'static>() {}
fn cloned<T: Clone + Send + Sync + Unpin + Debug + 'static>() {}
fn error<T: Error + Clone + Send + Sync + Unpin + 'static>() {}

/// Shows whether a type can be cloned: an inherent constant takes precedence over that of a trait.
struct Cloned<T>(PhantomData<T>);

impl<T: Clone> Cloned<T> {
    const IS: bool = true;
}

trait Otherwise {
    const IS: bool = false;
}

impl<T> Otherwise for Cloned<T> {}

#[test]
fn types_are_send_and_static() {
    let mut checked = Vec::new();
    macro_rules! all {
        ($check:ident: $($type:ty),+ $(,)?) => {
            $(
                $check::<$type>();
                checked.push(stringify!($type));
            )+
        };
    }
    all!(free: QueuedLock, FenceGate, CachedAtomicLong, Participant, StateWatch<LeadershipState>);
    all!(free: RecipeBuilder<InterProcessFairLock>, RecipeBuilder<InterProcessReadWriteLock>);
    all!(free: Box<dyn InterProcessLock>, Arc<dyn InterProcessLock>, Box<dyn Guard>);
    all!(free: LockGuard, ReadGuard, WriteGuard, AnyGuard, Acquisition<LockGuard>);
    all!(free: MultiLockGuard, SemaphorePermit, ConversionError<WriteGuard>);
    all!(free: ServerFailure, mode::Exclusive, mode::Fair, mode::Read, mode::Write, mode::Any);
    all!(free: PersistentNode, RecipeBuilder<PersistentNode>, GroupMember, GroupWatch, LeaderWatch, OnceRun);
    all!(cloned: Client, ClientBuilder, RetryPolicy, Acl, LockPath, NodePath);
    all!(cloned: InterProcessMutex, RecipeBuilder<InterProcessMutex>, InterProcessFairLock);
    all!(cloned: InterProcessReadWriteLock, InterProcessReadLock, InterProcessWriteLock);
    all!(cloned: Lock<mode::Fair>, Lock<mode::Any>);
    all!(cloned: InterProcessMultiLock, InterProcessSemaphore, RecipeBuilder<InterProcessSemaphore>);
    all!(cloned: DistributedAtomicLong, RecipeBuilder<DistributedAtomicLong>);
    all!(cloned: LeaderLatch, RecipeBuilder<LeaderLatch>, Leadership);
    all!(cloned: LeaderSelector, RecipeBuilder<LeaderSelector>);
    all!(cloned: Contention, Holding, Contender, Identity, StateWatch<ConnectionState>);
    all!(cloned: OnceJob, OnceOutcome<u32>);
    all!(copied: FencingToken, ReadToken, Token, ErrorKind, ConnectionState, LockState, LostReason);
    all!(copied: ParentNodes, Permissions, LeaseMargin, Dialect, ContenderKind);
    all!(copied: LeadershipState, PersistentNodeState);
    all!(error: zookeeper_recipes::Error, AcquireError, BuildError, ConnectError, InvalidPath, Lost);
    all!(error: ReleaseError, ParseTokenError, AtomicLongError, TransactionError, OnceError);
    all!(error: TryLockError, StaleToken, PersistentNodeError);
    all!(borrowed: Transaction<'static>);
    const { assert!(Cloned::<Client>::IS) };
    // A guard cannot be cloned, because one guard is one hold.
    const { assert!(!Cloned::<LockGuard>::IS && !Cloned::<AnyGuard>::IS) };
    // Two handles of one node are impossible as well.
    const { assert!(!Cloned::<PersistentNode>::IS && !Cloned::<GroupMember>::IS) };
    const { assert!(!Cloned::<MultiLockGuard>::IS && !Cloned::<SemaphorePermit>::IS) };
    const { assert!(!Cloned::<ReadGuard>::IS && !Cloned::<WriteGuard>::IS) };

    // `OrBusy` is a trait for results, and the tests of the feature `tls` check its type.
    let no_types = ["OrBusy", "TlsOptions"];
    for name in architecture::public_names()
        .iter()
        .filter(|name| !no_types.contains(&name.as_str()))
    {
        let is_checked = checked.iter().any(|checked| {
            checked
                .split(|c: char| !c.is_alphanumeric())
                .any(|word| word == name)
        });
        assert!(
            is_checked,
            "{name} is public, and not among the types that this test checks"
        );
    }
}

/// The server accepts the connection and is silent.
#[tokio::test]
async fn default_connect_timeout_is_5_s() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = silent.local_addr().unwrap().to_string();
    let started = Instant::now();
    let error = within("the end", Client::connect(&addr)).await.unwrap_err();
    let took = started.elapsed();
    let ConnectError::TimedOut { timeout, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!(*timeout, Duration::from_secs(5));
    assert!(
        took >= *timeout && took < *timeout + Duration::from_secs(20),
        "{took:?}"
    );
    assert!(
        error.to_string().contains(&addr) && error.to_string().contains("5s"),
        "{error}"
    );
}

#[tokio::test]
async fn other_defaults() {
    assert_eq!(
        RetryPolicy::default(),
        RetryPolicy::exponential(Duration::from_secs(1), 3, Duration::from_secs(5))
    );
    assert_eq!(ParentNodes::default(), ParentNodes::Container);
    assert_eq!(LeaseMargin::default(), LeaseMargin::Standard);
    let server = Server::start().unwrap();
    let client = connect_as(Client::builder(), &server).await;
    assert_eq!(
        client.state(),
        ConnectionState::Connected,
        "as soon as it is connected"
    );
    let guard = within("the grant", mutex(&client).lock()).await.unwrap();
    assert_eq!(server.node(DIRECTORY).unwrap().kind, NodeKind::Container);
    let data = String::from_utf8(server.node(&guard.node()).unwrap().data).unwrap();
    assert!(
        data.contains(&format!("/{}/surface-", std::process::id())) && data.contains(" since "),
        "{data}"
    );
    let raw = zookeeper_client::Client::connect(&server.connect_string())
        .await
        .unwrap();
    let all = zookeeper_client::Permission::ALL;
    for path in [DIRECTORY, &guard.node()] {
        let (acl, _) = raw.get_acl(path).await.unwrap();
        assert_eq!(
            acl,
            [zookeeper_client::Acl::new(
                all,
                zookeeper_client::AuthId::anyone()
            )],
            "{path}"
        );
    }
    guard.release().await.unwrap();
}

fn hides(what: &str, shown: &dyn Debug) {
    for text in [format!("{shown:?}"), format!("{shown:#?}")] {
        assert!(!text.contains("geheim"), "{what}: {text}");
        // The bytes are serialized as a list.
        assert!(
            !text
                .replace(char::is_whitespace, "")
                .contains("103,101,104"),
            "{what}: {text}"
        );
        assert!(!text.contains("hash-of-it"), "{what}: {text}");
    }
}

#[tokio::test]
async fn credentials_stay_out_of_logs() {
    let server = start();
    let acl = || {
        [
            Acl::open(),
            Acl::new("digest", "owner:hash-of-it", Permissions::ALL),
        ]
    };
    hides("an ACL", &acl());
    let builder = Client::builder().auth("digest", "owner:geheim").acl(acl());
    hides("the client's builder", &builder);
    let client = connect_as(builder, &server).await;
    hides("the client", &client);
    let builder = InterProcessMutex::builder(&client, DIRECTORY).acl(acl());
    hides("the mutex's builder", &builder);
    let mutex = builder.build().unwrap();
    hides("the mutex", &mutex);
    let guard = within("the grant", mutex.lock()).await.unwrap();
    hides("the guard", &guard);
    guard.release().await.unwrap();
    server.fail(Match::op(Op::Create), -102);
    let error = within("the refusal", mutex.lock()).await.unwrap_err();
    hides("an error", &error);
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Asserts that a file that a test of this program writes is up to date; with `WRITE_PAGES=1`,
/// writes it anew.
#[track_caller]
fn assert_written(path: &str, text: &str) {
    let file = root().join(path);
    if std::env::var("WRITE_PAGES").is_ok_and(|write| write == "1") {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
        return;
    }
    let is_written = std::fs::read_to_string(file).is_ok_and(|written| written == text);
    assert!(
        is_written,
        "{path} is out of date: write it by `WRITE_PAGES=1 cargo test --test surface`"
    );
}

/// The names in one table of a manifest.
fn keys(manifest: &str, table: &str) -> Vec<String> {
    manifest
        .lines()
        .skip_while(|line| line.trim() != table)
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split_once('='))
        .map(|(key, _)| key.trim().trim_end_matches(".workspace").to_owned())
        .filter(|key| !key.starts_with('#'))
        .collect()
}

/// Returns whether a dependency is optional.
fn is_optional(manifest: &str, name: &str) -> bool {
    manifest
        .lines()
        .any(|line| line.starts_with(&format!("{name} =")) && line.contains("optional = true"))
}

#[test]
fn library_depends_on_ten_crates() {
    let manifest = read("Cargo.toml");
    let (optional, always): (Vec<_>, Vec<_>) = keys(&manifest, "[dependencies]")
        .into_iter()
        .partition(|name| is_optional(&manifest, name));
    let ten = [
        "async-trait",
        "base64ct",
        "fastrand",
        "rustix",
        "sha1_smol",
        "thiserror",
        "tokio",
        "tracing",
        "uuid",
    ];
    assert_eq!(always, [&ten[..], &["zookeeper-client"]].concat());
    assert_eq!(
        optional,
        ["metrics", "rustls", "rustls-pki-types", "serde"],
        "each of a feature"
    );
    assert!(
        !manifest.contains("[target."),
        "no table of dependencies but that one"
    );
    assert!(
        !manifest.contains("[dependencies."),
        "no table of dependencies but that one"
    );
    assert!(
        manifest.lines().any(|line| line == "default = []"),
        "no feature is on by default"
    );
    let server = keys(&read("test-server/Cargo.toml"), "[dependencies]");
    assert_eq!(
        server,
        ["thiserror", "tokio", "tracing"],
        "the test server has its own codec"
    );
}

#[test]
fn architecture_explains_each_dependency() {
    let page = read("ARCHITECTURE.md");
    let (_, list) = page.split_once("\n## Dependencies\n").unwrap();
    for member in [
        "",
        "lockbench/",
        "test-server/",
        "test-support/",
        "zk-test-server/",
        "zklock/",
    ] {
        let manifest = read(format!("{member}Cargo.toml"));
        for name in ["[dependencies]", "[dev-dependencies]"]
            .iter()
            .flat_map(|table| keys(&manifest, table))
        {
            let ours = ["zookeeper-recipes"].contains(&name.as_str());
            assert!(
                ours || list.contains(&format!("`{name}`")),
                "{member}Cargo.toml: {name}"
            );
        }
    }
}

#[test]
fn published_crates_have_metadata_and_licences() {
    for member in ["", "test-server/", "zk-test-server/", "zklock/"] {
        let manifest = read(format!("{member}Cargo.toml"));
        let fields = keys(&manifest, "[package]");
        for field in [
            "description",
            "keywords",
            "categories",
            "documentation",
            "readme",
            "rust-version",
            "license",
        ] {
            assert!(
                fields.iter().any(|name| name == field),
                "{member}Cargo.toml has no {field}"
            );
        }
        // A package contains only its own directory.
        for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
            let file = root().join(format!("{member}{licence}"));
            assert!(
                std::fs::symlink_metadata(&file).unwrap().is_file(),
                "{}",
                file.display()
            );
            assert_eq!(read(file), read(licence));
        }
    }
}

/// A source file without its unit tests, which are at its end.
fn without_unit_tests(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests {")
        .next()
        .unwrap_or_default()
}

/// All source files of the library, relative to its root.
fn sources() -> Vec<PathBuf> {
    let found = files_below("src");
    assert!(found.len() > 20, "{found:?}");
    found
}

/// All files below a directory, relative to the root.
fn files_below(directory: &str) -> Vec<PathBuf> {
    let (mut found, mut rest) = (Vec::new(), vec![root().join(directory)]);
    while let Some(directory) = rest.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                rest.push(path);
            } else {
                found.push(path.strip_prefix(root()).unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

/// CONTRIBUTING.md: a test that sleeps says why.
#[test]
fn sleeps_in_tests_are_explained() {
    let mut sleeps = 0;
    let all = [
        "tests",
        "test-support",
        "test-server/tests",
        "simulation/tests",
        "zk-test-server",
        "zklock/tests",
    ];
    for path in all.iter().flat_map(|directory| files_below(directory)) {
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let text = read(&path);
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let asleep = |line: &&str| {
            ["::sleep(", "::sleep_until("]
                .iter()
                .any(|call| line.contains(call))
        };
        for (number, _) in lines
            .iter()
            .enumerate()
            .filter(|(_, line)| asleep(line) && !line.contains('"'))
        {
            sleeps += 1;
            let above = &lines[number.saturating_sub(3)..number];
            let says_why = above
                .iter()
                .any(|line| line.starts_with("//") || line.starts_with("reason = "));
            assert!(
                says_why,
                "{}:{}: {}",
                path.display(),
                number + 1,
                lines[number]
            );
        }
    }
    assert!(sleeps > 0);
}

/// These texts are shown to users.
#[test]
fn types_display_as_documented() {
    fn shown<T: Display>() {}
    shown::<FencingToken>();
    shown::<ReadToken>();
    shown::<Token>();
    shown::<LostReason>();
    assert_eq!(ConnectionState::Suspended.to_string(), "suspended");
    assert_eq!(LockState::Held.to_string(), "held");
    assert_eq!(
        LockState::Lost(LostReason::Closed).to_string(),
        "lost: its client was closed"
    );
    assert_eq!(PersistentNodeState::Absent.to_string(), "absent");
    let token = FencingToken::from_parts(7, 1);
    assert_eq!(
        LeadershipState::Leader(token).to_string(),
        "leader with the token 7-1"
    );
    assert_eq!(LeadershipState::Follower.to_string(), "follower");
    assert_eq!(Token::from(token).to_string(), "write-7-1");
    assert_eq!(FencingToken::from_parts(7, 1).to_string(), "7-1");
    let gate = FenceGate::new();
    gate.admit(ReadToken::from_parts(9, 0)).unwrap();
    let fenced = gate.admit(FencingToken::from_parts(7, 1)).unwrap_err();
    assert_eq!(
        fenced.to_string(),
        "the fencing token 7-1 of a writer is older than 9-0 of a reader: the lock was given away in between"
    );
}

/// Asserts that the value is one short line in a log.
#[track_caller]
fn assert_brief(value: &dyn Debug) -> String {
    let text = format!("{value:?}");
    assert!(!text.contains('\n') && text.chars().count() < 300, "{text}");
    let pretty = format!("{value:#?}");
    assert!(!pretty.contains('\n'), "{pretty}");
    text
}

#[tokio::test]
async fn log_lines_are_short() {
    let (_server, [client]) = with_clients(start(), connect).await;
    let lock = mutex(&client);
    let id = format!("{:#x}", session(&client));
    let shown = assert_brief(&client);
    assert!(
        shown.contains("Connected") && shown.contains(&id),
        "{shown}"
    );
    assert_eq!(
        assert_brief(&lock),
        format!("InterProcessMutex({DIRECTORY:?})")
    );
    let builder = InterProcessMutex::builder(&client, DIRECTORY).data(vec![7; 10_000]);
    assert_eq!(
        assert_brief(&builder),
        format!("RecipeBuilder({DIRECTORY:?})")
    );
    let guard = within("the grant", lock.lock()).await.unwrap();
    assert!(assert_brief(&guard).contains(guard.node().as_str()));
    let transaction = guard
        .transaction()
        .create("/secret", vec![7; 10_000])
        .set_data("/x", "password", None);
    let shown = assert_brief(&transaction);
    assert!(
        shown.contains("operations: 2") && shown.contains("10008 bytes"),
        "{shown}"
    );
    assert!(
        !shown.contains("password") && !shown.contains("7, 7"),
        "{shown}"
    );
    let error = within("the end", lock.try_lock()).await.unwrap_err();
    let shown = assert_brief(&error);
    assert!(
        shown.starts_with("TryLockError::WouldBlock(") && shown.contains(&error.to_string()),
        "{shown}"
    );
    drop(transaction);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn late_release_names_path_and_cause() {
    let (_server, [client]) = with_clients(start(), connect).await;
    let guard = within("the grant", mutex(&client).lock()).await.unwrap();
    client.close().await.unwrap();
    let lost = within("the loss", guard.lost()).await;
    assert_eq!(lost.path(), DIRECTORY);
    let error = within("the release", guard.release()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("the lock {DIRECTORY:?} was released too late: its client was closed")
    );
    let source = error.source().expect("the loss");
    assert_eq!(source.downcast_ref::<Lost>(), Some(&lost));
    assert!(!error.is_retryable());
}
