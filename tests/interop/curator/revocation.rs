//! Revocation requests across languages.

use test_support::peers::CuratorPeer;
use test_support::{shared_standalone, unique_path, within};
use tokio_test::{assert_pending, task};
use zookeeper_recipes::{
    AnyGuard, InterProcessFairLock, InterProcessMutex, InterProcessReadWriteLock,
};

use crate::curator::java::{scripted_peer, steps};
use crate::outside::children;
use crate::{Outcome, block_on, connect};

pub(crate) fn curators_revoker_reaches_own_guards(peer: &CuratorPeer) -> Outcome {
    let servers = shared_standalone()?;
    let mut curator = scripted_peer(peer, &servers)?;
    let (mutex, fair, read_write) = (
        unique_path("revoked"),
        unique_path("revoked"),
        unique_path("revoked"),
    );
    block_on(async {
        let client = connect(&servers).await?;
        let read_write = InterProcessReadWriteLock::new(&client, &read_write)?;
        let guards: [AnyGuard; 4] = [
            InterProcessMutex::new(&client, &mutex)?
                .lock()
                .await?
                .into(),
            InterProcessFairLock::new(&client, &fair)?
                .lock()
                .await?
                .into(),
            read_write
                .write_lock()
                .lock()
                .await?
                .downgrade()
                .await?
                .into(),
            read_write.read_lock().lock().await?.into(),
        ];
        for guard in guards {
            let mut revoked = task::spawn(guard.revoked());
            assert_pending!(revoked.poll());
            curator.call("t", &format!("revoke {}", guard.node()), "asked")?;
            within("the request", revoked).await;
            // A listener that is added only now is notified too, and nothing else happens.
            within("the request, again", guard.revoked()).await;
            assert!(guard.is_held());
            guard.release().await?;
        }
        let writer = read_write.write_lock().lock().await?;
        curator.call("t", &format!("revoke {}", writer.node()), "asked")?;
        within("the request", writer.revoked()).await;
        writer.release().await?;
        Ok(client.close().await?)
    })
}

pub(crate) fn own_request_reaches_curators_listeners(peer: &CuratorPeer) -> Outcome {
    steps(peer, async |servers, curator, _, client| {
        for kind in ["mutex", "read", "write"] {
            let path = unique_path("revoked");
            curator.call("t", &format!("listen {kind} {path}"), "listens")?;
            curator.call("t", &format!("acquire {kind} {path}"), "holds")?;
            let node = children(servers, &path)
                .await?
                .pop_first()
                .ok_or("no node")?;
            assert!(!curator.has_answered("t-listener"), "before it was asked");
            client
                .attempt_revoke(&format!("{path}/{node}").parse()?)
                .await?;
            curator.expect_answer("t-listener", "asked back")?;
            curator.call("t", &format!("release {kind} {path}"), "released")?;
        }
        Ok(())
    })
}
