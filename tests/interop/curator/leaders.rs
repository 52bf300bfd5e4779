//! An election of Curator's participants and those of this crate, step by step.

use test_support::peers::CuratorPeer;
use zookeeper_recipes::{LeaderLatch, LeaderSelector, Participant};

use crate::Outcome;
use crate::curator::java::steps;
use crate::election::{Leading, joined, soon};

/// Returns the participants as the Java program shows them.
fn shown(participants: &[Participant]) -> String {
    let ids = participants
        .iter()
        .map(|one| format!("{}{}", one.id(), if one.is_leader() { "*" } else { "" }));
    ids.collect::<Vec<_>>().join(" ")
}

/// A participant of Java, one of this crate and one of Java: each leads when its predecessor
/// leaves, and all show the same participants.
pub(crate) fn latches(peer: &CuratorPeer) -> Outcome {
    steps(peer, async |servers, curator, path, client| {
        curator.call("a", &format!("leader start latch {path} java-1"), "started")?;
        curator.call("a", "leader await java-1", "leads")?;
        let latch = LeaderLatch::builder(client, path).id("rust").build()?;
        joined(servers, path, 2).await?;
        curator.call("b", &format!("leader start latch {path} java-2"), "started")?;
        joined(servers, path, 3).await?;
        assert_eq!(shown(&latch.participants().await?), "java-1* rust java-2");
        curator.call("a", "leader participants java-1", "java-1* rust java-2")?;
        assert_eq!(latch.leader().await?.ok_or("no leader")?.id(), "java-1");
        assert!(!latch.has_leadership());

        curator.call("a", "leader close java-1", "closed")?;
        let leadership = soon("leadership", latch.leadership()).await??;
        curator.call("b", "leader leader java-2", "rust")?;
        curator.call("b", "leader has java-2", "follows")?;
        assert_eq!(shown(&latch.participants().await?), "rust* java-2");

        latch.close().await?;
        assert!(!leadership.is_held());
        curator.call("b", "leader await java-2", "leads")?;
        assert_eq!(latch.leader().await?.ok_or("no leader")?.id(), "java-2");
        curator.call("b", "leader close java-2", "closed")?;
        Ok(())
    })
}

/// The selectors of Java and of Rust take turns to lead in one election.
pub(crate) fn selectors(peer: &CuratorPeer) -> Outcome {
    steps(peer, async |servers, curator, path, client| {
        curator.call(
            "a",
            &format!("leader start selector {path} java-1"),
            "started",
        )?;
        curator.call("a", "leader await java-1", "leads")?;
        let selector = LeaderSelector::builder(client, path).id("rust").build()?;
        let Leading {
            begun,
            end,
            task: leading,
        } = Leading::start(&selector);
        joined(servers, path, 2).await?;
        curator.call(
            "b",
            &format!("leader start selector {path} java-2"),
            "started",
        )?;
        joined(servers, path, 3).await?;
        assert_eq!(
            shown(&selector.participants().await?),
            "java-1* rust java-2"
        );
        curator.call("a", "leader participants java-1", "java-1* rust java-2")?;
        assert!(!selector.has_leadership());

        curator.call("a", "leader close java-1", "closed")?;
        soon("leadership", begun).await??;
        assert!(selector.has_leadership());
        curator.call("b", "leader leader java-2", "rust")?;
        curator.call("b", "leader has java-2", "follows")?;

        let _ = end.send(());
        soon("end of the work", leading).await???;
        curator.call("b", "leader await java-2", "leads")?;
        assert_eq!(selector.leader().await?.ok_or("no leader")?.id(), "java-2");
        curator.call("b", "leader close java-2", "closed")?;
        joined(servers, path, 0).await?;
        Ok(())
    })
}
