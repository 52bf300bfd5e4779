//! No two permits of a semaphore that are held have one slot.

/// Checks the slots of granted permits against those of others.
pub fn unique(
    own: &[u32],
    others: impl IntoIterator<Item = (u64, Vec<u32>)>,
) -> Result<(), String> {
    for (other, slots) in others {
        if let Some(slot) = own.iter().find(|slot| slots.contains(slot)) {
            return Err(format!("has the slot {slot}, which {other} has"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_slot_of_two_permits() {
        unique(&[0, 2], [(1, vec![1]), (2, vec![3])]).unwrap();
        unique(&[0, 2], [(1, vec![1, 2])]).unwrap_err();
    }
}
