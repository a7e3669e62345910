//! What ranks exchange: sums by definition, meetings in any order, and failures that reach everybody.

use super::{CollectiveError, Elements, Layout, Link, Member, RankLayout, RankedModel, World, sum};
use crate::backend::cpu::{BLOCK_TOKENS, CpuModel, CpuOptions, Isa};
use crate::backend::{
    Buf, BufferSpec, DeviceModel, Op, OpKind, Plan, Policy, RankGroup, RegionRun, Span, WeightRef,
};
use crate::descriptor::RoleName;
use crate::placement::AxisSlice;
use crate::tensor::{DType, Shared, Storage, Weight};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

#[test]
fn sums_widen_add_as_a_tree_and_round_once() {
    // In BF16, 256 + 1 rounds to 256: what survives shows the order and the rounding.
    let of = |values: [f32; 4]| {
        let parts: Vec<Elements> =
            values.iter().map(|v| Elements::rounded(&[*v], DType::BF16).unwrap()).collect();
        sum(&parts).unwrap().widened()[0]
    };
    assert_eq!(of([256.0, 1.0, 1.0, 0.0]), 258.0, "no rounding between");
    // In FP32, 2^24 + 1 rounds to 2^24.
    let big = 16_777_216.0f32;
    let of = |values: &[f32]| {
        let parts: Vec<Elements> = values.iter().map(|v| Elements::F32(vec![*v])).collect();
        sum(&parts).unwrap().widened()[0]
    };
    assert_eq!(of(&[big, 1.0, 1.0, 1.0]), big + 2.0, "(big + 1) + (1 + 1)");
    assert_eq!(of(&[1.0, 1.0, big]), big + 2.0, "(1 + 1) + big, nothing for the fourth");
    assert_eq!(of(&[-0.0, -0.0]).to_bits(), (-0.0f32).to_bits(), "−0 adds nothing");
}

#[test]
fn ranks_that_disagree_are_told() {
    let types = [Elements::F32(vec![1.0]), Elements::Bf16(vec![0])];
    let error = sum(&types).unwrap_err();
    assert_eq!(error.to_string(), "rank 1 contributes BF16, rank 0 F32");
    let lengths = [Elements::F32(vec![1.0]), Elements::F32(vec![])];
    assert_eq!(sum(&lengths).unwrap_err().to_string(), "rank 1 contributes 0 elements, rank 0 1");
    assert_eq!(sum(&[]), Err(CollectiveError::Nobody));
    assert_eq!(Elements::rounded(&[1.0], DType::I8), Err(CollectiveError::NoSum(DType::I8)));
}

#[test]
fn everybody_gets_what_all_brought_again_and_again() {
    let world = World::new(vec![3], 3);
    thread::scope(|scope| {
        for index in 0..3 {
            let world = Arc::clone(&world);
            scope.spawn(move || {
                for round in 0..50 {
                    if (round + index) % 7 == 0 {
                        thread::sleep(Duration::from_micros(200));
                    }
                    let own = Elements::F32(vec![(round * 10 + index) as f32]);
                    let all = world.exchange(Member { group: 0, index }, own).unwrap();
                    let brought: Vec<f32> = all.iter().flat_map(Elements::widened).collect();
                    let expected: Vec<f32> = (0..3).map(|i| (round * 10 + i) as f32).collect();
                    assert_eq!(brought, expected);
                }
            });
        }
    });
}

#[test]
fn a_failure_wakes_whoever_waits() {
    let world = World::new(vec![2], 2);
    thread::scope(|scope| {
        let waiting = [
            scope.spawn(|| {
                let member = Member { group: 0, index: 0 };
                world.exchange(member, Elements::F32(Vec::new())).map(|_| ())
            }),
            scope.spawn(|| world.receive(1).map(|_| ())),
        ];
        thread::sleep(Duration::from_millis(5));
        world.fail();
        for handle in waiting {
            assert_eq!(handle.join().unwrap().unwrap_err().to_string(), "another rank failed");
        }
    });
    world.reset();
    world.send(1, vec![2.0]).unwrap();
    assert_eq!(world.receive(1).unwrap(), [2.0], "usable again after a reset");
}

/// Two ranks that add what they look up. The third row is not there on rank 0: token 2 fails on it alone.
fn adding_ranks() -> RankedModel {
    let (x, embed) = (Buf(0), WeightRef { role: RoleName::Embed, layer: None });
    let op = |kind| Op { kind, layer: None, taps: Vec::new() };
    let plan = |ops: Vec<Op>| Plan {
        buffers: vec![BufferSpec { name: "x".to_owned(), width: 1 }],
        ops,
        head_ops: Vec::new(),
        residual: x,
        final_hidden: Buf(usize::MAX),
        logits: Buf(usize::MAX),
        attention_slots: Vec::new(),
        gdn_slots: Vec::new(),
        rope: None,
    };
    let lookup = op(OpKind::Embedding { weight: embed, out: x });
    let meet = op(OpKind::AllReduce { x, group: RankGroup::Tensor });
    let world = World::new(vec![2], 2);
    let options =
        CpuOptions { policy: Policy::F32, isa: Isa::PORTABLE, threads: Some(1), poison: true };
    let rank = |index: usize, ops: Vec<Op>| -> Box<dyn DeviceModel> {
        let elements: Vec<f32> = [1.0, 2.0, 3.0][..2 + index].to_vec();
        let storage = Storage::F32(Shared::owned(elements));
        let weight = Weight { rows: 3, cols: 1, storage };
        let member = Member { group: 0, index };
        let link = Link {
            world: Arc::clone(&world),
            tensor: member,
            expert: member,
            rank: index,
            next: None,
        };
        let weights = HashMap::from([(embed, weight)]);
        Box::new(CpuModel::of_rank(plan(ops), weights, &options, link).unwrap())
    };
    let ranks = vec![
        rank(0, vec![lookup.clone(), meet.clone()]),
        rank(1, vec![lookup.clone(), meet.clone()]),
    ];
    let of_rank = RankLayout {
        stage: 0,
        columns: vec![Some(AxisSlice::whole(1))],
        attention: Vec::new(),
        gdn: BTreeMap::new(),
    };
    let layout = Layout {
        whole: plan(vec![lookup, meet]),
        ranks: vec![of_rank.clone(), of_rank],
        page_tokens: BLOCK_TOKENS,
    };
    RankedModel::new(ranks, layout, world)
}

#[test]
fn a_step_that_fails_names_the_rank_and_the_next_one_works() {
    let model = adding_ranks();
    let run = |token: u32| {
        let run = RegionRun {
            tokens: &[token],
            spans: &[Span { rows: 0..1, position: 0 }],
            inputs: &[],
            outputs: &[Buf(0)],
        };
        model.region(&run, &mut [model.new_state().as_mut()])
    };
    assert_eq!(run(1).unwrap(), [[4.0]]);
    let fault = run(2).unwrap_err();
    assert_eq!(fault.region, "embedding");
    assert!(fault.message.starts_with("rank 0: "), "{fault}");
    assert_eq!(run(0).unwrap(), [[2.0]], "nothing of the failed step is left");
}
