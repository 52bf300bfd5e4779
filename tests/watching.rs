//! The spans and events that a tracing subscriber receives are those of docs/observability.md.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::{MutexGuard, OnceLock, PoisonError};

use test_support::prelude::*;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, set_default};
use tracing::{Event, Instrument, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, Registry};

/// The name of the thread that calls subscribers.
const JOURNAL_THREAD: &str = "zk-journal";

type Fields = BTreeMap<String, String>;

/// A span or an event that the subscriber received.
#[derive(Clone, Debug)]
struct Received {
    name: &'static str,
    fields: Fields,
    /// The span around this one.
    parent: Option<&'static str>,
    /// Whether a span is closed.
    closed: bool,
    is_span: bool,
    thread: String,
}

impl Received {
    fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }

    fn number(&self, name: &str) -> f64 {
        self.field(name)
            .parse()
            .unwrap_or_else(|_| panic!("{name} of {self:?}"))
    }
}

#[derive(Default)]
struct Captured {
    received: Vec<Received>,
    /// The spans that are open, by their ids.
    open: BTreeMap<u64, usize>,
}

/// A subscriber that records all spans and events.
#[derive(Clone)]
struct Capture(Arc<(Mutex<Captured>, watch::Sender<()>)>);

impl Default for Capture {
    fn default() -> Self {
        Self(Arc::new((Mutex::default(), watch::Sender::new(()))))
    }
}

impl Capture {
    /// Captures the spans and events of the calls of this test.
    fn of_this_test() -> (Self, DefaultGuard) {
        everything();
        let capture = Self::default();
        let guard = set_default(Registry::default().with(capture.clone()));
        (capture, guard)
    }

    fn lock(&self) -> MutexGuard<'_, Captured> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn received(&self, name: &str) -> Vec<Received> {
        self.lock()
            .received
            .iter()
            .filter(|received| received.name == name)
            .cloned()
            .collect()
    }

    /// Waits until at least `times` spans or events with this name satisfy the condition.
    async fn until(
        &self,
        name: &str,
        times: usize,
        is_it: impl Fn(&Received) -> bool,
    ) -> Vec<Received> {
        let mut news = self.0.1.subscribe();
        loop {
            let received: Vec<Received> = self.received(name).into_iter().filter(&is_it).collect();
            if received.len() >= times {
                return received;
            }
            within(name, news.changed()).await.unwrap();
        }
    }

    /// Waits for the first event with this name.
    async fn event(&self, name: &str) -> Received {
        self.until(name, 1, |_| true).await.remove(0)
    }

    /// Waits until `times` spans with this name have been closed.
    async fn closed(&self, name: &str, times: usize) -> Vec<Received> {
        self.until(name, times, |received| received.closed).await
    }

    fn change<T>(&self, change: impl FnOnce(&mut Captured) -> T) -> T {
        let changed = change(&mut self.lock());
        self.0.1.send_replace(());
        changed
    }
}

struct Values<'a>(&'a mut Fields);

impl Visit for Values<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }
}

fn thread() -> String {
    std::thread::current().name().unwrap_or_default().to_owned()
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Capture {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::new();
        attributes.record(&mut Values(&mut fields));
        let parent = context
            .span(id)
            .and_then(|span| span.parent())
            .map(|span| span.name());
        let name = attributes.metadata().name();
        let received = Received {
            name,
            fields,
            parent,
            closed: false,
            is_span: true,
            thread: thread(),
        };
        self.change(|seen| {
            seen.open.insert(id.into_u64(), seen.received.len());
            seen.received.push(received);
        });
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        self.change(|seen| {
            let at = seen.open[&id.into_u64()];
            values.record(&mut Values(&mut seen.received[at].fields));
        });
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        if !event.metadata().target().starts_with("zookeeper_recipes") {
            return;
        }
        let mut fields = Fields::new();
        event.record(&mut Values(&mut fields));
        let parent = context.event_span(event).map(|span| span.name());
        let name = event.metadata().name();
        let received = Received {
            name,
            fields,
            parent,
            closed: false,
            is_span: false,
            thread: thread(),
        };
        self.change(|seen| seen.received.push(received));
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        self.change(|seen| {
            let at = seen.open.remove(&id.into_u64()).unwrap();
            seen.received[at].closed = true;
        });
    }
}

/// Returns the subscriber of the process, which receives the events outside of the tests' spans.
fn everything() -> &'static Capture {
    static EVERYTHING: OnceLock<Capture> = OnceLock::new();
    EVERYTHING.get_or_init(|| {
        let capture = Capture::default();
        tracing::subscriber::set_global_default(Registry::default().with(capture.clone())).unwrap();
        capture
    })
}

#[tokio::test]
async fn call_and_hold_are_callers_spans() {
    let (capture, _default) = Capture::of_this_test();
    let (_server, [client]) = with_clients(start(), connect).await;
    let mutex = mutex(&client);
    let order = async {
        let guard = within("the lock", mutex.lock()).await.unwrap();
        let node = guard.node().name().to_owned();
        guard.release().await.unwrap();
        node
    };
    let node = order
        .instrument(tracing::info_span!("order", id = 17))
        .await;
    let order = capture.closed("order", 1).await.remove(0);
    assert_eq!(order.field("id"), "17");

    let acquire = capture.closed("lock.acquire", 1).await.remove(0);
    assert_eq!(
        (acquire.parent, acquire.field("path")),
        (Some("order"), DIRECTORY)
    );
    assert_eq!(
        (acquire.field("recipe"), acquire.field("outcome")),
        ("mutex", "list")
    );
    assert!(acquire.number("wait_ms") > 0.0, "{acquire:?}");
    let hold = capture.closed("lock.hold", 1).await.remove(0);
    assert_eq!(
        (hold.parent, hold.field("path"), hold.field("recipe")),
        (Some("order"), DIRECTORY, "mutex")
    );
    assert_eq!((hold.field("node"), hold.field("session")), (&*node, "1"));
    assert_eq!(
        (hold.field("how"), hold.field("outcome")),
        ("list", "released")
    );
    assert!(hold.number("hold_ms") > 0.0, "{hold:?}");

    let asked = capture.event("lock.asked").await;
    assert_eq!(
        (asked.parent, asked.field("recipe")),
        (Some("lock.acquire"), "mutex")
    );
    let granted = capture.event("lock.granted").await;
    assert_eq!(
        (granted.parent, granted.field("node")),
        (Some("lock.acquire"), &*node)
    );
    assert_eq!(granted.number("wait_ms"), acquire.number("wait_ms"));
    let released = capture.event("lock.released").await;
    assert_eq!(
        (released.parent, released.field("by")),
        (Some("lock.hold"), "call")
    );
    assert_eq!(released.number("hold_ms"), hold.number("hold_ms"));
    assert_eq!(capture.received("lock.queued").len(), 0, "a free lock");
    // The order is that of the events.
    let order = |name| {
        capture
            .lock()
            .received
            .iter()
            .position(|received| received.name == name)
            .unwrap()
    };
    assert!(
        order("lock.asked") < order("lock.granted")
            && order("lock.granted") < order("lock.released")
    );
}

// Shows: told-apart
#[tokio::test]
async fn only_observers_thread_reports() {
    let (capture, _default) = Capture::of_this_test();
    let (_server, [client]) = with_clients(start(), connect).await;
    let mutex = InterProcessMutex::builder(&client, DIRECTORY)
        .hand_off(8, Duration::from_secs(9))
        .build()
        .unwrap();
    let guard = within("the lock", mutex.lock()).await.unwrap();
    let waiter = pending(mutex.lock());
    drop(guard);
    within("the lock", waiter)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    drop(mutex.try_lock().await.unwrap());
    capture.closed("lock.hold", 3).await;
    let threads: BTreeSet<String> = capture
        .lock()
        .received
        .iter()
        .map(|received| received.thread.clone())
        .collect();
    assert_eq!(threads, BTreeSet::from([JOURNAL_THREAD.to_owned()]));
}

#[tokio::test]
async fn wait_reports_node_and_contenders_ahead() {
    let (capture, _default) = Capture::of_this_test();
    let (_server, [one, other]) = with_clients(start(), connect).await;
    let holder = within("the lock", mutex(&one).lock()).await.unwrap();
    let second = mutex(&other);
    let second = tokio::spawn(async move { second.lock().await });
    let queued = capture.event("lock.queued").await;
    assert_eq!(
        (queued.parent, queued.field("ahead")),
        (Some("lock.acquire"), "1")
    );
    drop(holder);
    let second = within("the lock", second).await.unwrap().unwrap();
    assert_eq!(queued.field("node"), second.node().name());
    let granted = capture
        .until("lock.granted", 1, |received| {
            received.field("how") == "event"
        })
        .await
        .remove(0);
    assert_eq!(granted.field("node"), second.node().name());
    let released = capture.event("lock.released").await;
    assert_eq!(released.field("by"), "drop");
    let waited = capture.closed("lock.acquire", 2).await.remove(1);
    assert_eq!(waited.field("ahead"), "1");
}

// Shows: told-apart
#[tokio::test]
async fn call_without_lock_says_why() {
    let (capture, _default) = Capture::of_this_test();
    let (_server, [one, other]) = with_clients(start(), connect).await;
    let _holder = within("the lock", mutex(&one).lock()).await.unwrap();
    let mutex = mutex(&other);
    within("the answer", mutex.try_lock()).await.unwrap_err();
    within("the answer", mutex.acquire(Duration::from_secs(1)))
        .await
        .unwrap_err();
    let cancelled = pending(mutex.lock());
    drop(cancelled);
    other.close().await.unwrap();
    within("the answer", mutex.lock()).await.unwrap_err();
    let denied = capture.until("lock.not_granted", 4, |_| true).await;
    let reasons: Vec<&str> = denied
        .iter()
        .map(|received| received.field("reason"))
        .collect();
    assert_eq!(reasons, ["busy", "timed_out", "cancelled", "closed"]);
    assert!(denied[1].number("wait_ms") >= 1000.0, "{denied:?}");
    // The holder's span is closed too.
    let calls = capture.closed("lock.acquire", 5).await;
    assert_eq!(
        calls
            .iter()
            .filter(|received| received.field("outcome") == "busy")
            .count(),
        1
    );
}

#[tokio::test]
async fn grants_report_their_origin() {
    let (capture, _default) = Capture::of_this_test();
    let (_server, [client]) = with_clients(start(), connect).await;
    let how = async |what: &str, path: &str, expected: &[&str]| {
        let granted = capture
            .until("lock.granted", expected.len(), |received| {
                received.field("path") == path
            })
            .await;
        let how: Vec<&str> = granted
            .iter()
            .map(|received| received.field("how"))
            .collect();
        assert_eq!(how, expected, "{what}");
    };
    // The fair lock hands over by its transaction.
    let fair = fair(&client);
    let holder = within("the lock", fair.lock()).await.unwrap();
    let mut place = within("a place", fair.enqueue()).await.unwrap();
    assert_eq!(place.position().await.unwrap(), 1);
    let node = holder.node();
    drop(holder);
    let next = within("the lock", place.lock()).await.unwrap();
    how("a fair lock", DIRECTORY, &["list", "handed_over"]).await;
    let handed_over = everything()
        .until("lock.handed_over", 1, |received| {
            received.field("node") == node.name()
        })
        .await
        .remove(0);
    assert_eq!(
        (handed_over.field("to"), handed_over.parent),
        (next.node().name(), None)
    );
    drop(next);
    // The mutex hands over in memory.
    let builder = InterProcessMutex::builder(&client, "/locks/shared");
    let mutex = builder.hand_off(8, Duration::from_secs(9)).build().unwrap();
    let holder = within("the lock", mutex.lock()).await.unwrap();
    let waiter = pending(mutex.lock());
    drop(holder);
    drop(within("the lock", waiter).await.unwrap());
    how(
        "callers that wait together",
        "/locks/shared",
        &["list", "memory"],
    )
    .await;
    // The second reader shares the node.
    let readers = InterProcessReadWriteLock::builder(&client, "/locks/readers")
        .hand_off(8, Duration::from_secs(9));
    let readers = readers.build().unwrap();
    let first = within("the lock", readers.read_lock().lock())
        .await
        .unwrap();
    let second = within("the lock", readers.read_lock().lock())
        .await
        .unwrap();
    how("readers", "/locks/readers", &["list", "shared"]).await;
    drop((first, second));
}

// Shows: told-apart
#[tokio::test]
async fn loss_ends_the_hold() {
    let (capture, _default) = Capture::of_this_test();
    let server = start_impatient();
    let client = connect_as(
        Client::builder().session_timeout(Duration::from_secs(1)),
        &server,
    )
    .await;
    let guard = within("the lock", mutex(&client).lock()).await.unwrap();
    let node = guard.node();
    server.delete(&node).unwrap();
    assert_eq!(
        within("the loss", guard.lost()).await.reason(),
        LostReason::NodeDeleted
    );
    drop(guard);
    let hold = capture.closed("lock.hold", 1).await.remove(0);
    assert_eq!(hold.field("outcome"), "node_deleted");
    assert_eq!(
        capture.received("lock.released").len(),
        0,
        "a hold ends once"
    );
    everything()
        .until("lock.lost", 1, |received| {
            received.field("node") == node.name()
        })
        .await;
}

#[tokio::test]
async fn downgrade_reports_the_new_recipe() {
    let (capture, _default) = Capture::of_this_test();
    let (_server, [client]) = with_clients(start(), connect).await;
    let lock = InterProcessReadWriteLock::new(&client, DIRECTORY).unwrap();
    let writer = within("the lock", lock.write_lock().lock()).await.unwrap();
    let reader = within("the conversion", writer.downgrade()).await.unwrap();
    reader.release().await.unwrap();
    let converted = capture.event("lock.converted").await;
    assert_eq!(
        (converted.field("recipe"), converted.parent),
        ("read_lock", Some("lock.hold"))
    );
    let hold = capture.closed("lock.hold", 1).await.remove(0);
    assert_eq!(
        (hold.field("recipe"), hold.field("outcome")),
        ("read_lock", "released")
    );
    assert_eq!(
        capture.event("lock.asked").await.field("recipe"),
        "write_lock"
    );
}

/// One call has several nodes, and ends with the last.
// Shows: told-apart
#[tokio::test]
async fn nodes_of_call_are_one_hold() {
    let (capture, _default) = Capture::of_this_test();
    let (_server, [client]) = with_clients(start(), connect).await;
    let semaphore = InterProcessSemaphore::new(&client, DIRECTORY, 3).unwrap();
    let mut permits = within(
        "the permits",
        semaphore.acquire_many(2, Duration::from_secs(9)),
    )
    .await
    .unwrap();
    let one = permits.split(1).unwrap();
    within("the release", one.release()).await.unwrap();
    within("the refusal", semaphore.try_acquire_many(3))
        .await
        .unwrap_err();
    // Events arrive in order, so a later event shows that the first release did not end the hold.
    capture.event("lock.not_granted").await;
    assert_eq!(capture.received("lock.released").len(), 0);
    drop(permits);
    assert_eq!(
        capture.event("lock.released").await.field("recipe"),
        "semaphore"
    );
    let granted = capture.event("lock.granted").await;
    assert_eq!(
        (granted.field("holds"), granted.field("path")),
        ("2", DIRECTORY)
    );

    let both = InterProcessMultiLock::from_paths(&client, ["/accounts/4", "/accounts/17"]).unwrap();
    within("both", both.lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    let holds = capture.closed("lock.hold", 2).await;
    assert_eq!(
        (holds[1].field("recipe"), holds[1].field("path")),
        ("multi_lock", "/accounts/17")
    );
    assert_eq!(
        capture.until("lock.released", 2, |_| true).await[1].field("recipe"),
        "multi_lock"
    );
}

/// The names in the first columns of the tables below a heading.
fn documented(heading: &str) -> BTreeSet<String> {
    let page = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/docs/observability.md"
    ))
    .unwrap();
    let (_, part) = page.split_once(heading).unwrap();
    let part = part.split("\n# ").next().unwrap();
    let names = part
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    names
        .map(|(name, _)| name.to_owned())
        .filter(|name| name.contains('.'))
        .collect()
}

#[tokio::test]
async fn event_names_match_the_page() {
    let (capture, _default) = Capture::of_this_test();
    let server = start_impatient();
    let timeout = Duration::from_secs(1);
    let client = connect_as(Client::builder().session_timeout(timeout), &server).await;
    let lock = InterProcessReadWriteLock::new(&client, "/locks/names").unwrap();
    let writer = within("the lock", lock.write_lock().lock()).await.unwrap();
    // A call that has a node and gives up leaves an orphan.
    within(
        "the answer",
        lock.read_lock().acquire(Duration::from_secs(1)),
    )
    .await
    .unwrap_err();
    drop(within("the conversion", writer.downgrade()).await.unwrap());
    let fair = fair(&client);
    let holder = within("the lock", fair.lock()).await.unwrap();
    let mut place = within("a place", fair.enqueue()).await.unwrap();
    drop(holder);
    let lost = within("the lock", place.lock()).await.unwrap();
    let everything = everything();
    everything
        .until("lock.handed_over", 1, |received| {
            received.field("to") == lost.node().name()
        })
        .await;
    everything
        .until("orphan.deleted", 1, |received| {
            received.field("path") == "/locks/names"
        })
        .await;
    // A heartbeat is answered after more than its interval, which is a sixth of a second.
    let beat = server.hold_reply(Match::op(Op::Multi).session(session(&client)));
    within("a beat", beat.wait_hit()).await;
    // The sleep is longer than the interval; the lease is valid for two thirds of a second.
    tokio::time::sleep(timeout / 4).await;
    beat.release();
    everything
        .until("heartbeat.late", 1, |received| {
            received.number("took_ms") > 160.0
        })
        .await;
    server.expire_session(session(&client));
    within("the loss", lost.lost()).await;
    let node = lost.node();
    everything
        .until("lock.lost", 1, |received| {
            received.field("node") == node.name()
        })
        .await;
    everything.until("session.ended", 1, |_| true).await;
    capture.closed("lock.hold", 3).await;

    let names = |capture: &Capture| -> BTreeSet<String> {
        let named = |received: &&Received| {
            received.is_span || received.name.starts_with(|c: char| c.is_ascii_lowercase())
        };
        // An event without a name is named after its line, which changes.
        let stable = |received: &&Received| !received.name.starts_with("event ");
        capture
            .lock()
            .received
            .iter()
            .filter(named)
            .filter(stable)
            .map(|received| received.name.to_owned())
            .collect()
    };
    let mut received = names(&capture);
    received.extend(
        names(everything)
            .into_iter()
            .filter(|name| name.contains('.')),
    );
    // The event is tested in tests/watching_blocked.rs.
    received.insert("observer.missed".to_owned());
    assert_eq!(received, documented("# Spans and events"));
}
