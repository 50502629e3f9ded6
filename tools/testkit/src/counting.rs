//! How much memory a piece of work takes, for tests.

#![expect(unsafe_code, reason = "only an allocator sees what is taken")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, which counts what a thread holds and refuses what is beyond its limit:
/// a test that asks for a terabyte ends there. A crate whose tests use such a limit takes it as its
/// allocator.
pub struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
    static LIMIT: Cell<isize> = const { Cell::new(isize::MAX) };
    static TAKEN: Cell<usize> = const { Cell::new(0) };
}

/// Counts; whether it stays within the limit. A thread that ends counts no more.
fn count(bytes: isize) -> bool {
    let counted = HELD.try_with(|held| {
        let now = held.get().saturating_add(bytes);
        held.set(now);
        TAKEN.set(TAKEN.get() + usize::try_from(bytes).unwrap_or(0));
        PEAK.set(PEAK.get().max(now));
        now <= LIMIT.get()
    });
    counted.unwrap_or(true)
}

// SAFETY: the calls are passed on as they are, or refused with a null pointer.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match count(layout.size().cast_signed()) {
            true => unsafe { System.alloc(layout) },
            false => std::ptr::null_mut(),
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        match count(size.cast_signed() - layout.size().cast_signed()) {
            true => unsafe { System.realloc(block, layout, size) },
            false => std::ptr::null_mut(),
        }
    }
}

/// Bytes that the work held at once beyond what was there before; more than `most` it cannot get.
pub fn peak(most: isize, work: impl FnOnce()) -> isize {
    let before = HELD.get();
    PEAK.set(before);
    LIMIT.set(before + most);
    work();
    LIMIT.set(isize::MAX);
    PEAK.get() - before
}

/// Bytes that the work took in all, given back or not: the same on a machine of any load.
pub fn taken(work: impl FnOnce()) -> usize {
    let before = TAKEN.get();
    work();
    TAKEN.get() - before
}
