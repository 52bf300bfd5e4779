//! When nothing is broken any more, everything ends: callers that are to stop, and calls on a
//! client or a path, which succeed.

use std::fmt::{Debug, Display};

use crate::world::variant;

/// Checks that no callers are left, although all had the time to end.
pub fn callers(left: usize) -> Result<(), String> {
    if left == 0 {
        Ok(())
    } else {
        Err(format!("{left} callers do not end"))
    }
}

/// Checks that a client was flushed, closed or drained; `None` means that it took too long.
pub fn confirmed<E: Debug>(
    client: u64,
    what: &str,
    outcome: Option<Result<(), E>>,
) -> Result<(), String> {
    match outcome {
        Some(Ok(())) => Ok(()),
        Some(Err(error)) => Err(format!("{client} is not {what}: {error:?}")),
        None => Err(format!("{client} is not {what} in time")),
    }
}

/// Checks the result of a close or a drain. A long link may lose its connection just then, and
/// again: the close then reports that no server has confirmed the end of the session, which comes
/// by itself (seed 321).
pub fn closed<E: Debug>(
    client: u64,
    what: &str,
    outcome: Option<Result<(), E>>,
    is_far: bool,
) -> Result<(), String> {
    match outcome {
        Some(Err(error)) if is_far && variant(&error) == "SessionNotClosed" => Ok(()),
        outcome => confirmed(client, what, outcome),
    }
}

/// Checks a client's use of something, which was repeated as long as it failed and there was time.
pub fn works<E: Display>(what: &str, client: u64, outcome: Result<(), E>) -> Result<(), String> {
    outcome.map_err(|error| format!("{what} does not work for {client}: {error}"))
}

/// Checks the release of a lock that was just granted.
pub fn released<E: Display>(path: &str, outcome: Result<(), E>) -> Result<(), String> {
    outcome.map_err(|error| format!("{path} is not released: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_call_that_never_ends() {
        callers(0).unwrap();
        callers(1).unwrap_err();
    }

    #[test]
    fn flags_refused_or_late_end() {
        confirmed::<&str>(1, "flushed", Some(Ok(()))).unwrap();
        confirmed(1, "flushed", Some(Err("no"))).unwrap_err();
        confirmed::<&str>(1, "flushed", None).unwrap_err();
    }

    #[test]
    fn flags_unconfirmed_end_of_session() {
        #[derive(Debug)]
        enum Why {
            SessionNotClosed,
            StillHeld,
        }
        closed::<Why>(1, "closed", Some(Ok(())), false).unwrap();
        closed(1, "closed", Some(Err(Why::SessionNotClosed)), true).unwrap();
        closed(1, "closed", Some(Err(Why::SessionNotClosed)), false).unwrap_err();
        closed(1, "drained", Some(Err(Why::StillHeld)), true).unwrap_err();
        closed::<Why>(1, "closed", None, true).unwrap_err();
    }

    #[test]
    fn flags_failure_without_a_fault() {
        works::<&str>("/a", 1, Ok(())).unwrap();
        works("/a", 1, Err("no")).unwrap_err();
        released::<&str>("/a", Ok(())).unwrap();
        released("/a", Err("lost")).unwrap_err();
    }
}
