//! Curator's own tests of its locks (its master after 5.9.0), under their names, and behaviours
//! that those tests omit.
//!
//! The tests check what Curator's check and a little more: they also look at the result of a second
//! thread, whose failure fails the test. After each test, while its clients still exist, no node
//! and no watch may be left (`wchp` on a real server). Curator's own check for left watches has
//! been off since 2020. Where Curator's tests pause, these wait for an event.
//!
//! | Curator's class | tests | here |
//! |---|---|---|
//! | `TestInterProcessMutexBase` | all nine | [`base`], for the mutex, the fair lock, the write lock and the multi-lock |
//! | `TestInterProcessMultiMutex` | both | [`multi_lock`] |
//! | `TestInterProcessMutex` | `testRevoking` | [`revoking`], for every lock |
//! | `TestInterProcessReadWriteLock` | all eight | [`read_write_lock`] |
//! | `TestLockACLs` | both | `acls::acl_covers_parents_and_nodes` |
//! | `TestLockInternals` | both | `outcomes::three_deletions_end_the_attempt`, `outcomes::refusal_is_not_repeated` |
//! | `TestInterProcessSemaphore` | `testAcquireAfterLostServer` | `semaphore_faults::lost_replies_give_all_permits_once`, `semaphore::permits_survive_an_outage` |
//! | `TestInterProcessSemaphore` | `testThreads`, `testMaxPerSession`, `testReleaseInChunks` | `semaphore::holders_never_exceed_the_limit` |
//! | `TestInterProcessSemaphore` | `testSimple`, `testSimple2` | `semaphore::timed_out_wait_leaves_nothing` |
//! | `TestInterProcessSemaphore` | `testRelease1AtATime` | `semaphore::semaphore_fifo_across_clients` |
//! | `TestInterProcessSemaphore` | `testThreadedLeaseIncrease` | `semaphore::limit_is_set_while_used` |
//! | `TestInterProcessSemaphore` | `testClientClose` | `semaphore::closed_client_returns_all_permits` |
//! | `TestInterProcessSemaphore` | `testGetParticipantNodes` | `semaphore::permit_knows_its_node` |
//! | `TestInterProcessSemaphore` | `testInterruptAcquire` | `semaphore::cancelled_waiter_grants_the_next` |
//! | `TestInterProcessSemaphore` | `testNoOrphanedNodes` | `simulation/tests/scenarios/semaphore_faults.rs` |
//! | `TestInterProcessSemaphoreCluster` | both | [`semaphore`]; for the holders in `testKilledServerWithEnsembleProvider`: `semaphore::session_end_loses_the_permit`, see below |
//! | `TestInterProcessSemaphoreMutex` | all six that are not re-entrant | `semaphore`: `timed_out_wait_leaves_nothing`, `drop_returns_the_permit`, `permits_survive_an_outage`, `session_end_loses_the_permit`, `swept_directories_are_made_again`, `namespace_is_hidden` |
//! | `TestFrameworkEdges` | `testProtectionWithKilledSession` | [`framework`] |
//! | `TestFrameworkEdges` | `testProtectedCreateNodeDeletion`, `testPathsFromProtectingInBackground` | `outcomes::unanswered_create_leaves_one_node`, `outcomes::cancelled_unknown_create_is_resolved` |
//! | `TestFailedDeleteManager` | `testLostSession`, both `testGuaranteedDeleteOnNonExistentNode...` | [`framework`] |
//! | `TestFailedDeleteManager` | `testBasic` | `outages::lock_released_in_outage_is_freed` |
//! | `TestDistributedAtomicLong` | four of six | [`atomic`] |
//! | `TestDistributedAtomicLong` | `testCompareAndSet` | `counters::only_one_comparison_succeeds` |
//! | `TestDistributedAtomicLong` | `testCorruptedValue` | `atomic_long::foreign_data_is_refused_unchanged` |
//! | `TestCachedAtomicCounter` | `testWithError` | `atomic_long::next_caller_repeats_failed_reservation` |
//! | `TestCachedAtomicCounter` | `testBasic` | `atomic_long::block_costs_as_one_number` |
//! | `TestAsyncWrappers` | `testBasic`, `testContention` | every call is asynchronous here; `timeouts::timed_out_wait_leaves_nothing` |
//!
//! Not ported:
//!
//! | test | why |
//! |---|---|
//! | `TestInterProcessMutex.testWithSchema` | Curator's schemas are checks in its client, which this library does not have |
//! | `TestInterProcessMutex.testPersistentLock` | it swaps the driver, so that lock nodes are persistent and outlive their session: there are no drivers here, and this library must prevent locks that outlive their holders' sessions |
//! | `TestFailedDeleteManager.testWithNamespaceAndLostSession`, `testWithNamespaceAndLostSessionAlt` | the same in a namespace; `directories::namespace_is_hidden` deletes its nodes |
//! | thread-bound re-entrance (part of `testReentrant...`) | a second `acquire` of the same thread: there is no owner but the guard; entering again is `reenter` |
//! | the other servers in `TestInterProcessSemaphoreCluster.testKilledServerWithEnsembleProvider` | an `EnsembleProvider` sends a client to another ensemble while it runs: a client has one list of servers here, and a lock is of one ensemble |
//! | `TestInterProcessSemaphoreMutex.testReentrant`, `testReentrant2Threads`, `testReentrantSingleLock` | Curator leaves them out too: permits are not re-entrant |
//!
//! Curator has no tests for the behaviours in [`untested`], and for:
//!
//! | | where |
//! |---|---|
//! | conversions whose replies are lost, or whose session ends or caller leaves | `tests/in_process/read_write_lock.rs` |
//! | two holders on both sides of a partition | `tests/quorum`: `partitions`, `client_links` |
//! | the herd of readers | `tests/in_process/cost.rs` |
//! | Curator's faults of semaphores: deadlock by quantity, a release that races an acquire, directories that are deleted | [`semaphore_faults`] |
//! | a lease without its lock, leases that stay after an interrupt | `simulation/tests/scenarios/semaphore_faults.rs` |
//! | deadlock of multi-locks | `multi_locks`, `tests/in_process/multi_lock.rs` |

mod atomic;
mod base;
mod framework;
mod multi_lock;
mod read_write_lock;
mod revoking;
mod semaphore;
mod semaphore_faults;
mod stage;
mod untested;

use self::stage::Kind;
use crate::harness::Registry;

pub(crate) fn add(registry: &mut Registry) {
    let locks = [
        (Kind::Mutex, "mutex"),
        (Kind::Fair, "fair_lock"),
        (Kind::Read, "read_lock"),
        (Kind::Write, "write_lock"),
        (Kind::Multi, "multi_lock"),
    ];
    for (kind, name) in locks {
        if kind != Kind::Read {
            registry.add(&format!("curator::inter_process_{name}"), &base::all(kind));
        }
        if kind != Kind::Multi {
            registry.add(
                &format!("curator::inter_process_{name}"),
                &revoking::all(kind),
            );
            registry.add(
                &format!("curator::untested::inter_process_{name}"),
                &untested::all(kind),
            );
        }
    }
    registry.add("curator::inter_process_multi_lock", &multi_lock::all());
    registry.add(
        "curator::inter_process_read_write_lock",
        &read_write_lock::all(),
    );
    registry.add("curator::inter_process_semaphore", &semaphore::all());
    registry.add(
        "curator::untested::inter_process_semaphore",
        &semaphore_faults::all(),
    );
    registry.add("curator::framework", &framework::all());
    registry.add("curator::distributed_atomic_long", &atomic::all());
}
