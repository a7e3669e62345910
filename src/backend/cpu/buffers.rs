//! Row buffers of a step.

use crate::backend::{Buf, BufferSpec};

/// One row-major FP32 matrix per buffer of the plan.
#[derive(Debug)]
pub struct Buffers {
    widths: Vec<usize>,
    data: Vec<Vec<f32>>,
}

impl Buffers {
    /// Empty buffers for a plan.
    pub fn new(specs: &[BufferSpec]) -> Buffers {
        Buffers {
            widths: specs.iter().map(|s| s.width).collect(),
            data: specs.iter().map(|_| Vec::new()).collect(),
        }
    }

    /// Sizes every buffer for `rows` rows. Contents are unspecified; with `poison` they are NaN, so
    /// that an operation which reads what nothing wrote cannot go unnoticed.
    pub fn resize(&mut self, rows: usize, poison: bool) {
        for (data, width) in self.data.iter_mut().zip(&self.widths) {
            if poison {
                data.clear();
            }
            data.resize(rows * width, f32::NAN);
        }
    }

    /// Sizes only some buffers, as [`Buffers::resize`] does.
    pub(super) fn resize_only(&mut self, buffers: &[Buf], rows: usize, poison: bool) {
        for buf in buffers {
            if poison {
                self.data[buf.0].clear();
            }
            self.data[buf.0].resize(rows * self.widths[buf.0], f32::NAN);
        }
    }

    /// Rows of a buffer.
    pub fn get(&self, buf: Buf) -> &[f32] {
        &self.data[buf.0]
    }

    /// Rows of a buffer, to write.
    pub fn get_mut(&mut self, buf: Buf) -> &mut [f32] {
        &mut self.data[buf.0]
    }

    /// Width of a buffer's rows.
    pub fn width(&self, buf: Buf) -> usize {
        self.widths[buf.0]
    }

    /// Runs `f` with one buffer writable and the others readable.
    pub(super) fn with<R>(&mut self, out: Buf, f: impl FnOnce(&mut [f32], &Buffers) -> R) -> R {
        let mut taken = std::mem::take(&mut self.data[out.0]);
        let result = f(&mut taken, self);
        self.data[out.0] = taken;
        result
    }

    /// Runs `f` with two buffers writable and the others readable.
    pub(super) fn with_two<R>(
        &mut self,
        outs: [Buf; 2],
        f: impl FnOnce([&mut [f32]; 2], &Buffers) -> R,
    ) -> R {
        let [mut first, mut second] = outs.map(|buf| self.take(buf));
        let result = f([&mut first, &mut second], self);
        for (buf, data) in outs.into_iter().zip([first, second]) {
            self.put(buf, data);
        }
        result
    }

    /// Takes a buffer out, to be returned with [`Buffers::put`].
    pub(super) fn take(&mut self, buf: Buf) -> Vec<f32> {
        std::mem::take(&mut self.data[buf.0])
    }

    /// Returns a buffer taken out.
    pub(super) fn put(&mut self, buf: Buf, data: Vec<f32>) {
        self.data[buf.0] = data;
    }
}
