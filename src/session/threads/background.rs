//! The one place where the library starts threads, runtimes, and tasks that belong to no task set.
//!
//! A simulation (`--cfg simulation`) has `simulation/threads.rs` in its place.

use std::future::Future;
use std::sync::{Arc, mpsc};
use std::{io, thread};

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use crate::session::threads::mutex::Mutex;

pub(crate) use tokio::runtime::Handle;

/// Runs a future to its end, on a separate thread with a separate runtime. The tasks of the runtime
/// end with it.
pub(crate) fn start(
    name: &str,
    work: impl Future<Output = ()> + Send + 'static,
) -> io::Result<Handle> {
    // The runtime is made once there is a thread to drop it: the caller may be in another runtime,
    // where that is a panic.
    let (give, given) = mpsc::channel::<Runtime>();
    run_blocking(name, move || {
        // An error reports to the caller that there is no runtime.
        if let Ok(runtime) = given.recv() {
            runtime.block_on(work);
        }
    })?;
    // IO only where tokio has been compiled with it: for a zookeeper-client that uses tokio's
    // sockets.
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    // The thread waits for it.
    let _ = give.send(runtime);
    Ok(handle)
}

/// Runs work that may block, on a separate thread.
pub(crate) fn run_blocking(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map(drop)
}

/// Spawns a task on the current runtime.
pub(crate) fn spawn<T: Send + 'static>(
    task: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    tokio::spawn(task)
}

/// Returns a future for a set of tasks.
pub(crate) fn here<F: Future>(task: F) -> F {
    task
}

/// A value of this process. A forked child makes another: it has none of its parent's threads, and
/// these may have been changing the value during the fork. (A fork while another thread looks the
/// value up would leave it locked in the child; that takes nanoseconds.)
pub(crate) struct OfProcess<T>(Mutex<Option<(u32, Arc<T>)>>);

impl<T> OfProcess<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Makes the value, unless this process has it.
    pub(crate) fn start(&self, make: impl FnOnce() -> io::Result<Arc<T>>) -> io::Result<()> {
        self.start_in(std::process::id(), make)
    }

    fn start_in(&self, process: u32, make: impl FnOnce() -> io::Result<Arc<T>>) -> io::Result<()> {
        let mut value = self.0.lock();
        if value
            .as_ref()
            .is_none_or(|(made_in, _)| *made_in != process)
        {
            *value = Some((process, make()?));
        }
        Ok(())
    }

    /// Returns the value; `None` before it is [made](Self::start).
    pub(crate) fn get(&self) -> Option<Arc<T>> {
        let value = self.0.lock();
        value.as_ref().map(|(_, value)| Arc::clone(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Shows: telling-a-loss
    #[test]
    fn forked_child_makes_its_own_value() {
        let value = OfProcess::new();
        assert!(value.get().is_none());
        value
            .start_in(1, || Err::<Arc<u32>, _>(io::Error::other("no thread")))
            .unwrap_err();
        for (process, made, kept) in [(1, 10, 10), (1, 11, 10), (2, 20, 20)] {
            value.start_in(process, || Ok(Arc::new(made))).unwrap();
            assert_eq!(*value.get().unwrap(), kept);
        }
    }

    #[tokio::test]
    async fn thread_ends_and_drops_its_tasks() {
        let (over, ended) = tokio::sync::oneshot::channel::<()>();
        let (go, gone) = tokio::sync::oneshot::channel();
        let handle = start("test", async move { drop(gone.await) }).unwrap();
        handle.spawn(async move {
            std::future::pending::<()>().await;
            drop(over);
        });
        go.send(()).unwrap();
        test_support::within("the end of the task", ended)
            .await
            .unwrap_err();
    }
}
