//! Regions `moe_combine` and `moe_shared`: the sum over a row's experts, and the shared expert.
//!
//! # Numerics
//! `moe_combine`: products weight · output in FP32, added as a binary tree over expert ids: the tree
//! has as many leaves as the next power of two above the number of experts, and a leaf whose expert
//! was not chosen adds nothing (it is left out, not 0). One rounding at the root. A shard of experts
//! that is a subtree can be summed elsewhere with the same bits.
//! `moe_shared`: x + shared, or x + sigmoid(gate) · shared, in FP32, one rounding.

use super::isa::multiversion;
use super::math::sigmoid;
use super::moe_experts::Order;
use super::rows::for_each_row;
use crate::backend::cpu::Isa;
use crate::tensor::round_bf16;
use crate::units::mutant;

/// Sums the experts of every row that are here: `x` holds the experts' outputs in the places of `order`, `index`
/// and `weights` are `rows × k`, `out` is `rows × width`.
#[expect(clippy::too_many_arguments, reason = "a kernel names every operand")]
pub(super) fn moe_combine(
    isa: Isa,
    x: &[f32],
    index: &[f32],
    weights: &[f32],
    order: &Order,
    width: usize,
    round: bool,
    out: &mut [f32],
) {
    let k = index.len() / (out.len() / width).max(1);
    for_each_row(out, width, |row, out| {
        let choices = row * k..(row + 1) * k;
        let mut leaves: Vec<Leaf<'_>> = choices
            .filter_map(|c| {
                let values = &x[order.places()[c]? * width..][..width];
                Some(Leaf { expert: index[c] as usize, weight: weights[c], values })
            })
            .collect();
        if leaves.is_empty() {
            // No expert of this row is here. Adding −0 changes no number.
            return out.fill(-0.0);
        }
        if !mutant!("moe_combine_by_weight") {
            leaves.sort_by_key(|leaf| leaf.expert);
        }
        if mutant!("moe_combine_drops_a_choice") && leaves.len() > 1 {
            leaves.pop();
        }
        let merges = merges(&leaves);
        combine(isa, &leaves, &merges, round, out);
    });
}

/// A chosen expert's part of a row.
#[derive(Clone, Copy, Debug)]
struct Leaf<'a> {
    expert: usize,
    weight: f32,
    values: &'a [f32],
}

/// The additions of the tree, in order: (into, from) are places among the leaves.
fn merges(leaves: &[Leaf<'_>]) -> Vec<(usize, usize)> {
    let mut nodes: Vec<(usize, usize)> =
        leaves.iter().enumerate().map(|(place, leaf)| (leaf.expert, place)).collect();
    let mut merges = Vec::new();
    while nodes.len() > 1 {
        // One level up: two nodes of one parent become one.
        let mut parents: Vec<(usize, usize)> = Vec::with_capacity(nodes.len());
        for (id, place) in nodes {
            match parents.last() {
                Some((parent, into)) if *parent == id / 2 => merges.push((*into, place)),
                _ => parents.push((id / 2, place)),
            }
        }
        nodes = parents;
        if mutant!("moe_combine_by_weight") && nodes.len() > 1 {
            let first = nodes[0].1;
            merges.extend(nodes.drain(1..).map(|(_, place)| (first, place)));
        }
    }
    merges
}

/// Columns that are summed at once.
const COLUMNS: usize = 64;

multiversion! {
    fn combine = combine_body(leaves: &[Leaf<'_>], merges: &[(usize, usize)], round: bool, out: &mut [f32]);
    fn add_shared = add_shared_body(x: &mut [f32], shared: &[f32], scale: Option<f32>, round: bool);
}

#[inline(always)]
fn combine_body(leaves: &[Leaf<'_>], merges: &[(usize, usize)], round: bool, out: &mut [f32]) {
    let mut parts = vec![[0.0f32; COLUMNS]; leaves.len()];
    for (block, out) in out.chunks_mut(COLUMNS).enumerate() {
        let start = block * COLUMNS;
        for (part, leaf) in parts.iter_mut().zip(leaves) {
            for (p, x) in part.iter_mut().zip(&leaf.values[start..start + out.len()]) {
                *p = leaf.weight * x;
            }
        }
        for (into, from) in merges {
            let from = parts[*from];
            for (a, b) in parts[*into].iter_mut().zip(from) {
                *a += b;
            }
        }
        for (o, p) in out.iter_mut().zip(parts[0]) {
            *o = if round { round_bf16(p) } else { p };
        }
    }
}

#[inline(always)]
fn add_shared_body(x: &mut [f32], shared: &[f32], scale: Option<f32>, round: bool) {
    for (x, s) in x.iter_mut().zip(shared) {
        let value = match scale {
            Some(scale) => *x + scale * s,
            None => *x + s,
        };
        *x = if round { round_bf16(value) } else { value };
    }
}

/// x += shared, or x += sigmoid(gate) · shared, every row; `gate` has one value per row.
pub(super) fn moe_shared(
    isa: Isa,
    x: &mut [f32],
    shared: &[f32],
    gate: Option<&[f32]>,
    width: usize,
    round: bool,
) {
    for_each_row(x, width, |row, x| {
        let scale = match gate {
            Some(gate) if !mutant!("moe_shared_ungated") => Some(sigmoid(gate[row])),
            _ => None,
        };
        let row = if mutant!("moe_shared_row_stale") { row & !1 } else { row };
        add_shared(isa, x, &shared[row * width..][..width], scale, round);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::ExpertSpan;
    use crate::tensor::add_as_tree;

    /// The definition: a full tree whose absent leaves add nothing.
    fn oracle(chosen: &[(usize, f32)], experts: usize) -> f32 {
        let mut level: Vec<Option<f32>> = vec![None; experts.next_power_of_two()];
        chosen.iter().for_each(|(e, v)| level[*e] = Some(*v));
        while level.len() > 1 {
            level = level
                .chunks(2)
                .map(|pair| match (pair[0], pair[1]) {
                    (Some(a), Some(b)) => Some(a + b),
                    (a, b) => a.or(b),
                })
                .collect();
        }
        level[0].unwrap()
    }

    #[test]
    fn the_sum_is_the_tree_over_expert_ids() {
        // 2²⁴ + 1 + 1 depends on the order: 16777218 if the ones meet first.
        let big = 16_777_216.0f32;
        let ids: [[usize; 3]; 4] = [[0, 2, 3], [2, 0, 1], [7, 1, 6], [1, 2, 3]];
        for (experts, ids) in [8, 8, 8, 6].into_iter().zip(ids) {
            for values in [[big, 1.0, 1.0], [1.0, big, 1.0], [1.0, 1.0, big]] {
                let index: Vec<f32> = ids.iter().map(|i| *i as f32).collect();
                let order = Order::new(&index, ExpertSpan::all(experts));
                let mut x = vec![0.0; 3];
                order.places().iter().zip(values).for_each(|(place, v)| x[place.unwrap()] = v);
                let mut out = [f32::NAN];
                moe_combine(Isa::PORTABLE, &x, &index, &[1.0; 3], &order, 1, false, &mut out);
                let chosen: Vec<(usize, f32)> = ids.into_iter().zip(values).collect();
                assert_eq!(out[0], oracle(&chosen, experts), "{ids:?} {values:?}");
            }
        }
    }

    /// Parts of the experts that are subtrees, summed elsewhere and added as a tree, are the sum of
    /// all; a row that chose no expert of a part adds nothing there.
    #[test]
    fn parts_that_are_subtrees_add_up_to_the_whole() {
        let ids = [[0usize, 2, 3], [2, 0, 1], [7, 1, 6], [5, 2, 4]];
        let index: Vec<f32> = ids.iter().flatten().map(|i| *i as f32).collect();
        let weights: Vec<f32> = (0..index.len()).map(|i| [1.0, -0.3, 0.7][i % 3]).collect();
        let value = |row: usize, expert: usize| [16_777_216.0f32, 1.0, 0.1][(row + expert) % 3];
        let (width, experts) = (2, 8);
        let sum = |span: ExpertSpan| {
            let order = Order::new(&index, span);
            let mut x = vec![f32::NAN; index.len() * width];
            for (choice, place) in order.places().iter().enumerate() {
                let Some(place) = place else { continue };
                x[place * width..][..width].fill(value(choice / 3, index[choice] as usize));
            }
            let mut out = vec![f32::NAN; ids.len() * width];
            moe_combine(Isa::PORTABLE, &x, &index, &weights, &order, width, false, &mut out);
            out
        };
        let whole = sum(ExpertSpan::all(experts));
        for ranks in [2, 4, 8] {
            let count = experts / ranks;
            let part = |rank: usize| sum(ExpertSpan { first: rank * count, count, of: experts });
            let total = add_as_tree((0..ranks).map(part).collect(), |a, b| {
                a.iter().zip(&b).map(|(a, b)| a + b).collect::<Vec<f32>>()
            });
            let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&total.unwrap()), bits(&whole), "{ranks} ranks");
        }
    }
}
