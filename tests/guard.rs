//! What a guard leaves behind, by a runtime that counts its tasks. What a guard knows is shown in virtual time:
//! `simulation/tests/scenarios/guard.rs`.

use test_support::in_process::DIRECTORY;
use test_support::within;
use zookeeper_recipes::{Client, InterProcessMutex};
use zookeeper_test_server::Server;

/// The tasks of a client on a borrowed session run in its owner's runtime.
#[tokio::test]
async fn a_wait_for_the_loss_that_is_kept_leaves_no_task_in_the_runtime_of_a_borrowed_session() {
    let server = Server::start().unwrap();
    let owner = zookeeper_client::Client::connect(&server.connect_string()).await.unwrap();
    let runtime = tokio::runtime::Handle::current();
    let before = runtime.metrics().num_alive_tasks();
    let client = Client::from_session(owner.clone()).unwrap();
    let guard =
        within("the grant", InterProcessMutex::new(&client, DIRECTORY).unwrap().lock()).await.unwrap();
    let lost = guard.lost();
    within("the close", client.close()).await.unwrap();
    drop((guard, client));
    within("the end of the client's tasks", async {
        while runtime.metrics().num_alive_tasks() > before {
            tokio::task::yield_now().await;
        }
    })
    .await;
    drop(lost);
}
