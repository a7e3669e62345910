//! Region `sampler`: the next token's id from a row of logits.

use super::softmax64::{LogitsError, Softmax64, check_logits};

/// The sampler's arithmetic as manifests, `assay generate` and gates name it: FP64 softmax over
/// blocks of 256 ids, inverse of the running sum, one SplitMix64 word per token.
pub const SAMPLER: &str = "softmax_fp64_block256_splitmix64";

/// Version of [`SAMPLER`]: rises when the same logits and seed may give another token.
pub const SAMPLER_VERSION: u32 = 1;

/// The id of the largest logit, the lowest id on ties.
///
/// # Errors
/// [`LogitsError`] if the row is empty or holds a value that is not finite.
pub fn greedy(logits: &[f32]) -> Result<u32, LogitsError> {
    check_logits(logits, logits.len())?;
    let mut best = 0;
    for (id, z) in logits.iter().enumerate() {
        if *z > logits[best] {
            best = id;
        }
    }
    Ok(best as u32)
}

/// The id that `unit()` in [0, 1) selects from softmax(`logits` / `temperature`).
///
/// `unit` is called exactly once, and not at all on an error: a refused row consumes no random
/// word.
///
/// # Numerics
/// See [`Softmax64`].
///
/// # Errors
/// [`LogitsError`] if the row is empty or holds a value that is not finite.
///
/// # Panics
/// If `temperature` is not positive and finite.
pub fn sample(
    logits: &[f32],
    temperature: f64,
    unit: impl FnOnce() -> f64,
) -> Result<u32, LogitsError> {
    let softmax = Softmax64::new(logits, temperature)?;
    Ok(softmax.select(unit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LN_3: f32 = 1.098_612_3;
    /// The largest unit that a random word can give.
    const LARGEST: f64 = 1.0 - f64::EPSILON / 2.0;

    fn pick(logits: &[f32], temperature: f64, unit: f64) -> u32 {
        sample(logits, temperature, || unit).unwrap()
    }

    #[test]
    fn greedy_takes_the_lowest_id_on_ties() {
        assert_eq!(greedy(&[1.0, 2.0, 2.0]).unwrap(), 1);
        assert_eq!(greedy(&[-0.0, 0.0]).unwrap(), 0);
        assert_eq!(greedy(&[7.0; 300]).unwrap(), 0);
        assert!(greedy(&[1.0, f32::NAN]).is_err());
        assert!(greedy(&[]).is_err());
    }

    #[test]
    fn quarters_at_one_and_tenths_at_one_half() {
        let logits = [0.0, LN_3];
        assert_eq!(pick(&logits, 1.0, 0.249_999_9), 0);
        assert_eq!(pick(&logits, 1.0, 0.250_000_1), 1);
        assert_eq!(pick(&logits, 0.5, 0.099_999_9), 0);
        assert_eq!(pick(&logits, 0.5, 0.100_000_1), 1);
    }

    #[test]
    fn a_hit_on_the_boundary_goes_to_the_next_id() {
        // Four equal weights: running sums 1, 2, 3, 4 of Z = 4, exactly.
        for (unit, id) in [(0.0, 0), (0.25, 1), (0.5, 2), (0.75, 3), (LARGEST, 3)] {
            assert_eq!(pick(&[5.0; 4], 1.0, unit), id, "u = {unit}");
        }
        assert_eq!(pick(&[5.0; 4], 1.0, 0.25 - f64::EPSILON), 0);
        // The same across the edge of a block: 512 equal weights, boundary at id 256.
        let equal = [0.0; 512];
        assert_eq!(pick(&equal, 1.0, 0.5), 256);
        assert_eq!(pick(&equal, 1.0, 0.5 - f64::EPSILON / 2.0), 255);
    }

    #[test]
    fn ids_without_mass_are_never_chosen() {
        // exp(−1000) underflows: ids 0 and 3 and a whole first block have no mass.
        assert_eq!(pick(&[-1000.0, 0.0, 0.0, -1000.0], 1.0, 0.0), 1);
        assert_eq!(pick(&[-1000.0, 0.0, 0.0, -1000.0], 1.0, LARGEST), 2);
        let mut logits = vec![-1000.0; 700];
        logits[300] = 0.0;
        for unit in [0.0, 0.5, LARGEST, 1.0] {
            assert_eq!(pick(&logits, 1.0, unit), 300, "u = {unit}");
        }
    }

    #[test]
    fn rounding_up_to_the_total_takes_the_last_id_with_mass() {
        // A word never gives u = 1; it stands for r rounded up to Z.
        assert_eq!(pick(&[0.0, 0.0, -1000.0], 1.0, 1.0), 1);
    }

    #[test]
    fn a_refused_row_draws_nothing_and_a_good_one_draws_once() {
        for bad in [vec![], vec![f32::NAN], vec![f32::NEG_INFINITY; 4], vec![0.0, f32::INFINITY]] {
            assert!(sample(&bad, 1.0, || panic!("a word was drawn")).is_err());
        }
        let mut draws = 0;
        let draw = || {
            draws += 1;
            0.5
        };
        assert_eq!(sample(&[3.0], 1.0, draw).unwrap(), 0);
        assert_eq!(draws, 1, "a vocabulary of one still draws its word");
    }
}
