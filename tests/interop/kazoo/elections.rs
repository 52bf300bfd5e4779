//! An election of kazoo's `Election` and this crate's selector.

use test_support::peers::KazooPeer;
use zookeeper_recipes::{Dialect, LeaderSelector};

use crate::Outcome;
use crate::election::{Leading, joined, soon};
use crate::kazoo::python::steps;

/// kazoo's participant leads, then this crate's, then kazoo's again.
pub(crate) fn election_is_shared_with_kazoo(peer: &KazooPeer) -> Outcome {
    steps(peer, async |servers, kazoo, path, client| {
        let selector = LeaderSelector::builder(client, path)
            .id("rust")
            .dialect(Dialect::Kazoo)
            .build()?;
        kazoo.call("a", &format!("run election {path} python-1"), "leads")?;
        let Leading {
            begun,
            end,
            task: leading,
        } = Leading::start(&selector);
        joined(servers, path, 2).await?;
        let ids: Vec<_> = selector
            .participants()
            .await?
            .iter()
            .map(|one| one.id().to_owned())
            .collect();
        assert_eq!(ids, ["python-1", "rust"]);
        kazoo.call(
            "b",
            &format!("contenders election {path} python-1"),
            "python-1 rust",
        )?;
        assert!(!selector.has_leadership());

        kazoo.call("b", &format!("end election {path} python-1"), "ends")?;
        kazoo.expect_answer("a", "led")?;
        soon("leadership", begun).await??;
        assert_eq!(selector.leader().await?.ok_or("no leader")?.id(), "rust");
        kazoo.call("b", &format!("contenders election {path} python-1"), "rust")?;

        let _ = end.send(());
        soon("end of the work", leading).await???;
        kazoo.call("a", &format!("run election {path} python-1"), "leads")?;
        kazoo.expect_answer("a", "led")?;
        Ok(())
    })
}
