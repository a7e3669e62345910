//! `assay kernels`: the CUDA sources, their compilation without a GPU, questions to a device.

mod build;
mod command;
mod list;
mod measure;
mod probe;

pub(super) use command::{Args, run};
