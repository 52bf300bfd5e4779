//! The memory of a waiter, and the absence of leaks over cycles. The tests run alone in their
//! process, whose allocations they count.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Lines, Read};
use std::process::{Child, ChildStdout, Command, Stdio};

use peak_alloc::PeakAlloc;
use test_support::prelude::*;
use tokio::sync::{Mutex, MutexGuard};

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

/// The documentation states what a waiter costs this process; the server runs in another process
/// here.
#[tokio::test(flavor = "current_thread")]
async fn waiter_memory_matches_documentation() {
    const WAITERS: usize = 2_000;
    let server = Elsewhere::start().await;
    let client = server.client().await;
    let lock = fair(&client);
    let holder = within("the grant", lock.lock()).await.unwrap();
    let before = ALLOCATED.current_usage();
    let mut waiting: Vec<_> = (0..WAITERS).map(|_| task::spawn(lock.lock())).collect();
    for attempt in &mut waiting {
        assert_pending!(attempt.poll());
    }
    // The session's requests are answered in order, so by then all waiters are in the queue and
    // know their predecessors.
    while lock.participants().await.unwrap().len() < WAITERS + 1 {}
    let mut place = within("a place", lock.enqueue()).await.unwrap();
    assert_eq!(place.position().await.unwrap(), WAITERS + 1);
    let each = ALLOCATED.current_usage().saturating_sub(before) / WAITERS;
    println!("{each} bytes a waiter");
    assert!((500..MEMORY).contains(&each), "{each} bytes a waiter");
    drop((holder, waiting));
    within("the grant", place.lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    client.close().await.unwrap();
    server.stop();
}

/// The largest memory of a waiter, which the documentation of `InterProcessFairLock` promises.
const MEMORY: usize = 6 * 1024;

/// A waiter without a place has no node, no watch and no state machine.
#[tokio::test(flavor = "current_thread")]
async fn waiter_without_place_costs_less() {
    const WAITERS: usize = 10_000;
    let server = Elsewhere::start().await;
    let client = server.client().await;
    let lock = InterProcessMutex::new(&client, DIRECTORY).unwrap();
    let holder = within("the grant", lock.lock()).await.unwrap();
    let before = ALLOCATED.current_usage();
    let mut waiting: Vec<_> = (0..WAITERS).map(|_| task::spawn(lock.lock())).collect();
    for attempt in &mut waiting {
        assert_pending!(attempt.poll());
    }
    // The session's thread polls new tasks in the order in which they were spawned, and a flush is
    // one of them.
    within("a flush", client.flush(SOON)).await.unwrap();
    let each = ALLOCATED.current_usage().saturating_sub(before) / WAITERS;
    println!("{each} bytes a waiter without a place");
    assert!(
        (500..WITHOUT_PLACE).contains(&each),
        "{each} bytes a waiter without a place"
    );
    assert_eq!(lock.participants().await.unwrap().len(), 1);
    drop((holder, waiting));
    let guard = within("the grant", lock.lock()).await.unwrap();
    // A task that waits for the lock, and then releases it, has room for both futures.
    let release = guard.release();
    let bytes = size_of_val(&release);
    assert!(bytes <= RELEASE, "{bytes} bytes for a release");
    release.await.unwrap();
    client.close().await.unwrap();
    server.stop();
}

/// The largest memory of the future of a release.
const RELEASE: usize = 256;

/// How many bytes a waiter without a place costs at most.
const WITHOUT_PLACE: usize = 1_450;

/// A leak of one cycle would add up over a million.
#[tokio::test(flavor = "current_thread")]
async fn cycles_leave_nothing() {
    const CYCLES: usize = 3_000;
    let server = Elsewhere::start().await;
    let client = server.client().await;
    let mutex = InterProcessMutex::new(&client, "/locks/mutex").unwrap();
    let fair = fair(&client);
    let documents = InterProcessReadWriteLock::new(&client, "/locks/documents").unwrap();
    let cycle = async || {
        mutex.lock().await.unwrap().release().await.unwrap();
        let guard = fair.lock().await.unwrap();
        let cancelled = pending(fair.lock());
        drop((cancelled, guard));
        documents
            .read_lock()
            .lock()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
        mutex.try_lock().await.unwrap().release().await.unwrap();
        client.flush(SOON).await.unwrap();
    };
    // Tables and queues keep their capacity.
    for _ in 0..CYCLES {
        within("a cycle", cycle()).await;
    }
    let before = ALLOCATED.current_usage();
    for _ in 0..CYCLES {
        within("a cycle", cycle()).await;
    }
    let grown = ALLOCATED.current_usage().saturating_sub(before);
    println!("{grown} bytes more after {CYCLES} cycles");
    // If each cycle left one number, that would be 24,000 bytes.
    assert!(
        grown < 8 * CYCLES,
        "{grown} bytes more after {CYCLES} cycles"
    );
    client.close().await.unwrap();
    server.stop();
}

/// A server in another process, whose memory is not counted. Only one exists at a time.
struct Elsewhere {
    server: Child,
    output: Lines<BufReader<ChildStdout>>,
    servers: String,
    _alone: MutexGuard<'static, ()>,
}

impl Elsewhere {
    async fn start() -> Self {
        static ALONE: Mutex<()> = Mutex::const_new(());
        let alone = ALONE.lock().await;
        let mut server = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "server_in_another_process", "--nocapture"])
            .env(SERVE, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(server.stdout.take().unwrap()).lines();
        let servers = output
            .find_map(|line| Some(line.unwrap().split_once(SERVE)?.1.to_owned()))
            .unwrap();
        Self {
            server,
            output,
            servers,
            _alone: alone,
        }
    }

    async fn client(&self) -> Client {
        let builder = Client::builder()
            .session_timeout(HOUR)
            .connect_timeout(SOON);
        builder.connect(&self.servers).await.unwrap()
    }

    fn stop(mut self) {
        drop(self.server.stdin.take());
        self.output.by_ref().for_each(drop);
        assert!(self.server.wait().unwrap().success());
    }
}

const SERVE: &str = "SERVE_FOR_THE_MEMORY_TEST ";

/// Not a test: the server that [`Elsewhere`] starts, which runs until its input ends.
#[test]
fn server_in_another_process() {
    if std::env::var_os(SERVE).is_some() {
        let server = start();
        println!("{SERVE}{}", server.connect_string());
        let _ = std::io::stdin().read(&mut [0]);
    }
}
