//! Records: what a run leaves behind, append-only, one line per trial.
//!
//! `results/<run-id>/` holds `run.json` ([`RunRecord`]) and `trials.jsonl` (one [`TrialRecord`] a
//! line). The folder is `<run-id>.partial` until the run is complete. Every line carries the
//! digest of the line before it, so a changed, lost or reordered line is noticed.

mod error;
mod junit;
pub(super) mod line;
mod load;
mod markdown;
mod merge;
mod summary;
mod types;
mod write;

pub use error::RecordError;
pub(in crate::harness) use junit::escape as escape_xml;
pub use junit::junit;
pub use load::{GateRun, load};
pub(in crate::harness) use markdown::escape as escape_markdown;
pub use markdown::markdown;
pub use merge::{MergeError, Merged, merge};
pub use summary::{Counts, GateSummary, HeatMap, HeatRow, RunSummary, SkipGroup, summarise};
pub use types::{
    BuildRecord, DeviceRecord, GateRecord, MachineRecord, MergedRun, NotApplicable, RunKind,
    RunOptions, RunRecord, SCHEMA_VERSION, TrialRecord, run_id, unestablished,
};
pub use write::RunWriter;
