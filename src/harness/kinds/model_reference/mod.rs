//! `model_reference`: the engine computes what an independent implementation computes.

mod activations;
mod bounds;
#[cfg(test)]
mod engine_tests;
mod files;
mod greedy;
mod kind;
mod logits;
mod reference;
mod routes;
#[cfg(test)]
mod tests;

pub(super) use kind::ModelReference;
