//! Processes and their threads: every task belongs to one, is not polled while that is frozen, and
//! ends with it.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use tokio::task::AbortHandle;

#[derive(Debug, Default)]
struct State {
    frozen: u32,
    waiting: Vec<Waker>,
    tasks: Vec<AbortHandle>,
    is_over: bool,
}

/// A process, or a thread of one.
#[derive(Debug)]
pub struct Host {
    /// The number of the process.
    process: u64,
    /// The process of this thread.
    above: Option<Arc<Self>>,
    state: Mutex<State>,
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<Host>>> = const { RefCell::new(None) };
}

impl Host {
    /// Returns a process of that number.
    pub fn new(process: u64) -> Arc<Self> {
        Arc::new(Self {
            process,
            above: None,
            state: Mutex::default(),
        })
    }
    /// Starts another thread of this process.
    pub fn thread(self: &Arc<Self>) -> Arc<Self> {
        let above = self.above.clone().unwrap_or_else(|| Arc::clone(self));
        Arc::new(Self {
            process: self.process,
            above: Some(above),
            state: Mutex::default(),
        })
    }
    pub fn process(&self) -> u64 {
        self.process
    }
    /// Takes a task that is to be aborted with this thread.
    pub fn adopt(&self, task: AbortHandle) {
        let mut state = self.state.lock().unwrap();
        if state.is_over {
            drop(state);
            return task.abort();
        }
        // The tasks that have ended are removed from time to time.
        if state.tasks.len() == state.tasks.capacity() {
            state.tasks.retain(|task| !task.is_finished());
        }
        state.tasks.push(task);
    }
    /// Aborts all tasks of this thread.
    pub fn end(&self) {
        let tasks = {
            let mut state = self.state.lock().unwrap();
            state.is_over = true;
            std::mem::take(&mut state.tasks)
        };
        tasks.iter().for_each(AbortHandle::abort);
    }
    /// Returns whether the thread, or its process, is frozen.
    pub fn is_frozen(&self) -> bool {
        self.state.lock().unwrap().frozen > 0
            || self.above.as_ref().is_some_and(|above| above.is_frozen())
    }
    pub fn freeze(&self) {
        self.state.lock().unwrap().frozen += 1;
    }
    pub fn thaw(&self) {
        let waiting = {
            let mut state = self.state.lock().unwrap();
            state.frozen -= 1;
            if state.frozen > 0 {
                Vec::new()
            } else {
                std::mem::take(&mut state.waiting)
            }
        };
        waiting.into_iter().for_each(Waker::wake);
    }
    fn stops(&self, context: &Context<'_>) -> bool {
        {
            let mut state = self.state.lock().unwrap();
            if state.frozen > 0 {
                if !state
                    .waiting
                    .iter()
                    .any(|waker| waker.will_wake(context.waker()))
                {
                    state.waiting.push(context.waker().clone());
                }
                return true;
            }
        }
        self.above
            .as_ref()
            .is_some_and(|above| above.stops(context))
    }
}

pub fn current() -> Option<Arc<Host>> {
    CURRENT.with(|current| current.borrow().clone())
}

/// The value of the current thread before [`enter`], which is restored on drop.
#[derive(Debug)]
pub struct Entered(Option<Arc<Host>>);

impl Drop for Entered {
    fn drop(&mut self) {
        let before = self.0.take();
        drop(CURRENT.with(|current| current.replace(before)));
    }
}

/// Makes a thread the current one.
#[must_use]
pub fn enter(host: &Arc<Host>) -> Entered {
    Entered(CURRENT.with(|current| current.replace(Some(Arc::clone(host)))))
}

/// Polls something on a thread, unless that is frozen.
pub fn poll_on(
    host: &Arc<Host>,
    context: &mut Context<'_>,
    task: &mut dyn FnMut(&mut Context<'_>),
) {
    if host.stops(context) {
        return;
    }
    let _entered = enter(host);
    task(context);
}

/// A future that is polled on a host.
pub struct On<F> {
    host: Option<Arc<Host>>,
    future: Pin<Box<F>>,
}

pub fn on<F: Future>(host: &Arc<Host>, future: F) -> On<F> {
    On {
        host: Some(Arc::clone(host)),
        future: Box::pin(future),
    }
}

impl<F: Future> Future for On<F> {
    type Output = F::Output;
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let Self { host, future } = &mut *self;
        let Some(host) = host else {
            return future.as_mut().poll(context);
        };
        let mut polled = Poll::Pending;
        poll_on(host, context, &mut |context| {
            polled = future.as_mut().poll(context)
        });
        polled
    }
}

/// Spawns a task of the current thread.
pub fn spawn<F>(future: F) -> tokio::task::JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let host = current();
    let task = tokio::spawn(On {
        host: host.clone(),
        future: Box::pin(future),
    });
    if let Some(host) = host {
        host.adopt(task.abort_handle());
    }
    task
}
