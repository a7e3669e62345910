//! One step: in a bucket, or launch by launch.

use super::activations::View;
use super::exec::{Executor, Shape};
use super::graph::{Bucket, How};
use super::model::{CudaModel, Inner};
use super::nodes::operations;
use super::record::HEAD_ROWS;
use super::sampling::{Draws, any};
use super::spans::{advance, blocks_of, own, prepare};
use crate::backend::cuda::CudaError;
use crate::backend::{RowOutput, RowWant, State, Step, Taps};
use std::sync::PoisonError;

impl CudaModel {
    pub(super) fn run(
        &self,
        step: &Step<'_>,
        states: &mut [&mut dyn State],
        taps: Option<&mut Taps>,
    ) -> Result<Vec<RowOutput>, CudaError> {
        let mut states = own(states);
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let entries = prepare(&mut states, &step.spans)?;
        let rows = step.tokens.len();
        let head_rows: Vec<u32> = (0..rows)
            .filter(|i| step.wants[*i] != RowWant::Nothing || taps.is_some())
            .map(|i| i as u32)
            .collect();
        let single = step.spans.iter().all(|s| s.rows.len() == 1);
        let blocks = blocks_of(&step.spans);
        let bucket = Bucket::of(rows, blocks)
            .filter(|_| single && taps.is_none() && self.options.graphs)
            .filter(|_| head_rows.len() == rows && inner.head.is_some());
        let outputs = match bucket {
            Some(bucket) => self.decode(&mut inner, step, &entries, &head_rows, bucket)?,
            None => self.eager(&mut inner, step, &entries, &head_rows, taps)?,
        };
        advance(&mut states, &step.spans);
        Ok(outputs)
    }

    /// A step of one row a sequence, in a bucket.
    fn decode(
        &self,
        inner: &mut Inner,
        step: &Step<'_>,
        entries: &[(Vec<u64>, u64)],
        head_rows: &[u32],
        bucket: Bucket,
    ) -> Result<Vec<RowOutput>, CudaError> {
        let pages: usize = entries.iter().map(|(p, _)| p.len()).sum();
        self.record(inner, true, HEAD_ROWS, HEAD_ROWS, pages)?;
        let bound = Shape::decode(bucket);
        self.reserve(inner, &bound, HEAD_ROWS)?;
        let record = inner.decode.as_mut().expect("made above");
        record.fill(step.tokens, &step.spans, entries, head_rows)?;
        let record = &*record;
        let (body, head) = (Shape { step: record.step(), ..bound }, record.head_step(0));
        let rows_at = record.head_rows(0);
        let buffers = inner.head.as_ref().expect("checked by the caller");
        if self.options.poison {
            inner.activations.poison(&self.device)?;
            buffers.poison(&self.device)?;
        }
        let views = inner.activations.views();
        let head_views = buffers.views(&self.plan, &views);
        let executor = self.executor(&inner.scratch);
        let launches = || -> Result<(), CudaError> {
            record.upload_all(&self.device)?;
            buffers.clear(&self.device)?;
            executor.rope_table(&body)?;
            for node in &self.fused {
                executor.node(node, &body, &views)?;
            }
            let shape = Shape { step: head, ..body };
            executor.head(&shape, rows_at, &views, &head_views, buffers, true)?;
            buffers.fetch(&self.device)
        };
        match inner.graphs.how(bucket) {
            How::Eager => launches()?,
            How::Capture => {
                inner.graphs.capture(&self.device, bucket, launches)?;
                inner.graphs.replay(bucket)?;
            }
            How::Replay => inner.graphs.replay(bucket)?,
        }
        let wants: Vec<&RowWant> = step.wants.iter().collect();
        let draws = self.draws(&mut inner.draws, &executor, &head_views, buffers.best(), &wants)?;
        buffers.outputs(&self.device, &self.plan, &wants, draws, self.launcher.round)
    }

    /// Draws for the rows that want it.
    fn draws<'d>(
        &self,
        slot: &'d mut Option<Draws>,
        executor: &Executor<'_>,
        head_views: &[View],
        best: u64,
        wants: &[&RowWant],
    ) -> Result<Option<&'d Draws>, CudaError> {
        if !any(wants) {
            return Ok(None);
        }
        let logits = head_views[self.plan.logits.0];
        if slot.is_none() {
            *slot = Some(Draws::new(&self.device, logits.width as usize)?);
        }
        let draws = slot.as_mut().expect("made above");
        executor.sample(draws, logits, best, wants)?;
        Ok(Some(draws))
    }

    /// Any step, launch by launch.
    fn eager(
        &self,
        inner: &mut Inner,
        step: &Step<'_>,
        entries: &[(Vec<u64>, u64)],
        head_rows: &[u32],
        mut taps: Option<&mut Taps>,
    ) -> Result<Vec<RowOutput>, CudaError> {
        let shape = self.begin(inner, step.tokens, &step.spans, entries, head_rows)?;
        let views = inner.activations.views();
        let nodes = if taps.is_some() { &self.plain } else { &self.fused };
        let executor = self.executor(&inner.scratch);
        executor.rope_table(&shape)?;
        for node in nodes {
            executor.node(node, &shape, &views)?;
            if self.options.poison {
                self.device.synchronize()?;
            }
            if let Some(taps) = taps.as_deref_mut() {
                let rows = step.tokens.len();
                let members = operations(node);
                let ops: Vec<_> = members.iter().map(|i| &self.plan.ops[*i]).collect();
                self.capture(&mut inner.scratch.export, &ops, rows, &views, taps)?;
            }
        }
        let mut outputs = vec![RowOutput::Nothing; step.tokens.len()];
        let Some(buffers) = inner.head.as_ref() else {
            self.device.synchronize()?;
            return Ok(outputs);
        };
        let record = inner.other.as_ref().expect("made by `begin`");
        let head_views = buffers.views(&self.plan, &views);
        for (i, block) in head_rows.chunks(HEAD_ROWS).enumerate() {
            let wants: Vec<&RowWant> = block.iter().map(|r| &step.wants[*r as usize]).collect();
            let tapped = taps.is_some();
            let logits =
                tapped || wants.iter().any(|w| !matches!(w, RowWant::Nothing | RowWant::Hidden));
            buffers.clear(&self.device)?;
            let shape = Shape { step: record.head_step(i), rows: block.len(), ..shape };
            let rows_at = record.head_rows(i);
            executor.head(&shape, rows_at, &views, &head_views, buffers, logits)?;
            buffers.fetch(&self.device)?;
            if let Some(taps) = taps.as_deref_mut() {
                let ops: Vec<_> = self.plan.head_ops.iter().collect();
                let scratch = &mut inner.scratch.export;
                self.capture(scratch, &ops, block.len(), &head_views, taps)?;
            }
            let draws =
                self.draws(&mut inner.draws, &executor, &head_views, buffers.best(), &wants)?;
            let found =
                buffers.outputs(&self.device, &self.plan, &wants, draws, self.launcher.round)?;
            for (row, output) in block.iter().zip(found) {
                outputs[*row as usize] = output;
            }
        }
        self.device.synchronize()?;
        Ok(outputs)
    }
}
