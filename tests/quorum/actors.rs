//! Who takes part: a holder behind proxies of its own, and a rival that waits for the same lock.

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

/// What the servers and this process may take beyond the time that the protocol says.
const SLACK: Duration = Duration::from_millis(500);

/// Runs a scenario. What it blocks on is not in the way of the tasks, nor of the sessions.
pub(crate) fn run(scenario: impl Future<Output = Outcome>) -> Outcome {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?
        .block_on(scenario)
}

/// The loss, and when it was told.
pub(crate) type Told = JoinHandle<(Lost, Instant)>;

/// Looks every few milliseconds, for what no event announces: what another process does, or the
/// clock.
pub(crate) async fn until(
    what: &str,
    mut probe: impl AsyncFnMut() -> Result<bool, Failure>,
) -> Outcome {
    within(what, async {
        while !probe().await? {
            // No event announces it.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    })
    .await
}

/// Lets time pass: nothing may happen until then, and that is what is tested.
pub(crate) async fn stay_until(moment: Instant) {
    tokio::time::sleep_until(moment.into()).await;
}

/// What a holder holds. Its rival waits for the same, or for the write lock.
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

    fn rival(self) -> Self {
        match self {
            Self::Mutex | Self::Fair => self,
            _ => Self::Writer,
        }
    }

    /// How many are in the queue.
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

/// Holds a lock through proxies of its own: one per member that its connect string names.
#[derive(Debug)]
pub(crate) struct Holder {
    /// By member.
    proxies: Vec<Option<Proxy>>,
    client: Client,
    kind: Kind,
    lock: Arc<dyn InterProcessLock>,
    guard: AnyGuard,
    session: i64,
}

impl Holder {
    /// One whose connect string names `member` only.
    pub(crate) async fn at(
        servers: &ZooKeeper,
        member: usize,
        timeout: Duration,
    ) -> Result<Self, Failure> {
        Self::named(servers, &[member], member, timeout).await
    }

    /// One whose connect string names all members, and that is connected to `member` to begin with.
    pub(crate) async fn anywhere(
        servers: &ZooKeeper,
        member: usize,
        timeout: Duration,
    ) -> Result<Self, Failure> {
        let all: Vec<_> = (0..servers.len()).collect();
        Self::named(servers, &all, member, timeout).await
    }

    /// A busy server may look like a silent one while the client connects, and the client goes on
    /// to the next.
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
            "the servers grant what was asked for"
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

    /// Holds something else from now on.
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

    /// The session in which it was granted the lock.
    pub(crate) fn session(&self) -> i64 {
        self.session
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.client.session_timeout().unwrap_or_default()
    }

    /// Its link to a member.
    pub(crate) fn link(&self, member: usize) -> &Proxy {
        self.proxies[member]
            .as_ref()
            .expect("its connect string names it")
    }

    /// Its links to all members that it knows of.
    pub(crate) fn links(&self) -> impl Iterator<Item = &Proxy> {
        self.proxies.iter().flatten()
    }

    /// The members that it has connections to; one that is stalled may be left over.
    pub(crate) fn members(&self) -> Vec<usize> {
        let proxies = self.proxies.iter().enumerate();
        let connected = |proxy: &Option<Proxy>| proxy.as_ref().is_some_and(|p| p.connections() > 0);
        proxies
            .filter(|(_, proxy)| connected(proxy))
            .map(|(member, _)| member)
            .collect()
    }

    /// A write under the lock, which proves to the holder that the servers keep its session.
    pub(crate) async fn prove(&self) -> Outcome {
        Ok(self
            .guard
            .transaction()
            .check(self.guard.path(), None)
            .commit()
            .await?)
    }

    /// The same, until it takes hardly any time: it counts from when it was sent.
    pub(crate) async fn prove_now(&self) -> Outcome {
        until("a quick write", async || {
            let sent = Instant::now();
            self.prove().await?;
            Ok(sent.elapsed() < Duration::from_millis(50))
        })
        .await
    }

    /// When the holder is told that it has lost the lock.
    pub(crate) fn told(&self) -> Told {
        told(&self.guard)
    }

    /// Proves that it still holds, by the session that it began with. On a busy machine a proof may
    /// be old when it arrives, the next one overdue, or the connection given up, so that the lock
    /// is suspended when it is looked at: then it is proved once more.
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

pub(crate) fn told(guard: &AnyGuard) -> Told {
    let lost = guard.lost();
    tokio::spawn(async move { (lost.await, Instant::now()) })
}

/// Waits for the lock of a holder, by links that stay as they are.
#[derive(Debug)]
pub(crate) struct Rival {
    client: Client,
    waiting: JoinHandle<Result<(AnyGuard, Next), AcquireError>>,
}

/// What a rival knows when it is granted the lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Next {
    at: Instant,
    /// Whether the guard of the holder says that it has lost the lock.
    is_lost: bool,
}

impl Rival {
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
        let (kind, path) = (holder.kind.rival(), holder.guard.path().to_owned());
        let lock = kind.lock(&client, &path)?;
        // Reads the clock when it is asked first.
        let lost = holder.guard.lost();
        let waiting = tokio::spawn(async move {
            let guard = lock.lock().await?;
            let (at, is_lost) = (Instant::now(), task::spawn(lost).poll().is_ready());
            Ok((guard, Next { at, is_lost }))
        });
        until("the rival to queue", async || {
            Ok(kind.queued(&client, &path).await? == 2)
        })
        .await?;
        Ok(Self { client, waiting })
    }

    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_finished()
    }

    pub(crate) async fn granted(self) -> Result<(Granted, Next), Failure> {
        let (guard, next) = within("the rival's grant", self.waiting).await??;
        Ok((
            Granted {
                client: self.client,
                guard,
            },
            next,
        ))
    }
}

/// A rival that has the lock.
#[derive(Debug)]
pub(crate) struct Granted {
    client: Client,
    guard: AnyGuard,
}

/// The promise: the holder is told, by each of `told`, before the rival is granted, whose token is
/// greater.
pub(crate) async fn told_first(
    title: &str,
    cut: Instant,
    holder: &Holder,
    told: Vec<Told>,
    rival: Rival,
) -> Result<Granted, Failure> {
    let mut last = cut;
    for told in told {
        let (lost, at) = within("the loss to be told", told).await?;
        // By the clock, before the other side of the cut could say so.
        assert_eq!(lost.reason(), LostReason::LeaseExpired, "{title}");
        last = last.max(at);
    }
    let (granted, Next { at, is_lost }) = rival.granted().await?;
    assert!(is_lost, "{title}: held at the next grant");
    // The task that is told has to run for that, on a machine that may stand still.
    if last >= at {
        return Err(format!("{title}: told {:?} after the next grant", last - at).into());
    }
    println!(
        "{title}: told {} ms after the cut, {} ms before the next grant",
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

/// After the network is well again: the one that lost can lock again, and nothing is left behind.
pub(crate) async fn afterwards(holder: Holder, granted: Granted, servers: &ZooKeeper) -> Outcome {
    // The proxies go last.
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
        "it is told so again"
    );
    let before = token(&granted.guard);
    within("the rival's release", granted.guard.release()).await?;
    let again = within("the holder to lock again", lock.lock()).await?;
    assert!(before < token(&again));
    within("the last release", again.release()).await?;
    end(servers, &path, [client, granted.client]).await
}

/// A holder that kept its lock gives it to the rival, and nothing is left behind.
pub(crate) async fn hand_over(holder: Holder, rival: Rival, servers: &ZooKeeper) -> Outcome {
    assert!(rival.is_waiting(), "granted beside the holder");
    // The proxies go last.
    let Holder {
        proxies: _proxies,
        client,
        lock,
        guard,
        ..
    } = holder;
    let before = token(&guard);
    within("the holder's release", guard.release()).await?;
    let (granted, _) = rival.granted().await?;
    assert!(before < token(&granted.guard));
    within("the rival's release", granted.guard.release()).await?;
    end(servers, lock.path(), [client, granted.client]).await
}

/// Nothing is left behind, and both clients close.
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

/// A session of the client library, without the recipes.
pub(crate) async fn plain_session(servers: &str) -> Result<zk::Client, Failure> {
    let connector = zk::Client::connector().with_session_timeout(Duration::from_secs(5));
    within("a plain session", connector.connect(servers))
        .await
        .map_err(Failure::from)
}

/// Looks on until a session that was not heard of since the cut would be over: the holder may be in
/// doubt in between, and keeps the lock.
pub(crate) async fn keeps(title: &str, cut: Instant, holder: &Holder, tick: Duration) -> Outcome {
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
        // It may be so short that it was not seen.
        None => println!("{title}: the lock was kept without a doubt"),
        Some((from, to)) => println!(
            "{title}: in doubt from {} to {} ms after the cut, and the lock was kept",
            from.as_millis(),
            to.as_millis()
        ),
    }
    Ok(())
}

/// Holders in the same place at once, each with a rival: for what chance decides about each of
/// them.
#[derive(Debug)]
pub(crate) struct Fleet {
    crews: Vec<(Holder, Rival, Told)>,
}

impl Fleet {
    pub(crate) async fn anywhere(
        servers: &ZooKeeper,
        size: usize,
        member: usize,
        timeout: Duration,
        rivals: &[usize],
    ) -> Result<Self, Failure> {
        let mut crews = Vec::new();
        for _ in 0..size {
            let holder = Holder::anywhere(servers, member, timeout).await?;
            let rival = Rival::of(&holder, servers, rivals).await?;
            let told = holder.told();
            crews.push((holder, rival, told));
        }
        Ok(Self { crews })
    }

    pub(crate) fn holders(&self) -> impl Iterator<Item = &Holder> {
        self.crews.iter().map(|(holder, ..)| holder)
    }

    /// Each one keeps its lock or is told in time, and most keep it. Waits as [`keeps`] does.
    pub(crate) async fn most_keep(
        self,
        title: &str,
        cut: Instant,
        tick: Duration,
    ) -> Result<Settled, Failure> {
        let size = self.crews.len();
        let mut settled = Settled {
            kept: Vec::new(),
            lost: Vec::new(),
        };
        for (holder, rival, told) in self.crews {
            stay_until(cut + holder.timeout() + tick + SLACK).await;
            if holder.guard.is_held() {
                holder.still_holds(title).await?;
                settled.kept.push((holder, rival));
            } else {
                let granted = told_first(title, cut, &holder, vec![told], rival).await?;
                settled.lost.push((holder, granted));
            }
        }
        println!("{title}: {} of {size} kept their lock", settled.kept.len());
        assert!(
            settled.kept.len() * 2 > size,
            "{title}: {} of {size} kept their lock",
            settled.kept.len()
        );
        Ok(settled)
    }
}

/// What has become of a fleet.
#[derive(Debug)]
pub(crate) struct Settled {
    kept: Vec<(Holder, Rival)>,
    lost: Vec<(Holder, Granted)>,
}

impl Settled {
    pub(crate) fn holders(&self) -> impl Iterator<Item = &Holder> {
        self.kept
            .iter()
            .map(|(holder, _)| holder)
            .chain(self.lost.iter().map(|(holder, _)| holder))
    }

    /// Once everything is well again.
    pub(crate) async fn afterwards(self, servers: &ZooKeeper) -> Outcome {
        for (holder, rival) in self.kept {
            hand_over(holder, rival, servers).await?;
        }
        for (holder, granted) in self.lost {
            afterwards(holder, granted, servers).await?;
        }
        Ok(())
    }
}
