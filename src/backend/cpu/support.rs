//! Which shapes each region supports: checked once, when a plan is bound to weights.

use super::gdn_core::{MAX_KEY_DIM, MAX_VALUE_DIM};
use crate::backend::{Buf, CacheKind, GdnSpec, NormWeight, OpKind, Plan, WeightRef};
use crate::tensor::{INT4_TILE_ROWS, Storage, Weight};
use std::collections::HashMap;

/// Refuses a plan with an operation that no kernel here executes, naming region and reason.
pub(crate) fn check(plan: &Plan, weights: &HashMap<WeightRef, Weight>) -> Result<(), String> {
    let checker = Checker { plan, weights };
    if let Some(at) = weights.iter().find(|(at, w)| is_packed(w) && !at.role.is_projection()) {
        return Err(format!("weight `{}` is packed; only projections may be", at.0.role));
    }
    for op in plan.all_ops() {
        checker.op(&op.kind).map_err(|why| format!("region `{}`: {why}", op.kind.region()))?;
    }
    Ok(())
}

fn is_packed(weight: &Weight) -> bool {
    matches!(weight.storage, Storage::Int4(_))
}

struct Checker<'a> {
    plan: &'a Plan,
    weights: &'a HashMap<WeightRef, Weight>,
}

impl Checker<'_> {
    fn op(&self, op: &OpKind) -> Result<(), String> {
        match *op {
            OpKind::Embedding { weight, out } => self.columns(weight, self.width(out)).map(|_| ()),
            OpKind::RmsNorm { x, norm, out } => {
                self.same(x, out)?;
                self.norm(norm, self.width(x))
            }
            OpKind::PerHeadNorm { x, heads, head_dim, norm } => {
                self.is(x, heads * head_dim)?;
                self.norm(norm, head_dim)
            }
            OpKind::Gemm { x, weight, out } | OpKind::GemmF32 { x, weight, out } => {
                let weight = self.columns(weight, self.width(x))?;
                self.is(out, weight.rows)
            }
            OpKind::ResidualAdd { residual, x } => self.same(residual, x),
            OpKind::QGateSplit { x, heads, head_dim, q, gate } => {
                self.is(x, 2 * heads * head_dim)?;
                self.is(q, heads * head_dim)?;
                self.is(gate, heads * head_dim)
            }
            OpKind::Rope { x, heads, head_dim, offset } => {
                self.is(x, heads * head_dim)?;
                let rope = self.plan.rope.as_ref().ok_or("the plan has no rotary embedding")?;
                if offset + rope.rotary_dim > head_dim || !rope.rotary_dim.is_multiple_of(2) {
                    return Err(format!(
                        "rotary_dim {} must be even and fit a head of {head_dim} from {offset} on",
                        rope.rotary_dim
                    ));
                }
                Ok(())
            }
            OpKind::KvWrite { k, v, slot } => {
                let spec = self.plan.attention_slots[slot];
                self.is(k, spec.kv_heads * spec.head_dim)?;
                self.is(v, spec.kv_heads * spec.value_dim)
            }
            OpKind::BiasAdd { x, bias } => self.columns(bias, self.width(x)).map(|_| ()),
            OpKind::MlaLatentNorm { x, norm, latent, rope_key } => {
                self.is(x, self.width(latent) + self.width(rope_key))?;
                self.norm(norm, self.width(latent))
            }
            OpKind::MlaAttention { q, slot, heads, nope, kv_b, out, .. } => {
                let spec = self.plan.attention_slots[slot];
                self.is(q, heads * (nope + spec.head_dim))?;
                let weight = self.columns(kv_b, spec.value_dim)?;
                let value = self.width(out) / heads.max(1);
                self.is(out, heads * value)?;
                if weight.rows != heads * (nope + value) || value == 0 || spec.kv_heads != 1 {
                    return Err(format!(
                        "weight `{}` has {} rows, {heads} × ({nope} + {value}) expected",
                        kv_b.role, weight.rows
                    ));
                }
                Ok(())
            }
            OpKind::AttentionCore { q, slot, heads, out, log_sums } => {
                let spec = self.plan.attention_slots[slot];
                if spec.kind == CacheKind::Window(0) || spec.value_dim != spec.head_dim {
                    return Err(format!("a cache of {spec:?}"));
                }
                groups("query", heads, "key-value", spec.kv_heads)?;
                self.is(q, heads * spec.head_dim)?;
                log_sums.map_or(Ok(()), |buf| self.is(buf, heads))?;
                self.is(out, heads * spec.head_dim)
            }
            OpKind::AttentionOutputGate { x, gate } => self.same(x, gate),
            OpKind::GdnConv1d { x, weight, slot, out } => {
                let d = self.gdn(slot)?.dims;
                self.is(x, d.channels())?;
                self.is(out, d.channels())?;
                self.columns(weight, d.conv_width).map(|_| ())
            }
            OpKind::GdnConvSilu { .. } => Ok(()),
            OpKind::GdnPrepare { slot, qkv, a, b, q, k, v, log_decay, beta, a_log, dt_bias } => {
                let d = self.gdn(slot)?.dims;
                self.is(qkv, d.channels())?;
                for buf in [a, b, log_decay, beta] {
                    self.is(buf, d.value_heads)?;
                }
                for buf in [q, k] {
                    self.is(buf, d.key_heads * d.key_dim)?;
                }
                self.is(v, d.value_heads * d.value_dim)?;
                self.columns(a_log, d.value_heads)?;
                self.columns(dt_bias, d.value_heads).map(|_| ())
            }
            OpKind::GdnCore { q, k, v, log_decay, beta, slot, out } => {
                let d = self.gdn(slot)?.dims;
                self.is(q, d.key_heads * d.key_dim)?;
                self.is(k, d.key_heads * d.key_dim)?;
                self.is(v, d.value_heads * d.value_dim)?;
                self.is(log_decay, d.value_heads)?;
                self.is(beta, d.value_heads)?;
                self.is(out, d.value_heads * d.value_dim)
            }
            OpKind::GdnGatedNorm { x, z, norm } => {
                self.same(x, z)?;
                let weight = self.weight(norm.weight)?;
                if weight.cols == 0 || !self.width(x).is_multiple_of(weight.cols) {
                    return Err(format!("rows of {} in heads of {}", self.width(x), weight.cols));
                }
                Ok(())
            }
            OpKind::MoeRouterLogits { x, norm, weight, normed, out } => {
                self.same(x, normed)?;
                self.norm(norm, self.width(x))?;
                let weight = self.columns(weight, self.width(x))?;
                self.is(out, weight.rows)
            }
            OpKind::MoeRouter { logits, router, index, weights } => {
                self.same(index, weights)?;
                let (experts, k) = (self.width(logits), self.width(index));
                let groups = router.groups;
                if groups == 0 || !experts.is_multiple_of(groups) || router.groups_kept > groups {
                    return Err(format!(
                        "{experts} experts in {groups} groups, of which {} are kept",
                        router.groups_kept
                    ));
                }
                if k == 0 || k > experts / groups * router.groups_kept {
                    return Err(format!("a choice of {k} among {experts} experts"));
                }
                Ok(())
            }
            OpKind::MoePermute { x, index, out, .. } => {
                self.is(out, self.width(index) * self.width(x))
            }
            OpKind::MoeExperts { x, index, experts, gate, up, down, inner, out } => {
                let k = self.width(index).max(1);
                let hidden = self.width(x) / k;
                self.same(x, out)?;
                let inner_width = self.width(inner[0]) / k;
                for buf in inner {
                    self.is(buf, k * inner_width)?;
                }
                for (weight, cols, rows) in [
                    (gate, hidden, inner_width),
                    (up, hidden, inner_width),
                    (down, inner_width, hidden),
                ] {
                    let found = self.columns(weight, cols)?;
                    if found.rows != experts.count * rows {
                        return Err(format!(
                            "weight `{}` has {} rows, {} × {rows} expected",
                            weight.role, found.rows, experts.count
                        ));
                    }
                    if is_packed(found) && !rows.is_multiple_of(INT4_TILE_ROWS) {
                        return Err(format!(
                            "weight `{}` is packed, and the {rows} rows of an expert are no whole \
                             tiles of {INT4_TILE_ROWS}",
                            weight.role
                        ));
                    }
                }
                Ok(())
            }
            OpKind::MoeCombine { x, index, weights, out, .. } => {
                self.same(index, weights)?;
                self.is(x, self.width(index) * self.width(out))
            }
            OpKind::MoeShared { x, shared, gate } => {
                self.same(x, shared)?;
                gate.map_or(Ok(()), |gate| self.is(gate, 1))
            }
            OpKind::SiluMul { gate, up, out } => {
                self.same(gate, up)?;
                self.same(gate, out)
            }
            OpKind::GateUp { x, gate, up, out } => {
                for weight in [gate, up] {
                    let weight = self.columns(weight, self.width(x))?;
                    self.is(out, weight.rows)?;
                }
                Ok(())
            }
            OpKind::ResidualNorm { residual, x, norm, out } => {
                self.same(residual, x)?;
                self.same(residual, out)?;
                self.norm(norm, self.width(residual))
            }
            OpKind::EmbeddingPart { weight, out, .. } => {
                self.columns(weight, self.width(out)).map(|_| ())
            }
            OpKind::GemmPart { x, weight, segments, out } => {
                let weight = self.columns(weight, self.width(x))?;
                if ![1, 2, 4, 8].contains(&segments) || !weight.cols.is_multiple_of(segments) {
                    return Err(format!("{} columns in {segments} segments", weight.cols));
                }
                self.is(out, weight.rows)
            }
            OpKind::AllGather { x, out, .. } => {
                if self.width(out).is_multiple_of(self.width(x).max(1)) {
                    return Ok(());
                }
                Err(format!("parts of {} make no rows of {}", self.width(x), self.width(out)))
            }
            OpKind::AllReduce { .. } | OpKind::StageSend { .. } | OpKind::StageReceive { .. } => {
                Ok(())
            }
        }
    }

    fn width(&self, buf: Buf) -> usize {
        self.plan.buffers[buf.0].width
    }

    fn is(&self, buf: Buf, width: usize) -> Result<(), String> {
        let found = self.width(buf);
        if found == width {
            return Ok(());
        }
        Err(format!("buffer `{}` is {found} wide, {width} expected", self.plan.buffers[buf.0].name))
    }

    fn same(&self, a: Buf, b: Buf) -> Result<(), String> {
        self.is(b, self.width(a))
    }

    fn weight(&self, weight: WeightRef) -> Result<&Weight, String> {
        self.weights.get(&weight).ok_or_else(|| format!("weight `{}` is not bound", weight.role))
    }

    fn columns(&self, weight: WeightRef, cols: usize) -> Result<&Weight, String> {
        let found = self.weight(weight)?;
        if found.cols == cols && cols > 0 {
            return Ok(found);
        }
        Err(format!("weight `{}` has {} columns, {cols} expected", weight.role, found.cols))
    }

    fn norm(&self, norm: NormWeight, width: usize) -> Result<(), String> {
        self.columns(norm.weight, width).map(|_| ())
    }

    fn gdn(&self, slot: usize) -> Result<GdnSpec, String> {
        let spec = self.plan.gdn_slots[slot];
        let d = spec.dims;
        groups("value", d.value_heads, "key", d.key_heads)?;
        if d.key_dim > MAX_KEY_DIM || d.value_dim > MAX_VALUE_DIM {
            return Err(format!(
                "heads of {}×{} exceed {MAX_KEY_DIM}×{MAX_VALUE_DIM}",
                d.key_dim, d.value_dim
            ));
        }
        if d.conv_width < 2 {
            return Err(format!("a convolution of {} taps has no history", d.conv_width));
        }
        Ok(spec)
    }
}

fn groups(many_name: &str, many: usize, few_name: &str, few: usize) -> Result<(), String> {
    if few == 0 || many == 0 || !many.is_multiple_of(few) {
        return Err(format!("{many} {many_name} heads cannot share {few} {few_name} heads evenly"));
    }
    Ok(())
}
