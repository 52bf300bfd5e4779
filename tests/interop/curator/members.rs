//! Curator's members and ours in one group.

use test_support::peers::CuratorPeer;
use test_support::{SOON, poll_until, within};
use zookeeper_recipes::{GroupMember, PersistentNodeState};

use crate::Outcome;
use crate::curator::java::steps;
use crate::scripted_peer::ScriptedPeer;

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
