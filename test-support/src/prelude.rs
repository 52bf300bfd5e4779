//! The names that most tests of locks use: `use test_support::prelude::*;`. Names that a test
//! defines or imports itself take precedence.
//!
//! Two types are named `Cut` and `Direction`; the prelude has those of the server in the process,
//! and not those of a [`Proxy`](crate::Proxy).

pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
pub use std::sync::{Arc, Mutex};
pub use std::task::{Context, Poll, Waker};
pub use std::time::{Duration, Instant};

pub use tokio::sync::{oneshot, watch};
pub use tokio::task::{JoinHandle, JoinSet};
pub use tokio_test::{assert_pending, assert_ready, task};
pub use zookeeper_recipes::*;
pub use zookeeper_test_server::{
    CreateMode, Cut, Direction, Fault, Gate, Isolation, LogEntry, LogKind, Loss, Match, NodeKind,
    Op, Server, ServerError, SessionInfo, Version, View,
};

pub use crate::in_process::*;
pub use crate::{
    ByHand, Random, SOON, all_done, block_on, broken_waker, pending, poll_until, within,
};
