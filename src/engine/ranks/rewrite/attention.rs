//! Attention and latent attention: a rank has heads.

use super::{Done, Rewrite};
use crate::backend::{CacheSpec, Op, OpKind};

impl Rewrite<'_> {
    /// Operations of attention: queries, keys and values of this rank's heads. Latents and their rope
    /// keys are whole on every rank, because every head reads them.
    pub(super) fn attention(&mut self, op: &Op) -> Done {
        match op.kind.clone() {
            OpKind::PerHeadNorm { x, head_dim, norm, .. } => {
                let heads = self.heads(x, head_dim)?.len();
                self.push(op, OpKind::PerHeadNorm { x, heads, head_dim, norm })
            }
            OpKind::QGateSplit { x, head_dim, q, gate, .. } => {
                let heads = self.heads(x, 2 * head_dim)?;
                self.set(q, heads.of_units(head_dim))?;
                self.set(gate, heads.of_units(head_dim))?;
                self.push(op, OpKind::QGateSplit { x, heads: heads.len(), head_dim, q, gate })
            }
            OpKind::Rope { x, head_dim, offset, .. } => {
                let heads = self.heads(x, head_dim)?.len();
                self.push(op, OpKind::Rope { x, heads, head_dim, offset })
            }
            OpKind::KvWrite { k, v, slot } => {
                let spec = self.whole.attention_slots[slot];
                let heads = self.heads(k, spec.head_dim)?;
                if heads != self.heads(v, spec.value_dim)? {
                    return Err("keys and values are of other heads".to_owned());
                }
                let own = CacheSpec { kv_heads: heads.len(), ..spec };
                self.layout.attention.push((slot, heads));
                self.attention_slots.push(own);
                self.push(op, OpKind::KvWrite { k, v, slot: self.attention_slots.len() - 1 })
            }
            OpKind::AttentionCore { q, slot, out, .. } => {
                let heads = self.heads(q, self.whole.attention_slots[slot].head_dim)?.len();
                self.set(out, self.get(q)?)?;
                let slot = self.attention_slot(slot)?;
                self.push(op, OpKind::AttentionCore { q, slot, heads, out, log_sums: None })
            }
            OpKind::AttentionOutputGate { x, gate } => {
                self.same(x, gate)?;
                self.push(op, op.kind.clone())
            }
            OpKind::MlaLatentNorm { x, latent, rope_key, .. } => {
                self.is_whole(x)?;
                self.set_whole(latent)?;
                self.set_whole(rope_key)?;
                self.push(op, op.kind.clone())
            }
            OpKind::MlaAttention { q, slot, heads, nope, kv_b, scale, out } => {
                let spec = self.whole.attention_slots[slot];
                let own = self.heads(q, nope + spec.head_dim)?;
                let value = self.whole.buffers[out.0].width / heads;
                if self.matrix(kv_b)?.0 != own.of_units(nope + value) {
                    return Err(format!("`{}` has other heads than the queries", kv_b.role));
                }
                self.set(out, own.of_units(value))?;
                let slot = self.attention_slot(slot)?;
                let heads = own.len();
                self.push(op, OpKind::MlaAttention { q, slot, heads, nope, kv_b, scale, out })
            }
            _ => Err("no operation of attention".to_owned()),
        }
    }

    fn attention_slot(&self, slot: usize) -> Result<usize, String> {
        let found = self.layout.attention.iter().position(|(whole, _)| *whole == slot);
        found.ok_or_else(|| format!("attention cache {slot} is read before it is written"))
    }
}
