//! `assay model describe`.

use super::placement::Placed;
use crate::cli::model_args::DescriptorArgs;
use crate::cli::placement_args::PlacementArgs;
use crate::cli::table::{bytes, columns, grouped};
use crate::cli::{Console, Failure, OrExit};
use crate::descriptor::{Descriptor, Mixer, OutputGate, Role, Rope, RopeScaling};
use crate::placement::{Device, Placement, Stored};
use crate::units::Exit;
use crate::weights::{ModelError, Sidecar};
use serde_json::{Value, json};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  assay model describe ./SmolLM2-135M
  assay model describe --descriptor descriptors/qwen38-27b.json --json
  assay model describe --descriptor descriptors/qwen38-27b.json --tp 2
  assay model describe --descriptor descriptors/qwen38-27b.json --gpus 0,1";

/// Arguments of `assay model describe`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Hugging Face folder; config.json is enough
    #[arg(value_name = "DIR", required_unless_present = "descriptor")]
    dir: Option<PathBuf>,
    /// Describe this descriptor file instead
    #[arg(long, value_name = "FILE", conflicts_with = "dir")]
    descriptor: Option<PathBuf>,
    #[command(flatten)]
    placement: PlacementArgs,
}

impl Args {
    /// What is packed in the folder.
    fn sidecar(&self, d: &Descriptor) -> Result<Option<Sidecar>, Failure> {
        let Some(dir) = &self.dir else { return Ok(None) };
        Ok(Sidecar::read(dir, d).map_err(ModelError::from)?)
    }

    /// The placement asked for. Planning needs no device.
    fn placement(
        &self,
        d: &Descriptor,
        sidecar: Option<&Sidecar>,
        stored: Option<&Stored>,
    ) -> Result<Option<Placement>, Failure> {
        if !self.placement.is_given() {
            return Ok(None);
        }
        let kind = if self.placement.gpus.is_empty() { Device::Cpu } else { Device::Cuda(0) };
        let request = self.placement.request(kind);
        let stored = stored.cloned().unwrap_or_default();
        let placed = Placement::plan_stored(d, &request, &stored).or_exit(Exit::Usage)?;
        let packed = sidecar.into_iter().flat_map(Sidecar::packings);
        placed.check_packed(d, packed).or_exit(Exit::Usage)?;
        Ok(Some(placed))
    }
}

/// Runs `assay model describe`.
pub(super) fn run(args: &Args, console: &Console) -> Result<Exit, Failure> {
    let source = DescriptorArgs { descriptor: args.descriptor.clone(), check_descriptor: false };
    let d = source.descriptor_of(&args.dir.clone().unwrap_or_default())?;
    let sidecar = args.sidecar(&d)?;
    let stored = sidecar.as_ref().map(|sidecar| sidecar.stored(&d));
    let stored = stored.as_ref();
    let placed = args.placement(&d, sidecar.as_ref(), stored)?;
    let placed = placed.map(|placement| Placed::new(&d, placement, stored));
    if console.json() {
        let mut json = as_json(&d);
        if let Some(stored) = stored {
            json["weights_packed_bytes"] = packed_bytes(&d, stored).into();
        }
        if let Some(placed) = &placed {
            json["placement"] = placed.as_json();
        }
        console.product_json(&json)?;
    } else {
        let placed = placed.map(|placed| format!("\n{}", placed.as_text()));
        console.product(&(as_text(&d, stored) + &placed.unwrap_or_default()))?;
    }
    Ok(Exit::Success)
}

/// All weights, as the folder holds them.
fn packed_bytes(d: &Descriptor, stored: &Stored) -> u64 {
    let single = Placement::single(d, Device::Cpu);
    single.ranks().map(|rank| single.weight_bytes(d, rank, stored)).sum()
}

fn as_json(d: &Descriptor) -> Value {
    let role = |role: &Role| {
        json!({
            "name": role.name.as_str(),
            "copies": role.copies(),
            "shape": role.shape,
            "parameters": role.parameters(),
            "shard": role.shard.as_str(),
            "tied_to": role.tied_to.map(|t| t.as_str()),
        })
    };
    json!({
        "family": d.family,
        "dimensions": d.dimensions().into_iter().collect::<std::collections::BTreeMap<_, _>>(),
        "layers": d.layers(),
        "layer_mixers": d.layer_mixers,
        "layer_ffns": d.layer_ffns,
        "max_position_tokens": d.max_position_tokens,
        "end_tokens": d.end_tokens,
        "parameters": d.parameters(),
        "weights_bf16_bytes": d.weights_bf16_bytes(),
        "cache_bytes_per_token": d.cache_bytes_per_token(),
        "gdn_state_bytes_per_sequence": d.gdn_state_bytes_per_sequence(),
        "semantic_id": d.semantic().digest().to_string(),
        "roles": d.roles.iter().map(role).collect::<Vec<_>>(),
    })
}

fn as_text(d: &Descriptor, stored: Option<&Stored>) -> String {
    let row = |cells: &[&str]| cells.iter().map(|c| (*c).to_owned()).collect::<Vec<String>>();
    let mut facts = vec![
        row(&["family", &d.family]),
        row(&["layers", &layers(d)]),
        row(&["hidden", &d.hidden.to_string()]),
        row(&["vocabulary", &d.vocab.to_string()]),
        row(&["context", &format!("{} tokens", d.max_position_tokens)]),
        row(&["norm", &format!("{}, epsilon {:e}", d.norm_style, d.norm_epsilon)]),
    ];
    if let Some(a) = &d.attention {
        let norm = if a.qk_norm { ", q/k norm" } else { "" };
        let gate = match a.output_gate {
            OutputGate::None => String::new(),
            gate => format!(", {gate} output gate"),
        };
        let heads = format!("{} query, {} kv heads × {}", a.query_heads, a.kv_heads, a.head_dim);
        facts.push(row(&["attention", &format!("{heads}{norm}{gate}")]));
        if let Some(window) = a.window {
            facts.push(row(&["window", &format!("{window} tokens")]));
        }
        facts.push(rope_row(&a.rope, a.head_dim));
    }
    if let Some(m) = &d.mla {
        let rank = m.query_rank.map_or(String::new(), |r| format!(", query rank {r}"));
        let text = format!(
            "{} heads × ({} + {} rope), values {}, latent {}{rank}",
            m.heads, m.nope_dim, m.rope.rotary_dim, m.value_dim, m.latent_dim
        );
        facts.push(row(&["latent attention", &text]));
        facts.push(rope_row(&m.rope, m.rope.rotary_dim));
    }
    if let Some(g) = &d.gdn {
        let gdn = format!(
            "{} key heads × {}, {} value heads × {}, convolution {}",
            g.key_heads, g.key_dim, g.value_heads, g.value_dim, g.conv_width
        );
        facts.push(row(&["gated delta net", &gdn]));
    }
    if let Some(width) = d.intermediate {
        facts.push(row(&["feed-forward", &format!("dense, {width}")]));
    }
    if let Some(m) = &d.moe {
        let shared = m.shared.map_or(String::new(), |s| format!(", shared {}", s.intermediate));
        let groups = match (m.router.groups, m.router.groups_kept) {
            (1, _) => String::new(),
            (groups, kept) => format!(" in the best {kept} of {groups} groups"),
        };
        let text = format!(
            "{} × {}, {} per token{groups}{shared}",
            m.experts, m.intermediate, m.experts_per_token
        );
        facts.push(row(&["experts", &text]));
    }
    let ends: Vec<String> = d.end_tokens.iter().map(u32::to_string).collect();
    facts
        .push(row(&["end tokens", &if ends.is_empty() { "none".into() } else { ends.join(", ") }]));
    facts.extend([
        row(&["parameters", &grouped(d.parameters())]),
        row(&["weights in BF16", &bytes(d.weights_bf16_bytes())]),
    ]);
    facts.extend(stored.map(|s| row(&["weights as packed", &bytes(packed_bytes(d, s))])));
    facts.extend([
        row(&["cache per token", &bytes(d.cache_bytes_per_token())]),
        row(&["sequence state", &bytes(d.gdn_state_bytes_per_sequence())]),
        row(&["semantic id", &d.semantic().digest().short()]),
    ]);
    let mut roles = vec![row(&["role", "copies", "shape", "parameters", "shard"])];
    roles.extend(d.roles.iter().map(role_row));
    format!("{}\n{}", columns(&facts, &[]), columns(&roles, &[1, 3]))
}

fn rope_row(rope: &Rope, head_dim: usize) -> Vec<String> {
    let scaling = match &rope.scaling {
        RopeScaling::None {} => String::new(),
        scaling => format!(", {} scaling", scaling.as_str()),
    };
    let text = format!(
        "{}, theta {}, {} of {head_dim} dimensions{scaling}",
        rope.convention, rope.theta, rope.rotary_dim
    );
    vec!["rope".to_owned(), text]
}

/// `64: 48 gdn, 16 full_attention`.
fn layers(d: &Descriptor) -> String {
    let kinds: Vec<String> = [Mixer::Gdn, Mixer::FullAttention, Mixer::Mla]
        .into_iter()
        .filter(|mixer| d.layers_with(*mixer) > 0)
        .map(|mixer| format!("{} {mixer}", d.layers_with(mixer)))
        .collect();
    format!("{}: {}", d.layers(), kinds.join(", "))
}

fn role_row(role: &Role) -> Vec<String> {
    let shape: Vec<String> = role.shape.iter().map(usize::to_string).collect();
    let parameters = match role.tied_to {
        Some(other) => format!("tied to {other}"),
        None => grouped(role.parameters()),
    };
    vec![
        role.name.to_string(),
        role.copies().to_string(),
        shape.join(" × "),
        parameters,
        role.shard.to_string(),
    ]
}
