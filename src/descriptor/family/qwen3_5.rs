//! Qwen3.5, 3.6 and 3.8 dense hybrids: gated delta net layers with gated full attention between.

use super::{Family, HeadDim, LINEAR_ATTENTION, Layout, Mixers, Window, qwen3::QWEN3};
use crate::descriptor::config::{Only, PartialRotary, RopeRule};
use crate::descriptor::{NormStyle, OutputGate};

pub(super) const QWEN3_5: Family = Family {
    name: "qwen3_5",
    layouts: &[
        Layout {
            model_type: "qwen3_5",
            architectures: &["Qwen3_5ForConditionalGeneration"],
            nested: true,
            prefixes: &["model.language_model.", "model."],
            outer_ignored: &[
                "vision_config",
                "image_token_id",
                "video_token_id",
                "vision_start_token_id",
                "vision_end_token_id",
                "language_model_only",
            ],
        },
        Layout {
            model_type: "qwen3_5_text",
            architectures: &["Qwen3_5ForCausalLM"],
            nested: false,
            prefixes: &["model.", "model.language_model."],
            outer_ignored: &[],
        },
    ],
    norm_style: NormStyle::OnePlus,
    output_gate: OutputGate::Sigmoid,
    head_dim: HeadDim::Required,
    rope: RopeRule {
        default_theta: None,
        partial: PartialRotary::Required,
        // Sections of positions for images and video; with text all three are the same.
        ignored: &["mrope_interleaved", "mrope_section"],
        ..QWEN3.rope
    },
    mixers: Mixers::Hybrid(LINEAR_ATTENTION),
    window: Window::None,
    only: &[
        ("attn_output_gate", Only::Flag(true)),
        // The activation of the gated delta net's gate, not of the attention gate.
        ("output_gate_type", Only::Text(&["swish", "silu"])),
        ("mamba_ssm_dtype", Only::Text(&["float32"])),
        ("mlp_only_layers", Only::EmptyList),
    ],
    // Multi-token prediction is an extra layer beside the forward pass.
    ignored: &["mtp_num_hidden_layers", "mtp_use_dedicated_embeddings", "num_nextn_predict_layers"],
    ..QWEN3
};
