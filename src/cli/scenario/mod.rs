//! `assay scenario`: list, show, lint, run.

mod command;
mod error_rates;
mod list;
mod run;
mod show;
mod worker;

pub(super) use command::{Args, run};

use command::{check_surroundings, key_value, root, selected};
