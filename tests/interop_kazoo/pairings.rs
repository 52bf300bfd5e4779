//! Both sides contend for as long as it takes.

use test_support::peers::KazooPeer;
use test_support::shared_standalone;

use crate::interop::pairing::{FULL, run};
use crate::interop::{Outcome, rust};
use crate::python::workers;

pub(crate) fn mutexes(peer: &KazooPeer) -> Outcome {
    let servers = shared_standalone()?;
    let sides = [rust("kazoo-mutex", &["xxx", "xxx", "xx"]), workers(peer, "lock", &["xx", "xx", "xx"])];
    run(&servers, "kazoo-mutexes", &sides, FULL)?.fulfils(&sides, FULL)
}

pub(crate) fn fair_locks(peer: &KazooPeer) -> Outcome {
    let servers = shared_standalone()?;
    let sides = [rust("kazoo-fair", &["xxx", "xxx", "xx"]), workers(peer, "lock", &["xx", "xx", "xx"])];
    run(&servers, "kazoo-fair-locks", &sides, FULL)?.fulfils(&sides, FULL)
}

/// Ours are converted in between, in both directions; kazoo's cannot be.
pub(crate) fn read_write_locks(peer: &KazooPeer) -> Outcome {
    let servers = shared_standalone()?;
    let sides =
        [rust("kazoo-read-write", &["xrc", "xrc", "rrc"]), workers(peer, "read-write", &["xr", "xr", "xr"])];
    let finished = run(&servers, "kazoo-read-write-locks", &sides, FULL)?;
    finished.shares_and_converts()?;
    finished.fulfils(&sides, FULL)
}
