//! Checks of a GPU's memory.

use super::checks::{Check, Evidence, Stage};
use crate::backend::cuda;
use crate::descriptor::RoleName;
use crate::engine::{Engine, RowOutput, RowWant};
use crate::weights::{Model, synth};
use std::sync::Arc;

/// Every check by name; they have no counterpart on the host.
pub(super) const DEVICE_CHECKS: &[(&str, Check)] = &[
    ("loads_return_device_memory", loads_return),
    ("too_large_a_model_is_refused", too_large),
    ("synthetic_weights_are_those_of_the_host", synthetic),
];

/// Rounds of loading, executing and dropping.
const ROUNDS: u64 = 5;

fn descriptor(stage: &Stage) -> Result<crate::descriptor::Descriptor, String> {
    Ok(Model::open(&stage.model).map_err(|e| e.to_string())?.descriptor)
}

fn loads_return(stage: &Stage) -> Result<Evidence, String> {
    let device = cuda::Device::open(0).map_err(|e| e.to_string())?;
    let held = || device.held_bytes().map_err(|e| e.to_string());
    let round = || -> Result<u64, String> {
        let engine = stage.engine(&stage.model, &stage.options())?;
        let mut sequence = engine.sequence().map_err(|e| e.to_string())?;
        let prompt: Vec<u32> = (0..300).map(|t| t * 7 % 500).collect();
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
    let prompt: Vec<u32> = (0..20).map(|t| t * 31 % 500).collect();
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
