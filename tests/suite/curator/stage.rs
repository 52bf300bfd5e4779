//! The stage of a ported test: an environment, and clients that still exist when the test checks
//! what is left.

use test_support::prelude::*;

use crate::harness::{Env, Link};

/// The recipe with which a test of Curator's base class runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Mutex,
    Fair,
    Read,
    Write,
    /// Two locks as one, used through [`Stage::any_lock`].
    Multi,
    /// A permit is not a guard, so such a test uses [`Stage::semaphore`].
    Semaphore,
}

impl Kind {
    fn lock(self, client: &Client, path: &str) -> Lock {
        let pair = || InterProcessReadWriteLock::new(client, path).unwrap();
        match self {
            Self::Mutex => Arc::new(InterProcessMutex::new(client, path).unwrap()),
            Self::Fair => Arc::new(InterProcessFairLock::new(client, path).unwrap()),
            Self::Read => Arc::new(pair().read_lock()),
            Self::Write => Arc::new(pair().write_lock()),
            Self::Multi | Self::Semaphore => panic!("{self:?} is not one lock"),
        }
    }
}

/// Any lock.
pub(crate) type Lock = Arc<dyn InterProcessLock>;

/// Any lock, or two as one.
#[derive(Clone, Debug)]
pub(crate) enum AnyLock {
    One(Lock),
    Two(InterProcessMultiLock),
}

impl AnyLock {
    pub(crate) async fn lock(&self) -> Result<Hold, AcquireError> {
        Ok(match self {
            Self::One(lock) => Hold::One(lock.lock().await?),
            Self::Two(locks) => Hold::Two(locks.lock().await?),
        })
    }

    pub(crate) async fn acquire(&self, timeout: Duration) -> Result<Hold, AcquireError> {
        Ok(match self {
            Self::One(lock) => Hold::One(lock.acquire(timeout).await?),
            Self::Two(locks) => Hold::Two(locks.acquire(timeout).await?),
        })
    }

    pub(crate) async fn try_lock(&self) -> Result<Hold, TryLockError> {
        Ok(match self {
            Self::One(lock) => Hold::One(lock.try_lock().await?),
            Self::Two(locks) => Hold::Two(locks.try_lock().await?),
        })
    }

    pub(crate) fn is_acquired_in_this_process(&self) -> bool {
        match self {
            Self::One(lock) => lock.is_acquired_in_this_process(),
            Self::Two(locks) => locks.is_acquired_in_this_process(),
        }
    }
}

/// The guard of [`AnyLock`].
#[derive(Debug)]
pub(crate) enum Hold {
    One(AnyGuard),
    Two(MultiLockGuard),
}

impl Hold {
    pub(crate) fn nodes(&self) -> Vec<NodePath> {
        match self {
            Self::One(guard) => vec![guard.node()],
            Self::Two(guard) => guard.nodes(),
        }
    }

    /// The numbers of its tokens.
    pub(crate) fn zxids(&self) -> Vec<i64> {
        match self {
            Self::One(guard) => vec![guard.fencing_token().zxid()],
            Self::Two(guard) => guard
                .fencing_tokens()
                .iter()
                .map(|token| token.zxid())
                .collect(),
        }
    }

    pub(crate) fn is_held(&self) -> bool {
        match self {
            Self::One(guard) => guard.is_held(),
            Self::Two(guard) => guard.is_held(),
        }
    }

    pub(crate) fn hold_count(&self) -> usize {
        match self {
            Self::One(guard) => guard.hold_count(),
            Self::Two(guard) => guard.hold_count(),
        }
    }

    pub(crate) fn reenter(&self) -> Self {
        match self {
            Self::One(guard) => Self::One(guard.reenter().unwrap()),
            Self::Two(guard) => Self::Two(guard.reenter().unwrap()),
        }
    }

    pub(crate) async fn lost(&self) -> Lost {
        match self {
            Self::One(guard) => guard.lost().await,
            Self::Two(guard) => guard.lost().await,
        }
    }

    pub(crate) async fn release(self) -> Result<(), ReleaseError> {
        match self {
            Self::One(guard) => guard.release().await,
            Self::Two(guard) => guard.release().await,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Stage<'a> {
    pub(crate) env: &'a Env,
    kind: Kind,
    clients: Mutex<Vec<Client>>,
}

impl<'a> Stage<'a> {
    pub(crate) fn new(env: &'a Env, kind: Kind) -> Self {
        Self {
            env,
            kind,
            clients: Mutex::default(),
        }
    }

    /// Keeps the client, so that its session lives until the test has checked what is left behind.
    pub(crate) fn keep(&self, client: &Client) {
        self.clients.lock().unwrap().push(client.clone());
    }

    pub(crate) async fn client(&self) -> Client {
        self.connect(self.env.builder()).await
    }

    pub(crate) async fn connect(&self, builder: ClientBuilder) -> Client {
        let client = self.env.connect(builder).await;
        self.keep(&client);
        client
    }

    /// A client whose connection can be broken, with a session timeout of two seconds.
    pub(crate) async fn linked(&self) -> (Client, Arc<Link>) {
        let (client, link) = self.env.linked(self.env.builder()).await;
        self.keep(&client);
        (client, link)
    }

    /// The client's lock at the test's path.
    pub(crate) fn lock(&self, client: &Client) -> Lock {
        self.lock_at(client, &self.env.lock_path())
    }

    pub(crate) fn lock_at(&self, client: &Client, path: &str) -> Lock {
        self.kind.lock(client, path)
    }

    /// The paths of the stage's lock: two of a multi-lock.
    pub(crate) fn paths(&self) -> Vec<String> {
        let path = self.env.lock_path();
        if self.kind == Kind::Multi {
            vec![path, self.env.path("second")]
        } else {
            vec![path]
        }
    }

    /// Returns the client's lock at these paths.
    pub(crate) fn any_lock_at(&self, client: &Client, paths: &[String]) -> AnyLock {
        match self.kind {
            Kind::Multi => AnyLock::Two(InterProcessMultiLock::from_paths(client, paths).unwrap()),
            _ => AnyLock::One(self.lock_at(client, &paths[0])),
        }
    }

    pub(crate) fn any_lock(&self, client: &Client) -> AnyLock {
        self.any_lock_at(client, &self.paths())
    }

    /// Does the same for a new client.
    pub(crate) async fn any_newcomer(&self) -> AnyLock {
        self.any_lock(&self.client().await)
    }

    /// The client's semaphore at the test's path.
    pub(crate) fn semaphore(&self, client: &Client, permits: u32) -> InterProcessSemaphore {
        InterProcessSemaphore::new(client, self.env.lock_path(), permits).unwrap()
    }

    /// A lock that cannot be held together with the stage's: for a reader's lock, that is a
    /// writer's.
    pub(crate) fn rival_of(&self, client: &Client) -> Lock {
        let kind = if self.kind == Kind::Read {
            Kind::Write
        } else {
            self.kind
        };
        kind.lock(client, &self.env.lock_path())
    }

    /// Does the same for a new client.
    pub(crate) async fn rival(&self) -> Lock {
        self.rival_of(&self.client().await)
    }

    /// Returns the lock of a new client.
    pub(crate) async fn newcomer(&self) -> Lock {
        self.lock(&self.client().await)
    }

    /// Waits until the expected number of nodes are at the test's path: one for each caller of a
    /// fair lock or a multi-lock, one for each client of other locks, and one each for a reader and
    /// its rival.
    pub(crate) async fn wait_nodes(&self, callers: usize, clients: usize) {
        let nodes = if matches!(self.kind, Kind::Fair | Kind::Read | Kind::Multi) {
            callers
        } else {
            clients
        };
        self.env.wait_count(&self.env.lock_path(), nodes).await;
    }

    /// Panics unless all nodes and all watches are gone while the clients still exist.
    pub(crate) async fn assert_nothing_left(&self) {
        let clients = std::mem::take(&mut *self.clients.lock().unwrap());
        for client in &clients {
            client.flush(SOON).await.unwrap();
        }
        if self.kind == Kind::Semaphore {
            self.env.wait_no_permits().await;
        } else {
            for path in self.paths() {
                self.env.wait_count(&path, 0).await;
            }
        }
        self.env.wait_no_watches().await;
    }
}

/// Lists ported tests: `ported![Kind::Mutex; test_locker = "testLocker".needs(..), ..]`; each is
/// checked for leftovers.
macro_rules! ported {
    ($kind:expr; $($function:ident $(= $test:literal)? $(.$option:ident($($argument:expr),*))*),* $(,)?) => {
        vec![$(
            $crate::harness::Behaviour::new(stringify!($function), move |env| Box::pin(async move {
                let stage = $crate::curator::stage::Stage::new(env, $kind);
                $function(&stage).await;
                stage.assert_nothing_left().await;
            }))
            $(.curator($test))?
            $(.$option($($argument),*))*
        ),*]
    };
}
pub(crate) use ported;
