//! The harness from outside: bad files, runs that are killed, exit codes, schemas.

mod exit_codes;
mod runner;
mod schemas;
mod spec;
mod support;
