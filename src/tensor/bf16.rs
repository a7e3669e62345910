//! BF16 rounding by bit operations: round to nearest, ties to even, the same on every machine.

/// The BF16 nearest to `x` (ties to even), as its 16 bits. NaN stays NaN (quietened).
#[inline(always)]
pub fn bf16_bits(x: f32) -> u16 {
    let bits = x.to_bits();
    // Overflow of the addition cannot happen for finite values below the largest exponent, and
    // rounds to infinity above BF16's largest value, as it should.
    let rounded = (bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16) as u16;
    let nan = ((bits >> 16) as u16) | 0x0040;
    if x.is_nan() { nan } else { rounded }
}

/// The value of 16 BF16 bits.
#[inline(always)]
pub fn bf16_from_bits(bits: u16) -> f32 {
    f32::from_bits((bits as u32) << 16)
}

/// `x` rounded to BF16 and widened again.
#[inline(always)]
pub fn round_bf16(x: f32) -> f32 {
    bf16_from_bits(bf16_bits(x))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_half_on_every_upper_pattern_and_its_neighbours() {
        for high in 0..=u16::MAX {
            for low in [0u32, 1, 0x7fff, 0x8000, 0x8001, 0xffff] {
                let x = f32::from_bits((u32::from(high) << 16) | low);
                let ours = bf16_from_bits(bf16_bits(x));
                let theirs = half::bf16::from_f32(x).to_f32();
                if x.is_nan() {
                    assert!(ours.is_nan());
                } else {
                    assert_eq!(ours.to_bits(), theirs.to_bits(), "{x:e}");
                }
            }
        }
    }
}
