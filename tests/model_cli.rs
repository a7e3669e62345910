//! `assay model` as a user runs it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn assay(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_assay")).args(args).current_dir(root()).output().unwrap()
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn refused(args: &[&str], code: i32) -> String {
    let output = assay(args);
    assert_eq!(output.status.code(), Some(code), "{args:?}");
    assert!(output.stdout.is_empty(), "{args:?} printed on stdout");
    String::from_utf8(output.stderr).unwrap()
}

fn fits(text: &str, model: &Path) {
    let longest = text.lines().max_by_key(|line| line.chars().count()).unwrap();
    assert!(longest.chars().count() <= 80, "{}: {longest}\n{text}", model.display());
}

#[test]
fn describe_needs_no_weights_and_fits_eighty_columns() {
    for entry in std::fs::read_dir(root().join("descriptors")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            continue;
        }
        // Two stages fit every model.
        let args = ["model", "describe", "--descriptor", path.to_str().unwrap(), "--pp", "2"];
        let text = stdout(&assay(&args));
        assert!(text.contains("placement  layer_split: 2 stages of 1 rank"), "{text}");
        assert!(text.contains("stage_transfer"), "{text}");
        fits(&text, &path);
        // As many of these as the model can be divided among.
        for ranks in [["--tp", "2"], ["--tp", "4"], ["--tp", "8"], ["--ep", "4"]] {
            let output = assay(&[&args[..4], &ranks[..], &["--gpus", "0"]].concat());
            if output.status.success() {
                fits(&stdout(&output), &path);
            }
        }
    }
    let text = stdout(&assay(&["model", "describe", "descriptors/configs/qwen38-27b"]));
    for fact in [
        "64: 48 gdn, 16 full_attention",
        "24 query, 4 kv heads × 256, q/k norm, sigmoid output gate",
        "half_split, theta 10000000, 64 of 256 dimensions",
        "16 key heads × 128, 48 value heads × 128, convolution 4",
        "248044, 248046",
        "cache per token  64.0 KiB",
    ] {
        assert!(text.contains(fact), "{fact}\n{text}");
    }
}

#[test]
fn describe_prints_json() {
    let file = "descriptors/smollm2-135m.json";
    let text = stdout(&assay(&["model", "describe", "--descriptor", file, "--json"]));
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["parameters"], 134_515_008u64);
    assert_eq!(json["weights_bf16_bytes"], 269_030_016u64);
    assert_eq!(json["cache_bytes_per_token"], 23_040u64);
    assert_eq!(json["gdn_state_bytes_per_sequence"], 0u64);
    assert_eq!(json["dimensions"]["head_dim"], 64u64);
}

/// The plan, bytes per rank, what is replicated, which cuts are subtrees.
#[test]
fn describe_plans_a_placement_without_a_device() {
    let describe = |file: &str, flags: &[&str]| {
        let args = ["model", "describe", "--descriptor", file];
        assay(&[&args[..], flags].concat())
    };
    let experts = "descriptors/qwen3-30b-a3b.json";
    let text = stdout(&describe(experts, &["--tp", "2", "--ep", "4"]));
    for fact in [
        "tensor_and_expert_parallel: 1 stage of 4 ranks",
        "128 experts, subtrees",
        "4096 in 8 segments, subtrees",
        "all_reduce  attn_o    2 tensor  2048  48",
        "all_reduce  moe_down  4 expert  2048  48",
        "replicated: final_norm, input_norm, post_norm, attn_q_norm, attn_k_norm,",
        "each part on 2 ranks: embed, lm_head, attn_q, attn_k, attn_v, attn_o",
        "every cut is a subtree of its reduction: the bits of one device under reference, f32\n",
    ] {
        assert!(words(&text).contains(&words(fact)), "{fact}\n{text}");
    }
    let whole = words(&stdout(&describe(experts, &["--ep", "4"])));
    assert!(whole.ends_with("the bits of one device under reference, f32, fast"), "{whole}");
    let alone = stdout(&describe(experts, &["--tp", "2"]));
    assert!(alone.contains("the experts are on every rank; --ep 2 divides them"), "{alone}");
    // Six experts are three and three, and cannot be four.
    let six = "tests/fixtures/parallel/mixtral_six";
    let advice = |ranks| stdout(&assay(&["model", "describe", six, "--tp", ranks]));
    assert!(advice("2").contains("; --ep 2 divides them"));
    let four = advice("4");
    assert!(four.contains("the experts are on every rank\n"), "{four}");
    let on_gpus = words(&stdout(&describe(experts, &["--gpus", "0,1", "--tp", "2"])));
    assert!(on_gpus.ends_with("one device under invariant, f32"), "{on_gpus}");
    let states = describe("descriptors/qwen38-27b.json", &["--tp", "2", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&stdout(&states)).unwrap();
    let all = json["gdn_state_bytes_per_sequence"].as_u64().unwrap();
    let ranks = &json["placement"]["ranks"];
    assert_eq!(ranks[1]["gdn_state_bytes_per_sequence"].as_u64(), Some(all / 2));
    assert_eq!(ranks[0]["replicated_bf16_bytes"], 0);
    assert!(ranks[1]["replicated_bf16_bytes"].as_u64().unwrap() > 0);
    assert_eq!(json["placement"]["collectives"][0]["kind"], "all_reduce");
    // Of a fused projection only the rows of q and k are shared.
    let shared = stdout(&describe("descriptors/tiny-qwen3-next.json", &["--tp", "4"]));
    let told = "gdn_qkv: ranks outnumber gdn_key_heads, 2 ranks hold the q and k rows of each";
    assert!(words(&shared).contains(told), "{shared}");
    let off = stdout(&describe("descriptors/deepseek-v2-lite.json", &["--tp", "2"]));
    assert!(off.contains("no subtrees, so other bits than one device: mlp_down"), "{off}");
    let gpus = stdout(&describe("descriptors/qwen38-27b.json", &["--gpus", "0,1", "--json"]));
    let json: serde_json::Value = serde_json::from_str(&gpus).unwrap();
    assert_eq!(json["placement"]["policy"], "layer_split");
    assert_eq!(json["placement"]["ranks"][1]["device"], "cuda:1");
    let refusal = describe(experts, &["--ep", "3"]);
    assert_eq!(refusal.status.code(), Some(64));
    let said = String::from_utf8(refusal.stderr).unwrap();
    assert!(said.contains("`moe_experts` = 128 cannot be divided among 3 ranks"), "{said}");
}

/// Text whose lines may be wrapped and its columns padded.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn descriptor_prints_the_committed_bytes() {
    let printed = stdout(&assay(&["model", "descriptor", "tests/fixtures/qwen3_5"]));
    let committed = std::fs::read_to_string(root().join("descriptors/tiny-qwen35.json")).unwrap();
    assert_eq!(printed, committed);
}

/// What `synth` writes is a checkpoint that opens, derives to the same descriptor, and has the
/// same bytes for the same seed.
#[test]
fn synth_writes_a_checkpoint_that_reads_back() {
    let scratch = tempfile::tempdir().unwrap();
    let write = |name: &str, seed: &str| {
        let out = scratch.path().join(name);
        let out_arg = out.to_str().unwrap().to_owned();
        let file = "descriptors/tiny-qwen35.json";
        let tokenizer = "tests/fixtures/qwen3_5";
        let args = ["--seed", seed, "--out", &out_arg, "--tokenizer", tokenizer];
        stdout(&assay(&[&["model", "synth", "--descriptor", file], &args[..]].concat()));
        out
    };
    let (first, again, other) = (write("a", "7"), write("b", "7"), write("c", "8"));
    let weights = |dir: &Path| std::fs::read(dir.join("model.safetensors")).unwrap();
    assert_eq!(weights(&first), weights(&again));
    assert_ne!(weights(&first), weights(&other));
    assert!(first.join("tokenizer.json").is_file());
    let printed = stdout(&assay(&["model", "descriptor", first.to_str().unwrap()]));
    let committed = std::fs::read_to_string(root().join("descriptors/tiny-qwen35.json")).unwrap();
    assert_eq!(printed, committed);
    let model = assay::weights::Model::open(&first).unwrap();
    model.load(&Default::default()).unwrap();
}

#[test]
fn mistakes_are_named() {
    let nowhere = "no/such/folder";
    for args in [
        &["model", "describe", nowhere][..],
        &["model", "descriptor", nowhere],
        &["model", "verify", "--model", nowhere],
        &["model", "quantize", "--model", nowhere, "--roles", "all", "--out", "never"],
        &["generate", "--model", nowhere, "-p", "a"],
        &["eval", "--model", nowhere, "--text", "README.md"],
        &["eval", "--model", "tests/fixtures/llama", "--against", nowhere, "--text", "README.md"],
        &["manifest", "show", "--model", nowhere],
    ] {
        let missing = refused(args, 74);
        assert_eq!(
            missing,
            "error: no/such/folder: no such folder; expected a Hugging Face folder with \
             config.json and *.safetensors\n"
        );
    }
    // Nothing is started or made for numbers that no machine has.
    let ranks = |flags: &[&str]| {
        let describe = ["model", "describe", "--descriptor", "descriptors/tiny-llama.json"];
        refused(&[&describe[..], flags].concat(), 64)
    };
    let many = ranks(&["--tp", "99999999999"]);
    assert!(many.contains("99999999999 ranks are asked for; a placement has at most 65536"));
    assert!(ranks(&["--pp", "65536", "--tp", "65536"]).contains("4294967296 ranks are asked for"));
    let odd = ranks(&["--gpus", "0,1,2", "--tp", "2"]);
    assert!(
        odd.contains("3 devices make no whole stages of 2 ranks: name a multiple of 2"),
        "{odd}"
    );
    let generate = |flags: &[&str]| {
        let fixed = ["generate", "--model", "tests/fixtures/llama", "-p", "a"];
        refused(&[&fixed[..], flags].concat(), 64)
    };
    let apart = generate(&["--device", "cuda:1", "--gpus", "0"]);
    assert!(apart.contains("--device cuda:1 names one GPU and --gpus another, 0"), "{apart}");
    // Whether or not this machine has GPUs, it has no hundred, and only what was typed is named.
    let many = generate(&["--gpus", "100"]);
    assert!(!many.contains("--device cuda"), "{many}");
    let folder = ["model", "describe", "--descriptor", "tests/fixtures/llama"];
    assert!(refused(&folder, 64).contains("a folder; --descriptor expects a file"));
    for flag in ["--tp", "--pp", "--ep"] {
        let none = ranks(&[flag, "0"]);
        assert!(none.contains("expected a whole number from 1 on, found `0`"), "{none}");
    }
    for threads in ["0", "1025", "4294967296", "-1"] {
        let generate = ["generate", "--model", "tests/fixtures/llama", "-p", "a"];
        let told = refused(&[&generate[..], &["--threads", threads]].concat(), 64);
        assert!(told.contains(&format!("expected 1 to 1024 threads, found `{threads}`")), "{told}");
    }
    let bad = refused(&["model", "descriptor", "tests/fixtures/bad-configs/activation-gelu"], 64);
    assert!(bad.contains("config.json:7:17: `hidden_act`: expected \"silu\""), "{bad}");
    refused(&["model", "describe"], 64);
    let scratch = tempfile::tempdir().unwrap();
    let out = scratch.path().join("out");
    let synth = |file: &str, config: &str| {
        let out = out.to_str().unwrap();
        let args = ["model", "synth", "--descriptor", file, "--config", config];
        refused(&[&args[..], &["--seed", "1", "--out", out]].concat(), 64)
    };
    let foreign = synth("descriptors/tiny-llama.json", "descriptors/configs/tiny-qwen35");
    assert!(foreign.contains("does not describe descriptors/tiny-llama.json"), "{foreign}");
    assert!(!out.exists());
}

#[test]
fn weights_are_packed_verified_and_executed() {
    let scratch = tempfile::tempdir().unwrap();
    let out = scratch.path().join("int4");
    let out = out.to_str().unwrap();
    let source = "tests/fixtures/qwen3_5";
    let quantize = ["model", "quantize", "--model", source, "--out", out, "--json"];
    let text = stdout(&assay(&[&quantize[..], &["--roles", "all"]].concat()));
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(json["quantised"].as_u64().unwrap() > 40, "{json}");
    assert!(json["bytes"].as_u64() < json["source_bytes"].as_u64(), "{json}");
    let error = json["largest_relative_rms"].as_f64().unwrap();
    assert!((0.01..0.2).contains(&error), "{error}");

    let text = stdout(&assay(&["model", "verify", "--model", out, "--source", source]));
    assert_eq!(text.lines().filter(|l| l.starts_with("ok ")).count(), 7, "{text}");
    let alone = assay(&["model", "verify", "--model", out]);
    assert_eq!(alone.status.code(), Some(2), "nothing is wrong, and the source was not given");
    let foreign = assay(&["model", "verify", "--model", out, "--source", "tests/fixtures/llama"]);
    assert_eq!(foreign.status.code(), Some(1));

    stdout(&assay(&["model", "describe", out]));
    let prompt = ["generate", "--model", out, "--temperature", "0", "--max-tokens", "4", "-p", "a"];
    stdout(&assay(&prompt));

    let again = refused(&[&quantize[..], &["--roles", "all"]].concat(), 64);
    assert!(again.contains("exists already; choose another folder"), "{again}");
    // A folder of somebody else's, where the conversion would lie, is not adopted.
    let other = scratch.path().join("other");
    let foreign = scratch.path().join("other.partial");
    std::fs::create_dir(&foreign).unwrap();
    std::fs::write(foreign.join("junk"), "junk").unwrap();
    let other_arg = other.to_str().unwrap();
    let args = ["model", "quantize", "--model", source, "--roles", "all", "--out", other_arg];
    let told = refused(&args, 64);
    let expected = "other.partial: holds files, and none of them is of a conversion; remove it";
    assert!(told.contains(expected), "{told}");
    assert!(!other.exists() && foreign.join("junk").exists());
    refused(&[&args[..], &["--max-shard-bytes", "0"]].concat(), 64);
    let packed = ["model", "quantize", "--model", out, "--roles", "ffn", "--out", "/nonexistent/x"];
    assert!(refused(&packed, 64).contains("the weights are quantised already"));
}

/// A cut inside a group of packed values is refused where it is planned, and a rank's bytes are those that
/// the folder holds.
#[test]
fn a_placement_of_packed_weights_is_planned_as_they_are_packed() {
    let scratch = tempfile::tempdir().unwrap();
    let packed = |group: &str| {
        let out = scratch.path().join(group).to_str().unwrap().to_owned();
        let roles = ["--roles", "attn_q,attn_o", "--prefill", "packed", "--group", group];
        let args = ["model", "quantize", "--model", "tests/fixtures/llama", "--out", &out];
        stdout(&assay(&[&args[..], &roles].concat()));
        out
    };
    let wide = packed("64");
    for args in [
        &["model", "describe", &wide, "--tp", "2"][..],
        &["generate", "--model", &wide, "--tp", "2", "--policy", "reference", "-p", "a"],
    ] {
        let told = refused(args, 64);
        let expected = "role `attn_o` is packed and cannot be divided among 2 ranks: columns 0..32 \
                        cut a group of 64 packed values";
        assert!(told.contains(expected), "{told}");
    }
    let narrow = packed("32");
    let json = stdout(&assay(&["model", "describe", &narrow, "--tp", "2", "--json"]));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let bytes = |at: &serde_json::Value, key: &str| at[key].as_u64().unwrap();
    let parameters = |name: &str| {
        let roles = json["roles"].as_array().unwrap().iter();
        let roles = roles.filter(|role| role["name"] == name);
        roles.map(|role| bytes(role, "parameters")).sum::<u64>()
    };
    let elements = parameters("attn_q") + parameters("attn_o");
    // Two bytes become half a byte and a scale of two for 32 values.
    let saved = elements * 2 - elements / 2 - elements / 32 * 2;
    let packed = bytes(&json, "weights_packed_bytes");
    assert_eq!(packed, bytes(&json, "weights_bf16_bytes") - saved);
    let ranks = json["placement"]["ranks"].as_array().unwrap();
    let held: u64 = ranks.iter().map(|rank| bytes(rank, "weights_packed_bytes")).sum();
    assert_eq!(held - bytes(&ranks[1], "replicated_packed_bytes"), packed);
    // The engine makes the stages that were described: both count what is stored.
    let staged = stdout(&assay(&["model", "describe", &narrow, "--pp", "2", "--json"]));
    let staged: serde_json::Value = serde_json::from_str(&staged).unwrap();
    let show = ["manifest", "show", "--model", &narrow, "--device", "cpu", "--pp", "2", "--json"];
    let manifest: serde_json::Value = serde_json::from_str(&stdout(&assay(&show))).unwrap();
    let layers = manifest["deployment"]["fields"]["layer_devices"].as_array().unwrap();
    let first = layers.iter().filter(|rank| **rank == 0).count();
    assert_eq!(staged["placement"]["ranks"][0]["layers"], serde_json::json!([0, first]));
    let text = stdout(&assay(&["model", "describe", &narrow, "--tp", "2"]));
    assert_eq!(text.matches("weights as packed").count(), 2, "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn what_cannot_be_packed_is_refused_by_name() {
    let quantize = |rest: &[&str]| {
        let scratch = tempfile::tempdir().unwrap();
        let out = scratch.path().join("int4");
        let args = ["model", "quantize", "--model", "tests/fixtures/llama", "--out"];
        let message = refused(&[&args[..], &[out.to_str().unwrap()], rest].concat(), 64);
        assert!(!out.exists());
        message
    };
    let misspelt = quantize(&["--roles", "mlp_gat"]);
    assert!(misspelt.contains("--roles mlp_gat: no role or set of roles; the nearest is mlp_gate"));
    assert!(quantize(&["--roles", "gdn"]).contains("--roles gdn: the model has none of them"));
    assert!(quantize(&["--roles", "embed"]).contains("no role `embed` that can be quantised"));
    let odd = quantize(&["--roles", "mlp_down"]);
    assert!(odd.contains("mlp_down of layer 0: K = 176 is not a multiple of the group of 32"));
    let group = quantize(&["--roles", "attention", "--group", "48"]);
    assert!(group.contains("a group has 32, 64 or 128 values along K, not 48"));
    let plain = refused(&["model", "verify", "--model", "tests/fixtures/llama"], 64);
    assert!(plain.contains("its weights are not packed; there is no weights.manifest.json"));
}
