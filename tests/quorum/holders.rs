//! The participants: a holder behind separate proxies, and a waiter for the same lock.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use test_support::{Proxy, SOON, ZooKeeper, unique_path, within};
use tokio::task::JoinHandle;
use tokio_test::task;
use zookeeper_client as zk;
use zookeeper_recipes::{
    AcquireError, AnyGuard, BuildError, Client, ConnectionState, InterProcessFairLock,
    InterProcessLock, InterProcessMutex, InterProcessReadWriteLock, LockState, Lost, LostReason,
    ReleaseError,
};

pub(crate) type Failure = Box<dyn Error + Send + Sync>;
pub(crate) type Outcome = Result<(), Failure>;

/// The delay of the servers and of this process that is allowed beyond the protocol's times.
const SLACK: Duration = Duration::from_millis(500);

/// Runs a scenario. The scenario may block its thread, because tasks and sessions run on others.
pub(crate) fn run(scenario: impl Future<Output = Outcome>) -> Outcome {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?
        .block_on(scenario)
}

/// The loss of a lock, and when the holder was notified.
pub(crate) type LossNotice = JoinHandle<(Lost, Instant)>;

/// Probes every few milliseconds, for conditions without an event: the state of another process, or
/// the clock.
pub(crate) async fn until(
    what: &str,
    mut probe: impl AsyncFnMut() -> Result<bool, Failure>,
) -> Outcome {
    within(what, async {
        while !probe().await? {
            // No event announces the condition.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    })
    .await
}

/// Waits until this moment, before which nothing must happen.
pub(crate) async fn stay_until(moment: Instant) {
    tokio::time::sleep_until(moment.into()).await;
}

/// The lock of a holder. The waiter waits for the same lock, or for the write lock.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Mutex,
    Fair,
    Reader,
    Writer,
    /// A writer that has become a reader.
    Downgraded,
}

impl Kind {
    fn lock(self, client: &Client, path: &str) -> Result<Arc<dyn InterProcessLock>, BuildError> {
        let read_write = || InterProcessReadWriteLock::new(client, path);
        Ok(match self {
            Self::Mutex => Arc::new(InterProcessMutex::new(client, path)?),
            Self::Fair => Arc::new(InterProcessFairLock::new(client, path)?),
            Self::Reader => Arc::new(read_write()?.read_lock()),
            Self::Writer | Self::Downgraded => Arc::new(read_write()?.write_lock()),
        })
    }

    async fn guard(self, client: &Client, path: &str) -> Result<AnyGuard, Failure> {
        let read_write = || InterProcessReadWriteLock::new(client, path);
        Ok(match self {
            Self::Downgraded => read_write()?
                .write_lock()
                .acquire(SOON)
                .await?
                .downgrade()
                .await?
                .into(),
            _ => self.lock(client, path)?.acquire(SOON).await?,
        })
    }

    fn waiter(self) -> Self {
        match self {
            Self::Mutex | Self::Fair => self,
            _ => Self::Writer,
        }
    }

    /// Returns the number of contenders in the queue.
    async fn queued(self, client: &Client, path: &str) -> Result<usize, Failure> {
        Ok(match self {
            Self::Mutex | Self::Fair => self.lock(client, path)?.participants().await?.len(),
            _ => InterProcessReadWriteLock::new(client, path)?
                .participants()
                .await?
                .len(),
        })
    }
}

/// A holder of a lock, connected through separate proxies: one per member in its connect string.
#[derive(Debug)]
pub(crate) struct Holder {
    /// The proxies by member; `None` for a member that the connect string does not name.
    proxies: Vec<Option<Proxy>>,
    client: Client,
    kind: Kind,
    lock: Arc<dyn InterProcessLock>,
    guard: AnyGuard,
    session: i64,
}

impl Holder {
    /// Connects a holder whose connect string names `member` only.
    pub(crate) async fn with_one_member(
        servers: &ZooKeeper,
        member: usize,
        timeout: Duration,
    ) -> Result<Self, Failure> {
        Self::named(servers, &[member], member, timeout).await
    }

    /// Connects a holder whose connect string names all members, to `member` first.
    pub(crate) async fn with_all_members(
        servers: &ZooKeeper,
        member: usize,
        timeout: Duration,
    ) -> Result<Self, Failure> {
        let all: Vec<_> = (0..servers.len()).collect();
        Self::named(servers, &all, member, timeout).await
    }

    /// Connects holders until one is connected to `first`. The client may mistake a busy server for
    /// a silent one, and connect to the next.
    async fn named(
        servers: &ZooKeeper,
        members: &[usize],
        first: usize,
        timeout: Duration,
    ) -> Result<Self, Failure> {
        within("a holder in the right place", async {
            loop {
                let holder = Self::try_named(servers, members, first, timeout).await?;
                if holder.members() == [first] {
                    return Ok(holder);
                }
            }
        })
        .await
    }

    async fn try_named(
        servers: &ZooKeeper,
        members: &[usize],
        first: usize,
        timeout: Duration,
    ) -> Result<Self, Failure> {
        let mut proxies = Vec::new();
        for member in 0..servers.len() {
            let named = members.contains(&member);
            proxies.push(if named {
                Some(Proxy::start(servers.address(member))?)
            } else {
                None
            });
        }
        let others = || {
            proxies
                .iter()
                .enumerate()
                .filter(|(member, _)| *member != first)
        };
        for proxy in others().filter_map(|(_, proxy)| proxy.as_ref()) {
            proxy.refuse()?;
        }
        let addresses: Vec<_> = proxies
            .iter()
            .flatten()
            .map(|proxy| proxy.address().to_string())
            .collect();
        let builder = Client::builder().session_timeout(timeout);
        let client = builder.connect(&addresses.join(",")).await?;
        for proxy in others().filter_map(|(_, proxy)| proxy.as_ref()) {
            proxy.accept()?;
        }
        assert_eq!(
            client.session_timeout(),
            Some(timeout),
            "expected the servers to grant the requested session timeout"
        );
        let session = client.session_id().ok_or("there is a session")?;
        let (kind, path) = (Kind::Mutex, unique_path("quorum"));
        let (lock, guard) = (
            kind.lock(&client, &path)?,
            kind.guard(&client, &path).await?,
        );
        Ok(Self {
            proxies,
            client,
            kind,
            lock,
            guard,
            session,
        })
    }

    /// Acquires a lock of another kind, and releases the first.
    pub(crate) async fn holding(mut self, kind: Kind) -> Result<Self, Failure> {
        let path = unique_path("quorum");
        let guard = kind.guard(&self.client, &path).await?;
        (self.kind, self.lock) = (kind, kind.lock(&self.client, &path)?);
        within(
            "the release",
            std::mem::replace(&mut self.guard, guard).release(),
        )
        .await?;
        Ok(self)
    }

    pub(crate) fn guard(&self) -> &AnyGuard {
        &self.guard
    }

    pub(crate) fn state(&self) -> ConnectionState {
        self.client.state()
    }

    /// Returns the session in which the lock was granted.
    pub(crate) fn session(&self) -> i64 {
        self.session
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.client.session_timeout().unwrap_or_default()
    }

    /// Returns the link to a member.
    pub(crate) fn link(&self, member: usize) -> &Proxy {
        self.proxies[member]
            .as_ref()
            .expect("its connect string names it")
    }

    /// Returns the links to all members in the connect string.
    pub(crate) fn links(&self) -> impl Iterator<Item = &Proxy> {
        self.proxies.iter().flatten()
    }

    /// Returns the members to which connections exist, including stalled ones.
    pub(crate) fn members(&self) -> Vec<usize> {
        let proxies = self.proxies.iter().enumerate();
        let connected = |proxy: &Option<Proxy>| proxy.as_ref().is_some_and(|p| p.connections() > 0);
        proxies
            .filter(|(_, proxy)| connected(proxy))
            .map(|(member, _)| member)
            .collect()
    }

    /// Commits a write under the lock, which proves that the servers keep the holder's session.
    pub(crate) async fn prove(&self) -> Outcome {
        Ok(self
            .guard
            .transaction()
            .check(self.guard.path(), None)
            .commit()
            .await?)
    }

    /// Commits writes until one is quick, because a proof counts from the moment it was sent.
    pub(crate) async fn prove_now(&self) -> Outcome {
        until("a quick write", async || {
            let sent = Instant::now();
            self.prove().await?;
            Ok(sent.elapsed() < Duration::from_millis(50))
        })
        .await
    }

    /// Returns a task that waits for the loss of the lock.
    pub(crate) fn loss_notice(&self) -> LossNotice {
        loss_notice(&self.guard)
    }

    /// Asserts that the holder still holds the lock, in the session in which it was granted. On a
    /// busy machine a proof may be old when it arrives, the next one overdue, or the connection
    /// given up, so that the lock is suspended at that moment: the proof is then repeated.
    pub(crate) async fn still_holds(&self, title: &str) -> Outcome {
        until("the holder to be sure", async || {
            let proved = self.prove().await.is_ok();
            let (state, session) = (self.guard.state(), self.client.session_id());
            assert!(
                matches!(state, LockState::Held | LockState::Suspended),
                "{title}: {state:?}"
            );
            Ok(proved && state == LockState::Held && session == Some(self.session))
        })
        .await
    }
}

pub(crate) fn loss_notice(guard: &AnyGuard) -> LossNotice {
    let lost = guard.lost();
    tokio::spawn(async move { (lost.await, Instant::now()) })
}

/// A waiter for the lock of a holder, whose links are not disturbed.
#[derive(Debug)]
pub(crate) struct Waiter {
    client: Client,
    waiting: JoinHandle<Result<(AnyGuard, Next), AcquireError>>,
}

/// What a waiter knows when it is granted the lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Next {
    at: Instant,
    /// Whether the holder's guard reports the loss of the lock.
    is_lost: bool,
}

impl Waiter {
    /// Connects to `members` and queues behind the holder.
    pub(crate) async fn of(
        holder: &Holder,
        servers: &ZooKeeper,
        members: &[usize],
    ) -> Result<Self, Failure> {
        let addresses: Vec<_> = members
            .iter()
            .map(|member| servers.address(*member).to_string())
            .collect();
        let client = Client::connect(&addresses.join(",")).await?;
        let (kind, path) = (holder.kind.waiter(), holder.guard.path().to_owned());
        let lock = kind.lock(&client, &path)?;
        // The first poll reads the clock.
        let lost = holder.guard.lost();
        let waiting = tokio::spawn(async move {
            let guard = lock.lock().await?;
            let (at, is_lost) = (Instant::now(), task::spawn(lost).poll().is_ready());
            Ok((guard, Next { at, is_lost }))
        });
        until("the waiter to queue", async || {
            Ok(kind.queued(&client, &path).await? == 2)
        })
        .await?;
        Ok(Self { client, waiting })
    }

    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_finished()
    }

    pub(crate) async fn granted(self) -> Result<(Granted, Next), Failure> {
        let (guard, next) = within("the waiter's grant", self.waiting).await??;
        Ok((
            Granted {
                client: self.client,
                guard,
            },
            next,
        ))
    }
}

/// A waiter that was granted the lock.
#[derive(Debug)]
pub(crate) struct Granted {
    client: Client,
    guard: AnyGuard,
}

/// Asserts the promise: the holder is notified, by each of `notices`, before the waiter is granted
/// the lock, with a greater token.
pub(crate) async fn notified_before_next_grant(
    title: &str,
    cut: Instant,
    holder: &Holder,
    notices: Vec<LossNotice>,
    waiter: Waiter,
) -> Result<Granted, Failure> {
    let mut last = cut;
    for notice in notices {
        let (lost, at) = within("the notice of the loss", notice).await?;
        // The clock of the holder ends the lock, because nothing can reach the holder.
        assert_eq!(lost.reason(), LostReason::LeaseExpired, "{title}");
        last = last.max(at);
    }
    let (granted, Next { at, is_lost }) = waiter.granted().await?;
    assert!(is_lost, "{title}: held at the next grant");
    // The notified task has to run, on a machine that may stand still.
    if last >= at {
        return Err(format!("{title}: notified {:?} after the next grant", last - at).into());
    }
    println!(
        "{title}: notified {} ms after the cut, {} ms before the next grant",
        (last - cut).as_millis(),
        (at - last).as_millis()
    );
    assert!(!holder.guard.is_held());
    assert!(
        token(&holder.guard) < token(&granted.guard),
        "{title}: tokens grow"
    );
    Ok(granted)
}

fn token(guard: &AnyGuard) -> (i64, u64) {
    let token = guard.fencing_token();
    (token.zxid(), token.counter())
}

/// Asserts, once the network works again, that the former holder can lock again, and that nothing
/// is left on the servers.
pub(crate) async fn lock_again_and_end(
    holder: Holder,
    granted: Granted,
    servers: &ZooKeeper,
) -> Outcome {
    // The proxies are dropped last.
    let Holder {
        proxies: _proxies,
        client,
        lock,
        guard,
        ..
    } = holder;
    let path = lock.path().to_owned();
    assert!(
        matches!(guard.release().await, Err(ReleaseError::Lost(_))),
        "expected the release to report the loss again"
    );
    let before = token(&granted.guard);
    within("the waiter's release", granted.guard.release()).await?;
    let again = within("the holder to lock again", lock.lock()).await?;
    assert!(before < token(&again));
    within("the last release", again.release()).await?;
    end(servers, &path, [client, granted.client]).await
}

/// Releases the lock of a holder that has kept it, and asserts that the waiter is granted it and
/// that nothing is left on the servers.
pub(crate) async fn hand_over(holder: Holder, waiter: Waiter, servers: &ZooKeeper) -> Outcome {
    assert!(
        waiter.is_waiting(),
        "expected the waiter to wait for the holder, but it was granted the lock"
    );
    // The proxies are dropped last.
    let Holder {
        proxies: _proxies,
        client,
        lock,
        guard,
        ..
    } = holder;
    let before = token(&guard);
    within("the holder's release", guard.release()).await?;
    let (granted, _) = waiter.granted().await?;
    assert!(before < token(&granted.guard));
    within("the waiter's release", granted.guard.release()).await?;
    end(servers, lock.path(), [client, granted.client]).await
}

/// Asserts that nothing is left on the servers, and closes both clients.
async fn end(servers: &ZooKeeper, path: &str, clients: [Client; 2]) -> Outcome {
    let session = plain_session(&servers.connect_string()).await?;
    session.sync(path).await?;
    match session.list_children(path).await {
        Ok(children) => assert!(children.is_empty(), "{path}: {children:?}"),
        // The servers remove empty containers.
        Err(zk::Error::NoNode) => {}
        Err(e) => return Err(e.into()),
    }
    for client in clients {
        within("a client to close", client.close()).await?;
    }
    Ok(())
}

/// Connects a session of the client library, without the recipes.
pub(crate) async fn plain_session(servers: &str) -> Result<zk::Client, Failure> {
    let connector = zk::Client::connector().with_session_timeout(Duration::from_secs(5));
    within("a plain session", connector.connect(servers))
        .await
        .map_err(Failure::from)
}

/// Asserts that the holder keeps the lock until a session without contact since the cut would have
/// expired. The lock may be suspended in between.
pub(crate) async fn keeps_lock(
    title: &str,
    cut: Instant,
    holder: &Holder,
    tick: Duration,
) -> Outcome {
    let over = cut + holder.timeout() + tick + SLACK;
    let mut doubt: Option<(Duration, Duration)> = None;
    while Instant::now() < over {
        let after = cut.elapsed();
        match holder.guard.state() {
            LockState::Held => {}
            LockState::Suspended => {
                let (from, _) = doubt.unwrap_or((after, after));
                doubt = Some((from, after));
            }
            state => {
                return Err(
                    format!("{title}: {state:?} {} ms after the cut", after.as_millis()).into(),
                );
            }
        }
        stay_until(Instant::now() + Duration::from_millis(5)).await;
    }
    holder.still_holds(title).await?;
    match doubt {
        // The doubt may be too short to be observed.
        None => println!("{title}: the lock was kept without a doubt"),
        Some((from, to)) => println!(
            "{title}: in doubt from {} to {} ms after the cut, and the lock was kept",
            from.as_millis(),
            to.as_millis()
        ),
    }
    Ok(())
}

/// Holders with the same links, each with a waiter, for faults whose effect on each is random.
#[derive(Debug)]
pub(crate) struct HolderGroup {
    pairs: Vec<(Holder, Waiter, LossNotice)>,
}

impl HolderGroup {
    pub(crate) async fn connect(
        servers: &ZooKeeper,
        size: usize,
        member: usize,
        timeout: Duration,
        waiters: &[usize],
    ) -> Result<Self, Failure> {
        let mut pairs = Vec::new();
        for _ in 0..size {
            let holder = Holder::with_all_members(servers, member, timeout).await?;
            let waiter = Waiter::of(&holder, servers, waiters).await?;
            let notice = holder.loss_notice();
            pairs.push((holder, waiter, notice));
        }
        Ok(Self { pairs })
    }

    pub(crate) fn holders(&self) -> impl Iterator<Item = &Holder> {
        self.pairs.iter().map(|(holder, ..)| holder)
    }

    /// Asserts that each holder keeps its lock or is notified in time, and that most keep it. Waits
    /// as long as [`keeps_lock`].
    pub(crate) async fn most_keep(
        self,
        title: &str,
        cut: Instant,
        tick: Duration,
    ) -> Result<GroupOutcome, Failure> {
        let size = self.pairs.len();
        let mut outcome = GroupOutcome {
            kept: Vec::new(),
            lost: Vec::new(),
        };
        for (holder, waiter, notice) in self.pairs {
            stay_until(cut + holder.timeout() + tick + SLACK).await;
            if holder.guard.is_held() {
                holder.still_holds(title).await?;
                outcome.kept.push((holder, waiter));
            } else {
                let granted =
                    notified_before_next_grant(title, cut, &holder, vec![notice], waiter).await?;
                outcome.lost.push((holder, granted));
            }
        }
        println!("{title}: {} of {size} kept their lock", outcome.kept.len());
        assert!(
            outcome.kept.len() * 2 > size,
            "{title}: {} of {size} kept their lock",
            outcome.kept.len()
        );
        Ok(outcome)
    }
}

/// The holders of a group that have kept their locks, and those that have lost them.
#[derive(Debug)]
pub(crate) struct GroupOutcome {
    kept: Vec<(Holder, Waiter)>,
    lost: Vec<(Holder, Granted)>,
}

impl GroupOutcome {
    pub(crate) fn holders(&self) -> impl Iterator<Item = &Holder> {
        self.kept
            .iter()
            .map(|(holder, _)| holder)
            .chain(self.lost.iter().map(|(holder, _)| holder))
    }

    /// Ends all holders, once the network works again.
    pub(crate) async fn lock_again_and_end(self, servers: &ZooKeeper) -> Outcome {
        for (holder, waiter) in self.kept {
            hand_over(holder, waiter, servers).await?;
        }
        for (holder, granted) in self.lost {
            lock_again_and_end(holder, granted, servers).await?;
        }
        Ok(())
    }
}
