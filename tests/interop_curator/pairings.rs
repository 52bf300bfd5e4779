//! Both sides contend for as long as it takes.

use test_support::peers::CuratorPeer;
use test_support::shared_standalone;

use crate::interop::pairing::{FULL, run};
use crate::interop::{Outcome, rust};
use crate::java::workers;

pub(crate) fn mutexes(peer: &CuratorPeer) -> Outcome {
    let servers = shared_standalone()?;
    let sides = [rust("mutex", &["xxx", "xxx", "xx"]), workers(peer, "mutex", &["xxx", "xxx"])?];
    run(&servers, "mutexes", &sides, FULL)?.fulfils(&sides, FULL)
}

/// Of two paths each, ours by one transaction.
pub(crate) fn multi_locks(peer: &CuratorPeer) -> Outcome {
    let servers = shared_standalone()?;
    let sides = [rust("multi", &["xxx", "xxx", "xx"]), workers(peer, "multi", &["xxx", "xxx"])?];
    run(&servers, "multi-locks", &sides, FULL)?.fulfils(&sides, FULL)
}

/// A member is a lock like any other.
pub(crate) fn multi_locks_and_mutexes(peer: &CuratorPeer) -> Outcome {
    let servers = shared_standalone()?;
    let sides = [rust("multi", &["xxx", "xxx", "xx"]), workers(peer, "mutex", &["xxx", "xxx"])?];
    run(&servers, "multi-locks-and-mutexes", &sides, FULL)?.fulfils(&sides, FULL)
}

pub(crate) fn fair_locks_and_mutexes(peer: &CuratorPeer) -> Outcome {
    let servers = shared_standalone()?;
    let sides = [rust("fair", &["xxx", "xxx", "xx"]), workers(peer, "mutex", &["xxx", "xxx"])?];
    run(&servers, "fair-locks", &sides, FULL)?.fulfils(&sides, FULL)
}

/// Ours are converted in between, in both directions; of Curator's only later versions could be.
pub(crate) fn read_write_locks(peer: &CuratorPeer) -> Outcome {
    let servers = shared_standalone()?;
    let sides = [rust("read-write", &["xrc", "xrc", "rrc"]), workers(peer, "read-write", &["xrr", "xrr"])?];
    let finished = run(&servers, "read-write-locks", &sides, FULL)?;
    finished.shares_and_converts()?;
    finished.fulfils(&sides, FULL)
}
