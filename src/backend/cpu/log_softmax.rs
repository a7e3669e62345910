//! Region `log_softmax`: natural-log probabilities of ids under a row of logits.

use super::softmax64::{LogitsError, Softmax64};

/// ln p of each of `ids` under softmax(`logits`).
///
/// # Shapes
/// `logits` \[vocab] FP32 → [ids.len()] FP64.
///
/// # Numerics
/// (z − max) − ln Z in FP64, Z summed as [`Softmax64`] documents: finite wherever the logits are.
///
/// # Errors
/// [`LogitsError`] if the row is empty, holds a value that is not finite, or lacks an id.
pub fn log_softmax(logits: &[f32], ids: &[u32]) -> Result<Vec<f64>, LogitsError> {
    let softmax = Softmax64::new(logits, 1.0)?;
    ids.iter().map(|id| softmax.log_prob(*id)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        // softmax([0, ln 3]) = [1/4, 3/4]; the FP32 rounding of ln 3 moves ln p by up to 5e-8.
        let found = log_softmax(&[0.0, 1.098_612_3], &[0, 1]).unwrap();
        assert!((found[0] - 0.25f64.ln()).abs() < 1e-7);
        assert!((found[1] - 0.75f64.ln()).abs() < 1e-7);
    }

    #[test]
    fn probabilities_sum_to_one() {
        let logits: Vec<f32> = (0..1000).map(|i| ((i * 37) % 101) as f32 / 9.0).collect();
        let ids: Vec<u32> = (0..1000).collect();
        let sum: f64 = log_softmax(&logits, &ids).unwrap().iter().map(|l| l.exp()).sum();
        assert!((sum - 1.0).abs() < 1e-12, "{sum}");
    }

    #[test]
    fn unusable_rows_are_errors() {
        assert!(log_softmax(&[0.0, f32::NAN], &[0]).is_err());
        assert!(log_softmax(&[0.0], &[1]).is_err());
    }
}
