//! Mixture of experts: what a router and its experts compute.

use serde::{Deserialize, Serialize};

/// A feed-forward that sends every token to a few of many gated feed-forwards, its experts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moe {
    pub experts: usize,
    /// Experts that a token is sent to.
    pub experts_per_token: usize,
    /// Width of one expert.
    pub intermediate: usize,
    pub router: Router,
    /// A feed-forward that every token passes beside its experts.
    pub shared: Option<SharedExpert>,
}

/// How experts are chosen and weighted: softmax over all experts in FP32, then the largest
/// probabilities, the lowest id on ties.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Router {
    /// What the model's own code rounds the router's logits to where activations are in BF16. The engine
    /// leaves them in FP32 for every model.
    pub logits: Precision,
    /// What the weights of the chosen experts are rounded to.
    pub weights: Precision,
    /// Whether the weights of the chosen experts are divided by their sum.
    pub renormalise: bool,
    /// Factor on the weights.
    pub scaling: f64,
    /// Groups of consecutive experts; 1 where experts are not grouped.
    pub groups: usize,
    /// Groups with the largest best probability; experts of the others count as probability 0.
    pub groups_kept: usize,
}

/// A feed-forward beside the experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedExpert {
    pub intermediate: usize,
    pub gate: SharedGate,
}

/// What the output of the shared expert is multiplied by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SharedGate {
    /// Nothing.
    None,
    /// The sigmoid of one more projection of the token.
    Sigmoid,
}

/// What a value is rounded to where activations are in the model's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// The type of the activations.
    Model,
    /// FP32 whatever the activations are.
    F32,
}
