//! What a queue costs when it moves: whom a release wakes, and what they ask then.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use zookeeper_recipes::{
    AnyGuard, Client, InterProcessFairLock, InterProcessLock, InterProcessMutex, InterProcessReadWriteLock,
};
use zookeeper_test_server::{Op, Server};

use super::requests;
use super::support::{Acquired, DIRECTORY, connect_as, granted, session, until, within};

/// A session timeout whose sixth is longer than any of these tests on any machine: no heartbeat is among what is
/// counted.
const HOUR: Duration = Duration::from_secs(3600);

fn start() -> Server {
    let server = Server::builder().max_session_timeout(HOUR).start().unwrap();
    server.create(DIRECTORY, "").unwrap();
    server
}

async fn connect(server: &Server) -> Client {
    connect_as(Client::builder().session_timeout(HOUR), server).await
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Mutex,
    Fair,
    Read,
    Write,
}

impl Kind {
    fn lock(self, client: &Client) -> Arc<dyn InterProcessLock> {
        let pair = || InterProcessReadWriteLock::new(client, DIRECTORY).unwrap();
        match self {
            Self::Mutex => Arc::new(InterProcessMutex::new(client, DIRECTORY).unwrap()),
            Self::Fair => Arc::new(InterProcessFairLock::new(client, DIRECTORY).unwrap()),
            Self::Read => Arc::new(pair().read_lock()),
            Self::Write => Arc::new(pair().write_lock()),
        }
    }

    async fn get(self, client: &Client) -> AnyGuard {
        within("the grant", self.lock(client).lock()).await.unwrap()
    }

    /// Stands at the end of the queue, has asked all that it asks there, and is answered where it shows.
    async fn queue(
        self,
        server: &Server,
        client: &Client,
        asks: &[(Op, u64)],
    ) -> JoinHandle<Acquired<AnyGuard>> {
        let lock = self.lock(client);
        let (id, before, nodes) = (session(client), server.counters(), server.children(DIRECTORY).len());
        let attempt = tokio::spawn(async move { lock.lock().await });
        let asks = asks.to_vec();
        until(server, "all that a waiter asks", move |view| {
            let now = view.counters();
            let asked =
                |(op, count): &(Op, u64)| now.requests_of(id, *op) == before.requests_of(id, *op) + count;
            asks.iter().all(asked) && view.children(DIRECTORY).len() == nodes + 1
        })
        .await;
        attempt
    }
}

/// Requests count when they arrive, watches when they are there.
async fn watched(server: &Server, watches: usize) {
    until(server, "the watches", move |view| view.watches() == watches).await;
}

const CREATE_LIST: [(Op, u64); 2] = [(Op::Create, 1), (Op::GetChildren, 1)];
const CREATE_LIST_WATCH: [(Op, u64); 3] = [(Op::Create, 1), (Op::GetChildren, 1), (Op::GetData, 1)];

#[tokio::test]
async fn a_free_lock_of_any_kind_costs_two_requests_and_its_release_one() {
    for kind in [Kind::Mutex, Kind::Fair, Kind::Read, Kind::Write] {
        let server = start();
        let client = connect(&server).await;
        let id = session(&client);
        for _ in 0..3 {
            server.reset_counters();
            let guard = kind.get(&client).await;
            assert_eq!(requests(&server, id), CREATE_LIST, "{kind:?}");
            assert_eq!(server.watches(), 0);
            guard.release().await.unwrap();
            assert_eq!(requests(&server, id), [&CREATE_LIST[..], &[(Op::Delete, 1)]].concat(), "{kind:?}");
        }
        assert_eq!(server.counters().notifications(), 0);
    }
}

/// Where others read, a reader costs as much as where nobody is; its going wakes nobody.
#[tokio::test]
async fn a_reader_among_readers_costs_two_requests_and_its_release_one() {
    let server = start();
    let (first, second) = (connect(&server).await, connect(&server).await);
    let others = [Kind::Read.get(&first).await, Kind::Read.get(&second).await];
    for client in [&first, &second] {
        server.reset_counters();
        let guard = Kind::Read.get(client).await;
        guard.release().await.unwrap();
        assert_eq!(requests(&server, session(client)), [&CREATE_LIST[..], &[(Op::Delete, 1)]].concat());
        assert_eq!(server.counters().total_requests(), 3);
        assert_eq!((server.counters().notifications(), server.watches()), (0, 0));
    }
    drop(others);
}

/// Six clients, one behind the other: each release wakes the next, who looks once more unless it was alone behind the
/// holder, and nobody else does anything.
#[tokio::test]
async fn a_release_wakes_one_waiter_of_other_clients() {
    for kind in [Kind::Mutex, Kind::Fair, Kind::Write] {
        let server = start();
        let first = connect(&server).await;
        let mut held = kind.get(&first).await;
        let mut holder = session(&first);
        let (mut clients, mut waiters) = (vec![first], Vec::new());
        for _ in 0..5 {
            let client = connect(&server).await;
            waiters.push(kind.queue(&server, &client, &CREATE_LIST_WATCH).await);
            clients.push(client);
        }
        watched(&server, 5).await;
        for (served, attempt) in waiters.into_iter().enumerate() {
            let next = session(&clients[served + 1]);
            server.reset_counters();
            held.release().await.unwrap();
            held = granted(attempt).await;
            assert_eq!(requests(&server, holder), [(Op::Delete, 1)], "{kind:?}");
            let looks = if served == 0 && kind != Kind::Write { 0 } else { 1 };
            let counters = server.counters();
            assert_eq!(counters.requests_of(next, Op::GetChildren), looks, "{kind:?}, {served}");
            assert_eq!(counters.total_requests(), 1 + looks, "{kind:?}: nobody else asks anything");
            assert_eq!((counters.notifications(), counters.notifications_of(next)), (1, 1), "{kind:?}");
            assert_eq!(server.watches(), 4 - served);
            holder = next;
        }
        held.release().await.unwrap();
    }
}

/// Six tasks of one client, each with a node of its own. A mutex's and a writer's waiters are told by the server, a
/// fair lock's in memory: there only the deletion is asked for.
#[tokio::test]
async fn a_release_wakes_one_waiter_of_the_same_client() {
    for kind in [Kind::Mutex, Kind::Fair, Kind::Write] {
        let server = start();
        let client = connect(&server).await;
        let id = session(&client);
        let mut held = kind.get(&client).await;
        let mut waiters = Vec::new();
        for _ in 0..5 {
            let asks = if kind == Kind::Fair { &CREATE_LIST[..] } else { &CREATE_LIST_WATCH };
            waiters.push(kind.queue(&server, &client, asks).await);
        }
        watched(&server, if kind == Kind::Fair { 0 } else { 5 }).await;
        for (served, attempt) in waiters.into_iter().enumerate() {
            server.reset_counters();
            held.release().await.unwrap();
            held = granted(attempt).await;
            let looks = match kind {
                Kind::Mutex => u64::from(served > 0),
                Kind::Write => 1,
                Kind::Fair | Kind::Read => 0,
            };
            let all: Vec<_> =
                [(Op::GetChildren, looks), (Op::Delete, 1)].into_iter().filter(|(_, n)| *n > 0).collect();
            assert_eq!(requests(&server, id), all, "{kind:?}, {served}");
            let (told, watched) = if kind == Kind::Fair { (0, 0) } else { (1, 4 - served) };
            assert_eq!(server.counters().notifications(), told, "{kind:?}, {served}");
            assert_eq!(server.watches(), watched, "{kind:?}, {served}");
        }
        held.release().await.unwrap();
    }
}

const READERS: usize = 30;

/// A writer holds, a second waits, and thirty readers wait for the second: the first one's release is none of theirs.
/// (Curator's readers wait for the first: 63 requests, and all of them wait again.)
#[tokio::test]
async fn a_writer_s_release_does_not_wake_the_readers_behind_the_next() {
    for each in [false, true] {
        let server = start();
        let (first, second) = (connect(&server).await, connect(&server).await);
        let held = Kind::Write.get(&first).await;
        let next = Kind::Write.queue(&server, &second, &CREATE_LIST_WATCH).await;
        let (clients, readers) = readers(&server, each).await;
        watched(&server, 1 + clients.len()).await;
        server.reset_counters();
        held.release().await.unwrap();
        let held = granted(next).await;
        assert_eq!(requests(&server, session(&first)), [(Op::Delete, 1)]);
        assert_eq!(requests(&server, session(&second)), [(Op::GetChildren, 1)]);
        let counters = server.counters();
        assert_eq!(counters.total_requests(), 2, "nothing of any reader's");
        assert_eq!(counters.notifications(), 1);

        // Now it is their turn, all together.
        server.reset_counters();
        held.release().await.unwrap();
        let mut guards = Vec::new();
        for reader in readers {
            guards.push(granted(reader).await);
        }
        let counters = server.counters();
        assert_eq!(requests(&server, session(&second)), [(Op::Delete, 1)]);
        for client in &clients {
            assert_eq!(
                requests(&server, session(client)),
                [(Op::GetChildren, 1)],
                "one look, which shows no writer"
            );
            assert_eq!(counters.notifications_of(session(client)), 1);
        }
        assert_eq!(counters.total_requests(), 1 + clients.len() as u64, "{each}");
        assert_eq!((counters.notifications(), server.watches()), (clients.len() as u64, 0));

        // And nobody waits for any of them.
        server.reset_counters();
        for guard in guards {
            guard.release().await.unwrap();
        }
        let counters = server.counters();
        assert_eq!((counters.total_requests(), counters.notifications()), (READERS as u64, 0));
    }
}

/// Thirty readers that wait, of one client or of one each.
async fn readers(server: &Server, each: bool) -> (Vec<Client>, Vec<JoinHandle<Acquired<AnyGuard>>>) {
    let mut clients = vec![connect(server).await];
    let mut readers = Vec::new();
    for reader in 0..READERS {
        if each && reader > 0 {
            clients.push(connect(server).await);
        }
        let client = clients.last().unwrap();
        readers.push(Kind::Read.queue(server, client, &CREATE_LIST_WATCH).await);
    }
    (clients, readers)
}

/// A write node, a look, and the read node goes; where somebody waits, the time from which it does.
#[tokio::test]
async fn an_upgrade_costs_three_requests_and_one_more_where_a_writer_waits() {
    for waits in [false, true] {
        let server = start();
        let (client, other) = (connect(&server).await, connect(&server).await);
        let lock = InterProcessReadWriteLock::new(&client, DIRECTORY).unwrap();
        let id = session(&client);
        let reader = within("a reader", lock.read_lock().lock()).await.unwrap();
        let waiting =
            if waits { Some(Kind::Write.queue(&server, &other, &CREATE_LIST_WATCH).await) } else { None };
        server.reset_counters();
        let writer = within("the upgrade", reader.try_upgrade()).await.unwrap();
        let mut costs = vec![(Op::Create, 1), (Op::GetChildren, 1), (Op::Exists, 1), (Op::Delete, 1)];
        costs.retain(|(op, _)| waits || *op != Op::Exists);
        assert_eq!(requests(&server, id), costs);
        writer.release().await.unwrap();
        if let Some(waiting) = waiting {
            granted(waiting).await.release().await.unwrap();
        }
    }
}
