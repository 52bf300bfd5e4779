//! The journal: the notes of the library's own threads, and the thread that reports these to
//! subscribers and recorders. Every other module may use the journal, and no code waits for a
//! report.

pub(crate) mod journal;
pub(crate) mod log;
#[cfg(feature = "metrics")]
pub(crate) mod metrics;
pub(crate) mod observer;
