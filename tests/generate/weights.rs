//! Weights whose logits are no numbers: the checkpoint is refused where that shows, with its step.

use crate::{copied, generate_in, text};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Sets every BF16 element of a tensor of the only file.
fn overwrite(folder: &Path, tensor: &str, bits: impl Fn(usize) -> Option<u16>) {
    let path = folder.join("model.safetensors");
    let mut bytes = std::fs::read(&path).unwrap();
    let length = usize::try_from(u64::from_le_bytes(bytes[..8].try_into().unwrap())).unwrap();
    let header: Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    let range = header[tensor]["data_offsets"].clone();
    let at = |i: usize| 8 + length + usize::try_from(range[i].as_u64().unwrap()).unwrap();
    for (i, element) in bytes[at(0)..at(1)].chunks_exact_mut(2).enumerate() {
        if let Some(bits) = bits(i) {
            element.copy_from_slice(&bits.to_le_bytes());
        }
    }
    std::fs::write(&path, bytes).unwrap();
}

const NAN: u16 = 0x7fc0;
const MINUS_INFINITY: u16 = 0xff80;
const INFINITY: u16 = 0x7f80;
const REMEDY: &str = "; the checkpoint holds a weight that is NaN, infinite or too large";

/// Greedy or sampled: one message, the code of a refused model, no text.
fn refused(folder: &Path, prompt: &str, found: &str) {
    for temperature in ["0", "1"] {
        let args = ["-p", prompt, "--max-tokens", "4", "--temperature", temperature];
        let output = generate_in(folder, &[&args[..], &["--seed", "1", "--quiet"]].concat());
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "temperature {temperature}: {stderr}");
        assert_eq!(text(&output.stdout), "");
        assert_eq!(stderr, format!("error: {found}{REMEDY}\n"), "temperature {temperature}");
    }
}

#[test]
fn nan_everywhere_is_refused_at_the_first_token() {
    let folder = copied();
    overwrite(folder.path(), "model.norm.weight", |_| Some(NAN));
    refused(
        folder.path(),
        "The river",
        "no token can be chosen after 0 generated tokens, at position 4: 512 of 512 logits are not \
         finite, the first is NaN at id 0",
    );
}

/// The final norm keeps its first element only, and that meets an infinity in every row of the head.
#[test]
fn a_row_of_minus_infinity_is_refused_at_the_first_token() {
    let folder = copied();
    overwrite(folder.path(), "model.norm.weight", |i| Some(if i == 0 { 0x3f80 } else { 0 }));
    overwrite(folder.path(), "lm_head.weight", |i| (i % 64 == 0).then_some(SIGN_OF_RIVER));
    refused(
        folder.path(),
        "The river",
        "no token can be chosen after 0 generated tokens, at position 4: 512 of 512 logits are not \
         finite, the first is -inf at id 0",
    );
}

/// Negative times this is −∞.
const SIGN_OF_RIVER: u16 = INFINITY;

/// One bad logit among the ids is enough, and names itself.
#[test]
fn one_bad_logit_is_refused_by_its_id() {
    let folder = copied();
    overwrite(folder.path(), "lm_head.weight", |i| (i == 300 * 64 + 5).then_some(NAN));
    refused(
        folder.path(),
        "The river",
        "no token can be chosen after 0 generated tokens, at position 4: 1 of 512 logits are not \
         finite, the first is NaN at id 300",
    );
}

/// An embedding that is bad for one id shows when that id was generated: the text before it stays.
#[test]
fn the_step_is_counted_and_the_text_before_it_stays() {
    let whole = copied();
    let args = ["-p", "The river", "--max-tokens", "9", "--temperature", "0", "--quiet"];
    let output = generate_in(whole.path(), &[&args[..], &["--json"]].concat());
    let done: Value = serde_json::from_slice(&output.stdout).unwrap();
    let ids: Vec<u64> =
        done["ids"].as_array().unwrap().iter().map(|i| i.as_u64().unwrap()).collect();
    let prompt: Vec<u64> =
        done["prompt_ids"].as_array().unwrap().iter().map(|i| i.as_u64().unwrap()).collect();
    let at = (2..8).find(|n| !prompt.contains(&ids[*n]) && !ids[..*n].contains(&ids[*n])).unwrap();
    let folder = copied();
    let bad = ids[at] as usize;
    overwrite(folder.path(), "model.embed_tokens.weight", |i| (i / 64 == bad).then_some(NAN));
    let output = generate_in(folder.path(), &args);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(64), "{stderr}");
    assert_eq!(
        stderr,
        format!(
            "error: no token can be chosen after {} generated tokens, at position {}: 512 of 512 logits \
             are not finite, the first is NaN at id 0{REMEDY}\n",
            at + 1,
            prompt.len() + at,
        )
    );
    let printed = (at + 1).to_string();
    let before = generate_in(
        whole.path(),
        &["-p", "The river", "--max-tokens", &printed, "--temperature", "0", "--quiet"],
    );
    assert_eq!(text(&output.stdout), text(&before.stdout));
}

/// A text cannot be scored by such a model either.
#[test]
fn an_evaluation_names_window_and_token() {
    let folder = copied();
    overwrite(folder.path(), "model.norm.weight", |_| Some(MINUS_INFINITY));
    let output = Command::new(env!("CARGO_BIN_EXE_assay"))
        .arg("eval")
        .arg("--model")
        .arg(folder.path())
        .arg("--text")
        .arg(crate::fixture("text/alice.txt"))
        .args(["--max-tokens", "40", "--window", "16", "--quiet"])
        .output()
        .unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(64), "{stderr}");
    assert!(
        stderr.starts_with("error: window 0, token 1: 512 of 512 logits are not finite"),
        "{stderr}"
    );
    assert_eq!(text(&output.stdout), "");
}
