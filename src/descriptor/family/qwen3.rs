//! Qwen3, dense: Llama's layers with a norm of every query and key head.

use super::{Family, HeadDim, Layout, Window, llama::LLAMA};

pub(super) const QWEN3: Family = Family {
    name: "qwen3",
    layouts: &[Layout {
        model_type: "qwen3",
        architectures: &["Qwen3ForCausalLM"],
        ..LLAMA.layouts[0]
    }],
    qk_norm: true,
    // Not hidden / heads: 2560 / 32 would be 80 in the 4B model, whose heads have 128.
    head_dim: HeadDim::Default(128),
    may_omit_kv_heads: false,
    window: Window::Switched { from_layer: Some(28) },
    only: &[],
    ..LLAMA
};
