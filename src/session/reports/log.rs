//! The macros by which the library logs. They are used like those of `tracing`, but do not call the
//! subscriber: the [journal](crate::session::reports::journal) reports the line later.
//!
//! A line of `tracing` calls the subscriber, which is third-party code and may block or panic. The
//! task that logs may hold up a heartbeat, or be in the middle of work that no other task finishes.
//! So a line copies the values of its fields, and the journal's thread reports it
//! (docs/protocol.md#told-apart). Without a subscriber for its level, a line costs one comparison.
//!
//! Apart from the journal and the [observer](crate::session::reports::observer), no file uses the
//! macros of `tracing`.

/// Reports a line of this level, if a subscriber may want it. The arguments are an optional `[name:
/// .., target: ..]`, the fields, and the text. A field is `%value` (its `Display`), `?value` (its
/// `Debug`), or `field` or `field = value`, whose owned form is copied. Each copy is made before
/// the note, under the name of its field.
macro_rules! line {
    (
        $level:ident, $([$($head:tt)*])?
        $($(% $shown:ident)? $(? $debugged:ident)? $($field:ident $(= $value:expr)?)?,)*
        $text:literal $(,)?
    ) => {
        if $crate::session::reports::journal::is_logged(::tracing::Level::$level) {
            $(
                // The values are copied on the thread that logs, because the note outlives their
                // borrows.
                $(let $shown = ::tracing::field::display($shown.to_string());)?
                $(let $debugged = ::tracing::field::display(format!("{:?}", $debugged));)?
                $(let $field = { $(let $field = $value;)? $field.to_owned() };)?
            )*
            $crate::session::reports::journal::note_if_room(move || {
                ::tracing::event!(
                    $($($head)*,)? ::tracing::Level::$level,
                    $($($shown)? $($debugged)? $($field)?,)* $text
                );
            });
        }
    };
}

macro_rules! debug_ {
    ($($line:tt)*) => { $crate::session::reports::log::line!(DEBUG, $($line)*) };
}

macro_rules! info_ {
    ($($line:tt)*) => { $crate::session::reports::log::line!(INFO, $($line)*) };
}

macro_rules! warn_ {
    ($($line:tt)*) => { $crate::session::reports::log::line!(WARN, $($line)*) };
}

macro_rules! error_ {
    ($($line:tt)*) => { $crate::session::reports::log::line!(ERROR, $($line)*) };
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

// The macros are renamed, because `warn` is also an attribute of the language.
pub(crate) use {count, debug_ as debug, error_ as error, info_ as info, line, warn_ as warn};
