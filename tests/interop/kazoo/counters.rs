//! An operator sets a counter with the command in the documentation.

use std::fs;
use std::path::Path;
use std::process::Command;

use test_support::peers::KazooPeer;
use test_support::{shared_standalone, unique_path};
use zookeeper_recipes::{Client, DistributedAtomicLong};

use crate::{Failure, Outcome, block_on};

const PAGE: &str = "docs/operating.md";
/// The arguments of the documented command.
const EXAMPLE: &str = "zk1:2181 /orders/number 48151";

/// The command sets a missing counter and an existing one.
pub(crate) fn set_by_hand(peer: &KazooPeer) -> Outcome {
    let servers = shared_standalone()?;
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE))?;
    let command = page
        .lines()
        .find_map(|line| line.strip_prefix("$ python3 -c ")?.strip_suffix(EXAMPLE))
        .ok_or_else(|| format!("{PAGE} has no command for {EXAMPLE}"))?;
    let path = unique_path("counters");
    let address = servers.connect_string();
    let set = |number: i64| -> Outcome {
        let arguments = format!("-c {command} {address} {path} {number}");
        let script = format!("\"$PYTHON\" {arguments}");
        let mut shell = Command::new("sh");
        let done = shell.args(["-c", &script]).env("PYTHON", &peer.python);
        let done = done.output()?;
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        done.status
            .success()
            .then_some(())
            .ok_or_else(|| said.into())
    };
    block_on(async {
        let client = Client::connect(&address).await?;
        let counter = DistributedAtomicLong::new(&client, &path)?;
        for number in [48_151, -7, i64::MAX] {
            set(number)?;
            assert_eq!(counter.get().await?, number);
        }
        set(10)?;
        assert_eq!(counter.next_id().await?, 11);
        client.close().await?;
        Ok::<_, Failure>(())
    })
}
