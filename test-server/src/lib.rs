//! A ZooKeeper server inside the test process, with faults on demand.
//!
//! [`Server`] speaks ZooKeeper's protocol on a port of 127.0.0.1, to any client in any language.
//! The server keeps its data in memory only, and discards the data when the server is dropped: **it
//! is for tests and demonstrations.**
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
//! let mode = CreateMode::Persistent.with_acls(Acls::anyone_all());
//! let create = client.create("/a", b"data", &mode);
//! gate.wait_hit().await;
//! assert!(server.exists("/a"));
//! gate.release();
//! create.await?;
//!
//! // Expire the session, and wait for the consequences.
//! server.expire_session(client.session_id().0);
//! assert!(server.wait_until(|view| view.sessions().is_empty(), Duration::from_secs(5)).await);
//! # Ok(())
//! # }
//! ```
//!
//! # Where to look
//! | to | use |
//! |---|---|
//! | start a server, with ZooKeeper's default settings or others | [`Server::start`], [`Server::builder`] |
//! | hold a request or a reply, and release it | [`Server::hold_request`], [`Server::hold_reply`], [`Gate`] |
//! | lose a request or a reply | [`Server::drop_request`], [`Server::drop_reply`] |
//! | fail a request, or delay a reply | [`Server::fail`], [`Server::delay_reply`] |
//! | choose the requests that a fault strikes | [`Match`] |
//! | end a session, or a connection | [`Server::expire_session`], [`Server::cut`] |
//! | break the network | [`Server::stall`], [`Server::refuse_connections`], [`Server::isolate`] |
//! | start an ensemble, make its members lag, cut them off | [`Builder::members`], [`Server::set_member`], [`Member`] |
//! | advance its clock, or change the clock's rate | [`Server::advance_clock`], [`Builder::clock_rate`], [`Builder::touch_interval`] |
//! | lose the races of ZooKeeper's pipeline | [`Builder::races`] |
//! | restart the server | [`Server::stop`], [`Server::restart`], [`Server::advance_epoch`] |
//! | inspect nodes, sessions and watches | [`Server::node`], [`Server::sessions`], [`Server::watches_on`] |
//! | compare the clients' view with the events on the server | [`Server::history`], [`HistoryEvent`] |
//! | count requests and notifications | [`Server::counters`], [`Counters`] |
//! | wait for a condition without polling | [`Server::wait_until`], [`View`] |
//!
//! The server runs on a separate thread with a separate runtime. So a test that blocks its executor
//! does not stop the server, and the server can be started outside a runtime. [`Builder::serve`]
//! runs the server on the current runtime instead, with connections of any kind; then tokio's
//! paused clock is also the server's clock.

mod address;
mod bounded;
mod connection;
mod counters;
mod digest;
mod error;
mod fault;
mod history;
mod listener;
mod members;
mod server;
mod sessions;
mod shared_map;
mod signal;
#[cfg(simulation)]
pub mod simulated;
mod state;
mod tree;
mod txn;
mod view;
mod watch;
mod wire;
mod words;

pub use counters::{Counters, LogEntry, LogKind, Op, Reason};
pub use error::ServerError;
pub use fault::{Fault, Gate, Hit, Loss, Match};
pub use history::{HistoryEntry, HistoryEvent, WatchKind};
pub use listener::Listener;
pub use members::Member;
pub use server::{Builder, CreateMode, Cut, Direction, Server};
pub use state::{Isolation, Version};
pub use tree::NodeKind;
pub use view::{NodeInfo, SessionInfo, View};

/// Compiles and runs the README's code with the documentation's.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
