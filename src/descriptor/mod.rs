//! What a model *is*: dimensions, layer kinds, conventions and logical weight roles, and nothing
//! about how it runs.
//!
//! A family adapter is a pure function from `config.json` (and the tensor index) to a
//! [`Descriptor`]. The engine knows kinds (mixers, feed-forwards, norm styles), never families.

mod compare;
mod config;
mod dimension;
mod error;
mod family;
mod identity;
mod mla;
mod model;
mod moe;
mod range;
mod role;
mod roles;
mod size;
mod source;
mod validate;
mod wire;
mod word;

pub use compare::Difference;
pub use error::{DescriptorError, Refusal};
pub use family::{ConfigFiles, TensorIndex};
pub use identity::GDN_QK_NORM_EPSILON;
pub use mla::{MLA_NORM_EPSILON, Mla};
pub use model::{
    Attention, Descriptor, Ffn, GatedDeltaNet, Mixer, NormStyle, OutputGate, Rope, RopeConvention,
    RopeScaling,
};
pub use moe::{Moe, Precision, Router, SharedExpert, SharedGate};
pub use role::{Role, RoleName, RowPattern, Scope, ShardRule, View};
pub use source::{from_dir, from_dir_with, tensor_index};
pub use validate::Inconsistent;
pub use wire::SCHEMA_VERSION;
pub use word::Word;

use config::DIMENSION_LIMIT;
use family::LAYER_LIMIT;
