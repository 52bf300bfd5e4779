//! The plan of a world, which follows from the seed.

use std::time::Duration;

use simnet::Rng;
use zookeeper_recipes::LeaseMargin;

use crate::check::recovery;

/// One world in this many is [long](Plan::long).
const LONG: u64 = 40;
/// One world in this many is [calm](Plan::calm).
const CALM: u64 = 20;

/// The recipe at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Mutex,
    Fair,
    ReadWrite,
    Semaphore,
    /// A counter that only rises.
    Counter,
    /// A counter that is set and compared, to values that are used once.
    Register,
    Latch,
    Selector,
    /// A job that runs once per occasion.
    Job,
    Group,
    /// A persistent node.
    Node,
}

/// Which faults strike most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    All,
    Network,
    Servers,
    Processes,
    Nodes,
    Quorum,
    /// Late answers, one client after another: other faults would end them before they are late
    /// enough.
    Late,
}

/// The sizes, options and times of a world.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    /// The recipe at each path: the same at all, or a mixture, for the effects of recipes of one
    /// client on each other.
    pub kinds: Vec<Kind>,
    pub clients: u64,
    /// The callers of each client.
    pub callers: u64,
    pub session_timeout: Duration,
    /// How long there are faults.
    pub time: Duration,
    /// The server's clock, and how late its leader learns of sessions.
    pub clock_rate: f64,
    pub touch_interval: Duration,
    pub margin: LeaseMargin,
    /// How many callers of a client have a lock in a row, and for how long, before another is
    /// granted the lock; 0 is the default.
    pub handoff: u32,
    pub handoff_ms: u64,
    /// Whether each call makes its own handle.
    pub fresh_handles: bool,
    /// The most permits of a semaphore.
    pub permits: u32,
    /// The longest usual hold, wait, and pause between two calls, in milliseconds.
    pub hold_ms: u64,
    pub wait_ms: u64,
    pub pause_ms: u64,
    /// How often containers are swept beside the faults; 0 is never.
    pub sweep_ms: u64,
    /// How often nodes of contenders are deleted by another process; once in this many faults, and
    /// 0 is never.
    pub broken: u64,
    /// The longest time from one fault to the next.
    pub fault_ms: u64,
    /// How often a caller asks for several paths at once; once in this many turns, and 0 is never.
    pub multi: u64,
    /// Whether the limits of semaphores are changed.
    pub resizes: bool,
    /// The most nodes of a client at a path, if that is set.
    pub max_znodes: Option<usize>,
    /// Whether the directories of locks stay.
    pub persistent: bool,
    /// Whether nothing breaks: then those who ask are served in their order, and few are woken.
    pub calm: bool,
    /// Whether links are long: up to 60 ms, and 2 s now and then.
    pub far: bool,
    /// The members of the ensemble.
    pub members: usize,
    pub profile: Profile,
    /// Whether locks are held for longer than a world takes to heal: then its end ends them.
    pub long: bool,
}

impl Plan {
    pub fn of(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x5eed);
        let session_timeout = Duration::from_secs(*rng.pick(&[4, 10, 30]));
        let all = [
            Kind::Mutex,
            Kind::Mutex,
            Kind::Fair,
            Kind::ReadWrite,
            Kind::ReadWrite,
            Kind::Semaphore,
            Kind::Counter,
            Kind::Register,
            Kind::Latch,
            Kind::Selector,
            Kind::Job,
            Kind::Group,
            Kind::Node,
        ];
        let (kind, mixed, paths) = (*rng.pick(&all), rng.one_in(3), rng.range(1, 4) as usize);
        let kinds: Vec<Kind> = (0..paths)
            .map(|_| if mixed { *rng.pick(&all) } else { kind })
            .collect();
        // Numbers are taken in a moment: a quarter of an hour of that is half a million times the
        // same.
        let counts = kinds
            .iter()
            .any(|kind| matches!(kind, Kind::Counter | Kind::Register));
        let session_timeout = if counts {
            Duration::from_secs(4)
        } else {
            session_timeout
        };
        let (drifts, lags) = (rng.one_in(3), rng.one_in(3));
        let plan = Self {
            seed,
            kinds,
            clients: rng.range(2, 5),
            callers: rng.range(1, 5),
            session_timeout,
            time: session_timeout * 30,
            // The standard margin is a sixth of the timeout, and allows for this.
            clock_rate: if drifts {
                *rng.pick(&[0.9, 1.05, 1.1])
            } else {
                1.0
            },
            touch_interval: if lags {
                session_timeout / 20
            } else {
                Duration::ZERO
            },
            margin: if rng.one_in(4) {
                LeaseMargin::Strict
            } else {
                LeaseMargin::Standard
            },
            handoff: *rng.pick(&[0, 0, 1, 8]),
            handoff_ms: *rng.pick(&[50, 500]),
            fresh_handles: rng.one_in(3),
            permits: *rng.pick(&[2, 2, 5]),
            hold_ms: *rng.pick(&[5, 50, 1000]),
            wait_ms: 40_000,
            pause_ms: *rng.pick(&[5, 30, 3_000]),
            sweep_ms: *rng.pick(&[0, 0, 400]),
            broken: *rng.pick(&[0, 0, 4]),
            fault_ms: session_timeout.as_millis() as u64,
            far: rng.one_in(3),
            multi: *rng.pick(&[0, 0, 6, 1]),
            resizes: rng.one_in(2),
            max_znodes: *rng.pick(&[None, None, Some(1), Some(2)]),
            persistent: rng.one_in(4),
            calm: rng.one_in(CALM),
            members: 1,
            profile: Profile::All,
            long: false,
        };
        let plan = match (plan.calm, rng.one_in(LONG)) {
            (_, true) => plan.long(),
            (true, false) => plan.calm(),
            (false, false) => plan,
        };
        plan.with_faults(&mut rng)
    }

    /// Mutexes and fair locks without options, of which it is known who is next and how many are
    /// woken.
    fn calm(self) -> Self {
        let plain = |kind: &Kind| {
            if *kind == Kind::Mutex {
                Kind::Mutex
            } else {
                Kind::Fair
            }
        };
        Self {
            kinds: self.kinds.iter().map(plain).collect(),
            handoff: 0,
            broken: 0,
            multi: 0,
            // If an answer may take seconds, connections are given up.
            far: false,
            // A directory that is made by another between two creates lets the second in first.
            sweep_ms: 0,
            ..self
        }
    }

    /// Draws what breaks, and how many servers there are.
    fn with_faults(self, rng: &mut Rng) -> Self {
        let profile = *rng.pick(&[
            Profile::All,
            Profile::All,
            Profile::Network,
            Profile::Servers,
            Profile::Processes,
            Profile::Nodes,
            Profile::Quorum,
            Profile::Late,
        ]);
        let members = if profile == Profile::Quorum {
            3
        } else {
            *rng.pick(&[1, 1, 3])
        };
        let plan = Self {
            profile,
            members,
            ..self
        };
        if profile == Profile::Late && !plan.long && !plan.calm {
            plan.late()
        } else {
            plan
        }
    }

    /// Locks that are held until answers come late, and then for long enough to be granted to
    /// another, who waits. Without other delays: a client that has lost its connection does not get
    /// another in time.
    fn late(self) -> Self {
        let session_timeout = Duration::from_secs(4);
        Self {
            clients: 2,
            callers: 1,
            session_timeout,
            time: session_timeout * 30,
            touch_interval: self.touch_interval.min(session_timeout / 20),
            hold_ms: 32_000,
            fault_ms: 4_000,
            far: false,
            ..self
        }
    }

    /// Many locks that are held for hours, with a fault now and then.
    fn long(self) -> Self {
        const HOUR: u64 = 3_600_000;
        let lock = |kind: &Kind| match kind {
            Kind::Mutex | Kind::Fair | Kind::ReadWrite | Kind::Semaphore => *kind,
            // The remaining recipes hold for a short time.
            _ => Kind::Mutex,
        };
        let kinds = self.kinds.iter().map(lock);
        Self {
            kinds: kinds.cycle().take(200).collect(),
            clients: 2,
            callers: 200,
            // Heartbeats are most of the cost of such a world.
            session_timeout: Duration::from_secs(120),
            time: Duration::from_millis(8 * HOUR),
            touch_interval: Duration::ZERO,
            hold_ms: 4 * HOUR,
            wait_ms: 4 * HOUR,
            pause_ms: 60_000,
            sweep_ms: 0,
            fault_ms: HOUR / 4,
            multi: 0,
            calm: false,
            long: true,
            ..self
        }
    }

    pub fn paths(&self) -> usize {
        self.kinds.len()
    }

    /// Returns how long the grant of a free lock may take when nothing is broken, in milliseconds.
    pub fn recovery_ms(&self) -> u64 {
        recovery::limit(self.timeout_ms()) + if self.far { recovery::FAR_MS } else { 0 }
    }

    /// Returns the session timeout in milliseconds.
    pub fn timeout_ms(&self) -> u64 {
        self.session_timeout.as_millis() as u64
    }
}
