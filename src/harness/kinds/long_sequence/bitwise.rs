//! One long sequence, executed in pieces and at once.

use super::super::loaded::Loaded;
use crate::backend::cpu::greedy;
use crate::harness::kind::Outcome;

/// What an execution gave.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Trace {
    /// Logits of every position of the prompt, then those that chose each further token.
    pub(super) logits: Vec<Vec<f32>>,
    /// Greedy tokens after the prompt.
    pub(super) tokens: Vec<u32>,
    /// States at the end, by name.
    pub(super) states: Vec<(String, Vec<f32>)>,
}

/// Feeds the prompt in pieces that end at `cuts`, then continues greedily token by token.
pub(super) fn execute(
    loaded: &Loaded,
    prompt: &[u32],
    cuts: &[usize],
    further: usize,
) -> Result<Trace, String> {
    let mut sequence = loaded.sequence()?;
    let mut logits = Vec::new();
    let mut from = 0;
    for end in cuts.iter().copied().chain([prompt.len()]) {
        logits.extend(loaded.logits(&mut sequence, &prompt[from..end])?);
        from = end;
    }
    let mut tokens = Vec::new();
    for _ in 0..further {
        let row = logits.last().ok_or("the prompt is empty")?;
        let id = greedy(row).map_err(|e| e.to_string())?;
        tokens.push(id);
        logits.extend(loaded.logits(&mut sequence, &[id])?);
    }
    let states = sequence.inspect().map_err(|e| e.to_string())?;
    let states = states.into_iter().map(|s| (s.name, s.values)).collect();
    Ok(Trace { logits, tokens, states })
}

/// Decides: every row of logits, every token and every state by bits, all finite.
pub(super) fn compare(prompt: usize, whole: &Trace, cut: &Trace, forced: &Trace) -> Outcome {
    let mut found = Vec::new();
    for (what, other) in [("cut in two", cut), ("fed at once with its continuation", forced)] {
        let same = |(a, b): (&Vec<f32>, &Vec<f32>)| {
            a.len() == b.len()
                && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits() && a.is_finite())
        };
        let rows = whole.logits.iter().zip(&other.logits);
        if let Some(at) = rows.map(same).position(|same| !same) {
            let place = if at < prompt { "prompt" } else { "continuation" };
            found.push(format!("{what}: logits of position {at} ({place}) differ"));
        }
        if whole.logits.len() != other.logits.len() {
            let (a, b) = (whole.logits.len(), other.logits.len());
            found.push(format!("{what}: {b} rows of logits, expected {a}"));
        }
        let bits = |t: &Trace| -> Vec<(String, Vec<u32>)> {
            let of = |v: &Vec<f32>| v.iter().map(|x| x.to_bits()).collect();
            t.states.iter().map(|(name, values)| (name.clone(), of(values))).collect()
        };
        for ((name, a), (_, b)) in bits(whole).iter().zip(&bits(other)) {
            if a != b {
                found.push(format!("{what}: state `{name}` differs at the end"));
            }
        }
        if whole.states.len() != other.states.len() {
            found.push(format!("{what}: another number of states"));
        }
    }
    if cut.tokens != whole.tokens {
        let pairs = whole.tokens.iter().zip(&cut.tokens);
        let at = pairs.take_while(|(a, b)| a == b).count();
        found.push(format!("cut in two: token {} of the continuation differs", at + 1));
    }
    let outcome = if found.is_empty() {
        Outcome::pass(format!(
            "{} positions and {} states bitwise equal",
            whole.logits.len(),
            whole.states.len()
        ))
    } else {
        Outcome::fail(found.join("; "))
    };
    outcome
        .with("prompt_tokens", prompt)
        .with("continuation_tokens", whole.tokens.len())
        .with("states", whole.states.len())
        .with("last_tokens", whole.tokens.iter().rev().take(8).rev().copied().collect::<Vec<_>>())
}
