//! The end of one who holds or waits wakes at most one other, as long as nothing breaks.

/// So many notifications of watches, and so many requests that may have deleted a node.
pub fn few(notifications: u64, deletions: u64) -> Result<(), String> {
    if notifications > deletions {
        return Err(format!("{deletions} deletions at most have sent {notifications} notifications"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deletion_that_wakes_two_is_a_violation() {
        few(3, 3).unwrap();
        few(4, 3).unwrap_err();
    }
}
