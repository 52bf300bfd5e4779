//! Counts the bytes that a thread has allocated and not freed: a simulation is one thread, so what
//! is left at its end has leaked.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

#[global_allocator]
static COUNTING: Counting = Counting;

thread_local! {
    static BYTES: Cell<i64> = const { Cell::new(0) };
}

struct Counting;

fn add(bytes: i64) {
    // A thread that ends also frees memory after its counter is gone.
    let _ = BYTES.try_with(|count| count.set(count.get() + bytes));
}

// SAFETY: the system's allocator does it all; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size() as i64);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size() as i64);
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        add(-(layout.size() as i64));
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        add(size as i64 - layout.size() as i64);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Returns the bytes that this thread has allocated and not freed.
pub fn held() -> i64 {
    BYTES.with(Cell::get)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_unfreed_memory() {
        let before = held();
        let kept = vec![0_u8; 4096];
        assert_eq!(held() - before, 4096);
        drop(kept);
        assert_eq!(held(), before);
    }
}
