//! Outages that are shorter than the lease cost no lock (docs/protocol.md#spare-connection). The
//! longest outage is 0.45 T, as RELIABILITY.md promises, and the clients are in every phase between
//! two heartbeats.

use std::time::{Duration, Instant};

use simnet::net::{self, Fault, Net, Way};
use simulation::scenario::tokio;
use test_support::short_outages::{CLIENTS, lost};
use zookeeper_recipes::{Client, InterProcessMutex};
use zookeeper_test_server::{Direction, Match, Op, Server};

async fn costs_no_lock(session_timeout: Duration, outage: impl AsyncFn(&Server, &[i64], Instant)) {
    let lost = lost(session_timeout, &outage).await;
    assert_eq!(
        lost, 0,
        "of {CLIENTS} locks lost at T = {session_timeout:?}"
    );
}

/// Every connection is refused.
async fn refused(server: &Server, _: &[i64], end: Instant) {
    server.stop_async().await;
    // The duration is under test.
    tokio::time::sleep_until(end.into()).await;
    server.restart_async().await.unwrap();
}

/// Connections are accepted, but the server stays silent.
async fn silent(server: &Server, sessions: &[i64], end: Instant) {
    for session in sessions {
        server.stall(*session, Direction::Both);
    }
    // The duration is under test.
    tokio::time::sleep_until(end.into()).await;
    for session in sessions {
        server.resume(*session);
    }
}

// Shows: spare-connection
#[tokio::test]
async fn refused_at_2_s() {
    costs_no_lock(Duration::from_secs(2), refused).await;
}

// Shows: spare-connection
#[tokio::test]
async fn refused_at_6_s() {
    costs_no_lock(Duration::from_secs(6), refused).await;
}

// Shows: spare-connection
#[tokio::test]
async fn refused_at_15_s() {
    costs_no_lock(Duration::from_secs(15), refused).await;
}

// Shows: spare-connection
#[tokio::test]
async fn silent_at_6_s() {
    costs_no_lock(Duration::from_secs(6), silent).await;
}

/// How a link fails.
#[derive(Clone, Copy)]
enum Link {
    /// Connections are refused.
    Refuses,
    /// Connections are accepted, and their data arrives after the outage.
    Holds,
    /// Connections from before or during the outage stay silent after it.
    Forgets,
    /// As `Forgets`, but the member does not come back.
    StaysAway,
}

impl Link {
    fn fail(self, link: &net::Link) {
        match self {
            Self::Refuses => link.fail(Fault::Refuses),
            Self::Holds => [Way::ToServer, Way::ToClient]
                .into_iter()
                .for_each(|way| link.hold(way)),
            Self::Forgets | Self::StaysAway => link.fail(Fault::Forgets),
        }
    }
}

async fn cost_no_lock(session_timeout: Duration, links: &[Link], outages: &[u32]) {
    connects_after(Duration::ZERO, session_timeout, links, outages).await;
}

/// Runs a server, and clients that reach it by several links, which fail for `outages` thousandths
/// of the session timeout, at every moment between two heartbeats. After an outage, each connect is
/// answered with the delay `slow`.
async fn connects_after(
    slow: Duration,
    session_timeout: Duration,
    links: &[Link],
    outages: &[u32],
) {
    for (outage, moment) in outages.iter().flat_map(|outage| [(outage, 0), (outage, 1)]) {
        let server = Server::builder()
            .tick(session_timeout / 20)
            .min_session_timeout(session_timeout)
            .max_session_timeout(session_timeout)
            .start()
            .unwrap();
        let hosts: Vec<String> = (0..links.len()).map(|i| format!("member-{i}")).collect();
        let addresses: Vec<String> = hosts
            .iter()
            .map(|host| format!("{host}:{}", server.port()))
            .collect();
        let step = session_timeout / 6 / MOMENTS;
        let mut held = Vec::new();
        for i in 0..MOMENTS {
            let builder = Client::builder().session_timeout(session_timeout);
            let client = builder.connect(&addresses.join(",")).await.unwrap();
            let mutex = InterProcessMutex::new(&client, format!("/locks/{i}")).unwrap();
            held.push((client, mutex.lock().await.unwrap()));
            // The next client sends its heartbeats later.
            tokio::time::sleep(step).await;
        }
        tokio::time::sleep(step * moment / 2).await;
        let _slow = server.delay_reply(Match::op(Op::Connect).always(), slow);
        let net = Net::current();
        let failing = || links.iter().zip(hosts.iter().map(|host| net.link(host)));
        failing().for_each(|(how, link)| how.fail(&link));
        // The duration is under test.
        tokio::time::sleep(session_timeout * *outage / 1_000).await;
        failing()
            .filter(|(how, _)| !matches!(how, Link::StaysAway))
            .for_each(|(_, link)| link.mend());
        // The pause outlasts any lease from before the outage. Later, a client library that
        // continues to try members that stay away may give the session up by its clock.
        tokio::time::sleep(session_timeout / 4).await;
        let lost = held.iter().filter(|(_, guard)| !guard.is_held()).count();
        assert_eq!(
            lost,
            0,
            "of {MOMENTS} locks at T = {session_timeout:?}, {} links, {outage} thousandths of T",
            links.len()
        );
        failing().for_each(|(_, link)| link.mend());
        for (client, guard) in held {
            guard.release().await.unwrap();
            client.close().await.unwrap();
        }
    }
}

/// Members that come back at the same time take the session from each other, because each answers a
/// connect only after the next one has been asked.
// Shows: spare-connection
#[tokio::test]
async fn members_back_together() {
    for seconds in [2, 3, 6, 15, 30] {
        let session_timeout = Duration::from_secs(seconds);
        cost_no_lock(session_timeout, &[Link::Holds; 3], &OUTAGES).await;
        let slow = session_timeout / 100;
        connects_after(slow, session_timeout, &[Link::Forgets; 3], &[449]).await;
        connects_after(slow, session_timeout, &[Link::Refuses; 5], &[449]).await;
    }
}

/// The number of clients, whose heartbeats are sent at different moments.
const MOMENTS: u32 = 12;

/// The outages, from one that ends before it is noticed to the longest that the documentation
/// covers.
const OUTAGES: [u32; 5] = [100, 200, 300, 400, 449];

/// Runs the test over one, two and three links.
async fn forgotten(session_timeout: Duration) {
    for links in 1..=3 {
        cost_no_lock(session_timeout, &vec![Link::Forgets; links], &OUTAGES).await;
    }
}

// Shows: spare-connection
#[tokio::test]
async fn forgotten_at_2_s() {
    forgotten(Duration::from_secs(2)).await;
}

// Shows: spare-connection
#[tokio::test]
async fn forgotten_at_3_s() {
    forgotten(Duration::from_secs(3)).await;
}

// Shows: spare-connection
#[tokio::test]
async fn forgotten_at_12_s() {
    forgotten(Duration::from_secs(12)).await;
}

// Shows: spare-connection
#[tokio::test]
async fn links_fail_in_different_ways() {
    let links = [Link::Refuses, Link::Holds, Link::Forgets];
    for seconds in [2, 3, 6] {
        cost_no_lock(Duration::from_secs(seconds), &links, &OUTAGES).await;
    }
}

/// The other members stay silent, and do not delay tries of this one.
// Shows: spare-connection
#[tokio::test]
async fn single_member_is_back() {
    let links = [Link::StaysAway, Link::Forgets, Link::StaysAway];
    for seconds in [2, 6] {
        cost_no_lock(Duration::from_secs(seconds), &links, &[449]).await;
    }
}
