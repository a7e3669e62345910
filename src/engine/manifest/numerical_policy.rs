//! `numerical_policy`: how the model is computed.
//!
//! The block holds rules and implementations, never values that follow from the model's
//! dimensions, so that a change of the model moves `semantic` alone. Epsilon and theta are the
//! exception, on purpose: here stands the FP32 value that kernels read.

use super::NOT_APPLICABLE;
use super::quantization::{Quantization, quantization_fields};
use crate::backend::cpu::{
    BLOCK_TOKENS, GROUP_TOKENS, Isa, L2_EPSILON, SAMPLER, SAMPLER_VERSION, policy_bindings,
};
use crate::backend::{Binding, DeviceKind, Fusion, OpKind, Policy, Region, cuda};
use crate::descriptor::Descriptor;
use crate::engine::lower::lower;
use crate::placement::{Cut, Placement, Tree};
use crate::units::{Canonical, Digest, mutant};
use crate::weights::Artifact;

/// Everything that decides which bits come out, apart from model, weights and tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct NumericalPolicy {
    /// The kind of device that executes.
    pub device: DeviceKind,
    /// The policy that executes (aliases resolved).
    pub policy: Policy,
    /// The implementation of every region that the policy binds on this device, whether or not
    /// the model reaches it.
    pub bindings: Vec<Binding>,
    /// Epsilon of the RMS norms as kernels read it.
    pub norm_epsilon: f32,
    /// Epsilon of the L2 norm of gated-delta-net keys and queries.
    pub l2_epsilon: f32,
    /// Base of the rotary frequencies in FP32; `None` without attention.
    pub rope_theta: Option<f32>,
    /// Tokens of a gated-delta-net group and of an attention block.
    pub group_tokens: usize,
    pub block_tokens: usize,
    /// The roles that are packed and what prefill reads; `None` where none is.
    pub quantization: Option<Quantization>,
    /// Rewrites of the plan, sorted.
    pub fusions: Vec<Fusion>,
    /// The sampler's arithmetic by name, and the version of its transform from logits to a choice.
    pub sampler: &'static str,
    pub sampler_version: u32,
    /// What truncates the distribution, in order of application; nothing unless a request asks.
    pub truncation: Vec<SamplerTransform>,
    /// Reductions that ranks divide otherwise than by subtrees of the reduction tree. Where every cut is
    /// a subtree the bits are those of one device, and nothing of the placement shows here.
    pub cuts_off_the_tree: Vec<Cut>,
}

/// A transform between the logits and the draw.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplerTransform {
    pub name: &'static str,
    pub version: u32,
    pub value: f64,
}

impl NumericalPolicy {
    /// How the CPU computes this model under a policy on an instruction set; aliases are resolved
    /// first.
    pub fn of(descriptor: &Descriptor, policy: Policy, isa: Isa) -> NumericalPolicy {
        let plan = lower(descriptor);
        // Every RMS norm of a model has the same epsilon; a model without norms does not exist.
        let norm_epsilon = plan.all_ops().find_map(|op| match &op.kind {
            OpKind::RmsNorm { norm, .. } => Some(norm.epsilon),
            _ => None,
        });
        NumericalPolicy {
            device: DeviceKind::Cpu,
            policy,
            bindings: match mutant!("manifest_bindings_of_default") {
                true => policy_bindings(Policy::Reference, isa),
                false => policy_bindings(policy, isa),
            },
            norm_epsilon: norm_epsilon.unwrap_or(descriptor.norm_epsilon as f32),
            l2_epsilon: L2_EPSILON,
            rope_theta: plan
                .rope
                .as_ref()
                .map(|rope| rope.theta as f32)
                .filter(|_| !mutant!("manifest_theta_omitted")),
            group_tokens: GROUP_TOKENS,
            block_tokens: BLOCK_TOKENS,
            fusions: Vec::new(),
            quantization: None,
            sampler: SAMPLER,
            sampler_version: SAMPLER_VERSION,
            truncation: Vec::new(),
            cuts_off_the_tree: Vec::new(),
        }
    }

    /// The same with packed weights.
    pub fn with_artifact(self, artifact: Option<&Artifact>) -> NumericalPolicy {
        let quantization = artifact.map(|artifact| Quantization {
            roles: artifact.roles.clone(),
            prefill: artifact.prefill,
        });
        NumericalPolicy { quantization, ..self }
    }

    /// How a CUDA device computes this model under a policy.
    pub fn on_cuda(descriptor: &Descriptor, policy: Policy) -> NumericalPolicy {
        NumericalPolicy {
            device: DeviceKind::Cuda,
            bindings: cuda::policy_bindings(policy),
            ..NumericalPolicy::of(descriptor, policy, Isa::PORTABLE)
        }
    }

    /// The same, computed by the ranks of a placement.
    pub fn placed(self, placement: &Placement) -> NumericalPolicy {
        // `fast` sums a product in one chain: no part of it is a subtree. Experts are a tree there too.
        let chained =
            |cut: &Cut| matches!(cut.tree, Tree::Segments(_)) && self.policy == Policy::Fast;
        let off = |cut: &&Cut| chained(cut) || !cut.is_subtree();
        let cuts_off_the_tree = placement.cuts.iter().filter(off).cloned().collect();
        NumericalPolicy { cuts_off_the_tree, ..self }
    }

    /// Digest of the region → implementation table alone.
    pub fn bindings_digest(&self) -> Digest {
        self.bindings_table().digest()
    }

    fn bindings_table(&self) -> Canonical {
        Canonical::object(self.bindings.iter().map(|b| {
            let implementation = Canonical::object([
                ("implementation", Canonical::from(b.implementation.as_str())),
                ("instructions", b.instructions.as_str().into()),
            ]);
            (b.region.name(), implementation)
        }))
    }

    fn truncation_fields(&self) -> Canonical {
        let transform = |t: &SamplerTransform| {
            Canonical::object([
                ("name", Canonical::from(t.name)),
                ("version", t.version.into()),
                ("value", t.value.into()),
            ])
        };
        Canonical::List(self.truncation.iter().map(transform).collect())
    }

    /// Fields of the block.
    pub fn fields(&self) -> Canonical {
        let rounds = self.policy.rounds_to_bf16();
        let activations = if rounds { "bf16" } else { "f32" };
        let theta = self.rope_theta.map_or(NOT_APPLICABLE.into(), |v| f64::from(v).into());
        let boundaries = match rounds {
            true => Canonical::object(
                self.bindings
                    .iter()
                    .map(|b| (b.region.name(), Canonical::from(rounded_to_bf16(b.region)))),
            ),
            false => "none".into(),
        };
        Canonical::object([
            ("policy", Canonical::from(self.policy.to_string())),
            ("bindings", self.bindings_table()),
            ("bindings_digest", self.bindings_digest().to_string().into()),
            (
                "effective",
                Canonical::object([
                    ("norm_epsilon", f64::from(self.norm_epsilon).into()),
                    ("l2_epsilon", f64::from(self.l2_epsilon).into()),
                    ("rope_theta", theta),
                ]),
            ),
            (
                "chunks",
                Canonical::object(
                    [
                        ("gdn_group_tokens", self.group_tokens),
                        ("attention_block_tokens", self.block_tokens),
                    ]
                    .map(|(k, v)| (k, Canonical::from(v))),
                ),
            ),
            (
                "rounding",
                Canonical::object([
                    ("activations", Canonical::from(activations)),
                    ("mode", if rounds { "nearest, ties to even" } else { NOT_APPLICABLE }.into()),
                    ("boundaries", boundaries),
                    ("attention_cache", activations.into()),
                    ("gdn_states", "f32".into()),
                    ("logits", "f32".into()),
                ]),
            ),
            ("gemm", gemm(self.device, self.policy)),
            ("split_kv", "blocks at absolute positions, merged in ascending order".into()),
            ("transcendentals", "own, by polynomials; no platform library".into()),
            (
                "fusions",
                Canonical::List(
                    self.fusions.iter().map(|f| f.to_string().as_str().into()).collect(),
                ),
            ),
            ("quantization", quantization_fields(self.quantization.as_ref(), self.policy)),
            ("collectives", collectives(&self.cuts_off_the_tree)),
            ("backward", NOT_APPLICABLE.into()),
            (
                "sampler",
                Canonical::object([
                    ("arithmetic", Canonical::from(self.sampler)),
                    ("transform_version", self.sampler_version.into()),
                    ("truncation", self.truncation_fields()),
                ]),
            ),
        ])
    }
}

/// How matrix products are summed; instructions stand with the bindings.
fn gemm(device: DeviceKind, policy: Policy) -> Canonical {
    if device == DeviceKind::Cpu && policy == Policy::Fast {
        return Canonical::object([
            ("algorithm", Canonical::from("fixed order, one chain per output, ascending k")),
            ("accumulator", "f32".into()),
            ("fused_multiply_add", "as the instructions of the binding".into()),
            ("segments", "1".into()),
            ("segment_sum", NOT_APPLICABLE.into()),
            ("weights_in_f32", "as reference".into()),
        ]);
    }
    let (algorithm, fused) = match (device, policy) {
        (DeviceKind::Cpu, _) => ("fixed order, 16 lanes per segment", false),
        (DeviceKind::Cuda, Policy::F32) => {
            ("fixed order, one chain per segment, ascending k", true)
        }
        (DeviceKind::Cuda, Policy::Fast) => {
            ("unpinned from 65 tokens on, else as invariant", false)
        }
        (DeviceKind::Cuda, _) => ("fixed order, matrix instructions of k = 16, ascending", false),
    };
    Canonical::object([
        ("algorithm", Canonical::from(algorithm)),
        ("accumulator", "f32".into()),
        ("fused_multiply_add", fused.into()),
        ("segments", "largest of 8, 4, 2 with k mod (64 * s) = 0, else 1".into()),
        ("segment_sum", "binary tree".into()),
    ])
}

/// How ranks add what they have, where that decides bits.
fn collectives(cuts: &[Cut]) -> Canonical {
    let cut = |cut: &Cut| {
        Canonical::object([("role", Canonical::from(cut.role.as_str())), ("ways", cut.ways.into())])
    };
    let dtype = if cuts.is_empty() { NOT_APPLICABLE } else { "f32" };
    Canonical::object([
        ("element_type", Canonical::from(dtype)),
        ("merge_type", dtype.into()),
        ("cuts_off_the_tree", Canonical::List(cuts.iter().map(cut).collect())),
    ])
}

/// What of a region is rounded to BF16 where the policy rounds; the modules of the regions state
/// the arithmetic between.
fn rounded_to_bf16(region: Region) -> &'static str {
    match region {
        Region::Embedding
        | Region::Gemm
        | Region::ResidualAdd
        | Region::AttentionCore
        | Region::AttentionOutputGate
        | Region::GdnConv1d
        | Region::GdnConvSilu
        | Region::GdnCore
        | Region::SiluMul
        | Region::BiasAdd
        | Region::MoeCombine
        | Region::MoeShared => "output",
        Region::MlaLatentNorm => "normalised latent, output",
        Region::MlaAttention => "absorbed query, weighted latent, output",
        Region::MoeExperts => "gate, up, their gated product, output",
        Region::MoeRouterLogits => "nothing",
        Region::MoeRouter => "weights where the model keeps them in its own type",
        Region::GateUp => "both products, output",
        Region::ResidualNorm => "sum, then as rms_norm",
        Region::AllReduce => "sum",
        Region::RmsNorm | Region::PerHeadNorm => "plain: normalised row, output; one_plus: output",
        Region::Rope => "half_split: cosine, sine, output; interleaved: output",
        Region::GdnPrepare => "query, key",
        Region::GdnGatedNorm => "normalised row, weighted row if the weight is BF16, output",
        Region::QGateSplit
        | Region::KvWrite
        | Region::MoePermute
        | Region::AllGather
        | Region::StageTransfer => "nothing: copies what is rounded already",
        Region::GdnCommit | Region::GemmF32 | Region::LogSoftmax | Region::Sampler => "nothing",
    }
}
