//! A model on a CUDA device: weights, activations, states, and the walk over the plan.

mod activations;
mod attention;
mod bindings;
mod exec;
mod gdn;
mod graph;
mod head;
mod joins;
mod launcher;
mod memory;
#[expect(clippy::module_inception, reason = "the type is the module's idea")]
mod model;
mod nodes;
mod products;
mod profile;
mod record;
mod room;
mod sampling;
mod spans;
mod state;
mod step;
mod transfer;
mod vendor;
mod weights;

pub use bindings::policy_bindings;
pub use joins::{Join, Joins};
pub use model::{CudaModel, CudaOptions};
pub use weights::BoundWeight;
