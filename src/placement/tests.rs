//! Plans of the shipped descriptors, and every way to be refused.

use super::{
    Collective, CollectiveKind, Device, Form, Placement, PlacementError, PlacementPolicy,
    PlacementRequest, RankGroup, SharedHeads, Stored, Tree,
};
use crate::descriptor::{Descriptor, Role, RoleName, ShardRule};
use std::ops::Range;

fn descriptor(name: &str) -> Descriptor {
    let path = format!("{}/descriptors/{name}.json", env!("CARGO_MANIFEST_DIR"));
    Descriptor::from_json(name, &std::fs::read(path).unwrap()).unwrap()
}

fn request(stages: Option<usize>, tensor: usize) -> PlacementRequest {
    PlacementRequest { stages, tensor, ..PlacementRequest::single(Device::Cpu) }
}

fn refused(d: &Descriptor, request: &PlacementRequest) -> String {
    Placement::plan(d, request).unwrap_err().to_string()
}

fn role_mut(d: &mut Descriptor, name: RoleName) -> &mut Role {
    d.roles.iter_mut().find(|role| role.name == name).unwrap()
}

fn weight_bytes(plan: &Placement, d: &Descriptor) -> Vec<u64> {
    plan.ranks().map(|rank| plan.weight_bytes(d, rank, &Stored::default())).collect()
}

fn copied_bytes(plan: &Placement, d: &Descriptor) -> Vec<u64> {
    plan.ranks().map(|rank| plan.copied_bytes(d, rank, &Stored::default())).collect()
}

fn one(range: Range<usize>) -> Vec<Range<usize>> {
    std::iter::once(range).collect()
}

#[test]
fn one_device_is_the_plan_of_nothing_asked() {
    let d = descriptor("qwen38-27b");
    let plan = Placement::plan(&d, &request(None, 1)).unwrap();
    assert_eq!(plan, Placement::single(&d, Device::Cpu));
    assert_eq!(plan.policy(), PlacementPolicy::SingleDevice);
    assert_eq!(weight_bytes(&plan, &d), [d.weights_bf16_bytes()]);
    assert!(plan.collectives.is_empty());
}

/// The parts of a group make up every divided weight exactly once; sizes follow.
#[test]
fn parts_add_up() {
    for (name, tensor) in [
        ("qwen38-27b", 2),
        ("qwen38-27b", 4),
        ("smollm2-135m", 3),
        ("llama32-1b", 4),
        ("deepseek-v2-lite", 4),
        ("qwen3-next-80b-a3b", 2),
    ] {
        let d = descriptor(name);
        let plan = Placement::plan(&d, &request(None, tensor)).unwrap();
        for role in &d.roles {
            for axis in 0..role.shape.len() {
                let mut held = vec![0; role.shape[axis]];
                for index in 0..tensor {
                    let slice = &plan.slice(role.name, index).unwrap().axes[axis];
                    assert_eq!(slice.of, role.shape[axis]);
                    slice.ranges.iter().flat_map(|r| r.clone()).for_each(|i| held[i] += 1);
                }
                let divided = plan.ways(role) > 1
                    && (axis == 0) == (role.shard != ShardRule::InDim || role.shape.len() == 1);
                let expected = if divided { 1 } else { tensor };
                assert!(held.iter().all(|n| *n == expected), "{name} {} {axis}", role.name);
            }
        }
        assert!(plan.shared_heads(&d).is_empty());
    }
}

/// Without its copies a group has every weight once: those of roles that are not divided, of tensor
/// groups in an expert group, and of heads that ranks share.
#[test]
fn copies_are_what_a_lower_rank_holds() {
    for (name, tensor, expert) in [
        ("qwen38-27b", 2, 1),
        ("qwen38-27b", 8, 1),
        ("tiny-qwen35", 2, 1),
        ("qwen35-35b-a3b", 8, 8),
        ("qwen3-next-80b-a3b", 2, 8),
        ("deepseek-v2-lite", 1, 4),
        ("qwen3-30b-a3b", 2, 1),
    ] {
        let d = descriptor(name);
        let plan = Placement::plan(&d, &PlacementRequest { expert, ..request(None, tensor) });
        let plan = plan.unwrap();
        let (held, copied) = (weight_bytes(&plan, &d), copied_bytes(&plan, &d));
        assert_eq!(copied[0], 0);
        let once = held.iter().sum::<u64>() - copied.iter().sum::<u64>();
        assert_eq!(once, d.weights_bf16_bytes(), "{name}");
    }
    let d = descriptor("qwen3-30b-a3b");
    let plan = Placement::plan(&d, &PlacementRequest { expert: 4, ..request(None, 2) }).unwrap();
    let copied = copied_bytes(&plan, &d);
    assert!(
        copied[1] < copied[2],
        "the second rank of a tensor group, the first of a second group"
    );
    let query = d.roles.iter().find(|role| role.name == RoleName::AttnQ).unwrap();
    assert_eq!(plan.ranks_per_part(query), 2);
    let stages = Placement::plan(&d, &request(Some(4), 1)).unwrap();
    assert_eq!(copied_bytes(&stages, &d), [0; 4]);
}

/// Stages are balanced by what is stored: layers that are packed count as less.
#[test]
fn stages_are_balanced_by_stored_bytes() {
    let d = descriptor("smollm2-135m");
    let form = Form { group: Some(64), value_bytes: 0 };
    let roles = d.roles.iter().filter(|role| role.name.is_projection());
    let packed = roles.flat_map(|role| (0..20).map(|layer| ((role.name, Some(layer)), form)));
    let stored = Stored::of(packed);
    let plain = Placement::plan(&d, &request(Some(2), 1)).unwrap();
    let plan = Placement::plan_stored(&d, &request(Some(2), 1), &stored).unwrap();
    assert_eq!(plain.stages, [0..15, 15..30]);
    let held = |p: &Placement| p.ranks().map(|r| p.weight_bytes(&d, r, &stored)).max();
    assert!(plan.stages[0].len() > 15 && held(&plan) < held(&plain), "{:?}", plan.stages);
}

#[test]
fn collectives_follow_the_shard_rules() {
    let d = descriptor("qwen3-30b-a3b");
    let request = PlacementRequest { expert: 4, ..request(Some(2), 2) };
    let plan = Placement::plan(&d, &request).unwrap();
    let (reduce, expert) = (
        CollectiveKind::AllReduce(RankGroup::Tensor),
        CollectiveKind::AllReduce(RankGroup::Expert),
    );
    let all = |kind, after, ranks, elements_per_token, per_forward| Collective {
        kind,
        after,
        ranks,
        elements_per_token,
        per_forward,
    };
    let gather = CollectiveKind::AllGather(RankGroup::Tensor);
    assert_eq!(
        plan.collectives,
        [
            all(reduce, Some(RoleName::Embed), 2, 2048, 1),
            all(gather, Some(RoleName::LmHead), 2, 151_936, 1),
            all(reduce, Some(RoleName::AttnO), 2, 2048, 48),
            all(expert, Some(RoleName::MoeDown), 4, 2048, 48),
            all(CollectiveKind::StageTransfer, None, 2, 2048, 1),
        ]
    );
}

/// A rank has the matrices of its value heads and the columns of its channels; shared key heads are
/// held by each of their ranks.
#[test]
fn states_of_gated_delta_nets_are_divided() {
    let d = descriptor("qwen38-27b");
    let states = |stages, tensor| -> Vec<u64> {
        let plan = Placement::plan(&d, &request(stages, tensor)).unwrap();
        plan.ranks().map(|rank| plan.gdn_state_bytes_per_sequence(&d, rank)).collect()
    };
    let all = d.gdn_state_bytes_per_sequence();
    assert_eq!(states(None, 1), [all]);
    assert_eq!(states(None, 2), [all / 2; 2]);
    assert_eq!(states(Some(2), 1).iter().sum::<u64>(), all);
    let d = descriptor("llama32-1b");
    let plan = Placement::plan(&d, &request(None, 2)).unwrap();
    assert!(plan.ranks().all(|rank| plan.gdn_state_bytes_per_sequence(&d, rank) == 0));
}

/// Rows of the fused projection of a gated delta net: heads of q, of k and of v.
#[test]
fn heads_of_a_flat_projection_are_found() {
    let d = descriptor("qwen38-27b");
    let plan = Placement::plan(&d, &request(None, 2)).unwrap();
    let [rows, columns] = &plan.slice(RoleName::GdnQkv, 1).unwrap().axes[..] else { panic!() };
    assert_eq!(rows.ranges, [1024..2048, 3072..4096, 7168..10240]);
    assert!(columns.is_whole());
    let query = &plan.slice(RoleName::AttnQ, 1).unwrap().axes[0];
    assert_eq!(query.ranges, one(6144..12288), "12 heads of query and gate");
}

/// Heads of several parts stay together; latents are every rank's.
#[test]
fn latent_attention_divides_its_heads() {
    let d = descriptor("deepseek-v2-lite");
    let plan = Placement::plan(&d, &request(None, 2)).unwrap();
    let rows = |role| plan.slice(role, 1).unwrap().axes[0].clone();
    assert_eq!(rows(RoleName::MlaQ).ranges, one(8 * 192..16 * 192));
    assert_eq!(rows(RoleName::MlaKvB).ranges, one(8 * 256..16 * 256));
    assert!(rows(RoleName::MlaKvA).is_whole());
    assert_eq!(plan.slice(RoleName::MlaO, 1).unwrap().axes[1].ranges, one(1024..2048));
    let cache = plan.ranks().map(|rank| plan.cache_elements_per_token(&d, rank));
    assert_eq!(cache.collect::<Vec<_>>(), [27 * (512 + 64); 2]);
}

#[test]
fn experts_are_divided_whole_and_the_router_is_not() {
    let d = descriptor("qwen3-30b-a3b");
    let experts = |tensor| PlacementRequest { expert: 4, ..request(None, tensor) };
    let plan = Placement::plan(&d, &experts(1)).unwrap();
    assert_eq!(plan.policy(), PlacementPolicy::ExpertParallel);
    for role in [RoleName::MoeGate, RoleName::MoeUp, RoleName::MoeDown] {
        assert_eq!(plan.slice(role, 2).unwrap().axes[0].ranges, one(64..96));
    }
    for role in [RoleName::MoeRouter, RoleName::AttnQ, RoleName::Embed] {
        assert!(plan.slice(role, 2).unwrap().is_whole());
    }
    let [cut] = &plan.cuts[..] else { panic!("{:?}", plan.cuts) };
    assert_eq!((cut.role, cut.tree, cut.is_subtree()), (RoleName::MoeDown, Tree::Experts, true));

    // Two tensor groups of two ranks in an expert group of four.
    let plan = Placement::plan(&d, &experts(2)).unwrap();
    assert_eq!(plan.policy(), PlacementPolicy::TensorAndExpertParallel);
    assert_eq!((plan.group_ranks(), plan.ranks().count()), (4, 4));
    let heads = |index| plan.slice(RoleName::AttnQ, index).unwrap().axes[0].ranges[0].clone();
    assert_eq!([heads(0), heads(1), heads(2)], [0..2048, 2048..4096, 0..2048]);
    assert!(plan.shared_heads(&d).is_empty());
    let three = PlacementRequest { expert: 3, ..request(None, 1) };
    assert_eq!(
        refused(&d, &three),
        "`moe_experts` = 128 cannot be divided among 3 ranks; experts stay whole"
    );
}

#[test]
fn heads_are_shared_where_ranks_outnumber_them() {
    let d = descriptor("qwen38-27b");
    let plan = Placement::plan(&d, &request(None, 8)).unwrap();
    let shared = |role, dimension, partly| SharedHeads { role, dimension, ranks: 2, partly };
    let keys = [RoleName::AttnK, RoleName::AttnV].map(|role| shared(role, "kv_heads", false));
    assert_eq!(plan.shared_heads(&d), keys);
    let keys = |index| plan.slice(RoleName::AttnK, index).unwrap().axes[0].ranges[0].clone();
    assert_eq!([keys(0), keys(1), keys(7)], [0..256, 0..256, 768..1024]);
}

#[test]
fn cuts_are_subtrees_or_named() {
    let d = descriptor("qwen38-27b");
    let plan = Placement::plan(&d, &request(None, 4)).unwrap();
    let cuts: Vec<_> =
        plan.cuts.iter().map(|c| (c.role, c.extent, c.tree, c.is_subtree())).collect();
    let segments = Tree::Segments(8);
    assert_eq!(
        cuts,
        [
            (RoleName::AttnO, 6144, segments, true),
            (RoleName::GdnOut, 6144, segments, true),
            (RoleName::MlpDown, 17408, segments, true),
        ]
    );
    assert_eq!(plan.cut(RoleName::MlpDown).unwrap().segments_per_rank(), 2);
    let d = descriptor("smollm2-135m");
    let plan = Placement::plan(&d, &request(None, 3)).unwrap();
    let off: Vec<RoleName> = plan.cuts_off_the_tree().map(|cut| cut.role).collect();
    assert_eq!(off, [RoleName::AttnO, RoleName::MlpDown]);
}

#[test]
fn stages_hold_all_layers_in_order() {
    let d = descriptor("qwen38-27b");
    let devices: Vec<Device> = (0..4).map(Device::Cuda).collect();
    let split = PlacementRequest { devices: devices.clone(), ..request(None, 1) };
    let plan = Placement::plan(&d, &split).unwrap();
    assert_eq!(plan.policy(), PlacementPolicy::LayerSplit);
    assert_eq!(plan.stages.len(), 4);
    let layers: Vec<usize> = plan.stages.iter().cloned().flatten().collect();
    assert_eq!(layers, (0..64).collect::<Vec<_>>());
    let bytes = weight_bytes(&plan, &d);
    assert_eq!(bytes.iter().sum::<u64>(), d.weights_bf16_bytes());
    let (least, most) = (bytes.iter().min().unwrap(), bytes.iter().max().unwrap());
    assert!((*most as f64) < 1.25 * *least as f64, "{bytes:?}");

    let both = PlacementRequest { devices, ..request(None, 2) };
    let plan = Placement::plan(&d, &both).unwrap();
    assert_eq!((plan.stages.len(), plan.group_ranks()), (2, 2));
    let ranks: Vec<_> = plan.ranks().map(|r| (r.stage, r.index, r.device)).collect();
    assert_eq!(ranks[3], (1, 1, Device::Cuda(3)));
    assert_eq!(plan.layer_ranks()[63], 2);
}

/// A tied head on another device than the embedding is a second copy.
#[test]
fn a_tied_head_is_shared_on_one_device_only() {
    let d = descriptor("smollm2-135m");
    let plan = Placement::plan(&d, &request(Some(2), 1)).unwrap();
    let total: u64 = weight_bytes(&plan, &d).iter().sum();
    assert_eq!(total, d.weights_bf16_bytes() + 2 * 49152 * 576);
}

#[test]
fn what_does_not_divide_is_refused_by_name() {
    let smol = descriptor("smollm2-135m");
    assert_eq!(
        refused(&smol, &request(None, 2)),
        "`vocab` = 49152 cannot be divided".replace("`vocab` = 49152", "`query_heads` = 9")
            + " among 2 ranks; heads stay whole"
    );
    let qwen = descriptor("qwen38-27b");
    assert_eq!(
        refused(&qwen, &request(None, 3)),
        "`vocab` = 248320 cannot be divided among 3 ranks"
    );
    assert_eq!(
        refused(&qwen, &request(Some(65), 1)),
        "65 stages for 64 layers: a stage needs at least one layer"
    );
    let five = PlacementRequest { devices: vec![Device::Cpu; 5], ..request(None, 2) };
    assert_eq!(
        refused(&qwen, &five),
        "5 devices make no whole stages of 2 ranks: name a multiple of 2, or one that all ranks share"
    );
    let three = PlacementRequest { devices: vec![Device::Cpu; 4], ..request(Some(3), 2) };
    assert_eq!(
        refused(&qwen, &three),
        "4 devices for 3 stages of 2 ranks: name 6 devices, or one that all ranks share"
    );
    let stages = PlacementRequest { devices: vec![Device::Cpu; 3], ..request(Some(2), 1) };
    assert_eq!(
        refused(&qwen, &stages),
        "3 devices for 2 stages of 1 rank: name 2 devices, or one that all ranks share"
    );
    let experts = PlacementRequest { expert: 4, ..request(None, 1) };
    assert_eq!(refused(&qwen, &experts), "expert parallel 4: the model has no experts to divide");
    let groups = PlacementRequest { expert: 3, ..request(None, 2) };
    assert!(refused(&qwen, &groups).starts_with("tensor parallel 2 with expert parallel 3: "));
    assert_eq!(Placement::plan(&qwen, &request(None, 0)), Err(PlacementError::NoRanks));
    // Nothing is made for ranks beyond the limit, and their number cannot overflow.
    for (stages, tensor, found) in [
        (None, 99_999_999_999, "99999999999"),
        (Some(65_537), 1, "65537"),
        (Some(usize::MAX), usize::MAX, "340282366920938463426481119284349108225"),
    ] {
        let many = format!("{found} ranks are asked for; a placement has at most 65536");
        assert_eq!(refused(&qwen, &request(stages, tensor)), many);
        let two = PlacementRequest { devices: vec![Device::Cpu; 2], ..request(stages, tensor) };
        assert_eq!(refused(&qwen, &two), many);
    }
}

/// Shard rules are data of the descriptor: those that do not fit together are refused.
#[test]
fn rules_that_do_not_cover_a_divided_dimension_are_refused() {
    let mut d = descriptor("llama32-1b");
    role_mut(&mut d, RoleName::AttnO).shard = ShardRule::None;
    assert_eq!(
        refused(&d, &request(None, 2)),
        "role `attn_o`: the shard rule `none` does not cover `query_heads`, which `attn_q` divides \
         (axis 1 = query_heads*head_dim)"
    );
    let mut d = descriptor("llama32-1b");
    role_mut(&mut d, RoleName::AttnO).shard = ShardRule::OutDim;
    assert!(
        refused(&d, &request(None, 2))
            .contains("`attn_o`: the shard rule `out_dim` does not cover")
    );
    let mut d = descriptor("llama32-1b");
    role_mut(&mut d, RoleName::FinalNorm).shard = ShardRule::OutDim;
    assert_eq!(
        refused(&d, &request(None, 2)),
        "role `final_norm`: the shard rule `out_dim` finds nothing to divide in [hidden]"
    );
    let mut d = descriptor("llama32-1b");
    d.roles.iter_mut().for_each(|role| role.shard = ShardRule::None);
    assert_eq!(
        refused(&d, &request(None, 2)),
        "tensor parallel 2: the descriptor's shard rules divide nothing"
    );
    let mut d = descriptor("qwen3-30b-a3b");
    role_mut(&mut d, RoleName::MoeRouter).shard = ShardRule::OutExperts;
    assert_eq!(
        refused(&d, &PlacementRequest { expert: 2, ..request(None, 1) }),
        "role `moe_router`: the shard rule `out_experts` divides it, and every rank chooses among \
         all experts"
    );
    // Rules that leave a whole part of the layer to every rank fit together.
    let mut d = descriptor("llama32-1b");
    for name in [RoleName::AttnQ, RoleName::AttnK, RoleName::AttnV, RoleName::AttnO] {
        role_mut(&mut d, name).shard = ShardRule::None;
    }
    let plan = Placement::plan(&d, &request(None, 2)).unwrap();
    assert!(plan.slice(RoleName::AttnQ, 1).unwrap().is_whole());
    assert!(!plan.slice(RoleName::MlpUp, 1).unwrap().is_whole());
}
