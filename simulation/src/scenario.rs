//! Tests in virtual time that read as those in real time: `use simulation::scenario::tokio;`, and
//! `#[tokio::test]` runs its body with a server in memory behind
//! [`Server::start`](zookeeper_test_server::Server::start), clients that reach it by a network in
//! memory, and a clock that jumps to the next timer.
//!
//! All of it is one simulated process on one thread: what blocks that is a deadlock. Threads of the
//! operating system and runtimes inside of a test are for tests in real time.

use std::cell::Cell;
use std::sync::Once;
use std::{io, panic};

use simnet::host::Host;
use simnet::net::{Latency, Net};
use zookeeper_test_server::{Builder, Server, simulated};

use crate::glue::{self, Port};

/// tokio, with another runtime behind `#[tokio::test]`.
pub mod tokio {
    pub use ::tokio::*;

    pub mod runtime {
        pub use ::tokio::runtime::*;

        /// Builds the runtime of a test in virtual time. The options of tokio's builder have no
        /// effect.
        #[derive(Debug)]
        pub struct Builder(());

        impl Builder {
            pub fn new_current_thread() -> Self {
                Self(())
            }

            pub fn new_multi_thread() -> Self {
                Self(())
            }

            pub fn worker_threads(&mut self, _: usize) -> &mut Self {
                self
            }

            pub fn enable_all(&mut self) -> &mut Self {
                self
            }

            pub fn build(&mut self) -> std::io::Result<Runtime> {
                Ok(Runtime(()))
            }
        }

        /// Virtual time.
        #[derive(Debug)]
        pub struct Runtime(());

        impl Runtime {
            pub fn block_on<F: Future>(&self, future: F) -> F::Output {
                crate::scenario::run(future)
            }
        }
    }
}

/// A message takes a millisecond, always.
const LATENCY: Latency = Latency {
    min: 1,
    max: 1,
    spike: u64::MAX,
    most: 1,
};

fn start(builder: Builder) -> Option<io::Result<Server>> {
    Net::is_here().then(|| builder.serve(Port::at(Net::current().free_port())))
}

thread_local! {
    static PANICS: Cell<u32> = const { Cell::new(0) };
}

/// Counts the panics of each thread: the runtime catches those of tasks, also of the library's.
fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            PANICS.set(PANICS.get() + 1);
            before(info);
        }));
    });
    PANICS.set(0);
}

/// Declares that this many panics so far were intended.
///
/// # Panics
/// If there were more or less.
pub fn meant_to_panic(times: u32) {
    assert_eq!(PANICS.replace(0), times, "tasks that panicked");
}

/// Runs a test to its end.
///
/// # Panics
/// If the test does, or a task of it.
pub fn run<T>(future: impl Future<Output = T>) -> T {
    glue::install();
    simulated::set_start(start);
    count_panics();
    fastrand::seed(1);
    let outcome = simnet::run::here(1, &Host::new(1), |net| net.set_latency(LATENCY), future);
    meant_to_panic(0);
    outcome
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::tokio;

    #[tokio::test]
    async fn virtual_time_passes_at_once() {
        let (begun, really) = (Instant::now(), simnet::real_now());
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert!(begun.elapsed() >= Duration::from_secs(3600));
        assert!(simnet::real_now() - really < Duration::from_secs(60));
    }

    #[tokio::test]
    #[should_panic(expected = "tasks that panicked")]
    async fn panicking_task_fails_its_test() {
        tokio::spawn(async { panic!("on purpose") })
            .await
            .unwrap_err();
    }
}
