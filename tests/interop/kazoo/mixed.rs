//! Locks with different queue orders must not meet on one path: this crate notices, kazoo does not.

use test_support::peers::KazooPeer;
use test_support::prelude::*;
use test_support::unique_path;

use crate::kazoo::python::steps;
use crate::{Outcome, connect, refused};

pub(crate) fn curators_dialect_among_kazoos_nodes(peer: &KazooPeer) -> Outcome {
    steps(peer, async |servers, kazoo, _, client| {
        // A client has one kind of recipe on a path.
        let other = connect(servers).await?;
        for (kind, name) in [
            ("lock", "__lock__"),
            ("read", "__rlock__"),
            ("write", "__lock__"),
        ] {
            let path = unique_path("mixed");
            let mutex = InterProcessMutex::new(client, &path)?;
            let fair = InterProcessFairLock::new(client, &path)?;
            let read_write = InterProcessReadWriteLock::new(&other, &path)?;
            kazoo.call("t", &format!("acquire {kind} {path}"), "holds")?;
            refused(client, mutex.acquire(SOON), name).await?;
            refused(client, mutex.lock(), name).await?;
            refused(client, fair.acquire(SOON), name).await?;
            refused(&other, read_write.read_lock().acquire(SOON), name).await?;
            refused(&other, read_write.write_lock().acquire(SOON), name).await?;
            kazoo.call("t", &format!("release {kind} {path}"), "released")?;
            // Once the nodes are gone, any recipe can use the path.
            mutex.lock().await?.release().await?;
        }
        Ok(other.close().await?)
    })
}

/// Kazoo's `Lock` and `WriteLock` nodes have the same names, so only kazoo's readers reveal the
/// wrong recipe.
pub(crate) fn mutex_among_readers(peer: &KazooPeer) -> Outcome {
    steps(peer, async |_, kazoo, path, client| {
        let mutex = InterProcessMutex::builder(client, path)
            .dialect(Dialect::Kazoo)
            .build()?;
        kazoo.call("t", &format!("acquire read {path}"), "holds")?;
        refused(client, mutex.acquire(SOON), "__rlock__").await?;
        kazoo.call("t", &format!("release read {path}"), "released")?;
        kazoo.call("t", &format!("acquire write {path}"), "holds")?;
        let busy = mutex.try_lock().await;
        assert!(
            matches!(busy, Err(TryLockError::WouldBlock { .. })),
            "{busy:?}"
        );
        kazoo.call("t", &format!("release write {path}"), "released")?;
        mutex.lock().await?.release().await?;
        Ok(())
    })
}
