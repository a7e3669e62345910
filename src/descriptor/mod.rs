//! What a model *is*: dimensions, layer kinds, conventions and logical weight roles, and nothing
//! about how it runs.
//!
//! A family adapter is a pure function from `config.json` (and the tensor index) to a
//! [`Descriptor`]. The engine knows kinds (mixers, feed-forwards, norm styles), never families.

mod config;
mod dimension;
mod error;
mod family;
mod model;
mod role;
mod roles;
mod source;
mod validate;

pub use error::{DescriptorError, Refusal};
pub use family::{ConfigFiles, TensorIndex};
pub use model::{
    Attention, Descriptor, Ffn, GatedDeltaNet, Mixer, NormStyle, OutputGate, Rope, RopeConvention,
    RopeScaling,
};
pub use role::{Role, RoleName, RowPattern, Scope, ShardRule, View};
pub use source::{from_dir, tensor_index};
pub use validate::Inconsistent;

use config::DIMENSION_LIMIT;
use family::LAYER_LIMIT;
