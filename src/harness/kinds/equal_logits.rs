//! `equal_logits`: where logits are equal, the engine chooses the lowest id.

use super::loaded::{Loaded, load, prompt};
use crate::backend::{RowOutput, RowWant};
use crate::descriptor::RoleName;
use crate::harness::kind::{
    Case, Cell, DeviceUse, Fault, GateKind, KindSpec, Outcome, PlanScope, PolicyUse, RunContext,
};
use crate::weights::Model;
use schemars::JsonSchema;
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};

/// A model whose head repeats its first rows, so that every logit occurs many times. What the engine
/// chooses by itself is compared with the rule applied to the logits it gives.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EqualLogits {
    /// Folder of the checkpoint, in one file `model.safetensors`.
    model: PathBuf,
    /// Row r of the head becomes a copy of row r modulo this.
    distinct_rows: usize,
    /// Length of the prompt; its ids are drawn from the whole vocabulary by `seed`.
    prompt_tokens: usize,
    seed: u64,
}

const CASES: [&str; 3] = ["greedy", "top", "greedy_token_by_token"];

impl KindSpec for EqualLogits {
    const NAME: &'static str = "equal_logits";
    const DEVICE: DeviceUse = DeviceUse::Any;
    const POLICY: PolicyUse = PolicyUse::Listed;
}

impl GateKind for EqualLogits {
    fn cases(&self, _scope: &PlanScope) -> Result<Vec<Case>, Fault> {
        if self.prompt_tokens == 0 {
            return Err(Fault::at("prompt_tokens", "a prompt needs at least one token"));
        }
        if self.distinct_rows == 0 {
            return Err(Fault::at("distinct_rows", "a head needs at least one row"));
        }
        Ok(CASES.into_iter().map(Case::named).collect())
    }

    fn run(&self, cell: &Cell, context: &RunContext) -> Outcome {
        self.trial(cell, context).unwrap_or_else(Outcome::error)
    }
}

impl EqualLogits {
    fn trial(&self, cell: &Cell, context: &RunContext) -> Result<Outcome, String> {
        let folder = &context.scratch;
        self.write(&context.path(&self.model), folder)?;
        let loaded = load(folder, cell, context)?;
        let vocab = loaded.engine.descriptor().vocab;
        let ids = prompt(self.seed, self.prompt_tokens, vocab);
        let logits = loaded.logits(&mut loaded.sequence()?, &ids)?;
        let (wanted, step) = match cell.case.as_deref() {
            Some("greedy") => (1, ids.len()),
            Some("greedy_token_by_token") => (1, 1),
            _ => ((vocab / self.distinct_rows).saturating_add(5).min(vocab), ids.len()),
        };
        let chosen = choose(&loaded, &ids, wanted, step)?;
        for (row, (logits, chosen)) in logits.iter().zip(&chosen).enumerate() {
            let expected = by_the_rule(logits, wanted);
            let largest = logits[expected[0] as usize];
            if logits.iter().filter(|x| **x == largest).count() < 2 {
                return Err(format!("row {row}: the largest logit occurs once"));
            }
            if *chosen != expected {
                return Ok(Outcome::fail(format!(
                    "row {row}: expected {expected:?}, found {chosen:?}"
                )));
            }
        }
        Ok(Outcome::pass("the lowest of equal ids").with("rows", chosen.len()))
    }

    /// The model with another head.
    fn write(&self, from: &Path, to: &Path) -> Result<(), String> {
        let model = Model::open(from).map_err(|e| e.to_string())?;
        let named = |name| model.descriptor.roles.iter().find(|r| r.name == name);
        let head = named(RoleName::LmHead).filter(|r| r.tied_to.is_none());
        let head = head.or_else(|| named(RoleName::Embed)).ok_or("the model has no head")?;
        let tensor = &head.views.first().ok_or("the head has no tensor")?.tensor;
        let entry = model.checkpoint.tensor(tensor).ok_or(format!("there is no `{tensor}`"))?;
        let file = "model.safetensors";
        let mut bytes = read(&from.join(file))?;
        let row_bytes = entry.size_bytes / entry.shape.first().copied().unwrap_or(1).max(1);
        let rows = &mut bytes[entry.start_bytes..][..entry.size_bytes];
        let (first, others) = rows
            .split_at_mut_checked(self.distinct_rows * row_bytes)
            .ok_or_else(|| format!("the head has fewer than {} rows", self.distinct_rows))?;
        for (row, copy) in others.chunks_mut(row_bytes).zip(first.chunks(row_bytes).cycle()) {
            row.copy_from_slice(copy);
        }
        fs::write(to.join(file), bytes).map_err(|e| e.to_string())?;
        let config = "config.json";
        fs::write(to.join(config), read(&from.join(config))?).map_err(|e| e.to_string())
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|e| format!("{}: {e}", path.display()))
}

/// What the engine chooses, for every row, fed in steps of `step` tokens.
fn choose(
    loaded: &Loaded,
    ids: &[u32],
    wanted: usize,
    step: usize,
) -> Result<Vec<Vec<u32>>, String> {
    let mut sequence = loaded.sequence()?;
    let want = if wanted == 1 { RowWant::Greedy } else { RowWant::Top(wanted) };
    let mut chosen = Vec::new();
    for ids in ids.chunks(step) {
        for row in loaded.rows(&mut sequence, ids, want.clone(), None)? {
            chosen.push(match row {
                RowOutput::Greedy(id) => vec![id],
                RowOutput::Top(best) => best.into_iter().map(|(id, _)| id).collect(),
                other => return Err(format!("ids were asked for, {other:?} came back")),
            });
        }
    }
    Ok(chosen)
}

/// The ids of the largest logits, falling, the lowest id first where they are equal.
fn by_the_rule(logits: &[f32], wanted: usize) -> Vec<u32> {
    let mut ids: Vec<u32> = (0..logits.len() as u32).collect();
    // A stable sort keeps equal ones in the order of their ids.
    ids.sort_by(|a, b| logits[*b as usize].total_cmp(&logits[*a as usize]));
    ids.truncate(wanted);
    ids
}

#[cfg(test)]
mod tests {
    use crate::harness::testing::problems;

    const SHIPPED: &str = include_str!("../../../gates/equal-logits.yaml");

    #[test]
    fn the_shipped_gate_holds() {
        assert_eq!(problems(SHIPPED), [] as [&str; 0]);
    }

    #[test]
    fn a_head_without_equal_rows_shows_nothing() {
        let found = problems(&SHIPPED.replace("distinct_rows: 16", "distinct_rows: 512"));
        assert!(found.iter().all(|m| m.contains("occurs once")) && !found.is_empty(), "{found:?}");
    }
}
