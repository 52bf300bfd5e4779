//! Curator's mutex at the path of a command.

use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use test_support::peers::CuratorPeer;
use test_support::unique_path;

use crate::started::{Started, run, until_so_many_wait, zklock};

pub(crate) fn take_turns(peer: &CuratorPeer, servers: &str) {
    let path = unique_path("turns");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/zklock/Turns.java");
    let mut command = Command::new(&peer.java);
    command
        .args(["-cp", &peer.classpath])
        .arg(source)
        .args([servers, &path])
        .stdin(Stdio::piped());
    let mut java = Started::new(command);
    let mut ask = |order: &str| {
        java.tell(order);
        java.line()
    };

    assert_eq!(ask("acquire 30000"), "held");
    let busy = run(zklock(servers, &format!("-n {path}"), "true"));
    assert_eq!(busy.code, 75, "{busy:?}");
    let mut two = [1, 2].map(|waiting| {
        let waiter = Started::new(zklock(servers, &path, "echo inside; sleep 1000"));
        until_so_many_wait(servers, &path, waiting);
        waiter
    });
    assert_eq!(ask("release"), "released");
    for (zklock, others) in two.iter_mut().zip([1, 0]) {
        assert_eq!(zklock.line(), "inside");
        until_so_many_wait(servers, &path, others);
        assert_eq!(ask("acquire 500"), "busy");
        zklock.signal(Signal::TERM);
    }
    assert_eq!(ask("acquire 30000"), "held");
    assert_eq!(two.map(|zklock| zklock.end().code), [143, 143]);
}
