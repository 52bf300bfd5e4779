//! A lock on a real ZooKeeper as other processes see it: the nodes in its queue, and who watches
//! whom, as another session and the command `wchp` show them.
//!
//! ```text
//! cargo test --test outside_view                 all of it
//! cargo test --test outside_view mutex::         one recipe
//! ```
//!
//! Each test asserts the whole state: no node and no watch may be missing or left over. An operator
//! who inspects a queue relies on that, and so does a peer in another language that joins the
//! queue.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod contenders;
mod fair_lock;
mod mutex;
mod observer;
mod read_write_lock;

use test_support::{SOON, Suite, peers, shared_standalone};

use self::observer::Observer;

fn main() {
    let mut suite = Suite::new();
    suite.at_once(8);
    mutex::add_all(&mut suite);
    read_write_lock::add_all(&mut suite);
    fair_lock::add_all(&mut suite);
    suite.run()
}

/// Adds a scenario, which runs in a separate runtime.
fn add<F: Future<Output = ()>>(
    suite: &mut Suite,
    name: &str,
    scenario: impl FnOnce(Observer) -> F + Send + 'static,
) {
    suite.add_needing("zookeeper", name, peers::zookeeper(), move |_| {
        let servers = shared_standalone().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async { scenario(Observer::new(servers).await).await });
        runtime.shutdown_timeout(SOON);
    });
}
