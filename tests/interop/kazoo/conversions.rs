//! Upgrades with kazoo in the queue.

use test_support::peers::KazooPeer;
use zookeeper_recipes::{Dialect, InterProcessReadWriteLock};

use crate::Outcome;
use crate::kazoo::python::steps;
use crate::outside::watches_only;

/// The write node of a conversion says that it is one; to kazoo it is a writer of its number.
pub(crate) fn an_upgraded_reader_is_a_writer_to_kazoo(peer: &KazooPeer) -> Outcome {
    steps(peer, async |servers, kazoo, path, client| {
        let session = kazoo.session()?;
        let lock = InterProcessReadWriteLock::builder(client, path)
            .dialect(Dialect::Kazoo)
            .build()?;
        let reader = lock.read_lock().lock().await?;
        kazoo.tell("w", &format!("acquire write {path}"))?;
        watches_only(servers, &session, path, &reader.node())?;
        let writer = reader.try_upgrade().await?;
        // It has woken, looked who is ahead, and waits again.
        watches_only(servers, &session, path, &writer.node())?;
        assert!(!kazoo.has_said("w"), "the other writer came in");
        writer.release().await?;
        kazoo.answers("w", "holds")?;
        kazoo.ask("w", &format!("release write {path}"), "released")?;
        // And to its readers.
        let writer = lock.read_lock().lock().await?.try_upgrade().await?;
        kazoo.tell("r", &format!("acquire read {path}"))?;
        watches_only(servers, &session, path, &writer.node())?;
        assert!(!kazoo.has_said("r"), "a reader came in");
        writer.release().await?;
        kazoo.answers("r", "holds")?;
        kazoo.ask("r", &format!("release read {path}"), "released")?;
        Ok(())
    })
}
