//! The checks. Each gives evidence, or what did not hold.

use super::process::held;
use crate::backend::{DeviceKind, Policy};
use crate::engine::{
    Batch, Engine, EngineOptions, RowOutput, RowWant, Sequence, SequenceError, Want,
};
use crate::weights::Model;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) type Evidence = Vec<(&'static str, u64)>;

/// A check over a model.
pub(super) type Check = fn(&Stage) -> Result<Evidence, String>;

/// Every check by name.
pub(super) const CHECKS: &[(&str, Check)] = &[
    ("sequences_return_their_memory", sequences_return_memory),
    ("a_full_context_is_refused", full_context),
    ("a_full_step_is_refused", full_step),
    ("a_full_memory_is_refused", full_memory),
    ("failing_loads_keep_nothing", failing_loads),
    ("a_failing_sequence_touches_no_other", failing_sequence),
];

/// What the checks run on.
pub(super) struct Stage {
    pub(super) model: PathBuf,
    pub(super) policy: Policy,
    pub(super) device: DeviceKind,
    pub(super) threads: usize,
    pub(super) scratch: PathBuf,
}

impl Stage {
    pub(super) fn options(&self) -> EngineOptions {
        EngineOptions {
            device: self.device.first(),
            threads: Some(self.threads),
            ..EngineOptions::with_policy(self.policy)
        }
    }

    pub(super) fn engine(&self, folder: &Path, options: &EngineOptions) -> Result<Engine, String> {
        let model = Model::open(folder).map_err(|e| e.to_string())?;
        let weights = model.checkpoint.load(&model.descriptor).map_err(|e| e.to_string())?;
        Engine::new(Arc::new(model.descriptor), &weights, options).map_err(|e| e.to_string())
    }

    /// A copy of the model's files in the scratch folder.
    fn copy(&self, name: &str) -> Result<PathBuf, String> {
        let target = self.scratch.join(name);
        let copy = || -> std::io::Result<()> {
            std::fs::create_dir_all(&target)?;
            for entry in std::fs::read_dir(&self.model)? {
                let entry = entry?;
                let name = entry.file_name();
                if !name.to_string_lossy().starts_with("reference") {
                    std::fs::copy(entry.path(), target.join(name))?;
                }
            }
            Ok(())
        };
        copy().map_err(|e| format!("cannot copy the model: {e}"))?;
        Ok(target)
    }
}

fn greedy(engine: &Engine, s: &mut Sequence, tokens: &[u32]) -> Result<u32, SequenceError> {
    engine.prefill(s, tokens, RowWant::Greedy).map(|o| o.greedy().unwrap_or(u32::MAX))
}

fn expect<T: std::fmt::Debug>(
    what: &str,
    result: Result<T, SequenceError>,
    refused: impl Fn(&SequenceError) -> bool,
) -> Result<(), String> {
    match result {
        Err(e) if refused(&e) => Ok(()),
        other => Err(format!("{what}: expected a refusal, got {other:?}")),
    }
}

fn sequences_return_memory(stage: &Stage) -> Result<Evidence, String> {
    let engine = stage.engine(&stage.model, &stage.options())?;
    let mut most = 0;
    for round in 0..3u32 {
        let mut all = Vec::new();
        for i in 0..8u32 {
            let mut s = engine.sequence().map_err(|e| e.to_string())?;
            let vocab = engine.descriptor().vocab as u32;
            let tokens: Vec<u32> = (0..300).map(|t| (t * 7 + i + round) % vocab).collect();
            greedy(&engine, &mut s, &tokens).map_err(|e| e.to_string())?;
            all.push(s.fork().map_err(|e| e.to_string())?);
            s.truncate(290).map_err(|e| e.to_string())?;
            s.checkpoint().map_err(|e| e.to_string())?.release();
            all.push(s);
        }
        most = most.max(engine.sequence_bytes());
        all.swap_remove(3).release();
        drop(all);
        if engine.sequence_bytes() != 0 {
            return Err(format!(
                "round {round}: {} of {most} bytes are still accounted for",
                engine.sequence_bytes()
            ));
        }
    }
    if most == 0 {
        return Err("sequences accounted for nothing".to_owned());
    }
    Ok(vec![("most_bytes", most), ("bytes_left", 0)])
}

fn full_context(stage: &Stage) -> Result<Evidence, String> {
    let options = EngineOptions { context_tokens: Some(20), ..stage.options() };
    let engine = stage.engine(&stage.model, &options)?;
    let mut s = engine.sequence().map_err(|e| e.to_string())?;
    let full =
        |e: &SequenceError| *e == SequenceError::ContextFull { end_tokens: 21, limit_tokens: 20 };
    expect("21 tokens of 20", greedy(&engine, &mut s, &[1; 21]), full)?;
    if !s.is_empty() {
        return Err("the refused prompt consumed tokens".to_owned());
    }
    greedy(&engine, &mut s, &[1; 20]).map_err(|e| format!("the next request: {e}"))?;
    expect("one more", engine.decode(&mut s, 1, RowWant::Greedy), full)?;
    Ok(vec![("limit_tokens", 20)])
}

fn full_step(stage: &Stage) -> Result<Evidence, String> {
    let options = EngineOptions { chunk_tokens: 8, ..stage.options() };
    let engine = stage.engine(&stage.model, &options)?;
    let mut a = engine.sequence().map_err(|e| e.to_string())?;
    let mut b = engine.sequence().map_err(|e| e.to_string())?;
    let mut c = engine.sequence().map_err(|e| e.to_string())?;
    let mut batch = Batch::new();
    batch.push(&mut a, &[1; 5], Want::Nothing);
    batch.push(&mut b, &[1; 4], Want::Nothing);
    batch.push(&mut c, &[1; 3], Want::Nothing);
    let results = engine.forward(&mut batch);
    let refused = Err(SequenceError::BatchFull { rows: 9, limit_rows: 8 });
    let found: Vec<_> = results.into_iter().map(|r| r.map(|_| ())).collect();
    if found != [Ok(()), refused, Ok(())] {
        return Err(format!("5 + 4 + 3 rows into a step of 8 gave {found:?}"));
    }
    if [a.len_tokens(), b.len_tokens(), c.len_tokens()] != [5, 0, 3] {
        return Err("lengths after the step are wrong".to_owned());
    }
    // A long prompt is cut into steps by the engine itself.
    greedy(&engine, &mut b, &[1; 30]).map_err(|e| e.to_string())?;
    Ok(vec![("limit_rows", 8)])
}

fn full_memory(stage: &Stage) -> Result<Evidence, String> {
    let probe = stage.engine(&stage.model, &stage.options())?;
    let mut s = probe.sequence().map_err(|e| e.to_string())?;
    greedy(&probe, &mut s, &[1; 10]).map_err(|e| e.to_string())?;
    let one_page = s.size_bytes();
    let limit = one_page + one_page / 2;
    let options = EngineOptions { memory_limit_bytes: Some(limit), ..stage.options() };
    let engine = stage.engine(&stage.model, &options)?;
    let short = |e: &SequenceError| matches!(e, SequenceError::OutOfMemory { limit_bytes, .. } if *limit_bytes == limit);
    let mut first = engine.sequence().map_err(|e| e.to_string())?;
    greedy(&engine, &mut first, &[1; 10]).map_err(|e| e.to_string())?;
    let before = engine.sequence_bytes();
    expect("a fork", first.fork().map(|_| ()), short)?;
    expect("a checkpoint", first.checkpoint().map(|_| ()), short)?;
    if engine.sequence_bytes() != before {
        return Err("a refusal kept memory".to_owned());
    }
    let next = greedy(&engine, &mut first, &[2]).map_err(|e| format!("the next request: {e}"))?;
    let expected = greedy(&probe, &mut s, &[2]).map_err(|e| e.to_string())?;
    if next != expected {
        return Err("the request after a refusal gave another token".to_owned());
    }
    drop(first);
    engine.sequence().map_err(|e| format!("after release: {e}"))?;
    Ok(vec![("limit_bytes", limit), ("sequence_bytes", one_page)])
}

fn failing_loads(stage: &Stage) -> Result<Evidence, String> {
    let folder = stage.copy("broken")?;
    let mut names: Vec<PathBuf> = std::fs::read_dir(&folder)
        .map_err(|e| e.to_string())?
        .filter_map(|e| Some(e.ok()?.path()))
        .filter(|p| p.extension().is_some_and(|e| e == "safetensors"))
        .collect();
    names.sort();
    let victim = names.last().ok_or("the model has no weights")?;
    let whole = std::fs::metadata(victim).map_err(|e| e.to_string())?.len();
    std::fs::OpenOptions::new()
        .write(true)
        .open(victim)
        .and_then(|f| f.set_len(whole - 1))
        .map_err(|e| e.to_string())?;
    let before = held();
    let mut message = String::new();
    for _ in 0..20 {
        match stage.engine(&folder, &stage.options()) {
            Ok(_) => return Err("a truncated weight file was loaded".to_owned()),
            Err(e) if e.contains("safetensors") => message = e,
            Err(e) => return Err(format!("the error names no file: {e}")),
        }
    }
    let after = held();
    if before != after {
        return Err(format!("files and maps held: {before:?} before, {after:?} after"));
    }
    stage.engine(&stage.model, &stage.options()).map_err(|e| format!("a valid load: {e}"))?;
    let (files, maps) = after.unwrap_or_default();
    Ok(vec![
        ("failing_loads", 20),
        ("message_bytes", message.len() as u64),
        ("open_files", files as u64),
        ("mapped_weight_files", maps as u64),
    ])
}

/// A token whose embedding is poisoned with NaN.
const POISONED: u32 = 44;

fn failing_sequence(stage: &Stage) -> Result<Evidence, String> {
    let folder = stage.copy("poisoned")?;
    poison_embedding(&folder)?;
    let engine = stage.engine(&folder, &stage.options())?;
    let sequence = || engine.sequence().map_err(|e| e.to_string());
    let (mut bad, mut good, mut alone) = (sequence()?, sequence()?, sequence()?);
    let mut batch = Batch::new();
    batch.push(&mut bad, &[1, POISONED, 2], Want::Last(RowWant::Greedy));
    batch.push(&mut good, &[1, 3, 2], Want::Last(RowWant::Logits));
    let mut results = engine.forward(&mut batch);
    let beside = results.swap_remove(1).map_err(|e| format!("the neighbour: {e}"))?;
    expect(
        "NaN logits",
        results.swap_remove(0),
        |e| matches!(e, SequenceError::NonFinite { position: 2, logits } if logits.count > 0),
    )?;
    let straight =
        engine.verify_rows(&mut alone, &[1, 3, 2], RowWant::Logits).map_err(|e| e.to_string())?;
    let bits = |o: &RowOutput| match o {
        RowOutput::Logits(l) => l.iter().map(|x| x.to_bits()).collect(),
        _ => Vec::new(),
    };
    if bits(beside.last()) != bits(straight.last()) {
        return Err("the neighbour's bits changed".to_owned());
    }
    expect("the failed sequence", engine.decode(&mut bad, 1, RowWant::Greedy), |e| {
        *e == SequenceError::Invalid
    })?;
    bad.reset();
    // Logits and not an arg-max: where head and embedding are one, the poisoned row is a logit.
    let again = engine.verify_rows(&mut bad, &[1, 3, 2], RowWant::Logits);
    if bits(again.map_err(|e| format!("after reset: {e}"))?.last()) != bits(straight.last()) {
        return Err("the bits after reset changed".to_owned());
    }
    Ok(vec![("poisoned_token", u64::from(POISONED))])
}

/// Overwrites one embedding row with NaN, in whichever file it lies.
fn poison_embedding(folder: &Path) -> Result<(), String> {
    let model = Model::open(folder).map_err(|e| e.to_string())?;
    let name = model
        .checkpoint
        .tensors()
        .map(|(name, _)| name.to_owned())
        .find(|name| name.ends_with("embed_tokens.weight"))
        .ok_or("the model has no embedding")?;
    let file = model.checkpoint.file_of(&name).ok_or("the embedding has no file")?.to_owned();
    let hidden = model.descriptor.hidden;
    drop(model);
    let mut bytes = std::fs::read(&file).map_err(|e| e.to_string())?;
    let header = u64::from_le_bytes(bytes[..8].try_into().map_err(|_| "short file")?) as usize;
    let json: serde_json::Value =
        serde_json::from_slice(&bytes[8..8 + header]).map_err(|e| e.to_string())?;
    let offset = json[&name]["data_offsets"][0].as_u64().ok_or("no offset")? as usize;
    let start = 8 + header + offset + POISONED as usize * hidden * 2;
    for element in bytes[start..start + hidden * 2].chunks_exact_mut(2) {
        element.copy_from_slice(&0x7fc0u16.to_le_bytes());
    }
    std::fs::write(&file, bytes).map_err(|e| e.to_string())
}
