//! Mistral: Llama's layers with a sliding window where the config gives one.

use super::{Family, Layout, Window, llama::LLAMA};

pub(super) const MISTRAL: Family = Family {
    name: "mistral",
    layouts: &[Layout {
        model_type: "mistral",
        architectures: &["MistralForCausalLM"],
        ..LLAMA.layouts[0]
    }],
    may_omit_kv_heads: false,
    // What the published implementation takes where the key is absent.
    window: Window::Every { absent: Some(4096) },
    only: &[],
    ..LLAMA
};
