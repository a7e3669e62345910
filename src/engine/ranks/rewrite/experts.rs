//! Mixtures of experts: every rank chooses among all, and computes the experts that it has.

use super::{Done, Rewrite};
use crate::backend::{ExpertSpan, Op, OpKind, RankGroup};
use crate::descriptor::RoleName;
use crate::units::mutant;

impl Rewrite<'_> {
    /// Operations of a mixture of experts: every rank chooses among all, and computes those it has.
    pub(super) fn experts(&mut self, op: &Op) -> Done {
        match op.kind.clone() {
            OpKind::MoeRouterLogits { x, normed, out, .. } => {
                self.is_whole(x)?;
                self.set_whole(normed)?;
                self.set_whole(out)?;
                self.push(op, op.kind.clone())
            }
            OpKind::MoeRouter { logits, index, weights, .. } => {
                self.is_whole(logits)?;
                self.set_whole(index)?;
                self.set_whole(weights)?;
                self.push(op, op.kind.clone())
            }
            OpKind::MoePermute { x, index, experts, out } => {
                self.is_whole(x)?;
                self.is_whole(index)?;
                self.set_whole(out)?;
                let experts = self.own_experts(RoleName::MoeDown, experts)?;
                self.push(op, OpKind::MoePermute { x, index, experts, out })
            }
            OpKind::MoeExperts { x, index, experts, gate, up, down, inner, out } => {
                self.is_whole(x)?;
                self.is_whole(index)?;
                for buf in inner.into_iter().chain([out]) {
                    self.set_whole(buf)?;
                }
                let own = self.own_experts(down.role, experts)?;
                for role in [gate.role, up.role] {
                    if self.own_experts(role, experts)? != own {
                        return Err(format!("`{role}` is of other experts than `{}`", down.role));
                    }
                }
                let kind =
                    OpKind::MoeExperts { x, index, experts: own, gate, up, down, inner, out };
                self.push(op, kind)
            }
            OpKind::MoeCombine { x, index, weights, experts, out } => {
                for buf in [x, index, weights] {
                    self.is_whole(buf)?;
                }
                self.set_whole(out)?;
                let experts = self.own_experts(RoleName::MoeDown, experts)?;
                let kind = OpKind::MoeCombine { x, index, weights, experts, out };
                if experts.is_whole() {
                    return self.push(op, kind);
                }
                self.push_part(op, kind, out, RankGroup::Expert)
            }
            OpKind::MoeShared { x, shared, gate } => {
                for buf in [x, shared].into_iter().chain(gate) {
                    self.is_whole(buf)?;
                }
                self.push(op, op.kind.clone())
            }
            _ => Err("no operation of experts".to_owned()),
        }
    }

    /// The experts of a role that this rank has.
    fn own_experts(&self, role: RoleName, all: ExpertSpan) -> Result<ExpertSpan, String> {
        let slice = self.placement.slice(role, self.index);
        match slice.map(|s| &s.axes[0].ranges[..]) {
            Some([own]) => {
                let next = (own.start + own.len()) % all.of;
                let first = if mutant!("experts_of_next_rank") { next } else { own.start };
                Ok(ExpertSpan { first, count: own.len(), ..all })
            }
            _ => Err(format!("experts of `{role}` lie apart")),
        }
    }
}
