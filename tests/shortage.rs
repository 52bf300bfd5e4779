//! Processes that run out of file descriptors.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, Stdio};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use test_support::prelude::*;

/// The child's settings: its server, how many descriptors it may open, and whether it is connected
/// already when the limit applies.
const SERVERS: &str = "SERVERS_OF_THE_SHORT_CHILD";
const MORE: &str = "DESCRIPTORS_OF_THE_SHORT_CHILD";
const CONNECTED: &str = "IS_THE_SHORT_CHILD_CONNECTED";

/// Lets this process open this many more descriptors. Returns the limit before.
fn limit_to(more: u64) -> Rlimit {
    let open = std::fs::read_dir("/proc/self/fd").unwrap().count() - 1;
    let before = getrlimit(Resource::Nofile);
    let limit = Rlimit {
        current: Some(open as u64 + more),
        ..before
    };
    setrlimit(Resource::Nofile, limit).unwrap();
    before
}

/// Not a test: a process that the test below starts. Its first connection, or another one, has few
/// descriptors, which either suffice or are named as the reason. A later connection has enough.
#[tokio::test]
async fn short_process() {
    let [Ok(servers), Ok(more), Ok(connected)] = [SERVERS, MORE, CONNECTED].map(std::env::var)
    else {
        return;
    };
    let connect = async || {
        let builder = Client::builder().connect_timeout(SOON);
        builder.connect(&servers).await.unwrap()
    };
    let _first = match &*connected {
        "" => None,
        _ => Some(connect().await),
    };
    let before = limit_to(more.parse().unwrap());
    let short = Client::builder().connect_timeout(Duration::from_millis(300));
    if let Err(error) = short.connect(&servers).await {
        let text = error.to_string();
        assert!(text.contains("Too many open files"), "{more}: {text}");
        println!("{more} {connected}: {text}");
    }
    setrlimit(Resource::Nofile, before).unwrap();
    connect().await;
}

// Shows: connect-errors
#[test]
fn descriptor_shortage_is_named_and_survived() {
    let server = start();
    let child = |(more, connected): (u64, &str)| {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "short_process", "--nocapture"])
            .env(SERVERS, server.connect_string())
            .env(MORE, more.to_string())
            .env(CONNECTED, connected)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let each = |connected| (0..12).map(move |more| (more, connected));
    let children: Vec<_> = each("").chain(each("connected")).map(child).collect();
    let mut shortages = 0;
    for child in children {
        let output = child.wait_with_output().unwrap();
        let [said, failed] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
        assert!(output.status.success(), "{said}{failed}");
        assert!(!failed.contains("panicked"), "{failed}");
        shortages += said.matches("Too many open files").count();
    }
    // The runtime alone needs more than one descriptor.
    assert!(shortages >= 4, "{shortages}");
}
