//! The deadline of a command in `zklock` itself: a thread that kills the command when the deadline
//! passes, as the watchdog does.
//!
//! One of the two is enough, so that a stopped watchdog does not save the command. The thread is no
//! task of the runtime, so that a call that blocks the runtime does not delay the deadline.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::Signal;

use crate::clock;
use crate::target::Target;

/// A deadline, and whom it is for.
type Order = (Duration, Target);

/// The deadline of a target. Dropping the deadline lets the target be.
#[derive(Debug)]
pub(crate) struct Deadline {
    /// `None` once the deadline has been ended.
    thread: Option<(Sender<Order>, JoinHandle<()>)>,
}

impl Deadline {
    /// Starts the thread.
    pub(crate) fn start() -> io::Result<Self> {
        let (sender, receiver) = channel();
        let thread = std::thread::Builder::new()
            .name("deadline".to_owned())
            .spawn(move || watch(&receiver))?;
        Ok(Self {
            thread: Some((sender, thread)),
        })
    }

    /// Lets the target be, and returns when the thread sends it no signal any more. The thread ends
    /// at once.
    pub(crate) fn end(&mut self) {
        if let Some((orders, thread)) = self.thread.take() {
            drop(orders);
            // A thread that has panicked has ended, too.
            let _ = thread.join();
        }
    }

    /// Sets the deadline, sooner or later than it was, and whom it is for.
    pub(crate) fn set(&self, deadline: Duration, target: Target) {
        // A thread that has ended has killed the target that it knew. If that was the group before
        // the command was in it, the watchdog is dead, and the command does not begin.
        if let Some((orders, _)) = &self.thread {
            let _ = orders.send((deadline, target));
        }
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        self.end();
    }
}

/// Kills the target at its deadline.
fn watch(orders: &Receiver<Order>) {
    let mut order = None;
    loop {
        let left = order.map_or(Duration::MAX, |(deadline, _): Order| {
            deadline.saturating_sub(clock::now())
        });
        match (orders.recv_timeout(left.min(clock::INTERVAL)), order) {
            (Ok(next), _) => order = Some(next),
            (Err(RecvTimeoutError::Disconnected), _) => return,
            // The deadline counts only if no later order has come.
            (Err(RecvTimeoutError::Timeout), Some((deadline, target)))
                if clock::now() >= deadline =>
            {
                target.send(Signal::KILL);
                return;
            }
            (Err(RecvTimeoutError::Timeout), _) => {}
        }
    }
}
