//! A folder of packed weights: the sidecar against the files beside it, and against the model.

use super::sidecar::{
    PACKED_PREFIX, PLAN_KEY, PackedRecord, SIDECAR, Sidecar, Treatment, WeightRecord,
};
use super::{Artifact, Prefill};
use crate::descriptor::{Descriptor, RoleName};
use crate::tensor::{
    DType, Int4, Int4Error, Int4Shape, Shared, Storage, Weight, check_codes, check_scales,
};
use crate::units::{Digest, Position};
use crate::weights::error::quoted;
use crate::weights::resolve::{label, matrix};
use crate::weights::set::Logical;
use crate::weights::{Checkpoint, CheckpointError, Place, Rule, WeightsSource, file};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Largest sidecar that is read.
const LIMIT_BYTES: u64 = 100_000_000;

/// A sidecar that fits the files beside it.
#[derive(Debug)]
pub(in crate::weights) struct Attached {
    path: PathBuf,
    pub(in crate::weights) sidecar: Sidecar,
}

/// Reads the sidecar of `folder`, if there is one. Its fields, its own digests and its extents are
/// checked; nothing is allocated by them.
pub(in crate::weights) fn read(folder: &Path) -> Result<Option<Attached>, CheckpointError> {
    let path = folder.join(SIDECAR);
    let metadata = match std::fs::metadata(&path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(file::unreadable(&path, &e)),
        Ok(metadata) => metadata,
    };
    if !metadata.is_file() {
        return Err(CheckpointError::new(path, Rule::RegularFile, file::kind_of(&metadata)));
    }
    if metadata.len() > LIMIT_BYTES {
        let found = format!("{} bytes", metadata.len());
        return Err(CheckpointError::new(path, Rule::SidecarLimit, found));
    }
    let text = std::fs::read(&path).map_err(|e| file::unreadable(&path, &e))?;
    let sidecar = Sidecar::parse(&text).map_err(|e| {
        let message = e.to_string();
        let place = format!(" at line {} column {}", e.line(), e.column());
        let position = Position { line: e.line(), column: e.column() };
        let found = message.strip_suffix(&place).unwrap_or(&message).to_owned();
        CheckpointError::new(&path, Rule::SidecarFields, found).at(Place::Text(position))
    })?;
    let attached = Attached { path, sidecar };
    attached.check_itself()?;
    Ok(Some(attached))
}

/// Requires a folder without a sidecar to hold no packed weights.
pub(in crate::weights) fn check_alone(
    checkpoint: &Checkpoint,
    path: &Path,
) -> Result<(), CheckpointError> {
    let packed = checkpoint.tensors().map(|(name, _)| name).find(|n| n.starts_with(PACKED_PREFIX));
    match packed {
        Some(name) if path.is_dir() => {
            let file = checkpoint.file_of(name).unwrap_or(checkpoint.main_file());
            let found = format!("packed weights without a {SIDECAR}");
            Err(CheckpointError::new(file, Rule::SidecarForeign, found)
                .tensor(name)
                .help("packed weights are of no use without it: copy it, or quantize again"))
        }
        _ => Ok(()),
    }
}

impl Attached {
    fn error(&self, rule: Rule, found: impl Into<String>) -> CheckpointError {
        CheckpointError::new(&self.path, rule, found)
    }

    fn check_itself(&self) -> Result<(), CheckpointError> {
        let s = &self.sidecar;
        if !s.is_known() {
            let found =
                format!("{} {} in layout {}", s.format, s.format_version, s.manifest_version);
            return Err(self.error(Rule::SidecarFormat, found));
        }
        let mut seen = BTreeSet::new();
        for w in &s.weights {
            let at = label(w.role, w.layer);
            if !seen.insert((w.role, w.layer)) {
                return Err(self.error(Rule::SidecarDuplicate, format!("{at} twice")));
            }
            if (w.treatment == Treatment::Quantised) != w.packed.is_some() {
                let found = format!("{at}: `packed` does not fit its treatment");
                return Err(self.error(Rule::SidecarFields, found));
            }
        }
        for (w, packed) in s.quantised() {
            self.shape(w, packed)?;
        }
        match s.derive_digest() {
            Some(digest) if digest.to_string() == s.digest => Ok(()),
            Some(digest) => Err(self
                .error(Rule::SidecarDigest, format!("{}…", s.digest.get(..12).unwrap_or(&s.digest)))
                .expected(format!("{}…, which its entries give", digest.short()))),
            None => Err(self.error(Rule::SidecarDigest, "an entry whose sha256 is no digest")),
        }
    }

    /// The extents of a quantised weight, which its parts must have.
    fn shape(&self, w: &WeightRecord, p: &PackedRecord) -> Result<Int4Shape, CheckpointError> {
        let at = label(w.role, w.layer);
        let refuse = |found: String| Err(self.error(Rule::PackedShape, format!("{at}: {found}")));
        let shape = match Int4Shape::new(w.shape[0], w.shape[1], p.group) {
            Ok(shape) => shape,
            Err(e) => return refuse(e.to_string()),
        };
        let (experts, described) = (w.experts.unwrap_or(0), p.experts.len());
        if described != experts {
            return refuse(format!("{described} experts are described, it has {experts}"));
        }
        if let Some(rows) = shape.rows().checked_div(experts) {
            if rows * experts != shape.rows() {
                return refuse(format!("{} rows of {experts} experts", shape.rows()));
            }
            if let Err(e) = Int4Shape::new(rows, shape.cols(), p.group) {
                return refuse(format!("an expert: {e}"));
            }
        }
        let (codes, scales) = (shape.code_bytes(), shape.scale_count());
        let parts =
            [(&p.codes, "codes", DType::U8, codes), (&p.scales, "scales", DType::BF16, scales)];
        for (part, what, dtype, count) in parts {
            let bytes = (count * dtype.size_bytes()) as u64;
            if (part.dtype, part.count, part.bytes) != (dtype, count, bytes) {
                return refuse(format!(
                    "{} {what} of {} in {} bytes, [{}, {}] in groups of {} has {count} of {dtype} \
                     in {bytes} bytes",
                    part.count, part.dtype, part.bytes, w.shape[0], w.shape[1], p.group
                ));
            }
        }
        Ok(shape)
    }

    /// Requires the sidecar to be that of the files of `checkpoint`.
    pub(in crate::weights) fn check_files(
        &self,
        checkpoint: &Checkpoint,
    ) -> Result<(), CheckpointError> {
        let s = &self.sidecar;
        let name =
            |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let listed: BTreeMap<&str, u64> =
            s.files.iter().map(|f| (f.file.as_str(), f.bytes)).collect();
        for (path, bytes, metadata) in checkpoint.file_facts() {
            let file = name(path);
            match listed.get(file.as_str()) {
                None => {
                    let found = format!("{} is not listed", quoted(&file));
                    return Err(self.error(Rule::SidecarForeign, found));
                }
                Some(listed) if *listed != bytes => {
                    let found = format!("{} of {bytes} bytes, {listed} are listed", quoted(&file));
                    return Err(self.error(Rule::SidecarForeign, found));
                }
                Some(_) => {}
            }
            match metadata.get(PLAN_KEY) {
                Some(plan) if *plan == s.plan => {}
                Some(_) => {
                    let found = format!("{} was written by another conversion", quoted(&file));
                    return Err(self.error(Rule::SidecarForeign, found));
                }
                None => {
                    let found = format!("{} names no conversion", quoted(&file));
                    return Err(self.error(Rule::SidecarForeign, found));
                }
            }
        }
        if let Some(absent) =
            s.files.iter().find(|f| !checkpoint.files().any(|path| name(path) == f.file))
        {
            let found = format!("no file {}", quoted(&absent.file));
            return Err(self.error(Rule::SidecarForeign, found));
        }
        for (w, packed) in s.quantised() {
            let shape = self.shape(w, packed)?;
            let rows = shape.rows();
            let parts = [
                (&packed.codes, [rows, shape.row_bytes()]),
                (&packed.scales, [rows, shape.groups_per_row()]),
            ];
            for (part, extents) in parts {
                let Some(entry) = checkpoint.tensor(&part.tensor) else {
                    let found = format!("no tensor of {}", label(w.role, w.layer));
                    return Err(self.error(Rule::PackedShape, found).tensor(&part.tensor));
                };
                if entry.dtype != part.dtype || entry.shape != extents {
                    return Err(self
                        .error(Rule::PackedShape, entry.describe())
                        .tensor(&part.tensor)
                        .expected(format!("{} {extents:?}", part.dtype)));
                }
            }
        }
        Ok(())
    }

    /// Requires every role and layer of the model to have one entry, of its extents.
    pub(in crate::weights) fn check_model(&self, d: &Descriptor) -> Result<(), CheckpointError> {
        let mut entries: BTreeMap<(RoleName, Option<usize>), &WeightRecord> =
            self.sidecar.weights.iter().map(|w| ((w.role, w.layer), w)).collect();
        for role in &d.roles {
            let (rows, cols) = matrix(&role.shape);
            for layer in role.instances() {
                let at = label(role.name, layer);
                let Some(entry) = entries.remove(&(role.name, layer)) else {
                    if role.tied_to.is_some() {
                        continue;
                    }
                    return Err(self.error(Rule::SidecarCoverage, format!("no entry for {at}")));
                };
                if entry.shape != [rows, cols] {
                    return Err(self
                        .error(Rule::PackedShape, format!("{at}: {:?}", entry.shape))
                        .expected(format!("[{rows}, {cols}]")));
                }
                if entry.experts != role.experts() {
                    let say = |experts: Option<usize>| match experts {
                        Some(experts) => format!("{experts} experts"),
                        None => "no experts".into(),
                    };
                    let found = format!("{at}: {}", say(entry.experts));
                    return Err(self.error(Rule::PackedShape, found).expected(say(role.experts())));
                }
                if entry.packed.is_some() && !role.name.is_projection() {
                    let found = format!("{at} quantised");
                    return Err(self.error(Rule::SidecarCoverage, found));
                }
            }
        }
        match entries.keys().next() {
            None => Ok(()),
            Some((role, layer)) => {
                let found = format!("{}, which the model does not have", label(*role, *layer));
                Err(self.error(Rule::SidecarCoverage, found))
            }
        }
    }

    /// The packed weights, their codes and scales checked; `weights` holds what lies beside.
    pub(in crate::weights) fn load(
        &self,
        checkpoint: &Checkpoint,
        logical: &mut Logical,
    ) -> Result<Artifact, CheckpointError> {
        let mut roles = BTreeMap::new();
        for (w, packed) in self.sidecar.quantised() {
            let shape = self.shape(w, packed)?;
            let codes: Shared<u8> = elements(checkpoint, &packed.codes.tensor);
            let scales: Shared<u16> = elements(checkpoint, &packed.scales.tensor);
            let refuse = |rule, part: &str, e: Int4Error| {
                let file = checkpoint.file_of(part).unwrap_or(checkpoint.main_file());
                Err(CheckpointError::new(file, rule, e.to_string()).tensor(part))
            };
            if let Err(e) = check_codes(&codes, shape) {
                return refuse(Rule::PackedCode, &packed.codes.tensor, e);
            }
            if let Err(e) = check_scales(&scales, shape) {
                return refuse(Rule::PackedScale, &packed.scales.tensor, e);
            }
            let at = (w.role, w.layer);
            let shared = || logical.ties.get(&w.role).map(|to| (*to, w.layer));
            let before = logical.weights.get(&at).or_else(|| logical.weights.get(&shared()?));
            let prefill = match self.sidecar.prefill {
                Prefill::Bf16 => before.cloned().map(Box::new),
                Prefill::Packed => None,
            };
            let storage = Storage::Int4(Int4 { shape, codes, scales, prefill });
            let [rows, cols] = w.shape;
            logical.weights.insert(at, Weight { rows, cols, storage });
            roles.insert(w.role, packed.group);
        }
        let digest = self.sidecar.derive_digest().unwrap_or(Digest([0; 32]));
        Ok(Artifact { digest, roles, prefill: self.sidecar.prefill })
    }

    /// The source that the packed weights are bound to.
    pub(in crate::weights) fn source(&self) -> Result<WeightsSource, CheckpointError> {
        let digest = |text: &str| {
            Digest::parse(text)
                .ok_or_else(|| self.error(Rule::SidecarDigest, "a source digest that is none"))
        };
        Ok(WeightsSource::Checkpoint {
            roles: digest(&self.sidecar.source.roles_digest)?,
            sampled_content: digest(&self.sidecar.source.sampled_content_digest)?,
            full_content: None,
        })
    }
}

/// The elements of a stored tensor: in the mapped file if aligned, else copied.
fn elements<T: crate::tensor::Element + Stored>(checkpoint: &Checkpoint, name: &str) -> Shared<T> {
    let mapped = checkpoint.map_of(name).and_then(|(map, entry)| {
        Shared::mapped(map.clone(), entry.start_bytes, entry.size_bytes / size_of::<T>())
    });
    mapped.unwrap_or_else(|| {
        Shared::owned(checkpoint.bytes(name).map(T::from_bytes).unwrap_or_default())
    })
}

/// Elements of packed parts.
trait Stored: Sized {
    fn from_bytes(bytes: &[u8]) -> Vec<Self>;
}

impl Stored for u8 {
    fn from_bytes(bytes: &[u8]) -> Vec<u8> {
        bytes.to_vec()
    }
}

impl Stored for u16 {
    fn from_bytes(bytes: &[u8]) -> Vec<u16> {
        bytes.as_chunks::<2>().0.iter().map(|b| u16::from_le_bytes(*b)).collect()
    }
}
