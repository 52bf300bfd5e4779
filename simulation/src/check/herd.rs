//! The departure of a holder or a waiter wakes at most one other, as long as nothing breaks.

/// Checks the number of notifications of watches against the number of created nodes, each of which
/// was deleted once at most.
pub fn few(notifications: u64, nodes: u64) -> Result<(), String> {
    if notifications > nodes {
        return Err(format!(
            "the ends of {nodes} nodes at most have sent {notifications} notifications"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_deletion_waking_two_waiters() {
        few(3, 3).unwrap();
        few(4, 3).unwrap_err();
    }
}
