//! `chunk_consistency`: a prompt gives the same bits however it is cut into chunks; under a policy that
//! promises no such thing on its device, the same bits from run to run.

use super::loaded::{self, Loaded, prompt};
use super::packing::Packing;
use crate::harness::kind::{
    Case, Cell, DeviceUse, Fault, GateKind, KindSpec, Outcome, PlanScope, PolicyUse, RunContext,
};
use crate::harness::plan::{AxisValue, Matrix};
use crate::harness::spec::NonEmpty;
use crate::tensor::Difference;
use crate::units::Hasher;
use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// A model and the chunk sizes that its prompt is cut into.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ChunkConsistency {
    /// Folder of the checkpoint.
    model: Option<PathBuf>,
    /// Lengths of prompts; their ids are drawn from the whole vocabulary by `seed`.
    prompt_tokens: NonEmpty<usize>,
    seed: u64,
    /// Tokens of a chunk (the last one is what remains), or `whole`.
    chunks: NonEmpty<Chunk>,
    /// Roles that are packed into four bits, for rows of prefill and of decode alike.
    #[serde(default)]
    int4: Option<Packing>,
}

/// How a prompt is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chunk {
    Whole,
    Tokens(usize),
}

impl KindSpec for ChunkConsistency {
    const NAME: &'static str = "chunk_consistency";
    const DEVICE: DeviceUse = DeviceUse::Any;
    const POLICY: PolicyUse = PolicyUse::Listed;
}

impl GateKind for ChunkConsistency {
    fn cases(&self, _scope: &PlanScope) -> Result<Vec<Case>, Fault> {
        if self.prompt_tokens.contains(&0) {
            return Err(Fault::at("prompt_tokens", "a prompt needs at least one token"));
        }
        if let Some(int4) = &self.int4 {
            int4.of_every_row().map_err(|message| Fault::at("int4", message))?;
        }
        Ok(Matrix::new()
            .axis("prompt_tokens", &self.prompt_tokens)
            .axis("chunk", &self.chunks)
            .unnamed())
    }

    fn run(&self, cell: &Cell, context: &RunContext) -> Outcome {
        self.trial(cell, context).unwrap_or_else(Outcome::error)
    }

    fn group(&self, _cell: &Cell) -> Option<String> {
        self.model.as_ref().map(|model| model.display().to_string())
    }
}

impl ChunkConsistency {
    fn trial(&self, cell: &Cell, context: &RunContext) -> Result<Outcome, String> {
        let model = self.model.as_ref().ok_or("the gate names no model; give --set model=DIR")?;
        let folder = context.path(model);
        let loaded = loaded::load_packed(&folder, self.int4.as_ref(), cell, context)?;
        let length: usize = cell.read("prompt_tokens")?;
        let chunk: String = cell.read("chunk")?;
        let chunk = if chunk == "whole" { length } else { cell.read("chunk")? };
        let ids = prompt(self.seed, length, loaded.engine.descriptor().vocab);
        let found = Trace::execute(&loaded, &ids, chunk)?;
        if cell.policy.is_some_and(|p| !p.is_invariant(cell.device)) {
            let again = Trace::execute(&loaded, &ids, chunk)?;
            return Ok(compare(&found, &again, "the first run of these chunks")
                .with("chunk_tokens", chunk));
        }
        let policy = cell.axis("policy").unwrap_or_default();
        let (folder, device, seed, int4) = (folder.display(), cell.device, self.seed, &self.int4);
        let key = format!("serial {folder} {int4:?} {device} {policy} {seed} {length}");
        let serial: Arc<Trace> =
            context.cache.get_or_make(&key, || Trace::execute(&loaded, &ids, 1))?;
        Ok(compare(&serial, &found, "token by token").with("chunk_tokens", chunk))
    }
}

/// What an execution left: logits of every position, and the states at the end.
#[derive(Debug, PartialEq)]
struct Trace {
    /// Row-major, `vocab` wide.
    logits: Vec<f32>,
    vocab: usize,
    /// Names and values, in the engine's order.
    states: Vec<(String, Vec<f32>)>,
}

impl Trace {
    fn execute(loaded: &Loaded, ids: &[u32], chunk: usize) -> Result<Trace, String> {
        let mut sequence = loaded.sequence()?;
        let vocab = loaded.engine.descriptor().vocab;
        let mut logits = Vec::with_capacity(ids.len() * vocab);
        for chunk in ids.chunks(chunk.max(1)) {
            for row in loaded.logits(&mut sequence, chunk)? {
                logits.extend(row);
            }
        }
        let states = sequence.inspect().map_err(|e| e.to_string())?;
        let states = states.into_iter().map(|s| (s.name, s.values)).collect();
        Ok(Trace { logits, vocab, states })
    }

    fn digest(&self) -> String {
        let mut hasher = Hasher::new();
        let states = self.states.iter().map(|(_, values)| values);
        for values in std::iter::once(&self.logits).chain(states) {
            hasher.update_f32(values);
        }
        hasher.finish().to_string()
    }
}

/// Decides: logits and every state bitwise equal to those of `against`, all finite.
fn compare(serial: &Trace, found: &Trace, against: &str) -> Outcome {
    let positions = serial.logits.len() / serial.vocab.max(1);
    let mut complaints = Vec::new();
    match Difference::between(&serial.logits, &found.logits) {
        Ok(d) if d.is_bitwise() => {}
        Ok(d) => {
            let unequal = serial.logits.iter().zip(&found.logits);
            let first = unequal.map(|(a, b)| a.to_bits() == b.to_bits()).position(|same| !same);
            let at = first.unwrap_or(d.worst_at);
            complaints.push(format!(
                "{} logits differ and {} are not finite, max_abs {:.2e}, first at position {}, id {}",
                d.unequal_bits,
                d.non_finite,
                d.max_abs,
                at / serial.vocab,
                at % serial.vocab
            ));
        }
        Err(e) => complaints.push(format!("logits: {e}")),
    }
    let names = |t: &Trace| t.states.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    if names(serial) != names(found) {
        complaints.push(format!("states {:?}, expected {:?}", names(found), names(serial)));
    }
    for ((name, a), (_, b)) in serial.states.iter().zip(&found.states) {
        match Difference::between(a, b) {
            Ok(d) if d.is_bitwise() => {}
            Ok(d) => complaints.push(format!(
                "state `{name}`: {} values differ and {} are not finite, max_abs {:.2e}",
                d.unequal_bits, d.non_finite, d.max_abs
            )),
            Err(e) => complaints.push(format!("state `{name}`: {e}")),
        }
    }
    let outcome = if complaints.is_empty() {
        let states = serial.states.len();
        Outcome::pass(format!(
            "{positions} positions and {states} states bitwise equal to {against}"
        ))
    } else {
        Outcome::fail(format!("against {against}: {}", complaints.join("; ")))
    };
    outcome
        .with("positions", positions)
        .with("states", serial.states.len())
        .with("serial_digest", serial.digest())
        .with("digest", found.digest())
}

impl AxisValue for Chunk {
    fn axis_text(&self) -> String {
        match self {
            Chunk::Whole => "whole".to_owned(),
            Chunk::Tokens(n) => n.to_string(),
        }
    }
}

impl<'de> Deserialize<'de> for Chunk {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Chunk, D::Error> {
        struct Form;

        impl Visitor<'_> for Form {
            type Value = Chunk;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of tokens of at least 1, or `whole`")
            }

            fn visit_u64<E: Error>(self, tokens: u64) -> Result<Chunk, E> {
                match usize::try_from(tokens) {
                    Ok(n) if n > 0 => Ok(Chunk::Tokens(n)),
                    _ => Err(E::invalid_value(Unexpected::Unsigned(tokens), &self)),
                }
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Chunk, E> {
                match text {
                    "whole" => Ok(Chunk::Whole),
                    _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
                }
            }
        }

        deserializer.deserialize_any(Form)
    }
}

impl schemars::JsonSchema for Chunk {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Chunk".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "anyOf": [{ "type": "integer", "minimum": 1 }, { "const": "whole" }]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::kind::Verdict;

    fn trace(change: impl FnOnce(&mut Trace)) -> Trace {
        let states = vec![("layers.0.recurrent".to_owned(), vec![0.25, -1.0])];
        let mut trace = Trace { logits: (0..12).map(|i| i as f32).collect(), vocab: 4, states };
        change(&mut trace);
        trace
    }

    #[test]
    fn one_bit_anywhere_fails() {
        let serial = trace(|_| ());
        let verdict = |change: fn(&mut Trace)| compare(&serial, &trace(change), "it").verdict;
        assert_eq!(verdict(|_| ()), Verdict::Pass);
        assert_eq!(
            verdict(|t| t.logits[7] = f32::from_bits(t.logits[7].to_bits() ^ 1)),
            Verdict::Fail
        );
        assert_eq!(verdict(|t| t.states[0].1[0] = 0.250_000_03), Verdict::Fail);
        assert_eq!(verdict(|t| t.logits.truncate(8)), Verdict::Fail, "a position is missing");
        assert_eq!(verdict(|t| t.states.clear()), Verdict::Fail, "a state is missing");
        let nan = trace(|t| t.logits[0] = f32::NAN);
        assert_eq!(compare(&nan, &nan, "it").verdict, Verdict::Fail, "NaN never passes");
        let message = compare(&serial, &trace(|t| t.logits[7] = 9.0), "it").message;
        assert!(message.contains("first at position 1, id 3"), "{message}");
    }

    #[test]
    fn prompts_reach_all_of_the_vocabulary() {
        let ids = prompt(1, 5000, 512);
        assert_eq!(ids, prompt(1, 5000, 512));
        assert_ne!(ids, prompt(2, 5000, 512));
        let distinct: std::collections::BTreeSet<u32> = ids.into_iter().collect();
        assert_eq!(distinct.len(), 512);
    }
}
