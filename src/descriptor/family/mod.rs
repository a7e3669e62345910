//! One adapter per family: `config.json` → [`Descriptor`](super::Descriptor).
//!
//! A family is a [`Family`] value, a table of what sets it apart; `derive` reads any config by such
//! a table. Adding a family adds a file with its table and a line in `FAMILIES`; a kind of layer
//! that no family had before adds a descriptor kind, its roles and its engine module.

mod deepseek_v2;
mod derive;
mod dimensions;
mod end_tokens;
mod experts;
mod identify;
mod limits;
mod llama;
mod mistral;
mod mixtral;
mod qwen2;
mod qwen3;
mod qwen3_5;
mod qwen3_5_moe;
mod qwen3_moe;
mod qwen3_next;
mod table;
mod tensors;
mod tie;

pub use derive::ConfigFiles;
pub(super) use derive::{LAYER_LIMIT, derive};
use table::{
    DenseLayers, Experts, FAMILIES, Family, HeadDim, LINEAR_ATTENTION, Latent, Layout, Mixers,
    Renormalise, Shared, Window,
};
pub use tensors::TensorIndex;
