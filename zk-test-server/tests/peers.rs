//! The programs of the README and of `examples`, which start the server by its name or are given
//! its addresses.

use std::error::Error;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use test_support::Suite;
use test_support::peers::{self, CuratorPeer, KazooPeer};

type Outcome = Result<(), Box<dyn Error>>;

const PROGRAM: &str = env!("CARGO_BIN_EXE_zk-test-server");

fn main() {
    let mut suite = Suite::new();
    suite.add_needing(
        "zk-test-server",
        "readme_python_works",
        peers::kazoo(),
        python,
    );
    suite.add_needing(
        "zk-test-server",
        "java_example_works",
        peers::curator(),
        java,
    );
    suite.run()
}

/// Returns the README's program.
fn snippet() -> Result<&'static str, Box<dyn Error>> {
    let (_, rest) = include_str!("../README.md")
        .split_once("```python\n")
        .ok_or("there is none in README.md")?;
    Ok(rest.split("```").next().ok_or("it does not end")?)
}

fn succeeds(mut client: Command) -> Outcome {
    let output = client.stdin(Stdio::null()).output()?;
    if !output.status.success() {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        return Err(format!(
            "{}\n{}{}",
            output.status,
            text(&output.stdout),
            text(&output.stderr)
        )
        .into());
    }
    Ok(())
}

fn python(peer: KazooPeer) -> Outcome {
    let directories = Path::new(PROGRAM).parent().into_iter().map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(directories.chain(std::env::split_paths(&path)))?;
    let mut client = Command::new(peer.python);
    client.env("PATH", path).args(["-c", snippet()?]);
    succeeds(client)
}

fn java(peer: CuratorPeer) -> Outcome {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/LostLock.java");
    let mut process = Command::new(PROGRAM)
        .args(["--admin", "0", "--exit-with-stdin"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut ready = String::new();
    BufReader::new(process.stdout.take().ok_or("no output")?).read_line(&mut ready)?;
    let ready: Value = serde_json::from_str(&ready)?;
    let mut client = Command::new(peer.java);
    // Cargo compiles the client first.
    client
        .args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp"])
        .arg(peer.classpath)
        .arg(source);
    client.args([&ready["connect"], &ready["admin"]].map(|addr| addr.as_str().unwrap_or_default()));
    let outcome = succeeds(client);
    drop(process.stdin.take());
    process.wait()?;
    outcome
}
