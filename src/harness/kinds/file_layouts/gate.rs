//! The gate: one trial per layout.

use super::super::loaded::prompt;
use super::layout::Layout;
use crate::backend::RowWant;
use crate::engine::{Batch, Engine, EngineOptions, RowOutput, Want};
use crate::harness::kind::{
    Case, Cell, DeviceUse, Fault, GateKind, KindSpec, Outcome, PlanScope, PolicyUse, RunContext,
};
use crate::harness::spec::NonEmpty;
use crate::units::{Digest, Hasher};
use crate::weights::{LoadOptions, Model, full_content_digest};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

/// The logits of every position of a prompt and the state it leaves, from the model's own files and
/// from others. Both must have the same semantic id and the same bits.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::harness::kinds) struct FileLayouts {
    /// Folder of the checkpoint.
    model: PathBuf,
    /// Length of the prompt; its ids are drawn from the whole vocabulary by `seed`.
    prompt_tokens: usize,
    seed: u64,
    /// SHA-256 of every byte of the weights, role by role (`docs/identities.md`), from whichever files
    /// they come.
    content: String,
    /// The other layouts.
    layouts: NonEmpty<Layout>,
}

impl KindSpec for FileLayouts {
    const NAME: &'static str = "file_layouts";
    const DEVICE: DeviceUse = DeviceUse::Host;
    const POLICY: PolicyUse = PolicyUse::Listed;
}

/// What a model is and gives.
struct Found {
    semantic: Digest,
    storage: Digest,
    content: Digest,
    bits: Digest,
}

impl GateKind for FileLayouts {
    fn cases(&self, _scope: &PlanScope) -> Result<Vec<Case>, Fault> {
        if self.prompt_tokens == 0 {
            return Err(Fault::at("prompt_tokens", "a prompt needs at least one token"));
        }
        if Digest::parse(&self.content).is_none() {
            return Err(Fault::at("content", "expected a SHA-256 in 64 hexadecimal digits"));
        }
        let mut names = BTreeSet::new();
        if let Some(twice) = self.layouts.iter().find(|l| !names.insert(&l.case)) {
            return Err(Fault::at(
                "layouts",
                format!("two trials would be named `{}`", twice.case),
            ));
        }
        Ok(self.layouts.iter().map(|l| Case::named(&l.case)).collect())
    }

    fn run(&self, cell: &Cell, context: &RunContext) -> Outcome {
        self.decide(cell, context).unwrap_or_else(Outcome::error)
    }
}

impl FileLayouts {
    fn decide(&self, cell: &Cell, context: &RunContext) -> Result<Outcome, String> {
        let name = cell.case.as_deref().unwrap_or_default();
        let layout = self.layouts.iter().find(|l| l.case == name).ok_or("no such layout")?;
        let valid = context.path(&self.model);
        let own = self.found(Model::open(&valid).map_err(|e| e.to_string())?, cell, context)?;
        let folder = context.scratch.join(name);
        let model = match layout.write(&valid, &folder) {
            Ok(model) => model,
            Err(refused) => {
                let refused = refused.replace(&format!("{}/", folder.display()), "");
                return Ok(Outcome::fail(format!("expected the model to load, found: {refused}")));
            }
        };
        let other = self.found(model, cell, context)?;
        let outcome = if other.semantic != own.semantic {
            Outcome::fail(format!(
                "expected the semantic id {}, found {}",
                own.semantic, other.semantic
            ))
        } else if other.bits != own.bits {
            Outcome::fail("expected the bits of the model's own files, found others")
        } else if let Some(found) =
            [&own, &other].into_iter().map(|f| f.content).find(|c| c.to_string() != self.content)
        {
            Outcome::fail(format!("expected the content {}, found {found}", self.content))
        } else {
            Outcome::pass("the same model, the same bits")
        };
        Ok(outcome
            .with("semantic_id", other.semantic.to_string())
            .with("storage_id", other.storage.to_string())
            .with("same_storage", other.storage == own.storage))
    }

    fn found(&self, model: Model, cell: &Cell, context: &RunContext) -> Result<Found, String> {
        let policy = cell.policy.ok_or("the cell has no policy")?;
        let weights = model.load(&LoadOptions::default()).map_err(|e| e.to_string())?;
        let (semantic, storage) =
            (model.descriptor.semantic().digest(), model.descriptor.storage().digest());
        let content = full_content_digest(&weights);
        let options = EngineOptions {
            threads: Some(context.threads),
            chunk_tokens: self.prompt_tokens,
            ..EngineOptions::with_policy(policy)
        };
        let engine = Engine::new(Arc::new(model.descriptor), &weights, &options)
            .map_err(|e| e.to_string())?;
        let ids = prompt(self.seed, self.prompt_tokens, engine.descriptor().vocab);
        let mut sequence = engine.sequence().map_err(|e| e.to_string())?;
        let mut batch = Batch::new();
        batch.push(&mut sequence, &ids, Want::Every(RowWant::Logits));
        let output = engine.forward(&mut batch).swap_remove(0).map_err(|e| e.to_string())?;
        let mut hasher = Hasher::new();
        for row in output.rows {
            let RowOutput::Logits(logits) = row else {
                return Err("logits were asked for, something else came back".into());
            };
            hasher.update_f32(&logits);
        }
        for part in sequence.live().map_err(|e| e.to_string())? {
            part.values.iter().for_each(|x| hasher.update(&x.to_bits().to_le_bytes()));
        }
        Ok(Found { semantic, storage, content, bits: hasher.finish() })
    }
}

#[cfg(test)]
mod tests {
    use crate::harness::testing::problems;

    const SHIPPED: [&str; 4] = [
        include_str!("../../../../gates/file-layouts-qwen3.yaml"),
        include_str!("../../../../gates/file-layouts-qwen3-5.yaml"),
        include_str!("../../../../gates/file-layouts-qwen3-5-moe.yaml"),
        include_str!("../../../../gates/file-layouts-deepseek-v2.yaml"),
    ];

    const CONTENT: &str = "172a4b8a4ee35f41740abf87cc9f5ffc01a56858b9575aad24fbd68157474cfe";

    #[test]
    fn the_shipped_gates_hold() {
        for file in SHIPPED {
            assert_eq!(problems(file), [""; 0]);
        }
    }

    fn gate(layout: &str) -> String {
        format!(
            "gate: test\nclaim: A test.\ntrack: contract\nkind: file_layouts\npolicy: [f32]\n\
             model: ../tests/fixtures/qwen3\nprompt_tokens: 5\nseed: 1\ncontent: {CONTENT}\n\
             layouts:\n  - {layout}\n"
        )
    }

    /// Another meaning, other bits, and files that are refused do not pass.
    #[test]
    fn what_is_not_the_same_model_fails() {
        for (change, message) in [
            (
                r#"text: { file: config.json, find: '"rms_norm_eps": 1e-06', with: '"rms_norm_eps": 1e-05' }"#,
                "other: expected the semantic id",
            ),
            ("set_bytes: { at: 80000, hex: '0102030405060708' }", "other: expected the bits"),
            (
                "truncate: { keep_bytes: 100 }",
                "other: expected the model to load, found: model.safetensors",
            ),
        ] {
            let found = problems(&gate(&format!("case: other\n    change: [{{ {change} }}]")));
            assert!(found.len() == 1 && found[0].starts_with(message), "{found:?}");
        }
        // Another order of the weights, or another rule, gives another digest.
        let (first, rest) = CONTENT.split_at(1);
        let other = gate("case: other\n    rewrite: { shard_bytes: 1 }")
            .replace(CONTENT, &format!("{}{rest}", if first == "0" { "1" } else { "0" }));
        let found = problems(&other);
        let message = format!(", found {CONTENT}");
        assert!(found.len() == 1 && found[0].ends_with(&message), "{found:?}");
        let fuse = "case: other\n    fuse: { roles: [mlp_gate, mlp_down], tensor: 'model.layers.{layer}.x.weight' }";
        let found = problems(&gate(fuse));
        assert!(found[0].starts_with("other: expected the model to load"), "{found:?}");
        let elsewhere = "case: other\n    separate: { mlp_up: 'model.layers.{layer}.x.weight' }";
        let found = problems(&gate(elsewhere));
        assert!(found[0].starts_with("other: expected the model to load"), "{found:?}");
    }
}
