//! The macros by which the library logs: like those of `tracing`, but reported by the
//! [journal](crate::session::journal).
//!
//! A line calls the tracing subscriber, which is foreign code: it may block, or panic. The task that logs may hold up a
//! heartbeat, or be in the middle of work that no other task finishes. So a line copies the values of its
//! fields, and a thread that does nothing else reports it (docs/protocol.md#told-apart). Without a subscriber
//! of its level it is a comparison.
//!
//! No other file logs by the macros of `tracing`, but the journal and the
//! [observer](crate::session::observer).

/// Takes the name and the target, if they are given, and then the fields one by one: the name of a field, its copy,
/// and how that is recorded.
macro_rules! line {
    ($level:ident [$($head:tt)*] [$({$field:ident $own:expr; $($told:tt)*})*] $text:literal $(,)?) => {
        if $crate::session::journal::is_logged(::tracing::Level::$level) {
            $(let $field = $own;)*
            $crate::session::journal::note_if_room(move || {
                ::tracing::event!($($head)* ::tracing::Level::$level, $($($told)*,)* $text);
            });
        }
    };
    ($level:ident [$($head:tt)*] [] $head_of:ident : $value:expr, $($rest:tt)*) => {
        $crate::session::log::line!($level [$($head)* $head_of: $value,] [] $($rest)*)
    };
    ($level:ident $head:tt [$($done:tt)*] %$field:ident, $($rest:tt)*) => {
        $crate::session::log::line!($level $head [$($done)* {$field $field.to_string(); %$field}] $($rest)*)
    };
    ($level:ident $head:tt [$($done:tt)*] ?$field:ident, $($rest:tt)*) => {
        $crate::session::log::line!($level $head [$($done)* {$field format!("{:?}", $field); %$field}] $($rest)*)
    };
    ($level:ident $head:tt [$($done:tt)*] $field:ident = %$value:expr, $($rest:tt)*) => {
        $crate::session::log::line!($level $head [$($done)* {$field $value.to_string(); %$field}] $($rest)*)
    };
    ($level:ident $head:tt [$($done:tt)*] $field:ident $(= $value:expr)?, $($rest:tt)*) => {
        $crate::session::log::line!(
            $level $head
            [$($done)* {$field { $(let $field = $value;)? $field.to_owned() }; $field}]
            $($rest)*
        )
    };
}

macro_rules! debug_ {
    ($($line:tt)*) => { $crate::session::log::line!(DEBUG [] [] $($line)*) };
}

macro_rules! info_ {
    ($($line:tt)*) => { $crate::session::log::line!(INFO [] [] $($line)*) };
}

macro_rules! warn_ {
    ($($line:tt)*) => { $crate::session::log::line!(WARN [] [] $($line)*) };
}

macro_rules! error_ {
    ($($line:tt)*) => { $crate::session::log::line!(ERROR [] [] $($line)*) };
}

// Renamed, since `warn` is an attribute of the language.
pub(crate) use {debug_ as debug, error_ as error, info_ as info, line, warn_ as warn};
