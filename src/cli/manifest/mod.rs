//! `assay manifest`: which execution a result observed.

mod check;
mod command;
mod compare;
mod show;
mod source;

pub(crate) use command::{Args, run};
