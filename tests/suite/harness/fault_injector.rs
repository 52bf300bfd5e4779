//! Breaks connections while a behaviour runs.

use std::thread::{self, JoinHandle};

use test_support::prelude::*;

use super::random;

/// The largest number of faults: each costs a reconnect, and a behaviour must end.
const MOST: usize = 60;
/// How long the injector waits for requests before it checks whether to stop.
const PATIENCE: Duration = Duration::from_millis(50);

/// Cuts connections, loses requests and replies, and delays replies, at random.
///
/// Faults are timed by the requests that the server receives, so the same seed has nearly the same
/// faults for the same behaviour.
#[derive(Debug)]
pub(crate) struct FaultInjector {
    stop: Arc<AtomicBool>,
    first: Fault,
    thread: Option<JoinHandle<usize>>,
}

impl FaultInjector {
    /// Starts the injector. No fault affects the session `exempt`. The reply to one of the first
    /// creates below `root` is always lost, so that even a quick behaviour meets a fault.
    pub(crate) fn start(server: Arc<Server>, exempt: i64, root: &str, name: &str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (mut random, stopped) = (random::named(name), Arc::clone(&stop));
        let create = Match::op(Op::Create)
            .path_prefix(root)
            .nth(below(&mut random, 4));
        let loss = loss(&mut random);
        let first = server.drop_reply(create, loss);
        let thread = thread::Builder::new()
            .name(format!("fault_injector of {name}"))
            .spawn(move || inject(&server, exempt, random, &stopped))
            .unwrap();
        Self {
            stop,
            first,
            thread: Some(thread),
        }
    }

    /// Stops the injector. Returns the number of faults.
    pub(crate) fn stop(mut self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        self.thread
            .take()
            .map_or(0, |thread| thread.join().unwrap())
            + self.first.hits().len()
    }
}

impl Drop for FaultInjector {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn inject(server: &Server, exempt: i64, mut random: Random, stop: &AtomicBool) -> usize {
    let mut injected = 0;
    let mut at = random.below(3);
    while !stop.load(Ordering::Relaxed) && injected < MOST {
        let asked = move |view: View<'_>| {
            let counters = view.counters();
            counters.total_requests() - counters.total_requests_of(exempt)
        };
        let mut sessions = Vec::new();
        let due = server.wait_until_blocking(
            |view| {
                let there = view
                    .sessions()
                    .into_iter()
                    .filter(|known| known.connected && known.id != exempt);
                sessions = there.map(|known| known.id).collect();
                asked(view) >= at && !sessions.is_empty()
            },
            PATIENCE,
        );
        let Some(session) = random.one_of(&sessions).filter(|_| due) else {
            continue;
        };
        let loss = loss(&mut random);
        let next = Match::any().session(session).nth(below(&mut random, 3));
        match random.below(6) {
            0 => drop(server.cut(session, Cut::Fin)),
            1 => drop(server.cut(session, Cut::Reset)),
            2 => drop(server.drop_request(next, loss)),
            3 | 4 => drop(server.drop_reply(next, loss)),
            _ => {
                let gate = server.hold_reply(next.times(2));
                let until = at + 1 + random.below(6);
                // The client of the held reply may be the only one that sends requests, so the
                // reply is released after a while in any case.
                let _ = server.wait_until_blocking(|view| asked(view) >= until, PATIENCE);
                gate.release();
            }
        }
        injected += 1;
        let counters = server.counters();
        at = counters.total_requests() - counters.total_requests_of(exempt) + 1 + random.below(8);
    }
    server.clear_faults();
    injected
}

fn loss(random: &mut Random) -> Loss {
    if random.below(2) == 0 {
        Loss::Close
    } else {
        Loss::Reset
    }
}

fn below(random: &mut Random, end: u64) -> usize {
    usize::try_from(random.below(end)).unwrap_or(0)
}
