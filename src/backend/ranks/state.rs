//! The state of a sequence that several ranks hold together.

use super::layout::{Layout, RankLayout, scatter};
use crate::backend::{LiveState, State, StateTensor, TruncateError};
use crate::placement::AxisSlice;
use std::any::Any;
use std::sync::Arc;

/// One state per rank.
#[derive(Debug)]
pub(super) struct RankedState {
    pub(super) ranks: Vec<Box<dyn State>>,
    pub(super) layout: Arc<Layout>,
}

impl State for RankedState {
    fn len_tokens(&self) -> usize {
        self.ranks.first().map_or(0, |rank| rank.len_tokens())
    }

    fn fork(&self) -> Box<dyn State> {
        let ranks = self.ranks.iter().map(|rank| rank.fork()).collect();
        Box::new(RankedState { ranks, layout: Arc::clone(&self.layout) })
    }

    fn truncate(&mut self, len_tokens: usize) -> Result<(), TruncateError> {
        // Layers of another stage may reach back less far: all ranks or none.
        let mut ranks: Vec<Box<dyn State>> = self.ranks.iter().map(|rank| rank.fork()).collect();
        ranks.iter_mut().try_for_each(|rank| rank.truncate(len_tokens))?;
        self.ranks = ranks;
        Ok(())
    }

    fn size_bytes(&self) -> u64 {
        self.ranks.iter().map(|rank| rank.size_bytes()).sum()
    }

    fn inspect(&self) -> Vec<StateTensor> {
        let ranks: Vec<Vec<StateTensor>> = self.ranks.iter().map(|rank| rank.inspect()).collect();
        self.together(
            &ranks,
            |tensor| &tensor.name,
            |name, parts| {
                let first = parts[0].1;
                let (layer, part) = layer_of(name)?;
                let slices = parts.iter().map(|(rank, tensor)| {
                    let gdn = rank.gdn.get(&layer)?;
                    let slice = if part == "conv" { &gdn.channels } else { &gdn.value_heads };
                    Some((slice, &tensor.values[..]))
                });
                let (values, of) = units(slices)?;
                let mut shape = first.shape.clone();
                shape[0] = of;
                Some(StateTensor { name: name.to_owned(), shape, values })
            },
        )
    }

    fn live(&self) -> Vec<LiveState> {
        let ranks: Vec<Vec<LiveState>> = self
            .ranks
            .iter()
            .zip(&self.layout.ranks)
            .map(|(state, rank)| state.live().into_iter().map(|part| global(part, rank)).collect())
            .collect();
        let len_tokens = self.len_tokens();
        self.together(
            &ranks,
            |part| &part.name,
            |name, parts| {
                let values = match name.split('.').collect::<Vec<_>>()[..] {
                    ["attention", slot, side] => {
                        let slot = slot.parse().ok()?;
                        let spec = self.layout.cache(slot);
                        let dim = if side == "k" { spec.head_dim } else { spec.value_dim };
                        let slices = parts.iter().map(|(rank, part)| {
                            let (_, heads) = rank.attention.iter().find(|(s, _)| *s == slot)?;
                            Some((heads, &part.values[..]))
                        });
                        self.pages(slices, dim, len_tokens)?
                    }
                    ["gdn", layer, kind] => {
                        let layer = layer.parse().ok()?;
                        let slices = parts.iter().map(|(rank, part)| {
                            let gdn = rank.gdn.get(&layer)?;
                            let slice = match kind {
                                "k" => &gdn.key_heads,
                                "conv" => &gdn.channels,
                                _ => &gdn.value_heads,
                            };
                            Some((slice, &part.values[..]))
                        });
                        units(slices)?.0
                    }
                    _ => return None,
                };
                Some(LiveState { name: name.to_owned(), values })
            },
        )
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

impl RankedState {
    /// Parts of one name that the ranks of a stage have, put together by `merge`; those that it does
    /// not know are the same on every rank and taken from the first.
    fn together<P: Clone>(
        &self,
        ranks: &[Vec<P>],
        name: impl Fn(&P) -> &str,
        merge: impl Fn(&str, &[(&RankLayout, &P)]) -> Option<P>,
    ) -> Vec<P> {
        let mut all = Vec::new();
        for stage in 0..self.layout.stages() {
            let members: Vec<(&RankLayout, &Vec<P>)> = self
                .layout
                .ranks
                .iter()
                .zip(ranks)
                .filter(|(rank, _)| rank.stage == stage)
                .collect();
            let Some((_, first)) = members.first() else { continue };
            for (at, part) in first.iter().enumerate() {
                let parts: Vec<_> =
                    members.iter().map(|(rank, parts)| (*rank, &parts[at])).collect();
                all.push(merge(name(part), &parts).unwrap_or_else(|| part.clone()));
            }
        }
        all
    }

    /// Attention caches: page by page, head by head.
    fn pages<'a>(
        &self,
        parts: impl Iterator<Item = Option<(&'a AxisSlice, &'a [f64])>>,
        head_dim: usize,
        len_tokens: usize,
    ) -> Option<Vec<f64>> {
        let parts: Vec<(&AxisSlice, &[f64])> = parts.collect::<Option<_>>()?;
        let heads = parts.first()?.0.of;
        let page_tokens = self.layout.page_tokens;
        let mut whole = vec![f64::NAN; heads * head_dim * len_tokens];
        for first in (0..len_tokens).step_by(page_tokens) {
            let rows = page_tokens.min(len_tokens - first);
            let page = &mut whole[first * heads * head_dim..][..rows * heads * head_dim];
            for (slice, values) in &parts {
                let width = slice.len() * head_dim;
                scatter(slice, &values[first * width..][..rows * width], page, rows * head_dim);
            }
        }
        Some(whole)
    }
}

/// Parts whose outermost axis is divided, and the extent of that axis.
fn units<'a, T: Copy + Default + 'a>(
    parts: impl Iterator<Item = Option<(&'a AxisSlice, &'a [T])>>,
) -> Option<(Vec<T>, usize)> {
    let parts: Vec<(&AxisSlice, &[T])> = parts.collect::<Option<_>>()?;
    let (first, values) = parts.first()?;
    let unit = values.len() / first.len();
    let mut whole = vec![T::default(); first.of * unit];
    parts.iter().for_each(|(slice, values)| scatter(slice, values, &mut whole, unit));
    Some((whole, first.of))
}

/// `layers.3.conv` → 3 and `conv`.
fn layer_of(name: &str) -> Option<(usize, &str)> {
    let (layer, part) = name.strip_prefix("layers.")?.split_once('.')?;
    Some((layer.parse().ok()?, part))
}

/// A part under its name on one device: attention slots are numbered there across all stages.
fn global(part: LiveState, rank: &RankLayout) -> LiveState {
    let slot = part.name.strip_prefix("attention.").and_then(|rest| rest.split_once('.'));
    let named = slot.and_then(|(slot, side)| {
        let (slot, _) = rank.attention.get(slot.parse::<usize>().ok()?)?;
        Some(format!("attention.{slot}.{side}"))
    });
    LiveState { name: named.unwrap_or(part.name), values: part.values }
}
