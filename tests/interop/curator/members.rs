//! Curator's members and ours in one group.

use test_support::peers::CuratorPeer;
use test_support::{SOON, poll_until, within};
use zookeeper_client as zk;
use zookeeper_recipes::{Client, GroupMember, PersistentNodeState};

use crate::curator::java::steps;
use crate::scripted_peer::ScriptedPeer;
use crate::{Failure, Outcome};

/// Waits until Curator's cache, which reports no events to a test, shows these members.
fn curator_sees(curator: &mut ScriptedPeer, members: &str) -> Outcome {
    poll_until(&format!("Curator to see {members}"), SOON, || {
        let seen = curator
            .send("t", "member list")
            .and_then(|()| curator.receive("t"));
        match seen {
            Ok(seen) => (seen == format!("sees {members}")).then_some(Ok(())),
            Err(error) => Some(Err(error)),
        }
    })?
}

pub(crate) fn peers_share_a_group(peer: &CuratorPeer) -> Outcome {
    steps(peer, async |_, curator, path, client| {
        let rust = GroupMember::new(client, path, "rust", "1")?;
        within("our join", rust.wait_for_initial_create(SOON)).await?;
        let mut watch = rust.watch();
        assert_eq!(within("the members", watch.changed()).await?.len(), 1);
        curator.call("t", &format!("member join {path} java 2"), "joins")?;
        let members = within("Curator's join", watch.changed()).await?;
        assert_eq!((members.len(), &*members["java"]), (2, &b"2"[..]));
        curator_sees(curator, "java=2 rust=1")?;
        within("our write", rust.set_data("3")).await?;
        curator_sees(curator, "java=2 rust=3")?;
        curator.call("t", "member set 4", "sets")?;
        // The id is the same, so this crate's member waits until Curator's leaves.
        let second = GroupMember::new(client, path, "java", "5")?;
        let mut states = second.watch_state();
        let conflict = states.wait_for(|state| *state == PersistentNodeState::Conflict);
        within("the conflict", conflict).await.ok_or("closed")?;
        curator.call("t", "member leave", "left")?;
        within("the join", second.wait_for_initial_create(SOON)).await?;
        assert_eq!(within("the members", rust.members()).await?["java"], b"5");
        within("our end", rust.close()).await?;
        within("our end", second.close()).await?;
        Ok(())
    })
}

/// Waits until a node is as described.
async fn until_node(
    client: &Client,
    path: &str,
    is_wanted: impl Fn(&zk::Stat) -> bool,
) -> Result<zk::Stat, Failure> {
    let looked = client.request(|zk| async move {
        loop {
            let (stat, watcher) = zk.check_and_watch_stat(path).await?;
            if let Some(stat) = stat.filter(&is_wanted) {
                return Ok::<_, zk::Error>(stat);
            }
            watcher.changed().await;
        }
    });
    Ok(within("the node", looked).await??)
}

/// Curator's member takes a node with its id for its own, whoever owns that node.
pub(crate) fn curator_takes_other_owners_node(peer: &CuratorPeer) -> Outcome {
    steps(peer, async |_, curator, path, client| {
        let rust = GroupMember::new(client, path, "web-1", "1")?;
        within("our join", rust.wait_for_initial_create(SOON)).await?;
        let node = format!("{path}/web-1");
        let first = until_node(client, &node, |_| true).await?;
        curator.call("t", &format!("member join {path} web-1 2"), "joins")?;
        let stat = until_node(client, &node, |stat| stat.version > 0).await?;
        assert_eq!(stat.ephemeral_owner, first.ephemeral_owner);
        assert_eq!(within("the members", rust.members()).await?["web-1"], b"2");
        // Curator's member deletes the node, and ours creates it again.
        curator.call("t", "member leave", "left")?;
        until_node(client, &node, |stat| stat.czxid != first.czxid).await?;
        within("our end", rust.close()).await?;
        Ok(())
    })
}
