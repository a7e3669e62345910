//! The declarative harness: spec → plan → run → records → verdicts → report.

mod kind;

pub mod stats;

pub use kind::{Cell, GateKind, Outcome, PlanScope, RunContext, Verdict};
