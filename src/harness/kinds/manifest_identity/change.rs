//! The changes: each alters one thing about an execution and nothing else.

use super::base::Base;
use crate::backend::Policy;
use crate::backend::cpu::Isa;
use crate::descriptor::{Descriptor, GatedDeltaNet, Mixer, NormStyle, RoleName};
use crate::engine::manifest::{Execution, Manifest, NumericalPolicy};
use crate::placement::{Device, Placement, PlacementRequest};
use crate::units::Digest;
use crate::weights::{LoadOptions, Model, Prefill, Recipe, WriteOptions, synth};
use serde::Deserialize;
use std::path::Path;

macro_rules! changes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// One change.
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, schemars::JsonSchema,
        )]
        pub(super) enum Change { $($(#[$doc])* #[serde(rename = $name)] $variant,)* }

        impl Change {
            /// Every change.
            pub(super) const ALL: &'static [Change] = &[$(Change::$variant),*];

            /// The name in gate files and trials.
            pub(super) fn name(self) -> &'static str {
                match self { $(Change::$variant => $name),* }
            }
        }
    };
}

changes! {
    /// The same model opened again.
    Nothing = "nothing",
    /// The width of the feed-forward.
    Intermediate = "intermediate",
    /// The longest sequence.
    MaxPosition = "max_position",
    /// The mixer of the last layer.
    LayerKind = "layer_kind",
    /// How norms apply their weight.
    NormStyle = "norm_style",
    /// The declared epsilon.
    NormEpsilon = "norm_epsilon",
    /// The declared base of the rotary embedding.
    RopeTheta = "rope_theta",
    /// A declared base that is another real and the same FP32 number.
    RopeThetaBelowFp32 = "rope_theta_below_fp32",
    /// The dimensions that rotate.
    RotaryDim = "rotary_dim",
    /// Per-head norms of q and k.
    QkNorm = "qk_norm",
    /// One more end token.
    EndTokens = "end_tokens",
    /// The head shares the embedding's weight.
    Tie = "tie",
    /// Another policy.
    Policy = "policy",
    /// Another implementation of one region.
    Binding = "binding",
    /// A role is packed into four bits.
    Quantised = "quantised",
    /// Tokens of a gated-delta-net group.
    GroupTokens = "group_tokens",
    /// Tokens of an attention block.
    BlockTokens = "block_tokens",
    /// Version of the sampler.
    SamplerVersion = "sampler_version",
    /// The layers split between two ranks that share the device.
    TwoRanks = "two_ranks",
    /// Another device.
    Device = "device",
    /// Tokens of a page of the attention caches.
    PageTokens = "page_tokens",
    /// The same tensors in more files.
    FileLayout = "file_layout",
    /// The same tensors under other names.
    TensorNames = "tensor_names",
    /// One stored byte.
    WeightByte = "weight_byte",
    /// Synthetic weights of another seed.
    SyntheticSeed = "synthetic_seed",
    /// A digest of all content beside the sampled one.
    FullDigest = "full_digest",
    /// Another commit with the same sources.
    Revision = "revision",
    /// Other sources.
    Source = "source",
    /// Another processor.
    Processor = "processor",
    /// Other threads, at another time.
    ThreadsAndTime = "threads_and_time",
}

impl Change {
    /// The manifests before and after; `scratch` is an empty folder for files.
    pub(super) fn manifests(
        self,
        base: &Base,
        scratch: &Path,
    ) -> Result<(Manifest, Manifest), String> {
        let before = base.execution();
        let mut after = base.execution();
        let policy = &mut after.numerical_policy;
        match self {
            Change::Policy => {
                *policy = NumericalPolicy::of(&base.model.descriptor, Policy::F32, Isa::detect());
            }
            Change::Binding => policy.bindings[0].implementation.push_str("_other"),
            Change::Quantised => {
                let recipe = Recipe {
                    roles: [RoleName::MlpGate].into(),
                    group: None,
                    prefill: Prefill::Packed,
                };
                let weights =
                    base.model.load(&LoadOptions::default()).map_err(|e| e.to_string())?;
                let packed = weights.quantise(&base.model.descriptor, &recipe);
                after.artifact = packed.map_err(|e| e.to_string())?.artifact().cloned();
                *policy = policy.clone().with_artifact(after.artifact.as_ref());
            }
            Change::GroupTokens => policy.group_tokens /= 2,
            Change::BlockTokens => policy.block_tokens /= 2,
            Change::SamplerVersion => policy.sampler_version += 1,
            Change::TwoRanks => after.placement = two_ranks(&base.model.descriptor)?,
            Change::Device => {
                after.placement = Placement::single(&base.model.descriptor, Device::Cuda(1));
            }
            Change::PageTokens => after.page_tokens /= 2,
            Change::FullDigest => {
                after.run.weights_full_content = Some(Digest::of(b"all content"));
            }
            Change::Revision => {
                after.build.git_revision = "0000000000000000000000000000000000000000";
            }
            Change::Source => after.build.source_digest = "0000",
            Change::Processor => {
                let model = &mut after.run.machine.cpu.model;
                *model = Some("another processor".into());
            }
            Change::ThreadsAndTime => {
                after.run.threads += 1;
                after.run.time_utc = "2031-05-09T14:03:59Z".into();
            }
            Change::FileLayout | Change::TensorNames | Change::WeightByte | Change::Nothing => {
                return Ok((before.manifest(), self.rewritten(base, scratch)?));
            }
            Change::SyntheticSeed => return Ok(synthetic(base)),
            _ => return Ok((before.manifest(), self.described(base)?)),
        }
        Ok((before.manifest(), after.manifest()))
    }

    /// The manifest of another model, executed alike.
    fn described(self, base: &Base) -> Result<Manifest, String> {
        let mut descriptor = base.model.descriptor.clone();
        self.edit(&mut descriptor)?;
        if descriptor == base.model.descriptor {
            return Err(format!("`{}` changes nothing of this model", self.name()));
        }
        let numerical_policy = NumericalPolicy::of(&descriptor, Policy::Reference, Isa::detect());
        let placement = Placement::single(&descriptor, Device::Cpu);
        let changed =
            Execution { descriptor: &descriptor, numerical_policy, placement, ..base.execution() };
        Ok(changed.manifest())
    }

    fn edit(self, d: &mut Descriptor) -> Result<(), String> {
        let no_attention = "the model has no attention";
        match self {
            Change::Intermediate => {
                let width = d.intermediate.as_mut().ok_or("the model has no dense feed-forward")?;
                let (old, new) = (*width, *width * 2);
                *width = new;
                for role in &mut d.roles {
                    let mlp = [RoleName::MlpGate, RoleName::MlpUp, RoleName::MlpDown];
                    if mlp.contains(&role.name) {
                        role.shape.iter_mut().filter(|n| **n == old).for_each(|n| *n = new);
                    }
                }
            }
            Change::MaxPosition => d.max_position_tokens += 1,
            Change::LayerKind => {
                // A model of attention alone gets a layer of the other kind, with some dimensions.
                d.gdn.get_or_insert(GatedDeltaNet {
                    key_heads: 1,
                    value_heads: 1,
                    key_dim: 16,
                    value_dim: 16,
                    conv_width: 4,
                });
                let last = d.layer_mixers.last_mut().ok_or("the model has no layers")?;
                *last = match last {
                    Mixer::FullAttention => Mixer::Gdn,
                    Mixer::Gdn | Mixer::Mla => Mixer::FullAttention,
                };
            }
            Change::NormStyle => {
                d.norm_style = match d.norm_style {
                    NormStyle::Plain => NormStyle::OnePlus,
                    NormStyle::OnePlus => NormStyle::Plain,
                };
            }
            Change::NormEpsilon => d.norm_epsilon *= 2.0,
            Change::EndTokens => d.end_tokens.push(0),
            Change::Tie => {
                let head = d.roles.iter_mut().find(|r| r.name == RoleName::LmHead);
                let head = head.ok_or("the model has no head")?;
                head.tied_to = match head.tied_to {
                    None => Some(RoleName::Embed),
                    Some(_) => None,
                };
            }
            _ => {
                let attention = d.attention.as_mut().ok_or(no_attention)?;
                match self {
                    Change::RopeTheta => attention.rope.theta *= 2.0,
                    Change::RopeThetaBelowFp32 => {
                        attention.rope.theta = attention.rope.theta.next_up();
                    }
                    Change::RotaryDim => attention.rope.rotary_dim -= 2,
                    Change::QkNorm => attention.qk_norm = !attention.qk_norm,
                    _ => return Err(format!("`{}` is no change of the model", self.name())),
                }
            }
        }
        Ok(())
    }

    /// The manifest of the same model from files that were written anew.
    fn rewritten(self, base: &Base, scratch: &Path) -> Result<Manifest, String> {
        let text = |e: &dyn std::fmt::Display| e.to_string();
        let rename = |name: &str| match self {
            Change::TensorNames => format!("{name}.renamed"),
            _ => name.to_owned(),
        };
        let mut options = WriteOptions::default();
        if self == Change::FileLayout {
            options.max_shard_bytes = 50_000;
        }
        let checkpoint = &base.model.checkpoint;
        let own_folder = checkpoint.main_file().parent().unwrap_or(Path::new("."));
        let folder = match self {
            Change::Nothing => own_folder,
            Change::WeightByte => {
                copy_with_another_byte(own_folder, scratch, base)?;
                scratch
            }
            _ => {
                checkpoint.rewrite(scratch, rename, &options).map_err(|e| text(&e))?;
                scratch
            }
        };
        let mut descriptor = base.model.descriptor.clone();
        for view in descriptor.roles.iter_mut().flat_map(|r| &mut r.views) {
            view.tensor = rename(&view.tensor);
        }
        let model = Model::with_descriptor(folder, descriptor).map_err(|e| text(&e))?;
        let weights = model.load(&LoadOptions::default()).map_err(|e| text(&e))?;
        let changed = Execution {
            descriptor: &model.descriptor,
            source: weights.source().clone(),
            checkpoint: Some(&model.checkpoint),
            ..base.execution()
        };
        Ok(changed.manifest())
    }
}

/// The layers split between two ranks, both on the CPU.
fn two_ranks(descriptor: &Descriptor) -> Result<Placement, String> {
    let request = PlacementRequest { stages: Some(2), ..PlacementRequest::single(Device::Cpu) };
    Placement::plan(descriptor, &request).map_err(|e| e.to_string())
}

/// Synthetic weights of two seeds.
fn synthetic(base: &Base) -> (Manifest, Manifest) {
    let of_seed = |seed| {
        let weights = synth(&base.model.descriptor, seed);
        let source = weights.source().clone();
        Execution { source, checkpoint: None, ..base.execution() }.manifest()
    };
    (of_seed(1), of_seed(2))
}

/// Copies a checkpoint and flips the lowest bit of the first stored byte of one tensor.
fn copy_with_another_byte(from: &Path, to: &Path, base: &Base) -> Result<(), String> {
    let fail = |e: std::io::Error| e.to_string();
    for entry in std::fs::read_dir(from).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        if let Some(name) = path.file_name().filter(|_| path.is_file()) {
            std::fs::copy(&path, to.join(name)).map_err(fail)?;
        }
    }
    let view = base.model.descriptor.roles.iter().flat_map(|r| &r.views).next();
    let tensor = view.ok_or("the model has no tensors")?.tensor.replace("{layer}", "0");
    let checkpoint = &base.model.checkpoint;
    let start = checkpoint.tensor(&tensor).ok_or("the tensor is not there")?.start_bytes;
    let file = checkpoint.file_of(&tensor).and_then(Path::file_name).ok_or("no file has it")?;
    let file = to.join(file);
    let mut bytes = std::fs::read(&file).map_err(fail)?;
    bytes[start] ^= 1;
    std::fs::write(&file, bytes).map_err(fail)
}
