//! The macros by which the library logs: those of `tracing`, with the panics of the subscriber contained.
//!
//! A line calls the tracing subscriber, which is foreign code and may panic. The task that logs may be in the
//! middle of what no other task finishes: a create that was sent, a session that is being replaced. So a panic
//! costs the line and nothing else (docs/protocol.md#contained-lines). The fields of a line are formatted within it too,
//! and only if the subscriber wants the line.
//!
//! No other file logs by the macros of `tracing`, but the [observer](crate::session::observer), which contains
//! spans in the same way.

macro_rules! contained {
    ($level:ident, $($line:tt)*) => {
        $crate::session::waker::contain_panic(|| ::tracing::$level!($($line)*))
    };
}

macro_rules! debug_ {
    ($($line:tt)*) => { $crate::session::log::contained!(debug, $($line)*) };
}

macro_rules! info_ {
    ($($line:tt)*) => { $crate::session::log::contained!(info, $($line)*) };
}

macro_rules! warn_ {
    ($($line:tt)*) => { $crate::session::log::contained!(warn, $($line)*) };
}

macro_rules! error_ {
    ($($line:tt)*) => { $crate::session::log::contained!(error, $($line)*) };
}

// Renamed, since `warn` is an attribute of the language.
pub(crate) use {contained, debug_ as debug, error_ as error, info_ as info, warn_ as warn};
