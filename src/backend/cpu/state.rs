//! State of one sequence on the CPU: attention pages and gated-delta-net groups.
//!
//! Everything is shared until written (`Arc::make_mut`), so that `fork` and `checkpoint` cost a few
//! pointers and later writes copy one page or one group.

use super::attention_core::BLOCK_TOKENS;
use super::fast::{self, PanelPage};
use super::gdn_state::GdnState;
use super::lanes::Widen;
use crate::backend::{CacheKind, CacheSpec, LiveState, Policy, State, StateTensor, TruncateError};
use crate::tensor::bf16_bits;
use crate::units::mutant;
use std::any::Any;
use std::sync::Arc;

/// All state of one sequence.
#[derive(Clone, Debug)]
pub(super) struct CpuState {
    pub(super) len: usize,
    pub(super) attention: Vec<AttentionCache>,
    pub(super) gdn: Vec<GdnState>,
}

impl State for CpuState {
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
        for gdn in &self.gdn {
            gdn.can_truncate(len_tokens)?;
        }
        for gdn in &mut self.gdn {
            gdn.truncate(len_tokens);
        }
        for cache in &mut self.attention {
            cache.truncate(len_tokens);
        }
        if !mutant!("truncate_keeps_length") {
            self.len = len_tokens;
        }
        Ok(())
    }

    fn size_bytes(&self) -> u64 {
        let attention: usize = self.attention.iter().map(AttentionCache::size_bytes).sum();
        let gdn: u64 = self.gdn.iter().map(|g| GdnState::bytes_of(&g.spec)).sum();
        attention as u64 + gdn
    }

    fn inspect(&self) -> Vec<StateTensor> {
        self.gdn.iter().flat_map(|g| g.inspect(self.len)).collect()
    }

    fn live(&self) -> Vec<LiveState> {
        let attention =
            self.attention.iter().enumerate().flat_map(|(slot, c)| c.live(slot, self.len));
        attention.chain(self.gdn.iter().flat_map(|g| g.live(self.len))).collect()
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

impl CacheSpec {
    /// Whether `fast` keeps the cache in panels: windows and latents are read by the kernels of
    /// `reference`.
    pub(super) fn in_panels(&self) -> bool {
        self.kind == CacheKind::Full
    }
}

/// Keys and values in pages of [`BLOCK_TOKENS`] positions: `[kv_head][token][head_dim]`, BF16 bits under
/// `reference`, FP32 under `f32`; under `fast` BF16 in panels ([`PanelPage`]).
#[derive(Clone, Debug)]
pub(super) enum AttentionCache {
    Bf16(Vec<Page<u16>>),
    F32(Vec<Page<f32>>),
    Panels(Vec<PanelPage>),
}

impl AttentionCache {
    /// An empty cache.
    pub(super) fn new(policy: Policy, spec: &CacheSpec) -> AttentionCache {
        match policy {
            Policy::Fast if spec.in_panels() => AttentionCache::Panels(Vec::new()),
            Policy::F32 => AttentionCache::F32(Vec::new()),
            Policy::Fast | Policy::Reference | Policy::Invariant => {
                AttentionCache::Bf16(Vec::new())
            }
        }
    }

    /// Region `kv_write`: appends rows of keys and values (`rows × kv_heads·head_dim`) from
    /// `position` on.
    pub(super) fn write(&mut self, spec: &CacheSpec, position: usize, k: &[f32], v: &[f32]) {
        match self {
            AttentionCache::Bf16(pages) => write(pages, spec, position, k, v, bf16_bits),
            AttentionCache::F32(pages) => write(pages, spec, position, k, v, |x| x),
            AttentionCache::Panels(pages) => fast::write(pages, spec, position, k, v),
        }
    }

    fn truncate(&mut self, len_tokens: usize) {
        let pages = len_tokens.div_ceil(BLOCK_TOKENS);
        match self {
            AttentionCache::Bf16(p) => p.truncate(pages),
            AttentionCache::F32(p) => p.truncate(pages),
            AttentionCache::Panels(p) => p.truncate(pages),
        }
    }

    /// Keys and values of the first `len` positions, by page, head and position.
    fn live(&self, slot: usize, len: usize) -> [LiveState; 2] {
        let values = |keys: bool| match self {
            AttentionCache::Bf16(pages) => live(pages, keys, len),
            AttentionCache::F32(pages) => live(pages, keys, len),
            AttentionCache::Panels(pages) => live_panels(pages, keys, len),
        };
        [
            LiveState { name: format!("attention.{slot}.k"), values: values(true) },
            LiveState { name: format!("attention.{slot}.v"), values: values(false) },
        ]
    }

    fn size_bytes(&self) -> usize {
        match self {
            AttentionCache::Bf16(p) => p.iter().map(Page::size_bytes).sum(),
            AttentionCache::F32(p) => p.iter().map(Page::size_bytes).sum(),
            AttentionCache::Panels(p) => p.iter().map(PanelPage::size_bytes).sum(),
        }
    }
}

fn live<E: Widen>(pages: &[Page<E>], keys: bool, len: usize) -> Vec<f64> {
    let mut all = Vec::new();
    for (i, page) in pages.iter().enumerate() {
        let rows = len.saturating_sub(i * BLOCK_TOKENS).min(BLOCK_TOKENS);
        let (side, dim) = if keys { (&page.k, page.head_dim) } else { (&page.v, page.value_dim) };
        for head in side.chunks_exact(BLOCK_TOKENS * dim) {
            all.extend(head[..rows * dim].iter().map(|e| f64::from(e.widen())));
        }
    }
    all
}

fn live_panels(pages: &[PanelPage], keys: bool, len: usize) -> Vec<f64> {
    let mut all = Vec::new();
    for (i, page) in pages.iter().enumerate() {
        page.live(keys, len.saturating_sub(i * BLOCK_TOKENS).min(BLOCK_TOKENS), &mut all);
    }
    all
}

fn write<E: Widen + Default>(
    pages: &mut Vec<Page<E>>,
    spec: &CacheSpec,
    position: usize,
    k: &[f32],
    v: &[f32],
    narrow: impl Fn(f32) -> E,
) {
    let widths = [spec.kv_heads * spec.head_dim, spec.kv_heads * spec.value_dim];
    for (row, (k, v)) in k.chunks_exact(widths[0]).zip(v.chunks_exact(widths[1])).enumerate() {
        let (page, token) = ((position + row) / BLOCK_TOKENS, (position + row) % BLOCK_TOKENS);
        if page == pages.len() {
            pages.push(Page::new(spec));
        }
        let token = if mutant!("kv_write_wrong_slot") { token & !1 } else { token };
        if mutant!("kv_write_skips_page_start") && token == 0 && page > 0 {
            continue;
        }
        let page = &mut pages[page];
        let sides = [
            (&mut page.k, k, page.head_dim, false),
            (&mut page.v, v, page.value_dim, mutant!("kv_write_heads_reversed")),
        ];
        for (side, x, head_dim, reversed) in sides {
            let side = Arc::make_mut(side);
            for (head, x) in x.chunks_exact(head_dim).enumerate() {
                let head = if reversed { spec.kv_heads - 1 - head } else { head };
                let at = (head * BLOCK_TOKENS + token) * head_dim;
                side[at..at + head_dim].iter_mut().zip(x).for_each(|(e, x)| *e = narrow(*x));
            }
        }
    }
}

/// One page of keys and values.
#[derive(Clone, Debug)]
pub(super) struct Page<E> {
    head_dim: usize,
    value_dim: usize,
    k: Arc<Vec<E>>,
    v: Arc<Vec<E>>,
}

impl<E: Widen + Default> Page<E> {
    fn new(spec: &CacheSpec) -> Page<E> {
        let tokens = spec.kv_heads * BLOCK_TOKENS;
        let empty = |dim: usize| Arc::new(vec![E::default(); tokens * dim]);
        Page {
            head_dim: spec.head_dim,
            value_dim: spec.value_dim,
            k: empty(spec.head_dim),
            v: empty(spec.value_dim),
        }
    }
}

impl<E> Page<E> {
    /// Keys of one head, `[token][head_dim]`.
    pub(super) fn keys(&self, kv_head: usize) -> &[E] {
        let len = BLOCK_TOKENS * self.head_dim;
        &self.k[kv_head * len..][..len]
    }

    /// Values of one head, `[token][value_dim]`.
    pub(super) fn values(&self, kv_head: usize) -> &[E] {
        let len = BLOCK_TOKENS * self.value_dim;
        &self.v[kv_head * len..][..len]
    }

    fn size_bytes(&self) -> usize {
        (self.k.len() + self.v.len()) * size_of::<E>()
    }
}
