//! The placement as JSON.

use super::Placed;
use crate::cli::placement_json;
use crate::descriptor::Role;
use crate::placement::{Collective, Cut, Rank, SharedHeads, Stored, Tree};
use serde_json::{Value, json};

const BF16_BYTES: u64 = 2;

impl Placed<'_> {
    /// What the manifest's block says of it and what follows.
    pub(in crate::cli::model) fn as_json(&self) -> Value {
        let (d, p) = (self.d, &self.p);
        let shared = p.shared_heads(d);
        let replicated = self.replicated().into_iter();
        let mut json = placement_json(p);
        json["ranks"] = p.ranks().map(|rank| self.rank_json(rank)).collect();
        json["roles"] = d.roles.iter().map(|role| self.role_json(role)).collect();
        json["replicated_roles"] = replicated
            .map(|(role, ranks)| json!({ "role": role.name.as_str(), "ranks": ranks }))
            .collect();
        json["shared_heads"] = shared.iter().map(shared_json).collect();
        json["cuts"] = p.cuts.iter().map(cut_json).collect();
        json["collectives"] = p.collectives.iter().map(collective_json).collect();
        json["bits_of_one_device_under"] =
            self.bitwise().iter().map(|policy| policy.to_string()).collect();
        json
    }

    fn rank_json(&self, rank: Rank) -> Value {
        let (d, p) = (self.d, &self.p);
        let layers = &p.stages[rank.stage];
        let plain = Stored::default();
        let mut json = json!({
            "rank": rank.rank,
            "device": rank.device.to_string(),
            "stage": rank.stage,
            "layers": [layers.start, layers.end],
            "weights_bf16_bytes": p.weight_bytes(d, rank, &plain),
            "replicated_bf16_bytes": p.copied_bytes(d, rank, &plain),
            "cache_bytes_per_token": p.cache_elements_per_token(d, rank) * BF16_BYTES,
            "gdn_state_bytes_per_sequence": p.gdn_state_bytes_per_sequence(d, rank),
        });
        if let Some(stored) = self.stored {
            json["weights_packed_bytes"] = p.weight_bytes(d, rank, stored).into();
            json["replicated_packed_bytes"] = p.copied_bytes(d, rank, stored).into();
        }
        json
    }

    fn role_json(&self, role: &Role) -> Value {
        let slice = self.p.slice(role.name, 0);
        json!({
            "name": role.name.as_str(),
            "shard": role.shard.as_str(),
            "ways": self.p.ways(role),
            "shape_on_a_rank": slice.map(|s| s.axes.iter().map(|a| a.len()).collect::<Vec<_>>()),
        })
    }
}

fn shared_json(shared: &SharedHeads) -> Value {
    json!({
        "role": shared.role.as_str(),
        "dimension": shared.dimension,
        "ranks": shared.ranks,
        "partly": shared.partly,
    })
}

fn cut_json(cut: &Cut) -> Value {
    let segments = match cut.tree {
        Tree::Segments(segments) => Some(segments),
        Tree::Experts => None,
    };
    json!({
        "role": cut.role.as_str(),
        "ways": cut.ways,
        "extent": cut.extent,
        "segments": segments,
        "subtree": cut.is_subtree(),
    })
}

fn collective_json(collective: &Collective) -> Value {
    json!({
        "kind": collective.kind.to_string(),
        "group": collective.kind.group(),
        "after": collective.after.map(|role| role.as_str()),
        "ranks": collective.ranks,
        "elements_per_token": collective.elements_per_token,
        "per_forward": collective.per_forward,
    })
}
