//! The harness from outside: bad files, runs that are killed, exit codes, schemas.

mod exit_codes;
mod full_disk;
mod inputs;
mod runner;
mod schemas;
mod set;
#[path = "../support/snapshot.rs"]
mod snapshot;
mod spec;
mod support;
