//! What a model takes in memory, by the process's own peak: pages of mapped files count.
#![cfg(target_os = "linux")]

use serde_json::Value;
use std::path::Path;
use std::process::Command;

fn assay(args: &[&str]) -> Vec<u8> {
    let output = Command::new(env!("CARGO_BIN_EXE_assay")).args(args).output().expect("assay runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Weights are copied into panels, and pages of the file are given back on the way: at no time are they
/// held twice. What remains is the program, the rows of a step and the cache.
#[test]
fn weights_are_held_once_with_little_beside_them() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model");
    let model = model.to_str().unwrap();
    let descriptor = Path::new(env!("CARGO_MANIFEST_DIR")).join("descriptors/smollm2-135m.json");
    let descriptor = descriptor.to_str().unwrap();
    assay(&["model", "synth", "--descriptor", descriptor, "--seed", "7", "--out", model]);
    let weights = Path::new(model).join("model.safetensors").metadata().unwrap().len();
    for (tokens, most) in [(8, 1.2), (512, 1.3)] {
        let ids: Vec<String> = (0..tokens).map(|i| (i * 37 % 1009).to_string()).collect();
        let generated = assay(&[
            "generate",
            "--model",
            model,
            "--device",
            "cpu",
            "--prompt-ids",
            &ids.join(","),
            "--max-tokens",
            "1",
            "--temperature",
            "0",
            "--json",
        ]);
        let report: Value = serde_json::from_slice(&generated).unwrap();
        assert_eq!(report["policy"], "fast");
        let peak = report["peak_resident_bytes"].as_u64().expect("Linux says");
        let share = peak as f64 / weights as f64;
        assert!(share > 1.0, "{tokens} tokens: {peak} bytes are less than the weights");
        assert!(share <= most, "{tokens} tokens: {peak} bytes, {share:.3} of the weights");
    }
}
