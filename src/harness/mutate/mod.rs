//! Can the gates fail? Plants one defect at a time and runs the gates until one notices.
//!
//! The binary with switches is compiled once; a switch is turned on by an environment variable, so
//! a survey costs what the gates cost until the first failure. [`Survey`] is the record, and the
//! page of it a pure function of that.

mod record;
mod run;
mod survey;

#[cfg(test)]
pub(in crate::harness) mod tests;

pub use record::{Kill, Mutation, RegionShare, SURVEY_VERSION, Survey, SurveyKind, SurveyRecord};
pub use run::{MutateError, Subject, build};
pub use survey::{Baseline, baseline, rounds, store, survey};
