//! Subjects of the mixture-of-experts regions.
//!
//! The places of gathered rows depend on the rows beside them, so `moe_permute`, `moe_experts` and
//! `moe_combine` are compared through the sum that brings every row back to its own place.

use super::axes::{optional, pair_of, read_word};
use super::builder::Builder;
use super::subject::Draw;
use crate::backend::cpu::{CpuModel, CpuOptions, Isa};
use crate::backend::{DeviceModel, ExpertSpan, OpKind, Policy, Region, RegionRun, Span};
use crate::descriptor::{Precision, RoleName, Router};
use crate::harness::kind::Cell;

/// Adds the region's operations, inputs and outputs.
pub(super) fn build(b: &mut Builder, region: Region, cell: &Cell) -> Result<(), String> {
    match region {
        Region::MoeRouterLogits => router_logits(b, cell),
        Region::MoeRouter => router(b, cell),
        Region::MoeShared => shared(b, cell),
        _ => gathered(b, region, cell),
    }
}

fn router_logits(b: &mut Builder, cell: &Cell) -> Result<(), String> {
    let (width, experts) = (cell.read("k")?, cell.read("n")?);
    let norm = b.norm(RoleName::PostNorm, width, read_word(cell, "style")?);
    let weight = b.weight(RoleName::MoeRouter, experts, width, 0.2);
    let x = b.input("x", width, Draw::Activation);
    let normed = b.buffer("normed", width);
    let out = b.output("logits", experts);
    b.op(OpKind::MoeRouterLogits { x, norm, weight, normed, out });
    Ok(())
}

fn router(b: &mut Builder, cell: &Cell) -> Result<(), String> {
    let [experts, k] = pair_of(cell, "experts")?;
    let [groups, groups_kept] = pair_of(cell, "groups")?;
    let logits = b.input("logits", experts, Draw::Activation);
    let index = b.output("index", k);
    let weights = b.output("weights", k);
    let router = Router {
        logits: Precision::Model,
        weights: Precision::Model,
        renormalise: true,
        scaling: 1.5,
        groups,
        groups_kept,
    };
    b.op(OpKind::MoeRouter { logits, router, index, weights });
    Ok(())
}

fn shared(b: &mut Builder, cell: &Cell) -> Result<(), String> {
    let width = cell.read("width")?;
    let x = b.input("x", width, Draw::Activation);
    let shared = b.input("shared", width, Draw::Activation);
    let gated = optional(cell, "gated", Cell::read)?.unwrap_or(true);
    let gate = gated.then(|| b.input("gate", 1, Draw::Activation));
    b.outputs.push(x);
    b.op(OpKind::MoeShared { x, shared, gate });
    Ok(())
}

fn gathered(b: &mut Builder, region: Region, cell: &Cell) -> Result<(), String> {
    let [experts, k] = pair_of(cell, "experts")?;
    let width: usize = cell.read("width")?;
    let x = b.input("x", width, Draw::Activation);
    let index = b.input("index", k, Draw::Experts { experts });
    let weights = b.input("weights", k, Draw::Rate);
    let rows = b.buffer("gathered", k * width);
    let all = ExpertSpan::all(experts);
    b.op(OpKind::MoePermute { x, index, experts: all, out: rows });
    let mut summed = rows;
    if region == Region::MoeExperts {
        let inner: usize = cell.read("intermediate")?;
        let gate = b.weight(RoleName::MoeGate, experts * inner, width, 0.2);
        let up = b.weight(RoleName::MoeUp, experts * inner, width, 0.2);
        let down = b.weight(RoleName::MoeDown, experts * width, inner, 0.2);
        let scratch = ["gate", "up", "act"].map(|name| b.buffer(name, k * inner));
        summed = b.buffer("experts_out", k * width);
        let (inner, out) = (scratch, summed);
        b.op(OpKind::MoeExperts { x: rows, index, experts: all, gate, up, down, inner, out });
    }
    let out = b.output("y", width);
    b.op(OpKind::MoeCombine { x: summed, index, weights, experts: all, out });
    Ok(())
}

/// The experts of one row and their weights.
pub(in crate::harness::kinds) type Route = (Vec<usize>, Vec<f32>);

/// What a router gives for each row of logits.
pub(in crate::harness::kinds) fn route(
    rows: &[Vec<f32>],
    k: usize,
    router: Router,
    policy: Policy,
    threads: usize,
) -> Result<Vec<Route>, String> {
    let mut b = Builder::new();
    let experts = rows.first().map_or(0, Vec::len);
    let logits = b.input("logits", experts, Draw::Activation);
    let (index, weights) = (b.output("index", k), b.output("weights", k));
    b.op(OpKind::MoeRouter { logits, router, index, weights });
    let isa = Isa::detect();
    let options = CpuOptions { policy, isa, threads: Some(threads), poison: true };
    let model = CpuModel::new(b.plan, b.weights, &options)?;
    let run = RegionRun {
        tokens: &vec![0; rows.len()],
        spans: &[Span { rows: 0..rows.len(), position: 0 }],
        inputs: &[(logits, rows.concat())],
        outputs: &b.outputs,
    };
    let mut state = model.new_state();
    let found = model.region(&run, &mut [state.as_mut()]).map_err(|e| e.to_string())?;
    let ids = found[0].chunks(k).map(|row| row.iter().map(|id| *id as usize).collect());
    Ok(ids.zip(found[1].chunks(k).map(<[f32]>::to_vec)).collect())
}
