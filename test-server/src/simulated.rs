//! Starts servers in a simulation (`--cfg simulation`), which has no threads.

use std::io;
use std::sync::OnceLock;

use crate::{Builder, Server};

/// Starts a server with [`Builder::serve`]; returns `None` where nothing is simulated.
pub type Start = fn(Builder) -> Option<io::Result<Server>>;

static START: OnceLock<Start> = OnceLock::new();

/// Sets how [`Builder::start`] starts a server. Only the first call in a process has an effect.
pub fn set_start(start: Start) {
    let _ = START.set(start);
}

pub(crate) fn start(builder: &Builder) -> Option<io::Result<Server>> {
    START.get()?(builder.clone())
}
