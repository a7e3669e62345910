//! Scenarios: a question about two or more arms, measured in quads and decided by a rule.
//!
//! `spec → plan → run → lines → verdict`: [`decide`] is a pure function of the [`Plan`] and the
//! recorded [`Line`]s.

mod decide;
mod lint;
mod metric;
mod plan;
mod record;
mod rule;
mod sample;
mod spec;

#[cfg(test)]
mod decide_tests;

pub use decide::{Comparison, Verdict, decide, is_dropped};
pub use metric::{Metric, Point};
pub use plan::Plan;
pub use record::{
    ArmRecord, GateEvidence, SCENARIO_RECORD_VERSION, ScenarioFacts, ScenarioKind, ScenarioRecord,
    ScenarioRun, exit,
};
pub use rule::{AdmitWhen, At, Decision, Rule};
pub use sample::{Launch, LaunchEnd, LaunchedArm, Line, QuadLine, Sample, Slot};
pub use spec::{
    Arm, BASELINE, Block, Bound, ErrorRateSpec, Measure, ModelSpec, Profile, ScenarioFile,
    ScenarioSpec, Sweep, Workload, scenario_schema,
};
