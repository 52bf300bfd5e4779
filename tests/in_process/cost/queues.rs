//! The cost of a moving queue: which waiters a release wakes, and the requests that they send.

use test_support::prelude::*;

use super::requests;

/// A kind of lock with a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Mutex,
    Fair,
    Read,
    Write,
}

impl Kind {
    pub(super) fn lock(self, client: &Client) -> Arc<dyn InterProcessLock> {
        let pair = || InterProcessReadWriteLock::new(client, DIRECTORY).unwrap();
        match self {
            Self::Mutex => Arc::new(InterProcessMutex::new(client, DIRECTORY).unwrap()),
            Self::Fair => Arc::new(fair(client)),
            Self::Read => Arc::new(pair().read_lock()),
            Self::Write => Arc::new(pair().write_lock()),
        }
    }

    async fn get(self, client: &Client) -> AnyGuard {
        within("the grant", self.lock(client).lock()).await.unwrap()
    }

    /// Joins the end of the queue, and returns once all requests of the waiter have arrived and its
    /// node exists.
    async fn queue(
        self,
        server: &Server,
        client: &Client,
        asks: &[(Op, u64)],
    ) -> JoinHandle<Acquired<AnyGuard>> {
        let lock = self.lock(client);
        let (id, before, nodes) = (
            session(client),
            server.counters(),
            server.children(DIRECTORY).len(),
        );
        let attempt = tokio::spawn(async move { lock.lock().await });
        let asks = asks.to_vec();
        until(server, "all that a waiter asks", move |view| {
            let now = view.counters();
            let asked = |(op, count): &(Op, u64)| {
                now.requests_of(id, *op) == before.requests_of(id, *op) + count
            };
            asks.iter().all(asked) && view.children(DIRECTORY).len() == nodes + 1
        })
        .await;
        attempt
    }
}

/// Waits until this many watches exist: requests are counted when they arrive, and watches are set
/// later.
async fn watched(server: &Server, watches: usize) {
    until(server, "the watches", move |view| view.watches() == watches).await;
}

const CREATE_LIST: [(Op, u64); 2] = [(Op::Create, 1), (Op::GetChildren, 1)];
const CREATE_LIST_WATCH: [(Op, u64); 3] = [(Op::Create, 1), (Op::GetChildren, 1), (Op::GetData, 1)];

// Shows: create-and-list
#[tokio::test]
async fn free_lock_costs_two_requests() {
    for kind in [Kind::Mutex, Kind::Fair, Kind::Read, Kind::Write] {
        let (server, [client]) = with_clients(start(), calm).await;
        let id = session(&client);
        for _ in 0..3 {
            server.reset_counters();
            let guard = kind.get(&client).await;
            assert_eq!(requests(&server, id), CREATE_LIST, "{kind:?}");
            assert_eq!(server.watches(), 0);
            guard.release().await.unwrap();
            assert_eq!(
                requests(&server, id),
                [&CREATE_LIST[..], &[(Op::Delete, 1)]].concat(),
                "{kind:?}"
            );
        }
        assert_eq!(server.counters().notifications(), 0);
    }
}

/// A reader that joins others costs as much as on a free lock; its release wakes no contender.
#[tokio::test]
async fn reader_among_readers_costs_two_requests() {
    let (server, [first, second]) = with_clients(start(), calm).await;
    let others = [Kind::Read.get(&first).await, Kind::Read.get(&second).await];
    for client in [&calm(&server).await, &calm(&server).await] {
        server.reset_counters();
        let guard = Kind::Read.get(client).await;
        guard.release().await.unwrap();
        assert_eq!(
            requests(&server, session(client)),
            [&CREATE_LIST[..], &[(Op::Delete, 1)]].concat()
        );
        assert_eq!(server.counters().total_requests(), 3);
        assert_eq!(
            (server.counters().notifications(), server.watches()),
            (0, 0)
        );
    }
    drop(others);
}

/// Six clients queue in a row: each release wakes the next client, which looks once more; the
/// others do nothing.
// Shows: watch-one-node
#[tokio::test]
async fn release_wakes_one_foreign_waiter() {
    for kind in [Kind::Mutex, Kind::Fair, Kind::Write] {
        let (server, [first]) = with_clients(start(), calm).await;
        let mut held = kind.get(&first).await;
        let mut holder = session(&first);
        let (mut clients, mut waiters) = (vec![first], Vec::new());
        for _ in 0..5 {
            let client = calm(&server).await;
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
            let counters = server.counters();
            assert_eq!(
                counters.requests_of(next, Op::GetChildren),
                1,
                "{kind:?}, {served}"
            );
            assert_eq!(
                counters.total_requests(),
                2,
                "{kind:?}: no other asks anything"
            );
            assert_eq!(
                (counters.notifications(), counters.notifications_of(next)),
                (1, 1),
                "{kind:?}"
            );
            assert_eq!(server.watches(), 4 - served);
            holder = next;
        }
        held.release().await.unwrap();
    }
}

/// Six tasks of one client queue, each with its own node: one request deletes and hands over, and a
/// new waiter costs its create.
#[tokio::test]
async fn fair_release_wakes_one_own_waiter() {
    let (server, [client]) = with_clients(start(), calm).await;
    let id = session(&client);
    let mut held = Kind::Fair.get(&client).await;
    let mut waiters = Vec::new();
    for _ in 0..5 {
        waiters.push(Kind::Fair.queue(&server, &client, &[(Op::Create, 1)]).await);
    }
    watched(&server, 0).await;
    for (served, attempt) in waiters.into_iter().enumerate() {
        server.reset_counters();
        held.release().await.unwrap();
        held = granted(attempt).await;
        assert_eq!(requests(&server, id), [(Op::Multi, 1)], "{served}");
        assert_eq!(
            (server.counters().notifications(), server.watches()),
            (0, 0),
            "{served}"
        );
    }
    held.release().await.unwrap();
}

/// How many lists thousands of fair waiters of one process may cost: one for the first, and a few
/// while a request was unanswered.
const FEW: u64 = 5;

/// A waiter whose number follows that of another waiter of its session knows its predecessor. If
/// the predecessor gives up, the waiter waits for the one before it. Neither needs a list, whose
/// size grows with the queue.
// Shows: waiting-in-memory
#[tokio::test]
async fn fair_waiters_need_no_lists() {
    const WAITERS: usize = 1_000;
    let (server, [client, other]) = with_clients(start(), calm).await;
    let id = session(&client);
    let lock = fair(&client);
    for holder in [&other, &client] {
        let held = Kind::Fair.get(holder).await;
        server.reset_counters();
        let mut places = Vec::new();
        for _ in 0..WAITERS {
            places.push(within("a place", lock.enqueue()).await.unwrap());
        }
        let counters = server.counters();
        assert_eq!(counters.requests_of(id, Op::Create), WAITERS as u64);
        let lists = counters.requests_of(id, Op::GetChildren);
        assert!(lists <= FEW, "{lists} lists for {WAITERS} that came");
        assert!(counters.requests_of(id, Op::GetData) <= 1);

        // The waiters leave one by one in any order, then all but one at once.
        server.reset_counters();
        let mut dice = Random::new(17);
        let mut last = places.remove(WAITERS / 2);
        while let Some(n) = places.len().checked_sub(1) {
            drop(places.swap_remove(usize::try_from(dice.below(n as u64 + 1)).unwrap()));
            if n > WAITERS / 4 {
                client.flush(SOON).await.unwrap();
            } else if n % 50 == 0 {
                // A newcomer queues in the meantime.
                drop(within("a place", lock.enqueue()).await.unwrap());
            }
        }
        client.flush(SOON).await.unwrap();
        let counters = server.counters();
        let lists = counters.requests_of(id, Op::GetChildren);
        assert!(lists <= FEW, "{lists} lists for {WAITERS} that gave up");
        assert_eq!(server.children(DIRECTORY).len(), 2);
        held.release().await.unwrap();
        within("the grant", last.lock())
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    }
}

const READERS: usize = 30;

/// A writer holds, a second waits, and thirty readers wait for the second: the first writer's
/// release does not wake them. (Curator's readers wait for the first: 63 requests, and all wait
/// again.)
// Shows: read-write
#[tokio::test]
async fn writers_release_wakes_no_later_readers() {
    for each in [false, true] {
        let (server, [first, second]) = with_clients(start(), calm).await;
        let held = Kind::Write.get(&first).await;
        let next = Kind::Write
            .queue(&server, &second, &CREATE_LIST_WATCH)
            .await;
        let (clients, readers) = readers(&server, each).await;
        watched(&server, 1 + clients.len()).await;
        server.reset_counters();
        held.release().await.unwrap();
        let held = granted(next).await;
        assert_eq!(requests(&server, session(&first)), [(Op::Delete, 1)]);
        assert_eq!(requests(&server, session(&second)), [(Op::GetChildren, 1)]);
        let counters = server.counters();
        assert_eq!(counters.total_requests(), 2, "no reader asks anything");
        assert_eq!(counters.notifications(), 1);

        // All readers are now at the head of the queue.
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
        assert_eq!(
            counters.total_requests(),
            1 + clients.len() as u64,
            "{each}"
        );
        assert_eq!(
            (counters.notifications(), server.watches()),
            (clients.len() as u64, 0)
        );

        // No waiter is left that would cost a request.
        server.reset_counters();
        for guard in guards {
            guard.release().await.unwrap();
        }
        let counters = server.counters();
        assert_eq!(
            (counters.total_requests(), counters.notifications()),
            (clients.len() as u64, 0)
        );
    }
}

/// Returns thirty waiting readers: of one client, which share a node, or of one client each.
async fn readers(
    server: &Server,
    each: bool,
) -> (Vec<Client>, Vec<JoinHandle<Acquired<AnyGuard>>>) {
    let mut clients = vec![calm(server).await];
    let mut readers = vec![
        Kind::Read
            .queue(server, &clients[0], &CREATE_LIST_WATCH)
            .await,
    ];
    for _ in 1..READERS {
        readers.push(if each {
            clients.push(calm(server).await);
            Kind::Read
                .queue(server, &clients[clients.len() - 1], &CREATE_LIST_WATCH)
                .await
        } else {
            let lock = Kind::Read.lock(&clients[0]);
            tokio::spawn(async move { lock.lock().await })
        });
    }
    (clients, readers)
}

/// The cost does not depend on the number of waiters.
#[tokio::test]
async fn downgrade_costs_one_transaction() {
    let (server, [client, other]) = with_clients(start(), calm).await;
    let lock = InterProcessReadWriteLock::new(&client, DIRECTORY).unwrap();
    let id = session(&client);
    let writer = within("the writer", lock.write_lock().lock())
        .await
        .unwrap();
    let waiting = Kind::Write.queue(&server, &other, &CREATE_LIST_WATCH).await;
    server.reset_counters();
    let reader = within("the downgrade", writer.downgrade()).await.unwrap();
    assert_eq!(requests(&server, id), [(Op::Multi, 1)]);
    reader.release().await.unwrap();
    granted(waiting).await.release().await.unwrap();
}
