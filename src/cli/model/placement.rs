//! The placement part of `assay model describe`.

use super::packed::Packed;
use crate::backend::Policy;
use crate::backend::cpu::Isa;
use crate::cli::table::{bytes, columns};
use crate::descriptor::{Descriptor, Role};
use crate::engine::manifest::NumericalPolicy;
use crate::placement::{Cut, Placement, Rank, Tree};
use serde_json::{Value, json};

const BF16_BYTES: u64 = 2;

/// The placement as JSON.
pub(super) fn as_json(d: &Descriptor, p: &Placement, packed: Option<&Packed>) -> Value {
    let rank = |rank: Rank| {
        let layers = &p.stages[rank.stage];
        let mut json = json!({
            "rank": rank.rank,
            "device": rank.device.to_string(),
            "stage": rank.stage,
            "layers": [layers.start, layers.end],
            "weights_bf16_bytes": p.weight_elements(d, rank) * BF16_BYTES,
            "replicated_bf16_bytes": p.replicated_elements(d, rank) * BF16_BYTES,
            "cache_bytes_per_token": p.cache_elements_per_token(d, rank) * BF16_BYTES,
        });
        if packed.is_some() {
            let [all, replicated] = weight_bytes(d, p, packed, rank);
            json["weights_packed_bytes"] = all.into();
            json["replicated_packed_bytes"] = replicated.into();
        }
        json
    };
    let role = |role: &Role| {
        let slice = p.slice(role.name, 0);
        json!({
            "name": role.name.as_str(),
            "shard": role.shard.as_str(),
            "ways": p.ways(role),
            "shape_on_a_rank": slice.map(|s| s.axes.iter().map(|a| a.len()).collect::<Vec<_>>()),
        })
    };
    let cut = |cut: &Cut| {
        json!({
            "role": cut.role.as_str(),
            "ways": cut.ways,
            "extent": cut.extent,
            "segments": segments(cut),
            "subtree": cut.is_subtree(),
        })
    };
    let shared = p.shared_heads(d);
    json!({
        "policy": p.policy().name(),
        "stages": p.stages.len(),
        "tensor_parallel": p.tensor,
        "expert_parallel": p.expert,
        "ranks": p.ranks().map(rank).collect::<Vec<_>>(),
        "roles": d.roles.iter().map(role).collect::<Vec<_>>(),
        "replicated_roles": replicated(d, p).iter().map(|r| r.name.as_str()).collect::<Vec<_>>(),
        "shared_heads": shared.iter().map(|(role, ranks)| json!({ "role": role.as_str(), "ranks": ranks })).collect::<Vec<_>>(),
        "cuts": p.cuts.iter().map(cut).collect::<Vec<_>>(),
        "bits_of_one_device_under": bitwise(d, p).iter().map(Policy::to_string).collect::<Vec<_>>(),
    })
}

/// Bytes of a rank's weights, and of those that every rank of its group holds: in BF16, or as packed.
fn weight_bytes(d: &Descriptor, p: &Placement, packed: Option<&Packed>, rank: Rank) -> [u64; 2] {
    let Some(packed) = packed else {
        return [p.weight_elements(d, rank), p.replicated_elements(d, rank)]
            .map(|n| n * BF16_BYTES);
    };
    let replicated = p.held(d, rank).filter(|held| held.slice.is_whole());
    [p.held(d, rank).map(|h| packed.bytes(&h)).sum(), replicated.map(|h| packed.bytes(&h)).sum()]
}

/// The placement as tables.
pub(super) fn as_text(d: &Descriptor, p: &Placement, packed: Option<&Packed>) -> String {
    let cells = |cells: &[&str]| cells.iter().map(|c| (*c).to_owned()).collect::<Vec<String>>();
    let mut ranks = vec![cells(&[
        "rank",
        "device",
        "layers",
        if packed.is_some() { "weights as packed" } else { "weights in BF16" },
        "on every rank",
        "cache/token",
    ])];
    ranks.extend(p.ranks().map(|rank| {
        let layers = &p.stages[rank.stage];
        let [all, replicated] = weight_bytes(d, p, packed, rank);
        vec![
            rank.rank.to_string(),
            rank.device.to_string(),
            format!("{}-{}", layers.start, layers.end - 1),
            bytes(all),
            bytes(replicated),
            bytes(p.cache_elements_per_token(d, rank) * BF16_BYTES),
        ]
    }));
    let policy = p.policy().name();
    let heading = format!(
        "placement  {policy}: {} of {} rank{}",
        plural(p.stages.len(), "stage"),
        p.group_ranks(),
        if p.group_ranks() == 1 { "" } else { "s" },
    );
    let mut text = format!("{heading}\n{}", columns(&ranks, &[0, 3, 4, 5]));
    if p.group_ranks() == 1 {
        return text
            + "\nevery rank holds whole layers: the bits of one device under every policy\n";
    }
    let mut roles = vec![cells(&["role", "shard", "ways", "on a rank", "reduction"])];
    roles.extend(d.roles.iter().map(|role| {
        let slice = p.slice(role.name, 0);
        let shape = slice.map(|s| s.axes.iter().map(|a| a.len().to_string()).collect::<Vec<_>>());
        vec![
            role.name.to_string(),
            role.shard.to_string(),
            p.ways(role).to_string(),
            shape.unwrap_or_default().join(" × "),
            p.cut(role.name).map(reduction).unwrap_or_default(),
        ]
    }));
    text += &format!("\n{}\n", columns(&roles, &[2]));
    let names: Vec<&str> = replicated(d, p).iter().map(|r| r.name.as_str()).collect();
    text += &wrapped("replicated", &names);
    for (role, ranks) in p.shared_heads(d) {
        text += &format!("{role}: ranks outnumber heads, {ranks} ranks hold each\n");
    }
    if d.moe.is_some() && p.expert == 1 {
        text += &format!("the experts are on every rank; --ep {} divides them\n", p.tensor);
    }
    let off: Vec<&str> = p.cuts_off_the_tree().map(|cut| cut.role.as_str()).collect();
    if off.is_empty() {
        let policies: Vec<String> = bitwise(d, p).iter().map(Policy::to_string).collect();
        text += &format!(
            "every cut is a subtree of its reduction: the bits of one device under {}\n",
            policies.join(", ")
        );
    } else {
        text += &wrapped("no subtrees, so other bits than one device", &off);
    }
    text
}

/// The policies of the CPU under which the ranks have the bits of one device. `fast` sums a product in
/// one chain, of which no part is a subtree.
fn bitwise(d: &Descriptor, p: &Placement) -> Vec<Policy> {
    let cuts = |policy| NumericalPolicy::of(d, policy, Isa::PORTABLE).placed(p).cuts_off_the_tree;
    let policies = [Policy::Reference, Policy::F32, Policy::Fast];
    policies.into_iter().filter(|policy| cuts(*policy).is_empty()).collect()
}

/// Roles that every rank of a group holds in full.
fn replicated<'a>(d: &'a Descriptor, p: &Placement) -> Vec<&'a Role> {
    d.roles.iter().filter(|role| p.group_ranks() > 1 && p.ways(role) == 1).collect()
}

fn segments(cut: &Cut) -> Option<usize> {
    match cut.tree {
        Tree::Segments(segments) => Some(segments),
        Tree::Experts => None,
    }
}

/// `512 in 8 segments: 4 each`, `576 in 1 segment: no subtree`.
fn reduction(cut: &Cut) -> String {
    let whole = match cut.tree {
        Tree::Segments(segments) => format!("{} in {}", cut.extent, plural(segments, "segment")),
        Tree::Experts => plural(cut.extent, "expert"),
    };
    match cut.is_subtree() {
        true => format!("{whole}, subtrees"),
        false => format!("{whole}, no subtrees"),
    }
}

fn plural(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// `title: a, b, c`, wrapped at 80 columns.
fn wrapped(title: &str, names: &[&str]) -> String {
    const COLUMNS: usize = 80;
    let mut text = format!("{title}:");
    let mut column = text.chars().count();
    for (i, name) in names.iter().enumerate() {
        let comma = if i + 1 < names.len() { "," } else { "" };
        if column + name.len() + comma.len() + 1 > COLUMNS {
            text += "\n ";
            column = 1;
        }
        text += &format!(" {name}{comma}");
        column += name.len() + comma.len() + 1;
    }
    text + "\n"
}
