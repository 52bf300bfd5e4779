//! The Python programs beside this file.

use std::path::Path;
use std::process::Command;

use test_support::ZooKeeper;
use test_support::peers::KazooPeer;
use zookeeper_recipes::Client;

use crate::pairing::Side;
use crate::scripted_peer::{ScriptedPeer, step_by_step};
use crate::worker::{POINTS, Task};
use crate::{Failure, Outcome};

fn program(peer: &KazooPeer, name: &str) -> Command {
    let mut command = Command::new(&peer.python);
    command.arg(
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/interop/kazoo")
            .join(name),
    );
    command
}

/// kazoo's side of a pairing.
pub(crate) fn workers(
    peer: &KazooPeer,
    recipe: &'static str,
    crews: &'static [&'static str],
) -> Side {
    let peer = peer.clone();
    let start = move |task: &Task| {
        let mut command = program(&peer, "workers.py");
        command.args(task.args());
        Ok(command)
    };
    Side {
        name: "python",
        recipe,
        crews,
        start: Box::new(start),
        points: &POINTS,
    }
}

/// Starts kazoo's locks, which a test controls step by step.
pub(crate) fn scripted_peer(
    peer: &KazooPeer,
    servers: &ZooKeeper,
) -> Result<ScriptedPeer, Failure> {
    let mut command = program(peer, "scripted_peer.py");
    command.arg(servers.connect_string());
    ScriptedPeer::start(command, ())
}

/// A trial that controls kazoo's locks step by step.
pub(crate) fn steps(
    peer: &KazooPeer,
    steps: impl AsyncFnOnce(&ZooKeeper, &mut ScriptedPeer, &str, &Client) -> Outcome,
) -> Outcome {
    step_by_step(|servers| scripted_peer(peer, servers), steps)
}
