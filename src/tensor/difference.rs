//! How two arrays differ: the numbers that every numerical check and report uses.

/// The difference of two FP32 arrays of the same length, element by element.
///
/// # Numerics
/// Differences are taken in FP64. Elements that are not finite on either side are counted in
/// `non_finite` and take part in nothing else; a caller that ignores the count would let NaN pass,
/// so [`Difference::is_bitwise`] and [`Difference::is_finite`] look at it first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// Elements compared.
    pub count: usize,
    /// Elements of which one side is NaN or infinite.
    pub non_finite: usize,
    /// Elements whose bits differ (+0 and −0 do).
    pub unequal_bits: usize,
    /// The largest absolute difference.
    pub max_abs: f64,
    /// Index of the largest difference, or of the first element that is not finite.
    pub worst_at: usize,
    pub mean_abs: f64,
    /// The 0.99 quantile of the absolute differences, interpolated linearly.
    pub p99_abs: f64,
    /// Root of the mean square.
    pub rms: f64,
    /// The largest distance in representable FP32 numbers.
    pub max_ulp: u64,
    /// The largest absolute value expected: what relative bounds refer to.
    pub largest_expected: f64,
}

/// Two arrays of different length were compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{expected} values were expected, {found} found")]
pub struct LengthMismatch {
    pub expected: usize,
    pub found: usize,
}

impl Difference {
    /// Compares `found` with `expected`.
    ///
    /// # Errors
    /// The lengths differ.
    pub fn between(expected: &[f32], found: &[f32]) -> Result<Difference, LengthMismatch> {
        if expected.len() != found.len() {
            return Err(LengthMismatch { expected: expected.len(), found: found.len() });
        }
        let mut d = Difference {
            count: expected.len(),
            non_finite: 0,
            unequal_bits: 0,
            max_abs: 0.0,
            worst_at: 0,
            mean_abs: 0.0,
            p99_abs: 0.0,
            rms: 0.0,
            max_ulp: 0,
            largest_expected: 0.0,
        };
        let mut differences = Vec::with_capacity(expected.len());
        for (i, (e, f)) in expected.iter().zip(found).enumerate() {
            d.unequal_bits += usize::from(e.to_bits() != f.to_bits());
            if !e.is_finite() || !f.is_finite() {
                if d.non_finite == 0 {
                    d.worst_at = i;
                }
                d.non_finite += 1;
                continue;
            }
            let difference = (f64::from(*e) - f64::from(*f)).abs();
            if difference > d.max_abs {
                d.max_abs = difference;
                d.worst_at = if d.non_finite == 0 { i } else { d.worst_at };
            }
            d.max_ulp = d.max_ulp.max(ordinal(*e).abs_diff(ordinal(*f)));
            d.largest_expected = d.largest_expected.max(f64::from(*e).abs());
            differences.push(difference);
        }
        if !differences.is_empty() {
            let n = differences.len() as f64;
            d.mean_abs = differences.iter().sum::<f64>() / n;
            d.rms = (differences.iter().map(|x| x * x).sum::<f64>() / n).sqrt();
            d.p99_abs = quantile(&mut differences, 0.99);
        }
        Ok(d)
    }

    /// Whether something was compared and every value on both sides is finite.
    pub fn is_finite(&self) -> bool {
        self.count > 0 && self.non_finite == 0
    }

    /// The class `bitwise`: something was compared, all finite, no bit differs.
    pub fn is_bitwise(&self) -> bool {
        self.is_finite() && self.unequal_bits == 0
    }
}

/// Position among the FP32 numbers in ascending order, both zeros at 0.
fn ordinal(x: f32) -> i64 {
    let magnitude = i64::from(x.to_bits() & 0x7fff_ffff);
    if x.is_sign_negative() { -magnitude } else { magnitude }
}

/// The `q` quantile of `values`, which is not empty, linear between the two nearest.
fn quantile(values: &mut [f64], q: f64) -> f64 {
    let position = q * (values.len() - 1) as f64;
    let low = position.floor() as usize;
    let (_, at, above) = values.select_nth_unstable_by(low, f64::total_cmp);
    let at = *at;
    let next = above.iter().copied().fold(f64::INFINITY, f64::min);
    let fraction = position - low as f64;
    if fraction == 0.0 { at } else { at + (next - at) * fraction }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_definition() {
        let expected: Vec<f32> = (0..101).map(|i| i as f32).collect();
        let mut found = expected.clone();
        for (i, f) in found.iter_mut().enumerate() {
            *f += i as f32; // differences 0, 1, …, 100
        }
        let d = Difference::between(&expected, &found).unwrap();
        assert_eq!((d.count, d.non_finite, d.unequal_bits), (101, 0, 100));
        assert_eq!((d.max_abs, d.worst_at, d.mean_abs, d.p99_abs), (100.0, 100, 50.0, 99.0));
        assert!((d.rms - (338_350.0f64 / 101.0).sqrt()).abs() < 1e-12);
        assert_eq!(d.largest_expected, 100.0);
        let d = Difference::between(&[1.0, 0.0, 0.0], &[1.0 + f32::EPSILON, -0.0, 2.0]).unwrap();
        assert_eq!(d.max_ulp, 0x4000_0000);
        assert_eq!(d.unequal_bits, 3, "the zeros differ in bits");
        assert!((d.p99_abs - 1.96).abs() < 1e-6, "between 0.00000012 and 2: {}", d.p99_abs);
    }

    #[test]
    fn nothing_that_is_not_finite_is_equal() {
        let nan = Difference::between(&[0.0, f32::NAN, 1.0], &[0.0, f32::NAN, 3.0]).unwrap();
        assert_eq!((nan.non_finite, nan.worst_at, nan.max_abs), (1, 1, 2.0));
        assert!(!nan.is_finite() && !nan.is_bitwise());
        let same = Difference::between(&[f32::INFINITY], &[f32::INFINITY]).unwrap();
        assert!(!same.is_bitwise(), "equal bits, but not finite");
        assert!(!Difference::between(&[], &[]).unwrap().is_bitwise(), "nothing was compared");
        assert!(Difference::between(&[0.5], &[0.5]).unwrap().is_bitwise());
        assert!(!Difference::between(&[0.0], &[-0.0]).unwrap().is_bitwise());
    }

    #[test]
    fn lengths_must_agree() {
        let error = Difference::between(&[0.0], &[]).unwrap_err();
        assert_eq!(error.to_string(), "1 values were expected, 0 found");
    }
}
