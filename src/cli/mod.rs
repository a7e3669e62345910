//! The `assay` command line: the only layer that prints, reads arguments and uses `anyhow`.
//!
//! Every subcommand is one module with a clap `Args` type and
//! `run(Args, &Console) -> Result<Exit, Failure>`; adding one is a `mod` line and a line in
//! `root`.

mod capture;
mod command_line;
mod complete;
mod console;
mod counts;
mod doctor;
mod engine_args;
mod eval;
mod failure;
mod gates;
mod generate;
mod kernels;
mod loading;
mod manifest;
mod model;
mod model_args;
mod placement_args;
mod placement_json;
mod report;
mod root;
mod scenario;
mod schema;
mod table;
mod terminal;
mod worker;

pub(crate) use command_line::{command_line, set_values};
pub(crate) use console::{Console, Tone};
pub(crate) use failure::{Failure, OrExit, unless_closed};
pub(crate) use placement_json::placement_json;
pub use root::main;
