//! The format as its definition reads, in FP64 and by search, sharing nothing with the engine.

/// Codes and scales of one matrix.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::harness::kinds) struct Packed {
    pub(in crate::harness::kinds) codes: Vec<u8>,
    pub(in crate::harness::kinds) scales: Vec<u16>,
}

/// Packs rows of `cols` values in groups of `group`.
pub(in crate::harness::kinds) fn pack(values: &[f32], cols: usize, group: usize) -> Packed {
    let mut packed = Packed { codes: Vec::new(), scales: Vec::new() };
    for row in values.chunks(cols) {
        let mut nibbles = Vec::new();
        for group in row.chunks(group) {
            let largest = group.iter().map(|v| f64::from(*v).abs()).fold(0.0, f64::max);
            let bits = if largest == 0.0 { 0x3f80 } else { nearest_bf16(largest / 7.0) };
            packed.scales.push(bits);
            let scale = value_of_bf16(bits);
            nibbles.extend(group.iter().map(|v| nearest_code(f64::from(*v), scale)));
        }
        for pair in nibbles.chunks(2) {
            let [low, high] = [pair[0], pair[1]].map(|q| q.rem_euclid(16) as u8);
            packed.codes.push(low + 16 * high);
        }
    }
    packed
}

/// The value of every code, row-major.
pub(in crate::harness::kinds) fn unpack(packed: &Packed, group: usize) -> Vec<f64> {
    let nibbles = packed.codes.iter().flat_map(|byte| [byte % 16, byte / 16]);
    nibbles
        .enumerate()
        .map(|(i, nibble)| {
            let code = if nibble < 8 { f64::from(nibble) } else { f64::from(nibble) - 16.0 };
            code * value_of_bf16(packed.scales[i / group])
        })
        .collect()
}

/// The code whose value is nearest, the even one of two. The distances are exact: they have less
/// than 53 bits wherever they are close.
fn nearest_code(value: f64, scale: f64) -> i32 {
    let distance = |q: i32| (value - f64::from(q) * scale).abs();
    (-7..=7)
        .min_by(|a, b| {
            distance(*a).total_cmp(&distance(*b)).then_with(|| (a % 2).abs().cmp(&(b % 2).abs()))
        })
        .unwrap_or(0)
}

/// The bits of the positive BF16 nearest to a value, by bisection of all of them; the even one of
/// two.
pub(in crate::harness::kinds) fn nearest_bf16(value: f64) -> u16 {
    let (mut low, mut high) = (0u16, 0x7f80);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        match value_of_bf16(middle) <= value {
            true => low = middle,
            false => high = middle,
        }
    }
    let (below, above) = (value - value_of_bf16(low), value_of_bf16(high) - value);
    match below.total_cmp(&above) {
        std::cmp::Ordering::Less => low,
        std::cmp::Ordering::Greater => high,
        std::cmp::Ordering::Equal => low + low % 2,
    }
}

/// The value of positive BF16 bits, from sign, exponent and fraction.
pub(in crate::harness::kinds) fn value_of_bf16(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 7), f64::from(bits % 128) / 128.0);
    match exponent {
        0 => fraction * 2f64.powi(-126),
        255 => f64::INFINITY,
        _ => (1.0 + fraction) * 2f64.powi(exponent - 127),
    }
}
