//! What an execution left behind, compared bit for bit.

use crate::backend::LiveState;
use crate::harness::kind::Outcome;

/// Logits and the state at the end.
pub(super) struct Trace {
    pub(super) logits: Vec<Vec<f32>>,
    pub(super) state: Vec<LiveState>,
}

/// Decides: everything equal bit for bit, and finite.
pub(super) fn compare(expected: &Trace, found: &Trace) -> Outcome {
    let rows = expected.logits.iter().zip(&found.logits);
    let same_row = |(a, b): (&Vec<f32>, &Vec<f32>)| {
        a.len() == b.len()
            && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits() && a.is_finite())
    };
    if let Some(row) = rows.map(same_row).position(|same| !same) {
        return Outcome::fail(format!("the logits of row {row} differ or are not finite"));
    }
    if expected.logits.len() != found.logits.len() {
        return Outcome::fail("one execution gave more rows than the other");
    }
    let bits = |state: &LiveState| state.values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    let unequal = expected.state.iter().zip(&found.state).find(|(a, b)| {
        a.name != b.name || bits(a) != bits(b) || a.values.iter().any(|v| !v.is_finite())
    });
    if let Some((state, _)) = unequal {
        return Outcome::fail(format!("state `{}` differs or is not finite", state.name));
    }
    if expected.state.len() != found.state.len() {
        return Outcome::fail("one execution left more state than the other");
    }
    Outcome::pass(format!(
        "{} rows of logits and {} states bitwise equal",
        expected.logits.len(),
        expected.state.len()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::kind::Verdict;

    #[test]
    fn one_bit_anywhere_fails() {
        let trace = |logit: f32, value: f64| Trace {
            logits: vec![vec![0.5, logit]],
            state: vec![LiveState { name: "attention.0.k".into(), values: vec![value] }],
        };
        let verdict = |found: &Trace| compare(&trace(1.0, 2.0), found).verdict;
        assert_eq!(verdict(&trace(1.0, 2.0)), Verdict::Pass);
        assert_eq!(verdict(&trace(1.000_000_1, 2.0)), Verdict::Fail);
        assert_eq!(verdict(&trace(1.0, 2.000_000_1)), Verdict::Fail);
        let mut short = trace(1.0, 2.0);
        short.state.clear();
        assert_eq!(verdict(&short), Verdict::Fail);
        let nan = trace(f32::NAN, 2.0);
        assert_eq!(compare(&nan, &nan).verdict, Verdict::Fail, "NaN never passes");
    }
}
