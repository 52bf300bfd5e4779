//! Both sides contend until the extent is reached.

use test_support::peers::KazooPeer;
use test_support::shared_standalone;

use crate::kazoo::python::workers;
use crate::pairing::{Finished, in_halves};
use crate::{Outcome, rust};

pub(crate) fn mutexes(peer: &KazooPeer) -> Outcome {
    let servers = shared_standalone()?;
    let sides = [
        rust("kazoo-mutex", &["xxx", "xxx", "xx"]),
        workers(peer, "lock", &["xx", "xx", "xx"]),
    ];
    in_halves(&servers, "kazoo-mutexes", &sides, |_| Ok(()))
}

pub(crate) fn fair_locks(peer: &KazooPeer) -> Outcome {
    let servers = shared_standalone()?;
    let sides = [
        rust("kazoo-fair", &["xxx", "xxx", "xx"]),
        workers(peer, "lock", &["xx", "xx", "xx"]),
    ];
    in_halves(&servers, "kazoo-fair-locks", &sides, |_| Ok(()))
}

/// This crate's guards are downgraded in between; kazoo's cannot be.
pub(crate) fn read_write_locks(peer: &KazooPeer) -> Outcome {
    let servers = shared_standalone()?;
    let sides = [
        rust("kazoo-read-write", &["xrc", "xrc", "rrc"]),
        workers(peer, "read-write", &["xr", "xr", "xr"]),
    ];
    in_halves(
        &servers,
        "kazoo-read-write-locks",
        &sides,
        Finished::shares_and_downgrades,
    )
}
