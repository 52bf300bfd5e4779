//! The Java programs beside this file.

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tempfile::TempDir;
use test_support::ZooKeeper;
use test_support::peers::CuratorPeer;
use zookeeper_recipes::Client;

use crate::pairing::Side;
use crate::scripted_peer::{ScriptedPeer, step_by_step};
use crate::worker::{Task, points};
use crate::{Failure, Outcome};

/// Curator's side of a pairing.
pub(crate) fn workers(
    peer: &CuratorPeer,
    recipe: &'static str,
    crews: &'static [&'static str],
) -> Result<Side, Failure> {
    let programs = Programs::compiled(peer)?;
    let start = move |task: &Task| {
        let mut command = programs.run("Workers");
        command.args(task.args());
        Ok(command)
    };
    Ok(Side {
        name: "java",
        recipe,
        crews,
        start: Box::new(start),
        points: points(recipe),
    })
}

/// Starts Curator's locks, which a test controls step by step.
pub(crate) fn scripted_peer(
    peer: &CuratorPeer,
    servers: &ZooKeeper,
) -> Result<ScriptedPeer, Failure> {
    let programs = Programs::compiled(peer)?;
    let mut command = programs.run("ScriptedPeer");
    command.arg(servers.connect_string());
    ScriptedPeer::start(command, programs)
}

/// A trial that controls Curator's locks step by step.
pub(crate) fn steps(
    peer: &CuratorPeer,
    steps: impl AsyncFnOnce(&ZooKeeper, &mut ScriptedPeer, &str, &Client) -> Outcome,
) -> Outcome {
    step_by_step(|servers| scripted_peer(peer, servers), steps)
}

/// A program that can be started repeatedly.
#[derive(Debug)]
pub(crate) struct Program {
    programs: Arc<Programs>,
    main: &'static str,
}

impl Program {
    pub(crate) fn compiled(peer: &CuratorPeer, main: &'static str) -> Result<Self, Failure> {
        Ok(Self {
            programs: Programs::compiled(peer)?,
            main,
        })
    }

    pub(crate) fn command(&self) -> Command {
        self.programs.run(self.main)
    }
}

/// The compiled programs. The last trial that uses them deletes them.
#[derive(Debug)]
struct Programs {
    peer: CuratorPeer,
    classes: TempDir,
}

impl Programs {
    fn compiled(peer: &CuratorPeer) -> Result<Arc<Self>, Failure> {
        static LATEST: Mutex<Weak<Programs>> = Mutex::new(Weak::new());
        let mut latest = LATEST.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(programs) = latest.upgrade() {
            return Ok(programs);
        }
        let classes = tempfile::Builder::new().prefix("interop-").tempdir()?;
        let mut javac = peer.compiler();
        javac
            .args(["-cp", &peer.classpath])
            .arg("-d")
            .arg(classes.path());
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop/curator");
        javac.args(
            [
                "Workers.java",
                "Semaphores.java",
                "Leaders.java",
                "ScriptedPeer.java",
                "Counters.java",
            ]
            .map(|name| sources.join(name)),
        );
        let output = javac.output()?;
        if !output.status.success() {
            return Err(format!("javac: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        let programs = Arc::new(Self {
            peer: peer.clone(),
            classes,
        });
        *latest = Arc::downgrade(&programs);
        Ok(programs)
    }

    /// The options make a small virtual machine that starts quickly.
    fn run(&self, main: &str) -> Command {
        let mut command = Command::new(&self.peer.java);
        command.args([
            "-Xmx64m",
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-XX:-UsePerfData",
        ]);
        command.args([
            "-Djava.net.preferIPv4Stack=true",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
        ]);
        command.args([
            "-cp",
            &format!("{}:{}", self.classes.path().display(), self.peer.classpath),
            main,
        ]);
        command
    }
}
