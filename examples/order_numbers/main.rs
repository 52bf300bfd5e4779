//! Order numbers: many workers in several processes take them, and none is given out twice.
//!
//! ```text
//! cargo run --example order_numbers
//! cargo run --example order_numbers -- --lock none       # what the lock is for
//! cargo run --example order_numbers -- --lock counter    # distinct, with gaps
//! cargo run --example order_numbers -- --kill-one
//! ZK_CONNECT=127.0.0.1:2181 cargo run --example order_numbers
//! ```
//!
//! The next number is in a node of ZooKeeper. Under the mutex, a worker reads it, and writes its
//! successor and the order, with its number, in one transaction: both are there, or neither is, so
//! no number is missing. The transaction names the version of the counter that was read, and the
//! order's node has the order's name. If its reply is lost, the worker looks for the order: either
//! the order exists with its number, or the worker takes another number. A transaction that arrives
//! late finds another version of the counter.
//!
//! With `--lock counter` each process takes blocks of numbers from a `DistributedAtomicLong`. That
//! needs no lock and, for a whole block, as many requests as for one number, and leaves gaps: what
//! is left of a block is not used.
//!
//! Exits with 0 only if the nodes of the orders say that no number is there twice, under the mutex
//! no number is missing, and the only orders that are not there are those of a killed process;
//! otherwise with 1, or with 2 if the run could not take place.

#[path = "../common/mod.rs"]
mod common;
mod options;
mod report;
mod worker;

use std::process::ExitCode;

use zookeeper_recipes::Client;

use common::program::{self, Verdict};
use common::tree::Tree;
use common::{Error, Servers, crew, run_name};
use options::Options;
use report::Orders;
use worker::{Assignment, Process};

fn main() -> ExitCode {
    program::run("order_numbers", crew::run_worker::<Process>, || {
        let options = Options::from_command_line();
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?
            .block_on(place_orders(&options))
    })
}

/// Places all orders, and checks them.
async fn place_orders(options: &Options) -> Result<Option<Verdict>, Error> {
    let config = options.config();
    let servers = Servers::find(options.run.connect.as_deref())?;
    // Says what is wrong with the servers, if anything is, in the library's words.
    let client = Client::connect(&servers.connect_string).await?;
    let tree = Tree::connect(&servers.connect_string, config.session_timeout).await?;
    let root = format!("/order_numbers/{}", run_name());
    tree.make(&format!("{root}/orders"), "").await?;
    tree.make(&worker::next_number(&root), "1").await?;
    let assignments = (0..config.processes).map(|process| Assignment {
        process,
        servers: servers.connect_string.clone(),
        root: root.clone(),
        config: config.clone(),
        is_killed: options.kill_one && process == 0,
    });
    let outcome =
        crew::run::<u32>(assignments, config.orders, "orders", config.session_timeout).await?;
    let orders = Orders::read(&tree, &root, &config).await?;
    tree.delete(&root).await?;
    client.close().await?;
    outcome
        .map(|outcome| report::verdict(options, &config, servers.backend, &outcome, &orders))
        .transpose()
}
