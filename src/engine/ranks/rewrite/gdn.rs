//! Gated delta nets: a rank has value heads, and the key heads that they read.

use super::super::columns::{in_units, within};
use super::{Done, Rewrite};
use crate::backend::ranks::GdnSlice;
use crate::backend::{GdnSpec, Op, OpKind};
use crate::descriptor::GatedDeltaNet;
use crate::placement::AxisSlice;

impl Rewrite<'_> {
    /// Operations of a gated delta net.
    pub(super) fn gdn(&mut self, op: &Op) -> Done {
        match op.kind.clone() {
            OpKind::GdnConv1d { x, weight, slot, out } => {
                let channels = self.get(x)?;
                if self.matrix(weight)?.0 != channels {
                    return Err("the convolution has other channels than its input".to_owned());
                }
                self.set(out, channels.clone())?;
                let slot = self.add_gdn(slot, channels)?;
                self.push(op, OpKind::GdnConv1d { x, weight, slot, out })
            }
            OpKind::GdnConvSilu { x } => {
                self.get(x)?;
                self.push(op, op.kind.clone())
            }
            OpKind::GdnPrepare { slot, qkv, a, b, a_log, dt_bias, q, k, v, log_decay, beta } => {
                let dims = self.whole.gdn_slots[slot].dims;
                let parts = heads_of_channels(&dims, &self.get(qkv)?)?;
                if self.get(a)? != parts.value_heads || self.get(b)? != parts.value_heads {
                    return Err("decay and rate are of other heads than the values".to_owned());
                }
                for buf in [q, k] {
                    self.set(buf, parts.key_heads.of_units(dims.key_dim))?;
                }
                self.set(v, parts.value_heads.of_units(dims.value_dim))?;
                for buf in [log_decay, beta] {
                    self.set(buf, parts.value_heads.clone())?;
                }
                let slot = self.gdn_slot(slot)?;
                let kind = OpKind::GdnPrepare {
                    slot,
                    qkv,
                    a,
                    b,
                    a_log,
                    dt_bias,
                    q,
                    k,
                    v,
                    log_decay,
                    beta,
                };
                self.push(op, kind)
            }
            OpKind::GdnCore { q, k, v, log_decay, beta, slot, out } => {
                self.same(q, k)?;
                self.same(log_decay, beta)?;
                self.set(out, self.get(v)?)?;
                let slot = self.gdn_slot(slot)?;
                self.push(op, OpKind::GdnCore { q, k, v, log_decay, beta, slot, out })
            }
            OpKind::GdnGatedNorm { x, z, .. } => {
                self.same(x, z)?;
                self.push(op, op.kind.clone())
            }
            _ => Err("no operation of a gated delta net".to_owned()),
        }
    }

    fn gdn_slot(&self, slot: usize) -> Result<usize, String> {
        let found = self.gdn_slots.iter().position(|(whole, _)| *whole == slot);
        found.ok_or_else(|| format!("gated-delta-net state {slot} has no convolution before"))
    }

    fn add_gdn(&mut self, slot: usize, channels: AxisSlice) -> Result<usize, String> {
        let GdnSpec { layer, dims } = self.whole.gdn_slots[slot];
        let parts = heads_of_channels(&dims, &channels)?;
        let (key_heads, value_heads) = (parts.key_heads.len(), parts.value_heads.len());
        let dims = GatedDeltaNet { key_heads, value_heads, ..dims };
        self.layout.gdn.insert(layer, parts);
        self.gdn_slots.push((slot, GdnSpec { layer, dims }));
        Ok(self.gdn_slots.len() - 1)
    }
}

/// The heads whose `q | k | v` channels these are.
fn heads_of_channels(dims: &GatedDeltaNet, channels: &AxisSlice) -> Result<GdnSlice, String> {
    let keys = dims.key_heads * dims.key_dim;
    let queries = within(channels, 0, keys);
    if queries != within(channels, keys, keys) {
        return Err("queries and keys are of other heads".to_owned());
    }
    let values = within(channels, 2 * keys, dims.value_heads * dims.value_dim);
    Ok(GdnSlice {
        key_heads: in_units(&queries, dims.key_dim)?,
        value_heads: in_units(&values, dims.value_dim)?,
        channels: channels.clone(),
    })
}
