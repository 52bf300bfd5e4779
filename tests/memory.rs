//! What a waiter costs this process: the documentation says it. Alone in its process, whose allocations it
//! counts.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::Duration;

use peak_alloc::PeakAlloc;
use test_support::in_process::{fair, start};
use test_support::within;
use tokio_test::{assert_pending, task};
use zookeeper_recipes::Client;

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

/// The documentation says what a waiter costs this process; the server is another one here.
#[tokio::test(flavor = "current_thread")]
async fn the_memory_of_a_waiter_is_what_the_documentation_says() {
    const WAITERS: usize = 2_000;
    let mut server = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_server_in_another_process", "--nocapture"])
        .env(SERVE, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(server.stdout.take().unwrap()).lines();
    let servers = output.find_map(|line| Some(line.unwrap().split_once(SERVE)?.1.to_owned())).unwrap();
    let client = Client::builder().session_timeout(Duration::from_secs(40)).connect(&servers).await.unwrap();
    let lock = fair(&client);
    let holder = within("the grant", lock.lock()).await.unwrap();
    let before = ALLOCATED.current_usage();
    let mut waiting: Vec<_> = (0..WAITERS).map(|_| task::spawn(lock.lock())).collect();
    for attempt in &mut waiting {
        assert_pending!(attempt.poll());
    }
    // The session's requests are answered in order, so by then all are in the queue and have seen where they
    // stand.
    while lock.participants().await.unwrap().len() < WAITERS + 1 {}
    let mut place = within("a place", lock.enqueue()).await.unwrap();
    assert_eq!(place.position().await.unwrap(), WAITERS + 1);
    let each = ALLOCATED.current_usage().saturating_sub(before) / WAITERS;
    println!("{each} bytes a waiter");
    assert!((500..MEMORY).contains(&each), "{each} bytes a waiter");
    drop((holder, waiting));
    within("the grant", place.lock()).await.unwrap().release().await.unwrap();
    client.close().await.unwrap();
    drop(server.stdin.take());
    output.for_each(drop);
    assert!(server.wait().unwrap().success());
}

/// What `InterProcessFairLock` says that a waiter costs at most.
const MEMORY: usize = 6 * 1024;

const SERVE: &str = "SERVE_FOR_THE_MEMORY_TEST ";

/// No test of its own: the server of the one before, when that starts it, until its input ends.
#[test]
fn a_server_in_another_process() {
    if std::env::var_os(SERVE).is_some() {
        let server = start();
        println!("{SERVE}{}", server.connect_string());
        let _ = std::io::stdin().read(&mut [0]);
    }
}
