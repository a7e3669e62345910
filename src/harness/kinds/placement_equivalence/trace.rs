//! What an execution left, and whether two left the same.

use crate::engine::{Batch, Engine, RowOutput, RowWant, Sequence, Taps, Want};
use crate::harness::kind::Outcome;
use crate::harness::kinds::loaded::prompt as drawn;
use crate::harness::spec::Check;
use crate::tensor::Difference;
use crate::units::Hasher;

/// Named arrays: logits, activations, states.
#[derive(Debug, Default)]
pub(super) struct Trace {
    pub(super) logits: Vec<f32>,
    pub(super) taps: Vec<(String, Vec<f32>)>,
    pub(super) states: Vec<(String, Vec<f64>)>,
}

impl Trace {
    /// A prompt in two chunks beside a second sequence, then some tokens one by one; every activation
    /// of the plan is captured.
    pub(super) fn execute(engine: &Engine, prompt_tokens: usize) -> Result<Trace, String> {
        let vocab = engine.descriptor().vocab;
        let (prompt, other) = (drawn(1, prompt_tokens, vocab), drawn(2, prompt_tokens / 2, vocab));
        let mut sequences = [(); 2].map(|()| engine.sequence());
        let [Ok(own), Ok(beside)] = &mut sequences else {
            return Err("no memory for two sequences".to_owned());
        };
        let mut taps = Taps::standard().with_names(engine.plan().tap_names());
        let mut trace = Trace::default();
        let cut = prompt.len() * 2 / 3;
        trace.step(engine, &mut [(own, &prompt[..cut]), (beside, &other)], &mut taps)?;
        trace.step(engine, &mut [(own, &prompt[cut..])], &mut taps)?;
        for (i, token) in drawn(3, 4, vocab).into_iter().enumerate() {
            // Decodes alone and beside the other sequence.
            match i % 2 {
                0 => trace.step(engine, &mut [(own, &[token])], &mut taps)?,
                _ => trace.step(engine, &mut [(own, &[token]), (beside, &[token])], &mut taps)?,
            }
        }
        trace.taps = taps.take().into_iter().map(|(name, tap)| (name, tap.values)).collect();
        for (which, sequence) in ["own", "beside"].into_iter().zip([&*own, &*beside]) {
            for part in sequence.live().map_err(|e| e.to_string())? {
                trace.states.push((format!("{which}.{}", part.name), part.values));
            }
            for tensor in sequence.inspect().map_err(|e| e.to_string())? {
                let values = tensor.values.into_iter().map(f64::from).collect();
                trace.states.push((format!("{which}.{}", tensor.name), values));
            }
        }
        Ok(trace)
    }

    fn step(
        &mut self,
        engine: &Engine,
        parts: &mut [(&mut Sequence, &[u32])],
        taps: &mut Taps,
    ) -> Result<(), String> {
        let mut batch = Batch::new();
        for (sequence, tokens) in parts {
            batch.push(sequence, tokens, Want::Every(RowWant::Logits));
        }
        for output in engine.forward_tapped(&mut batch, Some(taps)) {
            for row in output.map_err(|e| e.to_string())?.rows {
                let RowOutput::Logits(logits) = row else { return Err("no logits".to_owned()) };
                self.logits.extend(logits);
            }
        }
        Ok(())
    }

    pub(super) fn digest(&self) -> String {
        let mut hasher = Hasher::new();
        hasher.update_f32(&self.logits);
        hasher.finish().to_string()
    }
}

/// Decides: everything by bits, or the logits within bounds where the plan says that cuts are no
/// subtrees.
pub(super) fn compare(one: &Trace, ranks: &Trace, check: &Check) -> Outcome {
    let logits = match Difference::between(&one.logits, &ranks.logits) {
        Ok(difference) => difference,
        Err(e) => return Outcome::fail(format!("logits: {e}")),
    };
    let mut complaints = Vec::new();
    match check {
        Check::Bitwise => {
            if !logits.is_bitwise() {
                complaints.push(format!(
                    "{} of {} logits differ and {} are not finite, max_abs {:.2e}",
                    logits.unequal_bits, logits.count, logits.non_finite, logits.max_abs
                ));
            }
            let bits = |x: &f32| u64::from(x.to_bits());
            complaints.extend(first_difference("activation", &one.taps, &ranks.taps, bits));
            let bits = |x: &f64| x.to_bits();
            complaints.extend(first_difference("state", &one.states, &ranks.states, bits));
        }
        Check::Tolerance(bounds) => {
            complaints
                .extend(bounds.violations(&logits).into_iter().map(|v| format!("logits: {v}")));
        }
    }
    let outcome = match complaints.is_empty() {
        true => Outcome::pass(match check {
            Check::Bitwise => format!(
                "{} logits, {} activations and {} states bitwise equal",
                logits.count,
                one.taps.len(),
                one.states.len()
            ),
            // BF16 hides most of what FP32 sums differ by, so that none may be left.
            Check::Tolerance(_) => format!(
                "logits within bounds, {} of {} differ, max_abs {:.2e}",
                logits.unequal_bits, logits.count, logits.max_abs
            ),
        }),
        false => Outcome::fail(format!("against one device: {}", complaints.join("; "))),
    };
    outcome
        .with("logits", logits.count as u64)
        .with("activations", one.taps.len() as u64)
        .with("states", one.states.len() as u64)
        .with("digest", ranks.digest())
        .with("unequal_bits", logits.unequal_bits as u64)
        .number("max_abs", logits.max_abs)
        .number("mean_abs", logits.mean_abs)
        .number("p99_abs", logits.p99_abs)
}

/// The first array that is missing, has another length, or differs by a bit.
fn first_difference<T>(
    what: &str,
    one: &[(String, Vec<T>)],
    ranks: &[(String, Vec<T>)],
    bits: impl Fn(&T) -> u64,
) -> Option<String> {
    if one.is_empty() && what == "activation" {
        return Some("no activation was captured".to_owned());
    }
    for (name, values) in one {
        let Some((_, found)) = ranks.iter().find(|(other, _)| other == name) else {
            return Some(format!("{what} `{name}` is missing"));
        };
        if values.len() != found.len() {
            return Some(format!(
                "{what} `{name}` has {} values, expected {}",
                found.len(),
                values.len()
            ));
        }
        let differs = values.iter().zip(found).filter(|(a, b)| bits(a) != bits(b)).count();
        if differs > 0 {
            return Some(format!("{what} `{name}`: {differs} of {} values differ", values.len()));
        }
    }
    let extra = ranks.iter().find(|(name, _)| !one.iter().any(|(other, _)| other == name));
    extra.map(|(name, _)| format!("{what} `{name}` is not there on one device"))
}
