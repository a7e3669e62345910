//! "This engine can run it", and "these weights are the model's": checked before anything is built.

use super::EngineError;
use crate::backend::cpu::{MAX_KEY_DIM, MAX_VALUE_DIM};
use crate::backend::{OpKind, Plan, WeightRef};
use crate::descriptor::{Descriptor, Scope};
use crate::tensor::Weight;
use crate::weights::WeightSet;
use std::collections::HashMap;

/// Whether every kind and dimension of the descriptor is implemented.
pub(super) fn supported(d: &Descriptor) -> Result<(), EngineError> {
    let refuse = |why: String| Err(EngineError::Unsupported(why));
    if let Some(a) = &d.attention {
        if a.kv_heads == 0 || !a.query_heads.is_multiple_of(a.kv_heads) {
            return refuse(format!(
                "{} query heads cannot share {} key-value heads evenly",
                a.query_heads, a.kv_heads
            ));
        }
        if a.rope.rotary_dim > a.head_dim || !a.rope.rotary_dim.is_multiple_of(2) {
            return refuse(format!(
                "rotary dimension {} must be even and at most head_dim {}",
                a.rope.rotary_dim, a.head_dim
            ));
        }
    }
    if let Some(g) = &d.gdn {
        if g.key_heads == 0 || !g.value_heads.is_multiple_of(g.key_heads) {
            return refuse(format!(
                "{} value heads cannot share {} key heads evenly",
                g.value_heads, g.key_heads
            ));
        }
        if g.key_dim > MAX_KEY_DIM || g.value_dim > MAX_VALUE_DIM {
            return refuse(format!(
                "gated-delta-net heads of {}×{} exceed {MAX_KEY_DIM}×{MAX_VALUE_DIM}",
                g.key_dim, g.value_dim
            ));
        }
        if g.conv_width < 2 {
            return refuse(format!("a convolution of {} taps has no history", g.conv_width));
        }
    }
    if d.layers() == 0 {
        return refuse("a model needs at least one layer".to_owned());
    }
    Ok(())
}

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
        let found = weights.get(source, weight.layer).ok_or_else(|| {
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

/// The weights an operation names.
fn named(op: &OpKind) -> Vec<WeightRef> {
    match *op {
        OpKind::Embedding { weight, .. }
        | OpKind::Gemm { weight, .. }
        | OpKind::GemmF32 { weight, .. }
        | OpKind::GdnConv1d { weight, .. } => vec![weight],
        OpKind::RmsNorm { norm, .. }
        | OpKind::PerHeadNorm { norm, .. }
        | OpKind::GdnGatedNorm { norm, .. } => vec![norm.weight],
        OpKind::GdnPrepare { a_log, dt_bias, .. } => vec![a_log, dt_bias],
        OpKind::ResidualAdd { .. }
        | OpKind::QGateSplit { .. }
        | OpKind::Rope { .. }
        | OpKind::KvWrite { .. }
        | OpKind::AttentionCore { .. }
        | OpKind::AttentionOutputGate { .. }
        | OpKind::GdnConvSilu { .. }
        | OpKind::GdnCore { .. }
        | OpKind::SiluMul { .. } => Vec::new(),
    }
}
