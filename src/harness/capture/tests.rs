//! Walks to planted and to real differences.

use super::*;
use crate::backend::Policy;
use crate::engine::manifest::Execution;
use crate::engine::{Engine, EngineOptions};
use crate::weights::{LoadOptions, Model};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn capture(folder: &Path, name: &str, policy: Policy, taps: &[&str]) -> PathBuf {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/qwen3_5");
    let model = Model::open(&fixture).unwrap();
    let weights = model.load(&LoadOptions::default()).unwrap();
    let options =
        EngineOptions { threads: Some(1), chunk_tokens: 4, ..EngineOptions::with_policy(policy) };
    let engine = Engine::new(Arc::new(model.descriptor.clone()), &weights, &options).unwrap();
    let manifest = Execution::of(&engine, weights.source(), Some(&model.checkpoint), 1).manifest();
    let options = RecordOptions {
        all_positions: true,
        tap_names: taps.iter().map(|t| (*t).to_owned()).collect(),
        ..RecordOptions::default()
    };
    let prompt =
        |name: &str, ids: &[u32]| Prompt { name: name.into(), token_ids: ids.to_vec(), text: None };
    let prompts = [prompt("same", &[5, 9, 1]), prompt("parted", &[3, 1, 4, 1, 5, 9, 2, 6, 5, 3])];
    let path = folder.join(name);
    record(&engine, &manifest, &prompts, &options, &path, &mut |_| ControlFlow::Continue(()))
        .unwrap();
    path
}

/// Changes the lowest bit of one element of a row.
fn flip(path: &Path, array: &str, row: usize, element: usize) {
    let opened = Capture::open(path).unwrap();
    let entry = opened.arrays.tensor(array).unwrap_or_else(|| panic!("no {array}")).clone();
    drop(opened);
    let mut bytes = std::fs::read(path).unwrap();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let json: serde_json::Value = serde_json::from_slice(&bytes[8..8 + header]).unwrap();
    let start = json[array]["data_offsets"][0].as_u64().unwrap() as usize;
    bytes[8 + header + start + (row * entry.shape[1] + element) * 4] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

fn walk(left: &Path, right: &Path) -> Walk {
    first_difference(&Capture::open(left).unwrap(), &Capture::open(right).unwrap()).unwrap()
}

#[test]
fn a_planted_bit_is_found_where_it_was_planted() {
    let folder = tempfile::tempdir().unwrap();
    let left = capture(folder.path(), "left", Policy::Reference, &[EVERY_TAP]);
    let right = folder.path().join("right");
    std::fs::copy(&left, &right).unwrap();
    assert!(matches!(walk(&left, &right), Walk::Same { activations } if activations > 40));

    // Later in the order of execution: a later activation of the step before, an earlier
    // activation of a later token.
    flip(&right, "tap.parted.layers.1.out", 6, 0);
    flip(&right, "logits.parted", 9, 2);
    flip(&right, "tap.parted.layers.0.input_norm.out", 8, 1);
    flip(&right, "tap.parted.layers.0.gdn_core.out", 5, 7);
    flip(&right, "tap.parted.layers.0.gdn_core.out", 5, 9);
    let start = std::time::Instant::now();
    let Walk::Different(found) = walk(&left, &right) else { panic!("nothing was found") };
    assert!(start.elapsed().as_secs() < 60);
    assert_eq!((found.prompt.as_str(), found.position, found.token_id), ("parted", 5, Some(9)));
    assert_eq!((found.activation.as_str(), found.element), ("layers.0.gdn_core.out", 7));
    assert_eq!(found.regions, ["gdn_core"]);
    assert_eq!((found.unequal_in_row, found.ulp), (2, Some(1)));
    assert!(found.before.as_deref().is_some_and(|b| b.contains("layers.0.gdn")), "{found:?}");
    assert_eq!(found.case, "chunked_prefill");

    let repro = folder.path().join("repro");
    let open = |path: &Path| Capture::open(path).unwrap();
    write_repro(&open(&left), &open(&right), &found, &repro).unwrap();
    let json = |name: &str| -> serde_json::Value {
        serde_json::from_str(&std::fs::read_to_string(repro.join(name)).unwrap()).unwrap()
    };
    assert_eq!(json("prompts.json")["parted"], serde_json::json!([3, 1, 4, 1, 5, 9, 2, 6]));
    let rows = json("around.json")["rows"].clone();
    assert_eq!(rows.as_array().unwrap().len(), 3);
    assert_ne!(rows[1]["left"], rows[1]["right"]);
    assert_eq!(rows[0]["left"], rows[0]["right"]);
    assert_eq!(json("manifests.json")["difference"], serde_json::json!([]));
    let script = std::fs::read_to_string(repro.join("reproduce.sh")).unwrap();
    assert!(
        script.contains("--tap all --device cpu --policy reference --chunk 4 --out left"),
        "{script}"
    );
    let sizes = std::fs::read_dir(&repro).unwrap().map(|e| e.unwrap().metadata().unwrap().len());
    assert!(sizes.sum::<u64>() < 200_000, "a small folder");
}

#[test]
fn two_policies_part_at_the_first_rounding() {
    let folder = tempfile::tempdir().unwrap();
    let left = capture(folder.path(), "left", Policy::F32, &[EVERY_TAP]);
    let right = capture(folder.path(), "right", Policy::Reference, &[EVERY_TAP]);
    let Walk::Different(found) = walk(&left, &right) else { panic!("nothing was found") };
    // Embedding rows are BF16 in the file; the norm behind them is the first to round.
    assert_eq!((found.regions, found.position), (vec!["rms_norm".to_owned()], 0));
    assert_eq!(found.before.as_deref(), Some("embed"));
}

#[test]
fn without_activations_the_logits_are_walked_and_fewer_taps_name_more_regions() {
    let folder = tempfile::tempdir().unwrap();
    let bare = capture(folder.path(), "bare", Policy::Reference, &[]);
    let right = folder.path().join("right");
    std::fs::copy(&bare, &right).unwrap();
    flip(&right, "logits.parted", 4, 3);
    let Walk::Different(found) = walk(&bare, &right) else { panic!("nothing was found") };
    assert_eq!((found.activation.as_str(), found.position, found.element), (LOGITS, 4, 3));
    assert!(found.regions.len() > 5 && found.regions.contains(&"gemm_f32".to_owned()));

    let some = capture(folder.path(), "some", Policy::Reference, &["layers.0.out", "final_norm"]);
    std::fs::copy(&some, &right).unwrap();
    flip(&right, "tap.parted.final_norm", 1, 0);
    let Walk::Different(found) = walk(&some, &right) else { panic!("nothing was found") };
    assert_eq!(found.before.as_deref(), Some("layers.0.out"));
    assert_eq!(found.regions.last().map(String::as_str), Some("rms_norm"));
}
