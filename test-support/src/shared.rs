//! One server for all tests of a process that only need one.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::zookeeper::{Options, ServerError, ZooKeeper};

/// A server once started, or why it could not be: that is not tried again for every test.
static SHARED: Mutex<Option<Result<Arc<ZooKeeper>, String>>> = Mutex::new(None);

/// The standalone ZooKeeper of this process, started with the default options by whoever asks first.
/// For tests that keep to paths of their own ([`unique_path`]) and disturb nobody.
///
/// # Errors
/// Why it could not be started.
pub fn shared_standalone() -> Result<Arc<ZooKeeper>, ServerError> {
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    let started = shared.get_or_insert_with(|| {
        ZooKeeper::standalone(&Options::default())
            .map(Arc::new)
            .map_err(|e| e.to_string())
    });
    started.clone().map_err(ServerError::Failed)
}

/// Ends the server of [`shared_standalone`], if there is one. [`crate::Suite::run`] does so before the
/// process exits, which drops no statics.
pub fn stop_shared() {
    let shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(Ok(server)) = shared {
        // A test that still runs may hold it too.
        server.shutdown();
    }
}

/// A path that no other call in any process answers: `/<name>-<process>-<number>`.
#[must_use]
pub fn unique_path(name: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!(
        "/{name}-{}-{}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    )
}
