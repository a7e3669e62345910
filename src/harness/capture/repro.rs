//! A small folder from which the first difference of two captures can be made again.

use super::first::{floats, row_bytes};
use super::{Capture, CaptureError, CaptureInfo, FirstDifference};
use crate::engine::manifest::{self, BlockName, Manifest};
use crate::units::write_whole;
use serde_json::{Map, Value, json};
use std::path::Path;

/// Elements shown on each side of the one that differs.
const AROUND: usize = 8;

/// Writes the folder: `difference.json` (where), `around.json` (both arrays around the element, the
/// row before and after as well), `prompts.json` (the prompt, cut behind the token's step), `manifests.json`
/// (both, and every field that differs) and `reproduce.sh` (one command).
///
/// # Errors
/// The folder or a file in it cannot be written.
pub fn write_repro(
    left: &Capture,
    right: &Capture,
    found: &FirstDifference,
    folder: &Path,
) -> Result<(), CaptureError> {
    std::fs::create_dir_all(folder)
        .map_err(|source| CaptureError::Io { path: folder.to_owned(), source })?;
    let write = |name: &str, text: String| {
        let path = folder.join(name);
        write_whole(&path, text).map_err(|source| CaptureError::Io { path, source })
    };
    let pretty = |value: &Value| format!("{value:#}\n");
    write("difference.json", pretty(&serde_json::to_value(found).unwrap_or_default()))?;
    write("around.json", pretty(&around(left, right, found)))?;
    write("manifests.json", pretty(&manifests(left, right)))?;
    if let Some(info) = &left.info {
        write("prompts.json", pretty(&prompts(info, found)))?;
    }
    write("reproduce.sh", script([left, right], found))
}

/// The elements around the one that differs, in its row and the rows beside it.
fn around(left: &Capture, right: &Capture, found: &FirstDifference) -> Value {
    let first = found.element.saturating_sub(AROUND);
    let end = (found.element + AROUND + 1).min(found.width);
    let rows: Vec<Value> = (found.row.saturating_sub(1)..=found.row + 1)
        .filter_map(|row| {
            let side = |capture: &Capture| -> Option<Vec<Value>> {
                let values = floats(row_bytes(capture, &found.array, row, found.width));
                let some = values.get(first..end)?;
                Some(some.iter().map(|v| json!(format!("{v:e} ({:#010x})", v.to_bits()))).collect())
            };
            let position = found.position + row - found.row;
            Some(json!({ "position": position, "left": side(left)?, "right": side(right)? }))
        })
        .collect();
    json!({ "array": found.array, "element": found.element, "first_element_shown": first,
            "rows": rows })
}

/// The prompt up to the end of the step that ran the token of the difference: nothing behind it takes
/// part, and a shorter step would be another execution case.
fn prompts(info: &CaptureInfo, found: &FirstDifference) -> Value {
    let mut prompts = Map::new();
    if let Some(prompt) = info.prompts.iter().find(|p| p.name == found.prompt) {
        let end_of_step = prompt.cases.iter().find_map(|run| {
            let step = found.position.checked_sub(run.position)? / run.step_tokens.max(1);
            (step < run.steps).then(|| run.position + (step + 1) * run.step_tokens)
        });
        let end = end_of_step.unwrap_or(found.position + 1).min(prompt.token_ids.len());
        prompts.insert(found.prompt.clone(), json!(prompt.token_ids[..end]));
    }
    prompts.into()
}

fn manifests(left: &Capture, right: &Capture) -> Value {
    let (Some(l), Some(r)) = (&left.manifest, &right.manifest) else {
        return json!({ "difference": null, "reason": "a side has no manifest" });
    };
    let difference = manifest::compare(l, r);
    let blocks = difference.blocks.iter().filter(|b| !b.equal()).flat_map(|block| {
        block.fields.iter().map(move |field| {
            let side = |v: &Option<crate::units::Canonical>| {
                v.as_ref().map_or(Value::Null, |v| v.to_json())
            };
            json!({ "block": block.name.as_str(), "field": field.path,
                    "left": side(&field.left), "right": side(&field.right) })
        })
    });
    json!({ "difference": blocks.collect::<Vec<_>>(), "left": l.to_json(), "right": r.to_json() })
}

/// The flags that place a model as the manifest's deployment says.
fn placement_flags(manifest: &Manifest) -> String {
    let fields = manifest.block(BlockName::Deployment).fields.to_json();
    let size = |key: &str| fields[key]["size"].as_u64().unwrap_or(1);
    let (tensor, expert) = (size("tensor_parallel"), size("expert_parallel"));
    let devices = fields["devices"].as_array().map_or(&[][..], Vec::as_slice);
    let gpus: Vec<String> = devices
        .iter()
        .filter(|device| device["kind"] == "cuda")
        .map(|device| device["ordinal"].as_u64().unwrap_or(0).to_string())
        .collect();
    let place = match (devices, &gpus[..]) {
        ([], _) => return String::new(),
        (_, []) => " --device cpu".to_owned(),
        (_, [one]) => format!(" --device cuda:{one}"),
        (_, several) => format!(" --device cuda --gpus {}", several.join(",")),
    };
    // A group divides by heads, by experts, or by experts among copies of a division by heads.
    let stages = devices.len() as u64 / tensor.max(expert);
    let divided = [("--pp", stages), ("--tp", tensor), ("--ep", expert)];
    let flags = divided.iter().filter(|(_, ranks)| *ranks > 1);
    flags.fold(place, |all, (flag, ranks)| format!("{all} {flag} {ranks}"))
}

/// One command that records both sides again and walks them.
fn script(sides: [&Capture; 2], found: &FirstDifference) -> String {
    let policy = |manifest: Option<&Manifest>| {
        let fields = manifest.map(|m| m.block(BlockName::NumericalPolicy).fields.to_json());
        let name = fields.as_ref().and_then(|f| f.get("policy")).and_then(Value::as_str);
        name.filter(|n| n.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'))
            .map_or(String::new(), |n| format!(" --policy {n}"))
    };
    let chunk = |info: Option<&CaptureInfo>| {
        info.map_or(String::new(), |i| format!(" --chunk {}", i.chunk_tokens))
    };
    let record = |side: &str, capture: &Capture| {
        format!(
            "\"${{ASSAY_{}:-assay}}\" capture record --model \"$model\" --prompts prompts.json \\\n    \
             --all-positions --tap all{}{}{} --out {side}.safetensors\n",
            side.to_uppercase(),
            capture.manifest.as_ref().map_or(String::new(), placement_flags),
            policy(capture.manifest.as_ref()),
            chunk(capture.info.as_ref())
        )
    };
    format!(
        "#!/bin/sh\n\
         # Records both sides again for the one prompt and shows where they part:\n\
         #     sh reproduce.sh MODEL_FOLDER\n\
         # ASSAY_LEFT and ASSAY_RIGHT name the binaries where the two sides are two builds.\n\
         # Seen at position {} of prompt {}: {} element {}.\n\
         set -eu\n\
         model=$(cd \"${{1:?the folder of the model}}\" && pwd)\n\
         cd \"$(dirname \"$0\")\"\n\
         {}{}\
         \"${{ASSAY_RIGHT:-assay}}\" capture compare left.safetensors right.safetensors \\\n    \
         --mode diagnostic --first-difference --repro again\n",
        found.position,
        found.prompt,
        found.activation,
        found.element,
        record("left", sides[0]),
        record("right", sides[1]),
    )
}
