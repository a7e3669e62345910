//! `assay report`: render, check, compare, merge.

mod command;
mod compare;
mod merge;

pub(super) use command::{Args, run};
