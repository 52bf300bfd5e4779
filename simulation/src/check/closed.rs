//! A client that is closed or drained holds no lock, and a drain that reports success has taken
//! none from its holder.

/// Checks the end of a client: how many of its guards are still held, and how many were held when a
/// drain had reported success.
pub fn ended(held: usize, in_hands: usize, is_drained: bool) -> Result<(), String> {
    if held > 0 {
        return Err(format!(
            "{held} locks are held behind the end of their client"
        ));
    }
    if is_drained && in_hands > 0 {
        return Err(format!(
            "a drain has ended well with {in_hands} guards in the hands of callers"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_hold_after_close_or_drain() {
        ended(0, 0, true).unwrap();
        ended(0, 1, false).unwrap();
        ended(1, 1, false).unwrap_err();
        ended(0, 1, true).unwrap_err();
    }
}
