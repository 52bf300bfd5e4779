//! The texts of the errors, and what each says of itself. Their variants cannot be built outside this crate;
//! those that come up by themselves are shown in `tests/surface.rs`.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::BreakError;
use super::{
    AcquireError, Acquisition, AtomicLongError, BuildError, Cause, ConnectError, ConversionError,
    ConversionFailure, InspectError, InvalidPath, LeadError, Lost, LostReason, OnceError, OrBusy,
    PersistentNodeError, ReadError, ReleaseError, RevokeError, ServerFailures, SetPermitsError,
    TransactionError, TryLockError,
};
use crate::path::NodePath;

const SOON: Duration = Duration::from_secs(20);

fn no_source() -> Cause {
    Arc::new(std::io::Error::other("the server said no"))
}

const NODE: &str = "/stock/sku-42/lock-0000000001";

fn node() -> NodePath {
    NODE.parse().unwrap()
}

fn acquire_errors() -> Vec<(AcquireError, bool)> {
    let path = || "/stock/sku-42".to_owned();
    vec![
        (
            AcquireError::TimedOut {
                path: path(),
                timeout: SOON,
                waited: SOON,
                ahead: 2,
                first: Some(node()),
                held_by: None,
                holder: None,
            },
            true,
        ),
        (AcquireError::Connection { path: path(), source: no_source() }, true),
        (AcquireError::NodeDeleted { path: path(), times: 3 }, true),
        (AcquireError::LeaseOver { path: path() }, true),
        (AcquireError::InvalidLease { path: path() }, false),
        (AcquireError::NoAuth { path: path(), node: path(), has_credentials: Some(false) }, false),
        (AcquireError::Orphaned { path: path(), node: node(), source: no_source() }, false),
        (AcquireError::MixedRecipes { path: path(), node: node() }, false),
        (AcquireError::SequenceExhausted { path: path() }, false),
        (AcquireError::Rejected { path: path(), source: no_source() }, false),
        (AcquireError::AuthFailed { path: path() }, false),
        (AcquireError::Closed { path: path() }, false),
    ]
}

/// One line, without a capital or a full stop, and without what the source says by itself.
fn assert_well_put(error: &dyn Error) {
    let text = error.to_string();
    assert!(!text.is_empty() && !text.contains('\n') && !text.ends_with('.'), "{text}");
    assert!(text.starts_with(|first: char| !first.is_uppercase()) || text.starts_with("ZooKeeper"), "{text}");
    if let Some(source) = error.source() {
        assert!(!text.contains(&source.to_string()), "{text} repeats its source");
    }
}

/// Of a value in a log: one line, and not a long one.
#[track_caller]
fn assert_brief(value: &dyn fmt::Debug) -> String {
    let text = format!("{value:?}");
    assert!(!text.contains('\n') && text.chars().count() < 300, "{text}");
    let pretty = format!("{value:#?}");
    assert!(!pretty.contains('\n'), "{pretty}");
    text
}

#[test]
fn a_job_says_of_which_occasion_and_whether_to_try_again() {
    let (path, occasion) = (|| "/jobs/report".to_owned(), || "2026-11-22".to_owned());
    let unknown = || Box::new(TransactionError::Unknown { path: path(), source: no_source() });
    let too_large = Box::new(TransactionError::TooLarge { path: path(), bytes: 7 });
    for (error, retryable) in [
        (OnceError::Failed { path: path(), occasion: occasion(), source: no_source() }, true),
        (OnceError::NotRecorded { path: path(), occasion: occasion(), source: unknown() }, true),
        (OnceError::NotRecorded { path: path(), occasion: occasion(), source: too_large }, false),
        (OnceError::Unknown { path: path(), occasion: occasion(), source: unknown() }, true),
    ] {
        assert!(error.to_string().contains("\"/jobs/report\""), "{error}");
        assert!(error.to_string().contains("\"2026-11-22\""), "{error}");
        assert_eq!((error.path(), error.is_retryable()), ("/jobs/report", retryable), "{error}");
        assert_well_put(&error);
    }
}

#[test]
fn a_node_says_which_and_whether_to_try_again() {
    let path = || "/services/web-1".to_owned();
    let late =
        |conflict, source| PersistentNodeError::TimedOut { path: path(), waited: SOON, conflict, source };
    for (error, retryable) in [
        (late(true, None), true),
        (late(false, Some(no_source())), true),
        (PersistentNodeError::Connection { path: path(), source: no_source() }, true),
        (PersistentNodeError::NoAuth { path: path(), has_credentials: Some(false) }, false),
        (PersistentNodeError::Rejected { path: path(), source: no_source() }, false),
        (PersistentNodeError::DataTooLarge { path: path(), bytes: 1_000_001 }, false),
        (PersistentNodeError::NotConfirmed { path: path() }, false),
        (PersistentNodeError::AuthFailed { path: path() }, false),
        (PersistentNodeError::Closed { path: path() }, false),
    ] {
        assert!(error.to_string().contains("\"/services/web-1\""), "{error}");
        assert_eq!((error.path(), error.is_retryable()), ("/services/web-1", retryable), "{error}");
        assert_well_put(&error);
    }
}

#[test]
fn a_read_says_of_which_node_and_whether_to_try_again() {
    let path = || "/rates".to_owned();
    for (error, retryable) in [
        (ReadError::InvalidPath(InvalidPath::new("/rates", "it is only a test")), false),
        (ReadError::Connection { path: path(), source: no_source() }, true),
        (ReadError::NoAuth { path: path(), has_credentials: Some(false) }, false),
        (ReadError::Rejected { path: path(), source: no_source() }, false),
    ] {
        assert!(error.to_string().contains("\"/rates\""), "{error}");
        assert_eq!((error.path(), error.is_retryable()), ("/rates", retryable), "{error}");
        assert_well_put(&error);
    }
}

#[test]
fn errors_of_looking_name_the_path_and_are_the_same_to_one_who_acquires() {
    let path = || "/stock/sku-42".to_owned();
    let limit = || "/stock/sku-42/permits".to_owned();
    // With what it is to one who acquires.
    macro_rules! both {
        ($variant:ident { $($field:ident: $value:expr),* }) => {
            (
                InspectError::$variant { path: path(), $($field: $value),* },
                AcquireError::$variant { path: path(), $($field: $value),* },
            )
        };
    }
    for ((error, acquire), retryable, sourced) in [
        (both!(Connection { source: no_source() }), true, true),
        (both!(NoAuth { node: NODE.to_owned(), has_credentials: Some(false) }), false, false),
        (both!(MixedRecipes { node: node() }), false, false),
        (both!(SequenceExhausted {}), false, false),
        (both!(LimitMismatch { ours: 3, theirs: 5, node: node() }), false, false),
        (both!(InvalidLimit { node: limit(), found: "3 bytes".to_owned() }), false, false),
        (both!(Rejected { source: no_source() }), false, true),
        (both!(AuthFailed {}), false, false),
        (both!(Closed {}), false, false),
    ] {
        assert!(error.to_string().contains("\"/stock/sku-42\""), "{error}");
        assert_eq!((error.path(), error.is_retryable()), ("/stock/sku-42", retryable), "{error}");
        assert_eq!(error.source().is_some(), sourced, "{error}");
        assert_well_put(&error);
        assert_brief(&error);

        let converted = AcquireError::from(error.clone());
        assert_eq!(format!("{converted:?}"), format!("{acquire:?}"));
        assert_eq!((converted.path(), converted.is_retryable()), (error.path(), retryable), "{converted}");
        let tried = TryLockError::from(error);
        assert!(matches!(tried, TryLockError::Acquire(_)) && tried.to_string() == acquire.to_string());
    }
    let denied = |has_credentials| {
        InspectError::NoAuth { path: path(), node: NODE.to_owned(), has_credentials }.to_string()
    };
    let needs = format!("the ACL of {NODE:?} needs READ for this client");
    assert!(denied(None).ends_with(&needs), "{}", denied(None));
    assert!(denied(Some(false)).ends_with("which has no credentials (`ClientBuilder::auth`)"));
    assert!(denied(Some(true)).ends_with("which has credentials, but not the right ones"));
}

#[test]
fn errors_of_setting_a_limit_name_the_path_and_say_whether_to_try_again() {
    let path = || "/stock".to_owned();
    let node = || "/stock/permits".to_owned();
    let not_set = SetPermitsError::not_set;
    let unlike = InspectError::SequenceExhausted { path: path() };
    for (error, text, retryable, sourced) in [
        (SetPermitsError::ZeroPermits { path: path() }, "at least 1", false, false),
        (
            SetPermitsError::TooManyPermits { path: path(), asked: 7, limit: 5 },
            "be 7: the largest is 5",
            false,
            false,
        ),
        (not_set(InspectError::Connection { path: path(), source: no_source() }), "set it again", true, true),
        (
            not_set(InspectError::NoAuth { path: path(), node: node(), has_credentials: Some(false) }),
            "\"/stock/permits\" needs WRITE",
            false,
            false,
        ),
        (
            not_set(InspectError::Rejected { path: path(), source: no_source() }),
            "refused to set",
            false,
            true,
        ),
        (
            not_set(InspectError::AuthFailed { path: path() }),
            "refused the client's credentials",
            false,
            false,
        ),
        (not_set(InspectError::Closed { path: path() }), "its client is closed", false, false),
        (not_set(unlike), "refused to set", false, true),
    ] {
        assert!(error.to_string().contains("\"/stock\"") && error.to_string().contains(text), "{error}");
        assert_eq!((error.path(), error.is_retryable()), ("/stock", retryable), "{error}");
        assert_eq!(error.source().is_some(), sourced, "{error}");
        assert_well_put(&error);
        assert_brief(&error);
    }
}

#[test]
fn errors_of_acquiring_name_the_path_and_say_whether_to_try_again() {
    for (error, retryable) in acquire_errors() {
        assert!(error.to_string().contains("\"/stock/sku-42\""), "{error}");
        assert_eq!(error.path(), "/stock/sku-42");
        assert_eq!(error.is_retryable(), retryable, "{error}");
        let sourced = matches!(
            error,
            AcquireError::Connection { .. } | AcquireError::Rejected { .. } | AcquireError::Orphaned { .. }
        );
        assert_eq!(error.source().is_some(), sourced, "{error:?}");
        assert_well_put(&error);

        // A try passes them on as they are.
        let tried = TryLockError::from(error.clone());
        assert_eq!(tried.path(), error.path());
        assert_eq!(tried.to_string(), error.to_string());
        assert_eq!(tried.is_retryable(), retryable);
        assert_eq!(tried.source().is_some(), sourced);
    }
    let left = LeadError::Left { path: "/stock/sku-42".to_owned() };
    for (error, is_sourced) in [(left, false), (LeadError::from(acquire_errors().remove(1).0), true)] {
        assert!(error.to_string().contains("\"/stock/sku-42\""), "{error}");
        assert_eq!((error.path(), error.source().is_some()), ("/stock/sku-42", is_sourced));
        assert_eq!(error.is_retryable(), is_sourced, "as its cause");
        assert_well_put(&error);
        assert_brief(&error);
    }
    let busy = TryLockError::WouldBlock {
        path: "/stock/sku-42".to_owned(),
        ahead: 1,
        first: None,
        held_by: None,
        holder: None,
    };
    assert!(busy.is_retryable() && busy.source().is_none());
    assert!(busy.to_string().contains("\"/stock/sku-42\""), "{busy}");
    assert_well_put(&busy);
}

#[test]
fn errors_of_connecting_name_the_servers_and_say_whether_to_try_again() {
    let servers = || "zk1:2181".to_owned();
    for (error, retryable) in [
        (
            ConnectError::TimedOut { servers: servers(), timeout: SOON, failures: ServerFailures::default() },
            true,
        ),
        (ConnectError::NoCredentials { servers: servers() }, false),
        (
            ConnectError::InvalidCredentials { servers: servers(), reason: "the user is empty".to_owned() },
            false,
        ),
        (ConnectError::InvalidTls { servers: servers(), reason: "they have no CA".to_owned() }, false),
        (ConnectError::InvalidConnectString { servers: servers(), reason: "no port".to_owned() }, false),
        (ConnectError::AuthFailed { servers: servers() }, false),
        (ConnectError::Setup { servers: servers(), source: no_source() }, false),
    ] {
        assert!(error.to_string().contains("zk1:2181"), "{error}");
        assert_eq!((error.servers(), error.path()), (Some("zk1:2181"), None), "{error}");
        assert_eq!(error.is_retryable(), retryable, "{error}");
        assert_well_put(&error);
    }
}

#[test]
fn errors_of_building_and_of_revoking_name_the_path() {
    let path = || "/stock".to_owned();
    for error in [
        BuildError::InvalidPath(InvalidPath::new("/stock", "it is only a test")),
        BuildError::InvalidOption { path: path(), option: "max_znodes", reason: "it is 0" },
        BuildError::ConflictingOptions { path: path(), option: "data" },
        BuildError::MixedRecipes { path: path() },
        BuildError::DuplicateMember { path: path() },
        BuildError::OtherClient { path: path() },
    ] {
        assert!(error.to_string().contains("\"/stock\""), "{error}");
        assert_eq!((error.path(), error.is_retryable()), ("/stock", false), "{error}");
        assert_well_put(&error);
    }
    for error in [BuildError::NoMembers, BuildError::TooManyMembers { members: 1_001, max: 1_000 }] {
        assert_eq!((error.path(), error.is_retryable()), ("", false), "{error}");
        assert_well_put(&error);
    }
    for (error, retryable) in [
        (RevokeError::InvalidPath(InvalidPath::new(NODE, "it is only a test")), false),
        (RevokeError::Connection { node: node(), source: no_source() }, true),
        (RevokeError::Refused { node: node(), source: no_source() }, false),
        (RevokeError::Closed { node: node() }, false),
    ] {
        assert!(error.to_string().contains(&format!("{NODE:?}")), "{error}");
        assert_eq!((error.path(), error.is_retryable()), (NODE, retryable), "{error}");
        assert_well_put(&error);
    }
}

#[test]
fn errors_of_breaking_a_lock_name_the_path_and_the_node() {
    let path = || "/stock/sku-42".to_owned();
    for (error, retryable) in [
        (BreakError::OtherLock { path: path(), node: node() }, false),
        (BreakError::NoAuth { path: path(), node: node() }, false),
        (BreakError::Refused { path: path(), node: node(), source: no_source() }, false),
        (BreakError::Connection { path: path(), node: node(), source: no_source() }, true),
        (BreakError::Closed { path: path(), node: node() }, false),
    ] {
        assert!(error.to_string().contains(&format!("{NODE:?}")), "{error}");
        assert!(error.to_string().contains("\"/stock/sku-42\""), "{error}");
        assert_eq!((error.path(), error.node(), error.is_retryable()), ("/stock/sku-42", &node(), retryable));
        assert_well_put(&error);
    }
    let name = ConnectError::InvalidName { name: "a\nb".to_owned(), reason: "it contains a line break" };
    assert_eq!((name.servers(), name.path(), name.is_retryable()), (None, None, false));
    assert!(name.to_string().contains("\"a\\nb\""), "{name}");
    assert_well_put(&name);
}

#[test]
fn errors_of_converting_keep_the_guard_and_name_the_path() {
    let lost = Lost { path: "/stock".into(), reason: LostReason::SessionExpired };
    for (reason, path, retryable) in [
        (ConversionFailure::WouldDeadlock, None, false),
        (ConversionFailure::Contended, None, true),
        (ConversionFailure::Lost(lost), Some("/stock"), false),
        (ConversionFailure::MixedRecipes { node: node() }, Some(NODE), false),
        (ConversionFailure::Rejected { source: no_source() }, None, false),
    ] {
        assert_well_put(&reason);
        assert_eq!((reason.path(), reason.is_retryable()), (path, retryable), "{reason}");
        let error = ConversionError::new(7, "/stock", reason);
        assert!(error.to_string().contains("\"/stock\""), "{error}");
        assert_eq!((error.path(), error.is_retryable()), ("/stock", retryable), "{error}");
        assert_well_put(&error);
        assert_eq!(error.into_guard(), 7);
    }
}

#[test]
fn errors_of_releasing_say_whether_to_try_again() {
    for (error, retryable) in [
        (ReleaseError::Refused { node: node(), others: 0, source: no_source() }, false),
        // Of a flush, which can be called again.
        (ReleaseError::TimedOut { nodes: 2, waited: SOON }, true),
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
fn errors_of_transactions_name_the_path_and_are_not_to_be_sent_again() {
    let path = || "/stock".to_owned();
    for error in [
        TransactionError::Rejected { index: 0, path: path(), source: no_source() },
        // It may have been committed.
        TransactionError::Unknown { path: path(), source: no_source() },
        TransactionError::TooLarge { path: path(), bytes: 2_000_000 },
    ] {
        assert!(!error.is_retryable(), "{error}");
        assert!(error.to_string().contains("\"/stock\""), "{error}");
        assert_eq!(error.path(), "/stock");
        assert_well_put(&error);
    }
}

#[test]
fn errors_of_counters_name_the_path_and_say_whether_to_try_again() {
    let path = || "/stock".to_owned();
    let mutex = AcquireError::SequenceExhausted { path: "/stock/lock".to_owned() };
    for (error, retryable, sourced) in [
        (AtomicLongError::Connection { path: path(), source: no_source() }, true, true),
        (AtomicLongError::Contended { path: path(), waited: SOON }, true, false),
        // It may have been added.
        (AtomicLongError::Unknown { path: path(), source: no_source() }, false, true),
        (AtomicLongError::Overflow { path: path(), value: i64::MAX, delta: 1 }, false, false),
        (AtomicLongError::NotACounter { path: path(), bytes: 3 }, false, false),
        (AtomicLongError::NotPersistent { path: path() }, false, false),
        (AtomicLongError::VersionsUsedUp { path: path() }, false, false),
        (AtomicLongError::NoAuth { path: path(), has_credentials: Some(false) }, false, false),
        (AtomicLongError::Rejected { path: path(), source: no_source() }, false, true),
        (AtomicLongError::Mutex { path: path(), source: Box::new(mutex) }, false, true),
        (AtomicLongError::AuthFailed { path: path() }, false, false),
        (AtomicLongError::Closed { path: path() }, false, false),
    ] {
        assert!(error.to_string().contains("\"/stock\""), "{error}");
        assert_eq!((error.path(), error.is_retryable()), ("/stock", retryable), "{error}");
        assert_eq!(error.source().is_some(), sourced, "{error}");
        assert_well_put(&error);
        assert_brief(&error);
    }
}

#[test]
fn or_busy_turns_busy_into_an_answer_and_nothing_else() {
    let path = || "/locks/sku-42".to_owned();
    assert!(matches!(Ok::<_, AcquireError>(1).or_busy().unwrap(), Acquisition::Acquired(1)));
    assert!(matches!(Ok::<_, TryLockError>(1).or_busy().unwrap(), Acquisition::Acquired(1)));
    assert_eq!(Option::from(Ok::<_, TryLockError>(1).or_busy().unwrap()), Some(1));
    let busy = TryLockError::WouldBlock { path: path(), ahead: 1, first: None, held_by: None, holder: None };
    assert!(matches!(Err::<(), _>(busy).or_busy().unwrap(), Acquisition::Busy));
    for (error, _) in acquire_errors() {
        let busy = matches!(error, AcquireError::TimedOut { .. });
        match Err::<(), _>(error.clone()).or_busy() {
            Ok(answer) => assert!(busy && matches!(answer, Acquisition::Busy), "{error}"),
            Err(same) => assert!(!busy && same.to_string() == error.to_string()),
        }
        assert!(Err::<(), _>(TryLockError::Acquire(error)).or_busy().is_err());
    }
}

#[test]
fn errors_in_a_log_are_one_line_with_their_sources() {
    for (error, _) in acquire_errors() {
        let shown = assert_brief(&error);
        assert!(shown.starts_with("AcquireError::") && shown.contains(&error.to_string()), "{shown}");
        if let Some(source) = error.source() {
            assert!(shown.contains(&source.to_string()), "{shown}");
        }
    }
}

#[test]
fn a_long_path_is_cut_in_messages_and_not_in_the_answer() {
    let long = format!("/begin{}/end", "/x".repeat(8_000));
    let error = AcquireError::Closed { path: long.clone() };
    for shown in [error.to_string(), format!("{error:?}")] {
        assert!(shown.len() < 250 && shown.contains("/begin/x") && shown.contains("x/end"), "{shown}");
        assert!(shown.contains('…'), "{shown}");
    }
    assert_eq!(error.path(), long);
}
