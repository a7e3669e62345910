//! Region `sampler` on the device: draws from rows of logits, of which only ids come back.

use super::activations::View;
use super::exec::Executor;
use super::launcher::grid;
use super::memory::{Memory, Pinned};
use super::record::HEAD_ROWS;
use crate::backend::cuda::launch::{Argument, Launch};
use crate::backend::cuda::{CudaError, Device};
use crate::backend::{Region, RowWant};

/// Ids of one block of the contract's sums.
const BLOCK_IDS: usize = 256;
/// Words of a draw, as `Draw` in `kernels/sampler.cu`: temperature, unit, row and bound.
const DRAW_WORDS: usize = 3;
/// Memory of the draws of a head block. The draws themselves are an argument of the launch, and ids are
/// written to the host's memory: no copy stands behind the logits.
#[derive(Debug)]
pub(super) struct Draws {
    sums: Memory,
    arrived: Memory,
    ids: Pinned<u32>,
    blocks: usize,
    /// Which draw belongs to a row.
    of_row: Vec<Option<usize>>,
}

impl Draws {
    /// Room for draws from rows of `vocab` logits.
    pub(super) fn new(device: &Device, vocab: usize) -> Result<Draws, CudaError> {
        let blocks = vocab.div_ceil(BLOCK_IDS);
        Ok(Draws {
            sums: Memory::new(device, HEAD_ROWS * blocks * 8)?,
            arrived: Memory::zeros(device, HEAD_ROWS * 4)?,
            ids: Pinned::zeros(device, HEAD_ROWS)?,
            blocks,
            of_row: Vec::new(),
        })
    }

    /// What row `row` drew, once the device is done; `None` if its logits are not finite.
    pub(super) fn drawn(&self, row: usize) -> Option<u32> {
        let drawn = self.of_row.get(row).copied().flatten().map(|i| self.ids.as_slice()[i]);
        drawn.filter(|id| *id != u32::MAX)
    }
}

/// Whether a row of these wants a draw.
pub(super) fn any(wants: &[&RowWant]) -> bool {
    wants.iter().any(|want| matches!(want, RowWant::Sampled(_)))
}

impl Executor<'_> {
    /// Draws for every row of a head block that wants it, behind its logits and the search for the best of
    /// them, whose keys are at `best`.
    pub(super) fn sample(
        &self,
        draws: &mut Draws,
        logits: View,
        best: u64,
        wants: &[&RowWant],
    ) -> Result<(), CudaError> {
        self.enter(Region::Sampler);
        draws.of_row = vec![None; wants.len()];
        let mut words = [0; HEAD_ROWS * DRAW_WORDS];
        let mut count = 0;
        for (row, want) in wants.iter().enumerate() {
            let RowWant::Sampled(draw) = want else { continue };
            let choosable = draw.choosable_ids.clamp(1, logits.width as usize) as u64;
            let own =
                [draw.temperature.to_bits(), draw.unit.to_bits(), row as u64 | choosable << 32];
            words[count * DRAW_WORDS..][..DRAW_WORDS].copy_from_slice(&own);
            draws.of_row[row] = Some(count);
            count += 1;
        }
        let blocks = draws.blocks as u32;
        let arguments = vec![
            Argument::Structure(words.as_ptr()),
            Argument::U64(logits.address),
            Argument::U32(logits.width),
            Argument::U64(best),
            Argument::U64(draws.sums.address()),
            Argument::U64(draws.arrived.address()),
            Argument::U64(draws.ids.address()),
        ];
        let launch = Launch { shared_bytes: blocks * 8, ..grid(blocks, count as u32, 1, 256) };
        // SAFETY: arguments are in the order of the kernel's definition; there is room for `HEAD_ROWS`
        // draws, no more than the rows of a head block, and the host reads ids once the device is done.
        unsafe { self.launcher.run("sampler", "sampler_draw_f32", launch, arguments) }
    }
}
