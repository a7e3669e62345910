//! Ranks: the plan of one device rewritten for each of them, and the model they make together.

mod build;
mod columns;
mod rewrite;
#[cfg(test)]
mod tests;

pub(super) use build::ranked_model;
