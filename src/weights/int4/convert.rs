//! Packs a checkpoint into another folder, file by file.
//!
//! Memory is bounded by the scales of one weight and a block of its rows. Work goes on in
//! `OUT.partial`; a file that is complete has its final name there and is listed in
//! `progress.json`, so that a stopped conversion goes on where it was. When all is complete the
//! folder is renamed, so that `OUT` exists only whole.

use super::describe::sidecar;
use super::output::{Meter, hash_file, write_shard};
use super::plan::{Item, Plan, PlanError, plan, plan_digest};
use super::sidecar::{FileRecord, PackedRecord, SIDECAR, Sidecar, SourceRecord};
use super::{QuantiseError, Recipe};
use crate::descriptor::RoleName;
use crate::weights::shards::INDEX;
use crate::weights::{CheckpointError, LoadOptions, Model, Progress, WeightsSource};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const PROGRESS: &str = "progress.json";

/// How to convert.
#[derive(Clone)]
pub struct ConvertOptions<'a> {
    pub recipe: Recipe,
    /// Largest size of a file's data; a single tensor may exceed it.
    pub max_shard_bytes: u64,
    /// Told bytes done of bytes to read and write.
    pub progress: Option<Progress<'a>>,
}

impl std::fmt::Debug for ConvertOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConvertOptions")
            .field("recipe", &self.recipe)
            .field("max_shard_bytes", &self.max_shard_bytes)
            .finish_non_exhaustive()
    }
}

/// Why a conversion did not come about.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error(transparent)]
    Quantise(#[from] QuantiseError),
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{}: exists already; choose another folder", folder.display())]
    Exists { folder: PathBuf },
    #[error("{}: {problem}; remove it to begin anew", folder.display())]
    Unfinished { folder: PathBuf, problem: String },
    #[error("{}: the weights are quantised already", folder.display())]
    Already { folder: PathBuf },
}

impl ConvertError {
    /// Whether reading or writing failed, as opposed to the request being refused.
    pub fn is_io(&self) -> bool {
        match self {
            ConvertError::Io { .. } => true,
            ConvertError::Checkpoint(e) => e.is_io(),
            _ => false,
        }
    }
}

impl From<PlanError> for ConvertError {
    fn from(error: PlanError) -> ConvertError {
        match error {
            PlanError::Checkpoint(e) => e.into(),
            PlanError::Quantise(e) => e.into(),
        }
    }
}

/// What a conversion came to.
#[derive(Clone, Debug)]
pub struct Converted {
    pub sidecar: Sidecar,
    /// Files that an earlier, stopped conversion had written.
    pub resumed_files: usize,
}

/// A complete file of an unfinished conversion.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Done {
    pub(super) file: FileRecord,
    pub(super) packed: Vec<PackedOf>,
}

/// A weight that it holds.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PackedOf {
    pub(super) role: RoleName,
    pub(super) layer: Option<usize>,
    pub(super) packed: PackedRecord,
}

/// The journal of an unfinished conversion.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Journal {
    pub(super) plan: String,
    pub(super) done: Vec<Done>,
}

/// Packs the model in `folder` (opened as `model`) into `out`.
///
/// # Errors
/// [`ConvertError`]; the source is never touched, and `out` does not exist afterwards.
pub fn convert(
    model: &Model,
    folder: &Path,
    out: &Path,
    options: &ConvertOptions<'_>,
) -> Result<Converted, ConvertError> {
    if model.checkpoint.sidecar().is_some() {
        return Err(ConvertError::Already { folder: folder.to_owned() });
    }
    if std::fs::symlink_metadata(out).is_ok() {
        return Err(ConvertError::Exists { folder: out.to_owned() });
    }
    let recipe = &options.recipe;
    let plan = plan(&model.checkpoint, &model.descriptor, recipe, options.max_shard_bytes)?;
    let source_bytes: u64 = model.checkpoint.file_facts().map(|(_, bytes, _)| bytes).sum();
    let meter = Meter::new(options.progress, source_bytes + plan.total_bytes);
    let source = source_record(model, &meter)?;
    let named: Vec<(String, String)> =
        source.files.iter().map(|f| (f.file.clone(), f.sha256.clone())).collect();
    let digest = plan_digest(&named, recipe, &plan).to_string();

    let work = partial_of(out);
    let mut journal = resume(&work, &digest)?;
    let resumed_files = journal.done.len();
    for shard in &plan.shards {
        if let Some(done) = journal.done.iter().find(|d| d.file.file == shard.file) {
            meter.add(done.file.bytes);
            continue;
        }
        let done = write_shard(&model.checkpoint, shard, &digest, &work, &meter)?;
        journal.done.push(done);
        write_journal(&work, &journal)?;
    }
    let sidecar =
        sidecar(&model.descriptor, &model.checkpoint, recipe, digest, source, &plan, &journal)?;
    if plan.shards.len() > 1 {
        write_whole(&work.join(INDEX), index(&plan).as_bytes())?;
    }
    copy_others(folder, &work)?;
    write_whole(&work.join(SIDECAR), sidecar.text().as_bytes())?;
    let progress = work.join(PROGRESS);
    std::fs::remove_file(&progress).map_err(io(&progress))?;
    std::fs::rename(&work, out).map_err(io(out))?;
    Ok(Converted { sidecar, resumed_files })
}

/// Where an unfinished conversion into `out` lies.
pub fn partial_of(out: &Path) -> PathBuf {
    let name = out.file_name().unwrap_or_default().to_string_lossy();
    out.with_file_name(format!("{name}.partial"))
}

/// An error of `path`.
pub(super) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> ConvertError + use<> {
    let path = path.to_owned();
    move |source| ConvertError::Io { path, source }
}

fn source_record(model: &Model, meter: &Meter<'_>) -> Result<SourceRecord, ConvertError> {
    let checkpoint = &model.checkpoint;
    let mut files = Vec::new();
    for (path, bytes, _) in checkpoint.file_facts() {
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let sha256 = hash_file(path, |bytes| meter.add(bytes)).map_err(io(path))?.to_string();
        files.push(FileRecord { file, bytes, sha256 });
    }
    let light = LoadOptions { read_ahead: false, ..LoadOptions::default() };
    let weights = checkpoint.load_with(&model.descriptor, &light)?;
    let WeightsSource::Checkpoint { roles, sampled_content, .. } = weights.source() else {
        unreachable!("weights of a checkpoint have its source");
    };
    Ok(SourceRecord {
        files,
        roles_digest: roles.to_string(),
        sampled_content_digest: sampled_content.to_string(),
        layout: checkpoint.layout(),
        tensors: checkpoint.tensors().map(|(name, _)| name.to_owned()).collect(),
    })
}

/// The journal in `work`, if it is one of the same conversion whose files are whole; else an empty
/// folder and journal.
fn resume(work: &Path, plan: &str) -> Result<Journal, ConvertError> {
    let empty = Journal { plan: plan.to_owned(), done: Vec::new() };
    let path = work.join(PROGRESS);
    let unfinished = |problem: &str| ConvertError::Unfinished {
        folder: work.to_owned(),
        problem: problem.into(),
    };
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            std::fs::create_dir_all(work).map_err(io(work))?;
            // What lies there without a journal is not ours and would become part of the model.
            if std::fs::read_dir(work).map_err(io(work))?.next().is_some() {
                return Err(unfinished("holds files, and none of them is of a conversion"));
            }
            write_journal(work, &empty)?;
            return Ok(empty);
        }
        Err(e) => return Err(io(&path)(e)),
    };
    let mut journal: Journal = serde_json::from_slice(&text)
        .map_err(|_| unfinished("holds a progress.json that cannot be read"))?;
    if journal.plan != plan {
        return Err(unfinished(
            "holds an unfinished conversion of another source, with other roles or by another \
             version",
        ));
    }
    journal.done.retain(|done| {
        let file = work.join(&done.file.file);
        hash_file(&file, |_| ()).is_ok_and(|digest| digest.to_string() == done.file.sha256)
    });
    Ok(journal)
}

fn write_journal(work: &Path, journal: &Journal) -> Result<(), ConvertError> {
    let text = serde_json::to_string_pretty(journal).unwrap_or_default();
    write_whole(&work.join(PROGRESS), text.as_bytes())
}

/// Writes a small file under its final name, whole or not at all.
fn write_whole(path: &Path, content: &[u8]) -> Result<(), ConvertError> {
    crate::units::write_whole(path, content).map_err(io(path))
}

fn index(plan: &Plan) -> String {
    let mut weight_map = BTreeMap::new();
    for shard in &plan.shards {
        for (name, ..) in shard.items.iter().flat_map(Item::stored) {
            weight_map.insert(name, shard.file.clone());
        }
    }
    let index = serde_json::json!({
        "metadata": { "total_size": plan.total_bytes }, "weight_map": weight_map,
    });
    format!("{index:#}\n")
}

/// Copies what belongs to a model beside its weights: configs, tokeniser, templates, licence.
fn copy_others(from: &Path, to: &Path) -> Result<(), ConvertError> {
    for entry in std::fs::read_dir(from).map_err(io(from))? {
        let path = entry.map_err(io(from))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_weights = name.ends_with(".safetensors") || name == INDEX;
        let other = [".json", ".jinja", ".txt", ".model", ".md"].iter().any(|e| name.ends_with(e));
        if path.is_file() && !is_weights && (other || name.starts_with("LICENSE")) {
            let target = to.join(&name);
            std::fs::copy(&path, &target).map_err(io(&target))?;
        }
    }
    Ok(())
}
