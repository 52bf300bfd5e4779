//! The servers that the scenarios share, and the links between them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use test_support::{Cut, Options, Proxy, ServerError, ZooKeeper};

/// ZooKeeper's default.
pub(crate) const TICK: Duration = Duration::from_secs(2);

/// That of the [impatient](Ensemble::impatient).
pub(crate) const SHORT_TICK: Duration = Duration::from_millis(500);

/// By who dials and who is dialled, as the followers dial the leader.
type Links = Arc<Mutex<HashMap<(usize, usize), Arc<Proxy>>>>;

/// Three members. Scenarios that share them hold an [`Arc`]: the last one ends them.
#[derive(Debug)]
pub(crate) struct Ensemble {
    servers: ZooKeeper,
    links: Links,
    /// Those that a leader does not know to be gone.
    left: Mutex<Vec<Arc<Proxy>>>,
    turn: Mutex<()>,
}

impl Ensemble {
    /// These are not disturbed: only links of clients to them break.
    pub(crate) fn undisturbed() -> Result<Arc<Self>, ServerError> {
        static SHARED: Mutex<Weak<Ensemble>> = Mutex::new(Weak::new());
        Self::shared(&SHARED, || Self::start(&defaults()))
    }

    /// Every link between two of these goes through a proxy. They put up with silence for 20 s, and
    /// not for 10 s: longer than a session takes to end.
    pub(crate) fn linked() -> Result<Arc<Self>, ServerError> {
        static SHARED: Mutex<Weak<Ensemble>> = Mutex::new(Weak::new());
        Self::shared(&SHARED, || {
            let links = Links::default();
            let made = Arc::clone(&links);
            // Votes go round the proxies; what followers and leader say to each other never does.
            let options = defaults()
                .sync_limit(10)
                .quorum_addr(move |viewer, target, real| {
                    let proxy = Proxy::of_quorum(real).expect("a port");
                    let address = proxy.address();
                    lock(&made).insert((viewer, target), Arc::new(proxy));
                    address
                });
            Ok(Self {
                links,
                ..Self::start(&options)?
            })
        })
    }

    /// These give a silent member up after 2 s, and not after 10 s.
    pub(crate) fn impatient() -> Result<Arc<Self>, ServerError> {
        static SHARED: Mutex<Weak<Ensemble>> = Mutex::new(Weak::new());
        Self::shared(&SHARED, || {
            Self::start(&Options::new().tick(SHORT_TICK).sync_limit(4))
        })
    }

    /// As ZooKeeper's defaults have them, for one scenario alone.
    pub(crate) fn of_its_own() -> Result<Self, ServerError> {
        Self::start(&defaults())
    }

    fn start(options: &Options) -> Result<Self, ServerError> {
        let servers = ZooKeeper::ensemble(3, options)?;
        Ok(Self {
            servers,
            links: Links::default(),
            left: Mutex::default(),
            turn: Mutex::default(),
        })
    }

    fn shared(
        slot: &Mutex<Weak<Self>>,
        start: impl FnOnce() -> Result<Self, ServerError>,
    ) -> Result<Arc<Self>, ServerError> {
        let mut slot = lock(slot);
        if let Some(running) = slot.upgrade() {
            return Ok(running);
        }
        let started = Arc::new(start()?);
        *slot = Arc::downgrade(&started);
        Ok(started)
    }

    pub(crate) fn servers(&self) -> &ZooKeeper {
        &self.servers
    }

    /// The right to disturb the members, and all of them well.
    pub(crate) fn turn(&self) -> Result<(MutexGuard<'_, ()>, Roles), ServerError> {
        let turn = lock(&self.turn);
        // The one before may have failed halfway.
        self.heal()?;
        let leader = self.servers.wait_leader()?;
        let mut followers = (0..self.servers.len()).filter(|member| *member != leader);
        match (followers.next(), followers.next()) {
            (Some(first), Some(second)) => Ok((
                turn,
                Roles {
                    leader,
                    followers: [first, second],
                },
            )),
            _ => Err(ServerError::Failed("there are three members".to_owned())),
        }
    }

    /// The link by which one member follows another.
    pub(crate) fn link(&self, follower: usize, leader: usize) -> Arc<Proxy> {
        Arc::clone(&lock(&self.links)[&(follower, leader)])
    }

    /// Lets everything through again and waits until all members serve under one leader.
    pub(crate) fn heal(&self) -> Result<(), ServerError> {
        for member in 0..self.servers.len() {
            // Does nothing where it runs.
            self.servers.start(member)?;
            self.servers.resume(member)?;
        }
        for link in lock(&self.links).values() {
            link.accept()?;
            link.resume();
        }
        for link in lock(&self.left).drain(..) {
            link.cut(Cut::Reset);
        }
        self.servers.wait_whole()
    }

    /// Has the followers leave their leader, so that they know at once, while it sees nothing but
    /// silence, and waits until they have another.
    pub(crate) fn desert(&self, roles: Roles) -> Result<(), ServerError> {
        // It stands still for the moment. It would still have a voice in the election, and tell
        // each follower, before the other knows, that it leads and that the other follows: they
        // would go back to it in turns.
        self.servers.pause(roles.leader)?;
        for follower in roles.followers {
            let link = self.link(follower, roles.leader);
            link.refuse()?;
            link.cut_from_server(Cut::Reset);
            lock(&self.left).push(link);
        }
        self.servers.wait_leader()?;
        self.servers.resume(roles.leader)
    }
}

/// Who is what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Roles {
    pub(crate) leader: usize,
    pub(crate) followers: [usize; 2],
}

/// As ZooKeeper has them.
fn defaults() -> Options {
    Options::new().tick(TICK).init_limit(10).sync_limit(5)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
