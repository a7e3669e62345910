//! The declarative harness.
//!
//! ```text
//! YAML file → Spec (typed, validated) → Plan (expanded trials) → Run (executed)
//!           → Records (append-only, manifest-stamped) → Verdicts → Report
//! ```
//!
//! A gate kind is one module under `kinds/` and one line in its registry. A verdict is a pure
//! function of records and spec; a report is a pure function of records and verdicts.

mod cache;
pub mod capture;
pub mod doctor;
pub mod independent;
mod inventory;
mod kind;
mod kinds;
pub mod mutate;
mod plan;
pub mod records;
pub mod run;
pub mod schema;
mod spec;
#[cfg(test)]
pub(crate) mod testing;

pub mod report;
pub mod scenario;
pub mod stats;

pub use cache::Cache;
pub use inventory::{
    ArrayEntry, Determinism, DeterminismClass, ExecutionCase, INVENTORY_PATH, Inventory,
    RegionEntry, RegionVerdict, RngUse, VerdictRow,
};
pub use kind::{
    Case, Cell, DeviceUse, Fault, GateKind, KindSpec, Outcome, Part, PlanScope, PolicyUse,
    RunContext, Verdict,
};
pub use plan::{
    AxisValue, Matrix, Partition, Pattern, Plan, PlanError, PlanOptions, PlannedGate, Trial,
    devices, discover, glob_matches, plan, project_root, read_gates,
};
pub use spec::{
    Check, Diagnostic, Expectation, Expectations, GateFile, NonEmpty, Requires, Select, Tolerance,
    Track, find, parse_yaml,
};
