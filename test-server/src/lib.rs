//! A ZooKeeper server inside the test process, with faults on demand.
//!
//! [`Server`] speaks ZooKeeper's protocol on a port of 127.0.0.1, so any client in any language can talk to it. It keeps
//! everything in memory, in one copy, and loses it when it is dropped: **it is for tests and demonstrations only.**
//!
//! ```
//! use std::time::Duration;
//! use zookeeper_client::{Acls, Client, CreateMode};
//! use zookeeper_test_server::{Match, Op, Server};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = Server::start()?;
//! let client = Client::connect(&server.connect_string()).await?;
//!
//! // Hold the reply to the next create: the node exists, and the client does not know it yet.
//! let gate = server.hold_reply(Match::op(Op::Create).path("/a"));
//! let create = client.create("/a", b"data", &CreateMode::Persistent.with_acls(Acls::anyone_all()));
//! gate.wait_hit().await;
//! assert!(server.exists("/a"));
//! gate.release();
//! create.await?;
//!
//! // Expire the session, and wait for what follows from it.
//! let session = server.sessions()[0].id;
//! server.expire_session(session);
//! assert!(server.wait_until(|view| view.sessions().is_empty(), Duration::from_secs(5)).await);
//! # Ok(())
//! # }
//! ```
//!
//! The server runs on a thread and a runtime of its own. A test that blocks its executor does not stop it, and it can be
//! started from code that is not asynchronous.

mod connection;
mod counters;
mod digest;
mod error;
mod fault;
mod server;
mod sessions;
mod signal;
mod state;
mod tree;
mod txn;
mod view;
mod watch;
mod wire;
mod words;

pub use counters::{Counters, LogEntry, LogKind, Op};
pub use error::ServerError;
pub use fault::{Fault, Gate, Hit, Loss, Match};
pub use server::{Builder, CreateMode, Cut, Direction, Server};
pub use state::{Isolation, Version};
pub use tree::NodeKind;
pub use view::{NodeInfo, SessionInfo, View};
