//! A scenario file as it is written.

use super::arm_weights::ArmWeights;
use super::quality::QualitySpec;
use super::{AdmitWhen, Decision, ErrorRateSpec, Metric};
use crate::backend::cuda::Join;
use crate::backend::{DeviceKind, Fusion, Policy};
use crate::harness::spec::{Diagnostic, Located, NonEmpty, Track, distinct, parse_yaml, read_file};
use crate::units::Digest;
use crate::weights::Prefill;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The name of the arm that the others are compared with.
pub const BASELINE: &str = "baseline";

/// An experiment: two or more arms, a workload, and the rule by which the result is admitted.
#[derive(Clone, Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScenarioSpec {
    /// The scenario's name: lower-case letters, digits and hyphens.
    #[schemars(regex(pattern = "^[a-z0-9]+(-[a-z0-9]+)*$"))]
    pub(super) scenario: Located<String>,
    /// What the experiment decides, as a question that yes or no answers.
    #[schemars(length(min = 1))]
    pub(super) question: Located<String>,
    /// The part of the product it belongs to.
    pub track: Track,
    /// Gates that the arms rest on: nothing is measured while one of them is red or unknown here.
    pub gates: NonEmpty<String>,
    /// What is measured on which kind of device; the profile of the device at hand is taken.
    pub profiles: BTreeMap<DeviceKind, Profile>,
    /// What one sample runs.
    pub(super) workload: Located<Workload>,
    /// The arms by name; `baseline` is what the others are compared with.
    pub(super) arms: Located<BTreeMap<String, Arm>>,
    /// Manifest blocks in which the arms may differ, and in nothing else.
    #[serde(default, deserialize_with = "distinct")]
    pub differs_in: BTreeSet<Block>,
    /// How it is measured.
    pub measure: Measure,
    /// Values that replace those of `workload`, each combination measured.
    #[serde(default)]
    pub(super) sweep: Option<Located<Sweep>>,
    /// The physical bound that a report shows the reached fraction of.
    #[serde(default)]
    pub bound: Option<Bound>,
    /// What a candidate may lose in quality; without it speed alone is decided.
    #[serde(default)]
    pub(super) quality: Option<Located<QualitySpec>>,
    /// The rule.
    pub(super) admit_when: Located<AdmitWhen>,
    /// What the author expects, by device: the exit code says whether it came out so.
    #[serde(default)]
    pub expect_decision: BTreeMap<DeviceKind, Decision>,
    /// What `assay scenario error-rates` measures; for a scenario whose arms are the same.
    #[serde(default)]
    pub(super) error_rates: Option<Located<ErrorRateSpec>>,
}

/// What is measured on one kind of device.
#[derive(Clone, Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The model that every arm runs.
    pub(super) model: Located<ModelSpec>,
}

/// A model: a folder, or synthetic weights of a descriptor.
#[derive(Clone, Debug, Default, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelSpec {
    /// A Hugging Face folder (`--set model=DIR` gives one too).
    #[serde(default)]
    pub dir: Option<PathBuf>,
    /// A descriptor whose weights are synthesised.
    #[serde(default)]
    pub synth: Option<PathBuf>,
    /// As `synth`, taken where the folder does not exist.
    #[serde(default)]
    pub or_synth: Option<PathBuf>,
    /// The seed of synthetic weights.
    #[serde(default)]
    pub seed: u64,
}

/// What one sample runs.
#[derive(Clone, Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Tokens of the prompt, prefilled in one step.
    #[schemars(range(min = 1))]
    pub prompt_tokens: u32,
    /// Single-token greedy steps after the first token.
    #[schemars(range(min = 1))]
    pub decode_tokens: u32,
    /// Sequences that decode side by side, forked behind the prompt.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 64))]
    pub sequences: u32,
    /// Whether every sample runs the prompt, or forks a sequence that ran it when the arm was loaded.
    #[serde(default)]
    pub prefill: PrefillUse,
    /// The seed that draws the prompt's token ids.
    #[serde(default)]
    pub prompt_seed: u64,
}

fn one() -> u32 {
    1
}

/// When the prompt of a sample runs.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, serde::Serialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum PrefillUse {
    /// In every sample, timed.
    #[default]
    Timed,
    /// Once, when the arm is loaded: samples decode behind it, and nothing about prefill is measured.
    Once,
}

impl PrefillUse {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
    pub(super) fn is_timed(&self) -> bool {
        *self == PrefillUse::Timed
    }
}

/// What an arm runs before it is the other's turn.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, serde::Serialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Turn {
    /// A whole sample: the four samples of a quad run one after the other.
    #[default]
    Sample,
    /// One step of the decode: the four samples of a quad advance by turns, in the order A B B A again
    /// and again, so that what changes within a quad meets both arms alike.
    Step,
}

impl Turn {
    /// Whether it is a whole sample.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
    pub(super) fn is_sample(&self) -> bool {
        *self == Turn::Sample
    }
}

/// How one arm executes.
#[derive(Clone, Debug, Default, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Arm {
    /// The numerical policy (default: the device's).
    #[serde(default)]
    pub policy: Option<Policy>,
    /// Computing threads (default: one per processor that the process may use).
    #[serde(default)]
    #[schemars(range(min = 1, max = 1024))]
    pub threads: Option<usize>,
    /// Operations merged in the plan (default: none).
    #[serde(default)]
    pub fusions: Vec<Fusion>,
    /// Operations that a CUDA device launches one by one although it could join them (default: none).
    #[serde(default)]
    pub apart: Vec<Join>,
    /// Which weights it executes (default: those of the model).
    #[serde(default)]
    pub weights: ArmWeights,
    /// Roles that `weights: int4` packs.
    #[serde(default)]
    pub roles: Vec<String>,
    /// Values along K that share a scale (default: for every role the most that divide its K).
    #[serde(default)]
    pub group_size: Option<usize>,
    /// What prefill reads where weights are packed (default: the packed ones).
    #[serde(default)]
    pub prefill: Option<Prefill>,
    /// Another build of this engine: a revision, built on first use, or the path of a binary.
    #[serde(default)]
    pub build: Option<String>,
    /// Another engine: a program that speaks the peer protocol, started in the file's folder; a word
    /// `$NAME` stands for that environment variable. Its ratio is shown and never decides.
    #[serde(default)]
    pub command: Option<Vec<String>>,
    /// An arm of a committed report, shown beside without a ratio.
    #[serde(default)]
    pub recorded: Option<Recorded>,
    /// Takes this share of a candidate's speed away by waiting, to establish what the harness
    /// misses.
    #[serde(default)]
    pub slowdown_ratio: Option<f64>,
}

/// An arm of a committed report.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Recorded {
    /// The report's folder, which holds its `record.json`.
    pub report: PathBuf,
    /// The arm's name there.
    pub arm: String,
}

/// Who executes an arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArmKind {
    /// This build or another one of this engine: decided on.
    Engine,
    /// A live peer: measured, never decided on.
    Peer,
    /// Shown from a record.
    Recorded,
}

impl Arm {
    /// Who executes it.
    pub fn kind(&self) -> ArmKind {
        match (&self.command, &self.recorded) {
            (Some(_), _) => ArmKind::Peer,
            (None, Some(_)) => ArmKind::Recorded,
            (None, None) => ArmKind::Engine,
        }
    }
}

/// A block of the manifest in which arms may differ.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Deserialize,
    serde::Serialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Block {
    /// How the model is computed.
    NumericalPolicy,
    /// Where it runs.
    Deployment,
    /// How the weights lie in files.
    Storage,
    /// What was compiled (arms of other builds).
    Build,
}

/// How a scenario is measured.
#[derive(Clone, Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Measure {
    /// Untimed runs of every workload in every fresh process.
    #[schemars(range(min = 1))]
    pub(super) warmup: Located<u32>,
    /// Quads (A B B A) of every series at each look, rising.
    pub(super) quads: Located<NonEmpty<usize>>,
    /// Fresh process launches that the quads of the first look are spread over.
    #[schemars(range(min = 1))]
    pub(super) launches: Located<usize>,
    /// What an arm runs before it is the other's turn (default: a whole sample).
    #[serde(default)]
    pub turn: Turn,
    /// What is reported.
    pub metrics: NonEmpty<Metric>,
    /// Whether every arm also times the regions of its steps, each by itself, once it is warm (on
    /// devices that can).
    #[serde(default)]
    pub regions: bool,
}

/// Values that replace those of the workload.
#[derive(Clone, Debug, Default, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    #[serde(default)]
    pub prompt_tokens: Vec<u32>,
    #[serde(default)]
    pub decode_tokens: Vec<u32>,
    #[serde(default)]
    pub sequences: Vec<u32>,
}

/// A physical bound.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Deserialize, serde::Serialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// Bytes that a token must read / the read bandwidth measured in the same quad.
    MemoryBandwidth,
}

/// A scenario file and its text.
#[derive(Clone, Debug)]
pub struct ScenarioFile {
    pub spec: ScenarioSpec,
    pub path: PathBuf,
    /// The text as read; recorded with every run.
    pub text: String,
    /// SHA-256 of the text.
    pub digest: Digest,
}

impl ScenarioFile {
    /// Reads a scenario file strictly.
    ///
    /// # Errors
    /// A [`Diagnostic`] that points at the place in the file.
    pub fn read(path: &Path) -> Result<ScenarioFile, Diagnostic> {
        ScenarioFile::parse(path, &read_file(path)?)
    }

    /// As [`ScenarioFile::read`], from text; `path` is for messages and relative paths.
    ///
    /// # Errors
    /// As [`ScenarioFile::read`].
    pub fn parse(path: &Path, text: &str) -> Result<ScenarioFile, Diagnostic> {
        let spec: ScenarioSpec = parse_yaml(path, text)?;
        let digest = Digest::of(text.as_bytes());
        let file = ScenarioFile { spec, path: path.to_owned(), text: text.to_owned(), digest };
        super::lint::lint(&file)?;
        Ok(file)
    }

    /// The scenario's name.
    pub fn name(&self) -> &str {
        &self.spec.scenario.value
    }

    /// The question.
    pub fn question(&self) -> &str {
        &self.spec.question.value
    }

    /// The arms by name.
    pub fn arms(&self) -> &BTreeMap<String, Arm> {
        &self.spec.arms.value
    }

    /// The seed that draws prompts.
    pub fn prompt_seed(&self) -> u64 {
        self.spec.workload.value.prompt_seed
    }

    /// When prompts run.
    pub fn prefill(&self) -> PrefillUse {
        self.spec.workload.value.prefill
    }

    /// What candidates may lose in quality, if that decides.
    pub fn quality(&self) -> Option<&QualitySpec> {
        self.spec.quality.as_ref().map(|q| &q.value)
    }

    /// How error rates are resampled, if they are.
    pub fn error_rates(&self) -> Option<&ErrorRateSpec> {
        self.spec.error_rates.as_ref().map(|e| &e.value)
    }

    /// A message about a place of the file.
    pub(super) fn at<T>(&self, place: &Located<T>, message: impl Into<String>) -> Diagnostic {
        Diagnostic::new(&self.path, message).at(&self.text, place.line, place.column, 1)
    }
}

/// JSON Schema of scenario files.
pub fn scenario_schema() -> schemars::Schema {
    schemars::schema_for!(ScenarioSpec)
}
