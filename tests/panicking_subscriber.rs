//! A tracing subscriber that panics, once, in a task of the client's thread: what it takes along is bounded.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "rules/support.rs"]
mod support;

use std::fmt::Debug;
use std::sync::{Mutex, Once, PoisonError};
use std::time::Duration;

use support::{DIRECTORY, connect, session, start, until, within};
use tracing::field::{Field, Visit};
use tracing::span;
use zookeeper_recipes::InterProcessReadWriteLock;
use zookeeper_test_server::{Match, Op};

const THROTTLED: i32 = -127;

/// Panics at the next event whose message, or one of whose fields, contains this.
static TRIGGER: Mutex<Option<String>> = Mutex::new(None);

struct Panicky;

impl tracing::Subscriber for Panicky {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        struct Text(String);
        impl Visit for Text {
            fn record_debug(&mut self, _: &Field, value: &dyn Debug) {
                self.0 += &format!("{value:?} ");
            }
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        let mut trigger = TRIGGER.lock().unwrap_or_else(PoisonError::into_inner);
        if trigger.as_ref().is_some_and(|trigger| text.0.contains(trigger)) {
            *trigger = None;
            drop(trigger);
            panic!("as the test asked for");
        }
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

fn panic_at(what: &str) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing::subscriber::set_global_default(Panicky).unwrap());
    *TRIGGER.lock().unwrap_or_else(PoisonError::into_inner) = Some(what.to_owned());
}

/// One test: the subscriber is everybody's.
#[tokio::test]
async fn a_panic_costs_no_more_than_its_task() {
    a_panic_while_listing_does_not_stop_all_lists().await;
    a_panic_during_a_conversion_leaves_no_node().await;
}

async fn a_panic_while_listing_does_not_stop_all_lists() {
    let server = start();
    server.create(&format!("{DIRECTORY}/stray"), "").unwrap();
    let client = connect(&server).await;
    let lock = InterProcessReadWriteLock::new(&client, DIRECTORY).unwrap();
    panic_at("are not contenders");
    // This one may fail, or be repeated.
    let first = lock.read_lock().acquire(Duration::from_secs(2)).await;
    drop(first);
    let second = lock.read_lock().acquire(Duration::from_secs(2)).await;
    assert!(second.is_ok(), "nobody is there, and nobody gets it: {}", second.unwrap_err());
}

async fn a_panic_during_a_conversion_leaves_no_node() {
    let server = start();
    let client = connect(&server).await;
    let lock = InterProcessReadWriteLock::new(&client, DIRECTORY).unwrap();
    let writer = within("the lock", lock.write_lock().lock()).await.unwrap();
    server.fail(Match::op(Op::Multi).session(session(&client)).path_contains("__READ__"), THROTTLED);
    panic_at("NotNow");
    let failed = within("an answer", writer.downgrade()).await;
    assert!(failed.is_err());
    drop(failed);
    until(&server, "an empty directory", |view| view.children(DIRECTORY).is_empty()).await;
}
