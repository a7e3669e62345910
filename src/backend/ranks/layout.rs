//! Which part of every buffer and state each rank holds, to put them together again.

use crate::backend::{Buf, CacheSpec, Plan};
use crate::placement::AxisSlice;
use std::collections::BTreeMap;

/// How the buffers and states of the ranks make up those of one device.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    /// The plan of one device.
    pub whole: Plan,
    /// One per rank.
    pub ranks: Vec<RankLayout>,
    /// Positions of one page of the attention caches.
    pub page_tokens: usize,
}

/// What one rank holds.
#[derive(Clone, Debug, PartialEq)]
pub struct RankLayout {
    /// Stage of the rank.
    pub stage: usize,
    /// Columns of every buffer of the whole plan; `None` for a buffer that no operation of the rank
    /// touches.
    pub columns: Vec<Option<AxisSlice>>,
    /// For every attention cache of the rank: its slot in the whole plan, and the heads.
    pub attention: Vec<(usize, AxisSlice)>,
    /// For every gated-delta-net state of the rank, by layer.
    pub gdn: BTreeMap<usize, GdnSlice>,
}

/// A rank's part of a gated-delta-net state.
#[derive(Clone, Debug, PartialEq)]
pub struct GdnSlice {
    pub key_heads: AxisSlice,
    pub value_heads: AxisSlice,
    pub channels: AxisSlice,
}

impl Layout {
    /// Ranks of a stage.
    fn stage(&self, stage: usize) -> impl Iterator<Item = (usize, &RankLayout)> {
        self.ranks.iter().enumerate().filter(move |(_, rank)| rank.stage == stage)
    }

    /// Number of stages.
    pub(super) fn stages(&self) -> usize {
        self.ranks.last().map_or(0, |rank| rank.stage + 1)
    }

    /// Rows of a buffer of the whole plan from the rows that every rank of a stage has of it.
    pub(super) fn rows(
        &self,
        buf: Buf,
        stage: usize,
        of_rank: impl Fn(usize) -> Vec<f32>,
    ) -> Vec<f32> {
        let parts: Vec<(&AxisSlice, Vec<f32>)> = self
            .stage(stage)
            .filter_map(|(rank, layout)| Some((layout.columns[buf.0].as_ref()?, of_rank(rank))))
            .collect();
        let width = self.whole.buffers[buf.0].width;
        let rows = parts.first().map_or(0, |(slice, values)| values.len() / slice.len().max(1));
        let mut whole = vec![f32::NAN; rows * width];
        for (slice, values) in &parts {
            for (row, values) in whole.chunks_exact_mut(width).zip(values.chunks_exact(slice.len()))
            {
                scatter(slice, values, row, 1);
            }
        }
        whole
    }

    /// The columns of a buffer that a rank has, of rows of the whole buffer.
    pub(super) fn part(&self, buf: Buf, rank: usize, whole: &[f32]) -> Option<Vec<f32>> {
        let slice = self.ranks[rank].columns[buf.0].as_ref()?;
        let rows = whole.chunks_exact(self.whole.buffers[buf.0].width);
        Some(
            rows.flat_map(|row| slice.ranges.iter().flat_map(|r| &row[r.clone()]))
                .copied()
                .collect(),
        )
    }

    /// The last stage that touches a buffer.
    pub(super) fn last_stage_of(&self, buf: Buf) -> usize {
        let touching = self.ranks.iter().filter(|rank| rank.columns[buf.0].is_some());
        touching.map(|rank| rank.stage).max().unwrap_or(0)
    }

    /// An attention cache of the whole plan.
    pub(super) fn cache(&self, slot: usize) -> &CacheSpec {
        &self.whole.attention_slots[slot]
    }
}

/// Copies units of `unit` values to their places in the whole.
pub(super) fn scatter<T: Copy>(slice: &AxisSlice, values: &[T], whole: &mut [T], unit: usize) {
    let mut from = 0;
    for range in &slice.ranges {
        let count = range.len() * unit;
        whole[range.start * unit..range.end * unit].copy_from_slice(&values[from..from + count]);
        from += count;
    }
}
