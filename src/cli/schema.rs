//! `assay schema`: JSON Schemas for editors.

use super::{Console, Failure};
use crate::harness::schema;
use crate::units::Exit;

/// Which schema to print
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  assay schema gate > docs/schema/gate.json
  # first line of a YAML file, for editors with a YAML language server:
  # yaml-language-server: $schema=../docs/schema/gate.json")]
pub(super) struct Args {
    /// The kind of file
    kind: Kind,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Kind {
    /// A gate file
    Gate,
    /// A scenario file
    Scenario,
    /// What runs leave: run.json and trials.jsonl
    Record,
}

/// Prints the schema.
pub(super) fn run(args: Args, console: &Console) -> Result<Exit, Failure> {
    let schema = match args.kind {
        Kind::Gate => schema::gate_schema(),
        Kind::Scenario => schema::scenario_schema(),
        Kind::Record => schema::record_schema(),
    };
    console.product_json(&schema)?;
    Ok(Exit::Success)
}
