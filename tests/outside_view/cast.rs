//! Those who are looked at.

use std::collections::BTreeMap;

use test_support::prelude::*;
use test_support::{Cut, Proxy};

use crate::view::{Outside, Seen, View};

/// What a contender asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Mutex,
    Fair,
    Read,
    Write,
}

impl Role {
    /// What its node's name has between id and number.
    pub(crate) fn mark(self) -> &'static str {
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

/// Whose sessions the contenders are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clients {
    /// All of one.
    One,
    /// Each has a client of its own.
    Each,
    /// The first, the second and so on of several.
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

/// How a contender goes that has not been served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Its future is dropped.
    Dropped,
    /// Its client is closed; it goes with all others of that client.
    Closed,
    /// Its session ends, because the servers have not heard of it for too long.
    Expired,
}

type Attempt = JoinHandle<Result<AnyGuard, AcquireError>>;

#[derive(Debug)]
struct Contender {
    role: Role,
    client: Client,
    session: i64,
    attempt: Option<Attempt>,
    guard: Option<AnyGuard>,
}

/// The contenders, by their numbers from 1 on.
#[derive(Debug)]
pub(crate) struct Cast {
    outside: Outside,
    contenders: BTreeMap<usize, Contender>,
    link: Option<Proxy>,
}

impl Cast {
    pub(crate) async fn new(outside: Outside, roles: &[Role], clients: Clients) -> Self {
        Self::with_mortal(outside, roles, clients, None).await
    }

    /// The client of one of them goes through a link that can break, and its session is a short
    /// one.
    pub(crate) async fn with_mortal(
        outside: Outside,
        roles: &[Role],
        clients: Clients,
        mortal: Option<usize>,
    ) -> Self {
        let mut cast = Self {
            outside,
            contenders: BTreeMap::new(),
            link: None,
        };
        let mortal = mortal.map(|number| clients.of(number));
        let mut connected: BTreeMap<usize, Client> = BTreeMap::new();
        for (number, role) in (1..).zip(roles) {
            let which = clients.of(number);
            let client = match connected.get(&which) {
                Some(client) => client.clone(),
                None if mortal == Some(which) => {
                    let link = Proxy::start(cast.outside.servers.address(0)).unwrap();
                    let client = connect(&link.address().to_string(), 6).await;
                    cast.link = Some(link);
                    client
                }
                None => connect(&cast.outside.servers.connect_string(), 40).await,
            };
            connected.insert(which, client.clone());
            let session = client.session_id().unwrap();
            let contender = Contender {
                role: *role,
                client,
                session,
                attempt: None,
                guard: None,
            };
            cast.contenders.insert(number, contender);
        }
        cast
    }

    fn contender(&mut self, number: usize) -> &mut Contender {
        self.contenders
            .get_mut(&number)
            .expect("a contender of that number")
    }

    /// Has a contender ask for its lock, and waits until its node stands at the end of the queue.
    pub(crate) async fn joins(&mut self, number: usize) {
        let before = self.outside.nodes().await.len();
        let path = self.outside.directory();
        let contender = self.contender(number);
        let lock = contender.role.lock(&contender.client, &path);
        contender.attempt = Some(tokio::spawn(async move { lock.lock().await }));
        self.outside.wait_nodes(before + 1).await;
    }

    /// All of them, one behind the other.
    pub(crate) async fn all_join(&mut self) {
        for number in self.contenders.keys().copied().collect::<Vec<_>>() {
            self.joins(number).await;
        }
    }

    /// The contender gets the lock.
    pub(crate) async fn gets_it(&mut self, number: usize) {
        let contender = self.contender(number);
        let attempt = contender.attempt.take().expect("one that has asked");
        let guard = within(&format!("the grant of {number}"), attempt)
            .await
            .unwrap()
            .unwrap();
        assert!(guard.is_held());
        contender.guard = Some(guard);
    }

    /// The contender gives the lock back.
    async fn gives_it_back(&mut self, number: usize) {
        let guard = self.contender(number).guard.take().expect("one that holds");
        within(&format!("the release of {number}"), guard.release())
            .await
            .unwrap();
    }

    /// A contender gives the lock back, and these get it, and no other.
    pub(crate) async fn passes_on(&mut self, from: usize, to: &[usize]) {
        self.gives_it_back(from).await;
        for number in to {
            self.gets_it(*number).await;
        }
        self.all_others_wait();
    }

    /// No contender has been granted but those whose grants were waited for.
    fn all_others_wait(&self) {
        for (number, contender) in &self.contenders {
            if let Some(attempt) = &contender.attempt {
                assert!(!attempt.is_finished(), "{number} does not wait any more");
            }
        }
    }

    /// The queue consists of these, in this order, and each of the pairs is a watcher and the one
    /// it watches; there is nothing else to be seen. All whose grants were not waited for wait.
    pub(crate) async fn shows(&self, queue: &[usize], watches: &[(usize, usize)]) {
        let session = |number: &usize| self.contenders[number].session;
        let seen = |number: &usize| Seen {
            kind: self.contenders[number].role.mark().to_owned(),
            owner: session(number),
            watchers: watches
                .iter()
                .filter(|(_, on)| on == number)
                .map(|(by, _)| session(by))
                .collect(),
        };
        let wanted = View {
            queue: queue.iter().map(seen).collect(),
            ..View::default()
        };
        self.outside
            .shows(&format!("a queue of {queue:?} with {watches:?}"), wanted)
            .await;
        self.all_others_wait();
    }

    /// Ends a contender that waits.
    pub(crate) async fn ends(&mut self, number: usize, end: End) {
        match end {
            End::Dropped => {
                let attempt = self
                    .contender(number)
                    .attempt
                    .take()
                    .expect("one that waits");
                attempt.abort();
                assert!(attempt.await.unwrap_err().is_cancelled());
            }
            End::Closed => {
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
                    let attempt = other.attempt.take().expect("one that waits");
                    let error = within("the end of a waiter", attempt)
                        .await
                        .unwrap()
                        .unwrap_err();
                    assert_eq!(error.kind(), Some(ErrorKind::Closed), "{error}");
                }
            }
            End::Expired => {
                let link = self.link.as_ref().expect("one whose link can break");
                link.refuse().unwrap();
                link.cut(Cut::Reset);
            }
        }
    }

    /// The link is whole again; the contender whose session has ended stands in the queue with its
    /// next one.
    pub(crate) async fn returns(&mut self, number: usize) {
        let before = self.outside.nodes().await.len();
        self.link.as_ref().expect("a link").accept().unwrap();
        self.outside.wait_nodes(before + 1).await;
        let contender = self.contender(number);
        let session = contender.client.session_id().unwrap();
        assert_ne!(session, contender.session, "a new session");
        contender.session = session;
    }

    /// All contenders go, and nothing is left to be seen.
    pub(crate) async fn ends_clean(mut self) {
        for contender in self.contenders.values_mut() {
            drop(contender.guard.take());
            if let Some(attempt) = contender.attempt.take() {
                attempt.abort();
            }
        }
        // The clients and their sessions are still there: what they have left behind could be seen.
        self.shows(&[], &[]).await;
    }
}

pub(crate) async fn connect(servers: &str, seconds: u64) -> Client {
    let builder = Client::builder()
        .session_timeout(Duration::from_secs(seconds))
        .retry_policy(RetryPolicy::n_times(1000, Duration::from_millis(20)));
    within("a session", builder.connect(servers)).await.unwrap()
}

impl Outside {
    /// Waits until the queue has so many nodes.
    pub(crate) async fn wait_nodes(&self, count: usize) {
        let (outside, handle) = (self.clone(), tokio::runtime::Handle::current());
        let there = move || (handle.block_on(outside.nodes()).len() == count).then_some(());
        let waited =
            tokio::task::spawn_blocking(move || poll_until(&format!("{count} nodes"), SOON, there))
                .await;
        if let Err(never) = waited.unwrap() {
            panic!("{never}");
        }
    }
}
