//! The region inventory: the file that owns which executions of a region agree, and how far.

use super::spec::{Diagnostic, NonEmpty, Tolerance, parse_yaml};
use crate::backend::{DeviceKind, Policy, Region};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// The file, relative to the project folder. It is a gate of kind `region_inventory` as well.
pub const INVENTORY_PATH: &str = "gates/region-inventory.yaml";

/// How a region comes to be executed.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ExecutionCase {
    /// The prompt in chunks.
    ChunkedPrefill,
    /// The same prompt cut elsewhere.
    SplitPrefill,
    /// Token by token: the canonical case every other one is compared with.
    RecurrentPrefill,
    /// A last chunk of one token.
    #[serde(rename = "tail_1")]
    Tail1,
    /// One token after a prompt.
    Decode,
    /// Several candidate tokens at once.
    VerifyRows,
    /// One token of several sequences at once.
    BatchedDecode,
}

impl ExecutionCase {
    /// Every case of the engine.
    pub const ALL: [ExecutionCase; 7] = [
        ExecutionCase::ChunkedPrefill,
        ExecutionCase::SplitPrefill,
        ExecutionCase::RecurrentPrefill,
        ExecutionCase::Tail1,
        ExecutionCase::Decode,
        ExecutionCase::VerifyRows,
        ExecutionCase::BatchedDecode,
    ];

    /// The case every other one is compared with.
    pub const CANONICAL: ExecutionCase = ExecutionCase::RecurrentPrefill;

    /// The spelling used in files and trial names.
    pub fn name(self) -> &'static str {
        match self {
            ExecutionCase::ChunkedPrefill => "chunked_prefill",
            ExecutionCase::SplitPrefill => "split_prefill",
            ExecutionCase::RecurrentPrefill => "recurrent_prefill",
            ExecutionCase::Tail1 => "tail_1",
            ExecutionCase::Decode => "decode",
            ExecutionCase::VerifyRows => "verify_rows",
            ExecutionCase::BatchedDecode => "batched_decode",
        }
    }

    /// The case of this name.
    pub fn parse(name: &str) -> Option<ExecutionCase> {
        Self::ALL.into_iter().find(|c| c.name() == name)
    }
}

impl fmt::Display for ExecutionCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What is claimed of a case compared with the canonical one.
#[derive(Clone, Debug, PartialEq, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RegionVerdict {
    /// The same inputs and state give the same bits, by construction.
    Exact,
    /// A known, measured deviation.
    Exception {
        /// Bounds that must hold.
        bounds: Tolerance,
        /// Shapes it was measured at.
        shapes: String,
        /// Device architecture it was measured on.
        architecture: String,
        /// How persistent state was compared.
        state: String,
        why: String,
    },
    /// Compared, measured, reported; nothing is claimed.
    Unverified,
    /// Cannot run; asking for it is an error.
    NotApplicable { why: String },
}

/// A verdict and where it holds.
#[derive(Clone, Debug, PartialEq, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VerdictRow {
    pub device: NonEmpty<DeviceKind>,
    pub policy: NonEmpty<Policy>,
    /// The cases; left out, every case that reaches the region.
    #[serde(default)]
    pub case: Option<NonEmpty<ExecutionCase>>,
    pub verdict: RegionVerdict,
}

/// An array that a region reads or writes.
#[derive(Clone, Debug, PartialEq, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ArrayEntry {
    pub name: String,
    /// `activation` is BF16-rounded FP32 in `reference`, FP32 in `f32`.
    pub dtype: String,
    /// Dimension names, outermost first.
    pub shape: Vec<String>,
    #[serde(default = "row_major")]
    pub layout: String,
}

fn row_major() -> String {
    "row-major".to_owned()
}

/// Why repeated and differently cut executions agree.
#[derive(Clone, Debug, PartialEq, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Determinism {
    pub class: DeterminismClass,
    /// What fixes the order of operations.
    pub mechanism: String,
}

/// How far results depend on the execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeterminismClass {
    /// No reduction: each output element is a function of few inputs.
    Elementwise,
    /// A reduction whose order depends on the row's own content and positions only.
    FixedOrder,
    /// The same run gives the same bits; other cuts may not.
    RunToRun,
}

/// Whether a region draws random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RngUse {
    None,
    /// One word per stochastic token from the request's own generator.
    OneWordPerToken,
}

/// One region of the inventory.
#[derive(Clone, Debug, PartialEq, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RegionEntry {
    pub inputs: NonEmpty<ArrayEntry>,
    pub outputs: NonEmpty<ArrayEntry>,
    /// What it keeps between calls.
    #[serde(default)]
    pub state: Vec<ArrayEntry>,
    /// Values that a backward pass will need.
    #[serde(default)]
    pub backward_needs: Vec<String>,
    /// The execution cases that reach it.
    pub cases: NonEmpty<ExecutionCase>,
    pub determinism: Determinism,
    pub rng: RngUse,
    pub verdicts: NonEmpty<VerdictRow>,
}

impl RegionEntry {
    /// The verdicts stated for a case, policy and device; consistent files have exactly one.
    pub fn verdicts_of(
        &self,
        case: ExecutionCase,
        policy: Policy,
        device: DeviceKind,
    ) -> Vec<&RegionVerdict> {
        self.verdicts
            .iter()
            .filter(|row| {
                row.device.contains(&device)
                    && row.policy.contains(&policy)
                    && row.case.as_ref().is_none_or(|cases| cases.contains(&case))
            })
            .map(|row| &row.verdict)
            .collect()
    }
}

/// The verdicts of every region.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Inventory {
    pub regions: BTreeMap<Region, RegionEntry>,
    /// Regions of the numerical contract that this engine does not have, with the reason.
    pub excluded: BTreeMap<String, String>,
}

impl Inventory {
    /// Reads `gates/region-inventory.yaml` of a project folder.
    ///
    /// # Errors
    /// The file cannot be read or is not an inventory.
    pub fn read(root: &Path) -> Result<Inventory, Diagnostic> {
        let path = root.join(INVENTORY_PATH);
        let text = super::spec::read_file(&path)?;
        parse_yaml(&path, &text)
    }

    /// The verdict of a region in a case, under a policy that the device executes.
    ///
    /// # Errors
    /// The file says nothing about it, or more than one thing.
    pub fn verdict(
        &self,
        region: Region,
        case: ExecutionCase,
        policy: Policy,
        device: DeviceKind,
    ) -> Result<&RegionVerdict, String> {
        let place = format!("`{region}` in `{case}` under `{policy}` on {device}");
        let Some(entry) = self.regions.get(&region) else {
            return Err(format!("the inventory has no region `{region}`"));
        };
        if !entry.cases.contains(&case) {
            return Err(format!("the inventory says that `{case}` does not reach `{region}`"));
        }
        match entry.verdicts_of(case, policy, device)[..] {
            [verdict] => Ok(verdict),
            [] => Err(format!("the inventory states no verdict for {place}")),
            ref several => {
                Err(format!("the inventory states {} verdicts for {place}", several.len()))
            }
        }
    }
}
