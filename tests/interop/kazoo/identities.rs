//! The identities of holders, as kazoo and this crate show each other's.

use test_support::peers::KazooPeer;
use test_support::{SOON, shared_standalone, unique_path};
use zookeeper_recipes::{Client, Dialect, InterProcessMutex};

use crate::kazoo::python::scripted_peer;
use crate::{Outcome, block_on};

/// Each side shows the other side's data.
pub(crate) fn each_sees_the_other(peer: &KazooPeer) -> Outcome {
    let servers = shared_standalone()?;
    let mut kazoo = scripted_peer(peer, &servers)?;
    let path = unique_path("identities");
    block_on(async {
        let client = Client::builder()
            .name("stock")
            .connect(&servers.connect_string())
            .await?;
        let mutex = InterProcessMutex::builder(&client, &path)
            .dialect(Dialect::Kazoo)
            .build()?;
        let guard = mutex.acquire(SOON).await?;
        kazoo.send("a", &format!("contenders lock {path}"))?;
        let said = kazoo.receive("a")?;
        assert!(
            said.contains(&format!("/{}/stock since ", std::process::id())),
            "{said}"
        );
        guard.release().await?;

        kazoo.call("a", &format!("acquire lock {path}"), "holds")?;
        let holders = mutex.holders().await?;
        let [holder] = holders.as_slice() else {
            return Err(format!("{holders:?}").into());
        };
        // The data is what kazoo's lock was created with, and no part is taken for a host or a
        // time.
        assert_eq!(
            (holder.identity().text(), holder.identity().host()),
            ("", None)
        );
        assert!(!holder.is_mine());
        kazoo.call("a", &format!("release lock {path}"), "released")?;
        client.close().await?;
        Ok(())
    })
}
