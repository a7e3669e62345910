//! Lowers feed-forwards: dense, and mixtures of experts.

use super::lower::Lowering;
use crate::backend::{Buf, ExpertSpan, OpKind, WeightRef};
use crate::descriptor::{Moe, RoleName, SharedGate};

impl Lowering<'_> {
    pub(super) fn dense(&mut self, layer: usize) {
        let width = self.d.intermediate.expect("validated: the dense width is given");
        let roles = [RoleName::MlpGate, RoleName::MlpUp, RoleName::MlpDown];
        self.gated(layer, "mlp", width, roles, self.sublayer);
    }

    /// down(silu(gate(x)) · up(x)) of the normed rows.
    fn gated(&mut self, layer: usize, name: &str, width: usize, roles: [RoleName; 3], out: Buf) {
        let gate = self.buffer(&format!("{name}_gate"), width);
        let up = self.buffer(&format!("{name}_up"), width);
        let act = self.buffer(&format!("{name}_act"), width);
        self.gemm(layer, roles[0], self.normed, gate);
        self.gemm(layer, roles[1], self.normed, up);
        let tap =
            if name == "mlp" { "silu_mul.out".into() } else { format!("{name}.silu_mul.out") };
        self.push(Some(layer), OpKind::SiluMul { gate, up, out: act }, &[(&tap, act)]);
        self.gemm(layer, roles[2], act, out);
    }

    pub(super) fn moe(&mut self, layer: usize, m: &Moe) {
        let at = Some(layer);
        let (x, hidden, k) = (self.normed, self.d.hidden, m.experts_per_token);
        let experts = ExpertSpan::all(m.experts);
        let logits = self.buffer("router_logits", m.experts);
        let index = self.buffer("router_index", k);
        let weights = self.buffer("router_weight", k);
        let kind = OpKind::MoeRouterLogits {
            x: self.residual,
            norm: self.norm(RoleName::PostNorm, at),
            weight: WeightRef { role: RoleName::MoeRouter, layer: at },
            normed: self.buffer("router_normed", hidden),
            out: logits,
        };
        self.push(at, kind, &[("moe_router_logits.out", logits)]);
        let kind = OpKind::MoeRouter { logits, router: m.router, index, weights };
        self.push(at, kind, &[("router_index", index), ("router_weight", weights)]);
        let gathered = self.buffer("moe_gathered", k * hidden);
        self.push(at, OpKind::MoePermute { x, index, experts, out: gathered }, &[]);
        let inner = ["moe_gate", "moe_up", "moe_act"].map(|n| self.buffer(n, k * m.intermediate));
        let expert_out = self.buffer("moe_expert_out", k * hidden);
        let weight = |role| WeightRef { role, layer: at };
        let kind = OpKind::MoeExperts {
            x: gathered,
            index,
            experts,
            gate: weight(RoleName::MoeGate),
            up: weight(RoleName::MoeUp),
            down: weight(RoleName::MoeDown),
            inner,
            out: expert_out,
        };
        self.push(at, kind, &[]);
        let out = self.sublayer;
        let kind = OpKind::MoeCombine { x: expert_out, index, weights, experts, out };
        self.push(at, kind, &[("moe_combine.out", out)]);
        let Some(shared) = m.shared else { return };
        let shared_out = self.buffer("shared_out", hidden);
        let roles = [RoleName::SharedGate, RoleName::SharedUp, RoleName::SharedDown];
        self.gated(layer, "shared", shared.intermediate, roles, shared_out);
        let gate = (shared.gate == SharedGate::Sigmoid).then(|| {
            let gate = self.buffer("shared_scale", 1);
            self.gemm(layer, RoleName::SharedScale, x, gate);
            gate
        });
        let kind = OpKind::MoeShared { x: out, shared: shared_out, gate };
        self.push(at, kind, &[("moe_shared.out", out)]);
    }
}
