//! Keys and values as the `fast` attention kernels read them.

use super::panels::PAIR;
use super::simd::LANES;
use crate::backend::CacheSpec;
use crate::backend::cpu::BLOCK_TOKENS;
use crate::tensor::{bf16_bits, bf16_from_bits};
use crate::units::mutant;
use std::sync::Arc;

/// One page: [`BLOCK_TOKENS`] positions of every key-value head, BF16.
///
/// Per head, keys lie as `[token / 16][dim / 2][16 tokens][2]`, so that tokens are lanes and dimensions
/// are summed; values lie as `[dim / 16][token / 2][16 dims][2]`, so that dimensions are lanes and tokens
/// are summed. Either is read from front to back.
#[derive(Clone, Debug)]
pub(in crate::backend::cpu) struct PanelPage {
    head_dim: usize,
    k: Arc<Vec<u16>>,
    v: Arc<Vec<u16>>,
}

/// Elements of 16 tokens' keys.
pub(super) fn key_panel(head_dim: usize) -> usize {
    head_dim.div_ceil(2) * PAIR
}

/// Elements of 16 dimensions of a page's values.
pub(super) const VALUE_PANEL: usize = BLOCK_TOKENS / 2 * PAIR;

/// Elements of one head's keys and of its values in a page.
fn head_elements(head_dim: usize) -> (usize, usize) {
    (BLOCK_TOKENS / LANES * key_panel(head_dim), padded(head_dim) / LANES * VALUE_PANEL)
}

/// Dimensions of a value row, padded with zeros to whole panels.
pub(super) fn padded(head_dim: usize) -> usize {
    head_dim.next_multiple_of(LANES)
}

impl PanelPage {
    fn new(spec: &CacheSpec) -> PanelPage {
        let (keys, values) = head_elements(spec.head_dim);
        let zeros = |len| Arc::new(vec![0; spec.kv_heads * len]);
        PanelPage { head_dim: spec.head_dim, k: zeros(keys), v: zeros(values) }
    }

    /// Keys of one head.
    pub(super) fn keys(&self, kv_head: usize) -> &[u16] {
        let (len, _) = head_elements(self.head_dim);
        &self.k[kv_head * len..][..len]
    }

    /// Values of one head.
    pub(super) fn values(&self, kv_head: usize) -> &[u16] {
        let (_, len) = head_elements(self.head_dim);
        &self.v[kv_head * len..][..len]
    }

    /// Bytes of one page.
    pub(in crate::backend::cpu) fn bytes_of(spec: &CacheSpec) -> usize {
        let (keys, values) = head_elements(spec.head_dim);
        spec.kv_heads * (keys + values) * 2
    }

    /// Bytes held.
    pub(in crate::backend::cpu) fn size_bytes(&self) -> usize {
        (self.k.len() + self.v.len()) * 2
    }

    /// The first `rows` keys (or values) of every head, by head and token, widened.
    pub(in crate::backend::cpu) fn live(&self, keys: bool, rows: usize, all: &mut Vec<f64>) {
        let heads = self.v.len() / head_elements(self.head_dim).1;
        for head in 0..heads {
            let side = if keys { self.keys(head) } else { self.values(head) };
            for token in 0..rows {
                all.extend((0..self.head_dim).map(|d| {
                    let at =
                        if keys { key_at(d, token, self.head_dim) } else { value_at(d, token) };
                    f64::from(bf16_from_bits(side[at]))
                }));
            }
        }
    }
}

/// Where dimension `d` of a token's key lies.
fn key_at(d: usize, token: usize, head_dim: usize) -> usize {
    token / LANES * key_panel(head_dim) + d / 2 * PAIR + token % LANES * 2 + d % 2
}

/// Where dimension `d` of a token's value lies.
fn value_at(d: usize, token: usize) -> usize {
    let token = if mutant!("fast_value_pairs_swapped") { token ^ 1 } else { token };
    d / LANES * VALUE_PANEL + token / 2 * PAIR + d % LANES * 2 + token % 2
}

/// Region `kv_write`: appends rows of keys and values (`rows × kv_heads·head_dim`) from `position` on.
pub(in crate::backend::cpu) fn write(
    pages: &mut Vec<PanelPage>,
    spec: &CacheSpec,
    position: usize,
    k: &[f32],
    v: &[f32],
) {
    let (head_dim, row_width) = (spec.head_dim, spec.kv_heads * spec.head_dim);
    let (key_len, value_len) = head_elements(head_dim);
    for (row, (k, v)) in k.chunks_exact(row_width).zip(v.chunks_exact(row_width)).enumerate() {
        let (page, token) = ((position + row) / BLOCK_TOKENS, (position + row) % BLOCK_TOKENS);
        if page == pages.len() {
            pages.push(PanelPage::new(spec));
        }
        let token = if mutant!("kv_write_wrong_slot") { token & !1 } else { token };
        let page = &mut pages[page];
        let keys = Arc::make_mut(&mut page.k).chunks_exact_mut(key_len);
        for (head, k) in keys.zip(k.chunks_exact(head_dim)) {
            for (d, x) in k.iter().enumerate() {
                head[key_at(d, token, head_dim)] = bf16_bits(*x);
            }
        }
        let values = Arc::make_mut(&mut page.v).chunks_exact_mut(value_len);
        for (head, v) in values.zip(v.chunks_exact(head_dim)) {
            for (d, x) in v.iter().enumerate() {
                head[value_at(d, token)] = bf16_bits(*x);
            }
        }
    }
}
