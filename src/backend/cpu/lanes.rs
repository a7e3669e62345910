//! The reduction order of every sum over a dimension: 16 lanes, then halving.
//!
//! Lane j sums the elements k ≡ j (mod 16) in ascending k, starting from +0, multiply and add
//! separate. A ragged tail is padded with zeros (which changes no accumulator: one that starts at
//! +0 never becomes −0). Lanes are added by halving: 8, 4, 2, 1.

use crate::tensor::bf16_from_bits;

/// Lanes of a reduction.
pub(crate) const LANES: usize = 16;

/// One accumulator per lane.
pub(crate) type Lanes = [f32; LANES];

/// An element that kernels read and widen to FP32, exactly.
pub(crate) trait Widen: Copy + Send + Sync + 'static {
    fn widen(self) -> f32;
}

impl Widen for f32 {
    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }
}

/// BF16 bits.
impl Widen for u16 {
    #[inline(always)]
    fn widen(self) -> f32 {
        bf16_from_bits(self)
    }
}

/// Adds the lanes by halving.
#[inline(always)]
pub(crate) fn halve(mut lanes: Lanes) -> f32 {
    for width in [8, 4, 2, 1] {
        for j in 0..width {
            lanes[j] += lanes[j + width];
        }
    }
    lanes[0]
}

/// Σ a·b in the fixed order.
#[inline(always)]
pub(crate) fn dot<A: Widen, B: Widen>(a: &[A], b: &[B]) -> f32 {
    let mut lanes = [0.0; LANES];
    let (a_blocks, a_tail) = a.as_chunks::<LANES>();
    let (b_blocks, b_tail) = b.as_chunks::<LANES>();
    for (x, y) in a_blocks.iter().zip(b_blocks) {
        for j in 0..LANES {
            lanes[j] += x[j].widen() * y[j].widen();
        }
    }
    for (j, (x, y)) in a_tail.iter().zip(b_tail).enumerate() {
        lanes[j] += x.widen() * y.widen();
    }
    halve(lanes)
}

/// Σ x in the fixed order.
#[inline(always)]
pub(crate) fn sum(x: &[f32]) -> f32 {
    let mut lanes = [0.0; LANES];
    let (blocks, tail) = x.as_chunks::<LANES>();
    for block in blocks {
        for j in 0..LANES {
            lanes[j] += block[j];
        }
    }
    for (j, x) in tail.iter().enumerate() {
        lanes[j] += x;
    }
    halve(lanes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lane_order_is_the_documented_one() {
        // 2²⁴ + 1 is not representable: the result shows which terms met first.
        let mut x = vec![0.0f32; 35];
        x[0] = 16_777_216.0;
        x[16] = 1.0; // same lane as x[0]: lost
        x[17] = 1.0; // lane 1
        x[34] = 1.0; // lane 2, meets lane 0 before lane 1 does
        assert_eq!(sum(&x), 16_777_216.0);
        x[8] = 1.0; // lane 8 joins lane 0 first: lost as well
        assert_eq!(sum(&x), 16_777_216.0);
        x[1] = 1.0; // lane 1 now holds 2
        assert_eq!(sum(&x), 16_777_218.0);
        let ones = vec![1.0f32; 35];
        assert_eq!(dot(&x, &ones), sum(&x));
    }
}
