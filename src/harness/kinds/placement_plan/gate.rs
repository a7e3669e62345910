//! The gate: plans with their numbers, and refusals with their messages.

use super::Ranks;
use crate::descriptor::{Descriptor, RoleName, from_dir};
use crate::harness::kind::{
    Case, Cell, DeviceUse, Fault, GateKind, KindSpec, Outcome, PlanScope, PolicyUse, RunContext,
};
use crate::harness::kinds::packing::Packing;
use crate::placement::{Device, Placement, PlacementError, RoleSlice};
use crate::tensor::Int4Shape;
use crate::weights::Sidecar;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const BF16_BYTES: u64 = 2;

/// Placements of descriptors, as snapshots.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::harness::kinds) struct PlacementPlan {
    /// Placements that must come out so.
    #[serde(default)]
    plans: Vec<Planned>,
    /// Placements that must be refused so.
    #[serde(default)]
    refusals: Vec<Refused>,
}

/// A placement and what it comes to.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Planned {
    /// Name of the trial.
    case: String,
    /// A descriptor file, or a folder with a `config.json`, whose weights may be packed.
    descriptor: PathBuf,
    ranks: Ranks,
    /// Layers of every stage: the first, and the one after the last.
    stages: Vec<[usize; 2]>,
    /// Weights of every rank, in BF16 or as the folder has them packed.
    weights_bytes: Vec<u64>,
    /// Keys and values in BF16 that one token adds to every rank.
    cache_bytes_per_token: Vec<u64>,
    /// Roles that every rank of a group holds in full.
    replicated: Vec<String>,
    /// Roles whose heads several ranks share.
    shared_heads: Vec<String>,
    /// Roles whose cuts are no subtrees of the reduction tree.
    off_the_tree: Vec<String>,
}

/// A placement that must be refused.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Refused {
    /// Name of the trial.
    case: String,
    /// A descriptor file, or a folder with a `config.json`, whose weights may be packed.
    descriptor: PathBuf,
    /// Places of the descriptor's text to replace first.
    #[serde(default)]
    change: Vec<Replace>,
    /// Roles to think of as packed into four bits.
    #[serde(default)]
    int4: Option<Packing>,
    ranks: Ranks,
    /// The whole message.
    refused: String,
}

/// One place of a text, there exactly once.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Replace {
    find: String,
    with: String,
}

impl KindSpec for PlacementPlan {
    const NAME: &'static str = "placement_plan";
    const DEVICE: DeviceUse = DeviceUse::Host;
    const POLICY: PolicyUse = PolicyUse::None;
}

impl GateKind for PlacementPlan {
    fn cases(&self, _scope: &PlanScope) -> Result<Vec<Case>, Fault> {
        let plans = self.plans.iter().map(|p| &p.case);
        let names: Vec<&String> = plans.chain(self.refusals.iter().map(|r| &r.case)).collect();
        let mut seen = BTreeSet::new();
        if let Some(twice) = names.iter().find(|name| !seen.insert(**name)) {
            return Err(Fault::at("plans", format!("two trials would be named `{twice}`")));
        }
        Ok(names.into_iter().map(Case::named).collect())
    }

    fn run(&self, cell: &Cell, context: &RunContext) -> Outcome {
        let name = cell.case.as_deref().unwrap_or_default();
        if let Some(planned) = self.plans.iter().find(|p| p.case == name) {
            return planned.check(context).unwrap_or_else(Outcome::error);
        }
        match self.refusals.iter().find(|r| r.case == name) {
            Some(refused) => refused.check(context).unwrap_or_else(Outcome::error),
            None => Outcome::error(format!("no placement `{name}`")),
        }
    }
}

impl Planned {
    fn check(&self, context: &RunContext) -> Result<Outcome, String> {
        let path = context.path(&self.descriptor);
        let d = read(&path)?;
        let sidecar = sidecar(&path, &d)?;
        let stored = sidecar.as_ref().map(|s| s.stored(&d)).unwrap_or_default();
        let p = match place(&d, &self.ranks, sidecar.as_ref()) {
            Ok(p) => p,
            Err(e) => return Ok(Outcome::fail(format!("expected a plan, found: {e}"))),
        };
        let names = |roles: &mut dyn Iterator<Item = RoleName>| {
            roles.map(|role| role.as_str().to_owned()).collect::<Vec<_>>()
        };
        let divided = p.group_ranks() > 1;
        let whole = d.roles.iter().filter(|role| divided && p.ways(role) == 1);
        let per_rank =
            |of: &dyn Fn(crate::placement::Rank) -> u64| p.ranks().map(of).collect::<Vec<_>>();
        let stages: Vec<[usize; 2]> = p.stages.iter().map(|s| [s.start, s.end]).collect();
        let weights = per_rank(&|rank| p.weight_bytes(&d, rank, &stored));
        let cache = per_rank(&|rank| p.cache_elements_per_token(&d, rank) * BF16_BYTES);
        let replicated = names(&mut whole.map(|role| role.name));
        let shared = names(&mut p.shared_heads(&d).into_iter().map(|shared| shared.role));
        let off = names(&mut p.cuts_off_the_tree().map(|cut| cut.role));
        let found = [
            ("stages", stages == self.stages, format!("{stages:?}")),
            ("weights_bytes", weights == self.weights_bytes, format!("{weights:?}")),
            ("cache_bytes_per_token", cache == self.cache_bytes_per_token, format!("{cache:?}")),
            ("replicated", replicated == self.replicated, format!("{replicated:?}")),
            ("shared_heads", shared == self.shared_heads, format!("{shared:?}")),
            ("off_the_tree", off == self.off_the_tree, format!("{off:?}")),
        ];
        let wrong: Vec<String> = found
            .iter()
            .filter(|(_, same, _)| !same)
            .map(|(key, _, text)| format!("`{key}` is {text}"))
            .collect();
        if wrong.is_empty() {
            return Ok(Outcome::pass(format!("{} as written", p.policy().name()))
                .with("ranks", p.devices.len() as u64));
        }
        Ok(Outcome::fail(wrong.join("; ")))
    }
}

impl Refused {
    fn check(&self, context: &RunContext) -> Result<Outcome, String> {
        let path = context.path(&self.descriptor);
        let mut text = read(&path)?.to_json();
        for Replace { find, with } in &self.change {
            let places = text.matches(find.as_str()).count();
            if places != 1 {
                return Err(format!("`{find}` stands {places} times in the descriptor"));
            }
            text = text.replace(find, with);
        }
        let d = Descriptor::from_json("the changed descriptor", text.as_bytes())
            .map_err(|e| e.to_string())?;
        let packed = self.int4.as_ref().map_or(Ok(Vec::new()), |int4| packed(&d, int4))?;
        let placed = place(&d, &self.ranks, sidecar(&path, &d)?.as_ref())
            .and_then(|placement| placement.check_packed(&d, packed));
        Ok(match placed {
            Ok(_) => Outcome::fail(format!("expected a refusal, found a plan: {}", self.refused)),
            Err(e) if e.to_string() == self.refused => Outcome::pass("refused by name"),
            Err(e) => Outcome::fail(format!("expected the message: {}\nfound: {e}", self.refused)),
        })
    }
}

/// Roles and extents of packed weights.
fn packed(d: &Descriptor, int4: &Packing) -> Result<Vec<(RoleName, Int4Shape)>, String> {
    let recipe = int4.recipe()?;
    let single = Placement::single(d, Device::Cpu);
    let slices = d.roles.iter().filter_map(|role| single.slice(role.name, 0));
    let shape = |slice: &RoleSlice| {
        let [rows, columns] = slice.matrix();
        let shape =
            recipe.shape(rows.of, columns.of).map_err(|e| format!("{}: {e}", slice.role))?;
        Ok((slice.role, shape))
    };
    slices.filter(|slice| recipe.roles.contains(&slice.role)).map(shape).collect()
}

/// What is packed in a folder.
fn sidecar(path: &Path, d: &Descriptor) -> Result<Option<Sidecar>, String> {
    match path.is_dir() {
        true => Sidecar::read(path, d).map_err(|e| e.to_string()),
        false => Ok(None),
    }
}

/// The placement of plain or packed weights.
fn place(
    d: &Descriptor,
    ranks: &Ranks,
    sidecar: Option<&Sidecar>,
) -> Result<Placement, PlacementError> {
    let stored = sidecar.map(|s| s.stored(d)).unwrap_or_default();
    let placement = Placement::plan_stored(d, &ranks.request(), &stored)?;
    placement.check_packed(d, sidecar.into_iter().flat_map(Sidecar::packings))?;
    Ok(placement)
}

/// A descriptor from a file, or from the config of a folder.
pub(in crate::harness::kinds) fn read(path: &Path) -> Result<Descriptor, String> {
    let descriptor = if path.is_dir() { from_dir(path) } else { Descriptor::read(path) };
    descriptor.map_err(|e| e.to_string())
}
