//! Breaks connections while a behaviour runs.

use std::thread::{self, JoinHandle};

use test_support::prelude::*;

use super::random;

/// How often it strikes at most: every strike costs a reconnect, and a behaviour must come to its
/// end.
const MOST: usize = 60;
/// How long it waits for requests before it looks whether it is to stop.
const PATIENCE: Duration = Duration::from_millis(50);

/// Cuts connections, loses requests and replies, and delays replies: whose, when and how is random.
///
/// It goes by the requests that the server sees, so that the same seed does much the same to the
/// same behaviour.
#[derive(Debug)]
pub(crate) struct Saboteur {
    stop: Arc<AtomicBool>,
    first: Fault,
    thread: Option<JoinHandle<usize>>,
}

impl Saboteur {
    /// Starts; `spared` is the session that nothing happens to, and below `root` the reply to one
    /// of the first creates is lost in any case, however quick the behaviour is.
    pub(crate) fn start(server: Arc<Server>, spared: i64, root: &str, name: &str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (mut random, stopped) = (random::named(name), Arc::clone(&stop));
        let create = Match::op(Op::Create)
            .path_prefix(root)
            .nth(below(&mut random, 4));
        let loss = loss(&mut random);
        let first = server.drop_reply(create, loss);
        let thread = thread::Builder::new()
            .name(format!("saboteur of {name}"))
            .spawn(move || sabotage(&server, spared, random, &stopped))
            .unwrap();
        Self {
            stop,
            first,
            thread: Some(thread),
        }
    }

    /// Stops, and answers how often it has struck.
    pub(crate) fn stop(mut self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        self.thread
            .take()
            .map_or(0, |thread| thread.join().unwrap())
            + self.first.hits().len()
    }
}

impl Drop for Saboteur {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn sabotage(server: &Server, spared: i64, mut random: Random, stop: &AtomicBool) -> usize {
    let mut struck = 0;
    let mut at = random.below(3);
    while !stop.load(Ordering::Relaxed) && struck < MOST {
        let asked = move |view: View<'_>| {
            let counters = view.counters();
            counters.total_requests() - counters.total_requests_of(spared)
        };
        let mut sessions = Vec::new();
        let due = server.wait_until_blocking(
            |view| {
                let there = view
                    .sessions()
                    .into_iter()
                    .filter(|known| known.connected && known.id != spared);
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
                // Its own client may be the only one that asks: then it is let go after a while.
                let _ = server.wait_until_blocking(|view| asked(view) >= until, PATIENCE);
                gate.release();
            }
        }
        struck += 1;
        let counters = server.counters();
        at = counters.total_requests() - counters.total_requests_of(spared) + 1 + random.below(8);
    }
    server.clear_faults();
    struck
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
