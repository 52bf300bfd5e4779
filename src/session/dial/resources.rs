//! The system resources that the first connection of a process needs, and the check that they are
//! available.
//!
//! Without a descriptor or a thread the client library's reactor panics when it is first used. The
//! reactor's thread may panic too, and is not started again: from then on no connection of the
//! process works, even if resources are free again (`docs/upstream/README.md`).
//!
//! The check is repeated before each try until the process has had a session: a try that failed
//! does not show that the reactor has started.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[cfg(not(simulation))]
use tokio::sync::oneshot;

#[cfg(not(simulation))]
use crate::session::threads::background;

/// The pause between two checks.
const PAUSE: Duration = Duration::from_millis(100);
/// Pairs of descriptors: the reactor has two or three, a connection one, and the lookup of a name a few.
#[cfg(all(unix, not(simulation)))]
const PAIRS: usize = 4;
/// The name of the thread by which the check shows that a thread can be started.
#[cfg(not(simulation))]
const NAME: &str = "zk-check";

/// Whether the process has had a connection: the reactor works, and is never replaced.
static CONNECTED: AtomicBool = AtomicBool::new(false);

/// Records that a connection of the process works.
pub(crate) fn connected() {
    CONNECTED.store(true, Ordering::Relaxed);
}

/// Waits until the process has the resources that its first connection needs. Returns the system's
/// error if it does not have them within `timeout`.
pub(crate) async fn available(timeout: Duration) -> io::Result<()> {
    let began = Instant::now();
    while !CONNECTED.load(Ordering::Relaxed) {
        let Err(error) = check().await else { break };
        let left = timeout.saturating_sub(began.elapsed());
        if left.is_zero() {
            return Err(error);
        }
        tokio::time::sleep(left.min(PAUSE)).await;
    }
    Ok(())
}

/// Allocates the resources that a connection needs, all at once, and frees them.
#[cfg(not(simulation))]
async fn check() -> io::Result<()> {
    // The descriptors are freed only after the thread has started, because the client library's
    // reactor needs both at the same time.
    let _descriptors = descriptors()?;
    let (sender, started) = oneshot::channel();
    background::run_blocking(NAME, move || {
        // The receiver is gone if the client is.
        let _ = sender.send(());
    })?;
    // An error is impossible, because the thread always sends.
    let _ = started.await;
    Ok(())
}

/// A simulated process lacks nothing.
#[cfg(simulation)]
async fn check() -> io::Result<()> {
    Ok(())
}

#[cfg(all(unix, not(simulation)))]
fn descriptors() -> io::Result<Vec<impl Sized>> {
    use std::os::unix::net::UnixDatagram;

    use rustix::io::Errno;

    let mut taken = Vec::with_capacity(PAIRS);
    for _ in 0..PAIRS {
        // A pair of sockets needs neither a file nor an address.
        match UnixDatagram::pair() {
            Ok(pair) => taken.push(pair),
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    return Err(error);
                }
                // A sandbox may forbid such sockets although it allows connections.
                _ => break,
            },
        }
    }
    Ok(taken)
}

#[cfg(all(not(unix), not(simulation)))]
#[expect(clippy::unnecessary_wraps, reason = "this system has no such limit")]
fn descriptors() -> io::Result<()> {
    Ok(())
}
