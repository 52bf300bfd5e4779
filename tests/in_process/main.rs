//! The recipes on a server in this process, with faults timed by a test. One binary holds all
//! tests, because they mostly wait and many can run at once.

mod atomic_long;
mod connect_errors;
mod conversions;
mod cost;
mod fair_lock;
mod fencing;
mod handoff;
mod leader;
mod lease;
mod lending;
mod multi_lock;
mod own_orphans;
mod read_write_lock;
mod regressions;
mod rules;
mod semaphore;
mod services;
mod session_nodes;
mod shared_readers;
mod short_outages;
mod storm;
mod succession;
mod untaken_grants;
mod who;
mod with;
