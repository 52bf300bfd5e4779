//! Downgrades with Curator in the queue.

use test_support::peers::CuratorPeer;
use test_support::{shared_standalone, unique_path};
use zookeeper_recipes::{InterProcessReadWriteLock, ReadToken, TryLockError};

use crate::curator::java::{scripted_peer, steps};
use crate::outside::{children, watches_only};
use crate::{Outcome, block_on};

/// CURATOR-621: before 5.5, the read node gets a number of its own, behind the waiting writers.
/// When the write node is deleted, these writers are first.
pub(crate) fn curators_own_downgrade(peer: &CuratorPeer) -> Outcome {
    let servers = shared_standalone()?;
    let mut curator = scripted_peer(peer, &servers)?;
    let path = unique_path("downgrade");
    curator.call("a", &format!("acquire write {path}"), "holds")?;
    let first = block_on(children(&servers, &path))?
        .pop_first()
        .ok_or("no node")?;
    curator.send("b", &format!("acquire write {path}"))?;
    watches_only(
        &servers,
        &curator.session()?,
        &path,
        &format!("{path}/{first}"),
    )?;
    curator.call("a", &format!("acquire read {path}"), "holds")?;
    let reader = block_on(children(&servers, &path))?
        .into_iter()
        .find(|node| node.contains("__READ__"))
        .ok_or("no reader")?;
    curator.call("a", &format!("release write {path}"), "released")?;
    if has_the_bug(peer) {
        curator.expect_answer("b", "holds")?;
        curator.call("a", &format!("holds read {path}"), "holds")?;
        curator.call("a", &format!("release read {path}"), "released")
    } else {
        watches_only(
            &servers,
            &curator.session()?,
            &path,
            &format!("{path}/{reader}"),
        )?;
        assert!(!curator.has_answered("b"), "the writer came in");
        curator.call("a", &format!("release read {path}"), "released")?;
        curator.expect_answer("b", "holds")
    }
}

/// Returns whether Curator is older than 5.5.
fn has_the_bug(peer: &CuratorPeer) -> bool {
    let Some(version) = &peer.version else {
        return false;
    };
    let mut numbers = version
        .split('.')
        .map_while(|number| number.parse::<u32>().ok());
    (numbers.next(), numbers.next()) < (Some(5), Some(5))
}

/// The library's own writer downgrades: one transaction replaces the write node with the read node.
pub(crate) fn own_downgrade(peer: &CuratorPeer) -> Outcome {
    steps(peer, async |servers, curator, path, client| {
        let lock = InterProcessReadWriteLock::new(client, path)?;
        let writer = lock.write_lock().lock().await?;
        curator.send("b", &format!("acquire write {path}"))?;
        watches_only(servers, &curator.session()?, path, &writer.node())?;
        let token = writer.fencing_token();
        let reader = writer.downgrade().await?;
        // The waiter has woken, listed the queue, and waits again.
        watches_only(servers, &curator.session()?, path, &reader.node())?;
        assert!(!curator.has_answered("b"), "the writer came in");
        assert!(reader.is_held());
        assert_eq!(
            reader.fencing_token(),
            ReadToken::from_parts(token.zxid(), token.counter())
        );
        // The queue is in order of arrival, so a reader is behind the writer, as this crate's
        // reader is.
        curator.call("c", &format!("try read {path}"), "may not")?;
        let ours = lock.read_lock().try_lock().await;
        assert!(
            matches!(ours, Err(TryLockError::WouldBlock { .. })),
            "{ours:?}"
        );
        reader.release().await?;
        curator.expect_answer("b", "holds")?;
        curator.call("b", &format!("release write {path}"), "released")?;
        Ok(())
    })
}
