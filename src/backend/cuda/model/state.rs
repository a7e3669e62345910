//! State of one sequence on the device: attention pages and gated-delta-net memory.
//!
//! Blocks are shared until written: `fork` and `checkpoint` cost a few pointers, and the step that
//! writes a shared block copies it first.

use super::memory::{Block, Pool};
use crate::backend::cpu::{BLOCK_TOKENS, GROUP_TOKENS, VERIFY_WINDOW_TOKENS, materialise_group};
use crate::backend::cuda::{CudaError, Device};
use crate::backend::{CacheSpec, GdnSpec, LiveState, State, StateTensor, TruncateError};
use crate::tensor::bf16_from_bits;
use std::any::Any;
use std::sync::Arc;

/// Offsets of one gated-delta-net layer in a sequence's memory, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct GdnLayout {
    pub(super) spec: GdnSpec,
    pub(super) boundary: u64,
    pub(super) u: u64,
    pub(super) decay: u64,
    pub(super) k: u64,
    pub(super) conv: u64,
    pub(super) ring: usize,
}

/// What the states of a model have in common.
#[derive(Debug)]
pub(super) struct StateLayout {
    pub(super) device: Arc<Device>,
    pub(super) pages: Arc<Pool>,
    pub(super) gdn_pool: Arc<Pool>,
    pub(super) attention: Vec<CacheSpec>,
    /// Byte offset of every slot's keys in a page.
    pub(super) slots: Vec<u64>,
    pub(super) gdn: Vec<GdnLayout>,
    pub(super) element_bytes: usize,
}

impl StateLayout {
    /// The layout for a plan's caches; elements are BF16 where `round` says so, else FP32.
    pub(super) fn new(
        device: &Arc<Device>,
        attention: &[CacheSpec],
        gdn: &[GdnSpec],
        round: bool,
    ) -> StateLayout {
        let element_bytes = if round { 2 } else { 4 };
        let mut end = 0u64;
        let slots = attention
            .iter()
            .map(|spec| {
                let start = end;
                end += (2 * spec.kv_heads * BLOCK_TOKENS * spec.head_dim * element_bytes) as u64;
                end = end.next_multiple_of(256);
                start
            })
            .collect();
        let page_bytes = end as usize;
        let mut end = 0u64;
        let layouts = gdn
            .iter()
            .map(|spec| {
                let d = spec.dims;
                let mut part = |count: usize, bytes: usize| {
                    let start = end;
                    end = (end + (count * bytes) as u64).next_multiple_of(256);
                    start
                };
                let ring = VERIFY_WINDOW_TOKENS + d.conv_width - 1;
                GdnLayout {
                    spec: *spec,
                    boundary: part(2 * d.value_heads * d.key_dim * d.value_dim, 4),
                    u: part(2 * d.value_heads * GROUP_TOKENS * d.value_dim, 4),
                    decay: part(2 * d.value_heads * GROUP_TOKENS, 8),
                    k: part(2 * d.key_heads * GROUP_TOKENS * d.key_dim, element_bytes),
                    conv: part(ring * d.channels(), element_bytes),
                    ring,
                }
            })
            .collect();
        StateLayout {
            device: Arc::clone(device),
            pages: Pool::new(device, page_bytes),
            gdn_pool: Pool::new(device, end as usize),
            attention: attention.to_vec(),
            slots,
            gdn: layouts,
            element_bytes,
        }
    }
}

/// All state of one sequence.
#[derive(Clone, Debug)]
pub(super) struct CudaState {
    layout: Arc<StateLayout>,
    pub(super) len: usize,
    pages: Vec<Arc<Block>>,
    gdn: Option<Arc<Block>>,
    oldest_group: usize,
    oldest_column: usize,
}

impl CudaState {
    /// The state of an empty sequence; memory is taken by the first step.
    pub(super) fn new(layout: &Arc<StateLayout>) -> CudaState {
        CudaState {
            layout: Arc::clone(layout),
            len: 0,
            pages: Vec::new(),
            gdn: None,
            oldest_group: 0,
            oldest_column: 0,
        }
    }

    /// Makes room for `rows` more tokens in blocks of its own, and gives the addresses of its pages
    /// and of its gated-delta-net memory.
    pub(super) fn prepare(&mut self, rows: usize) -> Result<(Vec<u64>, u64), CudaError> {
        let layout = Arc::clone(&self.layout);
        let end = self.len + rows;
        if !layout.attention.is_empty() {
            let first_written = self.len / BLOCK_TOKENS;
            for page in 0..end.div_ceil(BLOCK_TOKENS) {
                if page == self.pages.len() {
                    self.pages.push(Arc::new(layout.pages.take()?));
                } else if page >= first_written && Arc::get_mut(&mut self.pages[page]).is_none() {
                    self.pages[page] = Arc::new(layout.pages.copy_of(&self.pages[page])?);
                }
            }
        }
        let mut gdn_address = 0;
        if !layout.gdn.is_empty() {
            let own = match &mut self.gdn {
                None => Arc::new(layout.gdn_pool.take()?),
                Some(block) => match Arc::get_mut(block) {
                    Some(_) => Arc::clone(block),
                    None => Arc::new(layout.gdn_pool.copy_of(block)?),
                },
            };
            gdn_address = own.address();
            self.gdn = Some(own);
        }
        Ok((self.pages.iter().map(|p| p.address()).collect(), gdn_address))
    }

    /// Counts tokens that a step has consumed.
    pub(super) fn advance(&mut self, end: usize) {
        self.len = end;
        let group = end / GROUP_TOKENS;
        self.oldest_group = self.oldest_group.max(group.saturating_sub(1));
        if let Some(layout) = self.layout.gdn.first() {
            self.oldest_column = self.oldest_column.max(end.saturating_sub(layout.ring));
        }
    }

    fn elements(&self, block: &Block, offset: u64, len: usize) -> Vec<f32> {
        let (device, offset) = (&self.layout.device, offset as usize);
        let read = if self.layout.element_bytes == 2 {
            block
                .memory()
                .read::<u16>(device, offset, len)
                .map(|bits| bits.into_iter().map(bf16_from_bits).collect())
        } else {
            block.memory().read::<f32>(device, offset, len)
        };
        read.unwrap_or_else(|_| vec![f32::NAN; len])
    }

    fn floats(&self, block: &Block, offset: u64, len: usize) -> Vec<f32> {
        let read = block.memory().read::<f32>(&self.layout.device, offset as usize, len);
        read.unwrap_or_else(|_| vec![f32::NAN; len])
    }

    fn group(&self, layout: &GdnLayout) -> Group {
        let d = layout.spec.dims;
        let slot = self.len / GROUP_TOKENS % 2;
        let boundary = d.value_heads * d.key_dim * d.value_dim;
        let k = d.key_heads * GROUP_TOKENS * d.key_dim;
        let u = d.value_heads * GROUP_TOKENS * d.value_dim;
        let decay = d.value_heads * GROUP_TOKENS;
        let Some(block) = &self.gdn else {
            return Group {
                boundary: vec![0.0; boundary],
                k: vec![0.0; k],
                u: vec![0.0; u],
                decay: vec![0.0; decay],
            };
        };
        let at = |start: u64, count: usize, bytes: usize| start + (slot * count * bytes) as u64;
        let doubles = at(layout.decay, decay, 8) as usize;
        Group {
            boundary: self.floats(block, at(layout.boundary, boundary, 4), boundary),
            k: self.elements(block, at(layout.k, k, self.layout.element_bytes), k),
            u: self.floats(block, at(layout.u, u, 4), u),
            decay: block
                .memory()
                .read::<f64>(&self.layout.device, doubles, decay)
                .unwrap_or_else(|_| vec![f64::NAN; decay]),
        }
    }

    /// The last convolution inputs, `[channel][taps − 1]`, oldest first; zeros before the start.
    fn history(&self, layout: &GdnLayout) -> Vec<f32> {
        let d = layout.spec.dims;
        let (channels, history) = (d.channels(), d.conv_width - 1);
        let mut conv = vec![0.0; channels * history];
        for h in 0..history {
            let Some(position) = (self.len + h).checked_sub(history) else { continue };
            let Some(block) = &self.gdn else { continue };
            let row = position % layout.ring * channels * self.layout.element_bytes;
            let column = self.elements(block, layout.conv + row as u64, channels);
            for (c, x) in column.iter().enumerate() {
                conv[c * history + h] = *x;
            }
        }
        conv
    }
}

/// The open group of one layer, on the host.
struct Group {
    boundary: Vec<f32>,
    k: Vec<f32>,
    u: Vec<f32>,
    decay: Vec<f64>,
}

impl State for CudaState {
    fn len_tokens(&self) -> usize {
        self.len
    }

    fn fork(&self) -> Box<dyn State> {
        Box::new(self.clone())
    }

    fn truncate(&mut self, len_tokens: usize) -> Result<(), TruncateError> {
        if len_tokens > self.len {
            return Err(TruncateError::Longer { len_tokens: self.len });
        }
        if let Some(layout) = self.layout.gdn.first() {
            let boundary = self.oldest_group * GROUP_TOKENS;
            if len_tokens < boundary {
                return Err(TruncateError::PastBoundary { oldest_tokens: boundary });
            }
            let history = layout.spec.dims.conv_width - 1;
            if len_tokens.saturating_sub(history) < self.oldest_column {
                let oldest_tokens = self.oldest_column + history;
                return Err(TruncateError::PastWindow { oldest_tokens });
            }
        }
        self.pages.truncate(len_tokens.div_ceil(BLOCK_TOKENS));
        self.len = len_tokens;
        Ok(())
    }

    fn size_bytes(&self) -> u64 {
        let gdn = if self.layout.gdn.is_empty() { 0 } else { self.layout.gdn_pool.block_bytes() };
        (self.pages.len() * self.layout.pages.block_bytes() + gdn) as u64
    }

    fn inspect(&self) -> Vec<StateTensor> {
        let rows = self.len % GROUP_TOKENS;
        let mut tensors = Vec::new();
        for layout in &self.layout.gdn {
            let (d, layer) = (layout.spec.dims, layout.spec.layer);
            let group = self.group(layout);
            let values =
                materialise_group(d, &group.boundary, &group.k, &group.u, &group.decay, rows);
            tensors.push(StateTensor {
                name: format!("layers.{layer}.recurrent"),
                shape: vec![d.value_heads, d.key_dim, d.value_dim],
                values,
            });
            tensors.push(StateTensor {
                name: format!("layers.{layer}.conv"),
                shape: vec![d.channels(), d.conv_width - 1],
                values: self.history(layout),
            });
        }
        tensors
    }

    fn live(&self) -> Vec<LiveState> {
        let widen = |values: &[f32]| values.iter().map(|x| f64::from(*x)).collect::<Vec<f64>>();
        let mut all = Vec::new();
        for (slot, spec) in self.layout.attention.iter().enumerate() {
            let side = spec.kv_heads * BLOCK_TOKENS * spec.head_dim;
            for (side_index, name) in ["k", "v"].into_iter().enumerate() {
                let mut values = Vec::new();
                for (i, page) in self.pages.iter().enumerate() {
                    let rows = self.len.saturating_sub(i * BLOCK_TOKENS).min(BLOCK_TOKENS);
                    let offset = self.layout.slots[slot]
                        + (side_index * side * self.layout.element_bytes) as u64;
                    let page = self.elements(page, offset, side);
                    for head in page.chunks_exact(BLOCK_TOKENS * spec.head_dim) {
                        values.extend(widen(&head[..rows * spec.head_dim]));
                    }
                }
                all.push(LiveState { name: format!("attention.{slot}.{name}"), values });
            }
        }
        let rows = self.len % GROUP_TOKENS;
        for layout in &self.layout.gdn {
            let (d, layer) = (layout.spec.dims, layout.spec.layer);
            let group = self.group(layout);
            let open = |all: &[f32], width: usize| -> Vec<f64> {
                let heads = all.chunks_exact(GROUP_TOKENS * width);
                heads.flat_map(|head| widen(&head[..rows * width])).collect()
            };
            let decay = group.decay.chunks_exact(GROUP_TOKENS);
            let parts = [
                ("boundary", widen(&group.boundary)),
                ("k", open(&group.k, d.key_dim)),
                ("u", open(&group.u, d.value_dim)),
                ("log_decay", decay.flat_map(|head| head[..rows].to_vec()).collect()),
                ("conv", widen(&self.history(layout))),
            ];
            for (name, values) in parts {
                all.push(LiveState { name: format!("gdn.{layer}.{name}"), values });
            }
        }
        all
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}
