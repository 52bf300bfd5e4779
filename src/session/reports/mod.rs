//! The journal: what the library's own threads note, and the thread that reports it to subscribers
//! and recorders. All that runs uses it. Nothing ever waits for a report.

pub(crate) mod journal;
pub(crate) mod log;
#[cfg(feature = "metrics")]
pub(crate) mod metrics;
pub(crate) mod observer;
