//! Clients of other languages use the server with their own recipes.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use test_support::peers::{self, CuratorPeer, KazooPeer};
use test_support::{Options, Suite, ZooKeeper};
use zookeeper_test_server::Server;

type Outcome = Result<(), Box<dyn Error>>;

fn main() {
    let mut suite = Suite::new();
    suite.time_limit(Duration::from_secs(480));
    suite.add_needing(
        "in-process",
        "curators_recipes_work",
        peers::curator(),
        |peer| curator(&peer),
    );
    suite.add_needing(
        "zookeeper",
        "curators_recipes_work",
        peers::curator(),
        |peer| curator_on_zookeeper(&peer),
    );
    suite.add_needing("in-process", "kazoos_recipes_work", peers::kazoo(), kazoo);
    suite.run()
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/peers")
        .join(name)
}

/// Runs a client to its end; returns what it prints.
fn prints(mut client: Command, connect: &str) -> Result<String, Box<dyn Error>> {
    let output = client.arg(connect).output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if !output.status.success() {
        return Err(format!(
            "{}\n{}{}",
            output.status,
            text(&output.stdout),
            text(&output.stderr)
        )
        .into());
    }
    Ok(text(&output.stdout))
}

/// Asserts that nothing but nodes is left of clients that have ended.
fn ended(server: &Server) -> Outcome {
    if server.sessions().is_empty() {
        Ok(())
    } else {
        Err(format!("sessions are left: {:?}", server.sessions()).into())
    }
}

/// Runs Curator's recipes; returns a line for each.
fn recipes(peer: &CuratorPeer, connect: &str) -> Result<String, Box<dyn Error>> {
    let mut client = Command::new(&peer.java);
    // Cargo compiles the client first. The log of interruptions, when a recipe is closed, is not
    // shown.
    client
        .args([
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
        ])
        .arg("-cp")
        .arg(&peer.classpath)
        .arg(source("Curator.java"));
    prints(client, connect)
}

fn works(lines: &str) -> Outcome {
    print!("{lines}");
    let wanted = include_str!("peers/Curator.java")
        .matches("RECIPES.put(")
        .count();
    let working = lines.lines().filter(|line| line.ends_with(" ok")).count();
    if working == wanted && lines.lines().count() == wanted {
        Ok(())
    } else {
        Err(format!("{working} of {wanted} recipes work:\n{lines}").into())
    }
}

fn curator(peer: &CuratorPeer) -> Outcome {
    let server = Server::start()?;
    works(&recipes(peer, &server.connect_string())?)?;
    ended(&server)?;
    if server.children("/curator/mutex").is_empty() {
        Ok(())
    } else {
        Err(format!("nodes are left: {:?}", server.children("/curator/mutex")).into())
    }
}

/// Curator's recipes pass the same check on a real ZooKeeper.
fn curator_on_zookeeper(peer: &CuratorPeer) -> Outcome {
    peers::zookeeper()?;
    let server = ZooKeeper::standalone(&Options::new())?;
    works(&recipes(peer, &server.connect_string())?)
}

fn kazoo(peer: KazooPeer) -> Outcome {
    let server = Server::start()?;
    let mut client = Command::new(peer.python);
    client.arg(source("kazoo_recipes.py"));
    prints(client, &server.connect_string())?;
    ended(&server)
}
