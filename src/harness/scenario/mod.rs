//! Scenarios: a question about two or more arms, measured in quads and decided by a rule.
//!
//! `spec → plan → run → lines → verdict`: [`decide()`] is a pure function of the [`Plan`] and the
//! recorded [`Line`]s; [`run_scenario`] is the only part that starts processes and reads clocks.

mod arm_weights;
mod bandwidth;
mod campaign;
mod decide;
mod device;
mod discover;
mod error_rate_spec;
mod errors;
mod evidence;
mod foreign;
mod identify;
mod identity;
mod lint;
mod loaded_arm;
mod measure_quality;
mod metric;
mod overrides;
mod peers;
mod plan;
mod process;
mod profile;
mod quads;
mod quality;
mod record;
mod rule;
mod run;
mod sample;
mod schedule;
mod spec;
mod start;
mod store;
mod surroundings;
mod worker;

#[cfg(test)]
mod decide_tests;
#[cfg(test)]
pub(in crate::harness) mod errors_tests;
#[cfg(test)]
mod spec_tests;
#[cfg(test)]
pub(in crate::harness) mod testing;

pub use arm_weights::ArmWeights;
pub use bandwidth::{Probe, ReadProbe};
pub use campaign::{Campaign, CampaignEnd, CampaignWatch, run_campaign};
pub use decide::{Comparison, Verdict, decide, is_dropped, peer_comparisons};
pub use device::{DeviceReading, Extremes, Sensed};
pub use discover::{SCENARIOS, scenarios};
pub use error_rate_spec::ErrorRateSpec;
pub use errors::{
    CAMPAIGN_VERSION, CampaignKind, CampaignRecord, ErrorRun, ErrorSummary, Errors, NamedLine,
    Plans, Procedure, Rate, established,
};
pub use evidence::{GateState, gate_state};
pub use foreign::{
    ArmBuild, BesideRecord, BuildError, PEER_PROTOCOL, PeerAsk, PeerOutput, PeerRecord, PeerReply,
    PeerSample, RecordedError, folder_digest, read_recorded, resolve_build,
};
pub use metric::{Metric, Point};
pub use overrides::MODEL_KEY;
pub use plan::Plan;
pub use process::{WorkerCommand, WorkerError};
pub use profile::model_source;
pub use quality::{
    Budget, BudgetResult, Figures, LogitCheck, QualityMetric, QualityRecord, QualitySpec,
};
pub use record::{
    ArmRecord, GateEvidence, RegionTime, SCENARIO_RECORD_VERSION, ScenarioFacts, ScenarioKind,
    ScenarioRecord, ScenarioRun, StepRegions, exit,
};
pub use rule::{AdmitWhen, At, Decision, Rule};
pub use run::{Part, RunEnd, RunError, RunRequest, Watch, run_scenario};
pub use sample::{Launch, LaunchEnd, LaunchedArm, Line, QuadLine, Sample, Slot};
pub use spec::{
    Arm, ArmKind, BASELINE, Block, Bound, Measure, ModelSpec, PrefillUse, Profile, Recorded,
    ScenarioFile, ScenarioSpec, Sweep, Turn, Workload, scenario_schema,
};
pub use store::{StoredRun, load_scenario_run};
pub use worker::{Ask, Load, Loaded, ModelSource, Reply, serve};

pub(in crate::harness) use identity::manifest_of;
