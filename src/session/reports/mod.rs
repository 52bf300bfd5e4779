//! The journal: the notes of the library's own threads, and the thread that reports these to
//! subscribers and recorders. Every other module may use the journal, and no code waits for a
//! report.
//!
//! Subscribers and recorders are code of others, which may block or panic. If the thread of a
//! session called them, they could delay a heartbeat or the notification of a loss
//! (docs/protocol.md#told-apart).
//!
//! ```text
//!   log::warn!, log::count!, CallReport       on any thread: queue a note, or count it as missed
//!        v
//!   journal: a bounded queue
//!        v
//!   the journal's thread --> tracing: lines of the log; the spans and events of calls (`observer`)
//!                        --> the recorder of metrics (`metrics`)
//! ```

pub(crate) mod journal;
pub(crate) mod log;
#[cfg(feature = "metrics")]
pub(crate) mod metrics;
pub(crate) mod observer;
