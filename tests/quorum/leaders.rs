//! Leaders die, or stop for a while.

use std::time::{Duration, Instant};

use test_support::within;
use zookeeper_recipes::{Client, ConnectionState, InterProcessMutex};

use crate::actors::{
    Fleet, Holder, Outcome, Rival, afterwards, hand_over, keeps, run, stay_until, told_first, until,
};
use crate::ensemble::{Ensemble, SHORT_TICK as TICK};

/// Half of the library's default: what is kept with this is kept by default.
const HALF_T: Duration = Duration::from_secs(15);

/// Waits until a holder can write, and fails if it has lost its lock. The first write may go out
/// before the client has noticed: then it is not known whether it was done.
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

/// The leader's process is killed: a holder that was connected to it and one that was not keep the
/// lock.
pub(crate) fn killed(title: &str) -> Outcome {
    let ensemble = Ensemble::impatient()?;
    let (_turn, roles) = ensemble.turn()?;
    let servers = ensemble.servers();
    run(async {
        let mut crews = Vec::new();
        for member in [roles.leader, roles.followers[0]] {
            let holder = Holder::anywhere(servers, member, HALF_T).await?;
            let rival = Rival::of(&holder, servers, &[0, 1, 2]).await?;
            crews.push((member, holder, rival));
        }
        let killed = Instant::now();
        servers.kill(roles.leader);
        servers.wait_leader()?;
        let elected = killed.elapsed();
        for (member, holder, _) in &crews {
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
        for (_, holder, rival) in crews {
            holder.still_holds(title).await?;
            hand_over(holder, rival, servers).await?;
        }
        Ok(ensemble.heal()?)
    })
}

/// All members are killed, and start again when the client has given its session up. They know it
/// still: the client has it end at once, and its node keeps no one out until they expire it.
pub(crate) fn all_killed(title: &str) -> Outcome {
    const T: Duration = Duration::from_secs(20);
    let ensemble = Ensemble::of_its_own()?;
    let (_turn, roles) = ensemble.turn()?;
    let servers = ensemble.servers();
    run(async {
        let holder = Holder::anywhere(servers, roles.leader, T).await?;
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
            "{title}: it was waited for"
        );
        Ok(next.release().await?)
    })
}

/// The leader's process stands still. With the servers' own defaults the others put up with that
/// for ten seconds; with the library's own default no lock is lost, connected to the leader or not.
pub(crate) fn hangs(title: &str) -> Outcome {
    const DEFAULT_T: Duration = Duration::from_secs(30);
    let ensemble = Ensemble::of_its_own()?;
    let (_turn, roles) = ensemble.turn()?;
    let servers = ensemble.servers();
    run(async {
        let mut holders = Vec::new();
        for member in [roles.leader, roles.followers[0]] {
            holders.push(Holder::anywhere(servers, member, DEFAULT_T).await?);
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
            // That one may have been sent long ago.
            holder.still_holds(title).await?;
        }
        Ok(ensemble.heal()?)
    })
}

/// The leader's process stands still for longer than the others put up with, and goes on. A holder
/// that knows only this one is told; most that know the others too keep their lock.
pub(crate) fn stopped(title: &str) -> Outcome {
    const SHORT_T: Duration = Duration::from_secs(5);
    let ensemble = Ensemble::impatient()?;
    let (_turn, roles) = ensemble.turn()?;
    let servers = ensemble.servers();
    run(async {
        let holder = Holder::at(servers, roles.leader, SHORT_T).await?;
        let rival = Rival::of(&holder, servers, &roles.followers).await?;
        let fleet = Fleet::anywhere(servers, 3, roles.leader, HALF_T, &roles.followers).await?;
        let losses = vec![holder.told()];
        let cut = Instant::now();
        servers.pause(roles.leader)?;
        let granted = told_first(title, cut, &holder, losses, rival).await?;
        // It goes on as the leader that it was, in front of sessions that have another by now.
        servers.resume(roles.leader)?;
        let fleet = fleet.most_keep(title, cut, TICK).await?;
        servers.wait_whole()?;
        afterwards(holder, granted, servers).await?;
        fleet.afterwards(servers).await
    })
}

/// The leader's process stands still for less than that: nothing can be written meanwhile, no
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
            Holder::anywhere(servers, roles.leader, T),
            Holder::anywhere(servers, first, T),
            Holder::at(servers, second, T),
        )?;
        let cut = Instant::now();
        servers.pause(roles.leader)?;
        let goes_on = async {
            stay_until(cut + STILL).await;
            Ok(servers.resume(roles.leader)?)
        };
        tokio::try_join!(
            goes_on,
            keeps(title, cut, &one, TICK),
            keeps(title, cut, &two, TICK),
            keeps(title, cut, &three, TICK),
        )?;
        assert_eq!(servers.leader(), Some(roles.leader));
        for holder in [one, two, three] {
            let rival = Rival::of(&holder, servers, &[0, 1, 2]).await?;
            hand_over(holder, rival, servers).await?;
        }
        Ok(())
    })
}
