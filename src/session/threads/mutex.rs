//! The library's mutex: a panic under it does not poison it.

use std::sync::PoisonError;

pub(crate) use std::sync::MutexGuard;

/// Like [`std::sync::Mutex`], but for values that are consistent after each statement that changes
/// them. A thread that panics, such as one of the caller's, must not make the others panic as well,
/// or refuse to release a lock.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}
