//! The kind with the real engine: shipped references pass, damaged ones fail.

use crate::harness::kind::{Cell, Outcome, Verdict};
use crate::harness::testing::{outcomes, root};
use safetensors::SafeTensors;
use safetensors::tensor::{TensorView, serialize_to_file};
use std::path::{Path, PathBuf};

fn name(cell: &Cell) -> String {
    format!(
        "{}/{}",
        cell.case.as_deref().unwrap_or_default(),
        cell.axis("prompt").unwrap_or_default()
    )
}

/// The outcomes of a shipped gate, with some of its lines replaced.
fn run(gate: &str, replace: &[(&str, String)]) -> Vec<(Cell, Outcome)> {
    let path = root().join(format!("gates/{gate}.yaml"));
    let mut text = std::fs::read_to_string(path).unwrap();
    for (key, value) in replace {
        let lines = text.lines().map(|line| match line.strip_prefix(key) {
            Some(rest) if rest.starts_with(':') => format!("{key}: {value}"),
            _ => line.to_owned(),
        });
        text = lines.collect::<Vec<_>>().join("\n");
    }
    outcomes(&text)
}

/// The qwen3_5_text gate under `f32` with another reference.
fn run_with(reference: &Path) -> Vec<(Cell, Outcome)> {
    let reference = format!("{:?}", reference.display().to_string());
    run("reference-qwen3-5-text", &[("policy", "[f32]".into()), ("reference", reference)])
}

fn failures(results: &[(Cell, Outcome)]) -> Vec<String> {
    let failed = results.iter().filter(|(_, o)| o.verdict != Verdict::Pass);
    failed.map(|(cell, o)| format!("{}: {}", name(cell), o.message)).collect()
}

#[test]
fn fixtures_agree_with_transformers() {
    for family in ["llama", "qwen3-5-text", "qwen3-5"] {
        let results = run(&format!("reference-{family}"), &[]);
        assert_eq!(failures(&results), Vec::<String>::new(), "{family}");
    }
}

/// A copy of a reference in `folder` with the bytes of one tensor changed.
fn damaged(folder: &Path, tensor: &str, change: impl FnOnce(&mut [u8])) -> PathBuf {
    let source = root().join("tests/fixtures/qwen3_5_text/reference.json");
    let copy = folder.join("reference.json");
    std::fs::copy(&source, &copy).unwrap();
    let bytes = std::fs::read(source.with_extension("safetensors")).unwrap();
    let all = SafeTensors::deserialize(&bytes).unwrap();
    let mut changed = all.tensor(tensor).unwrap().data().to_vec();
    change(&mut changed);
    let views = all.iter().map(|(name, view)| {
        let data = if name == tensor { &changed } else { view.data() };
        (name, TensorView::new(view.dtype(), view.shape().to_vec(), data).unwrap())
    });
    serialize_to_file(views, None, &copy.with_extension("safetensors")).unwrap();
    copy
}

fn add(bytes: &mut [u8], at: usize, delta: f32) {
    let place = &mut bytes[at * 4..][..4];
    let value = f32::from_le_bytes(place.try_into().unwrap()) + delta;
    place.copy_from_slice(&value.to_le_bytes());
}

#[test]
fn one_changed_number_fails_its_trial_alone() {
    for (tensor, trial, at, delta) in [
        ("logits.p150.f32", "logits/p150", 149 * 512 + 7, 1e-3),
        ("logits.p150.f32", "logits/p150", 3, f32::NAN),
        ("tap.layers.1.mixer", "taps/p7", 70, 0.05),
        ("tap.final_norm", "taps/p7", 6 * 64, 0.05),
        ("state.layers.2.recurrent", "states/p7", 300, 0.05),
        ("state.layers.0.conv", "states/p7", 479, 0.05),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = damaged(folder.path(), tensor, |bytes| add(bytes, at, delta));
        let results = run_with(&path);
        let failed = failures(&results);
        assert_eq!(failed.len(), 1, "{tensor}: {failed:?}");
        assert!(failed[0].starts_with(trial), "{failed:?}");
    }
}

#[test]
fn a_swapped_token_fails() {
    let folder = tempfile::tempdir().unwrap();
    let path = damaged(folder.path(), "tap.embed", |_| ());
    let mut json: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    json["greedy"]["p7"]["fp32"].as_array_mut().unwrap().swap(10, 11);
    std::fs::write(&path, json.to_string()).unwrap();
    let results = run_with(&path);
    let failed = failures(&results);
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert!(failed[0].starts_with("greedy/p7: step 10:"), "{failed:?}");
}

#[test]
fn another_checkpoint_fails_and_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.json");
    for extension in ["json", "safetensors"] {
        let source = root().join("tests/fixtures/qwen3_5/long").with_extension(extension);
        std::fs::copy(source, path.with_extension(extension)).unwrap();
    }
    let results = run_with(&path);
    for (cell, outcome) in &results {
        assert_eq!(outcome.verdict, Verdict::Fail, "{}", name(cell));
        assert!(outcome.message.contains("other weights"), "{}", outcome.message);
    }
}
