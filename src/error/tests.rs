//! The texts of the errors, and their kind, path and retryability. Their variants cannot be built
//! outside this crate; the calls that return them are tested with each behaviour.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{
    AcquireError, Acquisition, AtomicLongError, BuildError, Cause, ConnectError, Contention,
    ConversionError, ErrorKind, Lost, LostReason, OnceError, OrBusy, PersistentNodeError, Purpose,
    ReleaseError, RequestFailure, ServerFailures, TransactionError, TryLockError,
};
use crate::protocol::failure::{Failure, FailureKind};
use crate::values::path::{InvalidPath, NodePath};

const SOON: Duration = Duration::from_secs(20);

fn no_source() -> Cause {
    Arc::new(std::io::Error::other("the server said no"))
}

const NODE: &str = "/stock/sku-42/lock-0000000001";

fn node() -> NodePath {
    NODE.parse().unwrap()
}

fn contention(ahead: usize, first: Option<NodePath>) -> Contention {
    Contention {
        ahead,
        first,
        held_by: None,
        holder: None,
    }
}

const PATH: &str = "/stock/sku-42";

fn request(failure: RequestFailure) -> super::Error {
    super::Error::new(Purpose::Lock, PATH, failure)
}

fn acquire_errors() -> Vec<(AcquireError, bool)> {
    let path = || PATH.to_owned();
    let busy = contention(2, Some(node()));
    vec![
        (
            AcquireError::TimedOut {
                path: path(),
                timeout: SOON,
                waited: SOON,
                contention: busy,
            },
            true,
        ),
        (
            request(RequestFailure::Connection(no_source())).into(),
            true,
        ),
        (request(RequestFailure::Rejected(no_source())).into(), false),
        (request(RequestFailure::Closed).into(), false),
        (
            AcquireError::NodeDeleted {
                path: path(),
                times: 3,
            },
            true,
        ),
        (AcquireError::LeaseOver { path: path() }, true),
        (AcquireError::InvalidLease { path: path() }, false),
        (
            AcquireError::Orphaned {
                path: path(),
                node: node(),
                source: no_source(),
            },
            false,
        ),
    ]
}

/// Asserts that the message is one line, without a capital or a full stop, and contains the reason
/// of its source.
fn assert_well_put(error: &dyn Error) {
    let text = error.to_string();
    assert!(
        !text.is_empty() && !text.contains('\n') && !text.ends_with('.'),
        "expected one line without a full stop: {text:?}"
    );
    assert!(
        text.starts_with(|first: char| !first.is_uppercase()) || text.starts_with("ZooKeeper"),
        "expected a message without a capital: {text:?}"
    );
    if let Some(source) = error.source() {
        // The text has the path once.
        let reason = source
            .downcast_ref::<Lost>()
            .map_or_else(|| source.to_string(), |lost| lost.reason().to_string());
        assert!(
            text.contains(&reason),
            "expected the message to give the reason {reason:?}: {text:?}"
        );
    }
}

/// Asserts that the value takes one short line in a log.
#[track_caller]
fn assert_brief(value: &dyn fmt::Debug) -> String {
    let text = format!("{value:?}");
    assert!(!text.contains('\n') && text.chars().count() < 300, "{text}");
    let pretty = format!("{value:#?}");
    assert!(!pretty.contains('\n'), "{pretty}");
    text
}

#[test]
fn job_errors_name_occasion_and_retryability() {
    let (path, occasion) = (|| "/jobs/report".to_owned(), || "2026-11-22".to_owned());
    let unknown = || {
        Box::new(TransactionError::Unknown {
            path: path(),
            source: no_source(),
        })
    };
    let too_large = Box::new(TransactionError::TooLarge {
        path: path(),
        bytes: 7,
    });
    for (error, retryable) in [
        (
            OnceError::Failed {
                path: path(),
                occasion: occasion(),
                source: no_source(),
            },
            true,
        ),
        (
            OnceError::NotRecorded {
                path: path(),
                occasion: occasion(),
                source: unknown(),
            },
            true,
        ),
        (
            OnceError::NotRecorded {
                path: path(),
                occasion: occasion(),
                source: too_large,
            },
            false,
        ),
        (
            OnceError::Unknown {
                path: path(),
                occasion: occasion(),
                source: unknown(),
            },
            true,
        ),
    ] {
        assert!(error.to_string().contains("\"/jobs/report\""), "{error}");
        assert!(error.to_string().contains("\"2026-11-22\""), "{error}");
        assert_eq!(
            (error.path(), error.is_retryable()),
            ("/jobs/report", retryable),
            "{error}"
        );
        let OnceError::NotRecorded { source, .. } = &error else {
            assert_well_put(&error);
            continue;
        };
        match &**source {
            // The text must not call a job unknown that is certainly not recorded, so the text has
            // only the reason of the transaction's error.
            TransactionError::Unknown { source, .. } => {
                let text = error.to_string();
                assert!(text.contains(&source.to_string()), "{text}");
                assert!(!text.contains("unknown"), "{text}");
            }
            _ => assert_well_put(&error),
        }
    }
}

#[test]
fn node_errors_name_path_and_retryability() {
    let path = || "/services/web-1".to_owned();
    let late = |conflict, source| PersistentNodeError::TimedOut {
        path: path(),
        waited: SOON,
        conflict,
        source,
    };
    for (error, retryable) in [
        (late(true, None), true),
        (late(false, Some(no_source())), true),
        (
            PersistentNodeError::DataTooLarge {
                path: path(),
                bytes: 1_000_001,
            },
            false,
        ),
        (PersistentNodeError::NotConfirmed { path: path() }, false),
    ] {
        assert!(error.to_string().contains("\"/services/web-1\""), "{error}");
        assert_eq!(
            (error.path(), error.is_retryable()),
            ("/services/web-1", retryable),
            "{error}"
        );
        assert_well_put(&error);
    }
}

const PURPOSES: [Purpose; 9] = [
    Purpose::Lock,
    Purpose::Look,
    Purpose::Limit,
    Purpose::Counter,
    Purpose::Node,
    Purpose::Data,
    Purpose::Revocation,
    Purpose::Deletion,
    Purpose::Conversion,
];

fn failures() -> [(RequestFailure, ErrorKind); 16] {
    [
        (
            RequestFailure::Connection(no_source()),
            ErrorKind::Connection,
        ),
        (RequestFailure::Deleted, ErrorKind::Connection),
        (RequestFailure::NoAuth, ErrorKind::NoAuth),
        (RequestFailure::Rejected(no_source()), ErrorKind::Rejected),
        (
            RequestFailure::InvalidPath(no_source()),
            ErrorKind::Rejected,
        ),
        (RequestFailure::OtherLock, ErrorKind::Rejected),
        (RequestFailure::AuthFailed, ErrorKind::AuthFailed),
        (RequestFailure::Closed, ErrorKind::Closed),
        (RequestFailure::PlaceUsed, ErrorKind::Closed),
        (RequestFailure::Left, ErrorKind::Closed),
        (RequestFailure::MixedRecipes, ErrorKind::MixedRecipes),
        (
            RequestFailure::SequenceExhausted,
            ErrorKind::SequenceExhausted,
        ),
        (
            RequestFailure::LimitMismatch { ours: 3, theirs: 5 },
            ErrorKind::LimitMismatch,
        ),
        (
            RequestFailure::NoLimit("3 bytes".to_owned()),
            ErrorKind::InvalidLimit,
        ),
        (
            RequestFailure::LimitOutOfRange {
                asked: 0,
                largest: 5,
            },
            ErrorKind::InvalidLimit,
        ),
        (
            RequestFailure::LimitOutOfRange {
                asked: 7,
                largest: 5,
            },
            ErrorKind::InvalidLimit,
        ),
    ]
}

#[test]
fn request_errors_agree_in_every_enum() {
    for purpose in PURPOSES {
        for (failure, kind) in failures() {
            let sourced = matches!(
                failure,
                RequestFailure::Connection(_)
                    | RequestFailure::Rejected(_)
                    | RequestFailure::InvalidPath(_)
            );
            // The error of a revocation knows the node only, not the path of a lock.
            let path = if matches!(purpose, Purpose::Revocation) {
                NODE
            } else {
                PATH
            };
            let error = super::Error::new(purpose, path, failure).at(node());
            assert!(error.to_string().contains(&format!("{path:?}")), "{error}");
            assert_eq!(
                (error.path(), error.node(), error.kind()),
                (path, Some(NODE), kind),
                "{error}"
            );
            assert_eq!(
                error.is_retryable(),
                kind == ErrorKind::Connection,
                "{error}"
            );
            assert_eq!(error.source().is_some(), sourced, "{error}");
            assert_well_put(&error);
            let shown = assert_brief(&error);
            assert!(
                shown.starts_with(&format!("Error::{kind:?}({error}")),
                "{shown}"
            );
            macro_rules! same {
                ($name:ident) => {
                    let same = $name::from(error.clone());
                    assert_eq!(
                        (same.kind(), same.is_retryable()),
                        (Some(kind), error.is_retryable())
                    );
                    assert_eq!(
                        (same.to_string(), same.source().is_some()),
                        (error.to_string(), sourced)
                    );
                    assert!(
                        assert_brief(&same).ends_with(&format!("::Request({shown})")),
                        "{same:?}"
                    );
                };
            }
            same!(AcquireError);
            same!(AtomicLongError);
            same!(PersistentNodeError);
            same!(TransactionError);
            same!(OnceError);
            let tried = TryLockError::from(error.clone());
            assert_eq!(
                (tried.kind(), tried.path(), tried.to_string()),
                (Some(kind), path, error.to_string())
            );
        }
    }
}

#[test]
fn request_errors_name_a_remedy() {
    let error = |purpose, failure| {
        super::Error::new(purpose, PATH, failure)
            .at(node())
            .to_string()
    };
    for (purpose, text) in [
        (Purpose::Lock, "acquire the lock"),
        (Purpose::Look, "look at"),
        (Purpose::Limit, "set the limit of the semaphore"),
        (Purpose::Counter, "use the counter"),
        (Purpose::Node, "use"),
        (Purpose::Data, "read"),
        (Purpose::Conversion, "convert the lock"),
    ] {
        let asked = format!("{text} {PATH:?}");
        assert_eq!(
            error(purpose, RequestFailure::Rejected(no_source())),
            format!("ZooKeeper refused a request to {asked}: the server said no")
        );
        let closed = format!("cannot {asked}: its client is closed; connect another");
        assert_eq!(error(purpose, RequestFailure::Closed), closed);
    }
    let connection = |purpose| error(purpose, RequestFailure::Connection(no_source()));
    assert!(connection(Purpose::Limit).ends_with(", so set it again: the server said no"));
    assert!(
        connection(Purpose::Deletion)
            .ends_with(", which may be deleted or not: the server said no")
    );
    assert!(error(Purpose::Look, RequestFailure::AuthFailed).ends_with("connect another client"));
    for (failure, text) in [
        (
            RequestFailure::OtherLock,
            "call `break_lock` of the lock that returned it",
        ),
        (RequestFailure::Left, "start another"),
        (
            RequestFailure::MixedRecipes,
            "use a path of its own for each recipe",
        ),
        (
            RequestFailure::SequenceExhausted,
            "stop its contenders and delete the directory",
        ),
        (
            RequestFailure::LimitMismatch { ours: 3, theirs: 5 },
            "is 3 here, ",
        ),
        (
            RequestFailure::LimitMismatch { ours: 3, theirs: 5 },
            "under a limit of 5: ",
        ),
        (
            RequestFailure::NoLimit("3 bytes".to_owned()),
            ": 3 bytes, instead of four bytes",
        ),
        (
            RequestFailure::LimitOutOfRange {
                asked: 0,
                largest: 5,
            },
            "set one of at least 1",
        ),
        (
            RequestFailure::LimitOutOfRange {
                asked: 7,
                largest: 5,
            },
            "be 7: the largest is 5",
        ),
    ] {
        assert!(
            error(Purpose::Look, failure.clone()).contains(text),
            "{failure:?}"
        );
    }
}

#[test]
fn permission_errors_name_acl_and_credentials() {
    let denied = |purpose, node: &str| {
        super::Error::new(purpose, PATH, RequestFailure::NoAuth)
            .at(node)
            .to_string()
    };
    for (purpose, node, needs) in [
        (
            Purpose::Lock,
            PATH,
            "the ACL of its directory needs CREATE, DELETE and READ".to_owned(),
        ),
        (
            Purpose::Lock,
            NODE,
            format!("the node before this client's, {NODE:?}, needs READ"),
        ),
        (
            Purpose::Lock,
            "/stock/sku-42/leases",
            "\"/stock/sku-42/leases\" needs CREATE, DELETE".to_owned(),
        ),
        (
            Purpose::Lock,
            "/stock/sku-42/permits",
            "\"/stock/sku-42/permits\" needs READ".to_owned(),
        ),
        (
            Purpose::Lock,
            "/stock",
            "\"/stock\", or of the nearest directory above it".to_owned(),
        ),
        (
            Purpose::Look,
            NODE,
            format!("the ACL of {NODE:?} needs READ for this client"),
        ),
        (
            Purpose::Limit,
            "/stock",
            "\"/stock\" needs WRITE for this client, or CREATE".to_owned(),
        ),
        (
            Purpose::Counter,
            PATH,
            "its ACL needs READ and WRITE, or, if it is missing".to_owned(),
        ),
        (
            Purpose::Node,
            PATH,
            "the directory above it CREATE and DELETE".to_owned(),
        ),
        (Purpose::Data, PATH, "its ACL needs READ".to_owned()),
        (Purpose::Revocation, NODE, "its ACL needs WRITE".to_owned()),
        (
            Purpose::Deletion,
            NODE,
            "the directory in which it is needs DELETE".to_owned(),
        ),
        (
            Purpose::Conversion,
            PATH,
            "its directory needs CREATE, DELETE and READ".to_owned(),
        ),
    ] {
        let text = denied(purpose, node);
        assert!(
            text.starts_with("no permission to ") && text.contains(&needs),
            "{text}"
        );
    }
    let with = |has_credentials| {
        request(RequestFailure::NoAuth)
            .with_credentials(has_credentials)
            .to_string()
    };
    assert!(
        with(None).ends_with("READ for this client"),
        "{}",
        with(None)
    );
    assert!(with(Some(false)).ends_with("which has no credentials (`ClientBuilder::auth`)"));
    assert!(with(Some(true)).ends_with("which has credentials, but not the right ones"));
}

#[test]
fn contention_names_who_is_ahead() {
    assert_eq!(
        contention(1, None).to_string(),
        "another contender is ahead"
    );
    let first = contention(2, Some(node())).to_string();
    assert_eq!(
        first,
        format!("2 contenders are ahead, the first is {NODE:?}")
    );
    let holder = super::Holding {
        path: PATH.to_owned(),
        held_for: SOON,
        location: std::panic::Location::caller(),
    };
    let text = Contention {
        holder: Some(Box::new(holder)),
        ..contention(1, None)
    }
    .to_string();
    assert!(
        text.starts_with("this process itself has held it for 20s, acquired at "),
        "{text}"
    );
}

#[test]
fn acquire_errors_name_path_and_retryability() {
    for (error, retryable) in acquire_errors() {
        assert!(error.to_string().contains("\"/stock/sku-42\""), "{error}");
        assert_eq!(error.path(), "/stock/sku-42");
        assert_eq!(error.is_retryable(), retryable, "{error}");
        let of_request = matches!(
            error.kind(),
            Some(ErrorKind::Connection | ErrorKind::Rejected)
        );
        let sourced = of_request || matches!(error, AcquireError::Orphaned { .. });
        assert_eq!(error.source().is_some(), sourced, "{error:?}");
        assert_well_put(&error);

        // A try passes them on as they are.
        let tried = TryLockError::from(error.clone());
        assert_eq!(tried.path(), error.path());
        assert_eq!(tried.to_string(), error.to_string());
        assert_eq!(tried.is_retryable(), retryable);
        assert_eq!(tried.source().is_some(), sourced);
    }
    let busy = TryLockError::WouldBlock {
        path: PATH.to_owned(),
        contention: contention(1, None),
    };
    assert!(busy.is_retryable() && busy.source().is_none());
    assert!(busy.to_string().contains("\"/stock/sku-42\""), "{busy}");
    assert_well_put(&busy);
}

#[test]
fn connect_errors_name_servers_and_retryability() {
    let servers = || "zk1:2181".to_owned();
    for (error, retryable) in [
        (
            ConnectError::TimedOut {
                servers: servers(),
                timeout: SOON,
                failures: Vec::new(),
                source: Arc::new(ServerFailures::new(&[], None)),
            },
            true,
        ),
        (ConnectError::NoCredentials { servers: servers() }, false),
        (
            ConnectError::InvalidCredentials {
                servers: servers(),
                reason: "the user is empty".to_owned(),
            },
            false,
        ),
        (
            ConnectError::InvalidTls {
                servers: servers(),
                reason: "they have no CA".to_owned(),
            },
            false,
        ),
        (
            ConnectError::InvalidConnectString {
                servers: servers(),
                reason: "no port".to_owned(),
            },
            false,
        ),
        (ConnectError::AuthFailed { servers: servers() }, false),
        (
            ConnectError::Setup {
                servers: servers(),
                source: no_source(),
            },
            false,
        ),
    ] {
        assert!(error.to_string().contains("zk1:2181"), "{error}");
        assert_eq!(
            (error.servers(), error.path()),
            (Some("zk1:2181"), None),
            "{error}"
        );
        assert_eq!(error.is_retryable(), retryable, "{error}");
        assert_well_put(&error);
    }
}

#[test]
fn build_errors_name_the_path() {
    let path = || "/stock".to_owned();
    for error in [
        BuildError::InvalidPath(InvalidPath::new("/stock", "it is only a test")),
        BuildError::InvalidOption {
            path: path(),
            option: "max_znodes",
            reason: "it is 0",
        },
        BuildError::ConflictingOptions {
            path: path(),
            option: "data",
        },
        BuildError::MixedRecipes { path: path() },
        BuildError::DuplicateMember { path: path() },
        BuildError::OtherClient { path: path() },
    ] {
        assert!(error.to_string().contains("\"/stock\""), "{error}");
        assert_eq!(
            (error.path(), error.is_retryable()),
            ("/stock", false),
            "{error}"
        );
        assert_well_put(&error);
    }
    for error in [
        BuildError::NoMembers,
        BuildError::TooManyMembers {
            members: 1_001,
            max: 1_000,
        },
    ] {
        assert_eq!((error.path(), error.is_retryable()), ("", false), "{error}");
        assert_well_put(&error);
    }
    let name = ConnectError::InvalidName {
        name: "a\nb".to_owned(),
        reason: "it contains a line break",
    };
    assert_eq!(
        (name.servers(), name.path(), name.is_retryable()),
        (None, None, false)
    );
    assert!(name.to_string().contains("\"a\\nb\""), "{name}");
    assert_well_put(&name);
}

#[test]
fn conversion_errors_keep_guard_and_path() {
    let (guard, path) = (7, || PATH.to_owned());
    for (error, kind, retryable) in [
        (
            ConversionError::WouldDeadlock {
                guard,
                path: path(),
            },
            None,
            false,
        ),
        (
            ConversionError::Lost {
                guard,
                source: loss(),
            },
            None,
            false,
        ),
        (
            ConversionError::Request {
                guard,
                source: request(RequestFailure::MixedRecipes),
            },
            Some(ErrorKind::MixedRecipes),
            false,
        ),
    ] {
        assert!(error.to_string().contains(&format!("{PATH:?}")), "{error}");
        assert_eq!(
            (error.path(), error.kind(), error.is_retryable()),
            (PATH, kind, retryable),
            "{error}"
        );
        assert_well_put(&error);
        assert_eq!(error.into_guard(), 7);
    }
}

/// Returns the loss of the lock at [`PATH`].
fn loss() -> Lost {
    Lost {
        path: PATH.into(),
        reason: LostReason::SessionExpired,
    }
}

#[test]
fn release_errors_state_retryability() {
    for (error, retryable) in [
        (ReleaseError::Lost(loss()), false),
        (
            ReleaseError::Refused {
                node: node(),
                others: 0,
                source: no_source(),
            },
            false,
        ),
        // A flush can be called again.
        (
            ReleaseError::TimedOut {
                nodes: 2,
                waited: SOON,
            },
            true,
        ),
        (ReleaseError::SessionNotClosed { waited: SOON }, false),
    ] {
        assert_eq!(error.is_retryable(), retryable, "{error}");
        assert_well_put(&error);
    }
    for reason in [
        LostReason::SessionExpired,
        LostReason::SessionReplaced,
        LostReason::NodeDeleted,
        LostReason::Closed,
        LostReason::LeaseExpired,
        LostReason::LeaseOver,
    ] {
        assert!(!reason.to_string().is_empty());
    }
}

#[test]
fn transaction_errors_forbid_resending() {
    let path = || "/stock".to_owned();
    for error in [
        TransactionError::Rejected {
            index: 0,
            path: path(),
            source: no_source(),
        },
        // The transaction may have been committed.
        TransactionError::Unknown {
            path: path(),
            source: no_source(),
        },
        TransactionError::TooLarge {
            path: path(),
            bytes: 2_000_000,
        },
        TransactionError::InvalidPath(InvalidPath::new("/stock", "it is only a test")),
    ] {
        assert!(!error.is_retryable(), "{error}");
        assert!(error.to_string().contains("\"/stock\""), "{error}");
        assert_eq!(error.path(), "/stock");
        assert_well_put(&error);
    }
    let lost = TransactionError::Lost(loss());
    assert!(!lost.is_retryable() && lost.path() == PATH, "{lost}");
    assert_well_put(&lost);
}

#[test]
fn counter_errors_name_path_and_retryability() {
    let path = || "/stock".to_owned();
    for (error, retryable, sourced) in [
        (
            AtomicLongError::Contended {
                path: path(),
                waited: SOON,
            },
            true,
            false,
        ),
        // The delta may have been added.
        (
            AtomicLongError::Unknown {
                path: path(),
                source: no_source(),
            },
            false,
            true,
        ),
        (
            AtomicLongError::Overflow {
                path: path(),
                value: i64::MAX,
                delta: 1,
            },
            false,
            false,
        ),
        (
            AtomicLongError::NotACounter {
                path: path(),
                bytes: 3,
            },
            false,
            false,
        ),
        (
            AtomicLongError::NotPersistent { path: path() },
            false,
            false,
        ),
        (
            AtomicLongError::VersionsUsedUp { path: path() },
            false,
            false,
        ),
    ] {
        assert!(error.to_string().contains("\"/stock\""), "{error}");
        assert_eq!(
            (error.path(), error.is_retryable()),
            ("/stock", retryable),
            "{error}"
        );
        assert_eq!(error.source().is_some(), sourced, "{error}");
        assert_well_put(&error);
        assert_brief(&error);
    }
}

/// A Java process may use the node, so the text does not advise to delete it.
#[test]
fn four_bytes_name_curators_counters() {
    let text = |bytes| {
        let path = "/stock".to_owned();
        AtomicLongError::NotACounter { path, bytes }.to_string()
    };
    assert_eq!(
        text(4),
        "the node \"/stock\" is no counter: its data has 4 bytes, not 8, like a SharedCount or \
         DistributedAtomicInteger of Curator; use another path"
    );
    assert_eq!(
        text(3),
        "the node \"/stock\" is no counter: its data has 3 bytes, not 8; use another path"
    );
}

#[test]
fn zero_timeout_reports_not_free() {
    let text = |timeout| {
        let contention = contention(1, None);
        AcquireError::TimedOut {
            path: PATH.to_owned(),
            timeout,
            waited: timeout,
            contention,
        }
        .to_string()
    };
    assert!(text(Duration::ZERO).starts_with("the lock \"/stock/sku-42\" is not free: "));
    assert!(text(SOON).starts_with(&format!(
        "the lock \"/stock/sku-42\" was not free within {SOON:?}: "
    )));
}

#[test]
fn or_busy_changes_only_busy() {
    assert!(matches!(
        Ok::<_, AcquireError>(1).or_busy().unwrap(),
        Acquisition::Acquired(1)
    ));
    assert!(matches!(
        Ok::<_, TryLockError>(1).or_busy().unwrap(),
        Acquisition::Acquired(1)
    ));
    assert_eq!(
        Option::from(Ok::<_, TryLockError>(1).or_busy().unwrap()),
        Some(1)
    );
    let busy = TryLockError::WouldBlock {
        path: PATH.to_owned(),
        contention: contention(1, None),
    };
    assert!(matches!(
        Err::<(), _>(busy).or_busy().unwrap(),
        Acquisition::Busy
    ));
    for (error, _) in acquire_errors() {
        let busy = matches!(error, AcquireError::TimedOut { .. });
        match Err::<(), _>(error.clone()).or_busy() {
            Ok(answer) => assert!(busy && matches!(answer, Acquisition::Busy), "{error}"),
            Err(same) => assert!(!busy && same.to_string() == error.to_string()),
        }
        assert!(
            Err::<(), _>(TryLockError::Acquire(error))
                .or_busy()
                .is_err()
        );
    }
}

#[test]
fn logged_errors_are_one_line() {
    for (error, _) in acquire_errors() {
        let shown = assert_brief(&error);
        assert!(
            shown.starts_with("AcquireError::") && shown.contains(&error.to_string()),
            "{shown}"
        );
        if let Some(source) = error.source() {
            assert!(shown.contains(&source.to_string()), "{shown}");
        }
    }
}

#[test]
fn long_path_is_cut_in_messages() {
    let long = format!("/begin{}/end", "/x".repeat(8_000));
    let error = AcquireError::from(super::Error::new(
        Purpose::Lock,
        &long,
        RequestFailure::Closed,
    ));
    for shown in [error.to_string(), format!("{error:?}")] {
        assert!(
            shown.len() < 250 && shown.contains("/begin/x") && shown.contains("x/end"),
            "{shown}"
        );
        assert!(shown.contains('…'), "{shown}");
    }
    assert_eq!(error.path(), long);
}

#[test]
fn repeatedly_deleted_node_blames_no_server() {
    let told = |kind: FailureKind| {
        super::Error::new(Purpose::Lock, "/lock", Failure::from(kind).unanswered()).to_string()
    };
    let gone = r#"cannot acquire the lock "/lock": a node was deleted meanwhile; try again"#;
    assert_eq!(told(FailureKind::NoNode), gone);
    for kind in [FailureKind::Unknown, FailureKind::NotNow] {
        assert_eq!(
            told(kind),
            format!(
                r#"no ZooKeeper server answered a request to acquire the lock "/lock": {kind}"#
            )
        );
    }
}
