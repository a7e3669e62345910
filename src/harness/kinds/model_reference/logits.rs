//! Logits of every position against the reference.

use super::bounds::{BF16_ALLOWANCE, Bounds};
use super::reference::Logits;
use crate::harness::kind::{Outcome, Verdict};
use crate::tensor::Difference;

/// Collects the rows of a prompt as the engine produces them.
#[derive(Debug)]
pub(super) struct LogitRows<'a> {
    reference: &'a Logits,
    expected: Vec<f32>,
    found: Vec<f32>,
    /// Id of every compared value.
    ids: Vec<u32>,
    per_row: usize,
    expected_logsumexp: Vec<f32>,
    found_logsumexp: Vec<f32>,
    rows: usize,
    argmax_agrees: usize,
}

impl<'a> LogitRows<'a> {
    pub(super) fn new(reference: &'a Logits) -> LogitRows<'a> {
        let per_row = match reference {
            Logits::Full(array) => array.shape[1],
            Logits::Columns { per_row, .. } => *per_row,
        };
        LogitRows {
            reference,
            expected: Vec::new(),
            found: Vec::new(),
            ids: Vec::new(),
            per_row,
            expected_logsumexp: Vec::new(),
            found_logsumexp: Vec::new(),
            rows: 0,
            argmax_agrees: 0,
        }
    }

    /// Takes the logits of the next position.
    ///
    /// # Errors
    /// The row is not one of this vocabulary.
    pub(super) fn push(&mut self, logits: &[f32]) -> Result<(), String> {
        let here = self.rows * self.per_row..(self.rows + 1) * self.per_row;
        let best = match self.reference {
            Logits::Full(array) => {
                if logits.len() != self.per_row {
                    let (want, got) = (self.per_row, logits.len());
                    return Err(format!("the reference has {want} logits a row, the engine {got}"));
                }
                let row = array.values.get(here).ok_or("more rows than the reference has")?;
                self.expected.extend(row);
                self.found.extend(logits);
                self.ids.extend(0..logits.len() as u32);
                argmax(row)
            }
            Logits::Columns { ids, values, logsumexp, .. } => {
                let ids = ids.get(here.clone()).ok_or("more rows than the reference has")?;
                for id in ids {
                    let logit = logits.get(*id as usize).ok_or_else(|| {
                        let vocab = logits.len();
                        format!("the reference has a logit of id {id}, the engine {vocab} logits")
                    })?;
                    self.found.push(*logit);
                }
                self.expected.extend(&values[here]);
                self.ids.extend(ids);
                self.expected_logsumexp.push(logsumexp[self.rows]);
                self.found_logsumexp.push(log_sum_exp(logits));
                ids[0] as usize
            }
        };
        self.argmax_agrees += usize::from(argmax(logits) == best);
        self.rows += 1;
        Ok(())
    }

    /// Decides. No other choice of experts has touched the first `untouched` rows.
    pub(super) fn outcome(&self, rows: usize, untouched: usize, bounds: Bounds) -> Outcome {
        if self.rows != rows || rows == 0 {
            return Outcome::fail(format!("{} rows were computed of {rows}", self.rows));
        }
        let compared = Difference::between(&self.expected, &self.found);
        let sums = Difference::between(&self.expected_logsumexp, &self.found_logsumexp);
        let (Ok(d), Ok(sums)) = (compared, sums) else {
            return Outcome::fail("expected and found differ in number");
        };
        let mut complaints = Vec::new();
        if !d.is_finite() || sums.non_finite > 0 {
            complaints.push(format!("{} values are not finite", d.non_finite + sums.non_finite));
        }
        let mut require = |what: &str, value: f64, limit: f64| {
            // The comparison is written so that NaN fails.
            if !matches!(value.partial_cmp(&limit), Some(o) if o.is_le()) {
                complaints.push(format!("{what} {value:.3e} exceeds {limit:.3e}"));
            }
        };
        match bounds {
            Bounds::F32(f32) => {
                require("max_abs", d.max_abs, f32.logits_max_abs.get());
                require("max_abs of logsumexp", sums.max_abs, f32.logits_max_abs.get());
            }
            Bounds::Bf16(noise) => {
                require("mean_abs", d.mean_abs, BF16_ALLOWANCE * noise.mean_abs.get());
                require("p99_abs", d.p99_abs, BF16_ALLOWANCE * noise.p99_abs.get());
                // A logsumexp moves no further than the logits it is a mean of.
                let limit = BF16_ALLOWANCE * noise.max_abs.get();
                require("max_abs of logsumexp", sums.max_abs, limit);
            }
            Bounds::Unknown => {}
        }
        let before = untouched.min(rows) * self.per_row;
        let before = Difference::between(&self.expected[..before], &self.found[..before]);
        let before = before.map_or(f64::NAN, |d| d.max_abs);
        if let Some(limit) = bounds.before_flip() {
            require("max_abs before a route differs", before, limit);
        }
        let (row, id) = (d.worst_at / self.per_row, self.ids[d.worst_at]);
        let (expected, found) = (self.expected[d.worst_at], self.found[d.worst_at]);
        let worst = format!("position {row}, id {id}: expected {expected}, found {found}");
        let summary = format!("{} logits of {rows} positions, max_abs {:.1e}", d.count, d.max_abs);
        let outcome = match bounds {
            _ if !complaints.is_empty() => {
                Outcome::fail(format!("{}; worst at {worst}", complaints.join("; ")))
            }
            Bounds::Unknown => {
                Outcome::new(Verdict::Measured, format!("{summary}; no bound is known"))
            }
            _ => Outcome::pass(summary),
        };
        outcome
            .with("positions", rows)
            .with("compared", d.count)
            .number("max_abs", d.max_abs)
            .number("mean_abs", d.mean_abs)
            .number("p99_abs", d.p99_abs)
            .number("rms", d.rms)
            .number("logsumexp_max_abs", sums.max_abs)
            .with("rows_before_flip", untouched.min(rows))
            .number("max_abs_before_flip", before)
            .with("non_finite", d.non_finite)
            .with("argmax_agrees", self.argmax_agrees)
            .with("worst", worst)
    }
}

/// log Σ exp, in FP64 from the FP32 logits.
fn log_sum_exp(logits: &[f32]) -> f32 {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|x| (f64::from(*x) - f64::from(largest)).exp()).sum();
    (f64::from(largest) + sum.ln()) as f32
}

/// Index of the largest, the lowest on ties.
fn argmax(logits: &[f32]) -> usize {
    let mut best = 0;
    for (i, x) in logits.iter().enumerate() {
        if *x > logits[best] {
            best = i;
        }
    }
    best
}
