//! Subjects of the regions of multi-head latent attention.

use super::builder::Builder;
use super::subject::Draw;
use crate::backend::{CacheKind, CacheSpec, OpKind, Plan};
use crate::descriptor::{NormStyle, RoleName};
use crate::harness::kind::Cell;

/// Heads, latent, nope, rope and value dimensions.
fn dims(cell: &Cell) -> Result<[usize; 5], String> {
    cell.read_list("mla")?.try_into().map_err(|_| "axis `mla` needs five numbers".to_owned())
}

/// The norm of the latent.
pub(super) fn norm(b: &mut Builder, cell: &Cell) -> Result<(), String> {
    let [_, latent, _, rope, _] = dims(cell)?;
    let norm = b.norm(RoleName::MlaKvANorm, latent, NormStyle::Plain);
    let x = b.input("x", latent + rope, Draw::Activation);
    let latent = b.output("latent", latent);
    let rope_key = b.output("rope_key", rope);
    b.op(OpKind::MlaLatentNorm { x, norm, latent, rope_key });
    Ok(())
}

/// The attention; gives the plan that fills its cache.
pub(super) fn attention(b: &mut Builder, cell: &Cell) -> Result<Plan, String> {
    let [heads, latent, nope, rope, value] = dims(cell)?;
    let k = b.input("rope_key", rope, Draw::Activation);
    let v = b.input("latent", latent, Draw::Activation);
    let spec = CacheSpec {
        layer: 0,
        kv_heads: 1,
        head_dim: rope,
        value_dim: latent,
        kind: CacheKind::Latent,
    };
    b.plan.attention_slots.push(spec);
    b.op(OpKind::KvWrite { k, v, slot: 0 });
    let prefix = b.plan.clone();
    let q = b.input("q", heads * (nope + rope), Draw::Activation);
    let kv_b = b.weight(RoleName::MlaKvB, heads * (nope + value), latent, 0.2);
    let out = b.output("y", heads * value);
    let scale = 1.0 / ((nope + rope) as f32).sqrt();
    b.op(OpKind::MlaAttention { q, slot: 0, heads, nope, kv_b, scale, out });
    Ok(prefix)
}
