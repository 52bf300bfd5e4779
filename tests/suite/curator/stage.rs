//! What a ported test runs on: an environment, and clients that are still there when it is looked for what is
//! left.

use std::sync::{Arc, Mutex};

use test_support::SOON;
use zookeeper_recipes::{
    Client, ClientBuilder, InterProcessFairLock, InterProcessLock, InterProcessMutex,
    InterProcessReadWriteLock, InterProcessSemaphore,
};

use crate::harness::{Env, Link};

/// Which recipe a test of Curator's base class runs with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Mutex,
    Fair,
    Read,
    Write,
    /// Its permits are no guards: such a test uses [`Stage::semaphore`].
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
            Self::Semaphore => panic!("a semaphore is no lock"),
        }
    }
}

/// Any lock.
pub(crate) type Lock = Arc<dyn InterProcessLock>;

#[derive(Debug)]
pub(crate) struct Stage<'a> {
    pub(crate) env: &'a Env,
    kind: Kind,
    clients: Mutex<Vec<Client>>,
}

impl<'a> Stage<'a> {
    pub(crate) fn new(env: &'a Env, kind: Kind) -> Self {
        Self { env, kind, clients: Mutex::default() }
    }

    /// The client's session goes on until it has been looked for what it has left behind.
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

    /// The client's semaphore at the test's path.
    pub(crate) fn semaphore(&self, client: &Client, permits: u32) -> InterProcessSemaphore {
        InterProcessSemaphore::new(client, self.env.lock_path(), permits).unwrap()
    }

    /// A lock that cannot be held together with the stage's: a reader's is a writer.
    pub(crate) fn rival_of(&self, client: &Client) -> Lock {
        let kind = if self.kind == Kind::Read { Kind::Write } else { self.kind };
        kind.lock(client, &self.env.lock_path())
    }

    /// The same, of a client of its own.
    pub(crate) async fn rival(&self) -> Lock {
        self.rival_of(&self.client().await)
    }

    /// The lock of a client of its own.
    pub(crate) async fn newcomer(&self) -> Lock {
        self.lock(&self.client().await)
    }

    /// Waits until that many nodes are at the test's path: each caller of a fair lock has one, and each client of others;
    /// a reader and its rival have one each.
    pub(crate) async fn wait_nodes(&self, callers: usize, clients: usize) {
        let nodes = if matches!(self.kind, Kind::Fair | Kind::Read) { callers } else { clients };
        self.env.wait_count(&self.env.lock_path(), nodes).await;
    }

    /// Panics unless all nodes and all watches are gone while the clients are still there.
    pub(crate) async fn assert_nothing_left(&self) {
        let clients = std::mem::take(&mut *self.clients.lock().unwrap());
        for client in &clients {
            client.flush(SOON).await.unwrap();
        }
        if self.kind == Kind::Semaphore {
            self.env.wait_no_permits().await;
        } else {
            self.env.wait_count(&self.env.lock_path(), 0).await;
        }
        self.env.wait_no_watches().await;
    }
}

/// Writes ported tests down: `ported![Kind::Mutex; test_locker = "testLocker".needs(..), ..]`; each is looked
/// after.
macro_rules! ported {
    ($kind:expr; $($function:ident $(= $test:literal)? $(.$option:ident($($argument:expr),*))*),* $(,)?) => {
        vec![$(
            $crate::harness::Behaviour::new(stringify!($function), |env| Box::pin(async move {
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
