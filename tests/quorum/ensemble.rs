//! The servers that the scenarios share, and the links between them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use test_support::{Cut, Options, Proxy, ServerError, ZooKeeper};

/// ZooKeeper's default.
pub(crate) const TICK: Duration = Duration::from_secs(2);

/// The tick of the [impatient](Ensemble::impatient) members.
pub(crate) const SHORT_TICK: Duration = Duration::from_millis(500);

/// The links by the member that connects and the member that accepts; followers connect to the
/// leader.
type Links = Arc<Mutex<HashMap<(usize, usize), Arc<Proxy>>>>;

/// Three members. Scenarios that share them hold an [`Arc`], and the last one ends the members.
#[derive(Debug)]
pub(crate) struct Ensemble {
    servers: ZooKeeper,
    links: Links,
    /// The links whose end a leader does not notice.
    left: Mutex<Vec<Arc<Proxy>>>,
    turn: Mutex<()>,
}

impl Ensemble {
    /// Returns members that are not disturbed: only links of clients to them break.
    pub(crate) fn undisturbed() -> Result<Arc<Self>, ServerError> {
        static SHARED: Mutex<Weak<Ensemble>> = Mutex::new(Weak::new());
        Self::shared(&SHARED, || Self::start(&defaults()))
    }

    /// Returns members whose links to each other go through proxies. The members tolerate silence
    /// for 20 s instead of 10 s, longer than a session takes to expire.
    pub(crate) fn linked() -> Result<Arc<Self>, ServerError> {
        static SHARED: Mutex<Weak<Ensemble>> = Mutex::new(Weak::new());
        Self::shared(&SHARED, || {
            let links = Links::default();
            let made = Arc::clone(&links);
            // The votes bypass the proxies; the messages of followers and leader use them.
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

    /// Returns members that tolerate silence for 2 s instead of 10 s.
    pub(crate) fn impatient() -> Result<Arc<Self>, ServerError> {
        static SHARED: Mutex<Weak<Ensemble>> = Mutex::new(Weak::new());
        Self::shared(&SHARED, || {
            Self::start(&Options::new().tick(SHORT_TICK).sync_limit(4))
        })
    }

    /// Starts members with ZooKeeper's defaults, for one scenario alone.
    pub(crate) fn exclusive() -> Result<Self, ServerError> {
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

    /// Waits for the exclusive right to disturb the members, and until all of them work.
    pub(crate) fn turn(&self) -> Result<(MutexGuard<'_, ()>, Roles), ServerError> {
        let turn = lock(&self.turn);
        // The scenario before may have failed halfway.
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

    /// Returns the link by which one member follows another.
    pub(crate) fn link(&self, follower: usize, leader: usize) -> Arc<Proxy> {
        Arc::clone(&lock(&self.links)[&(follower, leader)])
    }

    /// Lets everything through again and waits until all members serve under one leader.
    pub(crate) fn heal(&self) -> Result<(), ServerError> {
        for member in 0..self.servers.len() {
            // A member that runs is left as it is.
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

    /// Makes the followers leave their leader at once, while the leader observes mere silence, and
    /// waits until they have elected another.
    pub(crate) fn abandon_leader(&self, roles: Roles) -> Result<(), ServerError> {
        // The leader is paused during the election. Otherwise it would take part. Before the
        // followers have noticed each other, it would convince each that it still leads and that
        // the other follows, so they would return to it in turns.
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

/// The roles of the members.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Roles {
    pub(crate) leader: usize,
    pub(crate) followers: [usize; 2],
}

/// Returns ZooKeeper's defaults.
fn defaults() -> Options {
    Options::new().tick(TICK).init_limit(10).sync_limit(5)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
