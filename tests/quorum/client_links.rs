//! The links between a client and the members break, while the members work.

use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use test_support::{Cut, Direction, Proxy, ZooKeeper};
use zookeeper_recipes::{Client, LostReason};

use crate::ensemble::{Ensemble, TICK};
use crate::holders::{
    Holder, HolderGroup, Kind, Outcome, Waiter, hand_over, keeps_lock, lock_again_and_end,
    loss_notice, notified_before_next_grant, run, stay_until,
};

const T: Duration = Duration::from_secs(10);

/// The connect string names one member, and the link to it falls silent.
pub(crate) fn silent(title: &str, kind: Kind, direction: Direction) -> Outcome {
    let ensemble = Ensemble::undisturbed()?;
    let servers = ensemble.servers();
    run(async {
        let holder = Holder::with_one_member(servers, 0, T)
            .await?
            .holding(kind)
            .await?;
        let waiter = Waiter::of(&holder, servers, &[1, 2]).await?;
        let losses = vec![holder.loss_notice()];
        let cut = Instant::now();
        holder.link(0).stall(direction);
        let granted = notified_before_next_grant(title, cut, &holder, losses, waiter).await?;
        holder.link(0).resume();
        lock_again_and_end(holder, granted, servers).await
    })
}

/// The connect string names all members, and all links fall silent.
pub(crate) fn all_silent(title: &str) -> Outcome {
    let ensemble = Ensemble::undisturbed()?;
    let servers = ensemble.servers();
    run(async {
        let holder = Holder::with_all_members(servers, 1, T).await?;
        let waiter = Waiter::of(&holder, servers, &[0, 1, 2]).await?;
        let losses = vec![holder.loss_notice()];
        let cut = Instant::now();
        holder.links().for_each(|link| link.stall(Direction::Both));
        let granted = notified_before_next_grant(title, cut, &holder, losses, waiter).await?;
        holder.links().for_each(|link| link.resume());
        lock_again_and_end(holder, granted, servers).await
    })
}

/// Every guard of a shared hold is notified in time, and work under the hold is dropped in time.
pub(crate) fn silent_with_shares_and_work(title: &str, direction: Direction) -> Outcome {
    let ensemble = Ensemble::undisturbed()?;
    let servers = ensemble.servers();
    run(async {
        let holder = Holder::with_one_member(servers, 2, T).await?;
        let share = holder.guard().reenter()?;
        assert_eq!((holder.guard().hold_count(), share.hold_count()), (2, 2));
        let waiter = Waiter::of(&holder, servers, &[0, 1]).await?;

        let working = Arc::new(());
        let at_work = Arc::downgrade(&working);
        let worker = holder.guard().reenter()?;
        let work = tokio::spawn(async move {
            let work = async move {
                let _working = working;
                pending::<()>().await;
            };
            let ended = worker
                .while_held(work)
                .await
                .expect_err("nothing else ends it");
            (ended, Instant::now())
        });
        let losses = vec![holder.loss_notice(), loss_notice(&share), work];
        let cut = Instant::now();
        holder.link(2).stall(direction);
        let granted = notified_before_next_grant(title, cut, &holder, losses, waiter).await?;
        assert!(at_work.upgrade().is_none(), "the work was dropped");
        assert_eq!(
            share.reenter().expect_err("lost").reason(),
            LostReason::LeaseExpired
        );
        drop(share);
        holder.link(2).resume();
        lock_again_and_end(holder, granted, servers).await
    })
}

/// Of three links the one in use falls silent, and new connections over it are refused: the client
/// connects to another member.
pub(crate) fn dead_member_of_three(title: &str) -> Outcome {
    let ensemble = Ensemble::undisturbed()?;
    let servers = ensemble.servers();
    run(async {
        let holder = Holder::with_all_members(servers, 0, T).await?;
        let waiter = Waiter::of(&holder, servers, &[0, 1, 2]).await?;
        let cut = Instant::now();
        holder.link(0).refuse()?;
        holder.link(0).stall(Direction::Both);
        keeps_lock(title, cut, &holder, TICK).await?;
        assert!(
            holder.members().iter().any(|member| *member != 0),
            "{title}: {:?}",
            holder.members()
        );
        holder.link(0).accept()?;
        holder.link(0).resume();
        hand_over(holder, waiter, servers).await
    })
}

/// Of three links the one in use falls silent, and new connections over it are silent too: the
/// client connects to another member in time, unless it happens to try this member too often first.
pub(crate) fn silent_member_of_three(title: &str) -> Outcome {
    let ensemble = Ensemble::undisturbed()?;
    let servers = ensemble.servers();
    run(async {
        let group = HolderGroup::connect(servers, 6, 1, T, &[0, 1, 2]).await?;
        let cut = Instant::now();
        group
            .holders()
            .for_each(|holder| holder.link(1).stall(Direction::Both));
        let outcome = group.most_keep(title, cut, TICK).await?;
        outcome.holders().for_each(|holder| holder.link(1).resume());
        outcome.lock_again_and_end(servers).await
    })
}

/// No member can be reached for 6.4 s, with a session timeout of 12 s: the client is back in time,
/// with one address as with three.
pub(crate) fn outage(title: &str) -> Outcome {
    const LONGER: Duration = Duration::from_secs(12);
    let ensemble = Ensemble::undisturbed()?;
    let servers = ensemble.servers();
    run(async {
        let one = Holder::with_one_member(servers, 2, LONGER).await?;
        let three = Holder::with_all_members(servers, 2, LONGER).await?;
        // The client has 1.6 s for its reconnect, which takes a third of a second on an idle machine.
        tokio::try_join!(away(title, servers, one), away(title, servers, three))?;
        Ok(())
    })
}

async fn away(title: &str, servers: &ZooKeeper, holder: Holder) -> Outcome {
    const AWAY: Duration = Duration::from_millis(6_400);
    let waiter = Waiter::of(&holder, servers, &[0, 1, 2]).await?;
    // The lease lasts 8 s from the last write, which may be two seconds old between two heartbeats.
    holder.prove_now().await?;
    let cut = Instant::now();
    for link in holder.links() {
        link.refuse()?;
        link.cut(Cut::Reset);
    }
    let back = async {
        // The sleep is the duration of the outage.
        stay_until(cut + AWAY).await;
        for link in holder.links() {
            link.accept()?;
        }
        Ok(())
    };
    tokio::try_join!(back, keeps_lock(title, cut, &holder, TICK))?;
    hand_over(holder, waiter, servers).await
}

/// The network forgets the only connection, which falls silent, and the `next` connections are
/// silent from their start. A later connection works, and the lock is kept.
pub(crate) fn forgotten(title: &str, next: usize) -> Outcome {
    let ensemble = Ensemble::undisturbed()?;
    let servers = ensemble.servers();
    run(async {
        let holder = Holder::with_one_member(servers, 1, T).await?;
        let waiter = Waiter::of(&holder, servers, &[0, 1, 2]).await?;
        let cut = Instant::now();
        holder.link(1).mute(next);
        keeps_lock(title, cut, &holder, TICK).await?;
        hand_over(holder, waiter, servers).await
    })
}

/// A member accepts the first connection and is silent: the default timeouts leave time for another
/// try.
pub(crate) fn silent_at_first(_: &str) -> Outcome {
    let ensemble = Ensemble::undisturbed()?;
    let servers = ensemble.servers();
    run(async {
        let link = Proxy::start(servers.address(0))?;
        link.mute(1);
        let client = Client::connect(&link.address().to_string()).await?;
        Ok(client.close().await?)
    })
}
