//! Links between a client and the members break; the members are well.

use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use test_support::{Cut, Direction, Proxy, ZooKeeper};
use zookeeper_recipes::{Client, LostReason};

use crate::actors::{
    Fleet, Holder, Kind, Outcome, Rival, afterwards, hand_over, keeps, run, stay_until, told,
    told_first,
};
use crate::ensemble::{Ensemble, TICK};

const T: Duration = Duration::from_secs(10);

/// The connect string names one member, and the link to it falls silent.
pub(crate) fn silent(title: &str, kind: Kind, direction: Direction) -> Outcome {
    let ensemble = Ensemble::undisturbed()?;
    let servers = ensemble.servers();
    run(async {
        let holder = Holder::at(servers, 0, T).await?.holding(kind).await?;
        let rival = Rival::of(&holder, servers, &[1, 2]).await?;
        let losses = vec![holder.told()];
        let cut = Instant::now();
        holder.link(0).stall(direction);
        let granted = told_first(title, cut, &holder, losses, rival).await?;
        holder.link(0).resume();
        afterwards(holder, granted, servers).await
    })
}

/// The connect string names all members, and all links fall silent.
pub(crate) fn all_silent(title: &str) -> Outcome {
    let ensemble = Ensemble::undisturbed()?;
    let servers = ensemble.servers();
    run(async {
        let holder = Holder::anywhere(servers, 1, T).await?;
        let rival = Rival::of(&holder, servers, &[0, 1, 2]).await?;
        let losses = vec![holder.told()];
        let cut = Instant::now();
        holder.links().for_each(|link| link.stall(Direction::Both));
        let granted = told_first(title, cut, &holder, losses, rival).await?;
        holder.links().for_each(|link| link.resume());
        afterwards(holder, granted, servers).await
    })
}

/// The hold is shared, and work is done under it: every share is told in time, and the work is
/// dropped in time.
pub(crate) fn silent_with_shares_and_work(title: &str, direction: Direction) -> Outcome {
    let ensemble = Ensemble::undisturbed()?;
    let servers = ensemble.servers();
    run(async {
        let holder = Holder::at(servers, 2, T).await?;
        let share = holder.guard().reenter()?;
        assert_eq!((holder.guard().hold_count(), share.hold_count()), (2, 2));
        let rival = Rival::of(&holder, servers, &[0, 1]).await?;

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
        let losses = vec![holder.told(), told(&share), work];
        let cut = Instant::now();
        holder.link(2).stall(direction);
        let granted = told_first(title, cut, &holder, losses, rival).await?;
        assert!(at_work.upgrade().is_none(), "the work was dropped");
        assert_eq!(
            share.reenter().expect_err("lost").reason(),
            LostReason::LeaseExpired
        );
        drop(share);
        holder.link(2).resume();
        afterwards(holder, granted, servers).await
    })
}

/// Of three links the one in use falls silent, and who tries it again is refused: the client moves.
pub(crate) fn dead_member_of_three(title: &str) -> Outcome {
    let ensemble = Ensemble::undisturbed()?;
    let servers = ensemble.servers();
    run(async {
        let holder = Holder::anywhere(servers, 0, T).await?;
        let rival = Rival::of(&holder, servers, &[0, 1, 2]).await?;
        let cut = Instant::now();
        holder.link(0).refuse()?;
        holder.link(0).stall(Direction::Both);
        keeps(title, cut, &holder, TICK).await?;
        assert!(
            holder.members().iter().any(|member| *member != 0),
            "{title}: {:?}",
            holder.members()
        );
        holder.link(0).accept()?;
        holder.link(0).resume();
        hand_over(holder, rival, servers).await
    })
}

/// Of three links the one in use falls silent, and who tries it again meets silence too: the client
/// moves, if it does not try this member too often first, which is up to chance.
pub(crate) fn silent_member_of_three(title: &str) -> Outcome {
    let ensemble = Ensemble::undisturbed()?;
    let servers = ensemble.servers();
    run(async {
        let fleet = Fleet::anywhere(servers, 6, 1, T, &[0, 1, 2]).await?;
        let cut = Instant::now();
        fleet
            .holders()
            .for_each(|holder| holder.link(1).stall(Direction::Both));
        let settled = fleet.most_keep(title, cut, TICK).await?;
        settled.holders().for_each(|holder| holder.link(1).resume());
        settled.afterwards(servers).await
    })
}

/// No member can be reached for 3.2 s, at a session timeout of 6 s: the client is back in time,
/// with one address as with three.
pub(crate) fn outage(title: &str) -> Outcome {
    const LONGER: Duration = Duration::from_secs(6);
    let ensemble = Ensemble::undisturbed()?;
    let servers = ensemble.servers();
    run(async {
        let one = Holder::at(servers, 2, LONGER).await?;
        let three = Holder::anywhere(servers, 2, LONGER).await?;
        // There are four tenths of a second to spare.
        tokio::try_join!(away(title, servers, one), away(title, servers, three))?;
        Ok(())
    })
}

async fn away(title: &str, servers: &ZooKeeper, holder: Holder) -> Outcome {
    const AWAY: Duration = Duration::from_millis(3_200);
    let rival = Rival::of(&holder, servers, &[0, 1, 2]).await?;
    // The lock is believed for 4 s from the last proof on; between two beats it may be a second
    // old.
    holder.prove_now().await?;
    let cut = Instant::now();
    for link in holder.links() {
        link.refuse()?;
        link.cut(Cut::Reset);
    }
    let back = async {
        // The outage lasts as long as it lasts.
        stay_until(cut + AWAY).await;
        for link in holder.links() {
            link.accept()?;
        }
        Ok(())
    };
    tokio::try_join!(back, keeps(title, cut, &holder, TICK))?;
    hand_over(holder, rival, servers).await
}

/// The network forgets the one connection that there is, which is silent from then on, and the
/// `next` ones too: they look like connections, and nothing comes. After that it works, and the
/// lock is kept.
pub(crate) fn forgotten(title: &str, next: usize) -> Outcome {
    let ensemble = Ensemble::undisturbed()?;
    let servers = ensemble.servers();
    run(async {
        let holder = Holder::at(servers, 1, T).await?;
        let rival = Rival::of(&holder, servers, &[0, 1, 2]).await?;
        let cut = Instant::now();
        holder.link(1).mute(next);
        keeps(title, cut, &holder, TICK).await?;
        hand_over(holder, rival, servers).await
    })
}

/// The client meets a member that accepts the connection and says nothing: there is time for
/// another try, by the default timeouts.
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
