//! The macros by which the library logs: like those of `tracing`, but reported by the
//! [journal](crate::session::journal).
//!
//! A line calls the tracing subscriber, which is foreign code: it may block, or panic. The task that logs may hold up a
//! heartbeat, or be in the middle of work that no other task finishes. So a line copies the values of its
//! fields, and a thread that does nothing else reports it (docs/protocol.md#told-apart). Without a subscriber
//! of its level it is a comparison.
//!
//! No other file logs by the macros of `tracing`, but the [observer](crate::session::observer).

use std::fmt;

/// The value of a field, as the journal keeps it: texts are copied.
pub(crate) trait Owned {
    type Owned: tracing::Value + Send + 'static;

    fn owned(&self) -> Self::Owned;
}

macro_rules! owned {
    ($($kept:ty: $($value:ty),*;)*) => {$($(
        impl Owned for $value {
            type Owned = $kept;

            fn owned(&self) -> $kept {
                self.to_owned()
            }
        }
    )*)*};
}

owned! {
    String: str, String;
    u64: u64;
    usize: usize;
}

impl Owned for fmt::Arguments<'_> {
    type Owned = String;

    fn owned(&self) -> String {
        self.to_string()
    }
}

impl<T: Owned + ?Sized> Owned for &T {
    type Owned = T::Owned;

    fn owned(&self) -> T::Owned {
        (**self).owned()
    }
}

/// Takes the fields one by one: the name of a field, its value, and how that is recorded.
macro_rules! line {
    ($level:ident [$($name:tt)*] [$({$field:ident $own:expr; $($told:tt)*})*] $text:literal $(,)?) => {
        if $crate::session::journal::is_logged(::tracing::Level::$level) {
            $(let $field = $own;)*
            $crate::session::journal::line(move || {
                ::tracing::event!($($name)* ::tracing::Level::$level, $($($told)*,)* $text);
            });
        }
    };
    ($level:ident $name:tt [$($done:tt)*] %$field:ident, $($rest:tt)*) => {
        $crate::session::log::line!($level $name [$($done)* {$field $field.to_string(); %$field}] $($rest)*)
    };
    ($level:ident $name:tt [$($done:tt)*] ?$field:ident, $($rest:tt)*) => {
        $crate::session::log::line!($level $name [$($done)* {$field format!("{:?}", $field); %$field}] $($rest)*)
    };
    ($level:ident $name:tt [$($done:tt)*] $field:ident = %$value:expr, $($rest:tt)*) => {
        $crate::session::log::line!($level $name [$($done)* {$field $value.to_string(); %$field}] $($rest)*)
    };
    ($level:ident $name:tt [$($done:tt)*] $field:ident = $value:expr, $($rest:tt)*) => {
        $crate::session::log::line!(
            $level $name [$($done)* {$field $crate::session::log::Owned::owned(&$value); $field}] $($rest)*
        )
    };
    ($level:ident $name:tt [$($done:tt)*] $field:ident, $($rest:tt)*) => {
        $crate::session::log::line!(
            $level $name [$($done)* {$field $crate::session::log::Owned::owned(&$field); $field}] $($rest)*
        )
    };
}

macro_rules! debug_ {
    (name: $name:expr, $($line:tt)*) => { $crate::session::log::line!(DEBUG [name: $name,] [] $($line)*) };
    ($($line:tt)*) => { $crate::session::log::line!(DEBUG [] [] $($line)*) };
}

macro_rules! info_ {
    (name: $name:expr, $($line:tt)*) => { $crate::session::log::line!(INFO [name: $name,] [] $($line)*) };
    ($($line:tt)*) => { $crate::session::log::line!(INFO [] [] $($line)*) };
}

macro_rules! warn_ {
    (name: $name:expr, $($line:tt)*) => { $crate::session::log::line!(WARN [name: $name,] [] $($line)*) };
    ($($line:tt)*) => { $crate::session::log::line!(WARN [] [] $($line)*) };
}

macro_rules! error_ {
    ($($line:tt)*) => { $crate::session::log::line!(ERROR [] [] $($line)*) };
}

// Renamed, since `warn` is an attribute of the language.
pub(crate) use {debug_ as debug, error_ as error, info_ as info, line, warn_ as warn};
