//! `assay gates`: list, show, lint, run, mutate.

mod command;
pub(super) mod finished;
mod lint;
mod list;
mod mutate;
mod run;
mod show;
mod table;

pub(super) use command::{Args, run};

use super::{Console, Failure};
use command::Selection;
