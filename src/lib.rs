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
//!
//! # A model from a folder, a prompt in one step, tokens one by one
//!
//! ```
//! use assay::engine::{Batch, Engine, EngineOptions, RowOutput, RowWant, Want};
//! use assay::weights::Model;
//! use std::sync::Arc;
//!
//! let model = Model::open("tests/fixtures/llama")?;
//! let weights = model.checkpoint.load(&model.descriptor)?;
//! let engine = Engine::new(Arc::new(model.descriptor), &weights, &EngineOptions::default())?;
//!
//! let mut sequence = engine.sequence()?;
//! let mut tokens = vec![3, 141, 59];
//! let mut fed = 0;
//! while tokens.len() < 8 {
//!     let mut batch = Batch::new();
//!     batch.push(&mut sequence, &tokens[fed..], Want::Last(RowWant::Greedy));
//!     let output = engine.forward(&mut batch).remove(0)?;
//!     fed = tokens.len();
//!     match output.rows.last() {
//!         Some(RowOutput::Greedy(id)) => tokens.push(*id),
//!         other => panic!("asked for an id, got {other:?}"),
//!     }
//! }
//! assert_eq!((tokens.len(), sequence.len_tokens()), (8, 7));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Text, sampling and stop conditions are [`generation`]'s.

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
