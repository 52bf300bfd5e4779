//! Runs a future to its end in virtual time, on a thread of its own.

use std::future::Future;
use std::time::Duration;

use crate::interpose;
use crate::net::Net;

/// A small seeded generator, for schedules.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        interpose::mix(&mut self.0)
    }

    /// A number in `low..high`.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.number() % (high - low).max(1)
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.number() % n == 0
    }

    /// One of several.
    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.range(0, all.len() as u64) as usize]
    }

    /// Another generator, whose numbers follow from those of this one.
    pub fn fork(&mut self) -> Self {
        Self(self.number())
    }
}

/// The CPU time of this process.
pub fn cpu_now() -> Duration {
    let ts = interpose::real(libc::CLOCK_PROCESS_CPUTIME_ID);
    Duration::new(ts.tv_sec as u64, ts.tv_nsec as u32)
}

/// Real time, also in a simulation.
pub fn real_now() -> Duration {
    let ts = interpose::real(libc::CLOCK_MONOTONIC);
    Duration::new(ts.tv_sec as u64, ts.tv_nsec as u32)
}

/// Runs `make(rng)` on a fresh thread: thread-locals (the keys of `RandomState`, seeds of generators) begin anew.
pub fn run<F, T>(
    seed: u64,
    before: impl FnOnce() + Send + 'static,
    make: impl FnOnce(Rng) -> F + Send + 'static,
) -> std::thread::Result<T>
where
    F: Future<Output = T>,
    T: Send + 'static,
{
    let thread =
        std::thread::Builder::new().name(format!("sim-{seed}")).stack_size(16 << 20).spawn(move || {
            let mut seeds = Rng::new(seed);
            interpose::begin(seeds.number());
            before();
            let mut builder = tokio::runtime::Builder::new_current_thread();
            builder.enable_time().start_paused(true);
            #[cfg(tokio_unstable)]
            builder.rng_seed(tokio::runtime::RngSeed::from_bytes(&seeds.number().to_le_bytes()));
            let runtime = builder.build().unwrap();
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
            result
        });
    thread.unwrap().join()
}
