//! Derives again what a folder of packed weights says about itself.

use super::output::hash_file;
use super::sidecar::{ExpertRecord, FileRecord, PackedRecord, Sidecar, WeightRecord};
use crate::tensor::{Int4Error, bf16_from_bits, quantise_row};
use crate::units::{Digest, SplitMix64, mutant};
use crate::weights::resolve::{label, resolve};
use crate::weights::{
    Checkpoint, LoadOptions, Model, ModelError, Progress, WeightSet, WeightsSource,
};
use std::path::Path;

/// Rows of every packed weight that are packed again: the first, the last, and others drawn; of experts
/// also one of each.
const SAMPLED_ROWS: usize = 16;

/// One thing that was derived again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    pub name: &'static str,
    /// `None` where there was nothing to derive it from.
    pub holds: Option<bool>,
    pub detail: String,
}

/// What a verification found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verification {
    pub checks: Vec<Check>,
}

impl Verification {
    /// Whether some check failed.
    pub fn failed(&self) -> bool {
        self.checks.iter().any(|c| c.holds == Some(false))
    }

    /// Whether every check was made and holds.
    pub fn complete(&self) -> bool {
        self.checks.iter().all(|c| c.holds == Some(true))
    }

    fn add(&mut self, name: &'static str, problems: Vec<String>, done: String) {
        let (holds, detail) = match problems.first() {
            None => (true, done),
            Some(first) if problems.len() == 1 => (false, first.clone()),
            Some(first) => (false, format!("{first} (and {} more)", problems.len() - 1)),
        };
        self.checks.push(Check { name, holds: Some(holds), detail });
    }
}

/// Verifies the folder of packed weights `folder`; with the source folder, also that it was made
/// from it.
///
/// # Errors
/// A folder that does not load, or files that cannot be read. A folder of weights that are not
/// packed gives no check at all.
pub fn verify(
    folder: &Path,
    source: Option<&Path>,
    progress: Option<Progress<'_>>,
) -> Result<Verification, ModelError> {
    let model = Model::open(folder)?;
    let mut found = Verification { checks: Vec::new() };
    let Some(sidecar) = model.checkpoint.sidecar() else { return Ok(found) };
    // Loading checks extents, coverage, every code and every scale.
    let weights = model.load(&LoadOptions::default())?;
    let quantised = sidecar.quantised().count();
    found.add(
        "extents and coverage",
        Vec::new(),
        format!("{quantised} weights quantised, {} retained", sidecar.weights.len() - quantised),
    );
    let total: u64 = sidecar.files.iter().map(|f| f.bytes).sum();
    let done = std::sync::atomic::AtomicU64::new(0);
    let report = |bytes: u64| {
        let now = done.fetch_add(bytes, std::sync::atomic::Ordering::Relaxed) + bytes;
        if let Some(progress) = progress {
            progress(now, total);
        }
    };
    let problems = rehash(folder, &sidecar.files, &report);
    found.add("files", problems, format!("{} files, {total} bytes hashed", sidecar.files.len()));
    let problems = rehash_parts(&model.checkpoint, sidecar);
    let experts: usize = sidecar.quantised().map(|(_, packed)| packed.experts.len()).sum();
    let of_experts = match experts {
        0 => String::new(),
        experts => format!(", and those of {experts} matrices of experts"),
    };
    let detail = format!("{} tensors hashed{of_experts}", 2 * quantised);
    found.add("codes and scales", problems, detail);
    match source {
        None => found.checks.push(Check {
            name: "source",
            holds: None,
            detail: "not compared: name the folder with --source".into(),
        }),
        Some(source) => against_source(&mut found, sidecar, &model, &weights, source)?,
    }
    Ok(found)
}

fn rehash(folder: &Path, files: &[FileRecord], report: &dyn Fn(u64)) -> Vec<String> {
    let check = |record: &FileRecord| match hash_file(&folder.join(&record.file), report) {
        Err(e) => Some(format!("{}: {e}", record.file)),
        Ok(digest) if digest.to_string() == record.sha256 => None,
        Ok(digest) => Some(format!(
            "{}: sha256 {}…, the manifest says {}…",
            record.file,
            digest.short(),
            record.sha256.get(..12).unwrap_or_default()
        )),
    };
    files.iter().filter_map(check).collect()
}

fn rehash_parts(checkpoint: &Checkpoint, sidecar: &Sidecar) -> Vec<String> {
    let mut problems = Vec::new();
    for (_, packed) in sidecar.quantised() {
        let of_experts = |of: fn(&ExpertRecord) -> &String| packed.experts.iter().map(of).collect();
        let (codes, scales): (Vec<&String>, Vec<&String>) =
            (of_experts(|e| &e.codes), of_experts(|e| &e.scales));
        for (part, experts) in [(&packed.codes, codes), (&packed.scales, scales)] {
            let bytes = checkpoint.bytes(&part.tensor).unwrap_or_default();
            if Digest::of(bytes).to_string() != part.sha256 {
                problems
                    .push(format!("{}: its sha256 is not the one of the manifest", part.tensor));
            }
            if mutant!("int4_experts_unhashed") {
                continue;
            }
            let own = bytes.chunks_exact((bytes.len() / experts.len().max(1)).max(1));
            for (id, (bytes, sha256)) in own.zip(&experts).enumerate() {
                if Digest::of(bytes).to_string() != **sha256 {
                    problems.push(format!(
                        "{}: the sha256 of expert {id} is not the one of the manifest",
                        part.tensor
                    ));
                }
            }
        }
    }
    problems
}

fn against_source(
    found: &mut Verification,
    sidecar: &Sidecar,
    model: &Model,
    weights: &WeightSet,
    source: &Path,
) -> Result<(), ModelError> {
    let original = Model::open(source)?;
    let problems = rehash(source, &sidecar.source.files, &|_| ());
    found.add("source files", problems, format!("{} files hashed", sidecar.source.files.len()));
    let loaded = original.load(&LoadOptions { read_ahead: false, ..LoadOptions::default() })?;
    let mut problems = Vec::new();
    if let (
        WeightsSource::Checkpoint { roles, sampled_content, .. },
        WeightsSource::Checkpoint { roles: own_roles, sampled_content: own_content, .. },
    ) = (loaded.source(), weights.source())
        && (roles, sampled_content) != (own_roles, own_content)
    {
        problems.push("its roles or content have other digests".into());
    }
    if original.descriptor.semantic() != model.descriptor.semantic() {
        problems.push("it is another model".into());
    }
    found.add("source identity", problems, "roles, content and meaning are those recorded".into());

    let mut rows = 0;
    let mut problems = Vec::new();
    for (record, packed) in sidecar.quantised() {
        let (count, differing) = requantise(&loaded, model, record, packed);
        rows += count;
        problems.extend(differing);
    }
    found.add("quantised again", problems, format!("{rows} rows give the same codes and scales"));
    let (count, problems) = compare_retained(&original.checkpoint, model)?;
    found.add("retained", problems, format!("{count} tensors are those of the source"));
    Ok(())
}

/// Packs a sample of rows again; how many, and the first that differs.
fn requantise(
    source: &WeightSet,
    model: &Model,
    record: &WeightRecord,
    packed: &PackedRecord,
) -> (usize, Option<String>) {
    let [rows, cols] = record.shape;
    let weight = source.get(record.role, record.layer);
    let Some(weight) = weight.filter(|w| [w.rows, w.cols] == record.shape) else {
        let at = label(record.role, record.layer);
        return (0, Some(format!("{at}: not in the source with these extents")));
    };
    let (row_bytes, groups) = (cols / 2, cols / packed.group);
    let codes = model.checkpoint.bytes(&packed.codes.tensor).unwrap_or_default();
    let scales = model.checkpoint.bytes(&packed.scales.tensor).unwrap_or_default();
    let mut random = SplitMix64::new(rows as u64);
    let drawn = (2..SAMPLED_ROWS).map(|_| (random.next_word() % rows as u64) as usize);
    let mut sample: Vec<usize> = [0, rows - 1].into_iter().chain(drawn).collect();
    if let Some(experts) = record.experts.filter(|experts| *experts > 0) {
        let own = rows / experts;
        sample.extend((0..experts).map(|e| e * own + (random.next_word() % own as u64) as usize));
    }
    let (mut values, mut own_codes, mut own_scales) =
        (Vec::new(), vec![0; row_bytes], vec![0u16; groups]);
    for row in &sample {
        weight.row_f32(*row, &mut values);
        let result = quantise_row(&values, packed.group, &mut own_codes, &mut own_scales);
        let stored_scales = scales[2 * row * groups..2 * (row + 1) * groups].as_chunks::<2>().0;
        let same = own_codes == codes[row * row_bytes..(row + 1) * row_bytes]
            && own_scales.iter().zip(stored_scales).all(|(a, b)| *a == u16::from_le_bytes(*b));
        if let Some(problem) = difference(result, same, &own_scales) {
            let at = label(record.role, record.layer);
            return (sample.len(), Some(format!("{at}, row {row}: {problem}")));
        }
    }
    (sample.len(), None)
}

fn difference(result: Result<(), Int4Error>, same: bool, scales: &[u16]) -> Option<String> {
    match result {
        Err(e) => Some(e.to_string()),
        Ok(()) if same => None,
        Ok(()) => {
            let first = scales.first().map_or(0.0, |bits| bf16_from_bits(*bits));
            Some(format!("the source gives other codes or scales (first scale {first})"))
        }
    }
}

/// Requires every tensor that both have to have the same bytes.
fn compare_retained(
    source: &Checkpoint,
    model: &Model,
) -> Result<(usize, Vec<String>), ModelError> {
    // What the roles use, resolved, so that a folder that lacks a tensor is refused by name.
    resolve(&model.checkpoint, &model.descriptor)?;
    let mut count = 0;
    let mut problems = Vec::new();
    for (name, entry) in model.checkpoint.tensors() {
        let Some(theirs) = source.tensor(name) else { continue };
        count += 1;
        let same = (entry.dtype, &entry.shape) == (theirs.dtype, &theirs.shape)
            && model.checkpoint.bytes(name) == source.bytes(name);
        if !same {
            problems.push(format!("{name}: other bytes than in the source"));
        }
    }
    Ok((count, problems))
}
