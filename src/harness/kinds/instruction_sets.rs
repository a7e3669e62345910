//! `instruction_sets`: a policy gives the same bits on every instruction set, on every machine; `fast`,
//! which promises less, the same bits from prefill and decode on each.

use super::loaded::{Loaded, prompt};
use crate::backend::Policy;
use crate::backend::cpu::{Isa, Level};
use crate::engine::{Engine, EngineOptions};
use crate::harness::kind::{
    Case, Cell, DeviceUse, Fault, GateKind, KindSpec, Outcome, PlanScope, PolicyUse, RunContext,
    Verdict,
};
use crate::units::Hasher;
use crate::weights::Model;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// The logits of every position of a prompt, and the state it leaves, hashed and compared with a
/// committed digest on each instruction set. Under `fast`, whose bits belong to a set, they are compared
/// with those of the same prompt fed token by token. A set that the processor lacks is a named skip.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct InstructionSets {
    /// Folder of the checkpoint.
    model: PathBuf,
    /// Length of the prompt; its ids are drawn from the whole vocabulary by `seed`.
    prompt_tokens: usize,
    seed: u64,
    /// SHA-256 of the bits, by policy; `fast` has none.
    digests: BTreeMap<Policy, String>,
}

impl KindSpec for InstructionSets {
    const NAME: &'static str = "instruction_sets";
    const DEVICE: DeviceUse = DeviceUse::Host;
    const POLICY: PolicyUse = PolicyUse::Listed;
}

impl GateKind for InstructionSets {
    fn cases(&self, scope: &PlanScope) -> Result<Vec<Case>, Fault> {
        if self.prompt_tokens == 0 {
            return Err(Fault::at("prompt_tokens", "a prompt needs at least one token"));
        }
        if let Some(policy) =
            scope.policy.filter(|p| *p != Policy::Fast && !self.digests.contains_key(p))
        {
            return Err(Fault::at("digests", format!("there is no digest for policy `{policy}`")));
        }
        Ok(Level::ALL.iter().map(|level| Case::named(level.to_string())).collect())
    }

    fn run(&self, cell: &Cell, context: &RunContext) -> Outcome {
        self.decide(cell, context).unwrap_or_else(Outcome::error)
    }
}

impl InstructionSets {
    fn decide(&self, cell: &Cell, context: &RunContext) -> Result<Outcome, String> {
        let policy = cell.policy.ok_or("the cell has no policy")?;
        let level: Level = cell.read("case")?;
        let Some(isa) = Isa::of(level) else {
            let widest = Isa::detect().level();
            let reason = format!("needs {level}, the widest set of this processor is {widest}");
            return Ok(Outcome::new(Verdict::Skip, reason));
        };
        let found = self.digest(isa, policy, self.prompt_tokens, context)?;
        let serial;
        let (expected, agreement) = if policy == Policy::Fast {
            serial = self.digest(isa, policy, 1, context)?;
            (&serial, "prefill has the bits of token by token")
        } else {
            let committed = self.digests.get(&policy);
            (committed.ok_or("there is no digest for the policy")?, "the committed digest")
        };
        let outcome = if found == *expected {
            Outcome::pass(agreement)
        } else {
            Outcome::fail(format!("expected the digest {expected}, found {found}"))
        };
        Ok(outcome.with("digest", found).with("instruction_set", level.to_string()))
    }

    /// The digest of the prompt fed in steps of `step` tokens.
    fn digest(
        &self,
        isa: Isa,
        policy: Policy,
        step: usize,
        context: &RunContext,
    ) -> Result<String, String> {
        let model = Model::open(context.path(&self.model)).map_err(|e| e.to_string())?;
        let weights = model.checkpoint.load(&model.descriptor).map_err(|e| e.to_string())?;
        let options = EngineOptions {
            isa: Some(isa),
            threads: Some(context.threads),
            chunk_tokens: self.prompt_tokens,
            ..EngineOptions::with_policy(policy)
        };
        let engine = Engine::new(Arc::new(model.descriptor), &weights, &options)
            .map_err(|e| e.to_string())?;
        let loaded = Loaded { checkpoint: model.checkpoint, engine };
        let ids = prompt(self.seed, self.prompt_tokens, loaded.engine.descriptor().vocab);
        let mut sequence = loaded.sequence()?;
        let mut hasher = Hasher::new();
        let mut finite = true;
        for ids in ids.chunks(step) {
            for row in loaded.logits(&mut sequence, ids)? {
                finite &= row.iter().all(|x| x.is_finite());
                hasher.update_f32(&row);
            }
        }
        for part in sequence.live().map_err(|e| e.to_string())? {
            finite &= part.values.iter().all(|x| x.is_finite());
            part.values.iter().for_each(|x| hasher.update(&x.to_bits().to_le_bytes()));
        }
        if finite { Ok(hasher.finish().to_string()) } else { Err("a value is not finite".into()) }
    }
}

#[cfg(test)]
mod tests {
    use crate::harness::testing::{outcomes, problems};

    const FILE: &str = include_str!("../../../gates/instruction-sets-llama.yaml");

    #[test]
    fn another_prompt_has_another_digest() {
        let found = problems(&FILE.replace("seed: 1", "seed: 2"));
        assert!(found.iter().any(|m| m.starts_with("portable: expected the digest")), "{found:?}");
    }

    #[test]
    fn a_set_that_is_missing_is_a_named_skip() {
        for (cell, outcome) in outcomes(FILE) {
            let missing = outcome.message.starts_with("needs ");
            let level = cell.case.unwrap_or_default().parse().unwrap();
            assert_eq!(missing, crate::backend::cpu::Isa::of(level).is_none());
        }
    }
}
