//! The FP64 softmax over a row of FP32 logits that log-probabilities and sampling share.

use crate::backend::NonFinite;
use crate::tensor::{exp64, ln64};
use crate::units::mutant;

/// Ids whose weights are summed serially before a block's sum joins the total.
pub const SOFTMAX_BLOCK_IDS: usize = 256;

/// A row of logits from which nothing can be chosen.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LogitsError {
    #[error("the row of logits is empty")]
    Empty,
    #[error("the row has {found} logits, the vocabulary {expected} ids")]
    WrongLength { expected: usize, found: usize },
    #[error("{0}")]
    NotFinite(NonFinite),
    #[error("id {id} is outside the row of {len} logits")]
    IdOutOfRange { id: u32, len: usize },
}

/// Refuses rows that are empty, not of length `expected`, or hold a NaN or an infinity.
///
/// # Errors
/// [`LogitsError`] naming the first offending id.
pub fn check_logits(logits: &[f32], expected: usize) -> Result<(), LogitsError> {
    if logits.is_empty() {
        return Err(LogitsError::Empty);
    }
    if logits.len() != expected {
        return Err(LogitsError::WrongLength { expected, found: logits.len() });
    }
    match logits.iter().all(|z| z.is_finite()) {
        true => Ok(()),
        false => Err(LogitsError::NotFinite(NonFinite::of(logits))),
    }
}

/// softmax(logits / T) before normalisation, with the running sums that selection needs.
///
/// # Shapes
/// `logits` \[ids], FP32; one running sum per block of [`SOFTMAX_BLOCK_IDS`] ids, FP64.
///
/// # Numerics
/// Each logit is widened to FP64 before the maximum is subtracted: a_i = (z_i − max) / T, weight
/// w_i = [`exp64`]\(a_i\). s_{b,j} is the serial sum of the first j + 1 weights of block b, P_b the
/// serial sum of the blocks before; the running sum at an id is P_b + s_{b,j}, one addition, and
/// Z is the sum of all blocks. Nothing is fused or reordered, so that every machine, thread count
/// and device gives the same bits. A weight that underflows to zero has no mass.
#[derive(Clone, Debug)]
pub struct Softmax64<'a> {
    logits: &'a [f32],
    temperature: f64,
    max: f64,
    /// P_1, P_2, …: the running sum after each block; the last one is Z.
    sums: Vec<f64>,
}

impl<'a> Softmax64<'a> {
    /// The distribution of a row at temperature `temperature`.
    ///
    /// # Errors
    /// [`LogitsError`] if the row is empty or a logit is not finite.
    ///
    /// # Panics
    /// If the temperature is not positive and finite: greedy choice is not a softmax.
    pub fn new(logits: &'a [f32], temperature: f64) -> Result<Softmax64<'a>, LogitsError> {
        assert!(temperature > 0.0 && temperature.is_finite(), "temperature {temperature}");
        check_logits(logits, logits.len())?;
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max).into();
        let mut softmax = Softmax64 { logits, temperature, max, sums: Vec::new() };
        let mut weights = [0.0; SOFTMAX_BLOCK_IDS];
        let mut running = 0.0;
        for block in 0..logits.len().div_ceil(SOFTMAX_BLOCK_IDS) {
            let sum = softmax.block(block, &mut weights).iter().fold(0.0, |s, w| s + w);
            running += sum;
            softmax.sums.push(running);
        }
        Ok(softmax)
    }

    /// The weights of one block.
    fn block<'w>(&self, block: usize, weights: &'w mut [f64; SOFTMAX_BLOCK_IDS]) -> &'w [f64] {
        let start = block * SOFTMAX_BLOCK_IDS;
        let logits = &self.logits[start..self.logits.len().min(start + SOFTMAX_BLOCK_IDS)];
        for (weight, z) in weights.iter_mut().zip(logits) {
            let a = match mutant!("sampler_temperature_inverted") {
                true => (f64::from(*z) - self.max) * self.temperature,
                false => (f64::from(*z) - self.max) / self.temperature,
            };
            *weight = exp64(a);
        }
        &weights[..logits.len()]
    }

    /// Z, the sum of all weights: at least 1, since the largest logit has weight 1.
    pub fn total(&self) -> f64 {
        *self.sums.last().expect("a row has at least one block")
    }

    /// The probability of an id (0 outside the row).
    pub fn probability(&self, id: u32) -> f64 {
        self.logits
            .get(id as usize)
            .map_or(0.0, |z| exp64((f64::from(*z) - self.max) / self.temperature) / self.total())
    }

    /// ln of the probability of an id, computed in log space: (z − max) / T − ln Z.
    ///
    /// Finite where the probability underflows, unless the quotient by T itself overflows.
    ///
    /// # Errors
    /// [`LogitsError::IdOutOfRange`].
    pub fn log_prob(&self, id: u32) -> Result<f64, LogitsError> {
        match self.logits.get(id as usize) {
            Some(z) => {
                let before = self.sums.len().checked_sub(2).map(|block| self.sums[block]);
                let total = match before {
                    Some(before) if mutant!("log_softmax_last_block_lost") => before,
                    _ => self.total(),
                };
                let max = if mutant!("log_softmax_max_kept") { 0.0 } else { self.max };
                Ok((f64::from(*z) - max) / self.temperature - ln64(total))
            }
            None => Err(LogitsError::IdOutOfRange { id, len: self.logits.len() }),
        }
    }

    /// The id that `unit` in [0, 1) selects: with r = unit · Z, the first id of positive weight
    /// whose running sum exceeds r strictly; if rounding made r reach Z, the last id of positive
    /// weight.
    pub fn select(&self, unit: f64) -> u32 {
        let r = unit * self.total();
        let mut weights = [0.0; SOFTMAX_BLOCK_IDS];
        // Running sums never fall, so the block whose end exceeds r first holds the id.
        if let Some(block) = self.sums.iter().position(|end| *end > r) {
            let before = if block == 0 { 0.0 } else { self.sums[block - 1] };
            let mut sum = 0.0;
            for (j, weight) in self.block(block, &mut weights).iter().enumerate() {
                sum += weight;
                let reached = match mutant!("sampler_boundary") {
                    true => before + sum >= r,
                    false => before + sum > r,
                };
                if *weight > 0.0 && reached {
                    let block = if mutant!("sampler_block_offset") { 0 } else { block };
                    return (block * SOFTMAX_BLOCK_IDS + j) as u32;
                }
            }
        }
        for block in (0..self.sums.len()).rev() {
            let last = self.block(block, &mut weights).iter().rposition(|w| *w > 0.0);
            if let Some(j) = last {
                return (block * SOFTMAX_BLOCK_IDS + j) as u32;
            }
        }
        unreachable!("the largest logit has weight 1")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_cannot_be_used_are_refused_with_the_place() {
        assert_eq!(check_logits(&[], 0), Err(LogitsError::Empty));
        let error = check_logits(&[0.0; 3], 4).unwrap_err();
        assert_eq!(error.to_string(), "the row has 3 logits, the vocabulary 4 ids");
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let error = Softmax64::new(&[0.0, bad, 1.0, bad], 1.0).unwrap_err().to_string();
            let expected = format!("2 of 4 logits are not finite, the first is {bad} at id 1");
            assert_eq!(error, expected);
        }
        let all = Softmax64::new(&[f32::NEG_INFINITY; 5], 1.0).unwrap_err();
        assert!(matches!(all, LogitsError::NotFinite(NonFinite { first_id: 0, count: 5, .. })));
    }

    #[test]
    fn sums_follow_the_documented_order() {
        // 600 ids: three blocks, the last ragged; values whose sum depends on the order.
        let logits: Vec<f32> = (0..600).map(|i| ((i * 7919) % 601) as f32 * -0.05).collect();
        let softmax = Softmax64::new(&logits, 0.9).unwrap();
        let max = f64::from(logits.iter().copied().fold(f32::MIN, f32::max));
        let weight = |z: &f32| exp64((f64::from(*z) - max) / 0.9);
        let blocks: Vec<f64> = logits
            .chunks(SOFTMAX_BLOCK_IDS)
            .map(|b| b.iter().map(weight).fold(0.0, |s, w| s + w))
            .collect();
        let blockwise = blocks.iter().fold(0.0, |s, b| s + b);
        let serial = logits.iter().map(weight).fold(0.0, |s, w| s + w);
        assert_eq!(softmax.total().to_bits(), blockwise.to_bits());
        assert_ne!(blockwise.to_bits(), serial.to_bits(), "the input must tell the orders apart");
    }

    #[test]
    fn extreme_temperatures_leave_mass_where_the_maximum_is() {
        let logits = [1.0, 3.0, 3.0, 2.999_999_8];
        for temperature in [1e-45, f64::from_bits(1), 1e-300] {
            let softmax = Softmax64::new(&logits, temperature).unwrap();
            assert_eq!(softmax.total(), 2.0);
            assert_eq!(softmax.select(0.0), 1);
            assert_eq!(softmax.select(0.5), 2);
        }
        let hot = Softmax64::new(&logits, 1e300).unwrap();
        assert_eq!(hot.total(), 4.0);
    }

    #[test]
    fn log_probabilities_stay_finite_where_probabilities_underflow() {
        let softmax = Softmax64::new(&[0.0, -2000.0], 1.0).unwrap();
        assert_eq!(softmax.probability(1), 0.0);
        assert_eq!(softmax.log_prob(1).unwrap(), -2000.0);
        assert!(softmax.log_prob(2).is_err());
    }
}
