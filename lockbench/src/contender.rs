//! The contenders: the kinds of locks that are compared.

use std::time::Duration;

use crate::job::{Objects, Recipe};

/// The program in which a contender runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Program {
    Ours,
    Bare,
    BareApart,
    ClientLock,
    Curator,
    Kazoo,
    Redis,
}

/// Whose some worker processes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Processes {
    /// All contenders' of a program that takes long to become warm: they stay from scenario to
    /// scenario.
    OfProgram(Program),
    /// The processes of one contender, in one scenario.
    OfContender(&'static str),
}

/// A kind of lock, as a program uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Contender {
    pub(crate) name: &'static str,
    pub(crate) program: Program,
    pub(crate) recipe: Recipe,
    pub(crate) objects: Objects,
    /// Whether the program is another build of this one, which `--beside` names.
    pub(crate) beside: bool,
    /// The description for the legend.
    pub(crate) about: &'static str,
}

const fn contender(
    name: &'static str,
    program: Program,
    recipe: Recipe,
    about: &'static str,
) -> Contender {
    Contender {
        name,
        program,
        recipe,
        objects: Objects::PerTask,
        beside: false,
        about,
    }
}

pub(crate) const OURS: Contender =
    contender("ours", Program::Ours, Recipe::Mutex, "`InterProcessMutex`");
pub(crate) const OURS_FAIR: Contender = contender(
    "ours_fair",
    Program::Ours,
    Recipe::Fair,
    "`InterProcessFairLock`",
);
pub(crate) const OURS_READ_WRITE: Contender = contender(
    "ours_read_write",
    Program::Ours,
    Recipe::ReadWrite,
    "`InterProcessReadWriteLock`",
);
pub(crate) const BARE: Contender = contender(
    "bare",
    Program::Bare,
    Recipe::Mutex,
    "create and delete of a lock node, awaited: no lock",
);
pub(crate) const BARE_APART: Contender = contender(
    "bare_apart",
    Program::BareApart,
    Recipe::Mutex,
    "the same, with a separate thread for the session, as in this crate",
);
pub(crate) const BARE_TURNS: Contender = contender(
    "bare_turns",
    Program::BareApart,
    Recipe::Fair,
    "the same, of tasks that wait for their turn in memory: each has its node before it is its turn",
);
pub(crate) const CLIENT_LOCK: Contender = contender(
    "client_lock",
    Program::ClientLock,
    Recipe::Mutex,
    "`zookeeper_client::Client::lock`, which deletes in the background",
);
pub(crate) const CURATOR: Contender = contender(
    "curator",
    Program::Curator,
    Recipe::Mutex,
    "Curator's `InterProcessMutex`, an object for each thread",
);
pub(crate) const CURATOR_SHARED: Contender = Contender {
    objects: Objects::Shared,
    ..contender(
        "curator_shared",
        Program::Curator,
        Recipe::Mutex,
        "the same, one object for all threads",
    )
};
pub(crate) const CURATOR_READ_WRITE: Contender = contender(
    "curator_read_write",
    Program::Curator,
    Recipe::ReadWrite,
    "Curator's `InterProcessReadWriteLock`",
);
pub(crate) const KAZOO: Contender =
    contender("kazoo", Program::Kazoo, Recipe::Mutex, "kazoo's `Lock`");
pub(crate) const REDIS: Contender = contender(
    "redis",
    Program::Redis,
    Recipe::Mutex,
    "`SET NX PX` on one Redis server, waiters poll with growing random pauses",
);

/// The contenders of another build of this program, see [`Contender::twin`].
const OTHER_BUILD: [Contender; 3] = [
    Contender {
        name: "beside_ours",
        beside: true,
        about: "the same in the build of --beside",
        ..OURS
    },
    Contender {
        name: "beside_bare",
        beside: true,
        about: "the same in the build of --beside",
        ..BARE
    },
    Contender {
        name: "beside_client_lock",
        beside: true,
        about: "the same in the build of --beside",
        ..CLIENT_LOCK
    },
];

/// All contenders, ours first.
pub(crate) const ALL: [Contender; 12] = [
    OURS,
    OURS_FAIR,
    OURS_READ_WRITE,
    BARE,
    BARE_APART,
    BARE_TURNS,
    CLIENT_LOCK,
    CURATOR,
    CURATOR_SHARED,
    CURATOR_READ_WRITE,
    KAZOO,
    REDIS,
];

impl Contender {
    /// Returns whether it is of this workspace: the numerator of ratios.
    pub(crate) fn is_ours(&self) -> bool {
        self.program == Program::Ours && !self.beside
    }

    /// Returns the contender that does the same in another build of this program, if there is one.
    pub(crate) fn twin(&self) -> Option<Self> {
        let same = |twin: &&Self| (twin.program, twin.recipe) == (self.program, self.recipe);
        OTHER_BUILD.iter().find(same).copied()
    }

    /// Returns whether it is a lock, so that no update may be lost.
    pub(crate) fn excludes(&self) -> bool {
        !matches!(self.program, Program::Bare | Program::BareApart)
    }

    /// Returns why it cannot take part here.
    pub(crate) fn absence(&self) -> Option<String> {
        self.program.missing().map(|missing| missing.to_string())
    }

    /// Returns which processes it runs in.
    pub(crate) fn processes(&self) -> Processes {
        match self.program.warm_up() {
            Some(_) => Processes::OfProgram(self.program),
            None => Processes::OfContender(self.name),
        }
    }
}

impl Program {
    /// Returns the name of the worker.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Bare => "bare",
            Self::BareApart => "bare_apart",
            Self::ClientLock => "client_lock",
            Self::Curator => "curator",
            Self::Kazoo => "kazoo",
            Self::Redis => "redis",
        }
    }

    /// Returns how long it runs before it is measured, if it takes long to become warm.
    pub(crate) fn warm_up(self) -> Option<Duration> {
        // Java compiles what runs often.
        (self == Self::Curator).then_some(Duration::from_secs(10))
    }

    /// Returns whether it locks on ZooKeeper, and on Redis otherwise.
    pub(crate) fn is_on_zookeeper(self) -> bool {
        self != Self::Redis
    }
}
