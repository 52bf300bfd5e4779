//! Nodes that are there as long as their clients are: members of groups, and persistent nodes, of
//! which several want one name.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use simnet::Rng;
use tokio::time::{sleep, timeout};
use zookeeper_recipes::{Client, GroupMember, PersistentNode, PersistentNodeState};
use zookeeper_test_server::Server;

use super::polled;
use crate::check::members::{self, Members};
use crate::check::{persistent, recovery};
use crate::world::{Machine, World, path};

/// A member, and the data that it was given last.
struct Member {
    member: GroupMember,
    data: u64,
}

impl Member {
    fn new(world: &World, client: &Client, place: usize) -> Self {
        let (id, data) = (format!("m{}", world.number()), world.number());
        world.members(place, |members| members.wants(&id, data));
        let member = GroupMember::new(client, path(place), &id, data.to_string());
        Self {
            member: member.expect("the id is valid"),
            data,
        }
    }

    /// Sets data that are above those before. `None` if it took longer than `wait`.
    async fn set(&mut self, world: &World, place: usize, wait: Duration) -> Option<()> {
        let (id, data) = (self.member.id().to_owned(), world.number());
        self.data = data;
        world.members(place, |members| members.wants(&id, data));
        let set = timeout(wait, self.member.set_data(data.to_string()))
            .await
            .ok()?;
        if set.is_ok() {
            world.members(place, |members| members.has(&id, data));
        }
        world.note("data set", "data not set", set);
        Some(())
    }

    async fn look(&self, world: &World, place: usize) -> Option<BTreeMap<String, Vec<u8>>> {
        // A read is answered by one server, which may lag behind the others.
        let is_current = world.plan.members == 1;
        let before = if is_current {
            world.members(place, |members| members.clone())
        } else {
            Members::default()
        };
        match self.member.members().await {
            Ok(found) => {
                world.sometimes("members".to_owned());
                let outcome = world.members(place, |members| members.found(&before, &found));
                world.check(outcome.map_err(|text| format!("at {}: {text}", path(place))));
                Some(found)
            }
            Err(error) => {
                world.note_error("no members", Some(error));
                None
            }
        }
    }

    async fn close(self, world: &World, place: usize) {
        let id = self.member.id().to_owned();
        let closed = self.member.close().await;
        if closed.is_ok() {
            world.members(place, |members| members.left(&id));
        }
        world.note("left", "left without a word", closed);
    }
}

/// When nothing is broken any more, a node with a name of its own is made as soon as a lock that is
/// free is granted.
async fn made_in_time<E: Display, F: Future<Output = Result<(), E>>>(
    name: &str,
    world: &World,
    machine: &Machine,
    made: impl FnOnce(Duration) -> F,
) {
    let wait = world.longer();
    if wait.is_zero() || machine.is_leaving() {
        return;
    }
    let began = world.now();
    let outcome = made(wait).await;
    if machine.is_leaving() {
        return;
    }
    let waited = world.now() - began;
    world.took(waited);
    world.check(recovery::made(
        name,
        waited,
        world.plan.recovery_ms(),
        outcome,
    ));
}

/// Joins a group, does what a member does, and leaves.
pub async fn group_turn(
    client: &Client,
    world: &World,
    machine: &Machine,
    place: usize,
    rng: &mut Rng,
) {
    let mut member = Member::new(world, client, place);
    made_in_time(member.member.id(), world, machine, |wait| {
        member.member.wait_for_initial_create(wait)
    })
    .await;
    let mut watch = member.member.watch();
    for _ in 0..rng.range(1, 8) {
        let wait = Duration::from_millis(rng.range(1, world.plan.timeout_ms()));
        match rng.range(0, 6) {
            0 | 1 => drop(member.set(world, place, wait).await),
            2 => drop(member.look(world, place).await),
            3 => match timeout(wait, watch.changed()).await {
                Ok(changed) => world.note("members changed", "no members", changed),
                Err(_) => world.sometimes("members did not change".to_owned()),
            },
            4 => {
                let created = member.member.wait_for_initial_create(wait).await;
                world.note("joined", "not joined", created);
            }
            _ => sleep(wait).await,
        }
    }
    match rng.range(0, 4) {
        0 => drop(member),
        1 => drop(timeout(Duration::from_millis(1), member.close(world, place)).await),
        2 => drop(
            timeout(
                Duration::from_secs(60),
                polled(rng.range(1, 4), member.close(world, place)),
            )
            .await,
        ),
        _ => member.close(world, place).await,
    }
}

/// Makes a node whose name others may want, too, for a while.
pub async fn node_turn(
    client: &Client,
    world: &World,
    machine: &Machine,
    place: usize,
    rng: &mut Rng,
) {
    let name = if rng.one_in(2) {
        "one".to_owned()
    } else {
        format!("n{}", world.number())
    };
    let at = format!("{}/{name}", path(place));
    let mut builder = PersistentNode::builder(client, &at, "0");
    let is_protected = rng.one_in(4);
    if is_protected {
        builder = builder.protected();
    }
    let node = builder.build().expect("the path is valid");
    if name != "one" {
        made_in_time(&name, world, machine, |wait| {
            node.wait_for_initial_create(wait)
        })
        .await;
    }
    for _ in 0..rng.range(1, 6) {
        let wait = Duration::from_millis(rng.range(1, world.plan.timeout_ms()));
        match rng.range(0, 4) {
            0 => world.note(
                "created",
                "not created",
                node.wait_for_initial_create(wait).await,
            ),
            1 => {
                let data = world.number().to_string();
                match timeout(wait, node.set_data(data)).await {
                    Ok(set) => world.note("data set", "data not set", set),
                    Err(_) => world.sometimes("data set later".to_owned()),
                }
            }
            2 => {
                let mut states = node.watch_state();
                drop(
                    timeout(
                        wait,
                        states.wait_for(|state| *state == PersistentNodeState::Present),
                    )
                    .await,
                );
                world.sometimes(format!("node {:?}", node.state()));
            }
            _ => sleep(wait).await,
        }
    }
    match rng.range(0, 3) {
        0 => drop(node),
        1 => drop(timeout(Duration::from_millis(1), node.close()).await),
        _ => {
            let closed = node.close().await;
            // The name must be one that no other has.
            if closed.is_ok() && name != "one" && !is_protected {
                world.check(persistent::is_gone(&at, world.server.exists(&at)));
            }
            world.note("deleted", "deleted without a word", closed);
        }
    }
}

/// Checks that a member that joins is listed with its data, and is not after it has left.
pub async fn prove_group(
    client: &Client,
    world: &World,
    place: usize,
    patience: Duration,
) -> Result<(), String> {
    let mut member = Member::new(world, client, place);
    member
        .member
        .wait_for_initial_create(patience)
        .await
        .map_err(|error| error.to_string())?;
    member
        .set(world, place, patience)
        .await
        .ok_or("its data are not set in time")?;
    members::has_itself(
        member.member.id(),
        member.data,
        member.look(world, place).await.as_ref(),
    )?;
    member.close(world, place).await;
    Ok(())
}

/// Checks that a node exists with its data, and does not exist when it has been closed.
pub async fn prove_node(
    client: &Client,
    world: &World,
    server: &Server,
    place: usize,
    patience: Duration,
) -> Result<(), String> {
    let at = format!("{}/n{}", path(place), world.number());
    let node = PersistentNode::new(client, &at, "0").map_err(|error| error.to_string())?;
    node.wait_for_initial_create(patience)
        .await
        .map_err(|error| error.to_string())?;
    node.set_data("1")
        .await
        .map_err(|error| error.to_string())?;
    persistent::has(
        &at,
        b"1",
        server.node(&at).as_ref().map(|found| &found.data[..]),
    )?;
    node.close().await.map_err(|error| error.to_string())?;
    world.check(persistent::is_gone(&at, server.exists(&at)));
    Ok(())
}

/// A member of each client joins. Checks that the group has these members and no others, and the
/// rest when one has left.
pub async fn check_group(
    world: &World,
    machines: &[Arc<Machine>],
    place: usize,
    patience: Duration,
) {
    let mut joined: Vec<Member> = machines
        .iter()
        .map(|machine| Member::new(world, &machine.client, place))
        .collect();
    for member in &joined {
        let created = member.member.wait_for_initial_create(patience).await;
        world.check(created.map_err(|error| error.to_string()));
    }
    while let Some(first) = joined.first() {
        let live: BTreeSet<String> = joined
            .iter()
            .map(|member| member.member.id().to_owned())
            .collect();
        let end = world.now() + patience.as_millis() as u64;
        loop {
            let found = first.look(world, place).await.unwrap_or_default();
            match members::exactly(&live, &found.into_keys().collect()) {
                Ok(()) => break,
                // The nodes of dead processes are deleted with their sessions.
                Err(_) if world.now() < end => sleep(Duration::from_secs(1)).await,
                Err(text) => {
                    world.violation(&format!("at {}: {text}", path(place)));
                    break;
                }
            }
        }
        joined.remove(0).close(world, place).await;
    }
}
