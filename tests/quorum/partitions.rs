//! The links between the members break, and those of the clients work.

use std::time::{Duration, Instant};

use test_support::Direction;
use test_support::within;

use crate::ensemble::{Ensemble, TICK};
use crate::holders::{
    Failure, Holder, HolderGroup, Outcome, Waiter, hand_over, keeps_lock, lock_again_and_end,
    notified_before_next_grant, plain_session, run,
};

const T: Duration = Duration::from_secs(10);
const GROUP: usize = 5;

/// A follower and its leader receive nothing from each other. For twenty seconds the follower
/// continues to answer reads, while the leader expires the sessions of its clients.
pub(crate) fn follower(title: &str) -> Outcome {
    let ensemble = Ensemble::linked()?;
    let (_turn, roles) = ensemble.turn()?;
    let [cut_off, other] = roles.followers;
    let link = ensemble.link(cut_off, roles.leader);
    let part = || {
        link.stall(Direction::Both);
        Ok(())
    };
    run(partition(
        title,
        &ensemble,
        cut_off,
        [roles.leader, other],
        part,
        StillAnswered::Reads,
    ))
}

/// The followers leave their leader, which does not notice, and elect another. For twenty seconds
/// the old leader continues to answer reads and even `sync`.
pub(crate) fn leader(title: &str) -> Outcome {
    let ensemble = Ensemble::linked()?;
    let (_turn, roles) = ensemble.turn()?;
    let part = || Ok(ensemble.abandon_leader(roles)?);
    run(partition(
        title,
        &ensemble,
        roles.leader,
        roles.followers,
        part,
        StillAnswered::SyncsAndReads,
    ))
}

/// The requests that the isolated member still answers after another contender was granted the
/// lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StillAnswered {
    Reads,
    SyncsAndReads,
}

/// A holder that knows only the isolated member is notified of the loss, although reads by that
/// member still succeed. A holder that can reach another member keeps its lock, and so do most
/// holders that try the isolated member again.
async fn partition(
    title: &str,
    ensemble: &Ensemble,
    cut_off: usize,
    well: [usize; 2],
    part: impl FnOnce() -> Outcome,
    still: StillAnswered,
) -> Outcome {
    let servers = ensemble.servers();
    let holder = Holder::with_one_member(servers, cut_off, T).await?;
    let waiter = Waiter::of(&holder, servers, &well).await?;
    let mover = Holder::with_all_members(servers, cut_off, T).await?;
    let movers_waiter = Waiter::of(&mover, servers, &well).await?;
    let group = HolderGroup::connect(servers, GROUP, cut_off, T, &well).await?;
    let witness = plain_session(&servers.address(cut_off).to_string()).await?;
    let losses = vec![holder.loss_notice()];

    mover.link(cut_off).refuse()?;
    let cut = Instant::now();
    part()?;
    let loss = async {
        let granted = notified_before_next_grant(title, cut, &holder, losses, waiter).await?;
        let node = holder.guard().node();
        if still == StillAnswered::SyncsAndReads {
            within("the old leader's answer to sync", witness.sync(&node)).await?;
        }
        let stat = within("the answer to a read", witness.check_stat(&node)).await?;
        assert!(
            stat.is_some(),
            "{title}: a client that only reads there sees the lock as held"
        );
        println!(
            "{title}: {still:?} answered {} ms after the cut, as if nothing were",
            cut.elapsed().as_millis()
        );
        Ok::<_, Failure>(granted)
    };
    let moves = keeps_lock(title, cut, &mover, TICK);
    let group = group.most_keep(title, cut, TICK);
    let (granted, (), group) = tokio::try_join!(loss, moves, group)?;
    assert!(
        mover.members().iter().any(|member| *member != cut_off),
        "{title}: {:?}",
        mover.members()
    );
    ensemble.heal()?;
    mover.link(cut_off).accept()?;
    lock_again_and_end(holder, granted, servers).await?;
    hand_over(mover, movers_waiter, servers).await?;
    group.lock_again_and_end(servers).await
}
