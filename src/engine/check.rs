//! "These weights are the model's": checked before anything is built. Whether this engine can run
//! the model's shapes is for the regions of the device to say.

use super::EngineError;
use crate::backend::cuda::BoundWeight;
use crate::backend::{OpKind, Plan, WeightRef};
use crate::descriptor::{Descriptor, Scope};
use crate::tensor::Weight;
use crate::weights::{SyntheticWeight, WeightSet};
use std::collections::HashMap;

/// The weights that the plan names, ties resolved, shapes checked.
pub(super) fn bound(
    d: &Descriptor,
    plan: &Plan,
    weights: &WeightSet,
) -> Result<HashMap<WeightRef, Weight>, EngineError> {
    let mut bound = HashMap::new();
    for weight in plan.all_ops().flat_map(|op| named(&op.kind)) {
        let role = d.roles.iter().find(|r| r.name == weight.role);
        let in_scope = role.is_some_and(|r| match (&r.scope, weight.layer) {
            (Scope::Model, None) => true,
            (Scope::Layers(layers), Some(layer)) => layers.contains(&layer),
            _ => false,
        });
        let Some(role) = role.filter(|_| in_scope) else {
            return Err(EngineError::Unsupported(format!(
                "the descriptor has no role `{}` where the plan needs it",
                weight.role
            )));
        };
        let source = role.tied_to.unwrap_or(weight.role);
        let own = weights.get(weight.role, weight.layer);
        let found = own.or(weights.get(source, weight.layer)).ok_or_else(|| {
            EngineError::MissingWeight { role: source.to_string(), layer: weight.layer }
        })?;
        let cols = role.shape.last().copied().unwrap_or(1);
        let expected = [role.shape.iter().product::<usize>() / cols.max(1), cols];
        if [found.rows, found.cols] != expected {
            return Err(EngineError::WeightShape {
                role: weight.role.to_string(),
                layer: weight.layer,
                expected,
                found: [found.rows, found.cols],
            });
        }
        bound.insert(weight, found.clone());
    }
    Ok(bound)
}

/// Synthetic weights of a plan, and their bytes (shared ones once).
pub(super) struct Synthetic {
    pub(super) weights: HashMap<WeightRef, BoundWeight>,
    pub(super) bytes: u64,
}

/// The synthetic weights that the plan names, ties resolved, not yet made.
pub(super) fn synthetic(d: &Descriptor, plan: &Plan, seed: u64) -> Result<Synthetic, EngineError> {
    let (mut weights, mut bytes) = (HashMap::new(), 0);
    for weight in plan.all_ops().flat_map(|op| named(&op.kind)) {
        let missing =
            || EngineError::MissingWeight { role: weight.role.to_string(), layer: weight.layer };
        let role = d.roles.iter().find(|r| r.name == weight.role).ok_or_else(missing)?;
        let source = role.tied_to.unwrap_or(weight.role);
        let made = SyntheticWeight::new(d, seed, source, weight.layer).ok_or_else(missing)?;
        let fresh = weights.insert(weight, BoundWeight::Synthetic(made)).is_none();
        if fresh && role.tied_to.is_none() {
            bytes += (made.rows * made.cols * 2) as u64;
        }
    }
    Ok(Synthetic { weights, bytes })
}

/// The weights an operation names.
pub(super) fn named(op: &OpKind) -> Vec<WeightRef> {
    match *op {
        OpKind::Embedding { weight, .. }
        | OpKind::Gemm { weight, .. }
        | OpKind::GemmF32 { weight, .. }
        | OpKind::EmbeddingPart { weight, .. }
        | OpKind::GemmPart { weight, .. }
        | OpKind::GdnConv1d { weight, .. } => vec![weight],
        OpKind::GateUp { gate, up, .. } => vec![gate, up],
        OpKind::MoeRouterLogits { norm, weight, .. } => vec![norm.weight, weight],
        OpKind::RmsNorm { norm, .. }
        | OpKind::ResidualNorm { norm, .. }
        | OpKind::PerHeadNorm { norm, .. }
        | OpKind::GdnGatedNorm { norm, .. } => vec![norm.weight],
        OpKind::BiasAdd { bias, .. } => vec![bias],
        OpKind::MlaLatentNorm { norm, .. } => vec![norm.weight],
        OpKind::MlaAttention { kv_b, .. } => vec![kv_b],
        OpKind::GdnPrepare { a_log, dt_bias, .. } => vec![a_log, dt_bias],
        OpKind::MoeExperts { gate, up, down, .. } => vec![gate, up, down],
        OpKind::ResidualAdd { .. }
        | OpKind::QGateSplit { .. }
        | OpKind::Rope { .. }
        | OpKind::KvWrite { .. }
        | OpKind::AttentionCore { .. }
        | OpKind::AttentionOutputGate { .. }
        | OpKind::GdnConvSilu { .. }
        | OpKind::GdnCore { .. }
        | OpKind::SiluMul { .. }
        | OpKind::MoeRouter { .. }
        | OpKind::MoePermute { .. }
        | OpKind::MoeCombine { .. }
        | OpKind::MoeShared { .. }
        | OpKind::AllReduce { .. }
        | OpKind::AllGather { .. }
        | OpKind::StageSend { .. }
        | OpKind::StageReceive { .. } => Vec::new(),
    }
}
