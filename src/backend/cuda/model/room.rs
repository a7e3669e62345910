//! Room for a step: its record, buffers and workspaces.

use super::attention::partials;
use super::exec::Shape;
use super::gdn::{CHUNK_BYTES, RATES_BYTES, is_chunked};
use super::memory::Memory;
use super::model::{CudaModel, Inner};
use super::record::{Capacity, HEAD_ROWS, Record};
use super::spans::blocks_of;
use crate::backend::cpu::GROUP_TOKENS;
use crate::backend::cuda::{CudaError, Device};
use crate::backend::{Buf, OpKind, Span};

/// Workspaces of launches.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    pub(super) rope_inverse: Option<Memory>,
    pub(super) rope_half: usize,
    pub(super) rope_table: Option<Memory>,
    pub(super) partial: Option<Memory>,
    pub(super) arrived: Option<Memory>,
    pub(super) dots: Option<Memory>,
    pub(super) running: Option<Memory>,
    pub(super) chunks: Option<Memory>,
    pub(super) rates: Option<Memory>,
    pub(super) export: Option<Memory>,
}

/// Makes `memory` at least `bytes` large; says whether it moved. Fresh memory is zero.
pub(super) fn grow(
    device: &Device,
    memory: &mut Option<Memory>,
    bytes: usize,
) -> Result<bool, CudaError> {
    if memory.as_ref().is_some_and(|m| m.len_bytes() >= bytes) || bytes == 0 {
        return Ok(false);
    }
    *memory = None;
    *memory = Some(Memory::zeros(device, bytes.next_power_of_two())?);
    Ok(true)
}

pub(super) fn address(memory: &Option<Memory>) -> u64 {
    memory.as_ref().map_or(0, Memory::address)
}

impl CudaModel {
    /// Fills and sends the record of an eager step and makes room for its rows.
    pub(super) fn begin(
        &self,
        inner: &mut Inner,
        tokens: &[u32],
        spans: &[Span],
        entries: &[(Vec<u64>, u64)],
        head_rows: &[u32],
    ) -> Result<Shape, CudaError> {
        let rows = spans.last().map_or(0, |s| s.rows.end);
        let pages: usize = entries.iter().map(|(p, _)| p.len()).sum();
        self.record(inner, false, rows, spans.len(), pages)?;
        let record = inner.other.as_mut().expect("made above");
        record.fill(tokens, spans, entries, head_rows)?;
        let shape = Shape {
            step: record.step(),
            rows,
            spans: spans.len(),
            span_rows: spans.iter().map(|s| s.rows.len()).max().unwrap_or(0),
            single: spans.iter().any(|s| s.rows.len() == 1),
            several: spans.iter().any(|s| s.rows.len() > 1),
            tiles: record.tiles,
            blocks: blocks_of(spans),
        };
        record.upload(&self.device)?;
        self.reserve(inner, &shape, rows)?;
        if self.options.poison {
            inner.activations.poison(&self.device)?;
            inner.head.iter().try_for_each(|h| h.poison(&self.device))?;
        }
        Ok(shape)
    }

    /// Makes room in a record.
    pub(super) fn record(
        &self,
        inner: &mut Inner,
        decode: bool,
        rows: usize,
        spans: usize,
        pages: usize,
    ) -> Result<(), CudaError> {
        let slot = if decode { &mut inner.decode } else { &mut inner.other };
        let old = slot.as_ref().map(Record::capacity);
        let old = old.unwrap_or(Capacity { rows: 0, spans: 0, pages: 0 });
        if slot.is_some() && rows <= old.rows && spans <= old.spans && pages <= old.pages {
            return Ok(());
        }
        let more = |need: usize, have: usize, least: usize| {
            if need <= have { have.max(least) } else { need.next_power_of_two().max(least) }
        };
        let capacity = Capacity {
            rows: if decode { rows } else { more(rows, old.rows, 64) },
            spans: if decode { spans } else { more(spans, old.spans, 8) },
            pages: more(pages, old.pages, 1024),
        };
        *slot = None;
        *slot = Some(Record::new(&self.device, capacity)?);
        if decode {
            inner.graphs.clear();
        }
        Ok(())
    }

    /// Makes room for a step's rows in activations and workspaces.
    pub(super) fn reserve(
        &self,
        inner: &mut Inner,
        shape: &Shape,
        rows: usize,
    ) -> Result<(), CudaError> {
        let head_only = [self.plan.final_hidden, self.plan.logits];
        let skip: Vec<Buf> = head_only
            .into_iter()
            .filter(|b| inner.head.is_some() && b.0 < self.plan.buffers.len())
            .collect();
        let wanted = if rows <= inner.activations.rows() { rows } else { rows.max(HEAD_ROWS) };
        let mut moved = inner.activations.reserve(&self.device, wanted, &skip)?;
        let s = &mut inner.scratch;
        moved |= grow(&self.device, &mut s.rope_table, rows * 2 * s.rope_half * 4)?;
        if shape.single {
            let (mut floats, mut counters) = (0, 0);
            for op in self.plan.all_ops() {
                if let OpKind::AttentionCore { slot, heads, .. } = op.kind {
                    let spec = self.plan.attention_slots[slot];
                    let each = partials(&self.launcher, shape, &spec, heads);
                    floats = floats.max(shape.spans * heads * each * (spec.head_dim + 2));
                    counters = counters.max(shape.spans * spec.kv_heads);
                }
            }
            moved |= grow(&self.device, &mut s.partial, floats * 4)?;
            moved |= grow(&self.device, &mut s.arrived, counters * 4)?;
        }
        if shape.several && !self.plan.gdn_slots.is_empty() {
            let most = |f: fn(&crate::descriptor::GatedDeltaNet) -> usize| {
                self.plan.gdn_slots.iter().map(|g| f(&g.dims)).max().unwrap_or(0)
            };
            let chunked = |g: &crate::backend::GdnSpec| is_chunked(&self.launcher, &g.dims);
            if self.plan.gdn_slots.iter().any(chunked) {
                let heads = shape.tiles * most(|d| d.value_heads);
                moved |= grow(&self.device, &mut s.chunks, heads * CHUNK_BYTES)?;
                moved |= grow(&self.device, &mut s.rates, heads * RATES_BYTES)?;
            }
            if !self.plan.gdn_slots.iter().all(chunked) {
                let row = most(|d| d.key_heads) * 2 * GROUP_TOKENS * 4;
                moved |= grow(&self.device, &mut s.dots, shape.tiles * GROUP_TOKENS * row)?;
            }
            moved |= grow(&self.device, &mut s.running, rows * most(|d| d.value_heads) * 8)?;
        }
        if moved {
            inner.graphs.clear();
        }
        Ok(())
    }
}
