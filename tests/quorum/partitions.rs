//! Links between the members break, and the client's do not.

use std::time::{Duration, Instant};

use test_support::Direction;
use test_support::within;

use crate::actors::{
    Failure, Fleet, Holder, Outcome, Rival, afterwards, hand_over, keeps, plain_session, run,
    told_first,
};
use crate::ensemble::{Ensemble, TICK};

const T: Duration = Duration::from_secs(10);
const FLEET: usize = 5;

/// A follower and its leader hear nothing of each other. For twenty seconds the follower does not
/// mind: it goes on answering reads, while the leader ends the sessions of its clients.
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
        Still::Reads,
    ))
}

/// The followers leave their leader, which hears nothing of it, and elect another. For twenty
/// seconds the old one does not mind: it goes on answering even `sync`.
pub(crate) fn leader(title: &str) -> Outcome {
    let ensemble = Ensemble::linked()?;
    let (_turn, roles) = ensemble.turn()?;
    let part = || Ok(ensemble.desert(roles)?);
    run(partition(
        title,
        &ensemble,
        roles.leader,
        roles.followers,
        part,
        Still::SyncsAndReads,
    ))
}

/// What the member that is cut off still answers after the others have given the lock away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Still {
    Reads,
    SyncsAndReads,
}

/// One holder knows only the member that is cut off: it is told. Who asks that member for less than
/// a committed write is not. Another holder can go elsewhere: it keeps its lock. So do most of
/// those that try the same member again.
async fn partition(
    title: &str,
    ensemble: &Ensemble,
    cut_off: usize,
    well: [usize; 2],
    part: impl FnOnce() -> Outcome,
    still: Still,
) -> Outcome {
    let servers = ensemble.servers();
    let holder = Holder::at(servers, cut_off, T).await?;
    let rival = Rival::of(&holder, servers, &well).await?;
    let mover = Holder::anywhere(servers, cut_off, T).await?;
    let movers_rival = Rival::of(&mover, servers, &well).await?;
    let fleet = Fleet::anywhere(servers, FLEET, cut_off, T, &well).await?;
    let witness = plain_session(&servers.address(cut_off).to_string()).await?;
    let losses = vec![holder.told()];

    mover.link(cut_off).refuse()?;
    let cut = Instant::now();
    part()?;
    let told = async {
        let granted = told_first(title, cut, &holder, losses, rival).await?;
        let node = holder.guard().node();
        if still == Still::SyncsAndReads {
            within("the old leader's answer to sync", witness.sync(&node)).await?;
        }
        let stat = within("the answer to a read", witness.check_stat(&node)).await?;
        assert!(
            stat.is_some(),
            "{title}: who only reads there sees the lock still held"
        );
        println!(
            "{title}: {still:?} answered {} ms after the cut, as if nothing were",
            cut.elapsed().as_millis()
        );
        Ok::<_, Failure>(granted)
    };
    let moves = keeps(title, cut, &mover, TICK);
    let fleet = fleet.most_keep(title, cut, TICK);
    let (granted, (), fleet) = tokio::try_join!(told, moves, fleet)?;
    assert!(
        mover.members().iter().any(|member| *member != cut_off),
        "{title}: {:?}",
        mover.members()
    );
    ensemble.heal()?;
    mover.link(cut_off).accept()?;
    afterwards(holder, granted, servers).await?;
    hand_over(mover, movers_rival, servers).await?;
    fleet.afterwards(servers).await
}
