//! What a lock looks like from outside, on a real ZooKeeper: who stands in the queue, and who
//! watches whom, as `wchp` and another session say it.
//!
//! ```text
//! cargo test --test outside_view                 all of it
//! cargo test --test outside_view mutex::         one recipe
//! ```
//!
//! The view has to become exactly the one that is written down, no node and no watch less or more,
//! and to stay so. An operator who looks at a queue, and a peer in another language that joins it,
//! rely on no less.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod cast;
mod fair_lock;
mod mutex;
mod read_write_lock;
mod view;

use test_support::{SOON, Suite, peers, shared_standalone};

use self::view::Outside;

fn main() {
    let mut suite = Suite::new();
    suite.at_once(8);
    mutex::add_all(&mut suite);
    read_write_lock::add_all(&mut suite);
    fair_lock::add_all(&mut suite);
    suite.run()
}

/// Adds a scenario, in a runtime of its own.
fn add<F: Future<Output = ()>>(
    suite: &mut Suite,
    name: &str,
    scenario: impl FnOnce(Outside) -> F + Send + 'static,
) {
    suite.add_needing("zookeeper", name, peers::zookeeper(), move |_| {
        let servers = shared_standalone().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async { scenario(Outside::new(servers).await).await });
        runtime.shutdown_timeout(SOON);
    });
}
