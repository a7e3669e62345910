//! FP8: the two formats of the OCP specification, by bit operations.
//!
//! E4M3 has no infinities (0x7f and 0xff are NaN, 448 is the largest value), E5M2 is IEEE-like
//! (57344 is the largest value). Rounding is to nearest, ties to even; what lies beyond the largest
//! value, infinity included, becomes the largest value of its sign, as the conversions of GPUs do.

/// A format: exponent bits, mantissa bits, bias, magnitude of the largest value, of NaN.
#[derive(Clone, Copy, Debug)]
struct Format {
    mantissa_bits: u32,
    bias: i32,
    largest: u8,
    nan: u8,
}

const E4M3: Format = Format { mantissa_bits: 3, bias: 7, largest: 0x7e, nan: 0x7f };
const E5M2: Format = Format { mantissa_bits: 2, bias: 15, largest: 0x7b, nan: 0x7e };

/// The E4M3 value nearest to `x`.
pub fn e4m3_bits(x: f32) -> u8 {
    encode(x, E4M3)
}

/// The value of E4M3 bits.
pub fn e4m3_from_bits(bits: u8) -> f32 {
    if bits & 0x7f == 0x7f { f32::NAN } else { decode(bits, E4M3) }
}

/// The E5M2 value nearest to `x`.
pub fn e5m2_bits(x: f32) -> u8 {
    encode(x, E5M2)
}

/// The value of E5M2 bits.
pub fn e5m2_from_bits(bits: u8) -> f32 {
    match bits & 0x7f {
        0x7c => f32::INFINITY.copysign(decode(bits & 0x80, E5M2)),
        magnitude if magnitude > 0x7c => f32::NAN,
        _ => decode(bits, E5M2),
    }
}

fn encode(x: f32, format: Format) -> u8 {
    let sign = if x.is_sign_negative() { 0x80 } else { 0 };
    if x.is_nan() {
        return sign | format.nan;
    }
    let magnitude = x.abs();
    // The unit in the last place of the result: that of the subnormals for small values. A power of
    // two, so that the division is exact.
    let exponent = (magnitude.to_bits() >> 23) as i32 - 127;
    let least = 1 - format.bias;
    let unit = power_of_two(exponent.max(least) - format.mantissa_bits as i32);
    // At most 2^(mantissa bits + 1) units: exact, and rounded to nearest even once.
    let units = (magnitude.min(1e6) / unit).round_ties_even() as u32;
    // Counting units from the first binade on gives the bits: a mantissa that overflows carries into
    // the exponent.
    let binades = (exponent.max(least) - least) as u32;
    let bits = units + (binades << format.mantissa_bits);
    sign | bits.min(u32::from(format.largest)) as u8
}

fn decode(bits: u8, format: Format) -> f32 {
    let magnitude = u32::from(bits & 0x7f);
    let exponent = (magnitude >> format.mantissa_bits) as i32;
    let mantissa = magnitude & ((1 << format.mantissa_bits) - 1);
    let units = if exponent == 0 { mantissa } else { mantissa + (1 << format.mantissa_bits) };
    let unit = power_of_two(exponent.max(1) - format.bias - format.mantissa_bits as i32);
    let value = units as f32 * unit;
    if bits & 0x80 == 0 { value } else { -value }
}

/// 2^exponent for exponents of normal FP32 numbers.
fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits(((exponent + 127).clamp(1, 254) as u32) << 23)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All values that a format has, by its definition.
    fn finite(decode: fn(u8) -> f32) -> Vec<f32> {
        (0..=0x7f).map(decode).filter(|v| v.is_finite()).collect()
    }

    #[test]
    fn known_values() {
        assert_eq!(e4m3_from_bits(0x7e), 448.0);
        assert_eq!(e4m3_from_bits(0x01), 1.0 / 512.0);
        assert_eq!(e4m3_from_bits(0x38), 1.0);
        assert_eq!(e4m3_from_bits(0xc4), -3.0);
        assert!(e4m3_from_bits(0x7f).is_nan() && e4m3_from_bits(0xff).is_nan());
        assert_eq!(e5m2_from_bits(0x7b), 57344.0);
        assert_eq!(e5m2_from_bits(0x01), 1.0 / 65536.0);
        assert_eq!(e5m2_from_bits(0x3c), 1.0);
        assert_eq!(e5m2_from_bits(0xfc), f32::NEG_INFINITY);
        assert!(e5m2_from_bits(0x7d).is_nan());
        assert_eq!(finite(e4m3_from_bits).len(), 127);
        assert_eq!(finite(e5m2_from_bits).len(), 124);
    }

    /// Every value survives, and what lies between two goes to the nearer one, to the even one from
    /// the middle.
    #[test]
    fn rounding_is_to_nearest_even() {
        type Format = (fn(f32) -> u8, fn(u8) -> f32);
        let formats: [Format; 2] = [(e4m3_bits, e4m3_from_bits), (e5m2_bits, e5m2_from_bits)];
        for (encode, decode) in formats {
            let values = finite(decode);
            for (bits, value) in values.iter().enumerate() {
                assert_eq!(encode(*value), bits as u8);
                assert_eq!(encode(-*value), bits as u8 | 0x80, "the sign of zero too");
                let Some(next) = values.get(bits + 1) else { continue };
                let middle = (value + next) / 2.0;
                assert_eq!(encode(middle), (bits + bits % 2) as u8, "{middle}");
                assert_eq!(encode(middle.next_down()), bits as u8);
                assert_eq!(encode(middle.next_up()), bits as u8 + 1);
            }
            let largest = values.len() as u8 - 1;
            for beyond in [1e9, f32::INFINITY, f32::MAX] {
                assert_eq!(encode(beyond), largest);
                assert_eq!(encode(-beyond), largest | 0x80);
            }
            assert!(decode(encode(f32::NAN)).is_nan());
            assert_eq!(encode(1e-30), 0);
            assert_eq!(encode(f32::from_bits(1)), 0);
        }
    }
}
