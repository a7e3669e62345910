//! Row buffers of a step on the device.
//!
//! Products of one input that follow each other write columns of one buffer, so that they can be
//! one launch; every buffer is therefore a view with a pitch of its own.

use super::memory::Memory;
use super::nodes::Groups;
use crate::backend::cuda::{CudaError, Device};
use crate::backend::{Buf, OpKind, Plan};
use std::collections::BTreeSet;

/// Rows of a buffer: address of the first element and elements between rows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct View {
    pub(super) address: u64,
    pub(super) pitch: u32,
    pub(super) width: u32,
    /// FP32 whatever the policy.
    pub(super) wide: bool,
}

/// Where a buffer lies: an allocation, a column in it.
#[derive(Clone, Copy, Debug)]
struct Place {
    allocation: usize,
    column: usize,
}

/// The buffers of a plan, for some number of rows.
#[derive(Debug)]
pub(super) struct Activations {
    widths: Vec<usize>,
    wide: Vec<bool>,
    places: Vec<Place>,
    /// Elements of a row, and whether they are FP32.
    allocations: Vec<(usize, bool)>,
    element_bytes: usize,
    memory: Vec<Memory>,
    rows: usize,
}

impl Activations {
    /// Buffers without memory; `round` says whether elements are BF16.
    pub(super) fn new(plan: &Plan, groups: &Groups, round: bool) -> Activations {
        let wide = wide_buffers(plan);
        let widths: Vec<usize> = plan.buffers.iter().map(|b| b.width).collect();
        let mut allocations: Vec<(usize, bool)> = Vec::new();
        let mut places: Vec<Option<Place>> = vec![None; widths.len()];
        for members in groups.outputs() {
            let mut column = 0;
            for buf in members {
                places[buf.0] = Some(Place { allocation: allocations.len(), column });
                column += widths[buf.0];
            }
            allocations.push((column, false));
        }
        let places = places
            .into_iter()
            .enumerate()
            .map(|(i, place)| {
                place.unwrap_or_else(|| {
                    allocations.push((widths[i], wide.contains(&Buf(i))));
                    Place { allocation: allocations.len() - 1, column: 0 }
                })
            })
            .collect();
        Activations {
            wide: (0..widths.len()).map(|i| wide.contains(&Buf(i))).collect(),
            widths,
            places,
            allocations,
            element_bytes: if round { 2 } else { 4 },
            memory: Vec::new(),
            rows: 0,
        }
    }

    /// Rows that there is memory for.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Makes room for `rows` rows; contents are lost if it grows. Says whether addresses moved.
    pub(super) fn reserve(
        &mut self,
        device: &Device,
        rows: usize,
        skip: &[Buf],
    ) -> Result<bool, CudaError> {
        if rows <= self.rows {
            return Ok(false);
        }
        self.memory.clear();
        self.rows = 0;
        let skipped: BTreeSet<usize> = skip.iter().map(|b| self.places[b.0].allocation).collect();
        for (i, (width, wide)) in self.allocations.iter().enumerate() {
            let element = if *wide { 4 } else { self.element_bytes };
            let bytes = if skipped.contains(&i) { 0 } else { rows * width * element };
            self.memory.push(Memory::new(device, bytes)?);
        }
        self.rows = rows;
        Ok(true)
    }

    /// Fills everything with NaN.
    pub(super) fn poison(&self, device: &Device) -> Result<(), CudaError> {
        self.memory.iter().try_for_each(|m| m.fill(device, 0xff))
    }

    /// Views of all buffers.
    pub(super) fn views(&self) -> Vec<View> {
        (0..self.widths.len())
            .map(|i| {
                let place = self.places[i];
                let (pitch, wide) = self.allocations[place.allocation];
                let element = if wide { 4 } else { self.element_bytes };
                View {
                    address: self.memory[place.allocation].address()
                        + (place.column * element) as u64,
                    pitch: pitch as u32,
                    width: self.widths[i] as u32,
                    wide: self.wide[i],
                }
            })
            .collect()
    }
}

/// Buffers that hold FP32 under every policy: logits, decays, rates, sums of attention.
fn wide_buffers(plan: &Plan) -> BTreeSet<Buf> {
    let mut wide = BTreeSet::new();
    for op in plan.all_ops() {
        match op.kind {
            OpKind::GdnPrepare { log_decay, beta, .. }
            | OpKind::GdnCore { log_decay, beta, .. } => {
                wide.extend([log_decay, beta]);
            }
            OpKind::GemmF32 { out, .. } | OpKind::AttentionCore { log_sums: Some(out), .. } => {
                wide.insert(out);
            }
            _ => {}
        }
    }
    wide
}
