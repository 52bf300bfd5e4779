//! Runs a future to its end in virtual time, on a thread of its own.

use std::future::Future;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::time::Duration;

use crate::host::{self, Host};
use crate::net::Net;
use crate::{interpose, memory};

/// A small seeded generator, for schedules.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns any number.
    pub fn number(&mut self) -> u64 {
        interpose::mix(&mut self.0)
    }

    /// Returns a number in `low..high`.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.number() % (high - low).max(1)
    }

    /// Returns `true` once in `n` times, on average.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.number() % n == 0
    }

    /// Returns a random element.
    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.range(0, all.len() as u64) as usize]
    }

    /// Returns another generator, whose numbers follow from those of this one.
    pub fn fork(&mut self) -> Self {
        Self(self.number())
    }
}

/// Returns the CPU time of this process.
pub fn cpu_now() -> Duration {
    let ts = interpose::real(libc::CLOCK_PROCESS_CPUTIME_ID);
    Duration::new(ts.tv_sec as u64, ts.tv_nsec as u32)
}

/// Real time, also in a simulation.
pub fn real_now() -> Duration {
    let ts = interpose::real(libc::CLOCK_MONOTONIC);
    Duration::new(ts.tv_sec as u64, ts.tv_nsec as u32)
}

fn runtime(seed: u64) -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true);
    #[cfg(tokio_unstable)]
    builder.rng_seed(tokio::runtime::RngSeed::from_bytes(&seed.to_le_bytes()));
    #[cfg(not(tokio_unstable))]
    let _ = seed;
    builder.build().unwrap()
}

/// Runs a future on this thread, as a host's, in virtual time and a network of its own. The thread
/// keeps its thread-locals, so a seed does not replay the run.
pub fn here<T>(
    seed: u64,
    host: &Arc<Host>,
    net: impl FnOnce(&Net),
    future: impl Future<Output = T>,
) -> T {
    let mut seeds = Rng::new(seed);
    interpose::begin(seeds.number());
    let runtime = runtime(seeds.number());
    Net::enter(Some(Net::new(seeds.fork())));
    net(&Net::current());
    // Tasks that are spawned without a host belong to that host too.
    let entered = host::enter(host);
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(async {
            interpose::follow_tokio();
            future.await
        })
    }));
    interpose::unfollow();
    drop(runtime);
    drop(entered);
    Net::enter(None);
    interpose::end();
    outcome.unwrap_or_else(|panic| panic::resume_unwind(panic))
}

/// Runs `make(rng)` on a fresh thread: thread-locals (the keys of `RandomState`, seeds of
/// generators) begin anew. Also returns how many bytes have been allocated and not freed when the
/// runtime is gone.
pub fn run<F, T>(
    seed: u64,
    before: impl FnOnce() + Send + 'static,
    make: impl FnOnce(Rng) -> F + Send + 'static,
) -> std::thread::Result<(T, i64)>
where
    F: Future<Output = T>,
    T: Send + 'static,
{
    let thread = std::thread::Builder::new()
        .name(format!("sim-{seed}"))
        .stack_size(16 << 20)
        .spawn(move || {
            let mut seeds = Rng::new(seed);
            let bytes = memory::held();
            interpose::begin(seeds.number());
            before();
            let runtime = runtime(seeds.number());
            let net = Net::new(seeds.fork());
            Net::enter(Some(net));
            let result = runtime.block_on(async {
                interpose::follow_tokio();
                make(seeds.fork()).await
            });
            interpose::unfollow();
            drop(runtime);
            Net::enter(None);
            interpose::end();
            (result, memory::held() - bytes)
        });
    thread.unwrap().join()
}
