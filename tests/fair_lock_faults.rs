//! The fair lock where things go wrong: what has to do with threads, runtimes and their tasks. The others run in
//! virtual time: `simulation/tests/scenarios/fair_lock_faults.rs`.

use std::time::Duration;

use test_support::in_process::{HOUR, calm, fair, place, start};
use test_support::within;
use tokio_test::{assert_pending, task};
use zookeeper_client as zk;
use zookeeper_recipes::{AcquireError, Client};

/// Waiting again and again, a little each time, as in a `select!` loop, leaves nothing behind.
#[tokio::test]
async fn waiting_in_turns_leaves_no_tasks() {
    const TURNS: usize = 1_000;
    let server = start();
    let other = calm(&server).await;
    let _held = within("the grant", fair(&other).lock()).await.unwrap();
    let session =
        zk::Client::connector().with_session_timeout(HOUR).connect(&server.connect_string()).await.unwrap();
    let client = Client::from_session(session).unwrap();
    let mut place = place(&fair(&client)).await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    for _ in 0..TURNS {
        let mut acquire = task::spawn(place.acquire(Duration::from_secs(3_600)));
        assert_pending!(acquire.poll());
    }
    let ended = async {
        while tasks() > before + 10 {
            tokio::task::yield_now().await;
        }
    };
    within("the end of all tasks but a few, before their hour is over", ended).await;
}

/// The same where the runtime of a borrowed session goes.
#[test]
fn a_place_whose_runtime_is_gone_answers_with_an_error() {
    let server = start();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (mut place, _held) = runtime.block_on(async {
        let connector = zk::Client::connector().with_session_timeout(HOUR);
        let client =
            Client::from_session(connector.connect(&server.connect_string()).await.unwrap()).unwrap();
        let held = within("the grant", fair(&client).lock()).await.unwrap();
        (place(&fair(&client)).await, held)
    });
    drop(runtime);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let error = runtime.block_on(async { within("the answer", place.lock()).await.unwrap_err() });
    assert!(matches!(error, AcquireError::Closed { .. }), "{error}");
}
