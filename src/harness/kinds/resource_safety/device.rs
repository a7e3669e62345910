//! Checks of a GPU's memory, and of the ways that a step may take there.

use super::checks::{Check, Evidence, Stage};
use crate::backend::cpu::sample;
use crate::backend::{Draw, Taps, cuda};
use crate::descriptor::RoleName;
use crate::engine::{Batch, Engine, RowOutput, RowWant, Want};
use crate::units::SplitMix64;
use crate::weights::{Model, synth};
use std::sync::Arc;

/// Every check by name; they have no counterpart on the host.
pub(super) const DEVICE_CHECKS: &[(&str, Check)] = &[
    ("loads_return_device_memory", loads_return),
    ("too_large_a_model_is_refused", too_large),
    ("synthetic_weights_are_those_of_the_host", synthetic),
    ("joined_launches_change_no_bits", joined),
    ("draws_are_those_of_the_host", draws),
];

/// Rounds of loading, executing and dropping.
const ROUNDS: u64 = 5;

fn descriptor(stage: &Stage) -> Result<crate::descriptor::Descriptor, String> {
    Ok(Model::open(&stage.model).map_err(|e| e.to_string())?.descriptor)
}

/// So many ids, `step` apart.
fn prompt(tokens: usize, step: usize, vocab: usize) -> Vec<u32> {
    (0..tokens).map(|t| (t * step % vocab) as u32).collect()
}

fn loads_return(stage: &Stage) -> Result<Evidence, String> {
    let device = cuda::Device::open(0).map_err(|e| e.to_string())?;
    let held = || device.held_bytes().map_err(|e| e.to_string());
    let round = || -> Result<u64, String> {
        let engine = stage.engine(&stage.model, &stage.options())?;
        let mut sequence = engine.sequence().map_err(|e| e.to_string())?;
        let prompt = prompt(300, 7, engine.descriptor().vocab);
        engine.prefill(&mut sequence, &prompt, RowWant::Greedy).map_err(|e| e.to_string())?;
        let fork = sequence.fork().map_err(|e| e.to_string())?;
        drop(fork);
        held()
    };
    let before = held()?;
    let mut most = 0;
    for i in 0..ROUNDS {
        most = most.max(round()?);
        let after = held()?;
        if after != before {
            return Err(format!("round {i}: {after} bytes held after a drop, {before} before"));
        }
    }
    if most <= before {
        return Err("a loaded model held no device memory".to_owned());
    }
    Ok(vec![("rounds", ROUNDS), ("most_bytes", most - before), ("bytes_left", 0)])
}

fn too_large(stage: &Stage) -> Result<Evidence, String> {
    let device = cuda::Device::open(0).map_err(|e| e.to_string())?;
    let held = || device.held_bytes().map_err(|e| e.to_string());
    let mut huge = descriptor(stage)?;
    for role in huge.roles.iter_mut().filter(|r| r.name == RoleName::Embed) {
        role.shape[0] = 1 << 40;
    }
    let huge = Arc::new(huge);
    let before = held()?;
    for _ in 0..20 {
        match Engine::synthetic(Arc::clone(&huge), 1, &stage.options()) {
            Ok(_) => return Err("a model of terabytes was loaded".to_owned()),
            Err(e) if e.to_string().contains("bytes of device memory") => {}
            Err(e) => return Err(format!("the error does not say what is short: {e}")),
        }
    }
    if held()? != before {
        return Err(format!("{} bytes held after refusals, {before} before", held()?));
    }
    stage.engine(&stage.model, &stage.options()).map_err(|e| format!("a valid load: {e}"))?;
    Ok(vec![("refusals", 20), ("bytes_left", 0)])
}

fn synthetic(stage: &Stage) -> Result<Evidence, String> {
    let descriptor = Arc::new(descriptor(stage)?);
    let weights = synth(&descriptor, 11);
    let prompt = prompt(20, 31, descriptor.vocab);
    let logits = |engine: Engine| -> Result<Vec<u32>, String> {
        let mut sequence = engine.sequence().map_err(|e| e.to_string())?;
        let rows = engine
            .verify_rows(&mut sequence, &prompt, RowWant::Logits)
            .map_err(|e| e.to_string())?;
        let row = |row: RowOutput| match row {
            RowOutput::Logits(values) => values.into_iter().map(f32::to_bits).collect(),
            _ => Vec::new(),
        };
        Ok(rows.rows.into_iter().flat_map(row).collect())
    };
    let uploaded = Engine::new(Arc::clone(&descriptor), &weights, &stage.options());
    let made = Engine::synthetic(descriptor, 11, &stage.options());
    let uploaded = logits(uploaded.map_err(|e| e.to_string())?)?;
    let made = logits(made.map_err(|e| e.to_string())?)?;
    let different = uploaded.iter().zip(&made).filter(|(a, b)| a != b).count();
    if uploaded.is_empty() || uploaded.len() != made.len() || different > 0 {
        return Err(format!(
            "{different} of {} logits differ between weights made on the device and on the host",
            uploaded.len()
        ));
    }
    Ok(vec![("logits", uploaded.len() as u64), ("different", 0)])
}

/// A step in which something is captured runs operation by operation; any other one joins launches.
fn joined(stage: &Stage) -> Result<Evidence, String> {
    let engine = stage.engine(&stage.model, &stage.options())?;
    let prompt = prompt(300, 31, engine.descriptor().vocab);
    // A prompt, its rest over two groups, single rows.
    let cuts = [0..150, 150..297, 297..298, 298..299, 299..300];
    let logits = |captured: bool| -> Result<Vec<u32>, String> {
        let mut sequence = engine.sequence().map_err(|e| e.to_string())?;
        let mut bits = Vec::new();
        for cut in cuts.clone() {
            let mut batch = Batch::new();
            batch.push(&mut sequence, &prompt[cut], Want::Every(RowWant::Logits));
            let mut taps = Taps::standard();
            let taps = captured.then_some(&mut taps);
            let output = engine.forward_tapped(&mut batch, taps).swap_remove(0);
            for row in output.map_err(|e| e.to_string())?.rows {
                if let RowOutput::Logits(values) = row {
                    bits.extend(values.into_iter().map(f32::to_bits));
                }
            }
        }
        Ok(bits)
    };
    let (by_itself, joined) = (logits(true)?, logits(false)?);
    let different = by_itself.iter().zip(&joined).filter(|(a, b)| a != b).count();
    if joined.is_empty() || by_itself.len() != joined.len() || different > 0 {
        return Err(format!("{different} of {} logits differ", by_itself.len()));
    }
    Ok(vec![("logits", joined.len() as u64), ("different", 0)])
}

/// Ids drawn on the device, against the host's sampler over the same logits.
fn draws(stage: &Stage) -> Result<Evidence, String> {
    const DRAWS: usize = 400;
    let engine = stage.engine(&stage.model, &stage.options())?;
    let vocab = engine.descriptor().vocab;
    let prompt = prompt(40, 31, vocab);
    let mut behind = engine.sequence().map_err(|e| e.to_string())?;
    engine.prefill(&mut behind, &prompt, RowWant::Nothing).map_err(|e| e.to_string())?;
    let row = |want: RowWant| -> Result<RowOutput, String> {
        let mut sequence = behind.fork().map_err(|e| e.to_string())?;
        let output = engine.decode(&mut sequence, 7, want).map_err(|e| e.to_string())?;
        output.rows.into_iter().next().ok_or_else(|| "no row came back".to_owned())
    };
    let RowOutput::Logits(logits) = row(RowWant::Logits)? else {
        return Err("the engine gave no logits".to_owned());
    };
    let mut words = SplitMix64::new(5);
    let mut ids = std::collections::BTreeSet::new();
    for i in 0..DRAWS {
        let unit = match i {
            0 => 0.0,
            1 => 1.0 - f64::EPSILON / 2.0,
            _ => words.next_unit(),
        };
        let temperature = [0.3, 0.7, 1.0, 2.5][i % 4];
        let draw = Draw { temperature, unit, choosable_ids: vocab - i % 3 * 100 };
        let expected = sample(&logits[..draw.choosable_ids], temperature, || unit)
            .map_err(|e| e.to_string())?;
        match row(RowWant::Sampled(draw))? {
            RowOutput::Sampled(id) if id == expected => ids.insert(id),
            other => return Err(format!("{draw:?}: expected {expected}, found {other:?}")),
        };
    }
    if ids.len() < 20 {
        return Err(format!("{DRAWS} draws gave only {} ids; this shows little", ids.len()));
    }
    Ok(vec![("draws", DRAWS as u64), ("ids", ids.len() as u64)])
}
