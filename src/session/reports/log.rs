//! The macros by which the library logs: like those of `tracing`, but reported by the
//! [journal](crate::session::reports::journal).
//!
//! A line calls the tracing subscriber, which is foreign code: it may block, or panic. The task
//! that logs may hold up a heartbeat, or be in the middle of work that no other task finishes. So a
//! line copies the values of its fields, and a thread that does nothing else reports it
//! (docs/protocol.md#told-apart). Without a subscriber of its level it is a comparison.
//!
//! No other file logs by the macros of `tracing`, but the journal and the
//! [observer](crate::session::reports::observer).

/// Takes the name and the target, if they are given, and then the fields one by one: the name of a
/// field, its copy, and how that is recorded.
macro_rules! line {
    ($level:ident [$($head:tt)*] [$({$field:ident $own:expr; $($told:tt)*})*] $text:literal $(,)?) => {
        if $crate::session::reports::journal::is_logged(::tracing::Level::$level) {
            $(let $field = $own;)*
            $crate::session::reports::journal::note_if_room(move || {
                ::tracing::event!($($head)* ::tracing::Level::$level, $($($told)*,)* $text);
            });
        }
    };
    ($level:ident [$($head:tt)*] [] $head_of:ident : $value:expr, $($rest:tt)*) => {
        $crate::session::reports::log::line!($level [$($head)* $head_of: $value,] [] $($rest)*)
    };
    ($level:ident $head:tt [$($done:tt)*] %$field:ident, $($rest:tt)*) => {
        $crate::session::reports::log::line!($level $head [$($done)* {$field $field.to_string(); %$field}] $($rest)*)
    };
    ($level:ident $head:tt [$($done:tt)*] ?$field:ident, $($rest:tt)*) => {
        $crate::session::reports::log::line!($level $head [$($done)* {$field format!("{:?}", $field); %$field}] $($rest)*)
    };
    ($level:ident $head:tt [$($done:tt)*] $field:ident = %$value:expr, $($rest:tt)*) => {
        $crate::session::reports::log::line!($level $head [$($done)* {$field $value.to_string(); %$field}] $($rest)*)
    };
    ($level:ident $head:tt [$($done:tt)*] $field:ident $(= $value:expr)?, $($rest:tt)*) => {
        $crate::session::reports::log::line!(
            $level $head
            [$($done)* {$field { $(let $field = $value;)? $field.to_owned() }; $field}]
            $($rest)*
        )
    };
}

macro_rules! debug_ {
    ($($line:tt)*) => { $crate::session::reports::log::line!(DEBUG [] [] $($line)*) };
}

macro_rules! info_ {
    ($($line:tt)*) => { $crate::session::reports::log::line!(INFO [] [] $($line)*) };
}

macro_rules! warn_ {
    ($($line:tt)*) => { $crate::session::reports::log::line!(WARN [] [] $($line)*) };
}

macro_rules! error_ {
    ($($line:tt)*) => { $crate::session::reports::log::line!(ERROR [] [] $($line)*) };
}

/// Has the recorder of metrics count something, by this function of
/// [`metrics`](crate::session::reports::metrics).
macro_rules! count {
    ($what:ident $(($value:expr))?) => {
        #[cfg(feature = "metrics")]
        $crate::session::reports::journal::note_if_room(move || {
            $crate::session::reports::metrics::$what($($value)?);
        });
    };
}

// Renamed, since `warn` is an attribute of the language.
pub(crate) use {count, debug_ as debug, error_ as error, info_ as info, line, warn_ as warn};
