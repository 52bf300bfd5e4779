//! Starts servers in a simulation (`--cfg simulation`), which has no threads.

use std::io;
use std::sync::OnceLock;

use crate::{Builder, Server};

/// Starts a server, by [`Builder::serve`]; `None` where nothing is simulated.
pub type Start = fn(Builder) -> Option<io::Result<Server>>;

static START: OnceLock<Start> = OnceLock::new();

/// Says how [`Builder::start`] starts a server, once in a process.
pub fn set_start(start: Start) {
    let _ = START.set(start);
}

pub(crate) fn start(builder: &Builder) -> Option<io::Result<Server>> {
    START.get()?(builder.clone())
}
