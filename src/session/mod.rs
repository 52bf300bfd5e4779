//! Sessions: establishes them, watches the current one, renews its lease, and cleans up its
//! orphans.

pub(crate) mod contents;
pub(crate) mod core;
pub(crate) mod dial;
pub(crate) mod leftovers;
pub(crate) mod live;
pub(crate) mod reports;
pub(crate) mod request;
pub(crate) mod setup;
pub(crate) mod supervisor;
pub(crate) mod tasks;
pub(crate) mod threads;
pub(crate) mod write;
