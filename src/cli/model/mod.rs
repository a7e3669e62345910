//! `assay model`: what a checkpoint is, without running it.

mod command;
mod describe;
mod synth;

pub(crate) use command::{Args, run};
