//! The reports of the library: lines of the log, spans and events of calls, and metrics. Each is a
//! note, which waits in the journal until the journal's thread passes it to the subscriber or the
//! recorder. Every other module may report, and no code waits for a report.
//!
//! Subscribers and recorders are code of others, which may block or panic. If the thread of a
//! session called them, they could delay a heartbeat or the notification of a loss
//! (docs/protocol.md#told-apart).
//!
//! ```text
//!   log::warn!, log::count!, CallReport       on any thread: queue a note, or count it as missed
//!        v
//!   journal: a queue, closed to further calls and lines while it is full
//!        v
//!   the journal's thread --> tracing: lines of the log; the spans and events of calls (`observer`)
//!                        --> the recorder of metrics (`metrics`)
//! ```

pub(crate) mod journal;
pub(crate) mod log;
#[cfg(feature = "metrics")]
pub(crate) mod metrics;
pub(crate) mod observer;
