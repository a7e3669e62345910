//! What ranks exchange, and how it is added.

use crate::tensor::{
    DType, add_as_tree, bf16_bits, bf16_from_bits, e4m3_bits, e4m3_from_bits, e5m2_bits,
    e5m2_from_bits, round_bf16,
};
use crate::units::mutant;
use half::f16;

/// Elements that one rank contributes to a collective; the element type is that of the data.
#[derive(Clone, Debug, PartialEq)]
pub enum Elements {
    F32(Vec<f32>),
    /// Bits.
    F16(Vec<u16>),
    /// Bits.
    Bf16(Vec<u16>),
    /// Bits.
    F8E4M3(Vec<u8>),
    /// Bits.
    F8E5M2(Vec<u8>),
}

/// Ranks disagree about what they add.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CollectiveError {
    #[error("no rank contributes")]
    Nobody,
    #[error("rank {rank} contributes {found}, rank 0 {expected}")]
    Type { rank: usize, found: DType, expected: DType },
    #[error("rank {rank} contributes {found} elements, rank 0 {expected}")]
    Length { rank: usize, found: usize, expected: usize },
    #[error("{0} is no element type of a sum")]
    NoSum(DType),
}

impl Elements {
    /// Values rounded to an element type.
    ///
    /// # Errors
    /// The type is none that ranks add.
    pub fn rounded(values: &[f32], dtype: DType) -> Result<Elements, CollectiveError> {
        let all = values.iter().copied();
        Ok(match dtype {
            DType::F32 => Elements::F32(values.to_vec()),
            DType::F16 => Elements::F16(all.map(|v| f16::from_f32(v).to_bits()).collect()),
            DType::BF16 => Elements::Bf16(all.map(bf16_bits).collect()),
            DType::F8_E4M3 => Elements::F8E4M3(all.map(e4m3_bits).collect()),
            DType::F8_E5M2 => Elements::F8E5M2(all.map(e5m2_bits).collect()),
            other => return Err(CollectiveError::NoSum(other)),
        })
    }

    /// The values, widened exactly.
    pub fn widened(&self) -> Vec<f32> {
        match self {
            Elements::F32(v) => v.clone(),
            Elements::F16(v) => v.iter().map(|b| f16::from_bits(*b).to_f32()).collect(),
            Elements::Bf16(v) => v.iter().map(|b| bf16_from_bits(*b)).collect(),
            Elements::F8E4M3(v) => v.iter().map(|b| e4m3_from_bits(*b)).collect(),
            Elements::F8E5M2(v) => v.iter().map(|b| e5m2_from_bits(*b)).collect(),
        }
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        match self {
            Elements::F32(_) => DType::F32,
            Elements::F16(_) => DType::F16,
            Elements::Bf16(_) => DType::BF16,
            Elements::F8E4M3(_) => DType::F8_E4M3,
            Elements::F8E5M2(_) => DType::F8_E5M2,
        }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Elements::F32(v) => v.len(),
            Elements::F16(v) | Elements::Bf16(v) => v.len(),
            Elements::F8E4M3(v) | Elements::F8E5M2(v) => v.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The sum of the ranks' contributions.
///
/// # Numerics
/// Each element is widened to FP32, added as the binary tree over rank numbers (padded to a power of
/// two with ranks that add nothing), and rounded once to the element type. The order is fixed: it
/// does not depend on which rank arrives first, nor on where an element lies.
///
/// # Errors
/// Contributions of several types or lengths.
pub fn sum(contributions: &[Elements]) -> Result<Elements, CollectiveError> {
    let first = contributions.first().ok_or(CollectiveError::Nobody)?;
    for (rank, other) in contributions.iter().enumerate() {
        if other.dtype() != first.dtype() {
            let (found, expected) = (other.dtype(), first.dtype());
            return Err(CollectiveError::Type { rank, found, expected });
        }
        if other.len() != first.len() {
            let (found, expected) = (other.len(), first.len());
            return Err(CollectiveError::Length { rank, found, expected });
        }
    }
    let mut widened: Vec<Vec<f32>> = contributions.iter().map(Elements::widened).collect();
    if mutant!("all_reduce_drops_a_rank") && widened.len() > 1 {
        widened.pop();
    }
    if mutant!("all_reduce_rounds_parts") {
        widened.iter_mut().flatten().for_each(|v| *v = round_bf16(*v));
    }
    let add = |mut left: Vec<f32>, right: Vec<f32>| {
        left.iter_mut().zip(right).for_each(|(l, r)| *l += r);
        left
    };
    let total = match mutant!("all_reduce_as_chain") {
        true => widened.into_iter().reduce(add),
        false => add_as_tree(widened, add),
    };
    Elements::rounded(&total.unwrap_or_default(), first.dtype())
}
