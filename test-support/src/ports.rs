//! Ports for servers that need their port before they start.
//!
//! A port that was free a moment ago may be taken when the server binds it. So ports come in blocks
//! below the range from which the kernel takes ports for port 0 and for outgoing connections. The
//! process that uses a block keeps its first port bound, which reserves the rest. The kernel
//! releases that port when the process ends, in any way.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io;
use std::net::{Ipv4Addr, TcpListener};

/// First port of the first block.
const FIRST: u16 = 20_000;
/// Ports in a block: the guard and four each for five servers.
pub(crate) const BLOCK: u16 = 21;
/// The number of blocks. The last one ends below 32768, the first port that Linux chooses for port
/// 0.
const BLOCKS: u16 = 608;

/// A block of ports that this process reserves until the value is dropped.
#[derive(Debug)]
pub(crate) struct Ports {
    base: u16,
    _guard: TcpListener,
}

impl Ports {
    /// Takes a block of which no port is in use.
    pub(crate) fn take() -> io::Result<Self> {
        // The start is random, so that test binaries that run at the same time do not try the same
        // blocks.
        let start = RandomState::new().hash_one(std::process::id()) % u64::from(BLOCKS);
        let start = u16::try_from(start).unwrap_or(0);
        for turn in 0..BLOCKS {
            let base = FIRST + ((start + turn) % BLOCKS) * BLOCK;
            let Ok(guard) = TcpListener::bind((Ipv4Addr::LOCALHOST, base)) else {
                continue;
            };
            // The wildcard address conflicts with every listener on the port, whatever its address.
            if (1..BLOCK).all(|i| TcpListener::bind((Ipv4Addr::UNSPECIFIED, base + i)).is_ok()) {
                return Ok(Self {
                    base,
                    _guard: guard,
                });
            }
        }
        Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            "every block of test ports is in use",
        ))
    }

    /// Returns the port at `index`, from 0.
    pub(crate) fn port(&self, index: u16) -> u16 {
        self.base + 1 + index
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_in_use_are_disjoint() {
        let taken: Vec<_> = (0..20).map(|_| Ports::take().expect("a block")).collect();
        let mut bases: Vec<_> = taken.iter().map(|p| p.base).collect();
        bases.sort_unstable();
        bases.dedup();
        assert_eq!(bases.len(), taken.len());
        assert!(taken.iter().all(|p| p.port(BLOCK - 2) < 32_768));
    }

    #[test]
    fn skips_block_with_foreign_listener() {
        let first = Ports::take().expect("a block");
        let foreign =
            TcpListener::bind((Ipv4Addr::LOCALHOST, first.port(3))).expect("its port is free");
        let base = first.base;
        drop(first);
        for _ in 0..5 {
            assert_ne!(Ports::take().expect("a block").base, base);
        }
        drop(foreign);
    }
}
