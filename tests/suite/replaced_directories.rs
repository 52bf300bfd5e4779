//! Grants without a list where directories are removed and made again all the time
//! (docs/protocol.md#directory-watch).

use std::sync::atomic::{AtomicI64, AtomicU64};

use test_support::prelude::*;
use tokio::sync::Notify;
use zookeeper_client as zk;

use crate::harness::{Behaviour, CriticalSection, Env, behaviours};

pub(crate) fn all() -> Vec<Behaviour> {
    behaviours![they_let_no_two_in.whatever_breaks().on_an_ensemble_too()]
}

/// How long they are replaced.
const TIME: Duration = Duration::from_secs(4);
/// How often they are at least, and how often their locks are granted, if that takes longer.
const LEAST: (u32, u64) = (8, 300);
/// How long a span is in which grants without a list are counted.
const SPAN: Duration = Duration::from_millis(200);
/// How often their locks are granted without a list at least.
const LEAST_WITHOUT_LIST: u64 = 6;

/// One lock, and what those that take it have seen.
#[derive(Debug)]
struct Lock {
    path: String,
    critical: CriticalSection,
    token: AtomicI64,
    replaced: Notify,
    stop: AtomicBool,
}

/// One of those that take it, and how often it was granted the lock.
struct Contender {
    client: Client,
    grants: Arc<AtomicU64>,
    task: JoinHandle<()>,
    /// Its grants and requests at the last count.
    counted: (u64, u64),
    without_list: u64,
}

impl Contender {
    /// Counts how often it was granted the lock without a list since the last count, at least: with
    /// one, a grant and its release are three requests or more. Spans are short, so that those in
    /// which it waits for the other, which takes further requests, do not hide the rest.
    async fn count(&mut self, env: &Env) {
        let grants = self.grants.load(Ordering::SeqCst);
        let requests = env.requests_of(&self.client).await;
        let (grants_before, requests_before) = self.counted;
        // One grant may have made some of its requests before the last count.
        let sure = (grants - grants_before).saturating_sub(1);
        // Its server counts anew after a reconnect.
        if let Some(requests) = requests.checked_sub(requests_before) {
            self.without_list += (3 * sure).saturating_sub(requests);
        }
        self.counted = (self.grants.load(Ordering::SeqCst), requests);
    }
}

/// Takes the lock again and again, a few times in a row.
async fn contend(
    lock: Arc<Lock>,
    mutex: InterProcessMutex,
    mut dice: Random,
    visits: bool,
    grants: Arc<AtomicU64>,
) {
    while !lock.stop.load(Ordering::Relaxed) {
        for _ in 0..if visits { 1 + dice.below(2) } else { 100 } {
            let guard = within("the grant", mutex.lock()).await.unwrap();
            let visit = async {
                let token = guard.fencing_token().zxid();
                let last = lock.token.swap(token, Ordering::SeqCst);
                assert!(last < token, "the token {token} after {last}");
                if visits || dice.below(4) == 0 {
                    // A holder that the next create may run into.
                    tokio::time::sleep(Duration::from_millis(1)).await;
                } else {
                    tokio::task::yield_now().await;
                }
            };
            lock.critical.visit_while(visit).await;
            guard.release().await.unwrap();
            grants.fetch_add(1, Ordering::SeqCst);
            if dice.below(4) == 0 {
                // The directory is empty for a moment.
                tokio::time::sleep(dice.duration(Duration::from_millis(1))).await;
            }
        }
        let pause = dice.duration(Duration::from_millis(if visits { 200 } else { 5 }));
        if visits && dice.below(4) > 0 {
            // First in a successor, if it can.
            tokio::time::timeout(pause, lock.replaced.notified())
                .await
                .ok();
        } else {
            // The other's turn.
            tokio::time::sleep(pause).await;
        }
    }
}

/// Replaces a directory if it is empty. The count of creates of the successor begins near that of
/// its predecessor, so that its numbers are those that are expected. Returns whether it was
/// replaced.
async fn replace(outsider: &zk::Client, path: &str, dice: &mut Random) -> bool {
    let Ok(Some(stat)) = outsider.check_stat(path).await else {
        return false;
    };
    let open = zk::CreateMode::Persistent.with_acls(zk::Acls::anyone_all());
    // The version of an empty node counts a create and a deletion of each child.
    let creates = u64::try_from(stat.cversion).unwrap_or(0) / 2;
    let mut multi = outsider.new_multi_writer();
    multi.add_delete(path, None).unwrap();
    multi.add_create(path, b"", &open).unwrap();
    let pad = format!("{path}/pad");
    // Most often, so that whoever is second gets the number that would have followed.
    let back = dice.one_of(&[0, 1, 1, 1, 2]).unwrap();
    for _ in 0..creates.saturating_sub(back).min(300) {
        multi.add_create(&pad, b"", &open).unwrap();
        multi.add_delete(&pad, None).unwrap();
    }
    multi.commit().await.is_ok()
}

// Shows: directory-watch
async fn they_let_no_two_in(env: &Env) {
    let (mut locks, mut contenders) = (Vec::new(), Vec::new());
    for n in 0..2 {
        let (path, critical) = (env.path(&format!("{n}/lock")), CriticalSection::default());
        let (token, stop) = (AtomicI64::new(0), AtomicBool::new(false));
        let lock = Arc::new(Lock {
            path,
            critical,
            token,
            replaced: Notify::new(),
            stop,
        });
        // One makes the path hot, the other comes in between now and then.
        for visits in [false, true] {
            let client = env.client().await;
            let mutex = InterProcessMutex::new(&client, &lock.path).unwrap();
            let dice = Random::new(env.random().below(u64::MAX));
            let grants = Arc::<AtomicU64>::default();
            let task = tokio::spawn(contend(
                Arc::clone(&lock),
                mutex,
                dice,
                visits,
                Arc::clone(&grants),
            ));
            contenders.push(Contender {
                client,
                grants,
                task,
                counted: (0, 0),
                without_list: 0,
            });
        }
        locks.push(lock);
    }
    let outsider = env.outsider().await;
    let mut dice = Random::new(env.random().below(u64::MAX));
    let (begun, mut replaced, mut due) = (Instant::now(), 0, [0; 2]);
    let granted = || locks.iter().map(|lock| lock.critical.visits()).sum::<u64>();
    // A busy machine grants less often without a list; requests that are repeated hide how often,
    // and so does a member that answers late, of whose few grants in a span too many may have begun
    // before it.
    let hidden = env.is_sabotaged() || env.is_ensemble();
    let (mut without, mut next_count) = (0, SPAN);
    while begun.elapsed() < SOON {
        if begun.elapsed() >= next_count && !hidden {
            for contender in &mut contenders {
                contender.count(env).await;
            }
            without = contenders
                .iter()
                .map(|contender| contender.without_list)
                .sum::<u64>();
            next_count = begun.elapsed() + SPAN;
        }
        let is_enough = replaced >= LEAST.0
            && granted() >= LEAST.1
            && (hidden || without >= LEAST_WITHOUT_LIST);
        if begun.elapsed() >= TIME && is_enough {
            break;
        }
        let n = usize::from(dice.below(2) == 0);
        let (lock, visits) = (&locks[n], locks[n].critical.visits());
        // However slow the machine is, numbers follow each other in between.
        if visits >= due[n] && replace(outsider, &lock.path, &mut dice).await {
            lock.replaced.notify_waiters();
            replaced += 1;
            due[n] = visits + 15 + dice.below(20);
        }
        // Not at one point of a cycle.
        tokio::time::sleep(dice.duration(Duration::from_millis(5))).await;
    }
    for lock in &locks {
        lock.stop.store(true, Ordering::Relaxed);
    }
    let mut grants = 0;
    for mut contender in contenders {
        within("the end", &mut contender.task).await.unwrap();
        grants += contender.grants.load(Ordering::SeqCst);
        within("the close", contender.client.close()).await.unwrap();
    }
    let visits: u64 = locks.iter().map(|lock| lock.critical.visits()).sum();
    let seen = format!("{grants} grants, {without} or more without a list, {replaced} directories");
    println!("{seen}");
    assert_eq!(visits, grants, "a visit was lost");
    assert!(grants > 100 && replaced > 5, "{seen}");
    assert!(hidden || without >= LEAST_WITHOUT_LIST, "{seen}");
}
