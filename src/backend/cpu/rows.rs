//! Splitting work over rows of a buffer.

use rayon::prelude::*;
use std::marker::PhantomData;

/// Values that one thread handles without asking others.
const INLINE_VALUES: usize = 16 << 10;

/// Multiply-adds that are worth waking another thread for.
const TASK_PRODUCTS: usize = 128 << 10;

/// Items of `products` multiply-adds that one task should hold at least.
pub(super) fn items_per_task(products: usize) -> usize {
    (TASK_PRODUCTS / products.max(1)).max(1)
}

/// Runs `f(row index, row)` for every row of `width` values, in parallel when there is enough work.
pub(super) fn for_each_row(rows: &mut [f32], width: usize, f: impl Fn(usize, &mut [f32]) + Sync) {
    if rows.len() <= INLINE_VALUES {
        rows.chunks_exact_mut(width).enumerate().for_each(|(i, row)| f(i, row));
    } else {
        rows.par_chunks_exact_mut(width).enumerate().for_each(|(i, row)| f(i, row));
    }
}

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
