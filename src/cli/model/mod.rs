//! `assay model`: what a checkpoint is, without running it.

mod command;
mod describe;
mod placement;
mod progress;
mod quantize;
mod synth;
mod verify;

pub(crate) use command::{Args, run};
