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
mod summary;
mod types;
mod write;

pub use error::RecordError;
pub use junit::junit;
pub use load::{GateRun, load};
pub use markdown::markdown;
pub use summary::{Counts, GateSummary, HeatMap, HeatRow, RunSummary, SkipGroup, summarise};
pub use types::{
    BuildRecord, DeviceRecord, GateRecord, MachineRecord, NotApplicable, RunKind, RunOptions,
    RunRecord, SCHEMA_VERSION, TrialRecord,
};
pub use write::RunWriter;
