//! Region `sampler` on the device: draws from rows of logits, of which only ids come back.

use super::activations::View;
use super::exec::Executor;
use super::launcher::grid;
use super::memory::{Memory, Pinned};
use super::record::HEAD_ROWS;
use crate::backend::cuda::launch::{Argument, Launch};
use crate::backend::cuda::{CudaError, Device};
use crate::backend::{Region, RowOutput, RowWant};

/// Ids of one block of the contract's sums.
const BLOCK_IDS: usize = 256;
/// Words of a draw, as `Draw` in `kernels/sampler.cu`: temperature, unit, row and bound.
const DRAW_WORDS: usize = 3;
/// Blocks that look for the largest logit of a row.
const MAX_BLOCKS: u32 = 32;

/// Memory of the draws of a head block.
#[derive(Debug)]
pub(super) struct Draws {
    host: Pinned<u64>,
    draws: Memory,
    best: Memory,
    sums: Memory,
    ids: Memory,
    ids_host: Pinned<u32>,
    blocks: usize,
    /// Which draw belongs to a row.
    of_row: Vec<Option<usize>>,
}

impl Draws {
    /// Room for draws from rows of `vocab` logits.
    pub(super) fn new(device: &Device, vocab: usize) -> Result<Draws, CudaError> {
        let blocks = vocab.div_ceil(BLOCK_IDS);
        Ok(Draws {
            host: Pinned::zeros(device, HEAD_ROWS * DRAW_WORDS)?,
            draws: Memory::new(device, HEAD_ROWS * DRAW_WORDS * 8)?,
            best: Memory::new(device, HEAD_ROWS * 4)?,
            sums: Memory::new(device, HEAD_ROWS * blocks * 8)?,
            ids: Memory::zeros(device, HEAD_ROWS * 4)?,
            ids_host: Pinned::zeros(device, HEAD_ROWS)?,
            blocks,
            of_row: Vec::new(),
        })
    }

    /// What row `row` drew, once the device is done.
    pub(super) fn output(&self, row: usize) -> RowOutput {
        match self.of_row.get(row).copied().flatten().map(|i| self.ids_host.as_slice()[i]) {
            Some(u32::MAX) | None => RowOutput::NonFinite,
            Some(id) => RowOutput::Sampled(id),
        }
    }
}

/// Whether a row of these wants a draw.
pub(super) fn any(wants: &[&RowWant]) -> bool {
    wants.iter().any(|want| matches!(want, RowWant::Sampled(_)))
}

impl Executor<'_> {
    /// Draws for every row of a head block that wants it, behind its logits in stream order.
    pub(super) fn sample(
        &self,
        draws: &mut Draws,
        logits: View,
        wants: &[&RowWant],
    ) -> Result<(), CudaError> {
        self.enter(Region::Sampler);
        let device = &self.launcher.device;
        draws.of_row = vec![None; wants.len()];
        let mut count = 0;
        for (row, want) in wants.iter().enumerate() {
            let RowWant::Sampled(draw) = want else { continue };
            let choosable = draw.choosable_ids.clamp(1, logits.width as usize) as u64;
            let words =
                [draw.temperature.to_bits(), draw.unit.to_bits(), row as u64 | choosable << 32];
            draws.host.as_mut_slice()[count * DRAW_WORDS..][..DRAW_WORDS].copy_from_slice(&words);
            draws.of_row[row] = Some(count);
            count += 1;
        }
        draws.host.upload(device, &draws.draws, count * DRAW_WORDS)?;
        draws.best.fill(device, 0)?;
        let (n, blocks) = (count as u32, draws.blocks as u32);
        let common = [
            Argument::U64(draws.draws.address()),
            Argument::U64(logits.address),
            Argument::U32(logits.width),
            Argument::U64(draws.best.address()),
        ];
        let sums = Argument::U64(draws.sums.address());
        let mut with_sums = common.to_vec();
        with_sums.push(sums);
        let mut choice = with_sums.clone();
        choice.extend([Argument::U32(blocks), Argument::U64(draws.ids.address())]);
        let ends = Launch { shared_bytes: blocks * 8, ..grid(n, 1, 1, 256) };
        // SAFETY: arguments are in the order of the kernels' definitions; there is room for `HEAD_ROWS`
        // draws, no more than the rows of a head block.
        unsafe {
            let max = grid(MAX_BLOCKS, n, 1, 256);
            self.launcher.run("sampler", "sampler_max_f32", max, common.to_vec())?;
            let each = grid(blocks, n, 1, 256);
            self.launcher.run("sampler", "sampler_sums_f32", each, with_sums)?;
            self.launcher.run("sampler", "sampler_choose_f32", ends, choice)?;
        }
        draws.ids_host.download(device, &draws.ids)
    }
}
