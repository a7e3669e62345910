//! Configs that must be refused, each with its message as a committed snapshot.
//!
//! A folder of `tests/fixtures/bad-configs/` holds `config.json`, perhaps
//! `generation_config.json` and `tensors.txt` (tensor names, one a line), and `message.txt`.
//! `ASSAY_UPDATE_SNAPSHOTS=1 cargo test --test bad_configs` writes the messages again.

use assay::descriptor::{ConfigFiles, Descriptor, TensorIndex};
use std::fs;
use std::path::Path;

fn refusal(case: &Path) -> Result<Descriptor, String> {
    let config = fs::read(case.join("config.json")).unwrap();
    let generation = fs::read(case.join("generation_config.json")).ok();
    let tensors = fs::read_to_string(case.join("tensors.txt")).ok().map(|names| TensorIndex {
        file: "model.safetensors".into(),
        names: names.lines().map(str::to_owned).collect(),
    });
    Descriptor::derive(&ConfigFiles {
        config: ("config.json", &config),
        generation_config: generation.as_deref().map(|g| ("generation_config.json", g)),
        tensors: tensors.as_ref(),
    })
    .map_err(|e| e.to_string())
}

#[test]
fn every_bad_config_is_refused_with_its_message() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/bad-configs");
    let mut cases: Vec<_> = fs::read_dir(&root).unwrap().map(|e| e.unwrap().path()).collect();
    cases.sort();
    assert!(cases.len() >= 70, "{} cases", cases.len());
    let mut wrong = Vec::new();
    for case in &cases {
        let name = case.file_name().unwrap().to_string_lossy();
        let snapshot = case.join("message.txt");
        match refusal(case) {
            Ok(_) => wrong.push(format!("{name}: accepted")),
            Err(found) if std::env::var_os("ASSAY_UPDATE_SNAPSHOTS").is_some() => {
                fs::write(&snapshot, found + "\n").unwrap();
            }
            Err(found) => {
                let expected = fs::read_to_string(&snapshot).unwrap_or_default();
                if expected.trim_end() != found {
                    wrong.push(format!("{name}:\n  expected {expected}  found    {found}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The good configs that the bad ones are one change away from are accepted, so that each refusal
/// is about that change.
#[test]
fn the_same_configs_without_the_defect_are_accepted() {
    for (bad, defect, repaired) in [
        ("activation-gelu", "\"gelu\"", "\"silu\""),
        ("no-output-gate", "\"attn_output_gate\": false", "\"attn_output_gate\": true"),
        ("unknown-key", "\"embedding_multiplier\": 12.0", "\"embedding_multiplier\": null"),
    ] {
        let case =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/bad-configs").join(bad);
        let scratch = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(&case).unwrap() {
            let path = entry.unwrap().path();
            fs::copy(&path, scratch.path().join(path.file_name().unwrap())).unwrap();
        }
        let config = fs::read_to_string(case.join("config.json")).unwrap();
        assert!(config.contains(defect), "{bad}");
        fs::write(scratch.path().join("config.json"), config.replace(defect, repaired)).unwrap();
        refusal(scratch.path()).unwrap_or_else(|e| panic!("{bad}: {e}"));
    }
}
