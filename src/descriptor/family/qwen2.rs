//! Qwen2 and Qwen2.5: Llama's layers with biases on q, k and v.

use super::{Family, Layout, Window, llama::LLAMA};
use crate::descriptor::config::Only;

pub(super) const QWEN2: Family = Family {
    name: "qwen2",
    layouts: &[Layout {
        model_type: "qwen2",
        architectures: &["Qwen2ForCausalLM"],
        ..LLAMA.layouts[0]
    }],
    qkv_bias: true,
    may_omit_kv_heads: false,
    window: Window::Switched { from_layer: Some(28) },
    // Sections of positions, as the vision models of the family have them.
    only: &[("use_mrope", Only::Flag(false))],
    ..LLAMA
};
