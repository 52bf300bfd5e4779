//! Who contends.

use std::process::Command;

use crate::Error;
use crate::job::{Objects, Recipe};

/// The program in which a contender runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Program {
    Ours,
    Bare,
    ClientLock,
}

/// A kind of lock, as a program uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Contender {
    pub(crate) name: &'static str,
    pub(crate) program: Program,
    pub(crate) recipe: Recipe,
    pub(crate) objects: Objects,
    /// What the table says.
    pub(crate) about: &'static str,
}

const fn contender(name: &'static str, program: Program, recipe: Recipe, about: &'static str) -> Contender {
    Contender { name, program, recipe, objects: Objects::PerTask, about }
}

pub(crate) const OURS: Contender = contender("ours", Program::Ours, Recipe::Mutex, "InterProcessMutex");
pub(crate) const OURS_FAIR: Contender =
    contender("ours_fair", Program::Ours, Recipe::Fair, "InterProcessFairLock");
pub(crate) const OURS_READ_WRITE: Contender =
    contender("ours_read_write", Program::Ours, Recipe::ReadWrite, "InterProcessReadWriteLock");
pub(crate) const BARE: Contender =
    contender("bare", Program::Bare, Recipe::Mutex, "create and delete, both awaited: no lock");
pub(crate) const CLIENT_LOCK: Contender = contender(
    "client_lock",
    Program::ClientLock,
    Recipe::Mutex,
    "zookeeper_client::Client::lock, which deletes in the background",
);

impl Contender {
    /// Whether it is of this workspace: the numerator of ratios.
    pub(crate) fn is_ours(&self) -> bool {
        self.program == Program::Ours
    }

    /// Whether it is a lock, so that no update may be lost.
    pub(crate) fn excludes(&self) -> bool {
        self.program != Program::Bare
    }
}

impl Program {
    /// The command that starts a worker.
    pub(crate) fn command(self) -> Result<Command, Error> {
        let rust = |name: &str| -> Result<Command, Error> {
            let mut command = Command::new(std::env::current_exe()?);
            command.args(["worker", name]);
            Ok(command)
        };
        match self {
            Self::Ours => rust("ours"),
            Self::Bare => rust("bare"),
            Self::ClientLock => rust("client_lock"),
        }
    }
}
