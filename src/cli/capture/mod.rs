//! `assay capture`: record what an execution computes, and compare two recordings.

mod command;
mod compare;
mod record;
mod render;

pub(crate) use command::{Args, run};
pub(crate) use compare::ModeArgs;
pub(crate) use render::difference;
