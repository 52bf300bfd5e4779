//! What a run needs of the system, which is asked for before anything begins.
//!
//! A client that gets no thread or file descriptor later may panic, or look as if no server
//! answered.

use std::io;
use std::os::fd::AsFd as _;
use std::sync::Mutex;
use std::thread::{Builder, scope};

use crate::exit::Failure;

/// More file descriptors than a run opens, besides those that it was started with.
const DESCRIPTORS: usize = 32;

/// More threads and processes than a run starts.
const THREADS: usize = 8;

/// Returns an error if the system does not give as many file descriptors and threads as a run
/// needs.
pub(crate) fn check() -> Result<(), Failure> {
    let files: io::Result<Vec<_>> = (0..DESCRIPTORS)
        .map(|_| io::stdin().as_fd().try_clone_to_owned())
        .collect();
    drop(files.map_err(|error| lack(DESCRIPTORS, "file descriptors", &error))?);
    let gate = Mutex::new(());
    scope(|scope| {
        // No thread ends before the last one has started.
        let _closed = gate.lock();
        let mut numbers = 0..THREADS;
        numbers.try_for_each(|_| {
            let thread = Builder::new().spawn_scoped(scope, || drop(gate.lock()));
            thread.map(drop)
        })
    })
    .map_err(|error| lack(THREADS, "threads and processes", &error))
}

fn lack(count: usize, what: &str, error: &io::Error) -> Failure {
    Failure::system(
        &format!("the system does not give {count} more {what}"),
        error,
    )
}
