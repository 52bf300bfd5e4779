//! The one place where the library starts threads, runtimes, and tasks that belong to no task set.
//!
//! A simulation (`--cfg simulation`) uses `simulation/threads.rs` instead of this file.

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
    // The runtime is created only once a thread exists that will drop it, because dropping a
    // runtime within another one, such as the caller's, panics.
    let (give, given) = mpsc::channel::<Runtime>();
    run_blocking(name, move || {
        // An error means that no runtime could be created, which the caller reports.
        if let Ok(runtime) = given.recv() {
            runtime.block_on(work);
        }
    })?;
    // `enable_all` enables IO only if tokio was compiled with it, which a `zookeeper-client` that
    // uses tokio's sockets would need.
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    // The thread waits for the runtime.
    let _ = give.send(runtime);
    Ok(handle)
}

/// Runs work that may block, on a separate thread. Linux shows at most fifteen characters of the
/// name, in `top` for example.
pub(crate) fn run_blocking(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map(drop)
}

pub(crate) fn spawn<T: Send + 'static>(
    task: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    tokio::spawn(task)
}

/// Returns the future of a task that is added to a set of tasks. A simulation wraps the future, so
/// that the task runs on the simulated thread that adds it.
pub(crate) fn on_this_thread<F: Future>(task: F) -> F {
    task
}

/// A value that belongs to one process. A forked child creates a new value, because the child has
/// none of its parent's threads, which may have been changing the value during the fork. (If a fork
/// happens while another thread reads the value, the value stays locked in the child; a read takes
/// nanoseconds.)
pub(crate) struct OfProcess<T>(Mutex<Option<(u32, Arc<T>)>>);

impl<T> OfProcess<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Creates the value, unless this process already has one.
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
