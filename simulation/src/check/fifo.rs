//! A fair lock serves the callers of one client in the order in which they asked, as long as
//! nothing breaks. (Among clients the order is that of their nodes, which `tokens` checks.)

use std::collections::BTreeMap;

/// The waiters at one path.
#[derive(Debug, Default)]
pub struct Fifo {
    next: u64,
    /// The last that asked before the first grant. Those may overtake each other while several
    /// processes make the directory (docs/protocol.md#arrival-order).
    early: Option<u64>,
    /// By their order: the client, and until when the caller waits.
    waiting: BTreeMap<u64, (u64, u64)>,
}

impl Fifo {
    /// Records that a caller of a client asks, and waits until `deadline`. Returns its ticket.
    pub fn asks(&mut self, client: u64, deadline: u64) -> u64 {
        self.next += 1;
        self.waiting.insert(self.next, (client, deadline));
        self.next
    }

    /// Records that a caller does not wait any more.
    pub fn ends(&mut self, ticket: u64) {
        self.waiting.remove(&ticket);
    }

    /// Records that a caller is granted the lock.
    pub fn granted(&mut self, ticket: u64, now: u64) -> Result<(), String> {
        let early = *self.early.get_or_insert(self.next);
        let Some((client, _)) = self.waiting.remove(&ticket) else {
            return Ok(());
        };
        let mut earlier = self
            .waiting
            .range(early + 1..)
            .take_while(|(other, _)| **other < ticket);
        match earlier.find(|(_, (other, deadline))| *other == client && now < *deadline) {
            Some((first, _)) => Err(format!(
                "the caller {ticket} of {client} is served before {first}"
            )),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_overtaken_waiter() {
        let mut fifo = Fifo::default();
        let [overtaken, early] = [(); 2].map(|()| fifo.asks(1, 100));
        fifo.granted(early, 1).unwrap();
        fifo.granted(overtaken, 1).unwrap();
        let [first, gone, late, other, last] = [(1, 100), (1, 100), (1, 5), (2, 100), (1, 100)]
            .map(|(client, end)| fifo.asks(client, end));
        fifo.granted(other, 10).unwrap();
        fifo.granted(first, 10).unwrap();
        fifo.ends(gone);
        fifo.granted(last, 10).unwrap();
        fifo.ends(late);
        let (one, other) = (fifo.asks(1, 100), fifo.asks(1, 100));
        fifo.granted(other, 10).unwrap_err();
        fifo.granted(one, 10).unwrap();
    }
}
