//! `assay generate`: streaming text from a checkpoint, replayable by seed.

mod args;
mod interrupt;
mod printer;
mod prompt;
mod report;
mod run;

pub(super) use args::Args;
pub(super) use run::run;
