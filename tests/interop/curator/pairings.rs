//! Both sides contend until the extent is reached.

use test_support::peers::CuratorPeer;
use test_support::shared_standalone;

use crate::curator::java::workers;
use crate::pairing::{Finished, in_halves};
use crate::{Outcome, rust};

pub(crate) fn mutexes(peer: &CuratorPeer) -> Outcome {
    let servers = shared_standalone()?;
    let sides = [
        rust("mutex", &["xxx", "xxx", "xx"]),
        workers(peer, "mutex", &["xxx", "xxx"])?,
    ];
    in_halves(&servers, "mutexes", &sides, |_| Ok(()))
}

/// Pairs multi-locks of two paths, whose transactions check both.
pub(crate) fn multi_locks(peer: &CuratorPeer) -> Outcome {
    let servers = shared_standalone()?;
    let sides = [
        rust("multi", &["xxx", "xxx", "xx"]),
        workers(peer, "multi", &["xxx", "xxx"])?,
    ];
    in_halves(&servers, "multi-locks", &sides, |_| Ok(()))
}

/// A member of a multi-lock is a lock like any other.
pub(crate) fn multi_locks_and_mutexes(peer: &CuratorPeer) -> Outcome {
    let servers = shared_standalone()?;
    let sides = [
        rust("multi", &["xxx", "xxx", "xx"]),
        workers(peer, "mutex", &["xxx", "xxx"])?,
    ];
    in_halves(&servers, "multi-locks-and-mutexes", &sides, |_| Ok(()))
}

pub(crate) fn fair_locks_and_mutexes(peer: &CuratorPeer) -> Outcome {
    let servers = shared_standalone()?;
    let sides = [
        rust("fair", &["xxx", "xxx", "xx"]),
        workers(peer, "mutex", &["xxx", "xxx"])?,
    ];
    in_halves(&servers, "fair-locks", &sides, |_| Ok(()))
}

/// This crate's guards are downgraded in between; only later versions of Curator could do so.
pub(crate) fn read_write_locks(peer: &CuratorPeer) -> Outcome {
    let servers = shared_standalone()?;
    let sides = [
        rust("read-write", &["xrc", "xrc", "rrc"]),
        workers(peer, "read-write", &["xrr", "xrr"])?,
    ];
    in_halves(
        &servers,
        "read-write-locks",
        &sides,
        Finished::shares_and_downgrades,
    )
}
