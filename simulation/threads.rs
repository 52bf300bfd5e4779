//! Replaces the library's `src/session/threads/background.rs` in a simulation: one thread of the
//! operating system runs all processes, in virtual time. A thread is a [`Host`] there, whose tasks
//! end with the first of them, as those of a runtime do, and are not polled while it is frozen.

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::marker::PhantomData;
use std::pin::Pin;
use std::ptr;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use tokio::task::{AbortHandle, JoinHandle};

/// A thread of a simulated process.
pub trait Host: fmt::Debug + Send + Sync {
    /// Returns the number of the process.
    fn process(&self) -> u64;

    /// Returns another thread of the process.
    fn thread(&self) -> Arc<dyn Host>;

    /// Polls a task of this thread, which is the [current](set_current) one meanwhile. A thread
    /// that is frozen keeps the waker and does not poll.
    fn poll(&self, context: &mut Context<'_>, task: &mut dyn FnMut(&mut Context<'_>));

    /// Takes a task of this thread, to be aborted at the [end](Self::end).
    fn adopt(&self, task: AbortHandle);

    /// Ends the thread.
    fn end(&self);

    /// Returns whether a server accepts connections.
    fn accepts<'a>(&self, host: &'a str, port: u16) -> Answer<'a>;
}

/// The answer to a question about a server.
pub type Answer<'a> = Pin<Box<dyn Future<Output = bool> + Send + 'a>>;

type Current = fn() -> Option<Arc<dyn Host>>;

static CURRENT: OnceLock<Current> = OnceLock::new();

/// Sets how the thread that a simulation runs at present is found. Only the first call in a process
/// has an effect.
pub fn set_current(current: Current) {
    let _ = CURRENT.set(current);
}

fn current() -> Option<Arc<dyn Host>> {
    CURRENT.get()?()
}

fn nowhere() -> io::Error {
    io::Error::other("not in a simulated process")
}

/// Spawns tasks on a simulated thread.
#[derive(Clone, Debug)]
pub(crate) struct Handle(Arc<dyn Host>);

impl Handle {
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        let task = tokio::spawn(On {
            host: Some(Arc::clone(&self.0)),
            task: Box::pin(task),
        });
        self.0.adopt(task.abort_handle());
        task
    }
}

pub(crate) fn start(
    _name: &str,
    work: impl Future<Output = ()> + Send + 'static,
) -> io::Result<Handle> {
    let host = current().ok_or_else(nowhere)?.thread();
    let thread = Handle(Arc::clone(&host));
    let over = Over(host);
    thread.spawn(async move {
        work.await;
        drop(over);
    });
    Ok(thread)
}

/// Ends a thread when its work ends, also by a panic.
struct Over(Arc<dyn Host>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// A simulation has no thread that may block.
pub(crate) fn run_blocking(_name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    drop(work);
    Err(io::ErrorKind::Unsupported.into())
}

/// Returns whether a server accepts connections; `None` outside of a simulated process.
pub(crate) fn accepts(host: &str, port: u16) -> Option<Answer<'_>> {
    Some(current()?.accepts(host, port))
}

pub(crate) fn spawn<T: Send + 'static>(
    task: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    match current() {
        Some(host) => Handle(host).spawn(task),
        None => tokio::spawn(task),
    }
}

pub(crate) fn on_this_thread<F: Future>(task: F) -> On<F> {
    On {
        host: current(),
        task: Box::pin(task),
    }
}

/// A future that is polled on a simulated thread.
pub(crate) struct On<F> {
    host: Option<Arc<dyn Host>>,
    task: Pin<Box<F>>,
}

impl<F: Future> Future for On<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let Self { host, task } = &mut *self;
        let Some(host) = host else {
            return task.as_mut().poll(context);
        };
        let mut polled = Poll::Pending;
        host.poll(context, &mut |context| polled = task.as_mut().poll(context));
        polled
    }
}

/// A value of each simulated process.
#[derive(Debug)]
pub(crate) struct OfProcess<T> {
    of: PhantomData<fn() -> T>,
    /// The type has a size, because values are told apart by their addresses.
    _size: u8,
}

type Values = BTreeMap<(u64, usize), Arc<dyn Any + Send + Sync>>;

thread_local! {
    // A simulation is one thread, so the values are dropped with it.
    static VALUES: RefCell<Values> = const { RefCell::new(BTreeMap::new()) };
}

impl<T: Send + Sync + 'static> OfProcess<T> {
    pub(crate) const fn new() -> Self {
        Self {
            of: PhantomData,
            _size: 0,
        }
    }

    fn key(&self) -> Option<(u64, usize)> {
        current().map(|host| (host.process(), ptr::from_ref(self).addr()))
    }

    pub(crate) fn start(&self, make: impl FnOnce() -> io::Result<Arc<T>>) -> io::Result<()> {
        let key = self.key().ok_or_else(nowhere)?;
        if VALUES.with_borrow(|values| !values.contains_key(&key)) {
            let made = make()?;
            VALUES.with_borrow_mut(|values| values.insert(key, made));
        }
        Ok(())
    }

    pub(crate) fn get(&self) -> Option<Arc<T>> {
        let key = self.key()?;
        let value = VALUES.with_borrow(|values| values.get(&key).map(Arc::clone))?;
        value.downcast().ok()
    }
}
