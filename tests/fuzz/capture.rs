//! What names an execution, what is fed to it, and what it computed: manifests, prompts, captures.

use crate::engine::JSON;
use crate::fuzzer::{Target, kind_of_message};
use assay::engine::manifest::{self, Manifest, ManifestError};
use assay::harness::capture::{
    Capture, CaptureError, Mode, PromptContent, Walk, compare, first_difference, parse_prompts,
};
use assay::harness::independent::derive_ids;
use serde_json::json;
use std::path::Path;
use tempfile::TempDir;

/// A message without what was found in the input: what kind of message it is.
fn kind(message: &str) -> String {
    let found = [", found ", ": found ", " says ", " is {", " is ["];
    let end = found.iter().filter_map(|words| message.find(words)).min();
    kind_of_message(&message[..end.unwrap_or(message.len())])
}

/// A manifest: read, written and read again, its ids derived in another way, compared with itself.
pub(crate) static MANIFEST: Target = Target {
    name: "manifest",
    folders: &["tests/corpus/manifest"],
    dictionary: &[
        "\"manifest_version\"",
        "\"fields\"",
        "\"semantic\"",
        "\"provenance\"",
        "\"build\"",
        "\"run_id\"",
        "\"unknown\"",
        "\"not_applicable\"",
        "{}",
        "[]",
        "null",
        "1",
        "1.0",
        "\\u00e9",
        "\\ud83d\\ude42",
        ",",
        "}",
    ],
    run: |bytes| match Manifest::from_json(bytes) {
        Err(ManifestError::Digest { key, .. }) => format!("another {key}"),
        Err(error) => kind(&error.to_string()),
        Ok(manifest) => {
            let text = manifest.to_json().to_string();
            let back = Manifest::from_json(text.as_bytes()).expect("as it was written");
            assert_eq!(back, manifest);
            let ids = derive_ids(&text).expect("blocks");
            assert!(ids.values().all(|(stated, derived)| stated == derived), "{ids:?}");
            assert!(manifest::compare(&manifest, &back).differing().is_empty());
            format!("read, {} not established", manifest.unestablished().len().min(9))
        }
    },
};

/// A file of prompts.
pub(crate) static PROMPTS: Target = Target {
    name: "prompts",
    folders: &["tests/corpus/prompts"],
    dictionary: JSON,
    run: |bytes| match parse_prompts(Path::new("p.json"), bytes) {
        Err(error) => kind(&error.to_string()),
        Ok(prompts) => {
            let mut texts = 0usize;
            for prompt in &prompts {
                // Names become parts of the names of tensors.
                let usable = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
                assert!(!prompt.name.is_empty() && prompt.name.chars().all(usable));
                let empty = match &prompt.content {
                    PromptContent::Ids(ids) => ids.is_empty(),
                    PromptContent::Text(text) => {
                        texts += 1;
                        text.is_empty()
                    }
                };
                assert!(!empty, "{prompt:?}");
            }
            format!("{} prompts, {} texts", prompts.len().min(9), texts.min(9))
        }
    },
};

/// A capture: the first line of the input says what was executed, the rest is the manifest. The
/// arrays are always the same.
pub(crate) static CAPTURE: Target = Target {
    name: "capture",
    folders: &["tests/corpus/capture"],
    dictionary: &[
        "\"capture_version\":",
        "\"token_ids\":",
        "\"cases\":",
        "\"taps\":",
        "\"tap_regions\":",
        "\"first_logits_position\":",
        "\"decode\"",
        "\"a\"",
        "[]",
        "{}",
        "null",
        "\n",
    ],
    run: |bytes| {
        let Ok(text) = std::str::from_utf8(bytes) else { return "no text".to_owned() };
        let (info, manifest) = text.split_once('\n').unwrap_or((text, ""));
        let mut metadata = json!({ "format": "assay capture", "capture": info });
        if !manifest.is_empty() {
            metadata["manifest"] = json!(manifest);
        }
        let header = json!({
            "__metadata__": metadata,
            "logits.a": { "dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16] },
            "greedy.a": { "dtype": "I64", "shape": [2], "data_offsets": [16, 32] },
        });
        let header = header.to_string();
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend_from_slice(header.as_bytes());
        file.resize(file.len() + 32, 0);
        thread_local! {
            static FOLDER: TempDir = tempfile::tempdir().expect("a temporary folder");
        }
        FOLDER.with(|folder| {
            let path = folder.path().join("capture.safetensors");
            std::fs::write(&path, &file).expect("a temporary file");
            match Capture::open(&path) {
                Err(CaptureError::Metadata { key, message, .. }) => {
                    format!("{key}: {}", kind(&message))
                }
                Err(error) => kind(&error.to_string()),
                Ok(capture) => {
                    let comparison = compare(&capture, &capture, Mode::STRICT);
                    assert!(comparison.arrays_equal(), "{:?}", comparison.arrays);
                    let walk = first_difference(&capture, &capture);
                    assert!(!matches!(walk, Ok(Walk::Different(_))), "{walk:?}");
                    let prompts = capture.info.as_ref().map_or(0, |info| info.prompts.len());
                    format!("{} prompts, manifest {}", prompts.min(9), capture.manifest.is_some())
                }
            }
        })
    },
};
