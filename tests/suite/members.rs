//! Persistent nodes, and the members of a group.

use test_support::{SOON, within};
use zookeeper_recipes::{GroupMember, PersistentNode, PersistentNodeState};

use crate::harness::{Behaviour, Env, behaviours};

pub(crate) fn all() -> Vec<Behaviour> {
    behaviours![
        members_return_after_their_sessions.also_on_ensemble(),
        joins_and_departures_are_seen
            .with_faults()
            .also_on_ensemble(),
        name_passes_to_the_next_owner.also_on_ensemble(),
    ]
}

async fn join(env: &Env, id: &str) -> GroupMember {
    let member = GroupMember::new(&env.client().await, env.path("group"), id, id).unwrap();
    within("the join", member.wait_for_initial_create(SOON))
        .await
        .unwrap();
    member
}

// Shows: persistent-node
async fn members_return_after_their_sessions(env: &Env) {
    let (client, link) = env.linked(env.builder()).await;
    let node = PersistentNode::new(&client, env.path("node"), "a").unwrap();
    within("the creation", node.wait_for_initial_create(SOON))
        .await
        .unwrap();
    within("the write", node.set_data("b")).await.unwrap();
    let before = env.stat(node.path()).await.unwrap().ephemeral_owner;
    env.expire(&client, &link).await;
    let mut states = node.watch_state();
    loop {
        let present = states.wait_for(|state| *state == PersistentNodeState::Present);
        within("the node", present).await.unwrap();
        // The loss may not have been noticed yet.
        match env.stat(node.path()).await {
            Some(stat) if stat.ephemeral_owner != before => break,
            _ => assert!(within("a change", states.changed()).await.is_some()),
        }
    }
    let (data, _) = env.get_data(node.path()).await.unwrap();
    assert_eq!(data, b"b");
    within("the end", node.close()).await.unwrap();
    assert!(env.stat(&env.path("node")).await.is_none());
}

async fn joins_and_departures_are_seen(env: &Env) {
    let one = join(env, "1").await;
    let mut watch = one.watch();
    let mut others = Vec::new();
    for id in ["2", "3", "4"] {
        others.push(join(env, id).await);
    }
    // With broken connections a call may end with an error, and is repeated.
    let mut until = async |wanted: &[&str]| loop {
        match watch.changed().await {
            Ok(members) if members.keys().eq(wanted) => break,
            Ok(_) => {}
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    };
    within("all members", until(&["1", "2", "3", "4"])).await;
    for other in others {
        within("the end", other.close()).await.unwrap();
    }
    within("one member", until(&["1"])).await;
}

async fn name_passes_to_the_next_owner(env: &Env) {
    let first = join(env, "1").await;
    let second = GroupMember::new(&env.client().await, env.path("group"), "1", "second").unwrap();
    let mut states = second.watch_state();
    let conflict = states.wait_for(|state| *state == PersistentNodeState::Conflict);
    within("the conflict", conflict).await.unwrap();
    drop(first);
    within("the join", second.wait_for_initial_create(SOON))
        .await
        .unwrap();
    let (data, _) = env.get_data(&env.path("group/1")).await.unwrap();
    assert_eq!(data, b"second");
}
