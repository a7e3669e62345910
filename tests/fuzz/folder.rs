//! Parsers of files that are read beside others of a model's folder: the index of shards, the sidecar
//! of packed weights, the tokeniser, the generation config.

use crate::fuzzer::{Target, kind_of_message};
use assay::descriptor::{ConfigFiles, Descriptor};
use assay::generation::{ControlTokens, TextTokenizer};
use assay::weights::{Checkpoint, LoadOptions, Model, ModelError};
use tempfile::TempDir;

/// A folder with these files.
fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, bytes) in files {
        std::fs::write(folder.path().join(name), bytes).expect("a temporary file");
    }
    folder
}

/// The index of a sharded checkpoint, beside two shards and a copy of the first.
pub(crate) static INDEX: Target = Target {
    name: "index",
    folders: &["tests/corpus/index"],
    dictionary: &[
        "\"weight_map\"",
        "\"metadata\"",
        "\"total_size\"",
        "\"a\"",
        "\"b.weight\"",
        "\"é\"",
        "\"s.safetensors\"",
        "\"t.safetensors\"",
        "\"u.safetensors\"",
        "\"../s.safetensors\"",
        "\"model.safetensors\"",
        "\\u0061",
        "{}",
        "null",
        ",",
        "}",
    ],
    run: |bytes| {
        const FIRST: &[u8] = include_bytes!("../corpus/checkpoint/two-types.safetensors");
        const SECOND: &[u8] = include_bytes!("../corpus/checkpoint/escapes.safetensors");
        thread_local! {
            static FOLDER: TempDir = folder(&[
                ("s.safetensors", FIRST),
                ("t.safetensors", SECOND),
                ("u.safetensors", FIRST),
            ]);
        }
        FOLDER.with(|folder| {
            let folder = folder.path();
            let index = folder.join("model.safetensors.index.json");
            std::fs::write(index, bytes).expect("a temporary file");
            match Checkpoint::open(folder) {
                Err(error) => format!("{:?}", error.rule),
                Ok(checkpoint) => {
                    assert!(checkpoint.files().all(|file| file.parent() == Some(folder)));
                    for (name, entry) in checkpoint.tensors() {
                        let found = checkpoint.bytes(name).expect("listed").len();
                        assert_eq!(found, entry.size_bytes, "{name}");
                    }
                    let (count, odd) = (checkpoint.tensors().count(), checkpoint.warnings().len());
                    format!("{count} tensors, {odd} warnings")
                }
            }
        })
    },
};

/// The sidecar of packed weights, beside the weights of a fixture.
pub(crate) static SIDECAR: Target = Target {
    name: "sidecar",
    folders: &["tests/corpus/sidecar"],
    dictionary: &[
        "\"quantised\"",
        "\"retained\"",
        "\"packed\"",
        "\"bf16\"",
        "\"lm_head\"",
        "\"mlp_gate\"",
        "\"int4.lm_head.codes\"",
        "\"experts\"",
        "\"group\"",
        "[512, 64]",
        "[8, 64]",
        "128",
        "null",
        "\"U8\"",
        "\"BF16\"",
    ],
    run: |bytes| {
        const CONFIG: &[u8] = include_bytes!("../fixtures/llama-int4/config.json");
        const WEIGHTS: &[u8] = include_bytes!("../fixtures/llama-int4/model.safetensors");
        thread_local! {
            static FOLDER: TempDir =
                folder(&[("config.json", CONFIG), ("model.safetensors", WEIGHTS)]);
        }
        FOLDER.with(|folder| {
            let folder = folder.path();
            std::fs::write(folder.join(assay::weights::SIDECAR), bytes).expect("a temporary file");
            let model = Model::open(folder);
            match model.and_then(|model| model.load(&LoadOptions::default())) {
                Err(ModelError::Checkpoint(error)) => format!("{:?}", error.rule),
                Err(ModelError::Descriptor(error)) => kind_of_message(&error.to_string()),
                Ok(weights) => {
                    assert!(weights.artifact().is_some(), "packed weights without their identity");
                    "loaded".to_owned()
                }
            }
        })
    },
};

/// A generation config, beside the config of a model.
pub(crate) static GENERATION_CONFIG: Target = Target {
    name: "generation-config",
    folders: &["tests/corpus/generation-config"],
    dictionary: &[
        "\"eos_token_id\"",
        "128001",
        "128255",
        "128256",
        "128001.0",
        "[",
        "]",
        "{",
        "}",
        ":",
        ",",
        "null",
        "\"2\"",
        "\\u005f",
    ],
    run: |bytes| {
        const CONFIG: &[u8] = include_bytes!("../corpus/config/llama.json");
        let files = ConfigFiles {
            config: ("config.json", CONFIG),
            generation_config: Some(("generation_config.json", bytes)),
            tensors: None,
        };
        match Descriptor::derive(&files) {
            Err(refusal) => kind_of_message(&refusal.to_string()),
            Ok(descriptor) => {
                let end = &descriptor.end_tokens;
                assert!(end.is_sorted_by(|a, b| a < b), "{end:?}");
                assert!(end.iter().all(|id| (*id as usize) < descriptor.vocab), "{end:?}");
                format!("{} end tokens", end.len().min(9))
            }
        }
    },
};

/// A tokeniser: opened, and a text through it in both readings and back.
pub(crate) static TOKENIZER: Target = Target {
    name: "tokenizer",
    folders: &["tests/corpus/tokenizer"],
    dictionary: &[
        "\"BPE\"",
        "\"Unigram\"",
        "\"WordPiece\"",
        "\"WordLevel\"",
        "\"ByteLevel\"",
        "\"ByteFallback\"",
        "\"Sequence\"",
        "\"Metaspace\"",
        "\"Split\"",
        "\"Regex\"",
        "\"NFKC\"",
        "\"Strip\"",
        "\"TemplateProcessing\"",
        "\"byte_fallback\":true",
        "\"special\":true",
        "\"<0xFF>\"",
        "\"<|im_end|>\"",
        "(?=",
        ")*",
        "null",
        "[\"a\",\"b\"]",
    ],
    run: |bytes| {
        const TEXT: &str = "a <|im_end|> Zoë\n 12 abim";
        thread_local! {
            static FOLDER: TempDir = folder(&[]);
        }
        FOLDER.with(|folder| {
            let path = folder.path().join("tokenizer.json");
            std::fs::write(&path, bytes).expect("a temporary file");
            let tokenizer = match TextTokenizer::open(&path) {
                Err(error) => return kind_of_message(&error.to_string()),
                Ok(tokenizer) => tokenizer,
            };
            let mut found = Vec::new();
            for control in [ControlTokens::AsText, ControlTokens::Parse] {
                found.push(match tokenizer.encode(TEXT, control) {
                    Err(error) => kind_of_message(&error.to_string()),
                    // Ids that a file makes up are refused, not decoded to something.
                    Ok(ids) => match tokenizer.decode(&ids, true) {
                        Err(error) => kind_of_message(&error.to_string()),
                        Ok(text) => format!("{} ids, {}", ids.len().min(20), text == TEXT),
                    },
                });
            }
            found.join("; ")
        })
    },
};
