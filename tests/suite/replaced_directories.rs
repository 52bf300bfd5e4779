//! Grants without a list while directories are removed and made again all the time
//! (docs/protocol.md#directory-watch).

use std::sync::atomic::{AtomicI64, AtomicU64};

use test_support::PATIENCE;
use test_support::prelude::*;
use tokio::sync::watch;
use tracing::field::{Field, Visit};
use tracing::instrument::WithSubscriber;
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use zookeeper_client as zk;

use crate::harness::{Behaviour, CriticalSection, Env, behaviours};

pub(crate) fn all() -> Vec<Behaviour> {
    behaviours![
        replacement_never_grants_two
            .with_faults()
            .also_on_ensemble()
    ]
}

/// The least time for which directories are replaced.
const TIME: Duration = Duration::from_secs(4);
/// The least number of replacements, of grants, and of grants without a list. The test runs until
/// it has these events, however slow the machine is.
const LEAST: (u32, u64, u64) = (8, 300, 6);

/// A lock, and the observations of its contenders.
#[derive(Debug)]
struct Lock {
    path: String,
    critical: CriticalSection,
    token: AtomicI64,
    seen: watch::Sender<Seen>,
}

/// The event that a visiting contender waits for.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    grants: u64,
    replaced: u64,
    stop: bool,
}

impl Lock {
    fn stops(&self) -> bool {
        self.seen.borrow().stop
    }
}

/// Counts the grants that the library reports as made without a list.
struct WithoutList(Arc<AtomicU64>);

impl<S: Subscriber> Layer<S> for WithoutList {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if event.metadata().name() == "lock.granted" {
            event.record(&mut How(&self.0));
        }
    }
}

struct How<'a>(&'a AtomicU64);

impl Visit for How<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        if (field.name(), value) == ("how", "succession") {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}

/// Takes the lock again and again, a few times in a row. Returns the number of grants.
async fn contend(lock: Arc<Lock>, mutex: InterProcessMutex, mut dice: Random, visits: bool) -> u64 {
    let mut seen = lock.seen.subscribe();
    let mut grants = 0;
    while !lock.stops() {
        for _ in 0..if visits { 1 + dice.below(2) } else { 100 } {
            let guard = within("the grant", mutex.lock()).await.unwrap();
            let visit = async {
                let token = guard.fencing_token().zxid();
                let last = lock.token.swap(token, Ordering::SeqCst);
                assert!(last < token, "the token {token} after {last}");
                if visits || dice.below(4) == 0 {
                    // The pause makes a holder that the next create may meet.
                    tokio::time::sleep(Duration::from_millis(1)).await;
                } else {
                    tokio::task::yield_now().await;
                }
            };
            lock.critical.visit_while(visit).await;
            guard.release().await.unwrap();
            grants += 1;
            lock.seen.send_modify(|seen| seen.grants += 1);
            if lock.stops() {
                break;
            }
            if dice.below(4) == 0 {
                // The directory is empty for a moment.
                tokio::time::sleep(dice.duration(Duration::from_millis(1))).await;
            }
        }
        if visits {
            // The other contender waits for its turn until enough grants were made that some need
            // no list. Most of the time it waits until the directory is replaced, to be first in
            // the new one.
            let (now, waits) = (*lock.seen.borrow(), dice.below(4) > 0);
            let due = now.grants + 10 + dice.below(30);
            let is_due = |seen: &Seen| {
                let replaced = waits && seen.replaced > now.replaced;
                seen.stop || replaced || seen.grants >= due
            };
            within("the turn", seen.wait_for(is_due)).await.unwrap();
        } else {
            // The other contender takes its turn.
            tokio::time::sleep(dice.duration(Duration::from_millis(5))).await;
        }
    }
    grants
}

/// Replaces a directory if it is empty. The new directory's count of creates begins near that of
/// the old one, so that its numbers are those that are expected. Returns whether it was replaced.
async fn replace(plain_client: &zk::Client, path: &str, dice: &mut Random) -> bool {
    let Ok(Some(stat)) = plain_client.check_stat(path).await else {
        return false;
    };
    let open = zk::CreateMode::Persistent.with_acls(zk::Acls::anyone_all());
    // The version of an empty node counts a create and a deletion of each child.
    let creates = u64::try_from(stat.cversion).unwrap_or(0) / 2;
    let mut multi = plain_client.new_multi_writer();
    multi.add_delete(path, None).unwrap();
    multi.add_create(path, b"", &open).unwrap();
    let pad = format!("{path}/pad");
    // Most often the second contender gets the number that would have followed.
    let back = dice.one_of(&[0, 1, 1, 1, 2]).unwrap();
    for _ in 0..creates.saturating_sub(back).min(300) {
        multi.add_create(&pad, b"", &open).unwrap();
        multi.add_delete(&pad, None).unwrap();
    }
    multi.commit().await.is_ok()
}

// Shows: directory-watch
async fn replacement_never_grants_two(env: &Env) {
    let (mut locks, mut contenders) = (Vec::new(), Vec::new());
    let without_list = Arc::<AtomicU64>::default();
    for n in 0..2 {
        let lock = Arc::new(Lock {
            path: env.path(&format!("{n}/lock")),
            critical: CriticalSection::default(),
            token: AtomicI64::new(0),
            seen: watch::Sender::default(),
        });
        // One contender makes the path quiet, and the other comes from time to time.
        for visits in [false, true] {
            let client = env.client().await;
            let mutex = InterProcessMutex::new(&client, &lock.path).unwrap();
            let dice = Random::new(env.random().below(u64::MAX));
            let listener = WithoutList(Arc::clone(&without_list));
            let task = contend(Arc::clone(&lock), mutex, dice, visits)
                .with_subscriber(tracing_subscriber::registry().with(listener));
            contenders.push((client, tokio::spawn(task)));
        }
        locks.push(lock);
    }
    let plain_client = env.plain_client().await;
    let mut dice = Random::new(env.random().below(u64::MAX));
    let (begun, mut replaced, mut due) = (Instant::now(), 0, [0; 2]);
    let granted = || locks.iter().map(|lock| lock.critical.visits()).sum::<u64>();
    let without = || without_list.load(Ordering::SeqCst);
    let is_enough =
        |replaced: u32| replaced >= LEAST.0 && granted() >= LEAST.1 && without() >= LEAST.2;
    while !(begun.elapsed() >= TIME && is_enough(replaced)) && begun.elapsed() < PATIENCE {
        let n = usize::from(dice.below(2) == 0);
        let (lock, visits) = (&locks[n], locks[n].critical.visits());
        // A replacement is due by the number of visits, so that on a slow machine too there are
        // grants without a list in between.
        if visits >= due[n] && replace(plain_client, &lock.path, &mut dice).await {
            lock.seen.send_modify(|seen| seen.replaced += 1);
            replaced += 1;
            due[n] = visits + 15 + dice.below(20);
        }
        // The pause is random, so that the replacement meets all points of a cycle.
        tokio::time::sleep(dice.duration(Duration::from_millis(5))).await;
    }
    for lock in &locks {
        lock.seen.send_modify(|seen| seen.stop = true);
    }
    let mut grants = 0;
    for (client, task) in contenders {
        grants += within("the end", task).await.unwrap();
        within("the close", client.close()).await.unwrap();
    }
    let seen = format!(
        "{grants} grants, {} without a list, {replaced} directories",
        without()
    );
    println!("{seen}");
    assert_eq!(granted(), grants, "a visit was lost");
    assert!(is_enough(replaced), "{seen}");
}
