//! A holder that queries its lock finds itself.

/// The answers to a holder's queries, about its own client.
#[derive(Debug)]
pub struct HolderView {
    /// Whether holders are in the queue, as those of all but semaphores.
    pub is_queued: bool,
    pub queue: Vec<String>,
    pub holders: Vec<String>,
    /// Whether it is locked, by this process, with a queue that has a node.
    pub is_locked: bool,
}

/// Checks the view that a holder with these nodes has of its lock, which it still holds.
pub fn by_holder(look: &HolderView, own: &[String]) -> Result<(), String> {
    for node in own {
        let is_listed = !look.is_queued || look.queue.contains(node);
        if !is_listed || !look.holders.contains(node) || !look.is_locked {
            return Err(format!("does not find its node {node}: {look:?}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_holder_missing_from_look() {
        let own = ["/a".to_owned()];
        let look = |queue: bool, holders: bool, is_locked| HolderView {
            is_queued: true,
            queue: own.iter().filter(|_| queue).cloned().collect(),
            holders: own.iter().filter(|_| holders).cloned().collect(),
            is_locked,
        };
        by_holder(&look(true, true, true), &own).unwrap();
        by_holder(&look(false, true, true), &own).unwrap_err();
        by_holder(&look(true, false, true), &own).unwrap_err();
        by_holder(&look(true, true, false), &own).unwrap_err();
        by_holder(
            &HolderView {
                is_queued: false,
                ..look(false, true, true)
            },
            &own,
        )
        .unwrap();
    }
}
