//! Properties of kazoo's readers that users must know.

use test_support::peers::KazooPeer;
use tokio_test::{assert_pending, task};
use zookeeper_recipes::{Dialect, InterProcessReadWriteLock};

use crate::kazoo::python::steps;
use crate::outside::watches_only;
use crate::{Outcome, connect};

/// python-zk/kazoo#649: until 2.9 a reader waits for the last writer in the queue, even one behind
/// it that waits for the reader. Only a timeout ends that deadlock. This crate's readers wait for
/// no contender behind them.
pub(crate) fn kazoos_readers_await_later_writers(peer: &KazooPeer) -> Outcome {
    steps(peer, async |servers, kazoo, path, client| {
        let session = kazoo.session()?;
        let other = connect(servers).await?;
        let [lock, behind] = [client, &other].map(|client| {
            InterProcessReadWriteLock::builder(client, path)
                .dialect(Dialect::Kazoo)
                .build()
        });
        let (lock, behind) = (lock?, behind?);
        let first = lock.write_lock().lock().await?;
        kazoo.send("t", &format!("acquire read {path}"))?;
        watches_only(servers, &session, path, &first.node())?;
        let nodes = lock.participants().await?;
        let reader = nodes.last().ok_or("no reader")?;
        let mut second = task::spawn(behind.write_lock().lock());
        assert_pending!(second.poll());
        let us = format!("{:#x}", other.session_id().ok_or("no session")?);
        watches_only(servers, &us, path, reader)?;
        let writer = lock.participants().await?.pop().ok_or("no writer")?;
        first.release().await?;
        if has_the_bug(peer) {
            watches_only(servers, &session, path, &writer)?;
            assert!(!kazoo.has_answered("t"), "the reader came in");
            // The longest waiter gives up.
            drop(second);
            kazoo.expect_answer("t", "holds")?;
            kazoo.call("t", &format!("release read {path}"), "released")?;
        } else {
            kazoo.expect_answer("t", "holds")?;
            kazoo.call("t", &format!("release read {path}"), "released")?;
            second.await?.release().await?;
        }
        Ok(other.close().await?)
    })
}

/// Returns whether kazoo is older than 2.9.
fn has_the_bug(peer: &KazooPeer) -> bool {
    let mut numbers = peer
        .version
        .split('.')
        .map_while(|number| number.parse::<u32>().ok());
    (numbers.next(), numbers.next()) < (Some(2), Some(9))
}
