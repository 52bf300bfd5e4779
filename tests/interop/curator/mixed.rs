//! Locks with different queue orders must not meet on one path: this crate notices, Curator does
//! not.

use test_support::peers::CuratorPeer;
use test_support::{SOON, unique_path};
use zookeeper_recipes::{
    Dialect, InterProcessFairLock, InterProcessMutex, InterProcessReadWriteLock,
};

use crate::curator::java::steps;
use crate::{Outcome, connect, refused};

pub(crate) fn mutex_among_read_write_nodes(peer: &CuratorPeer) -> Outcome {
    steps(peer, async |_, curator, path, client| {
        let mutex = InterProcessMutex::new(client, path)?;
        for (kind, name) in [("read", "__READ__"), ("write", "__WRIT__")] {
            curator.call("t", &format!("acquire {kind} {path}"), "holds")?;
            refused(client, mutex.acquire(SOON), name).await?;
            refused(client, mutex.lock(), name).await?;
            curator.call("t", &format!("release {kind} {path}"), "released")?;
        }
        // Once the nodes are gone, a mutex can use the path again.
        mutex.lock().await?.release().await?;
        Ok(())
    })
}

pub(crate) fn read_write_lock_among_mutex_nodes(peer: &CuratorPeer) -> Outcome {
    steps(peer, async |_, curator, path, client| {
        let lock = InterProcessReadWriteLock::new(client, path)?;
        curator.call("t", &format!("acquire mutex {path}"), "holds")?;
        refused(client, lock.read_lock().acquire(SOON), "lock-").await?;
        refused(client, lock.write_lock().acquire(SOON), "lock-").await?;
        refused(client, lock.read_lock().lock(), "lock-").await?;
        curator.call("t", &format!("release mutex {path}"), "released")?;
        lock.read_lock().lock().await?.release().await?;
        lock.write_lock().lock().await?.release().await?;
        Ok(())
    })
}

pub(crate) fn kazoos_dialect_among_curators_nodes(peer: &CuratorPeer) -> Outcome {
    steps(peer, async |servers, curator, _, client| {
        // A client has one kind of recipe on a path.
        let other = connect(servers).await?;
        for (kind, name) in [
            ("mutex", "lock-"),
            ("read", "__READ__"),
            ("write", "__WRIT__"),
        ] {
            let path = unique_path("mixed");
            curator.call("t", &format!("acquire {kind} {path}"), "holds")?;
            let mutex = InterProcessMutex::builder(client, &path)
                .dialect(Dialect::Kazoo)
                .build()?;
            refused(client, mutex.acquire(SOON), name).await?;
            let fair = InterProcessFairLock::builder(client, &path)
                .dialect(Dialect::Kazoo)
                .build()?;
            refused(client, fair.acquire(SOON), name).await?;
            let lock = InterProcessReadWriteLock::builder(&other, &path)
                .dialect(Dialect::Kazoo)
                .build()?;
            refused(&other, lock.read_lock().acquire(SOON), name).await?;
            refused(&other, lock.write_lock().acquire(SOON), name).await?;
            curator.call("t", &format!("release {kind} {path}"), "released")?;
        }
        Ok(other.close().await?)
    })
}
