//! Clients of other languages use the server with their own recipes.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use test_support::Suite;
use test_support::peers::{self, CuratorPeer, KazooPeer};
use zookeeper_test_server::Server;

type Outcome = Result<(), Box<dyn Error>>;

fn main() {
    let mut suite = Suite::new();
    suite.time_limit(Duration::from_secs(240));
    suite.add_needing("in-process", "curators_recipes_work", peers::curator(), curator);
    suite.add_needing("in-process", "kazoos_recipes_work", peers::kazoo(), kazoo);
    suite.run()
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers").join(name)
}

/// Runs a client to its end; afterwards nothing of it may be left but nodes.
fn succeeds(server: &Server, mut client: Command) -> Outcome {
    let output = client.arg(server.connect_string()).output()?;
    if !output.status.success() {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        return Err(format!("{}\n{}{}", output.status, text(&output.stdout), text(&output.stderr)).into());
    }
    if !server.sessions().is_empty() {
        return Err(format!("sessions are left: {:?}", server.sessions()).into());
    }
    Ok(())
}

fn curator(peer: CuratorPeer) -> Outcome {
    let server = Server::start()?;
    let mut client = Command::new(peer.java);
    // It compiles the client first.
    client
        .args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"])
        .arg("-cp")
        .arg(peer.classpath)
        .arg(source("Curator.java"));
    succeeds(&server, client)?;
    if server.children("/curator/mutex").is_empty() {
        Ok(())
    } else {
        Err(format!("nodes are left: {:?}", server.children("/curator/mutex")).into())
    }
}

fn kazoo(peer: KazooPeer) -> Outcome {
    let server = Server::start()?;
    let mut client = Command::new(peer.python);
    client.arg(source("kazoo_recipes.py"));
    succeeds(&server, client)
}
