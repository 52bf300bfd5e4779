//! Tests in virtual time: what lets time pass and needs no real server, process, thread or runtime of its own. See
//! `simulation::scenario`.

mod cancellation;
mod conversions;
mod crowd;
mod fair_lock_faults;
mod guard;
mod lease;
mod multi_lock_faults;
mod regressions;
mod revocation;
mod rules;
mod semaphore_faults;
mod short_outages;
mod sticky;
mod sticky_readers;
