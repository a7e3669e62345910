//! Qwen2 and Qwen2.5: Llama's layers with biases on q, k and v.

use super::{Family, Layout, llama::LLAMA};
use crate::descriptor::config::RopeRule;

pub(super) const QWEN2: Family = Family {
    name: "qwen2",
    layouts: &[Layout {
        model_type: "qwen2",
        architectures: &["Qwen2ForCausalLM"],
        ..LLAMA.layouts[0]
    }],
    qkv_bias: true,
    rope: RopeRule { scalings: &["yarn"], ..LLAMA.rope },
    only: &[],
    ..LLAMA
};
