//! Leaders die, or stand still for a while.

use std::time::{Duration, Instant};

use test_support::within;
use zookeeper_recipes::{Client, ConnectionState, InterProcessMutex};

use crate::ensemble::{Ensemble, SHORT_TICK as TICK};
use crate::holders::{
    Holder, HolderGroup, Outcome, Waiter, hand_over, keeps_lock, lock_again_and_end,
    notified_before_next_grant, run, stay_until, until,
};

/// Half of the library's default session timeout: a lock that survives with half survives with the
/// default.
const HALF_T: Duration = Duration::from_secs(15);

/// Waits until a holder can write, and fails if it has lost its lock. The first write may be sent
/// before the client notices the fault, and then has an unknown outcome.
async fn writes_again(title: &str, holder: &Holder, since: Instant) {
    let writes = async {
        while holder.prove().await.is_err() {
            assert!(
                holder.guard().is_held(),
                "{title}: lost after {:?}",
                since.elapsed()
            );
        }
    };
    within("the holder to write again", writes).await;
}

/// The leader's process is killed: holders keep the lock, whether they were connected to it or not.
pub(crate) fn killed(title: &str) -> Outcome {
    let ensemble = Ensemble::impatient()?;
    let (_turn, roles) = ensemble.turn()?;
    let servers = ensemble.servers();
    run(async {
        let mut pairs = Vec::new();
        for member in [roles.leader, roles.followers[0]] {
            let holder = Holder::with_all_members(servers, member, HALF_T).await?;
            let waiter = Waiter::of(&holder, servers, &[0, 1, 2]).await?;
            pairs.push((member, holder, waiter));
        }
        let killed = Instant::now();
        servers.kill(roles.leader);
        servers.wait_leader()?;
        let elected = killed.elapsed();
        for (member, holder, _) in &pairs {
            writes_again(title, holder, killed).await;
            println!(
                "{title}: leader again after {} ms, the holder at {} writes after {} ms",
                elected.as_millis(),
                if *member == roles.leader {
                    "the old one"
                } else {
                    "a follower"
                },
                killed.elapsed().as_millis()
            );
        }
        for (_, holder, waiter) in pairs {
            holder.still_holds(title).await?;
            hand_over(holder, waiter, servers).await?;
        }
        Ok(ensemble.heal()?)
    })
}

/// All members are killed, and start again when the client has given up its session. The servers
/// still have the session: the client closes it at once, so its node does not block others until
/// the session would expire.
pub(crate) fn all_killed(title: &str) -> Outcome {
    const T: Duration = Duration::from_secs(20);
    let ensemble = Ensemble::exclusive()?;
    let (_turn, roles) = ensemble.turn()?;
    let servers = ensemble.servers();
    run(async {
        let holder = Holder::with_all_members(servers, roles.leader, T).await?;
        for member in 0..servers.len() {
            servers.kill(member);
        }
        until("the end of the session", async || {
            Ok(holder.state() == ConnectionState::Lost)
        })
        .await?;
        assert!(!holder.guard().is_held());
        ensemble.heal()?;
        let back = Instant::now();
        let next = Client::connect(&servers.connect_string()).await?;
        let next = InterProcessMutex::new(&next, holder.guard().path())?;
        let next = within("the next grant", next.lock()).await?;
        println!(
            "{title}: granted {} ms after the servers were back",
            back.elapsed().as_millis()
        );
        let expired = format!("Expiring session {:#x}", holder.session());
        let says_so = |member: &usize| servers.log(*member).contains(&expired);
        assert_eq!(
            (0..servers.len()).filter(says_so).count(),
            0,
            "{title}: expected the session to be closed, but the servers expired it"
        );
        Ok(next.release().await?)
    })
}

/// The leader's process stands still. By default the other members tolerate that for ten seconds.
/// With the library's default session timeout no lock is lost, whether its client is connected to
/// the leader or not.
pub(crate) fn hangs(title: &str) -> Outcome {
    const DEFAULT_T: Duration = Duration::from_secs(30);
    let ensemble = Ensemble::exclusive()?;
    let (_turn, roles) = ensemble.turn()?;
    let servers = ensemble.servers();
    run(async {
        let mut holders = Vec::new();
        for member in [roles.leader, roles.followers[0]] {
            holders.push(Holder::with_all_members(servers, member, DEFAULT_T).await?);
        }
        for holder in &holders {
            holder.prove_now().await?;
        }
        let stopped = Instant::now();
        servers.pause(roles.leader)?;
        for holder in &holders {
            writes_again(title, holder, stopped).await;
            println!(
                "{title}: a holder writes again after {} ms",
                stopped.elapsed().as_millis()
            );
            // The write that succeeded may have been sent long ago, so it proves nothing about the
            // present.
            holder.still_holds(title).await?;
        }
        Ok(ensemble.heal()?)
    })
}

/// The leader's process stands still for longer than the other members tolerate, and resumes. A
/// holder that knows only this member is notified of the loss; most holders that know the others
/// too keep their lock.
pub(crate) fn stopped(title: &str) -> Outcome {
    const SHORT_T: Duration = Duration::from_secs(5);
    let ensemble = Ensemble::impatient()?;
    let (_turn, roles) = ensemble.turn()?;
    let servers = ensemble.servers();
    run(async {
        let holder = Holder::with_one_member(servers, roles.leader, SHORT_T).await?;
        let waiter = Waiter::of(&holder, servers, &roles.followers).await?;
        let group =
            HolderGroup::connect(servers, 3, roles.leader, HALF_T, &roles.followers).await?;
        let losses = vec![holder.loss_notice()];
        let cut = Instant::now();
        servers.pause(roles.leader)?;
        let granted = notified_before_next_grant(title, cut, &holder, losses, waiter).await?;
        // The process resumes as the old leader, while its sessions have another leader.
        servers.resume(roles.leader)?;
        let group = group.most_keep(title, cut, TICK).await?;
        servers.wait_whole()?;
        lock_again_and_end(holder, granted, servers).await?;
        group.lock_again_and_end(servers).await
    })
}

/// The leader's process stands still for a shorter time: no write is answered in that time, no
/// leader is elected, and no holder loses a lock.
pub(crate) fn stopped_for_a_moment(title: &str) -> Outcome {
    const T: Duration = Duration::from_secs(10);
    const STILL: Duration = Duration::from_millis(1_200);
    let ensemble = Ensemble::impatient()?;
    let (_turn, roles) = ensemble.turn()?;
    let servers = ensemble.servers();
    let [first, second] = roles.followers;
    run(async {
        let (one, two, three) = tokio::try_join!(
            Holder::with_all_members(servers, roles.leader, T),
            Holder::with_all_members(servers, first, T),
            Holder::with_one_member(servers, second, T),
        )?;
        let cut = Instant::now();
        servers.pause(roles.leader)?;
        let goes_on = async {
            stay_until(cut + STILL).await;
            Ok(servers.resume(roles.leader)?)
        };
        tokio::try_join!(
            goes_on,
            keeps_lock(title, cut, &one, TICK),
            keeps_lock(title, cut, &two, TICK),
            keeps_lock(title, cut, &three, TICK),
        )?;
        assert_eq!(servers.leader(), Some(roles.leader));
        for holder in [one, two, three] {
            let waiter = Waiter::of(&holder, servers, &[0, 1, 2]).await?;
            hand_over(holder, waiter, servers).await?;
        }
        Ok(())
    })
}
