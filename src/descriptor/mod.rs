//! What a model *is*: dimensions, layer kinds, conventions and logical weight roles, and nothing
//! about how it runs.
//!
//! A family adapter is a pure function from `config.json` (and the tensor index) to a
//! [`Descriptor`]. The engine knows kinds (mixers, feed-forwards, norm styles), never families.

mod model;
mod role;

pub use model::{
    Attention, Descriptor, Ffn, GatedDeltaNet, Mixer, NormStyle, OutputGate, Rope, RopeConvention,
    RopeScaling,
};
pub use role::{Role, RoleName, RowPattern, Scope, ShardRule, View};
