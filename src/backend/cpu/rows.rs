//! Splitting work over rows of a buffer.

use super::pool::{current_threads, run_tasks};
use std::marker::PhantomData;
use std::ops::Range;

/// Values that one thread handles without asking others.
const INLINE_VALUES: usize = 16 << 10;

/// Multiply-adds that are worth waking another thread for.
const TASK_PRODUCTS: usize = 128 << 10;

/// Tasks per thread, so that a thread which starts late or is interrupted holds up little.
const TASKS_PER_THREAD: usize = 6;

/// Items of `products` multiply-adds that one task should hold at least.
pub(super) fn items_per_task(products: usize) -> usize {
    (TASK_PRODUCTS / products.max(1)).max(1)
}

/// Runs `f` over consecutive ranges that cover `0 .. items`, in parallel; a range holds at least
/// `least` items where there are that many.
pub(super) fn for_ranges(items: usize, least: usize, f: impl Fn(Range<usize>) + Sync) {
    let threads = current_threads();
    let most = if threads == 1 { 1 } else { threads * TASKS_PER_THREAD };
    let tasks = (items / least.max(1)).clamp(1, most);
    if tasks == 1 {
        return f(0..items);
    }
    run_tasks(tasks, &|i| f(items * i / tasks..items * (i + 1) / tasks));
}

/// As [`for_ranges`], in ranges that become shorter: again and again every thread can take half of its
/// share of what is left (factoring; Hummel, Schonberg and Flynn, 1992). Long runs come first, and
/// threads of unequal speed end within one short range of each other.
pub(super) fn for_falling_ranges(items: usize, least: usize, f: impl Fn(Range<usize>) + Sync) {
    let threads = current_threads();
    if threads == 1 || items < 2 * least {
        return f(0..items);
    }
    let mut ends = vec![0];
    let mut at = 0;
    while at < items {
        let len = (items - at).div_ceil(2 * threads).max(least);
        for _ in 0..threads {
            if at < items {
                at = (at + len).min(items);
                ends.push(at);
            }
        }
    }
    run_tasks(ends.len() - 1, &|i| f(ends[i]..ends[i + 1]));
}

/// Runs `f(i, chunk i)` for every chunk of `len` elements (the last may be shorter), in parallel; a
/// task holds at least `least` chunks.
pub(super) fn for_each_chunk<T: Send>(
    data: &mut [T],
    len: usize,
    least: usize,
    f: impl Fn(usize, &mut [T]) + Sync,
) {
    let total = data.len();
    let start = SendPointer(data.as_mut_ptr());
    for_ranges(total.div_ceil(len), least, |range| {
        for i in range {
            let end = ((i + 1) * len).min(total);
            // SAFETY: ranges are disjoint and end within `data`, which is borrowed for the call.
            let chunk =
                unsafe { std::slice::from_raw_parts_mut(start.get().add(i * len), end - i * len) };
            f(i, chunk);
        }
    });
}

/// Runs `f(i, part i)` for every part, in parallel; a task holds at least `least` parts.
pub(super) fn for_each_part<T: Send>(
    mut parts: Vec<T>,
    least: usize,
    f: impl Fn(usize, &mut T) + Sync,
) {
    for_each_chunk(&mut parts, 1, least, |i, part| f(i, &mut part[0]));
}

/// Runs `f(row index, row)` for every row of `width` values, in parallel when there is enough work.
pub(super) fn for_each_row(rows: &mut [f32], width: usize, f: impl Fn(usize, &mut [f32]) + Sync) {
    if rows.len() <= INLINE_VALUES {
        rows.chunks_exact_mut(width).enumerate().for_each(|(i, row)| f(i, row));
    } else {
        let least = (INLINE_VALUES / 4 / width).max(1);
        let whole = rows.len() / width * width;
        for_each_chunk(&mut rows[..whole], width, least, f);
    }
}

struct SendPointer<T>(*mut T);

impl<T> SendPointer<T> {
    /// A method, so that closures capture the wrapper and not the pointer.
    fn get(&self) -> *mut T {
        self.0
    }
}

// SAFETY: used only for disjoint elements of a slice of `T: Send` that is borrowed meanwhile.
unsafe impl<T: Send> Sync for SendPointer<T> {}

/// Write access to a row-major matrix from tasks that own disjoint column ranges.
pub(super) struct Scatter<'a> {
    start: *mut f32,
    len: usize,
    width: usize,
    borrow: PhantomData<&'a mut [f32]>,
}

// SAFETY: the only access is `write`, whose contract is that calls never overlap.
unsafe impl Sync for Scatter<'_> {}
// SAFETY: as above; the pointer stays valid for the borrow.
unsafe impl Send for Scatter<'_> {}

impl<'a> Scatter<'a> {
    /// A matrix of rows of `width` values.
    pub(super) fn new(matrix: &'a mut [f32], width: usize) -> Scatter<'a> {
        Scatter { start: matrix.as_mut_ptr(), len: matrix.len(), width, borrow: PhantomData }
    }

    /// Copies `values` to columns `column ..` of a row.
    ///
    /// # Safety
    /// No other call may write the same elements at the same time.
    pub(super) unsafe fn write(&self, row: usize, column: usize, values: &[f32]) {
        let offset = row * self.width + column;
        assert!(column + values.len() <= self.width && offset + values.len() <= self.len);
        // SAFETY: in bounds by the assertion; exclusive by the caller's promise.
        unsafe {
            std::ptr::copy_nonoverlapping(values.as_ptr(), self.start.add(offset), values.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::pool::Pool;

    #[test]
    fn falling_ranges_cover_everything_once_and_fall() {
        for (threads, items, least) in [(1, 9, 2), (2, 60, 2), (2, 1, 1), (3, 1000, 7), (5, 8, 1)] {
            let pool = Pool::new(threads).unwrap();
            let seen = std::sync::Mutex::new(Vec::new());
            pool.install(|| for_falling_ranges(items, least, |r| seen.lock().unwrap().push(r)));
            let mut ranges: Vec<Range<usize>> = seen.into_inner().unwrap();
            ranges.sort_by_key(|r| r.start);
            assert_eq!((ranges[0].start, ranges[ranges.len() - 1].end), (0, items));
            for pair in ranges.windows(2) {
                assert_eq!(pair[0].end, pair[1].start);
                assert!(pair[0].len() >= pair[1].len(), "{ranges:?}");
            }
        }
    }

    #[test]
    fn chunks_cover_everything_once() {
        let pool = Pool::new(3).unwrap();
        for (total, len, least) in [(0, 4, 1), (1, 4, 1), (1001, 7, 2), (64, 64, 1), (50, 1, 9)] {
            let mut data = vec![0usize; total];
            pool.install(|| {
                for_each_chunk(&mut data, len, least, |i, chunk| {
                    for (j, x) in chunk.iter_mut().enumerate() {
                        *x += i * len + j + 1;
                    }
                });
            });
            assert!(data.iter().enumerate().all(|(i, x)| *x == i + 1), "{total} {len} {least}");
        }
    }
}
