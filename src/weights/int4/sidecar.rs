//! `weights.manifest.json`: what a folder of packed weights holds, and what it was made from.

use super::{PackedDigest, Prefill, attach};
use crate::descriptor::{Descriptor, Role, RoleName, Word as _};
use crate::placement::{Form, Stored};
use crate::tensor::{DType, INT4_FORMAT, INT4_VERSION, Int4Shape};
use crate::units::{Digest, nearest};
use crate::weights::CheckpointError;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The file's name.
pub const SIDECAR: &str = "weights.manifest.json";
/// Version of the file's layout.
pub const SIDECAR_VERSION: u32 = 1;
/// The key of safetensors metadata that binds a file to its sidecar.
pub(in crate::weights) const PLAN_KEY: &str = "assay.weights.plan";
/// What the names of packed tensors begin with.
pub(in crate::weights) const PACKED_PREFIX: &str = "int4.";

/// The content of [`SIDECAR`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sidecar {
    pub manifest_version: u32,
    /// The packed format and its version.
    pub format: String,
    pub format_version: u32,
    pub converter: Converter,
    /// Digest of source, recipe and converter; every safetensors file carries it in its metadata.
    pub plan: String,
    /// What prefill reads: `bf16` where the weights before quantisation are kept beside.
    pub prefill: Prefill,
    pub source: SourceRecord,
    /// Every role and layer of the model, once.
    pub weights: Vec<WeightRecord>,
    /// The safetensors files beside.
    pub files: Vec<FileRecord>,
    /// Digest of every packed weight's role, layer, extents, group, codes and scales: the one of
    /// `weights_artifact` in manifests.
    pub digest: String,
}

/// The program that wrote a folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Converter {
    pub name: String,
    pub version: String,
}

/// The checkpoint that weights were packed from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceRecord {
    pub files: Vec<FileRecord>,
    /// As in `weights_source` of manifests.
    pub roles_digest: String,
    pub sampled_content_digest: String,
    /// As in `storage` of manifests.
    pub layout: LayoutRecord,
    /// Names of all its tensors.
    pub tensors: Vec<String>,
}

/// How tensors were spread over files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayoutRecord {
    /// Files and how many tensors each has.
    pub files: Vec<(String, usize)>,
    /// Digest of every tensor's file, type and shape.
    pub tensor_files_digest: String,
}

/// A file and its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileRecord {
    pub file: String,
    pub bytes: u64,
    pub sha256: String,
}

/// Whether a weight was packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Treatment {
    Quantised,
    Retained,
}

/// One role of one layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WeightRecord {
    #[serde(deserialize_with = "role")]
    pub role: RoleName,
    /// `null` for roles that the model has once.
    pub layer: Option<usize>,
    pub treatment: Treatment,
    /// Logical `[N, K]`; of experts, the rows of all of them, one after the other.
    pub shape: [usize; 2],
    /// How many experts have a matrix of their own here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experts: Option<usize>,
    /// Element type of the source.
    pub source_dtype: DType,
    /// Of a quantised weight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packed: Option<PackedRecord>,
}

/// The parts of a quantised weight.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackedRecord {
    pub group: usize,
    pub codes: PartRecord,
    pub scales: PartRecord,
    pub error: ErrorRecord,
    /// The matrices of experts, in the order of their ids.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub experts: Vec<ExpertRecord>,
}

/// One expert's rows of a quantised weight.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpertRecord {
    /// Of its codes.
    pub codes: String,
    /// Of its scales.
    pub scales: String,
    pub error: ErrorRecord,
}

/// A stored tensor of a quantised weight.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartRecord {
    pub tensor: String,
    pub dtype: DType,
    /// Elements: bytes of codes, number of scales.
    pub count: usize,
    pub bytes: u64,
    pub sha256: String,
}

/// Differences between the values and those of their codes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorRecord {
    pub max_abs: f64,
    pub rms: f64,
    /// `rms` over the root mean square of the values.
    pub relative_rms: f64,
}

/// A role by its name; a misspelt one is told the nearest.
fn role<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<RoleName, D::Error> {
    let name = String::deserialize(deserializer)?;
    RoleName::parse(&name).ok_or_else(|| {
        let near = nearest(&name, RoleName::ALL.iter().map(|role| role.as_str()));
        let help = near.map(|n| format!("; the nearest is `{n}`")).unwrap_or_default();
        serde::de::Error::custom(format!("unknown role `{name}`{help}"))
    })
}

impl Sidecar {
    /// Parses the text.
    ///
    /// # Errors
    /// What is wrong, with line and column.
    pub fn parse(text: &[u8]) -> Result<Sidecar, serde_json::Error> {
        serde_json::from_slice(text)
    }

    /// The file's text.
    pub fn text(&self) -> String {
        let json = serde_json::to_string_pretty(self).expect("plain data serialises");
        format!("{json}\n")
    }

    /// Whether this is a format that can be read.
    pub(in crate::weights) fn is_known(&self) -> bool {
        self.manifest_version == SIDECAR_VERSION
            && self.format == INT4_FORMAT
            && self.format_version == INT4_VERSION
    }

    /// Quantised weights with their parts.
    pub fn quantised(&self) -> impl Iterator<Item = (&WeightRecord, &PackedRecord)> {
        self.weights.iter().filter_map(|w| Some((w, w.packed.as_ref()?)))
    }

    /// The sidecar of a folder, if it holds packed weights: checked by itself and against the model, not
    /// against the files beside.
    ///
    /// # Errors
    /// The file cannot be read, or what it says is refused.
    pub fn read(folder: &Path, d: &Descriptor) -> Result<Option<Sidecar>, CheckpointError> {
        let Some(attached) = attach::read(folder)? else { return Ok(None) };
        attached.check_model(d)?;
        Ok(Some(attached.sidecar))
    }

    /// Roles and extents of the quantised weights.
    pub fn packings(&self) -> impl Iterator<Item = (RoleName, Int4Shape)> {
        self.quantised().filter_map(|(w, packed)| {
            // Extents that the format does not take are refused where the file is read.
            let shape = Int4Shape::new(w.shape[0], w.shape[1], packed.group);
            shape.ok().map(|shape| (w.role, shape))
        })
    }

    /// What every weight takes where it is loaded: codes and scales, and values in the source's type
    /// where they are kept, F16 widened.
    pub fn stored(&self, d: &Descriptor) -> Stored {
        let record = |role, layer| self.weights.iter().find(|w| (w.role, w.layer) == (role, layer));
        let form = |role: &Role, layer| {
            let own = record(role.name, layer);
            let group = own.and_then(|w| Some(w.packed.as_ref()?.group));
            let kept = own.or_else(|| record(role.tied_to?, layer))?;
            let value_bytes = match (kept.source_dtype, group.is_some(), self.prefill) {
                (_, true, Prefill::Packed) => 0,
                (DType::BF16, ..) => 2,
                _ => 4,
            };
            Some(((role.name, layer), Form { group, value_bytes }))
        };
        let all =
            d.roles.iter().flat_map(|role| role.instances().into_iter().map(move |l| (role, l)));
        Stored::of(all.filter_map(|(role, layer)| form(role, layer)))
    }

    /// Whether a weight is in the folder only in packed form.
    pub(in crate::weights) fn replaces(&self, role: RoleName, layer: Option<usize>) -> bool {
        self.prefill == Prefill::Packed
            && self.quantised().any(|(w, _)| (w.role, w.layer) == (role, layer))
    }

    /// [`Sidecar::digest`] from the entries; `None` where a stored digest is no digest.
    pub(in crate::weights) fn derive_digest(&self) -> Option<Digest> {
        let mut digest = PackedDigest::default();
        for (w, packed) in self.quantised() {
            let codes = Digest::parse(&packed.codes.sha256)?;
            let scales = Digest::parse(&packed.scales.sha256)?;
            digest.add_digests(w.role, w.layer, w.shape, packed.group, codes, scales);
        }
        Some(digest.finish())
    }
}

/// Names of the stored tensors of a packed weight: codes and scales.
pub(in crate::weights) fn tensor_names(role: RoleName, layer: Option<usize>) -> [String; 2] {
    let stem = match layer {
        Some(layer) => format!("{PACKED_PREFIX}layers.{layer}.{role}"),
        None => format!("{PACKED_PREFIX}{role}"),
    };
    [format!("{stem}.codes"), format!("{stem}.scales")]
}
