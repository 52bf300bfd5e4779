//! A counter whose servers stop.

use ::simulation::scenario::tokio;
use test_support::prelude::*;

const PATH: &str = "/shop/orders";

/// The reply to a write is lost, and then the server stops.
// Shows: counter-writes
#[tokio::test]
async fn write_before_outage_is_unknown() {
    for id in [false, true] {
        let server = start_impatient();
        server.create(PATH, 10_i64.to_be_bytes()).unwrap();
        let builder = Client::builder().session_timeout(Duration::from_millis(1500));
        let policy = RetryPolicy::n_times(1, Duration::from_millis(1));
        let client = connect_as(builder.retry_policy(policy), &server).await;
        let counter = DistributedAtomicLong::new(&client, PATH).unwrap();
        let write = server.drop_reply(Match::op(Op::SetData).path(PATH), Loss::Close);
        let call = async {
            if id {
                counter.next_id().await
            } else {
                counter.add(1).await
            }
        };
        let stop = async {
            within("the write", write.wait_hit()).await;
            server.stop_async().await;
        };
        let (result, ()) = within("the end", async { tokio::join!(call, stop) }).await;
        match result.unwrap_err() {
            AtomicLongError::Unknown { .. } => assert!(!id),
            error => assert!(id && error.kind() == Some(ErrorKind::Connection), "{error}"),
        }
    }
}
