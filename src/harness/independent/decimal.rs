//! C's `%.16e` by exact decimal arithmetic.

/// `value` in C's `%.16e`; −0 is written as 0.
///
/// A finite double is an integer times a power of two, so it has a finite decimal expansion; it is
/// written out in full and rounded to 17 digits, half to even.
///
/// # Panics
/// If `value` is not finite.
pub fn scientific(value: f64) -> String {
    assert!(value.is_finite(), "{value} has no digits");
    if value == 0.0 {
        return "0.0000000000000000e+00".into();
    }
    let bits = value.to_bits();
    let (field, fraction) = ((bits >> 52) & 0x7ff, bits & ((1 << 52) - 1));
    let (significand, power) = match field {
        0 => (fraction, -1074i32),
        _ => (fraction | 1 << 52, field as i32 - 1075),
    };
    // m · 2^p is an integer for p ≥ 0, and m · 5^−p · 10^p otherwise.
    let mut digits: Vec<u8> = significand.to_string().bytes().map(|b| b - b'0').collect();
    for _ in 0..power.unsigned_abs() {
        multiply(&mut digits, if power < 0 { 5 } else { 2 });
    }
    let mut exponent = digits.len() as i32 - 1 + power.min(0);
    let tail = digits.split_off(digits.len().min(17));
    digits.resize(17, 0);
    if rounds_up(&tail, digits[16]) && !increment(&mut digits) {
        // 9.99… became 10.00…
        digits = vec![0; 17];
        digits[0] = 1;
        exponent += 1;
    }
    let text: String = digits.iter().map(|d| char::from(b'0' + d)).collect();
    let sign = if value < 0.0 { "-" } else { "" };
    let (direction, size) = if exponent < 0 { ('-', -exponent) } else { ('+', exponent) };
    format!("{sign}{}.{}e{direction}{size:02}", &text[..1], &text[1..])
}

/// Multiplies a decimal number, most significant digit first.
fn multiply(digits: &mut Vec<u8>, by: u8) {
    let mut carry = 0;
    for digit in digits.iter_mut().rev() {
        let product = *digit * by + carry;
        *digit = product % 10;
        carry = product / 10;
    }
    if carry > 0 {
        digits.insert(0, carry);
    }
}

fn rounds_up(tail: &[u8], last: u8) -> bool {
    match tail.split_first() {
        Some((5, rest)) if rest.iter().all(|d| *d == 0) => last % 2 == 1,
        Some((first, _)) => *first >= 5,
        None => false,
    }
}

/// Adds one to the last digit; `false` if every digit was a nine.
fn increment(digits: &mut [u8]) -> bool {
    for digit in digits.iter_mut().rev() {
        if *digit < 9 {
            *digit += 1;
            return true;
        }
        *digit = 0;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::scientific;
    use crate::units::{Canonical, SplitMix64};

    #[test]
    fn known_spellings() {
        for (value, text) in [
            (1e6, "1.0000000000000000e+06"),
            (0.1, "1.0000000000000001e-01"),
            (-2.5, "-2.5000000000000000e+00"),
            (-0.0, "0.0000000000000000e+00"),
            (1e-5, "1.0000000000000001e-05"),
            (5e-324, "4.9406564584124654e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
        ] {
            assert_eq!(scientific(value), text);
        }
    }

    #[test]
    fn agrees_with_the_product_on_every_size_of_number() {
        let mut random = SplitMix64::new(11);
        let mut compared = 0;
        while compared < 500 {
            let value = f64::from_bits(random.next_word());
            if value.is_finite() {
                assert_eq!(format!("\"{}\"", scientific(value)), Canonical::Real(value).encode());
                compared += 1;
            }
        }
    }
}
