//! Assay assays LLM engines.
//!
//! An inference engine as a library, and a declarative harness around it: *gates* state claims
//! about the engine, *scenarios* state experiments, and every result is stamped with the identity
//! of the execution that produced it.
//!
//! Layers flow one way; a module uses only those before it in this list (`tests/architecture.rs`
//! checks it):
//!
//! `units → tensor → descriptor → placement → weights → backend → engine → generation → harness → cli`
//!
//! See `docs/architecture.md` for the map and the invariants.

pub mod backend;
pub mod cli;
pub mod descriptor;
pub mod engine;
pub mod generation;
pub mod harness;
pub mod placement;
pub mod tensor;
pub mod units;
pub mod weights;
