//! Lowers a descriptor to an execution plan.

use crate::backend::{
    Buf, BufferSpec, CacheKind, CacheSpec, GdnSpec, NormWeight, Op, OpKind, Plan, WeightRef,
};
use crate::descriptor::{
    Attention, Descriptor, Ffn, GatedDeltaNet, Mixer, NormStyle, OutputGate, RoleName,
};

/// The plan of a whole forward.
///
/// `norm → mixer → residual → norm → ffn → residual` for every layer, then final norm and head.
/// Layer kinds appear here and nowhere else in the order of operations.
pub(super) fn lower(descriptor: &Descriptor) -> Plan {
    let mut lowering = Lowering::new(descriptor);
    lowering.embedding();
    for layer in 0..descriptor.layers() {
        lowering.layer(layer);
    }
    lowering.finish()
}

pub(super) struct Lowering<'a> {
    pub(super) d: &'a Descriptor,
    buffers: Vec<BufferSpec>,
    ops: Vec<Op>,
    pub(super) attention_slots: Vec<CacheSpec>,
    gdn_slots: Vec<GdnSpec>,
    pub(super) residual: Buf,
    pub(super) normed: Buf,
    pub(super) sublayer: Buf,
}

impl<'a> Lowering<'a> {
    fn new(d: &'a Descriptor) -> Lowering<'a> {
        let mut lowering = Lowering {
            d,
            buffers: Vec::new(),
            ops: Vec::new(),
            attention_slots: Vec::new(),
            gdn_slots: Vec::new(),
            residual: Buf(0),
            normed: Buf(0),
            sublayer: Buf(0),
        };
        lowering.residual = lowering.buffer("residual", d.hidden);
        lowering.normed = lowering.buffer("normed", d.hidden);
        lowering.sublayer = lowering.buffer("sublayer", d.hidden);
        lowering
    }

    /// The buffer of that name, made on first use; layers share buffers by name.
    pub(super) fn buffer(&mut self, name: &str, width: usize) -> Buf {
        if let Some(i) = self.buffers.iter().position(|b| b.name == name) {
            debug_assert_eq!(self.buffers[i].width, width, "buffer `{name}` has one width");
            return Buf(i);
        }
        self.buffers.push(BufferSpec { name: name.to_owned(), width });
        Buf(self.buffers.len() - 1)
    }

    pub(super) fn push(&mut self, layer: Option<usize>, kind: OpKind, taps: &[(&str, Buf)]) {
        let prefix = layer.map(|l| format!("layers.{l}.")).unwrap_or_default();
        let taps = taps.iter().map(|(name, buf)| (format!("{prefix}{name}"), *buf)).collect();
        self.ops.push(Op { kind, layer, taps });
    }

    pub(super) fn norm(&self, role: RoleName, layer: Option<usize>) -> NormWeight {
        NormWeight {
            weight: WeightRef { role, layer },
            style: self.d.norm_style,
            epsilon: self.d.norm_epsilon as f32,
        }
    }

    pub(super) fn gemm(&mut self, layer: usize, role: RoleName, x: Buf, out: Buf) {
        let weight = WeightRef { role, layer: Some(layer) };
        let tap = format!("{role}.out");
        self.push(Some(layer), OpKind::Gemm { x, weight, out }, &[(&tap, out)]);
    }

    fn embedding(&mut self) {
        let weight = WeightRef { role: RoleName::Embed, layer: None };
        let out = self.residual;
        self.push(None, OpKind::Embedding { weight, out }, &[("embed", out)]);
    }

    fn layer(&mut self, layer: usize) {
        let (residual, normed, sublayer) = (self.residual, self.normed, self.sublayer);
        let at = Some(layer);
        let norm = self.norm(RoleName::InputNorm, at);
        let taps = [("input_norm.out", normed)];
        self.push(at, OpKind::RmsNorm { x: residual, norm, out: normed }, &taps);
        match self.d.layer_mixers[layer] {
            Mixer::FullAttention => {
                let attention =
                    self.d.attention.clone().expect("validated: attention is described");
                self.full_attention(layer, &attention);
            }
            Mixer::Mla => {
                let mla = self.d.mla.clone().expect("validated: latent attention is described");
                self.mla(layer, &mla);
            }
            Mixer::Gdn => {
                let dims = self.d.gdn.expect("validated: the gated delta net is described");
                self.gdn(layer, dims);
            }
        }
        self.tap_last("mixer", sublayer);
        self.push(at, OpKind::ResidualAdd { residual, x: sublayer }, &[]);
        let norm = self.norm(RoleName::PostNorm, at);
        let taps = [("post_norm.out", normed)];
        self.push(at, OpKind::RmsNorm { x: residual, norm, out: normed }, &taps);
        match self.d.layer_ffns[layer] {
            Ffn::Dense => self.dense(layer),
            Ffn::Moe => {
                let moe = self.d.moe.expect("validated: the mixture of experts is described");
                self.moe(layer, &moe);
            }
        }
        self.tap_last("mlp", sublayer);
        let taps = [("out", residual)];
        self.push(at, OpKind::ResidualAdd { residual, x: sublayer }, &taps);
    }

    /// Adds a tap to the operation that was pushed last.
    fn tap_last(&mut self, name: &str, buf: Buf) {
        if let Some(op) = self.ops.last_mut() {
            let prefix = op.layer.map(|l| format!("layers.{l}.")).unwrap_or_default();
            op.taps.push((format!("{prefix}{name}"), buf));
        }
    }

    fn full_attention(&mut self, layer: usize, a: &Attention) {
        let at = Some(layer);
        let (heads, kv_heads, head_dim) = (a.query_heads, a.kv_heads, a.head_dim);
        let q = self.buffer("attn_q", heads * head_dim);
        let k = self.buffer("attn_k", kv_heads * head_dim);
        let v = self.buffer("attn_v", kv_heads * head_dim);
        let out = self.buffer("attn_out", heads * head_dim);
        let gate = match a.output_gate {
            OutputGate::None => {
                self.projection(layer, a, RoleName::AttnQ, q);
                None
            }
            OutputGate::Sigmoid => {
                let both = self.buffer("attn_q_gate", 2 * heads * head_dim);
                let gate = self.buffer("attn_gate", heads * head_dim);
                self.projection(layer, a, RoleName::AttnQ, both);
                let kind = OpKind::QGateSplit { x: both, heads, head_dim, q, gate };
                self.push(at, kind, &[("q_gate_split.q", q), ("q_gate_split.gate", gate)]);
                Some(gate)
            }
        };
        self.projection(layer, a, RoleName::AttnK, k);
        self.projection(layer, a, RoleName::AttnV, v);
        if a.qk_norm {
            for (x, heads, role) in
                [(q, heads, RoleName::AttnQNorm), (k, kv_heads, RoleName::AttnKNorm)]
            {
                let norm = self.norm(role, at);
                let tap = format!("{role}.out");
                self.push(at, OpKind::PerHeadNorm { x, heads, head_dim, norm }, &[(&tap, x)]);
            }
        }
        self.rope(layer, "rope.q", q, [heads, head_dim, 0]);
        self.rope(layer, "rope.k", k, [kv_heads, head_dim, 0]);
        let slot = self.attention_slots.len();
        let kind = a.window.map_or(CacheKind::Full, CacheKind::Window);
        let spec = CacheSpec { layer, kv_heads, head_dim, value_dim: head_dim, kind };
        self.attention_slots.push(spec);
        self.push(at, OpKind::KvWrite { k, v, slot }, &[]);
        let taps = [("attention_core.out", out)];
        self.push(at, OpKind::AttentionCore { q, slot, heads, out, log_sums: None }, &taps);
        if let Some(gate) = gate {
            let taps = [("attention_output_gate.out", out)];
            self.push(at, OpKind::AttentionOutputGate { x: out, gate }, &taps);
        }
        self.gemm(layer, RoleName::AttnO, out, self.sublayer);
    }

    /// A projection of q, k or v: with a bias, rounded once behind it.
    fn projection(&mut self, layer: usize, a: &Attention, role: RoleName, out: Buf) {
        let bias = match role {
            RoleName::AttnQ => RoleName::AttnQBias,
            RoleName::AttnK => RoleName::AttnKBias,
            _ => RoleName::AttnVBias,
        };
        let (x, at) = (self.normed, Some(layer));
        if !a.qkv_bias {
            return self.gemm(layer, role, x, out);
        }
        let weight = WeightRef { role, layer: at };
        self.push(at, OpKind::GemmF32 { x, weight, out }, &[(&format!("{role}.out"), out)]);
        let bias = WeightRef { role: bias, layer: at };
        self.push(at, OpKind::BiasAdd { x: out, bias }, &[(&format!("{role}.bias_add.out"), out)]);
    }

    pub(super) fn rope(
        &mut self,
        layer: usize,
        tap: &str,
        x: Buf,
        [heads, head_dim, offset]: [usize; 3],
    ) {
        let kind = OpKind::Rope { x, heads, head_dim, offset };
        self.push(Some(layer), kind, &[(tap, x)]);
    }

    fn gdn(&mut self, layer: usize, dims: GatedDeltaNet) {
        let at = Some(layer);
        let keys = dims.key_heads * dims.key_dim;
        let values = dims.value_heads * dims.value_dim;
        let qkv = self.buffer("gdn_qkv", dims.channels());
        let z = self.buffer("gdn_z", values);
        let a = self.buffer("gdn_a", dims.value_heads);
        let b = self.buffer("gdn_b", dims.value_heads);
        let conv = self.buffer("gdn_conv", dims.channels());
        let q = self.buffer("gdn_q", keys);
        let k = self.buffer("gdn_k", keys);
        let v = self.buffer("gdn_v", values);
        let log_decay = self.buffer("gdn_log_decay", dims.value_heads);
        let beta = self.buffer("gdn_beta", dims.value_heads);
        let out = self.buffer("gdn_core_out", values);
        for (role, out) in
            [(RoleName::GdnQkv, qkv), (RoleName::GdnZ, z), (RoleName::GdnB, b), (RoleName::GdnA, a)]
        {
            self.gemm(layer, role, self.normed, out);
        }
        let slot = self.gdn_slots.len();
        self.gdn_slots.push(GdnSpec { layer, dims });
        let weight = WeightRef { role: RoleName::GdnConv, layer: at };
        let taps = [("gdn_conv1d.out", conv)];
        self.push(at, OpKind::GdnConv1d { x: qkv, weight, slot, out: conv }, &taps);
        self.push(at, OpKind::GdnConvSilu { x: conv }, &[("gdn_conv_silu.out", conv)]);
        let prepare = OpKind::GdnPrepare {
            slot,
            qkv: conv,
            a,
            b,
            a_log: WeightRef { role: RoleName::GdnALog, layer: at },
            dt_bias: WeightRef { role: RoleName::GdnDtBias, layer: at },
            q,
            k,
            v,
            log_decay,
            beta,
        };
        let taps = [
            ("gdn_prepare.q", q),
            ("gdn_prepare.k", k),
            ("gdn_prepare.v", v),
            ("gdn_prepare.log_decay", log_decay),
            ("gdn_prepare.beta", beta),
        ];
        self.push(at, prepare, &taps);
        let core = OpKind::GdnCore { q, k, v, log_decay, beta, slot, out };
        self.push(at, core, &[("gdn_core.out", out)]);
        // The gated norm is plain whatever the model's norm style: normalise, × w, × silu(z).
        let norm = NormWeight { style: NormStyle::Plain, ..self.norm(RoleName::GdnNorm, at) };
        let taps = [("gdn_gated_norm.out", out)];
        self.push(at, OpKind::GdnGatedNorm { x: out, z, norm }, &taps);
        self.gemm(layer, RoleName::GdnOut, out, self.sublayer);
    }

    fn finish(mut self) -> Plan {
        let final_hidden = self.buffer("final_norm", self.d.hidden);
        let logits = self.buffer("logits", self.d.vocab);
        let ops = std::mem::take(&mut self.ops);
        let residual = self.residual;
        let norm = self.norm(RoleName::FinalNorm, None);
        let taps = [("final_norm", final_hidden)];
        self.push(None, OpKind::RmsNorm { x: residual, norm, out: final_hidden }, &taps);
        let weight = WeightRef { role: RoleName::LmHead, layer: None };
        let kind = OpKind::GemmF32 { x: final_hidden, weight, out: logits };
        self.push(None, kind, &[("lm_head.out", logits)]);
        Plan {
            buffers: self.buffers,
            ops,
            head_ops: self.ops,
            residual,
            final_hidden,
            logits,
            attention_slots: self.attention_slots,
            gdn_slots: self.gdn_slots,
            rope: self.d.attention.as_ref().map(|a| a.rope.clone()).or(self
                .d
                .mla
                .as_ref()
                .map(|m| m.rope.clone())),
        }
    }
}
