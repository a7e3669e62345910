//! `assay model`: what a checkpoint is, without running it.

mod command;
mod describe;
mod synth;
mod table;

pub(crate) use command::{Args, run};
