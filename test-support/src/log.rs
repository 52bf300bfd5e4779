//! The log of this process, for tests that read it or block it.

use std::fmt::Debug;

use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, span};

/// Passes every `tracing` event of this process to `listener`, with the text of its fields.
///
/// # Errors
/// Returns an error if a subscriber was set before, because a process has only one.
pub fn listen_to_log(
    listener: fn(&Metadata<'_>, &str),
) -> Result<(), tracing::subscriber::SetGlobalDefaultError> {
    tracing::subscriber::set_global_default(Listener(listener))
}

struct Listener(fn(&Metadata<'_>, &str));

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, _: &Field, value: &dyn Debug) {
        self.0 += &format!("{value:?} ");
    }
}

impl tracing::Subscriber for Listener {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        (self.0)(event.metadata(), &text.0);
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}
