//! Servers that the tests of a process share, if they need no separate server.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::proxy::Proxy;
use crate::zookeeper::{Options, ServerError, ZooKeeper};

/// Servers that were started, or the reason why they could not be, so that not every test tries
/// again.
type Shared = Mutex<Option<Result<Arc<ZooKeeper>, String>>>;

static STANDALONE: Shared = Mutex::new(None);
static ENSEMBLE: Shared = Mutex::new(None);

/// Returns the standalone ZooKeeper of this process, started with the default options by the first
/// call. Use it for tests that use only [unique paths](unique_path) and do not disturb other tests.
///
/// # Errors
/// Returns an error with the reason if the server could not be started.
pub fn shared_standalone() -> Result<Arc<ZooKeeper>, ServerError> {
    started(&STANDALONE, || ZooKeeper::ensemble(1, &Options::default()))
}

/// The minimum lag of the first member of [`shared_ensemble`].
const LAG: Duration = Duration::from_millis(20);

/// Returns the three-member ensemble of this process, like [`shared_standalone`]. One member
/// receives the others' messages late, unless it leads, so that a test that relies on a read by
/// that member fails on most machines, and not only where the disk of a member is slow.
///
/// # Errors
/// Returns an error if the ensemble could not be started.
#[expect(
    clippy::expect_used,
    reason = "a test without ports fails by panicking"
)]
pub fn shared_ensemble() -> Result<Arc<ZooKeeper>, ServerError> {
    started(&ENSEMBLE, || {
        let links = Mutex::new(Vec::new());
        let options = Options::default().quorum_addr(move |viewer, _, real| {
            if viewer != 0 {
                return real;
            }
            let link = Proxy::of_quorum(real).expect("a port");
            link.delay(LAG);
            let address = link.address();
            links
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(link);
            address
        });
        ZooKeeper::ensemble(3, &options)
    })
}

fn started(
    shared: &Shared,
    start: impl FnOnce() -> Result<ZooKeeper, ServerError>,
) -> Result<Arc<ZooKeeper>, ServerError> {
    let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
    let started = shared.get_or_insert_with(|| start().map(Arc::new).map_err(|e| e.to_string()));
    started.clone().map_err(ServerError::Failed)
}

/// Ends the servers of [`shared_standalone`] and [`shared_ensemble`], if there are any.
/// [`crate::Suite::run`] does so before the process exits, which drops no statics.
pub fn stop_shared() {
    for shared in [&STANDALONE, &ENSEMBLE] {
        let servers = shared.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Ok(servers)) = servers {
            // A test that still runs may hold them too.
            servers.shutdown();
        }
    }
}

/// Returns a path that no other call in any process returns: `/<name>-<process>-<number>`.
#[must_use]
pub fn unique_path(name: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!(
        "/{name}-{}-{}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    )
}
