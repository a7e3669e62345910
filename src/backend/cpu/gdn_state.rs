//! State of one gated-delta-net layer: boundary states, rows of two groups, convolution history.

use super::gdn_core::materialise;
use crate::backend::{GdnSpec, LiveState, StateTensor, TruncateError};
use crate::units::mutant;
use std::sync::Arc;

/// Tokens of one group, aligned to absolute positions.
pub const GROUP_TOKENS: usize = 64;
/// Tokens that a truncation may always take back, group boundaries permitting.
pub const VERIFY_WINDOW_TOKENS: usize = 64;

/// State of one layer.
///
/// Group g covers positions 64·g … 64·g + 63. Two groups are kept, the open one and the one before
/// it, at index g mod 2 of [`GdnState::groups`].
#[derive(Clone, Debug)]
pub(super) struct GdnState {
    pub(super) spec: GdnSpec,
    pub(super) groups: [Group; 2],
    /// The lowest group whose boundary state is still held.
    oldest_group: usize,
    /// Past convolution inputs: a ring of columns, position p at p mod ring, `[column][channel]`.
    conv: Arc<Vec<f32>>,
    /// The lowest position whose column is still held.
    oldest_column: usize,
}

/// One group: the state before it and its rows so far.
#[derive(Clone, Debug)]
pub(super) struct Group {
    /// S0, the state before the group's first token: `[value_head][key_dim][value_dim]`.
    pub(super) boundary: Arc<Vec<f32>>,
    /// Unit key rows: `[key_head][row][key_dim]`.
    pub(super) k: Arc<Vec<f32>>,
    /// Corrected value rows u: `[value_head][row][value_dim]`.
    pub(super) u: Arc<Vec<f32>>,
    /// G, the running sum of log decays, row included: `[value_head][row]`.
    pub(super) log_decay: Arc<Vec<f64>>,
}

impl GdnState {
    /// The state of an empty sequence.
    pub(super) fn new(spec: GdnSpec) -> GdnState {
        let d = spec.dims;
        let group = || Group {
            boundary: Arc::new(vec![0.0; d.value_heads * d.key_dim * d.value_dim]),
            k: Arc::new(vec![0.0; d.key_heads * GROUP_TOKENS * d.key_dim]),
            u: Arc::new(vec![0.0; d.value_heads * GROUP_TOKENS * d.value_dim]),
            log_decay: Arc::new(vec![0.0; d.value_heads * GROUP_TOKENS]),
        };
        let ring = VERIFY_WINDOW_TOKENS + d.conv_width - 1;
        GdnState {
            spec,
            groups: [group(), group()],
            oldest_group: 0,
            conv: Arc::new(vec![0.0; ring * d.channels()]),
            oldest_column: 0,
        }
    }

    /// Notes that the group before `group` is complete and `group` is open.
    pub(super) fn opened(&mut self, group: usize) {
        self.oldest_group = self.oldest_group.max(group.saturating_sub(1));
    }

    /// The convolution input of a past position; zeros before the first token.
    pub(super) fn column(&self, position: isize) -> Option<&[f32]> {
        let channels = self.spec.dims.channels();
        let ring = self.conv.len() / channels;
        let position = usize::try_from(position).ok()?;
        debug_assert!(position >= self.oldest_column);
        Some(&self.conv[position % ring * channels..][..channels])
    }

    /// Keeps the convolution inputs of a chunk (`rows × channels`) that starts at `position`.
    pub(super) fn keep_columns(&mut self, position: usize, rows: &[f32]) {
        let channels = self.spec.dims.channels();
        let ring = self.conv.len() / channels;
        let count = rows.len() / channels;
        let conv = Arc::make_mut(&mut self.conv);
        let first = count.saturating_sub(ring);
        let late = usize::from(mutant!("conv_ring_late"));
        for (i, row) in rows.chunks_exact(channels).enumerate().skip(first) {
            conv[(position + i + late) % ring * channels..][..channels].copy_from_slice(row);
        }
        self.oldest_column = self.oldest_column.max((position + count).saturating_sub(ring));
    }

    /// Whether the state at `len_tokens` can be had without replay.
    pub(super) fn can_truncate(&self, len_tokens: usize) -> Result<(), TruncateError> {
        if mutant!("truncate_past_boundary") {
            return Ok(());
        }
        let boundary = self.oldest_group * GROUP_TOKENS;
        if len_tokens < boundary {
            return Err(TruncateError::PastBoundary { oldest_tokens: boundary });
        }
        let history = self.spec.dims.conv_width - 1;
        if len_tokens.saturating_sub(history) < self.oldest_column {
            return Err(TruncateError::PastWindow { oldest_tokens: self.oldest_column + history });
        }
        Ok(())
    }

    /// Goes back to `len_tokens`, which [`GdnState::can_truncate`] allowed: later rows and columns
    /// are simply no longer counted.
    pub(super) fn truncate(&mut self, len_tokens: usize) {
        debug_assert!(self.can_truncate(len_tokens).is_ok());
    }

    /// Bytes of everything that one layer's state holds (shared or not).
    pub(super) fn bytes_of(spec: &GdnSpec) -> u64 {
        let d = spec.dims;
        let k = d.key_heads * GROUP_TOKENS * d.key_dim;
        let u = d.value_heads * GROUP_TOKENS * d.value_dim;
        let boundary = d.value_heads * d.key_dim * d.value_dim;
        let group = (boundary + k + u) * 4 + d.value_heads * GROUP_TOKENS * 8;
        let conv = (VERIFY_WINDOW_TOKENS + d.conv_width - 1) * d.channels() * 4;
        (2 * group + conv) as u64
    }

    /// What later tokens can read after `len` tokens.
    pub(super) fn live(&self, len: usize) -> Vec<LiveState> {
        let d = self.spec.dims;
        let group = &self.groups[len / GROUP_TOKENS % 2];
        let rows = len % GROUP_TOKENS;
        let widen = |x: &f32| f64::from(*x);
        let open = |all: &[f32], width: usize| -> Vec<f64> {
            let heads = all.chunks_exact(GROUP_TOKENS * width);
            heads.flat_map(|head| head[..rows * width].iter().map(widen)).collect()
        };
        let decay = group.log_decay.chunks_exact(GROUP_TOKENS);
        let [_, conv] = self.inspect(len);
        let layer = self.spec.layer;
        let named = |name: &str, values| LiveState { name: format!("gdn.{layer}.{name}"), values };
        vec![
            named("boundary", group.boundary.iter().map(widen).collect()),
            named("k", open(&group.k, d.key_dim)),
            named("u", open(&group.u, d.value_dim)),
            named("log_decay", decay.flat_map(|head| head[..rows].iter().copied()).collect()),
            named("conv", conv.values.iter().map(widen).collect()),
        ]
    }

    /// The recurrent state after `len` tokens and the last convolution inputs, for inspection.
    pub(super) fn inspect(&self, len: usize) -> [StateTensor; 2] {
        let d = self.spec.dims;
        let history = d.conv_width - 1;
        let mut conv = vec![0.0; d.channels() * history];
        for h in 0..history {
            if let Some(column) = self.column(len as isize - history as isize + h as isize) {
                for (c, x) in column.iter().enumerate() {
                    conv[c * history + h] = *x;
                }
            }
        }
        let layer = self.spec.layer;
        [
            StateTensor {
                name: format!("layers.{layer}.recurrent"),
                shape: vec![d.value_heads, d.key_dim, d.value_dim],
                values: materialise(self, len),
            },
            StateTensor {
                name: format!("layers.{layer}.conv"),
                shape: vec![d.channels(), history],
                values: conv,
            },
        ]
    }
}
