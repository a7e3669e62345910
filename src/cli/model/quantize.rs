//! `assay model quantize`.

use super::progress::bar;
use crate::cli::model_args::folder_exists;
use crate::cli::table::bytes;
use crate::cli::{Console, Failure};
use crate::descriptor::{Descriptor, RoleName, Word as _};
use crate::units::{Exit, nearest};
use crate::weights::{
    ConvertOptions, Converted, Model, Prefill, Recipe, Treatment, convert, partial_of,
};
use serde_json::json;
use std::collections::BTreeSet;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  assay model quantize --model DIR --roles ffn --out DIR-int4
  assay model quantize --model DIR --roles ffn,lm_head --group 64 --out ./q4
  assay model quantize --model DIR --roles ffn --prefill bf16 --out ./both
  assay model quantize --model DIR --roles experts,shared,lm_head --out ./moe4

Roles are names (mlp_gate, attn_q, …) or sets of them: ffn, attention, gdn, mla, experts (of a mixture), \
shared (experts), all. The source is only read. A stopped conversion goes on where it was when the same command runs again.";

/// Sets of roles by name.
const SETS: [(&str, &[RoleName]); 6] = [
    ("ffn", &[RoleName::MlpGate, RoleName::MlpUp, RoleName::MlpDown]),
    ("attention", &[RoleName::AttnQ, RoleName::AttnK, RoleName::AttnV, RoleName::AttnO]),
    ("gdn", &[RoleName::GdnQkv, RoleName::GdnZ, RoleName::GdnOut]),
    ("mla", &[RoleName::MlaQ, RoleName::MlaQA, RoleName::MlaQB, RoleName::MlaKvA, RoleName::MlaO]),
    ("experts", &[RoleName::MoeGate, RoleName::MoeUp, RoleName::MoeDown]),
    ("shared", &[RoleName::SharedGate, RoleName::SharedUp, RoleName::SharedDown]),
];

/// Arguments of `assay model quantize`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Hugging Face folder with the weights to pack
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// Which weights: role names or ffn, attention, gdn, mla, experts, shared, all
    #[arg(long, value_name = "ROLE,…", value_delimiter = ',', required = true)]
    roles: Vec<String>,
    /// Values that share a scale: 32, 64 or 128 [default: for every role the most that divide its K]
    #[arg(long, value_name = "N")]
    group: Option<usize>,
    /// What prefill will read: the packed weights, or the BF16 ones, which are then kept beside
    #[arg(long, value_name = "WEIGHTS", default_value = "packed", value_parser = ["packed", "bf16"])]
    prefill: String,
    /// Folder to write; must not exist
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Largest file, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 2_000_000_000,
        value_parser = clap::value_parser!(u64).range(1..))]
    max_shard_bytes: u64,
}

/// Runs `assay model quantize`.
pub(super) fn run(args: &Args, console: &Console) -> Result<Exit, Failure> {
    folder_exists(&args.model)?;
    let model = Model::open(&args.model)?;
    let recipe = Recipe {
        roles: roles(&args.roles, &model.descriptor)?,
        group: args.group,
        prefill: if args.prefill == "bf16" { Prefill::Bf16 } else { Prefill::Packed },
    };
    let bar = bar(console, "quantizing");
    let report = |done: u64, total: u64| {
        bar.set_length(total);
        bar.set_position(done);
    };
    let options =
        ConvertOptions { recipe, max_shard_bytes: args.max_shard_bytes, progress: Some(&report) };
    let result = convert(&model, &args.model, &args.out, &options);
    bar.finish_and_clear();
    let converted = result.map_err(|e| {
        let exit = if e.is_io() { Exit::Io } else { Exit::Usage };
        Failure::new(exit, e)
    })?;
    if converted.resumed_files > 0 {
        console.note(&format!(
            "went on in {}: {} files were complete",
            partial_of(&args.out).display(),
            converted.resumed_files
        ));
    }
    print(args, &converted, console)?;
    Ok(Exit::Success)
}

/// The roles that names and sets give, in a model.
fn roles(names: &[String], descriptor: &Descriptor) -> Result<BTreeSet<RoleName>, Failure> {
    let present = |role: &RoleName| descriptor.roles.iter().any(|r| r.name == *role);
    let mut roles = BTreeSet::new();
    for name in names {
        if name == "all" {
            roles.extend(RoleName::ALL.iter().filter(|r| r.is_projection() && present(r)));
        } else if let Some((_, set)) = SETS.iter().find(|(set, _)| set == name) {
            let of_model: Vec<RoleName> = set.iter().copied().filter(present).collect();
            if of_model.is_empty() {
                return Err(Failure::usage(format!("--roles {name}: the model has none of them")));
            }
            roles.extend(of_model);
        } else if let Some(role) = RoleName::parse(name) {
            roles.insert(role);
        } else {
            let projections = RoleName::ALL.iter().filter(|r| r.is_projection());
            let known: Vec<&str> = SETS
                .iter()
                .map(|(set, _)| *set)
                .chain(["all"])
                .chain(projections.map(|r| r.as_str()))
                .collect();
            let near = nearest(name, known.iter().copied());
            let help = near.map(|n| format!("; the nearest is {n}")).unwrap_or_default();
            return Err(Failure::usage(format!(
                "--roles {name}: no role or set of roles{help}; known are {}",
                known.join(", ")
            )));
        }
    }
    Ok(roles)
}

fn print(args: &Args, converted: &Converted, console: &Console) -> Result<(), Failure> {
    let sidecar = &converted.sidecar;
    let quantised = sidecar.quantised().count();
    let retained = sidecar.weights.iter().filter(|w| w.treatment == Treatment::Retained).count();
    let source: u64 = sidecar.source.files.iter().map(|f| f.bytes).sum();
    let written: u64 = sidecar.files.iter().map(|f| f.bytes).sum();
    let worst = sidecar.quantised().map(|(_, p)| p.error.relative_rms).fold(0.0, f64::max);
    if console.json() {
        console.product_json(&json!({
            "folder": args.out,
            "digest": sidecar.digest,
            "quantised": quantised,
            "retained": retained,
            "source_bytes": source,
            "bytes": written,
            "largest_relative_rms": worst,
            "resumed_files": converted.resumed_files,
        }))?;
        return Ok(());
    }
    console.product(&format!(
        "{}\n{quantised} weights quantised, {retained} retained; {} instead of {}\n\
         largest relative rms of a weight {worst:.4}\nartifact {}\n",
        args.out.display(),
        bytes(written),
        bytes(source),
        sidecar.digest
    ))?;
    Ok(())
}
