//! Spellings of the same model give the same descriptor; layouts give the same meaning.

use assay::descriptor::{ConfigFiles, Descriptor, TensorIndex, from_dir};
use serde_json::{Value, json};
use std::path::Path;

fn config(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("descriptors/configs").join(name);
    serde_json::from_slice(&std::fs::read(path.join("config.json")).unwrap()).unwrap()
}

fn derive(config: &Value) -> Result<Descriptor, String> {
    derive_with(config, None)
}

fn derive_with(config: &Value, tensors: Option<&TensorIndex>) -> Result<Descriptor, String> {
    let bytes = config.to_string().into_bytes();
    let files = ConfigFiles { config: ("config.json", &bytes), generation_config: None, tensors };
    Descriptor::derive(&files).map_err(|e| e.to_string())
}

/// The config with changes made: a null removes a key.
fn with(mut config: Value, changes: Value) -> Value {
    for (key, value) in changes.as_object().unwrap() {
        if value.is_null() {
            config.as_object_mut().unwrap().remove(key);
        } else {
            config[key] = value.clone();
        }
    }
    config
}

#[test]
fn llama_spellings_agree() {
    let base = config("llama32-1b");
    let expected = derive(&base).unwrap();
    let scaling = base["rope_scaling"].clone();
    let parameters = with(scaling.clone(), json!({ "rope_theta": 500000 }));
    let old_type = with(scaling.clone(), json!({ "rope_type": null, "type": "llama3" }));
    let mut explicit_null = base.clone();
    for key in ["sliding_window", "quantization_config", "frobnication", "rope_parameters"] {
        explicit_null[key] = Value::Null;
    }
    for (what, spelling) in [
        (
            "rope_parameters",
            json!({ "rope_theta": null, "rope_scaling": null, "rope_parameters": parameters }),
        ),
        ("both", json!({ "rope_parameters": with(scaling, json!({ "rope_theta": 5e5 })) })),
        ("type", json!({ "rope_scaling": old_type })),
        ("dtype", json!({ "torch_dtype": null, "dtype": "bfloat16" })),
        ("both dtypes", json!({ "dtype": "bfloat16" })),
        ("head_dim absent", json!({ "head_dim": null })),
        ("partial 1", json!({ "partial_rotary_factor": 1.0 })),
        ("layer types", json!({ "layer_types": vec!["full_attention"; 16] })),
        ("window off", json!({ "sliding_window": 4096, "use_sliding_window": false })),
        ("a private note", json!({ "_note": { "a": [1] } })),
        ("end token as list", json!({ "eos_token_id": [128001] })),
    ] {
        let found = derive(&with(base.clone(), spelling)).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(found, expected, "{what}");
    }
    assert_eq!(derive(&explicit_null).unwrap(), expected, "explicit nulls");
}

/// Absent and null `head_dim` mean 128, not hidden / heads (80 in this model).
#[test]
fn qwen3_spellings_agree() {
    let base = config("qwen3-4b");
    let expected = derive(&base).unwrap();
    assert_eq!(expected.attention.as_ref().unwrap().head_dim, 128);
    let mut null = base.clone();
    null["head_dim"] = Value::Null;
    assert_eq!(derive(&null).unwrap(), expected, "head_dim null");
    let parameters = json!({ "rope_theta": 1e6, "rope_type": "default" });
    for (what, spelling) in [
        ("head_dim absent", json!({ "head_dim": null })),
        ("rope_parameters", json!({ "rope_theta": null, "rope_parameters": parameters })),
        ("both", json!({ "rope_parameters": parameters })),
        ("dtype", json!({ "torch_dtype": null, "dtype": "bfloat16" })),
        ("layer types", json!({ "layer_types": vec!["full_attention"; 36] })),
        ("window off", json!({ "sliding_window": 4096 })),
    ] {
        let found = derive(&with(base.clone(), spelling)).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(found, expected, "{what}");
    }
    for (spelling, message) in [
        (json!({ "sliding_window": 4096, "use_sliding_window": true }), "`sliding_window`"),
        (json!({ "rope_parameters": { "rope_theta": 1e4 } }), "`rope_parameters.rope_theta`"),
        (json!({ "attention_bias": true }), "`attention_bias`"),
        (json!({ "num_experts": 128 }), "`num_experts`: unknown key"),
        (json!({ "architectures": ["Qwen3Model"] }), "expected Qwen3ForCausalLM"),
    ] {
        let error = derive(&with(base.clone(), spelling)).unwrap_err();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn hybrid_spellings_agree() {
    let base = config("qwen38-27b");
    let text = base["text_config"].clone();
    let expected = derive(&base).unwrap();
    let inner =
        |changes: Value| with(base.clone(), json!({ "text_config": with(text.clone(), changes) }));
    let theta_outside = json!({
        "rope_theta": 10000000.0,
        "rope_parameters": null,
        "rope_scaling": { "type": "default", "mrope_section": [11, 11, 10] },
    });
    for (what, spelling) in [
        ("interval alone", inner(json!({ "layer_types": null }))),
        ("layer types alone", inner(json!({ "full_attention_interval": null }))),
        ("factor once", inner(json!({ "partial_rotary_factor": null }))),
        ("old rope", inner(theta_outside)),
        ("outer tie alone", inner(json!({ "tie_word_embeddings": null }))),
        ("outer dtype too", with(base.clone(), json!({ "torch_dtype": "bfloat16" }))),
        ("outer repeats inner", with(base.clone(), json!({ "hidden_size": 5120 }))),
    ] {
        let found = derive(&spelling).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(found, expected, "{what}");
    }
    let contradiction = derive(&with(base.clone(), json!({ "hidden_size": 4096 }))).unwrap_err();
    assert!(
        contradiction.contains("`hidden_size`: expected 5120 as `text_config.hidden_size` says"),
        "{contradiction}"
    );
}

/// The flat form of the same model has other names in its files and nothing else.
#[test]
fn a_layout_moves_storage_alone() {
    let nested = derive(&config("qwen38-27b")).unwrap();
    let flat = derive(&config("qwen38-27b")["text_config"]).unwrap();
    assert_eq!(nested.semantic().digest(), flat.semantic().digest());
    assert_ne!(nested.storage().digest(), flat.storage().digest());
    // A flat config may lie beside weights under the nested names.
    let instances = nested
        .roles
        .iter()
        .flat_map(|role| role.instances().into_iter().flat_map(|layer| role.tensors(layer)));
    let names = instances.map(|(name, _)| name).collect();
    let index = TensorIndex { file: "index".into(), names };
    let found = derive_with(&config("qwen38-27b")["text_config"], Some(&index)).unwrap();
    assert_eq!(found.storage(), nested.storage());
}

#[test]
fn meaning_moves_with_every_semantic_field() {
    let base = config("llama32-1b");
    let id = |changes: Value| {
        derive(&with(base.clone(), changes)).map(|d| d.semantic().digest().to_string())
    };
    let original = id(json!({})).unwrap();
    for changes in [
        json!({ "rope_theta": 500001.0 }),
        json!({ "rms_norm_eps": 1e-6 }),
        json!({ "tie_word_embeddings": false }),
        json!({ "eos_token_id": 128009 }),
        json!({ "num_key_value_heads": 4 }),
        json!({ "rope_scaling": { "rope_type": "default" } }),
        json!({ "num_hidden_layers": 15 }),
        json!({ "max_position_embeddings": 8192 }),
    ] {
        assert_ne!(id(changes.clone()).unwrap(), original, "{changes}");
    }
    for changes in [json!({ "transformers_version": "9" }), json!({ "use_cache": false })] {
        assert_eq!(id(changes.clone()).unwrap(), original, "{changes}");
    }
}

#[test]
fn an_inner_tie_alone_needs_the_weights() {
    let mut config = config("tiny-qwen35");
    config.as_object_mut().unwrap().remove("tie_word_embeddings");
    config["text_config"]["tie_word_embeddings"] = true.into();
    assert!(derive(&config).unwrap_err().contains("state it at the outer level"));
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/qwen3_5");
    let mut index = assay::descriptor::tensor_index(&fixture).unwrap().unwrap();
    let contradicted = derive_with(&config, Some(&index)).unwrap_err();
    assert!(contradicted.contains("has `lm_head.weight`"), "{contradicted}");
    index.names.remove("lm_head.weight");
    let tied = derive_with(&config, Some(&index)).unwrap();
    assert!(tied.roles.iter().any(|r| r.tied_to.is_some()));
    assert!(from_dir(&fixture).unwrap().roles.iter().all(|r| r.tied_to.is_none()));
}
