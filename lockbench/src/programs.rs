//! How the contenders' programs are started, and why some cannot be.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use test_support::peers::{self, CuratorPeer, Missing};

use crate::Error;
use crate::contender::Program;

/// The programs; what must be compiled first is compiled once.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    curator: Option<Classes>,
}

/// Where Curator's worker is.
#[derive(Debug)]
enum Classes {
    /// The classes are in a directory that is deleted with this value.
    Own(TempDir),
    /// The classes are in a directory that others use too.
    Shared(PathBuf),
}

impl Classes {
    fn path(&self) -> &Path {
        match self {
            Self::Own(directory) => directory.path(),
            Self::Shared(directory) => directory,
        }
    }
}

impl Program {
    /// Returns why this machine cannot run it: what it needs is not installed.
    pub(crate) fn missing(self) -> Option<Missing> {
        match self {
            Self::Ours | Self::Bare | Self::BareApart | Self::ClientLock => None,
            Self::Curator => peers::curator().err(),
            Self::Kazoo => peers::kazoo().err(),
            Self::Redis => peers::redis().err(),
        }
    }
}

impl Programs {
    /// Returns the programs whose classes are in this directory, or are compiled into it; without
    /// one, into a temporary directory.
    pub(crate) fn compiled_to(classes: Option<&Path>) -> Self {
        Self {
            curator: classes.map(|directory| Classes::Shared(directory.to_owned())),
        }
    }

    /// Returns the command that starts a worker.
    pub(crate) fn command(&mut self, program: Program) -> Result<Command, Error> {
        match program {
            Program::Ours
            | Program::Bare
            | Program::BareApart
            | Program::ClientLock
            | Program::Redis => Ok(worker(&std::env::current_exe()?, program)),
            Program::Curator => self.curator(&peers::curator()?),
            Program::Kazoo => {
                let mut command = Command::new(peers::kazoo()?.python);
                command.arg(sources().join("kazoo_worker.py"));
                Ok(command)
            }
        }
    }

    /// Returns the command that starts a holder of the matrix.
    pub(crate) fn holder(&mut self, program: Program) -> Result<Command, Error> {
        match program {
            Program::Curator => {
                let peer = peers::curator()?;
                let classes = self.classes(&peer)?;
                // A small machine that starts quickly.
                let mut command = Command::new(&peer.java);
                command.args([
                    "-Xmx64m",
                    "-XX:TieredStopAtLevel=1",
                    "-XX:+UseSerialGC",
                    "-XX:-UsePerfData",
                ]);
                command.args(java_arguments(&classes, &peer, "CuratorHolder"));
                Ok(command)
            }
            Program::Kazoo => {
                let mut command = Command::new(peers::kazoo()?.python);
                command.arg(sources().join("kazoo_holder.py"));
                Ok(command)
            }
            program => {
                let mut command = Command::new(std::env::current_exe()?);
                command.args(["holder", program.name()]);
                Ok(command)
            }
        }
    }

    /// Returns the versions of the peers.
    pub(crate) fn versions(&self) -> BTreeMap<String, String> {
        let curator = peers::curator()
            .ok()
            .and_then(|peer| peer.version)
            .map(|version| ("curator", version));
        let kazoo = peers::kazoo().ok().map(|peer| ("kazoo", peer.version));
        curator
            .into_iter()
            .chain(kazoo)
            .map(|(name, version)| (name.to_owned(), version))
            .collect()
    }

    /// Java as on a server: the compilers and the collector that it chooses for this machine, and a
    /// heap whose size does not change.
    fn curator(&mut self, peer: &CuratorPeer) -> Result<Command, Error> {
        let classes = self.classes(peer)?;
        let mut command = Command::new(&peer.java);
        command.args(["-Xms512m", "-Xmx512m", "-Xss256k"]);
        command.args(java_arguments(&classes, peer, "CuratorWorker"));
        Ok(command)
    }

    /// Returns where the compiled classes are.
    fn classes(&mut self, peer: &CuratorPeer) -> Result<PathBuf, Error> {
        let classes = match self.curator.take() {
            Some(classes) => classes,
            None => Classes::Own(tempfile::Builder::new().prefix("lockbench-").tempdir()?),
        };
        if !classes.path().join("CuratorWorker.class").exists() {
            compile(peer, classes.path())?;
        }
        Ok(self.curator.insert(classes).path().to_owned())
    }
}

fn java_arguments(classes: &Path, peer: &CuratorPeer, main: &str) -> [String; 5] {
    [
        "-Djava.net.preferIPv4Stack=true".to_owned(),
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=off".to_owned(),
        "-cp".to_owned(),
        format!("{}:{}", classes.display(), peer.classpath),
        main.to_owned(),
    ]
}

/// Returns the command that starts a worker of this program, or of another build of it.
pub(crate) fn worker(build: &Path, program: Program) -> Command {
    let mut command = Command::new(build);
    command.args(["worker", program.name()]);
    command
}

fn sources() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/peers"))
}

/// Compiles Curator's worker.
fn compile(peer: &CuratorPeer, classes: &Path) -> Result<(), Error> {
    let sources = [
        "CuratorHolder.java",
        "CuratorWorker.java",
        "Job.java",
        "Place.java",
        "Round.java",
    ];
    let mut javac = peer.compiler();
    javac.args(["-cp", &peer.classpath]).arg("-d").arg(classes);
    javac.args(sources.map(|name| self::sources().join("curator").join(name)));
    let output = javac.output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{javac:?}: {}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}
