//! `assay generate`: streaming text from a checkpoint, replayable by seed.

mod args;
mod interrupt;
mod printer;
mod prompt;
mod report;
mod run;
mod stream;

pub(super) use args::Args;
pub(super) use interrupt::{listen, requested};
pub(super) use prompt::read_text;
pub(super) use run::run;
