//! The environment of a behaviour: servers, clients and paths.

use std::sync::MutexGuard;

use test_support::prelude::*;
use test_support::{ZooKeeper, unique_path};
use tokio::sync::OnceCell;
use zookeeper_client as zk;

use super::Link;
use super::backend::{Backend, Servers};
use super::fault_injector::FaultInjector;
use super::random;

/// Servers, a directory on them that no other behaviour uses, and a plain client of ZooKeeper that
/// reads, creates and deletes nodes.
#[derive(Debug)]
pub(crate) struct Env {
    servers: Servers,
    on_keeper: bool,
    root: String,
    plain_client: OnceCell<zk::Client>,
    random: Mutex<Random>,
    fault_injector: Mutex<Option<FaultInjector>>,
    /// The links are kept until the end, because a session is closed by a request, which needs the
    /// connection.
    links: Mutex<Vec<Arc<Link>>>,
}

impl Env {
    pub(crate) async fn new(backend: Backend, own_servers: bool, name: &str) -> Self {
        let servers = tokio::task::spawn_blocking(move || Servers::start(backend, own_servers))
            .await
            .unwrap();
        let env = Self {
            servers,
            on_keeper: backend == Backend::Keeper,
            root: unique_path("suite"),
            plain_client: OnceCell::new(),
            random: Mutex::new(random::named(name)),
            fault_injector: Mutex::default(),
            links: Mutex::default(),
        };
        if let (Backend::Faults, Servers::Ours(server)) = (backend, &env.servers) {
            let exempt = env.plain_client().await.session_id().0;
            *env.fault_injector.lock().unwrap() = Some(FaultInjector::start(
                Arc::clone(server),
                exempt,
                &env.root,
                name,
            ));
        }
        env
    }

    /// Ends the environment. Panics if faults were requested and none was injected, or if sessions
    /// are left.
    pub(crate) fn end(self) {
        if let Some(fault_injector) = self.fault_injector.lock().unwrap().take() {
            let injected = fault_injector.stop();
            assert!(
                injected > 0,
                "expected at least one fault, but the behaviour sends too few requests for one"
            );
        } else if let (false, Servers::Ours(server)) = (self.on_keeper, &self.servers) {
            // Every session is closed once its client, its recipes and its guards are dropped. The
            // sessions that a Keeper has replaced live until they expire, so a Keeper is exempt.
            let plain_client = self
                .plain_client
                .get()
                .map(|plain_client| plain_client.session_id().0);
            let gone = |view: View<'_>| {
                view.sessions()
                    .iter()
                    .all(|session| Some(session.id) == plain_client)
            };
            let all_gone = server.wait_until_blocking(gone, SOON);
            assert!(
                all_gone,
                "expected no session to be left, found {:?}",
                server.sessions()
            );
        }
    }

    /// Returns whether there are several servers, one of which lags behind.
    pub(crate) fn is_ensemble(&self) -> bool {
        matches!(&self.servers, Servers::Real(servers) if servers.len() > 1)
    }

    pub(crate) fn connect_string(&self) -> String {
        self.servers.connect_string()
    }

    /// Returns a path that only this behaviour uses. Neither the path nor its parent exists.
    pub(crate) fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.root)
    }

    /// Returns the path for behaviours that need only one.
    pub(crate) fn lock_path(&self) -> String {
        self.path("lock")
    }

    /// Returns a client's options for tests: requests are repeated often and soon.
    pub(crate) fn builder(&self) -> ClientBuilder {
        Client::builder().retry_policy(RetryPolicy::n_times(100, Duration::from_millis(20)))
    }

    /// Connects a client with a separate session, as another process would have it.
    pub(crate) async fn client(&self) -> Client {
        self.connect(self.builder()).await
    }

    pub(crate) async fn connect(&self, builder: ClientBuilder) -> Client {
        self.connect_to(&self.connect_string(), builder).await
    }

    pub(crate) async fn connect_to(&self, servers: &str, builder: ClientBuilder) -> Client {
        let client = within("a session", async {
            loop {
                match builder.clone().connect(servers).await {
                    // A behaviour may choose a short connect timeout, and a busy machine may need
                    // more time for the first connection.
                    Err(ConnectError::TimedOut { .. }) => {}
                    connected => break connected,
                }
            }
        });
        let client = client.await.unwrap();
        let connected = |state: &ConnectionState| *state == ConnectionState::Connected;
        within("the connection", client.watch_state().wait_for(connected))
            .await
            .unwrap();
        client
    }

    /// Returns a mutex of a new client at [`lock_path`](Self::lock_path). The mutex keeps the
    /// client.
    pub(crate) async fn mutex(&self) -> InterProcessMutex {
        InterProcessMutex::new(&self.client().await, self.lock_path()).unwrap()
    }

    /// Returns a semaphore of a new client at [`lock_path`](Self::lock_path).
    pub(crate) async fn semaphore(&self, permits: u32) -> InterProcessSemaphore {
        InterProcessSemaphore::new(&self.client().await, self.lock_path(), permits).unwrap()
    }

    /// Returns the directory in which the semaphore's contenders queue.
    pub(crate) fn locks(&self) -> String {
        self.path("lock/locks")
    }

    /// Returns the directory of the semaphore's leases.
    pub(crate) fn leases(&self) -> String {
        self.path("lock/leases")
    }

    /// Waits until the head of the semaphore's queue waits for permits, with watches on the limit
    /// and on the leases. Only the watch on the limit is checked, because a real server lists no
    /// watches on children.
    pub(crate) async fn wait_semaphore_full(&self) {
        self.wait_watchers(&self.path("lock/permits"), 1).await;
    }

    /// Waits until no contender holds a permit or waits for one.
    pub(crate) async fn wait_no_permits(&self) {
        self.wait_count(&self.locks(), 0).await;
        self.wait_count(&self.leases(), 0).await;
    }

    /// Returns a link to the servers that can be broken.
    pub(crate) fn link(&self) -> Arc<Link> {
        let link = Arc::new(Link::to(&self.servers.addresses()));
        self.links.lock().unwrap().push(Arc::clone(&link));
        link
    }

    /// Connects a client through a link that can be broken, with a session timeout of six seconds:
    /// a machine that stands still for two or three seconds loses no lock.
    pub(crate) async fn linked(&self, builder: ClientBuilder) -> (Client, Arc<Link>) {
        let link = self.link();
        let builder = builder.session_timeout(Duration::from_secs(6));
        let client = self.connect_to(link.connect_string(), builder).await;
        (client, link)
    }

    /// Makes the servers expire the session of a client, as after a long silence.
    pub(crate) async fn expire(&self, client: &Client, link: &Link) {
        self.expire_session(client.session_id().expect("a session"), link)
            .await;
    }

    pub(crate) async fn expire_session(&self, session: i64, link: &Link) {
        match &self.servers {
            Servers::Ours(server) => assert!(server.expire_session(session)),
            Servers::Real(_) => {
                link.cut();
                self.wait_session_gone(session).await;
                link.mend();
            }
        }
    }

    /// Returns whether a holder may report this reason after [`expire`](Self::expire): a holder
    /// without a connection gives up before the servers may grant the lock to another client.
    pub(crate) fn is_loss(&self, reason: LostReason) -> bool {
        match &self.servers {
            Servers::Ours(_) => reason == LostReason::SessionExpired,
            Servers::Real(_) => matches!(
                reason,
                LostReason::SessionExpired | LostReason::LeaseExpired
            ),
        }
    }

    /// Waits until the servers no longer know the session.
    pub(crate) async fn wait_session_gone(&self, session: i64) {
        match &self.servers {
            Servers::Ours(server) => {
                let gone =
                    move |view: View<'_>| view.sessions().iter().all(|known| known.id != session);
                assert!(
                    server.wait_until(gone, SOON).await,
                    "expected session {session:#x} to end, but the server still has it"
                );
            }
            Servers::Real(servers) => {
                let servers = Arc::clone(servers);
                blocking(move || {
                    poll_until("the end of a session", SOON, || {
                        (!knows(&servers, session)).then_some(())
                    })
                })
                .await
                .unwrap();
            }
        }
    }

    /// Returns whether the servers know the session.
    pub(crate) async fn knows_session(&self, session: i64) -> bool {
        match &self.servers {
            Servers::Ours(server) => server.sessions().iter().any(|known| known.id == session),
            Servers::Real(servers) => {
                let servers = Arc::clone(servers);
                blocking(move || knows(&servers, session)).await
            }
        }
    }

    /// Stops the servers.
    pub(crate) async fn stop_servers(&self) {
        let servers = self.servers.clone();
        blocking(move || match &servers {
            Servers::Ours(server) => server.stop(),
            Servers::Real(servers) => servers.shutdown(),
        })
        .await;
    }

    /// Starts the servers again with their data.
    pub(crate) async fn restart_servers(&self) {
        let servers = self.servers.clone();
        blocking(move || match &servers {
            Servers::Ours(server) => server.restart().unwrap(),
            Servers::Real(servers) => {
                for member in 0..servers.len() {
                    servers.start(member).unwrap();
                }
                for member in 0..servers.len() {
                    servers.wait_serving(member).unwrap();
                }
            }
        })
        .await;
    }

    /// Kills the leader of an ensemble, and starts it again once another leads.
    pub(crate) async fn replace_leader(&self) {
        let Servers::Real(servers) = self.servers.clone() else {
            panic!("one server has no leader")
        };
        blocking(move || {
            let leader = servers.wait_leader().unwrap();
            servers.kill(leader);
            assert_ne!(servers.wait_leader().unwrap(), leader);
            servers.restart(leader).unwrap();
        })
        .await;
    }

    /// Kills members of an ensemble, including the leader, so that the rest has no quorum. Returns
    /// the killed members.
    pub(crate) async fn lose_quorum(&self) -> Vec<usize> {
        let Servers::Real(servers) = self.servers.clone() else {
            panic!("one server has no quorum")
        };
        blocking(move || {
            let leader = servers.wait_leader().unwrap();
            let other = (leader + 1) % servers.len();
            for member in [other, leader] {
                servers.kill(member);
            }
            vec![leader, other]
        })
        .await
    }

    /// Starts killed members of an ensemble again.
    pub(crate) async fn restart_members(&self, members: Vec<usize>) {
        let Servers::Real(servers) = self.servers.clone() else {
            panic!("one server has no members")
        };
        blocking(move || {
            for member in members {
                servers.start(member).unwrap();
            }
            servers.wait_whole().unwrap();
        })
        .await;
    }

    /// Makes the servers delete empty containers, as they do from time to time, and waits until
    /// `path` is deleted.
    pub(crate) async fn sweep(&self, path: &str) {
        if let Servers::Ours(server) = &self.servers {
            assert!(
                server.sweep_containers() > 0,
                "expected an empty container to delete, found none"
            );
        }
        self.wait_gone(path).await;
    }

    /// Returns the server in this process.
    pub(crate) fn server(&self) -> &Server {
        match &self.servers {
            Servers::Ours(server) => server,
            Servers::Real(_) => {
                panic!("the behaviour needs the server in this process, which `Need` must declare")
            }
        }
    }

    /// Waits until `wanted` sessions watch a node.
    pub(crate) async fn wait_watchers(&self, path: &str, wanted: usize) {
        let path = path.to_owned();
        match &self.servers {
            Servers::Ours(server) => {
                let there = move |view: View<'_>| view.watches_on(&path).len() == wanted;
                assert!(
                    server.wait_until(there, SOON).await,
                    "expected {wanted} sessions to watch the node"
                );
            }
            Servers::Real(servers) => {
                let servers = Arc::clone(servers);
                let count = move || -> usize {
                    let on = |member| {
                        servers
                            .watches(member)
                            .unwrap()
                            .get(&path)
                            .map_or(0, |all| all.len())
                    };
                    (0..servers.len()).map(on).sum()
                };
                blocking(move || poll_until("watches", SOON, || (count() == wanted).then_some(())))
                    .await
                    .unwrap();
            }
        }
    }

    /// Waits until no session but the plain client's watches a node of this behaviour.
    pub(crate) async fn wait_no_watches(&self) {
        let plain_client = self.plain_client().await.session_id().0;
        let (servers, root) = (self.servers.clone(), format!("{}/", self.root));
        blocking(move || {
            let mut left = Vec::new();
            let gone = poll_until("the end of all watches", SOON, || {
                left = watches_below(&servers, &root, plain_client);
                left.is_empty().then_some(())
            });
            assert!(gone.is_ok(), "expected no watch to be left, found {left:?}");
        })
        .await;
    }

    /// Returns a plain client of ZooKeeper, whose session uses no locks.
    pub(crate) async fn plain_client(&self) -> &zk::Client {
        let connect = || async {
            // The timeout is longer than three servers on a busy machine take to come back.
            let connector = zk::Client::connector().with_session_timeout(Duration::from_secs(60));
            within(
                "the plain client's session",
                connector.connect(&self.connect_string()),
            )
            .await
            .unwrap()
        };
        self.plain_client.get_or_init(connect).await
    }

    /// Returns the children of a node at this moment, sorted; none if the node does not exist.
    pub(crate) async fn children(&self, path: &str) -> Vec<String> {
        let plain_client = self.plain_client().await;
        let synced = plain_client.sync(path);
        let listed = plain_client.list_children(path);
        let mut children = match tokio::join!(synced, listed) {
            (_, Ok(children)) => children,
            (_, Err(zk::Error::NoNode)) => Vec::new(),
            (_, Err(error)) => panic!("listing {path}: {error}"),
        };
        children.sort();
        children
    }

    /// Waits until the children of a node are as `wanted` says. Returns them.
    #[track_caller]
    pub(crate) fn wait_children<'a, F: FnMut(&[String]) -> bool + Send>(
        &'a self,
        path: &str,
        what: &str,
        mut wanted: F,
    ) -> impl Future<Output = Vec<String>> + Send + use<'a, F> {
        let path = path.to_owned();
        within(what, async move {
            let plain_client = self.plain_client().await;
            plain_client.sync(&path).await.unwrap();
            loop {
                match plain_client.list_and_watch_children(&path).await {
                    Ok((children, _)) if wanted(&children) => return children,
                    Ok((_, watcher)) => drop(watcher.changed().await),
                    Err(zk::Error::NoNode) if wanted(&[]) => return Vec::new(),
                    Err(zk::Error::NoNode) => {
                        if let (None, watcher) =
                            plain_client.check_and_watch_stat(&path).await.unwrap()
                        {
                            watcher.changed().await;
                        }
                    }
                    Err(error) => panic!("listing {path}: {error}"),
                }
            }
        })
    }

    /// Waits until a node has this many children.
    #[track_caller]
    pub(crate) fn wait_count<'a>(
        &'a self,
        path: &str,
        count: usize,
    ) -> impl Future<Output = ()> + Send + use<'a> {
        let wait = self.wait_children(path, &format!("{count} children"), move |now| {
            now.len() == count
        });
        async move { drop(wait.await) }
    }

    /// Asserts that a directory has this many nodes after a try. A member that lags behind may have
    /// shown the try no node, so that the try has created one, which is then deleted.
    pub(crate) async fn assert_left(&self, path: &str, count: usize) {
        if self.is_ensemble() {
            self.wait_count(path, count).await;
        }
        assert_eq!(
            self.children(path).await.len(),
            count,
            "the try has left a node in {path}"
        );
    }

    /// Waits until the node does not exist.
    #[track_caller]
    pub(crate) fn wait_gone<'a>(&'a self, path: &str) -> impl Future<Output = ()> + Send + use<'a> {
        let path = path.to_owned();
        within("the end of a node", async move {
            let plain_client = self.plain_client().await;
            plain_client.sync(&path).await.unwrap();
            while let (Some(_), watcher) = plain_client.check_and_watch_stat(&path).await.unwrap() {
                watcher.changed().await;
            }
        })
    }

    /// Returns the Stat of a node; `None` if it does not exist.
    pub(crate) async fn stat(&self, path: &str) -> Option<zk::Stat> {
        let plain_client = self.plain_client().await;
        let synced = plain_client.sync(path);
        let stat = plain_client.check_stat(path);
        tokio::join!(synced, stat).1.unwrap()
    }

    /// Returns the data and the Stat of a node.
    pub(crate) async fn get_data(&self, path: &str) -> Result<(Vec<u8>, zk::Stat), zk::Error> {
        let plain_client = self.plain_client().await;
        let synced = plain_client.sync(path);
        let data = plain_client.get_data(path);
        tokio::join!(synced, data).1
    }

    /// Creates a node that is open to every client, and its parents, through the plain client.
    /// Returns its path.
    pub(crate) async fn create(&self, path: &str, mode: zk::CreateMode) -> String {
        self.create_with(path, &mode.with_acls(zk::Acls::anyone_all()))
            .await
    }

    /// Creates a node with these options, and its parents, through the plain client. Returns its
    /// path.
    pub(crate) async fn create_with(&self, path: &str, options: &zk::CreateOptions<'_>) -> String {
        let plain_client = self.plain_client().await;
        let (parent, _) = path.rsplit_once('/').unwrap();
        if !parent.is_empty() {
            let open = zk::CreateMode::Persistent.with_acls(zk::Acls::anyone_all());
            plain_client.mkdir(parent, &open).await.unwrap();
        }
        let (_, sequence) = plain_client.create(path, b"", options).await.unwrap();
        // The client library returns -1 for a node without a sequence number.
        if sequence.into_i64() < 0 {
            path.to_owned()
        } else {
            format!("{path}{sequence}")
        }
    }

    /// Deletes a node through the plain client.
    pub(crate) async fn delete(&self, path: &str) {
        self.plain_client().await.delete(path, None).await.unwrap();
    }

    pub(crate) fn random(&self) -> MutexGuard<'_, Random> {
        self.random.lock().unwrap()
    }
}

/// Returns whether the servers know a session. Only the leader, or a single server, is asked.
fn knows(servers: &ZooKeeper, session: i64) -> bool {
    let member = match servers.leader() {
        Some(leader) => leader,
        None if servers.len() == 1 => 0,
        // An election is under way, which no event announces.
        None => return true,
    };
    servers
        .four_letter(member, "dump")
        .unwrap()
        .contains(&format!("{session:#x}"))
}

/// Returns the watches below a node that sessions other than `except` have set.
fn watches_below(servers: &Servers, root: &str, except: i64) -> Vec<(String, String)> {
    match servers {
        Servers::Ours(server) => {
            let mut watches = Vec::new();
            // Every watch was set by a request, so the log has its path.
            let mut paths: Vec<_> = server.log().into_iter().map(|entry| entry.path).collect();
            paths.sort();
            paths.dedup();
            for path in paths.into_iter().filter(|path| path.starts_with(root)) {
                watches.extend(
                    server
                        .watches_on(&path)
                        .into_iter()
                        .map(|by| (path.clone(), by)),
                );
            }
            watches.retain(|(_, by)| *by != except);
            watches
                .into_iter()
                .map(|(path, by)| (path, format!("{by:#x}")))
                .collect()
        }
        Servers::Real(servers) => {
            let all = (0..servers.len()).flat_map(|member| servers.watches(member).unwrap());
            let below = all.filter(|(path, _)| path.starts_with(root));
            let each =
                below.flat_map(|(path, by)| by.into_iter().map(move |by| (path.clone(), by)));
            each.filter(|(_, by)| *by != format!("{except:#x}"))
                .collect()
        }
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}
