//! A replaced session (docs/protocol.md#replaced-session): a server grants a new session where the
//! client asked for its own, as ClickHouse Keeper does once it has forgotten the session. The test
//! server does not do so, so a relay in front of it does.

use std::net::SocketAddr;

use test_support::prelude::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

struct Relay {
    addr: SocketAddr,
    forget: Arc<AtomicBool>,
}

impl Relay {
    async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let forget = Arc::new(AtomicBool::new(false));
        let forgets = Arc::clone(&forget);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, server, forgets.load(Ordering::SeqCst)));
            }
        });
        Self { addr, forget }
    }
}

/// Passes everything on, but may turn the first frame, which asks for a session, into a request for
/// a new one.
async fn serve(mut client: TcpStream, server: SocketAddr, forget: bool) {
    let pass_on = async {
        let mut upstream = TcpStream::connect(server).await?;
        let (_, _) = (client.set_nodelay(true), upstream.set_nodelay(true));
        let length = client.read_u32().await?;
        let mut connect = vec![0; length as usize];
        client.read_exact(&mut connect).await?;
        if forget {
            // The frame has the protocol, the last zxid and the timeout, the session's id, and its
            // password with the length in front.
            connect[16..24].fill(0);
            connect[28..44].fill(0);
        }
        upstream.write_u32(length).await?;
        upstream.write_all(&connect).await?;
        copy_bidirectional(&mut client, &mut upstream).await
    };
    // Whatever ends the relay ends both connections.
    drop(pass_on.await);
}

/// Connects a client with a heartbeat every second, and locks that outlast the pauses of a busy
/// machine.
async fn client_behind(relay: &Relay) -> Client {
    let client = Client::builder()
        .session_timeout(Duration::from_secs(6))
        .connect_timeout(SOON);
    let client = client.retry_policy(eager());
    within("the session", client.connect(&relay.addr.to_string()))
        .await
        .unwrap()
}

/// Cuts the client's connection, and waits until the server has given it another session. The relay
/// keeps forgetting: on a busy machine, a client that did not wait for the answer connects again.
async fn replace(server: &Server, relay: &Relay, id: i64) {
    let newest = server.sessions().last().unwrap().id;
    relay.forget.store(true, Ordering::SeqCst);
    assert!(server.cut(id, Cut::Fin));
    until(server, "another session", move |view| {
        view.sessions().iter().any(|s| s.id > newest)
    })
    .await;
}

/// The node lives as long as its session, which no handle keeps any more; the lock is lost with the
/// node.
// Shows: replaced-session
#[tokio::test]
async fn replaced_session_loses_the_lock() {
    let server = start();
    let relay = Relay::start(server.addr()).await;
    let (client, other) = (client_behind(&relay).await, connect(&server).await);
    let old = session(&client);
    let guard = hold(&client).await;
    let node = guard.node();
    replace(&server, &relay, old).await;
    let error = within("a try", mutex(&other).try_lock()).await.unwrap_err();
    assert!(
        matches!(error, TryLockError::WouldBlock { .. }),
        "no other has it: {error}"
    );
    assert!(server.expire_session(old) || !server.exists(&node));
    let lost = within("the loss", guard.lost()).await;
    assert_eq!(lost.reason(), LostReason::NodeDeleted);
    assert!(!guard.is_held());
    relay.forget.store(false, Ordering::SeqCst);
    let again = hold(&client).await;
    assert_eq!(
        server.node(&again.node()).unwrap().ephemeral_owner,
        session(&client)
    );
    let error = within("the late release", guard.release())
        .await
        .unwrap_err();
    assert!(matches!(error, ReleaseError::Lost(_)), "{error}");
    assert_eq!(queue(&server), [again.node()]);
    again.release().await.unwrap();
    assert_clean(&server, "after the replacement").await;
}

/// Nothing was held, so nothing was lost; the owner of the first created node reveals the
/// replacement.
// Shows: replaced-session
#[tokio::test]
async fn next_create_reveals_replaced_session() {
    let server = start();
    let relay = Relay::start(server.addr()).await;
    let client = client_behind(&relay).await;
    let old = session(&client);
    replace(&server, &relay, old).await;
    let guard = hold(&client).await;
    relay.forget.store(false, Ordering::SeqCst);
    until(&server, "one node", |view| {
        view.children(DIRECTORY).len() == 1
    })
    .await;
    assert_eq!(queue(&server), [guard.node()]);
    let owner = server.node(&guard.node()).unwrap().ephemeral_owner;
    assert_eq!(owner, session(&client));
    assert_ne!(owner, old);
    guard.release().await.unwrap();
    assert_clean(&server, "after the replacement").await;
}

/// The node that is created in a replacing session.
#[derive(Clone, Copy, Debug)]
enum Created {
    Lock,
    Locks,
    Permits,
    Node,
}

impl Created {
    /// Creates the node, at the latest in the next session. Returns the value that keeps the node.
    async fn on(self, client: &Client) -> Box<dyn std::any::Any> {
        match self {
            Self::Lock => Box::new(mutex(client).lock().await.unwrap()),
            Self::Locks => {
                let locks =
                    InterProcessMultiLock::from_paths(client, ["/locks/a", "/locks/b"]).unwrap();
                Box::new(locks.lock().await.unwrap())
            }
            Self::Permits => {
                let semaphore = InterProcessSemaphore::new(client, "/permits", 3).unwrap();
                Box::new(semaphore.acquire_many(2, SOON).await.unwrap())
            }
            Self::Node => {
                let node = PersistentNode::new(client, "/services/web-1", "a").unwrap();
                node.wait_for_initial_create(SOON).await.unwrap();
                Box::new(node)
            }
        }
    }

    fn nodes(self) -> usize {
        match self {
            Self::Lock | Self::Node => 1,
            Self::Locks | Self::Permits => 2,
        }
    }
}

/// The nodes that were created in the replacing session go with it.
// Shows: replaced-session
#[tokio::test]
async fn replaced_session_leaves_no_node() {
    for (version, created) in [
        (Version::V3_8, Created::Lock),
        (Version::V3_8, Created::Locks),
        (Version::V3_8, Created::Node),
        (Version::V3_9, Created::Locks),
        (Version::V3_9, Created::Permits),
    ] {
        let server = Server::builder()
            .zookeeper_version(version)
            .start()
            .unwrap();
        let relay = Relay::start(server.addr()).await;
        let client = client_behind(&relay).await;
        let id = session(&client);
        if matches!(created, Created::Permits) {
            // The lock node belongs to the earlier session.
            relay.forget.store(true, Ordering::SeqCst);
            server.drop_request(
                Match::op(Op::Multi).path_contains("leases").session(id),
                Loss::Close,
            );
        } else {
            replace(&server, &relay, id).await;
        }
        let kept = within("what was asked for", created.on(&client)).await;
        relay.forget.store(false, Ordering::SeqCst);
        let (own, nodes) = (session(&client), created.nodes());
        assert_ne!(own, id, "{created:?}");
        let of = |session: &SessionInfo| session.ephemerals.len();
        until(&server, "its nodes, and no others", move |view| {
            view.sessions()
                .iter()
                .all(|session| of(session) == if session.id == own { nodes } else { 0 })
        })
        .await;
        drop(kept);
    }
}

/// The earlier session's node belongs to this client and goes by itself: no other process is in the
/// way.
// Shows: persistent-node
#[tokio::test]
async fn persistent_node_outwaits_replaced_session() {
    let server = start();
    server.freeze_expiry(true);
    let relay = Relay::start(server.addr()).await;
    let client = client_behind(&relay).await;
    let node = PersistentNode::new(&client, "/services/web-1", "a").unwrap();
    within("the creation", node.wait_for_initial_create(SOON))
        .await
        .unwrap();
    let old = session(&client);
    replace(&server, &relay, old).await;
    // The next create reveals the replacement.
    let guard = hold(&client).await;
    relay.forget.store(false, Ordering::SeqCst);
    let new = session(&client);
    assert_ne!(new, old);
    until(&server, "a watch", move |view| {
        view.watches_on("/services/web-1").contains(&new)
    })
    .await;
    // The client has learned who owns the node that it found.
    Barrier::new(&client).await.pass().await;
    assert_eq!(node.state(), PersistentNodeState::Absent);
    assert_eq!(server.node("/services/web-1").unwrap().ephemeral_owner, old);
    assert!(server.expire_session(old));
    until(&server, "the next node", move |view| {
        view.node("/services/web-1")
            .is_some_and(|node| node.ephemeral_owner == new)
    })
    .await;
    guard.release().await.unwrap();
    within("the end", node.close()).await.unwrap();
    server.freeze_expiry(false);
}

/// After a lost answer, the answer to the repeated create only says that the node exists. The owner
/// of the node decides whether the lock is kept.
// Shows: owner-check, replaced-session
#[tokio::test]
async fn conversion_in_replaced_session_loses_lock() {
    let server = Server::builder()
        .zookeeper_version(Version::V3_9)
        .start()
        .unwrap();
    server.freeze_expiry(true);
    let relay = Relay::start(server.addr()).await;
    let client = client_behind(&relay).await;
    let lock = InterProcessReadWriteLock::new(&client, "/rw").unwrap();
    let guard = within("the lock", lock.write_lock().lock()).await.unwrap();
    // The answer is lost with the connection, and the replacing session stays.
    replace(&server, &relay, session(&client)).await;
    let other = server.sessions().last().unwrap().id;
    relay.forget.store(false, Ordering::SeqCst);
    let fault = server.drop_reply(
        Match::op(Op::Multi).path_contains("rw").session(other),
        Loss::Close,
    );
    let failed = within("the downgrade", guard.downgrade())
        .await
        .unwrap_err();
    let ConversionError::Lost { source, .. } = &failed else {
        panic!("{failed}")
    };
    assert_eq!(source.reason(), LostReason::SessionReplaced);
    fault.wait_hit().await;
    server.freeze_expiry(false);
}
