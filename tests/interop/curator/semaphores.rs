//! Semaphores of both sides with one limit, contending and step by step.

use test_support::peers::CuratorPeer;
use test_support::{SOON, ZooKeeper, shared_standalone, within};
use zookeeper_recipes::{InterProcessSemaphore, TryLockError};

use crate::curator::java::{steps, workers};
use crate::journal::records;
use crate::outside::children;
use crate::pairing::{Extent, Finished, Plan, Run, run, run_and};
use crate::{Outcome, connect, rust};

/// Twelve kills on each side of each pairing, of which there are four.
const SOME: Extent = Extent {
    grants: 800,
    holders: 8,
    bystanders: 4,
};

/// A semaphore with one permit is a mutex for both sides and for Java's InterProcessSemaphoreMutex.
pub(crate) fn mutexes(peer: &CuratorPeer) -> Outcome {
    let servers = shared_standalone()?;
    let sides = [
        rust("semaphore-mutex", &["xxx", "xxx", "xx"]),
        workers(peer, "semaphore-mutex", &["xsx", "xxs"])?,
    ];
    run(&servers, "semaphore-mutexes", &sides, SOME)?.fulfils(&sides, SOME)
}

pub(crate) fn permits(peer: &CuratorPeer) -> Outcome {
    let servers = shared_standalone()?;
    let sides = [
        rust("permits-5", &["111", "111", "11"]),
        workers(peer, "permits-5", &["111", "111"])?,
    ];
    let finished = run_and(&servers, "permits", &sides, SOME, &mut Fixed(5))?;
    are_together(&finished)?;
    finished.fulfils(&sides, SOME)
}

/// Curator's workers take permits one by one, and keep them while they wait for more.
pub(crate) fn many_permits(peer: &CuratorPeer) -> Outcome {
    let servers = shared_standalone()?;
    let sides = [
        rust("permits-6", &["123", "113", "11"]),
        workers(peer, "permits-6", &["12", "13"])?,
    ];
    let finished = run_and(&servers, "many-permits", &sides, SOME, &mut Fixed(6))?;
    are_together(&finished)?;
    finished.fulfils(&sides, SOME)
}

/// Both sides set the limit in turn, and all workers follow it.
pub(crate) fn limits_that_change(peer: &CuratorPeer) -> Outcome {
    let servers = shared_standalone()?;
    let sides = [
        rust("live-permits-4", &["112", "111", "11"]),
        workers(peer, "live-permits-4", &["111", "112"])?,
    ];
    let mut plan = Changing {
        limits: &[4, 2, 6, 3, 7, 2, 5, 4],
        next: 0,
    };
    let finished = run_and(&servers, "limits", &sides, SOME, &mut plan)?;
    assert!(plan.next > 6, "{plan:?}");
    are_together(&finished)?;
    finished.fulfils(&sides, SOME)
}

/// Checks that holders were inside together at least once. How often that happens depends on the
/// machine: on a busy one, requests take longer than holds.
fn are_together(finished: &Finished) -> Outcome {
    if finished.findings.together > 0 {
        return Ok(());
    }
    let total = finished.findings.total();
    Err(format!("none of {total} holds was together with another").into())
}

/// A fixed limit.
#[derive(Debug)]
struct Fixed(u32);

impl Plan for Fixed {
    fn begin(&mut self, run: &mut Run<'_>) -> Outcome {
        run.note(&format!("limit {}", self.0))
    }
}

/// Limits that are set one after the other, beginning with the first.
#[derive(Debug)]
struct Changing {
    limits: &'static [u32],
    next: usize,
}

impl Plan for Changing {
    fn begin(&mut self, run: &mut Run<'_>) -> Outcome {
        self.next = 1;
        run.note(&format!("limit {}", self.limits[0]))
    }

    fn between(&mut self, run: &mut Run<'_>, kills: usize) -> Outcome {
        if kills % 3 != 0 {
            return Ok(());
        }
        let limit = self.limits[self.next % self.limits.len()];
        let (side, crew) = (self.next % 2, self.next / 2 % 2);
        self.next += 1;
        // A worker that is starting must not miss the limit.
        let all = run.names();
        for java in &all[1] {
            run.until(&format!("{java} to know a limit"), |new| {
                sees(new, java).is_some()
            })?;
        }
        run.note(&format!("may {limit}"))?;
        let set = format!("set {} {limit}", all[side][crew]);
        // The same process may have set the same limit before.
        let (before, mut now) = (count(run.journal()?, &set), 0);
        run.send(side, crew, &format!("limit {limit}"))?;
        run.until(&set, |new| {
            now += count(new, &set);
            now > before
        })?;
        // Workers of this crate read the limit whenever they look for permits; Curator's are
        // notified, sooner or later.
        for java in &all[1] {
            run.until(&format!("{java} to know {limit}"), |new| {
                sees(new, java) == Some(&limit.to_string())
            })?;
        }
        run.note(&format!("limit {limit}"))
    }
}

/// Returns the limit that a process of Curator's uses.
fn sees<'a>(journal: &'a str, process: &str) -> Option<&'a str> {
    records(journal)
        .filter_map(|record| {
            record
                .strip_prefix("sees ")?
                .strip_prefix(process)?
                .strip_prefix(' ')
        })
        .last()
}

fn count(journal: &str, record: &str) -> usize {
    records(journal).filter(|other| *other == record).count()
}

/// Waits until this many contenders are in the queue.
async fn queued(servers: &ZooKeeper, path: &str, wanted: usize) -> Outcome {
    count_below(servers, &format!("{path}/locks"), wanted).await
}

/// Waits until this many permits are held, or about to be held by Curator's first waiter.
async fn leased(servers: &ZooKeeper, path: &str, wanted: usize) -> Outcome {
    count_below(servers, &format!("{path}/leases"), wanted).await
}

async fn count_below(servers: &ZooKeeper, directory: &str, wanted: usize) -> Outcome {
    let (start, mut found) = (
        std::time::Instant::now(),
        children(servers, directory).await?,
    );
    while found.len() != wanted {
        if start.elapsed() > SOON {
            return Err(format!("never {wanted} in {directory}: {found:?}").into());
        }
        found = children(servers, directory).await?;
    }
    Ok(())
}

/// The contenders of both sides are granted permits in the order of their arrival.
pub(crate) fn first_come_first_served(peer: &CuratorPeer) -> Outcome {
    steps(peer, async |servers, curator, path, client| {
        let other = connect(servers).await?;
        let semaphore = InterProcessSemaphore::new(client, path, 2)?;
        let others = InterProcessSemaphore::new(&other, path, 2)?;
        curator.call("a", &format!("semaphore acquire {path} 2 1"), "holds")?;
        let ours = semaphore.acquire(SOON).await?;
        curator.call("a2", &format!("semaphore try {path} 2 1"), "may not")?;
        assert!(matches!(
            semaphore.try_acquire().await,
            Err(TryLockError::WouldBlock { .. })
        ));
        assert_eq!(semaphore.available_permits().await?, 0);
        // The contenders arrive one by one, so that each is in the queue before the next.
        curator.send("b", &format!("semaphore acquire {path} 2 1"))?;
        queued(servers, path, 1).await?;
        let second = tokio::spawn(semaphore.acquire(SOON));
        queued(servers, path, 2).await?;
        curator.send("c", &format!("semaphore acquire {path} 2 1"))?;
        queued(servers, path, 3).await?;
        let fourth = tokio::spawn(others.acquire(SOON));
        queued(servers, path, 4).await?;
        // Curator's first waiter has made its lease already.
        leased(servers, path, 3).await?;
        assert!(!curator.has_answered("b") && !second.is_finished());
        ours.release().await?;
        curator.expect_answer("b", "holds")?;
        queued(servers, path, 3).await?;
        assert!(!second.is_finished() && !curator.has_answered("c") && !fourth.is_finished());
        curator.call("a", &format!("semaphore release {path}"), "released")?;
        let second = within("our first waiter", second).await??;
        assert!(!curator.has_answered("c") && !fourth.is_finished());
        curator.call("b", &format!("semaphore release {path}"), "released")?;
        curator.expect_answer("c", "holds")?;
        assert!(!fourth.is_finished());
        second.release().await?;
        let fourth = within("our second waiter", fourth).await??;
        curator.call("c", &format!("semaphore release {path}"), "released")?;
        fourth.release().await?;
        leased(servers, path, 0).await?;
        queued(servers, path, 0).await?;
        Ok(other.close().await?)
    })
}

/// Several permits at once: this crate's are granted together, and a waiter holds none. Curator's
/// waiters hold some, which this crate counts.
pub(crate) fn several_at_once(peer: &CuratorPeer) -> Outcome {
    steps(peer, async |servers, curator, path, client| {
        let semaphore = InterProcessSemaphore::new(client, path, 4)?;
        curator.call("a", &format!("semaphore acquire {path} 4 2"), "holds")?;
        assert_eq!(semaphore.available_permits().await?, 2);
        let three = tokio::spawn(semaphore.acquire_many(3, SOON));
        queued(servers, path, 1).await?;
        // The contender is behind this crate's waiter, although enough permits for it are free.
        curator.send("b", &format!("semaphore acquire {path} 4 2"))?;
        queued(servers, path, 2).await?;
        leased(servers, path, 2).await?;
        assert!(!three.is_finished() && !curator.has_answered("b"));
        curator.call("a", &format!("semaphore release {path}"), "released")?;
        let three = within("three permits", three).await??;
        assert_eq!(
            (
                three.num_permits(),
                three.slots().len(),
                three.nodes().len()
            ),
            (3, 3, 3)
        );
        // Curator's contender has one of its two permits, and waits with the lease of the other.
        leased(servers, path, 5).await?;
        assert!(!curator.has_answered("b"));
        let next = tokio::spawn(semaphore.acquire_many(2, SOON));
        queued(servers, path, 2).await?;
        three.release().await?;
        curator.expect_answer("b", "holds")?;
        // The other two permits are free.
        let next = within("the two that are left", next).await??;
        assert_eq!(semaphore.available_permits().await?, 0);
        next.release().await?;
        curator.call("b", &format!("semaphore release {path}"), "released")?;
        leased(servers, path, 0).await?;
        Ok(())
    })
}

/// The limit is Curator's SharedCount: when either side sets it, the waiters of the other side are
/// notified.
pub(crate) fn either_sets_the_limit(peer: &CuratorPeer) -> Outcome {
    steps(peer, async |servers, curator, path, client| {
        curator.call("a", &format!("semaphore limit {path} 1"), "set")?;
        // The limit that a handle states no longer counts.
        let semaphore = InterProcessSemaphore::new(client, path, 8)?;
        assert_eq!(semaphore.limit().await?, 1);
        let first = semaphore.acquire(SOON).await?;
        let second = tokio::spawn(semaphore.acquire(SOON));
        queued(servers, path, 1).await?;
        curator.call("a", &format!("semaphore limit {path} 2"), "set")?;
        let second = within("room for two", second).await??;
        assert_eq!(semaphore.limit().await?, 2);
        curator.send("b", &format!("semaphore acquire {path} live 1"))?;
        leased(servers, path, 3).await?;
        assert!(!curator.has_answered("b"));
        semaphore.set_limit(3).await?;
        curator.expect_answer("b", "holds")?;
        // The limit is lower than the number of held permits: none is revoked, and none granted
        // until there is room.
        semaphore.set_limit(1).await?;
        assert!(first.is_held() && second.is_held());
        assert_eq!(semaphore.available_permits().await?, 0);
        first.release().await?;
        second.release().await?;
        assert!(matches!(
            semaphore.try_acquire().await,
            Err(TryLockError::WouldBlock { .. })
        ));
        curator.call("b", &format!("semaphore release {path}"), "released")?;
        semaphore.try_acquire().await?.release().await?;
        Ok(())
    })
}

/// A limit that a Java process states as a number is in no node, and the process reads no other.
pub(crate) fn stated_limits_are_not_compared(peer: &CuratorPeer) -> Outcome {
    steps(peer, async |_, curator, path, client| {
        curator.call("a", &format!("semaphore acquire {path} 2 2"), "holds")?;
        let semaphore = InterProcessSemaphore::new(client, path, 3)?;
        let third = within("the third permit", semaphore.acquire(SOON)).await?;
        semaphore.set_limit(1).await?;
        curator.call("b", &format!("semaphore acquire {path} 4 1"), "holds")?;
        assert_eq!(semaphore.available_permits().await?, 0);
        third.release().await?;
        curator.call("a", &format!("semaphore release {path}"), "released")?;
        curator.call("b", &format!("semaphore release {path}"), "released")?;
        Ok(())
    })
}
