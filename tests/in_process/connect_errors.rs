//! The reason that a client without a session reports for each server.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::error::Error;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::thread;

use test_support::prelude::*;

/// The connect timeout of these tests. The client probes the servers within a part of this time.
const TIMEOUT: Duration = Duration::from_secs(1);

/// How far a busy machine may exceed a time limit.
const LATE: Duration = Duration::from_secs(20);

/// How often a test is repeated on a busy machine, which may ask or answer too late.
const TRIES: usize = 5;

/// A server that handles each connection with `treat`, on a separate thread that ends with the
/// process.
fn serve(treat: fn(TcpStream)) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || treat(stream));
        }
    });
    address
}

/// Sends this answer to any request (for a line protocol, once the line is complete), and waits
/// until the other side closes.
fn answers(mut stream: TcpStream, answer: &[u8], to_a_line: bool) {
    let mut asked = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(read) => asked.extend_from_slice(&buffer[..read]),
        }
        if !to_a_line || asked.contains(&b'\n') {
            drop(stream.write_all(answer));
        }
    }
}

fn nothing_listens() -> String {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .unwrap()
        .local_addr()
        .unwrap()
        .to_string()
}

async fn fails(servers: &str) -> ConnectError {
    Client::builder()
        .connect_timeout(TIMEOUT)
        .connect(servers)
        .await
        .unwrap_err()
}

fn failures(error: &ConnectError) -> Vec<(String, ServerFailure)> {
    let ConnectError::TimedOut { failures, .. } = error else {
        panic!("{error:?}")
    };
    failures.clone()
}

// Shows: connect-errors
#[tokio::test]
async fn error_names_each_servers_cause() {
    let cases = [
        (nothing_listens(), ServerFailure::ConnectionRefused),
        (
            "no-such-host.invalid:2181".to_owned(),
            ServerFailure::UnknownHost,
        ),
        (serve(drop), ServerFailure::ClosedAtOnce),
        (
            serve(|stream| answers(stream, b"", false)),
            ServerFailure::NoAnswer,
        ),
        (
            serve(|stream| answers(stream, &[0x15, 3, 3, 0, 2, 2, 80], false)),
            ServerFailure::SpeaksTls,
        ),
        (
            serve(|stream| answers(stream, b"HTTP/1.1 400 Bad Request\r\n\r\n", true)),
            ServerFailure::NotZooKeeper,
        ),
        (
            serve(|stream| {
                answers(
                    stream,
                    b"This ZooKeeper instance is not currently serving requests\n",
                    false,
                );
            }),
            ServerFailure::NotServing,
        ),
        (
            serve(|stream| {
                answers(
                    stream,
                    b"Zookeeper version: 3.8.0\nREAD-ONLY mode; serving only read-only clients\n",
                    false,
                );
            }),
            ServerFailure::NotServing,
        ),
        (
            serve(|stream| answers(stream, b"Zookeeper version: 3.8.0\nMode: follower\n", false)),
            ServerFailure::NoSession,
        ),
    ];
    let servers: Vec<&str> = cases.iter().map(|(server, _)| &**server).collect();
    let (mut error, mut took) = (None, Duration::MAX);
    for _ in 0..TRIES {
        let started = Instant::now();
        let found = error.insert(fails(&servers.join(",")).await);
        took = started.elapsed();
        if failures(found) == cases {
            break;
        }
    }
    let error = error.unwrap();
    assert_eq!(failures(&error), cases);
    assert!(error.is_retryable());
    let source = error.source().expect("a source").to_string();
    assert_eq!(source.lines().count(), cases.len(), "{source}");
    for (line, (server, kind)) in source.lines().zip(&cases) {
        assert!(line.starts_with(&format!("{server}: {kind}")), "{line}");
    }
    assert!(source.contains("(HTTP/1.1 400 Bad Request)"), "{source}");
    assert!(took < TIMEOUT + LATE, "{took:?}");
    assert!(!format!("{error:?}").contains('\n'), "{error:?}");
}

/// A link-local address has a zone. The zone of the loopback interface is known by its number only.
#[tokio::test]
async fn ipv6_zone_is_connected() {
    let server = Server::start().unwrap();
    let Ok(listener) = tokio::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).await else {
        // Without IPv6 the address is valid but unreachable.
        let found = failures(&fails("[::1%1]:1").await);
        assert!(
            matches!(
                found[0].1,
                ServerFailure::Unreachable | ServerFailure::NoAnswer
            ),
            "{found:?}"
        );
        return;
    };
    let port = listener.local_addr().unwrap().port();
    let behind = server.connect_string();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut server = tokio::net::TcpStream::connect(&behind).await.unwrap();
            tokio::spawn(
                async move { tokio::io::copy_bidirectional(&mut client, &mut server).await },
            );
        }
    });
    let client = Client::connect(&format!("[::1%1]:{port}")).await.unwrap();
    within("the lock", mutex(&client).lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    client.close().await.unwrap();
}

/// A probe makes no session, and the attempts of a client without a session leave none.
// Shows: connect-errors
#[tokio::test]
async fn probe_makes_no_session() {
    let server = Server::start().unwrap();
    // The handshake is not answered, but the probe is.
    let _handshakes = server.hold_request(Match::op(Op::Connect).always());
    let expected = [(server.connect_string(), ServerFailure::NoSession)];
    let mut found = Vec::new();
    for _ in 0..TRIES {
        found = failures(&fails(&server.connect_string()).await);
        if found == expected {
            break;
        }
    }
    assert_eq!(found, expected);
    assert_eq!(server.sessions().len(), 0);
}

#[tokio::test]
async fn duplicate_server_is_asked_once() {
    // Another process may begin to listen at the port in the meantime.
    let (mut found, mut expected) = (Vec::new(), Vec::new());
    for _ in 0..TRIES {
        let server = nothing_listens();
        found = failures(&fails(&format!("{server},{server}/shop")).await);
        expected = vec![(server, ServerFailure::ConnectionRefused)];
        if found == expected {
            break;
        }
    }
    assert_eq!(found, expected);
}

#[tokio::test]
async fn bad_connect_string_names_the_part() {
    let error = fails("zk1:2181,zk2:21x1,zk3:2181/shop").await;
    assert!(
        matches!(error, ConnectError::InvalidConnectString { .. }),
        "{error:?}"
    );
    let text = error.to_string();
    assert!(
        text.contains("address 2, \"zk2:21x1\": its port is not a number from 1 to 65535"),
        "{text}"
    );
}
