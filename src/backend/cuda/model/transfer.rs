//! Rows between device and host, and regions by themselves.

use super::activations::View;
use super::launcher::grid;
use super::memory::Memory;
use super::model::CudaModel;
use super::room::{address, grow};
use super::spans::{advance, own, prepare};
use crate::backend::cuda::CudaError;
use crate::backend::cuda::launch::Argument;
use crate::backend::{RegionRun, State, Taps};
use std::sync::PoisonError;

impl CudaModel {
    /// Captures the requested buffers of operations.
    pub(super) fn capture(
        &self,
        scratch: &mut Option<Memory>,
        ops: &[&crate::backend::Op],
        rows: usize,
        views: &[View],
        taps: &mut Taps,
    ) -> Result<(), CudaError> {
        for (name, buf) in ops.iter().flat_map(|op| &op.taps) {
            if taps.wants(name) {
                let view = views[buf.0];
                let values = self.export(scratch, view, rows)?;
                taps.append(name, view.width as usize, &values);
            }
        }
        Ok(())
    }

    /// Rows of a buffer in FP32 on the host.
    pub(super) fn export(
        &self,
        scratch: &mut Option<Memory>,
        view: View,
        rows: usize,
    ) -> Result<Vec<f32>, CudaError> {
        let count = rows * view.width as usize;
        grow(&self.device, scratch, count * 4)?;
        let bf16 = self.launcher.round && !view.wide;
        let entry = if bf16 { "convert_rows_bf16_f32" } else { "convert_rows_f32_f32" };
        let arguments = vec![
            Argument::U64(view.address),
            Argument::U32(view.pitch),
            Argument::U64(address(scratch)),
            Argument::U32(view.width),
            Argument::U32(view.width),
        ];
        let blocks = grid(view.width.div_ceil(1024), rows as u32, 1, 128);
        // SAFETY: both sides have `rows` rows of this width.
        unsafe { self.launcher.run("elementwise", entry, blocks, arguments)? };
        scratch.as_ref().map_or(Ok(Vec::new()), |m| m.read(&self.device, 0, count))
    }

    /// Rows of a buffer from FP32 on the host.
    pub(super) fn import(
        &self,
        scratch: &mut Option<Memory>,
        view: View,
        rows: usize,
        values: &[f32],
    ) -> Result<(), CudaError> {
        grow(&self.device, scratch, values.len() * 4)?;
        let Some(memory) = scratch else { return Ok(()) };
        memory.write(&self.device, 0, values)?;
        let bf16 = self.launcher.round && !view.wide;
        let entry = if bf16 { "convert_rows_f32_bf16" } else { "convert_rows_f32_f32" };
        let arguments = vec![
            Argument::U64(memory.address()),
            Argument::U32(view.width),
            Argument::U64(view.address),
            Argument::U32(view.pitch),
            Argument::U32(view.width),
        ];
        let blocks = grid(view.width.div_ceil(1024), rows as u32, 1, 128);
        // SAFETY: both sides have `rows` rows of this width.
        unsafe { self.launcher.run("elementwise", entry, blocks, arguments)? };
        self.device.synchronize()
    }

    pub(super) fn run_region(
        &self,
        run: &RegionRun<'_>,
        states: &mut [&mut dyn State],
    ) -> Result<Vec<Vec<f32>>, CudaError> {
        let mut states = own(states);
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let inner = &mut *inner;
        let entries = prepare(&mut states, run.spans)?;
        let rows = run.spans.last().map_or(0, |s| s.rows.end);
        let shape = self.begin(inner, run.tokens, run.spans, &entries, &[])?;
        let views = inner.activations.views();
        for (buf, values) in run.inputs {
            self.import(&mut inner.scratch.export, views[buf.0], rows, values)?;
        }
        let executor = self.executor(&inner.scratch);
        executor.rope_table(&shape)?;
        for node in &self.plain {
            executor.node(node, &shape, &views)?;
        }
        self.device.synchronize()?;
        advance(&mut states, run.spans);
        run.outputs
            .iter()
            .map(|buf| self.export(&mut inner.scratch.export, views[buf.0], rows))
            .collect()
    }
}
