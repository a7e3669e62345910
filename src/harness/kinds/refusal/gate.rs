//! The gate: one trial per recipe, and a control.

use super::change::Change;
use super::traces;
use crate::descriptor::{Descriptor, DescriptorError};
use crate::harness::kind::{
    Case, Cell, DeviceUse, Fault, GateKind, KindSpec, Outcome, PlanScope, PolicyUse, RunContext,
};
use crate::harness::spec::NonEmpty;
use crate::weights::{LoadOptions, Model, ModelError, SIDECAR};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The control's name: the model as it is, which must load.
const CONTROL: &str = "unchanged";
const DESCRIPTOR: &str = "descriptor.json";

/// Models that must be refused, each made from a valid one by a recipe.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::harness::kinds) struct Refusal {
    /// Folder of a valid model.
    model: PathBuf,
    /// Give the descriptor derived from the valid model explicitly, as `--descriptor` does, instead
    /// of deriving it from each config. The steps can change it: it is the file `descriptor.json`.
    #[serde(default)]
    explicit_descriptor: bool,
    /// The recipes. A trial named `unchanged` is added: the model itself must load.
    refusals: NonEmpty<Recipe>,
}

/// One model that must be refused.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Recipe {
    /// Name of the trial.
    case: String,
    /// Steps that turn the valid model into the refused one.
    change: NonEmpty<Change>,
    /// The whole message, the folder's path left out.
    refused: String,
}

impl KindSpec for Refusal {
    const NAME: &'static str = "refusal";
    const DEVICE: DeviceUse = DeviceUse::Host;
    const POLICY: PolicyUse = PolicyUse::None;
}

impl GateKind for Refusal {
    fn cases(&self, _scope: &PlanScope) -> Result<Vec<Case>, Fault> {
        let mut names = BTreeSet::from([CONTROL]);
        if let Some(twice) = self.refusals.iter().find(|r| !names.insert(&r.case)) {
            let problem = format!("two trials would be named `{}`", twice.case);
            return Err(Fault::at("refusals", problem));
        }
        let recipes = self.refusals.iter().map(|r| r.case.as_str());
        Ok(std::iter::once(CONTROL).chain(recipes).map(Case::named).collect())
    }

    fn run(&self, cell: &Cell, context: &RunContext) -> Outcome {
        let valid = context.path(&self.model);
        let name = cell.case.as_deref().unwrap_or_default();
        let recipe = self.refusals.iter().find(|r| r.case == name);
        let folder = context.scratch.join(name);
        let (changes, refused): (&[Change], _) = match recipe {
            Some(recipe) => (&recipe.change, Some(recipe.refused.as_str())),
            None => (&[], None),
        };
        match build(&valid, &folder, self.explicit_descriptor, changes) {
            Ok(folder) => attempt(&valid, &folder, refused),
            Err(problem) => Outcome::error(format!("the recipe does not fit: {problem}")),
        }
    }
}

/// Copies the files of the model and applies the steps; returns the folder's absolute path.
fn build(
    valid: &Path,
    folder: &Path,
    explicit_descriptor: bool,
    changes: &[Change],
) -> Result<PathBuf, String> {
    let words = |e: std::io::Error| e.to_string();
    fs::create_dir_all(folder).map_err(words)?;
    for entry in fs::read_dir(valid).map_err(|e| format!("{}: {e}", valid.display()))? {
        let entry = entry.map_err(words)?;
        let name = entry.file_name();
        let wanted = ["config.json", "generation_config.json", SIDECAR].iter().any(|n| name == **n)
            || name.to_string_lossy().starts_with("model");
        if wanted {
            // Copied by content, so that a read-only fixture can be changed.
            let bytes = fs::read(entry.path()).map_err(words)?;
            fs::write(folder.join(name), bytes).map_err(words)?;
        }
    }
    if explicit_descriptor {
        let descriptor = Model::open(valid).map_err(|e| e.to_string())?.descriptor;
        fs::write(folder.join(DESCRIPTOR), descriptor.to_json()).map_err(words)?;
    }
    changes.iter().try_for_each(|change| change.apply(folder))?;
    folder.canonicalize().map_err(words)
}

/// Loads the model in `folder`; `refused` is the expected message, `None` for the control.
fn attempt(valid: &Path, folder: &Path, refused: Option<&str>) -> Outcome {
    let before = traces::folder_digest(folder);
    let result = load(folder);
    let loaded_bytes = result.as_ref().ok().copied();
    let message = result.err().map(|e| relative(&e.to_string(), folder));
    let held = traces::held(folder);
    let after = traces::folder_digest(folder);
    let outcome = match (refused, &message) {
        (None, Some(found)) => Outcome::fail(format!("expected the model to load, found: {found}")),
        (Some(expected), None) => {
            Outcome::fail(format!("expected a refusal, found a loaded model: {expected}"))
        }
        (Some(expected), Some(found)) if expected != found => {
            Outcome::fail(format!("expected the message: {expected}\nfound: {found}"))
        }
        _ if !matches!((&before, &after), (Ok(b), Ok(a)) if b == a) => {
            Outcome::fail("expected the folder unchanged by the attempt, found a difference")
        }
        _ if held.as_ref().is_some_and(|held| !held.is_empty()) => {
            let held = held.as_deref().unwrap_or_default().join("; ");
            Outcome::fail(format!("expected nothing held after the attempt, found {held}"))
        }
        _ => match load(valid) {
            Ok(_) => {
                Outcome::pass(if refused.is_some() { "refused, nothing changed" } else { "loaded" })
            }
            Err(e) => Outcome::fail(format!("expected the valid model to load afterwards: {e}")),
        },
    };
    let held = match held {
        Some(held) => serde_json::Value::from(held.len()),
        None => "unavailable: no /proc".into(),
    };
    let outcome = outcome.with("files_held_after", held);
    match (message, loaded_bytes) {
        (Some(message), _) => outcome.with("message", message),
        (None, Some(bytes)) => outcome.with("loaded_bytes", bytes),
        (None, None) => outcome,
    }
}

/// Bytes of the weights of the model in `folder`.
fn load(folder: &Path) -> Result<usize, ModelError> {
    let path = folder.join(DESCRIPTOR);
    let model = if path.exists() {
        let io = |source| DescriptorError::Io { path: path.clone(), source };
        let json = fs::read(&path).map_err(io)?;
        let descriptor = Descriptor::from_json(&path.display().to_string(), &json)?;
        Model::with_descriptor(folder, descriptor)?
    } else {
        Model::open(folder)?
    };
    Ok(model.load(&LoadOptions::default())?.size_bytes())
}

fn relative(message: &str, folder: &Path) -> String {
    let folder = folder.display().to_string();
    message.replace(&format!("{folder}/"), "").replace(&folder, ".")
}

#[cfg(test)]
mod tests {
    use crate::harness::testing::{outcomes, problems};
    use crate::weights::Rule;

    fn gate(recipes: &str) -> String {
        format!(
            "gate: test\nclaim: A test.\ntrack: contract\nkind: refusal\n\
             model: ../tests/fixtures/llama\nrefusals:\n{recipes}"
        )
    }

    const GOOD: &str = "  - case: short\n    change: [{ truncate: { keep_bytes: 3 } }]\n    \
                        refused: \"model.safetensors: the file starts with the header's length in 8 \
                        bytes [length_prefix]: found a file of 3 bytes\"\n";

    #[test]
    fn a_refusal_with_its_message_passes_beside_the_control() {
        let all = outcomes(&gate(GOOD));
        assert_eq!(all.len(), 2);
        assert_eq!(problems(&gate(GOOD)), [""; 0]);
    }

    const SHIPPED: [&str; 9] = [
        include_str!("../../../../gates/refusals-int4.yaml"),
        include_str!("../../../../gates/refusals-safetensors.yaml"),
        include_str!("../../../../gates/refusals-shards.yaml"),
        include_str!("../../../../gates/refusals-contradictions.yaml"),
        include_str!("../../../../gates/refusals-contradictions-hybrid.yaml"),
        include_str!("../../../../gates/refusals-descriptor.yaml"),
        include_str!("../../../../gates/refusals-config.yaml"),
        include_str!("../../../../gates/refusals-qwen3.yaml"),
        include_str!("../../../../gates/refusals-config-nested.yaml"),
    ];

    #[test]
    fn the_shipped_gates_hold() {
        for file in SHIPPED {
            assert_eq!(problems(file), [""; 0]);
        }
    }

    /// Rules that no trial here can break: the first needs an unreadable disk, the others files of
    /// 100 MB.
    const NOT_TRIED: [Rule; 3] = [Rule::Readable, Rule::IndexLimit, Rule::SidecarLimit];

    #[test]
    fn every_rule_has_a_trial() {
        let all = SHIPPED.concat();
        for rule in Rule::ALL {
            let tried = all.contains(&format!("[{rule}]"));
            assert_eq!(tried, !NOT_TRIED.contains(rule), "{rule}");
        }
    }

    #[test]
    fn another_message_a_loaded_model_and_a_misfit_recipe_do_not_pass() {
        let other = problems(&gate(&GOOD.replace("found a file", "found no file")));
        assert!(other[0].starts_with("short: expected the message"), "{other:?}");
        let harmless = "  - case: harmless\n    change: [{ header: { find: '\"pt\"', with: \
                        '\"np\"' } }]\n    refused: anything\n";
        let loaded = problems(&gate(harmless));
        assert!(loaded[0].contains("found a loaded model"), "{loaded:?}");
        let misfit = problems(&gate(&GOOD.replace("keep_bytes: 3", "keep_bytes: 99999999")));
        assert!(misfit[0].contains("the recipe does not fit"), "{misfit:?}");
    }

    #[test]
    fn a_broken_model_fails_the_control() {
        let broken = gate(GOOD).replace("fixtures/llama", "fixtures/tokenizer");
        assert!(problems(&broken)[0].starts_with("unchanged: "), "{:?}", problems(&broken));
    }
}
