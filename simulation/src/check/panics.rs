//! Nothing panics in a simulated thread: neither a caller nor a task of the library, the client or
//! the server.

use std::cell::RefCell;
use std::panic;
use std::sync::Once;

thread_local! {
    static SEEN: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Keeps the panics of this thread from now on, instead of printing them.
pub fn watch() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let kept = SEEN.try_with(|seen| {
                seen.try_borrow_mut().is_ok_and(|mut seen| {
                    seen.as_mut()
                        .map(|seen| seen.push(format!("panic: {info}")))
                        .is_some()
                })
            });
            if !kept.unwrap_or(false) {
                before(info);
            }
        }));
    });
    SEEN.with(|seen| *seen.borrow_mut() = Some(Vec::new()));
}

/// Returns the panics so far.
pub fn seen() -> Vec<String> {
    SEEN.with(|seen| {
        seen.borrow_mut()
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_caught_panic() {
        watch();
        assert!(panic::catch_unwind(|| panic!("on purpose")).is_err());
        let seen = seen();
        assert!(
            matches!(&seen[..], [one] if one.contains("on purpose")),
            "{seen:?}"
        );
    }
}
