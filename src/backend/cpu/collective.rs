//! Regions `all_reduce`, `all_gather` and `stage_transfer`: where a rank meets the others.
//!
//! # Numerics
//! `all_reduce` adds FP32 parts as the binary tree over rank numbers and rounds once to BF16 where the
//! policy rounds ([`crate::backend::ranks::sum`]). The other two copy.

use super::buffers::Buffers;
use crate::backend::ranks::{Abandoned, Elements, Link, Member, sum};
use crate::backend::{Buf, RankGroup};
use crate::tensor::round_bf16;
use crate::units::mutant;

fn member(link: &Link, group: RankGroup) -> Member {
    match group {
        RankGroup::Tensor => link.tensor,
        RankGroup::Expert => link.expert,
    }
}

/// Brings a buffer and gets those of all members.
fn exchange(
    link: &Link,
    group: RankGroup,
    rows: Vec<f32>,
) -> Result<std::sync::Arc<Vec<Elements>>, Abandoned> {
    link.world.exchange(member(link, group), Elements::F32(rows))
}

/// Adds what the ranks of a group have of `x`, in place.
pub(super) fn all_reduce(
    link: &Link,
    group: RankGroup,
    b: &mut Buffers,
    x: Buf,
    round: bool,
) -> Result<(), Abandoned> {
    let parts = exchange(link, group, b.take(x))?;
    let total = sum(&parts).expect("ranks run one plan").widened();
    let finish = |v: f32| if round { round_bf16(v) } else { v };
    b.put(x, total.into_iter().map(finish).collect());
    Ok(())
}

/// Puts the columns of every rank side by side.
pub(super) fn all_gather(
    link: &Link,
    group: RankGroup,
    b: &mut Buffers,
    x: Buf,
    out: Buf,
) -> Result<(), Abandoned> {
    let part = b.width(x);
    let rows = b.take(x);
    let kept = rows.len();
    let parts = exchange(link, group, rows)?;
    let width = b.width(out);
    for (rank, values) in parts.iter().enumerate() {
        if mutant!("all_gather_skips_first") && rank == 0 {
            continue;
        }
        let rank = if mutant!("all_gather_reversed") { parts.len() - 1 - rank } else { rank };
        let values = values.widened();
        let rows = b.get_mut(out).chunks_exact_mut(width).zip(values.chunks_exact(part));
        rows.for_each(|(row, values)| row[rank * part..][..part].copy_from_slice(values));
    }
    b.put(x, vec![f32::NAN; kept]);
    Ok(())
}

/// Hands a buffer to the next stage.
pub(super) fn stage_send(link: &Link, b: &Buffers, x: Buf) -> Result<(), Abandoned> {
    match link.next {
        Some(next) => link.world.send(next, b.get(x).to_vec()),
        None => Ok(()),
    }
}

/// Takes what the stage before handed over.
pub(super) fn stage_receive(link: &Link, b: &mut Buffers, out: Buf) -> Result<(), Abandoned> {
    let mut rows = link.world.receive(link.rank)?;
    if mutant!("stage_transfer_rounds") {
        rows.iter_mut().for_each(|v| *v = round_bf16(*v));
    }
    if mutant!("stage_transfer_loses_last_row") {
        let kept = rows.len() - b.width(out);
        rows[kept..].fill(0.0);
    }
    b.put(out, rows);
    Ok(())
}
