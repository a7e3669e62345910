//! Ranks against one device: logits, taps and states by bits.

use super::rewrite::rewrite;
use crate::backend::{Buf, OpKind, Plan, Policy};
use crate::descriptor::{Descriptor, RoleName, from_dir};
use crate::engine::lower::lower;
use crate::engine::{Engine, EngineError, EngineOptions, RowOutput, RowWant, Taps};
use crate::placement::{
    Collective, CollectiveKind, Device, Placement, PlacementRequest, Rank, RankGroup,
};
use crate::weights::{Prefill, Recipe, synth, synth_quantised};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

fn descriptor(family: &str) -> Arc<Descriptor> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/parallel").join(family);
    Arc::new(from_dir(&folder).unwrap())
}

/// `[stages, tensor, expert]`.
fn options(policy: Policy, [stages, tensor, expert]: [usize; 3]) -> EngineOptions {
    let single = PlacementRequest::single(Device::Cpu);
    EngineOptions {
        placement: Some(PlacementRequest { stages: Some(stages), tensor, expert, ..single }),
        threads: Some(1),
        poison: true,
        ..EngineOptions::with_policy(policy)
    }
}

#[derive(Debug, PartialEq)]
struct Trace {
    logits: Vec<u32>,
    taps: Vec<(String, Vec<u32>)>,
    live: Vec<(String, Vec<u64>)>,
    inspect: Vec<(String, Vec<usize>, Vec<u32>)>,
}

fn trace(engine: &Engine) -> Trace {
    let mut sequence = engine.sequence().unwrap();
    let mut taps = Taps::standard().with_names(engine.plan().tap_names());
    let mut logits = Vec::new();
    let tokens: Vec<u32> = (0..70u32).map(|i| (i * 37 + 11) % 512).collect();
    let mut forward = |tokens: &[u32]| {
        let mut batch = crate::engine::Batch::new();
        batch.push(&mut sequence, tokens, crate::engine::Want::Every(RowWant::Logits));
        let output = engine.forward_tapped(&mut batch, Some(&mut taps)).swap_remove(0).unwrap();
        for row in output.rows {
            let RowOutput::Logits(row) = row else { panic!("no logits") };
            logits.extend(row.iter().map(|x| x.to_bits()));
        }
    };
    forward(&tokens[..65]);
    tokens[65..].iter().for_each(|token| forward(&[*token]));
    let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect();
    // A stage lists what it holds, so that a cut between layers changes the order of the whole.
    let (mut live, mut inspect) = (sequence.live().unwrap(), sequence.inspect().unwrap());
    live.sort_by(|a, b| a.name.cmp(&b.name));
    inspect.sort_by(|a, b| a.name.cmp(&b.name));
    Trace {
        logits,
        taps: taps.captured().iter().map(|(n, t)| (n.clone(), bits(&t.values))).collect(),
        live: live
            .into_iter()
            .map(|l| (l.name, l.values.iter().map(|x| x.to_bits()).collect()))
            .collect(),
        inspect: inspect.into_iter().map(|s| (s.name, s.shape, bits(&s.values))).collect(),
    }
}

/// Families whose layers differ in what a rank has of them, the experts divided and not.
#[test]
fn ranks_have_the_bits_of_one_device() {
    let dense = [[2, 1, 1], [4, 1, 1], [1, 2, 1], [1, 4, 1], [2, 2, 1]];
    let experts = [[2, 1, 1], [1, 2, 1], [1, 1, 2], [1, 1, 4], [1, 2, 4], [2, 2, 2]];
    let families = [
        ("llama", &dense[..]),
        ("qwen2", &dense[2..]),
        ("mistral", &dense[2..]),
        ("qwen3_5_text", &dense[..]),
        ("qwen3_next", &experts[..]),
        ("deepseek_v2", &experts[..]),
    ];
    for (family, placements) in families {
        let d = descriptor(family);
        let weights = synth(&d, 7);
        for policy in [Policy::Reference, Policy::F32] {
            let engine =
                |ranks| Engine::new(Arc::clone(&d), &weights, &options(policy, ranks)).unwrap();
            let one = trace(&engine([1; 3]));
            assert!(one.taps.len() > 40 && one.logits.iter().any(|bits| *bits != 0));
            for ranks in placements {
                let many = trace(&engine(*ranks));
                let at = format!("{family} {policy} {ranks:?}");
                for ((name, a), (other, b)) in one.taps.iter().zip(&many.taps) {
                    assert_eq!(name, other, "{at}");
                    assert_eq!(a.len(), b.len(), "{at} {name}");
                    assert!(a == b, "{at}: tap {name} differs");
                }
                assert!(one.logits == many.logits, "{at}: logits differ");
                for (a, b) in one.live.iter().zip(&many.live) {
                    assert_eq!(a.0, b.0, "{at}");
                    assert!(a == b, "{at}: state {} differs", a.0);
                }
                assert!(one == many, "{at}");
            }
        }
    }
}

/// Packed weights are divided with their scales: the bits of one device under `reference`, where a rank
/// unpacks what it has; a cut inside a group is refused.
#[test]
fn packed_weights_are_divided_by_groups() {
    let d = descriptor("llama");
    let roles = [RoleName::AttnQ, RoleName::AttnO, RoleName::MlpUp, RoleName::MlpDown];
    for prefill in [Prefill::Packed, Prefill::Bf16] {
        let recipe = Recipe { roles: roles.into_iter().collect(), group: None, prefill };
        let weights = synth_quantised(&d, 7, &recipe).unwrap();
        let engine =
            |ranks| Engine::new(Arc::clone(&d), &weights, &options(Policy::Reference, ranks));
        let one = trace(&engine([1; 3]).unwrap());
        for ranks in [[1, 2, 1], [1, 4, 1], [2, 2, 1]] {
            assert!(one == trace(&engine(ranks).unwrap()), "{prefill:?} {ranks:?}");
        }
        let plain = Engine::new(Arc::clone(&d), &synth(&d, 7), &options(Policy::Reference, [1; 3]));
        assert_ne!(one.logits, trace(&plain.unwrap()).logits, "four bits show");
        let refused = engine([1, 8, 1]).unwrap_err().to_string();
        assert!(refused.contains("`attn_o`: columns 0..64 cut a group of 128"), "{refused}");
    }
}

/// Where a rank's plan meets others: what kind, after which role's product, how wide, how often.
type Meetings = BTreeMap<(CollectiveKind, Option<RoleName>, usize), usize>;

/// Those that the rewrite emits for one rank.
fn emitted(whole: &Plan, placement: &Placement, rank: Rank) -> Meetings {
    let plan = rewrite(whole, placement, rank).unwrap().plan;
    let width = |buf: &Buf| plan.buffers[buf.0].width;
    let mut product = None;
    let mut found = Meetings::new();
    for op in plan.all_ops() {
        match &op.kind {
            OpKind::EmbeddingPart { weight, .. }
            | OpKind::GemmPart { weight, .. }
            | OpKind::GemmF32 { weight, .. } => product = Some(weight.role),
            OpKind::MoeCombine { .. } => product = Some(RoleName::MoeDown),
            _ => {}
        }
        let met = match &op.kind {
            OpKind::AllReduce { x, group } => {
                (CollectiveKind::AllReduce(*group), product, width(x))
            }
            OpKind::AllGather { group, out, .. } => {
                (CollectiveKind::AllGather(*group), product, width(out))
            }
            OpKind::StageReceive { out } => (CollectiveKind::StageTransfer, None, width(out)),
            _ => continue,
        };
        *found.entry(met).or_default() += 1;
    }
    found
}

/// The plan lists the collectives that the ranks execute, no more and no fewer, on every family.
#[test]
fn collectives_of_the_plan_are_those_that_ranks_execute() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/parallel");
    let mut planned_at = 0;
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    for entry in entries.filter(|entry| entry.path().is_dir()) {
        let family = entry.file_name().into_string().unwrap();
        let d = descriptor(&family);
        let whole = lower(&d);
        for stages in [1, 2] {
            for (tensor, expert) in [(1, 1), (2, 1), (4, 1), (1, 2), (2, 2), (2, 4)] {
                let single = PlacementRequest::single(Device::Cpu);
                let request = PlacementRequest { stages: Some(stages), tensor, expert, ..single };
                // Dense models have no experts, and six are not divided among four ranks.
                let Ok(placement) = Placement::plan(&d, &request) else { continue };
                planned_at += 1;
                let mut planned = Meetings::new();
                for c in &placement.collectives {
                    let Collective { kind, after, elements_per_token, per_forward, ranks } = *c;
                    planned.insert((kind, after, elements_per_token), per_forward);
                    let expected = match kind {
                        CollectiveKind::AllReduce(RankGroup::Expert) => expert,
                        CollectiveKind::StageTransfer => 2,
                        _ => tensor,
                    };
                    assert_eq!(ranks, expected);
                }
                // Ranks of one number, stage by stage, make one forward.
                for index in 0..placement.group_ranks() {
                    let mut executed = Meetings::new();
                    for rank in placement.ranks().filter(|rank| rank.index == index) {
                        for (met, times) in emitted(&whole, &placement, rank) {
                            *executed.entry(met).or_default() += times;
                        }
                    }
                    assert_eq!(executed, planned, "{family} {stages} {tensor} {expert}");
                }
            }
        }
    }
    assert!(planned_at > 60, "{planned_at} placements");
}

#[test]
fn a_refused_placement_names_its_reason() {
    let d = descriptor("llama");
    let weights = synth(&d, 7);
    let refused = Engine::new(Arc::clone(&d), &weights, &options(Policy::F32, [1, 3, 1]));
    match refused {
        Err(EngineError::Placement(e)) => {
            assert_eq!(e.to_string(), "`vocab` = 512 cannot be divided among 3 ranks");
        }
        other => panic!("{other:?}"),
    }
}
