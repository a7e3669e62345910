//! Final norm, logits and what is made of them, for blocks of 64 wanted rows.

use super::activations::View;
use super::exec::{Executor, Shape, pointer, wide};
use super::launcher::grid;
use super::memory::{Memory, Pinned};
use super::record::HEAD_ROWS;
use super::sampling::Draws;
use crate::backend::cpu::{log_softmax, top};
use crate::backend::cuda::launch::Argument;
use crate::backend::cuda::{CudaError, Device};
use crate::backend::{Buf, NonFinite, OpKind, Plan, RowOutput, RowWant};

/// Memory of the head's rows.
#[derive(Debug)]
pub(super) struct HeadBuffers {
    residual: Memory,
    hidden: Memory,
    logits: Memory,
    /// Keys of the best logit of every row.
    best: Memory,
    best_host: Pinned<u64>,
}

/// Of how many blocks the search for the best logit of a row consists.
const GREEDY_BLOCKS: u32 = 32;

impl HeadBuffers {
    /// Buffers for a plan, or none for a plan without a head.
    pub(super) fn new(
        device: &Device,
        plan: &Plan,
        round: bool,
    ) -> Result<Option<HeadBuffers>, CudaError> {
        let width = |buf: Buf| plan.buffers.get(buf.0).map(|b| b.width);
        let widths = (width(plan.residual), width(plan.final_hidden), width(plan.logits));
        let (Some(residual), Some(hidden), Some(logits)) = widths else { return Ok(None) };
        if plan.head_ops.is_empty() {
            return Ok(None);
        }
        let element = if round { 2 } else { 4 };
        Ok(Some(HeadBuffers {
            residual: Memory::zeros(device, HEAD_ROWS * residual * element)?,
            hidden: Memory::zeros(device, HEAD_ROWS * hidden * element)?,
            logits: Memory::zeros(device, HEAD_ROWS * logits * 4)?,
            best: Memory::zeros(device, HEAD_ROWS * 8)?,
            best_host: Pinned::zeros(device, HEAD_ROWS)?,
        }))
    }

    /// The body's views with the head's buffers in their place.
    pub(super) fn views(&self, plan: &Plan, body: &[View]) -> Vec<View> {
        let mut views = body.to_vec();
        for (buf, memory, wide) in [
            (plan.residual, &self.residual, false),
            (plan.final_hidden, &self.hidden, false),
            (plan.logits, &self.logits, true),
        ] {
            let width = plan.buffers[buf.0].width as u32;
            views[buf.0] = View { address: memory.address(), pitch: width, width, wide };
        }
        views
    }

    /// Fills everything with NaN.
    pub(super) fn poison(&self, device: &Device) -> Result<(), CudaError> {
        [&self.residual, &self.hidden, &self.logits].iter().try_for_each(|m| m.fill(device, 0xff))
    }

    /// Where the keys of the best logits are.
    pub(super) fn best(&self) -> u64 {
        self.best.address()
    }

    /// Forgets the best logits of the last block.
    pub(super) fn clear(&self, device: &Device) -> Result<(), CudaError> {
        self.best.fill(device, 0)
    }

    /// Brings the best logits to the host, in stream order.
    pub(super) fn fetch(&self, device: &Device) -> Result<(), CudaError> {
        self.best_host.download(device, &self.best)
    }

    /// What rows `0 ..` of the block gave, once the device is done; the best logits were fetched.
    pub(super) fn outputs(
        &self,
        device: &Device,
        plan: &Plan,
        wants: &[&RowWant],
        draws: Option<&Draws>,
        round: bool,
    ) -> Result<Vec<RowOutput>, CudaError> {
        device.synchronize()?;
        let best = self.best_host.as_slice();
        let mut outputs = Vec::with_capacity(wants.len());
        for (row, want) in wants.iter().enumerate() {
            let logits = || {
                let width = plan.buffers[plan.logits.0].width;
                self.logits.read::<f32>(device, row * width * 4, width)
            };
            outputs.push(match want {
                RowWant::Nothing => RowOutput::Nothing,
                RowWant::Greedy => match best[row] {
                    u64::MAX => RowOutput::NonFinite(NonFinite::of(&logits()?)),
                    key => RowOutput::Greedy(!(key as u32)),
                },
                RowWant::Sampled(_) => match draws.and_then(|d| d.drawn(row)) {
                    Some(id) => RowOutput::Sampled(id),
                    None => RowOutput::NonFinite(NonFinite::of(&logits()?)),
                },
                RowWant::Hidden => {
                    let width = plan.buffers[plan.final_hidden.0].width;
                    RowOutput::Hidden(elements(device, &self.hidden, row, width, round)?)
                }
                want => from_logits(want, logits()?),
            });
        }
        Ok(outputs)
    }
}

fn elements(
    device: &Device,
    memory: &Memory,
    row: usize,
    width: usize,
    round: bool,
) -> Result<Vec<f32>, CudaError> {
    if !round {
        return memory.read::<f32>(device, row * width * 4, width);
    }
    let bits = memory.read::<u16>(device, row * width * 2, width)?;
    Ok(bits.into_iter().map(crate::tensor::bf16_from_bits).collect())
}

fn from_logits(want: &RowWant, logits: Vec<f32>) -> RowOutput {
    match want {
        RowWant::Logits => RowOutput::Logits(logits),
        _ if logits.iter().any(|x| !x.is_finite()) => RowOutput::NonFinite(NonFinite::of(&logits)),
        RowWant::Top(n) => RowOutput::Top(top(&logits, *n)),
        RowWant::LogProbOf(ids) => {
            let non_finite = |_| RowOutput::NonFinite(NonFinite::of(&logits));
            log_softmax(&logits, ids).map_or_else(non_finite, RowOutput::LogProbs)
        }
        RowWant::Greedy => RowOutput::Greedy(top(&logits, 1)[0].0),
        RowWant::Nothing | RowWant::Hidden | RowWant::Sampled(_) => RowOutput::Nothing,
    }
}

impl Executor<'_> {
    /// Launches the head over `shape.rows` rows whose numbers are at `rows`; `body` and `head` are
    /// the views of body and head.
    pub(super) fn head(
        &self,
        shape: &Shape,
        rows: u64,
        body: &[View],
        head: &[View],
        buffers: &HeadBuffers,
        logits: bool,
    ) -> Result<(), CudaError> {
        let (from, to) = (body[self.plan.residual.0], head[self.plan.residual.0]);
        let [x0, x1] = pointer(from);
        let [o0, o1] = pointer(to);
        let arguments = vec![
            Argument::Block(shape.step),
            Argument::U64(rows),
            x0,
            x1,
            o0,
            o1,
            Argument::U32(to.width),
            wide(&[from, to]),
        ];
        self.launch("elementwise", "gather_rows", self.pieces(to.width, shape), arguments)?;
        for op in &self.plan.head_ops {
            if logits || !matches!(op.kind, OpKind::GemmF32 { .. }) {
                self.op(&op.kind, shape, head)?;
            }
        }
        if !logits {
            return Ok(());
        }
        let z = head[self.plan.logits.0];
        let arguments = vec![
            Argument::Block(shape.step),
            Argument::U64(z.address),
            Argument::U32(z.width),
            Argument::U64(buffers.best.address()),
        ];
        let blocks = grid(GREEDY_BLOCKS, shape.rows as u32, 1, 256);
        // SAFETY: as `Executor::launch`.
        unsafe { self.launcher.run("greedy", "greedy_f32", blocks, arguments) }
    }
}
