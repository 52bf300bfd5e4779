//! Sessions: establishes them, watches the current one, renews its lease, and cleans up its orphans.

pub(crate) mod core;
pub(crate) mod setup;
pub(crate) mod supervisor;
pub(crate) mod write;

#[cfg(simulation)]
pub(crate) use simulated as background;

pub(crate) mod threads;

pub(crate) mod reports;

pub(crate) mod contents;

pub(crate) mod live;

pub(crate) mod request;

pub(crate) mod leftovers;

pub(crate) mod dial;
