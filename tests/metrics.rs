//! The metrics of locks: counted by the Prometheus exporter, served by the example's server, and
//! scraped over loopback.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[path = "../examples/prometheus/serve.rs"]
mod serve;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use metrics_exporter_prometheus::PrometheusBuilder;
use test_support::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The values of one scrape, by their names and labels.
type Scrape = BTreeMap<String, f64>;

async fn scrape(address: SocketAddr) -> Scrape {
    let mut connection = TcpStream::connect(address).await.unwrap();
    connection
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n")
        .await
        .unwrap();
    let mut answer = String::new();
    within("the metrics", connection.read_to_string(&mut answer))
        .await
        .unwrap();
    let (head, text) = answer.split_once("\r\n\r\n").unwrap();
    assert!(
        head.starts_with("HTTP/1.1 200 ") && head.contains("text/plain"),
        "{head}"
    );
    let values = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    values
        .map(|line| {
            let (key, value) = line.rsplit_once(' ').unwrap();
            (key.to_owned(), value.parse().unwrap())
        })
        .collect()
}

/// Scrapes until this value appears, because nothing else waits for the thread that reports to the
/// recorder.
async fn until(address: SocketAddr, key: &str, value: f64) -> Scrape {
    let reached = async {
        loop {
            let scrape = scrape(address).await;
            if scrape.get(key) == Some(&value) {
                return scrape;
            }
            // The recorder reports no event, so the test polls.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(SOON, reached)
        .await
        .unwrap_or_else(|_| panic!("{key} is not {value}"))
}

/// The names in the first column of the page's table.
fn documented() -> BTreeSet<String> {
    let page = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/docs/observability.md"
    ))
    .unwrap();
    let names = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `zookeeper_recipes_")?.split_once('`'));
    names
        .map(|(name, _)| format!("zookeeper_recipes_{name}"))
        .collect()
}

/// Returns the values of a field in the page's table of fields.
fn values_of(field: &str) -> Vec<String> {
    let page = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/docs/observability.md"
    ))
    .unwrap();
    let row = page
        .lines()
        .find_map(|line| line.strip_prefix(&format!("| {field} | ")))
        .unwrap();
    let is_value = |word: &&str| word.chars().all(|c| c.is_lowercase() || c == '_');
    let values: Vec<_> = row
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(is_value)
        .map(str::to_owned)
        .collect();
    // The names of methods that explain a value are linked.
    values
        .into_iter()
        .filter(|value| !row.contains(&format!("[`{value}`]")))
        .collect()
}

/// A single test, because a process has one recorder.
#[tokio::test]
async fn lock_events_are_counted() {
    let metrics = PrometheusBuilder::new()
        .set_buckets(&[0.05, 60.0])
        .unwrap()
        .install_recorder()
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve::serve(listener, metrics));

    // The counters also exist for a client that never had a session, because an alert compares
    // them.
    let stopped = Server::start().unwrap();
    stopped.stop();
    let early = Client::connect_lazy(&stopped.connect_string()).unwrap();
    let scraped = until(address, "zookeeper_recipes_sessions_begun_total", 0.0).await;
    for reason in values_of("how it was lost") {
        let key = format!(r#"zookeeper_recipes_sessions_ended_total{{reason="{reason}"}}"#);
        assert_eq!(scraped.get(&key), Some(&0.0), "{key}");
    }
    drop(early);

    let server = start_impatient();
    let timeout = Duration::from_secs(1);
    let builder = || {
        Client::builder()
            .session_timeout(timeout)
            .metrics_prefixes(["/inventory", "/cache"])
    };
    let client = connect_as(builder(), &server).await;
    let other = connect_as(builder(), &server).await;
    let mutex = |client: &Client, path: &str| InterProcessMutex::new(client, path).unwrap();

    // Two paths share a prefix, and one path has none.
    let inventory = r#"{recipe="mutex",prefix="/inventory"}"#;
    for path in ["/inventory/sku-1", "/inventory/sku-2", "/inventories"] {
        within("the lock", mutex(&client, path).lock())
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    }
    let holder = within("the lock", mutex(&client, "/inventory/sku-1").lock())
        .await
        .unwrap();
    let second = mutex(&other, "/inventory/sku-1");
    let second = tokio::spawn(async move { second.lock().await });
    let queued = format!("zookeeper_recipes_lock_queue_ahead_count{inventory}");
    let scraped = until(address, &queued, 1.0).await;
    // Every counter exists from the first call, so that its first event is a change, as an alert
    // needs.
    for (counter, key, values) in [
        ("lock_losses_total", "reason", values_of("how it was lost")),
        ("lock_grants_total", "how", values_of("`how`")),
        (
            "lock_not_granted_total",
            "reason",
            values_of("`reason` of `lock.not_granted`"),
        ),
    ] {
        for value in values
            .iter()
            .filter(|value| !(counter == "lock_grants_total" && *value == "list"))
        {
            let key = format!(
                r#"zookeeper_recipes_{counter}{{recipe="mutex",prefix="/inventory",{key}="{value}"}}"#
            );
            assert_eq!(scraped.get(&key), Some(&0.0), "{key} in {scraped:#?}");
        }
    }
    for reason in values_of("how it was lost") {
        let key = format!(r#"zookeeper_recipes_sessions_ended_total{{reason="{reason}"}}"#);
        assert_eq!(scraped.get(&key), Some(&0.0), "{key}");
    }
    let began = scraped
        .keys()
        .filter(|key| key.contains("_total"))
        .cloned()
        .collect::<BTreeSet<_>>();
    for counter in [
        "orphans_deleted_total",
        "heartbeats_late_total",
        "observer_missed_total",
    ] {
        assert_eq!(scraped[&format!("zookeeper_recipes_{counter}")], 0.0);
    }
    assert_eq!(
        scraped[&format!("zookeeper_recipes_lock_waiting{inventory}")],
        1.0
    );
    assert_eq!(
        scraped[&format!("zookeeper_recipes_lock_held{inventory}")],
        1.0
    );
    within("the answer", mutex(&other, "/inventory/sku-1").try_lock())
        .await
        .unwrap_err();
    // The wait for the lock and the hold are longer than the first bucket.
    tokio::time::sleep(Duration::from_millis(60)).await;
    drop(holder);
    drop(within("the lock", second).await.unwrap().unwrap());
    until(
        address,
        &format!("zookeeper_recipes_lock_hold_seconds_count{inventory}"),
        4.0,
    )
    .await;
    let scraped = until(
        address,
        &format!("zookeeper_recipes_lock_held{inventory}"),
        0.0,
    )
    .await;
    let of = |name: &str| {
        let key = format!("zookeeper_recipes_{name}");
        *scraped
            .get(&key)
            .unwrap_or_else(|| panic!("no {key} in {scraped:#?}"))
    };
    let with = |label: &str| inventory.replace('}', &format!(",{label}}}"));
    assert_eq!(of(&format!("lock_waiting{inventory}")), 0.0);
    assert_eq!(of(&format!("lock_held{inventory}")), 0.0);
    assert_eq!(of(&format!("lock_wait_seconds_count{inventory}")), 4.0);
    assert!(of(&format!("lock_wait_seconds_sum{inventory}")) >= 0.06);
    assert!(of(&format!("lock_hold_seconds_bucket{}", with(r#"le="0.05""#))) <= 3.0);
    assert_eq!(
        of(&format!("lock_hold_seconds_bucket{}", with(r#"le="60""#))),
        4.0
    );
    assert_eq!(
        of(&format!("lock_grants_total{}", with(r#"how="list""#))),
        3.0
    );
    assert_eq!(
        of(&format!("lock_grants_total{}", with(r#"how="event""#))),
        1.0
    );
    assert_eq!(
        of(&format!(
            "lock_not_granted_total{}",
            with(r#"reason="busy""#)
        )),
        1.0
    );
    assert_eq!(
        of(r#"lock_grants_total{recipe="mutex",prefix="other",how="list"}"#),
        1.0
    );
    assert_eq!(of("sessions_begun_total"), 2.0);

    // The mutex is handed over in memory, and a downgrade moves the hold to another recipe.
    let shared = InterProcessMutex::builder(&client, "/cache/shared")
        .hand_off(8, SOON)
        .build()
        .unwrap();
    let holder = within("the lock", shared.lock()).await.unwrap();
    let mut waiter = task::spawn(shared.lock());
    assert_pending!(waiter.poll());
    drop(holder);
    drop(within("the lock", waiter).await.unwrap());
    let memory = r#"{recipe="mutex",prefix="/cache",how="memory"}"#;
    until(
        address,
        &format!("zookeeper_recipes_lock_grants_total{memory}"),
        1.0,
    )
    .await;
    let documents = InterProcessReadWriteLock::new(&client, "/cache/documents").unwrap();
    let writer = within("the lock", documents.write_lock().lock())
        .await
        .unwrap();
    let reader = within("the conversion", writer.downgrade()).await.unwrap();
    let read = r#"{recipe="read_lock",prefix="/cache"}"#;
    let write = r#"{recipe="write_lock",prefix="/cache"}"#;
    let scraped = until(address, &format!("zookeeper_recipes_lock_held{read}"), 1.0).await;
    assert_eq!(scraped[&format!("zookeeper_recipes_lock_held{write}")], 0.0);

    // The client has an orphan, a late heartbeat, a loss, and an ended session.
    let held = within("the lock", mutex(&client, "/cache/late").lock())
        .await
        .unwrap();
    let late = mutex(&other, "/cache/late");
    within("the answer", late.acquire(Duration::from_secs(1)))
        .await
        .unwrap_err();
    until(address, "zookeeper_recipes_orphans_deleted_total", 1.0).await;
    let beat = server.hold_reply(Match::op(Op::Multi).session(session(&client)));
    within("a beat", beat.wait_hit()).await;
    // The sleep is longer than the interval, which is a sixth of the session timeout; the lease is
    // valid for two thirds.
    tokio::time::sleep(timeout / 4).await;
    beat.release();
    let late = async {
        while scrape(address).await["zookeeper_recipes_heartbeats_late_total"] == 0.0 {
            // The recorder reports no event, so the test polls.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within("a late beat", late).await;
    assert!(server.expire_session(session(&client)));
    assert_eq!(
        within("the loss", held.lost()).await.reason(),
        LostReason::SessionExpired
    );
    drop((held, reader));
    let lost = r#"{recipe="mutex",prefix="/cache",reason="session_expired"}"#;
    until(
        address,
        &format!("zookeeper_recipes_lock_losses_total{lost}"),
        1.0,
    )
    .await;
    let scraped = until(
        address,
        r#"zookeeper_recipes_sessions_ended_total{reason="session_expired"}"#,
        1.0,
    )
    .await;

    // The labels are those of the documentation, and no path is among them.
    assert!(
        scraped.keys().all(|key| !key.contains("sku")),
        "{scraped:#?}"
    );
    let parts = ["_bucket", "_sum", "_count"];
    let name = |key: &String| {
        let name = key.split('{').next().unwrap_or_default();
        parts
            .iter()
            .find_map(|part| name.strip_suffix(part))
            .unwrap_or(name)
            .to_owned()
    };
    let told: BTreeSet<String> = scraped.keys().map(name).collect();
    assert_eq!(told, documented());
    // Every counter has the labels with which it began, and no others.
    let labels = |key: &str| {
        key.replace("/cache", "/inventory")
            .replace("other", "/inventory")
    };
    let mutexes = scraped
        .keys()
        .filter(|key| key.contains("_total{") && !key.contains("_lock\""));
    let late: Vec<_> = mutexes
        .filter(|key| !began.contains(&labels(key)))
        .collect();
    assert!(late.is_empty(), "{late:#?}");
}
