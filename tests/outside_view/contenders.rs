//! The contenders whose queue is observed.

use std::collections::BTreeMap;

use test_support::prelude::*;
use test_support::{Cut, Proxy};

use crate::observer::{Observer, QueueNode, QueueState};

/// The lock that a contender acquires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recipe {
    Mutex,
    Fair,
    Read,
    Write,
}

impl Recipe {
    /// Returns the part of the node's name between the id and the number.
    pub(crate) fn marker(self) -> &'static str {
        match self {
            Self::Mutex | Self::Fair => "lock-",
            Self::Read => "__READ__",
            Self::Write => "__WRIT__",
        }
    }

    fn lock(self, client: &Client, path: &str) -> Arc<dyn InterProcessLock> {
        match self {
            Self::Mutex => Arc::new(InterProcessMutex::new(client, path).unwrap()),
            Self::Fair => Arc::new(InterProcessFairLock::new(client, path).unwrap()),
            Self::Read => Arc::new(
                InterProcessReadWriteLock::new(client, path)
                    .unwrap()
                    .read_lock(),
            ),
            Self::Write => Arc::new(
                InterProcessReadWriteLock::new(client, path)
                    .unwrap()
                    .write_lock(),
            ),
        }
    }
}

/// How the contenders share clients, and with them sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clients {
    /// All contenders share one client.
    One,
    /// Each contender has a separate client.
    Each,
    /// The number of the client of each contender, in their order.
    Of(&'static [usize]),
}

impl Clients {
    fn of(self, contender: usize) -> usize {
        match self {
            Self::One => 1,
            Self::Each => contender,
            Self::Of(clients) => clients[contender - 1],
        }
    }
}

/// How a waiting contender leaves the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Departure {
    /// The caller drops its future.
    Dropped,
    /// The contender's client is closed, so that all contenders of the client leave.
    Closed,
    /// The servers expire the contender's session.
    Expired,
}

type Attempt = JoinHandle<Result<AnyGuard, AcquireError>>;

#[derive(Debug)]
struct Contender {
    recipe: Recipe,
    client: Client,
    session: i64,
    attempt: Option<Attempt>,
    guard: Option<AnyGuard>,
}

/// The contenders, by their numbers from 1.
#[derive(Debug)]
pub(crate) struct Contenders {
    observer: Observer,
    contenders: BTreeMap<usize, Contender>,
    link: Option<Proxy>,
}

impl Contenders {
    pub(crate) async fn new(observer: Observer, recipes: &[Recipe], clients: Clients) -> Self {
        Self::with_breakable_link(observer, recipes, clients, None).await
    }

    /// Creates the contenders. The client of the contender `breakable` is connected through a link
    /// that can break, with a short session timeout.
    pub(crate) async fn with_breakable_link(
        observer: Observer,
        recipes: &[Recipe],
        clients: Clients,
        breakable: Option<usize>,
    ) -> Self {
        let mut contenders = Self {
            observer,
            contenders: BTreeMap::new(),
            link: None,
        };
        let breakable = breakable.map(|number| clients.of(number));
        let mut connected: BTreeMap<usize, Client> = BTreeMap::new();
        for (number, recipe) in (1..).zip(recipes) {
            let which = clients.of(number);
            let client = match connected.get(&which) {
                Some(client) => client.clone(),
                None if breakable == Some(which) => {
                    let link = Proxy::start(contenders.observer.servers.address(0)).unwrap();
                    let client = connect(&link.address().to_string(), 6).await;
                    contenders.link = Some(link);
                    client
                }
                None => connect(&contenders.observer.servers.connect_string(), 40).await,
            };
            connected.insert(which, client.clone());
            let session = client.session_id().unwrap();
            let contender = Contender {
                recipe: *recipe,
                client,
                session,
                attempt: None,
                guard: None,
            };
            contenders.contenders.insert(number, contender);
        }
        contenders
    }

    fn contender(&mut self, number: usize) -> &mut Contender {
        self.contenders
            .get_mut(&number)
            .expect("a contender with this number")
    }

    /// Starts an attempt of a contender, and waits until its node is at the end of the queue.
    pub(crate) async fn enqueue(&mut self, number: usize) {
        let before = self.observer.nodes().await.len();
        let path = self.observer.directory();
        let contender = self.contender(number);
        let lock = contender.recipe.lock(&contender.client, &path);
        contender.attempt = Some(tokio::spawn(async move { lock.lock().await }));
        self.observer.wait_nodes(before + 1).await;
    }

    /// Enqueues all contenders in the order of their numbers.
    pub(crate) async fn enqueue_all(&mut self) {
        for number in self.contenders.keys().copied().collect::<Vec<_>>() {
            self.enqueue(number).await;
        }
    }

    /// Waits until the contender holds the lock.
    pub(crate) async fn await_grant(&mut self, number: usize) {
        let contender = self.contender(number);
        let attempt = contender.attempt.take().expect("a contender that waits");
        let guard = within(&format!("the grant of {number}"), attempt)
            .await
            .unwrap()
            .unwrap();
        assert!(guard.is_held());
        contender.guard = Some(guard);
    }

    /// Releases the lock of a contender.
    async fn release(&mut self, number: usize) {
        let guard = self
            .contender(number)
            .guard
            .take()
            .expect("a contender that holds the lock");
        within(&format!("the release of {number}"), guard.release())
            .await
            .unwrap();
    }

    /// Releases the lock of the contender `from`, and asserts that exactly the contenders `to` are
    /// granted it.
    pub(crate) async fn release_to(&mut self, from: usize, to: &[usize]) {
        self.release(from).await;
        for number in to {
            self.await_grant(*number).await;
        }
        self.all_others_wait();
    }

    /// Asserts that every contender waits whose grant was not awaited.
    fn all_others_wait(&self) {
        for (number, contender) in &self.contenders {
            if let Some(attempt) = &contender.attempt {
                assert!(
                    !attempt.is_finished(),
                    "expected contender {number} to wait, but its attempt has ended"
                );
            }
        }
    }

    /// Asserts that the queue consists of these contenders in this order, and that the watches are
    /// these pairs of a watcher and the contender that it watches, and no others. Every contender
    /// whose grant was not awaited must wait.
    pub(crate) async fn assert_queue(&self, queue: &[usize], watches: &[(usize, usize)]) {
        let session = |number: &usize| self.contenders[number].session;
        let seen = |number: &usize| QueueNode {
            kind: self.contenders[number].recipe.marker().to_owned(),
            owner: session(number),
            watchers: watches
                .iter()
                .filter(|(_, on)| on == number)
                .map(|(by, _)| session(by))
                .collect(),
        };
        let wanted = QueueState {
            queue: queue.iter().map(seen).collect(),
            ..QueueState::default()
        };
        self.observer
            .assert_state(&format!("a queue of {queue:?} with {watches:?}"), wanted)
            .await;
        self.all_others_wait();
    }

    /// Makes a waiting contender leave the queue.
    pub(crate) async fn depart(&mut self, number: usize, departure: Departure) {
        match departure {
            Departure::Dropped => {
                let attempt = self
                    .contender(number)
                    .attempt
                    .take()
                    .expect("a contender that waits");
                attempt.abort();
                assert!(attempt.await.unwrap_err().is_cancelled());
            }
            Departure::Closed => {
                let Contender {
                    client, session, ..
                } = self.contender(number);
                let session = *session;
                within("the end of a client", client.close()).await.unwrap();
                for other in self
                    .contenders
                    .values_mut()
                    .filter(|other| other.session == session)
                {
                    let attempt = other.attempt.take().expect("a contender that waits");
                    let error = within("the end of a waiter", attempt)
                        .await
                        .unwrap()
                        .unwrap_err();
                    assert_eq!(error.kind(), Some(ErrorKind::Closed), "{error}");
                }
            }
            Departure::Expired => {
                let link = self
                    .link
                    .as_ref()
                    .expect("a contender whose link can break");
                link.refuse().unwrap();
                link.cut(Cut::Reset);
            }
        }
    }

    /// Restores the link, and waits until the contender whose session was expired is in the queue
    /// with its next session.
    pub(crate) async fn reconnect(&mut self, number: usize) {
        let before = self.observer.nodes().await.len();
        self.link.as_ref().expect("a link").accept().unwrap();
        self.observer.wait_nodes(before + 1).await;
        let contender = self.contender(number);
        let session = contender.client.session_id().unwrap();
        assert_ne!(session, contender.session, "a new session");
        contender.session = session;
    }

    /// Ends all contenders, and asserts that they leave no node and no watch.
    pub(crate) async fn finish(mut self) {
        for contender in self.contenders.values_mut() {
            drop(contender.guard.take());
            if let Some(attempt) = contender.attempt.take() {
                attempt.abort();
            }
        }
        // The clients and their sessions still exist, so everything that they have left behind is
        // visible.
        self.assert_queue(&[], &[]).await;
    }
}

pub(crate) async fn connect(servers: &str, seconds: u64) -> Client {
    let builder = Client::builder()
        .session_timeout(Duration::from_secs(seconds))
        .retry_policy(RetryPolicy::n_times(1000, Duration::from_millis(20)));
    within("a session", builder.connect(servers)).await.unwrap()
}

impl Observer {
    /// Waits until the queue has `count` nodes.
    pub(crate) async fn wait_nodes(&self, count: usize) {
        let (observer, handle) = (self.clone(), tokio::runtime::Handle::current());
        let there = move || (handle.block_on(observer.nodes()).len() == count).then_some(());
        let waited =
            tokio::task::spawn_blocking(move || poll_until(&format!("{count} nodes"), SOON, there))
                .await;
        if let Err(never) = waited.unwrap() {
            panic!("{never}");
        }
    }
}
