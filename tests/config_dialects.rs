//! Spellings of the same model give the same descriptor; layouts give the same meaning.

use assay::descriptor::{ConfigFiles, Descriptor, Ffn, RopeScaling, TensorIndex, from_dir};
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
        ("window not on", json!({ "sliding_window": 4096, "use_sliding_window": null })),
        // `max_window_layers` is the number of layers: none has the window.
        ("window nowhere", json!({ "sliding_window": 4096, "use_sliding_window": true })),
        ("another name of silu", json!({ "hidden_act": "swish" })),
    ] {
        let found = derive(&with(base.clone(), spelling)).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(found, expected, "{what}");
    }
    for (spelling, message) in [
        (
            json!({ "sliding_window": 4096, "use_sliding_window": true, "max_window_layers": 20 }),
            "`max_window_layers`: expected the window in all layers or in none, found it in 16 of 36",
        ),
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
        ("another outer dtype", with(base.clone(), json!({ "torch_dtype": "float32" }))),
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

/// Windows of families that switch them on: in all layers, or the config is refused.
#[test]
fn windows_that_are_switched_on() {
    let on = json!({ "sliding_window": 512, "use_sliding_window": true });
    let window = |config: Value| derive(&config).map(|d| d.attention.unwrap().window);
    let qwen3 = with(config("qwen3-4b"), on.clone());
    let from = |layer: u64| with(qwen3.clone(), json!({ "max_window_layers": layer }));
    assert_eq!(window(from(0)), Ok(Some(512)));
    assert_eq!(window(from(36)), Ok(None));
    let kinds = |kind: &str| json!({ "layer_types": vec![kind; 36] });
    assert_eq!(window(with(from(20), kinds("sliding_attention"))), Ok(Some(512)));
    assert_eq!(window(with(from(20), kinds("full_attention"))), Ok(None));
    let mixed = [vec!["full_attention"; 35], vec!["sliding_attention"]].concat();
    let refused = window(with(from(20), json!({ "layer_types": mixed }))).unwrap_err();
    assert!(refused.contains("`layer_types`") && refused.contains("in 1 of 36"), "{refused}");
    // Its mixture of experts has the window everywhere.
    assert_eq!(window(with(config("qwen3-30b-a3b"), on)), Ok(Some(512)));
}

#[test]
fn router_fields_that_a_family_fixes_may_repeat_it() {
    let mixtral = config("mixtral-8x7b");
    let expected = derive(&mixtral).unwrap();
    let repeated =
        json!({ "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": [] });
    assert_eq!(derive(&with(mixtral.clone(), repeated)).unwrap(), expected);
    for (change, key) in [
        (json!({ "norm_topk_prob": false }), "`norm_topk_prob`: expected true"),
        (json!({ "decoder_sparse_step": 2 }), "`decoder_sparse_step`: expected 1"),
        (json!({ "mlp_only_layers": [1] }), "`mlp_only_layers`: expected []"),
    ] {
        let refused = derive(&with(mixtral.clone(), change)).unwrap_err();
        assert!(refused.contains(key), "{refused}");
    }
    let refused = derive(&with(config("deepseek-v2-lite"), json!({ "norm_topk_prob": true })));
    assert!(refused.unwrap_err().contains("`norm_topk_prob`: expected false"));
}

#[test]
fn every_second_layer_of_deepseek_may_have_experts() {
    let base = config("deepseek-v2-lite");
    let sparse = |change: Value| -> Vec<usize> {
        let d = derive(&with(base.clone(), change)).unwrap();
        let ffns = d.layer_ffns.iter().enumerate();
        ffns.filter(|(_, f)| **f == Ffn::Moe).map(|(layer, _)| layer).collect()
    };
    assert_eq!(sparse(json!({})), (1..27).collect::<Vec<_>>());
    assert_eq!(sparse(json!({ "moe_layer_freq": 2 })), (2..27).step_by(2).collect::<Vec<_>>());
    let change = json!({ "moe_layer_freq": 3, "first_k_dense_replace": 4 });
    assert_eq!(sparse(change), (6..27).step_by(3).collect::<Vec<_>>());
}

#[test]
fn rope_scalings_of_any_half_split_family() {
    let yarn = json!({
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096,
    });
    let scaling = |name: &str, scaling: Value| {
        let d = derive(&with(config(name), json!({ "rope_scaling": scaling })))?;
        Ok::<_, String>(d.attention.unwrap().rope.scaling)
    };
    let magnitude = 0.1 * 4f64.ln() + 1.0;
    for name in ["qwen3-next-80b-a3b", "mixtral-8x7b", "qwen3-30b-a3b", "llama32-1b"] {
        let found = scaling(name, yarn.clone()).unwrap();
        assert!((found.rotary_magnitude() - magnitude).abs() < 1e-12, "{name}: {found:?}");
    }
    let linear = json!({ "type": "linear", "factor": 4.0 });
    assert_eq!(scaling("llama32-1b", linear), Ok(RopeScaling::Linear { factor: 4.0 }));
    // The magnitude itself in place of what it follows from.
    for attention in [1.0, 1.2] {
        let stated = with(yarn.clone(), json!({ "attention_factor": attention }));
        let found = scaling("qwen3-30b-a3b", stated).unwrap();
        assert!((found.rotary_magnitude() - attention).abs() < 1e-12, "{found:?}");
    }
    let stated = with(yarn.clone(), json!({ "attention_factor": 0.5 }));
    let refused = scaling("qwen3-30b-a3b", stated).unwrap_err();
    assert!(refused.contains("`rope_scaling.attention_factor`: expected 1 or more"), "{refused}");
    let stated = with(yarn, json!({ "truncate": false }));
    assert!(scaling("qwen3-30b-a3b", stated).unwrap_err().contains("`rope_scaling.truncate`"));
}

/// What a config says of rope and of its element type, in every accepted spelling.
fn spellings(base: &Value) -> Vec<(&'static str, Value)> {
    let object = |value: &Value| value.as_object().cloned().unwrap_or_default();
    let parameters = object(&base["rope_parameters"]);
    let theta = base.get("rope_theta").or(parameters.get("rope_theta")).unwrap().clone();
    let mut scaling = object(&base["rope_scaling"]);
    if scaling.is_empty() {
        scaling = parameters;
    }
    scaling.remove("rope_theta");
    let kind = scaling.remove("rope_type").or(scaling.remove("type"));
    let kind = kind.unwrap_or("default".into());
    let typed = |key: &str| {
        let mut typed = scaling.clone();
        typed.insert(key.into(), kind.clone());
        Value::Object(typed)
    };
    let new = with(typed("rope_type"), json!({ "rope_theta": theta }));
    let outer = |rope: Value| {
        let bare = json!({ "rope_theta": null, "rope_scaling": null, "rope_parameters": null });
        with(with(base.clone(), bare), rope)
    };
    let dtypes = |torch: Value, plain: Value| {
        with(base.clone(), json!({ "torch_dtype": torch, "dtype": plain }))
    };
    let mut nulls = outer(json!({ "rope_parameters": new }));
    for key in ["rope_scaling", "rope_theta", "quantization_config", "frobnication"] {
        nulls[key] = Value::Null;
    }
    let mut all = vec![
        (
            "theta outside",
            outer(json!({ "rope_theta": theta, "rope_scaling": typed("rope_type") })),
        ),
        (
            "the old name of the type",
            outer(json!({ "rope_theta": theta, "rope_scaling": typed("type") })),
        ),
        ("rope_parameters", outer(json!({ "rope_parameters": new }))),
        ("theta in both places", outer(json!({ "rope_theta": theta, "rope_parameters": new }))),
        (
            "both dialects",
            outer(json!({
                "rope_theta": theta, "rope_scaling": typed("rope_type"), "rope_parameters": new,
            })),
        ),
        ("torch_dtype", dtypes("bfloat16".into(), Value::Null)),
        ("dtype", dtypes(Value::Null, "bfloat16".into())),
        ("both dtypes", dtypes("bfloat16".into(), "bfloat16".into())),
        ("float16", dtypes("float16".into(), Value::Null)),
        ("explicit nulls", nulls),
        ("a private note", with(base.clone(), json!({ "_note": { "a": [1] } }))),
    ];
    if base["eos_token_id"].is_u64() {
        let list = json!({ "eos_token_id": [base["eos_token_id"]] });
        all.push(("end token as a list", with(base.clone(), list)));
    }
    if kind == "default" {
        all.push(("no scaling", outer(json!({ "rope_theta": theta }))));
    }
    all
}

#[test]
fn every_family_has_both_dialects() {
    let published = ["llama32-1b", "mixtral-8x7b", "deepseek-v2-lite", "qwen3-4b", "qwen3-30b-a3b"];
    let published = published.iter().chain(&["qwen3-next-80b-a3b", "smollm2-135m"]);
    let mut configs: Vec<(String, Value)> =
        published.map(|name| ((*name).to_owned(), config(name))).collect();
    for fixture in ["mistral", "qwen2", "mixtral", "qwen3_moe", "qwen3_next", "deepseek_v2"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(fixture);
        let bytes = std::fs::read(path.join("config.json")).unwrap();
        configs.push((fixture.to_owned(), serde_json::from_slice(&bytes).unwrap()));
    }
    for (name, base) in &configs {
        let expected = derive(base).unwrap_or_else(|e| panic!("{name}: {e}"));
        for (what, spelling) in spellings(base) {
            let found = derive(&spelling).unwrap_or_else(|e| panic!("{name}, {what}: {e}"));
            assert_eq!(found, expected, "{name}, {what}");
        }
        // Two spellings that contradict each other are refused, by the key.
        let both =
            spellings(base).into_iter().find(|(what, _)| *what == "both dialects").unwrap().1;
        let mut thetas = both.clone();
        thetas["rope_theta"] = json!(12345.0);
        let refused = derive(&thetas).unwrap_err();
        assert!(refused.contains("rope_theta") && refused.contains("12345"), "{name}: {refused}");
        let dtypes = json!({ "torch_dtype": "bfloat16", "dtype": "float32" });
        let refused = derive(&with(base.clone(), dtypes)).unwrap_err();
        assert!(refused.contains("dtype"), "{name}: {refused}");
    }
}
