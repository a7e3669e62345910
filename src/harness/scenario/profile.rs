//! The profile of the device at hand: which model the arms run.

use super::worker::ModelSource;
use super::{ModelSpec, ScenarioFile};
use crate::backend::DeviceKind;
use crate::harness::spec::Diagnostic;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The model that every arm runs on a device.
///
/// `set` holds the `--set` values; `model` gives a folder in place of the file's. Paths in the
/// file are relative to it.
///
/// # Errors
/// The file has no profile for the device, or a folder or descriptor does not exist.
pub fn model_source(
    file: &ScenarioFile,
    device: DeviceKind,
    set: &BTreeMap<String, String>,
) -> Result<ModelSource, Diagnostic> {
    let complain = |message: String| Diagnostic::new(&file.path, message);
    let Some(profile) = file.spec.profiles.get(&device) else {
        let known: Vec<String> = file.spec.profiles.keys().map(ToString::to_string).collect();
        return Err(complain(format!("there is no profile for {device}"))
            .expected(format!("a device among {}", known.join(", "))));
    };
    let place = &profile.model;
    if let Some(folder) = set.get("model") {
        let path = PathBuf::from(folder);
        if !path.is_dir() {
            return Err(complain(format!("--set model: {folder} is no folder")));
        }
        return Ok(ModelSource::Folder { path });
    }
    let base = file.path.parent().unwrap_or(Path::new(""));
    let ModelSpec { dir, synth, or_synth, seed } = &place.value;
    if let Some(dir) = dir.as_ref().map(|d| base.join(d)).filter(|d| d.is_dir()) {
        return Ok(ModelSource::Folder { path: dir });
    }
    let Some(descriptor) = synth.as_ref().or(or_synth.as_ref()) else {
        let dir = dir.clone().unwrap_or_default();
        return Err(file
            .at(place, format!("the folder {} does not exist", dir.display()))
            .help(Some("give one with `--set model=DIR`, or a fallback with `or_synth`".into())));
    };
    let path = base.join(descriptor);
    if !path.is_file() {
        return Err(file.at(place, format!("the descriptor {} does not exist", path.display())));
    }
    Ok(ModelSource::Synthetic { descriptor: path, seed: *seed })
}
