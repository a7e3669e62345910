//! Questions to the device: which bits its matrix units guarantee, and what the invariant
//! products and dependent launches cost.

mod chain;
mod data;
mod fact;
mod instruction;
mod instruction_facts;
mod matrix_model;
mod order_facts;
mod rows;
mod speed;
mod timing;

pub use chain::{ChainMode, ChainResult, chain_matrices, measure_chain};
pub use data::Adversary;
pub use fact::{Fact, FactName};
pub use matrix_model::{MatrixModel, Rounding};
pub use rows::RowsQuestion;
pub use speed::{ReadRate, SpeedReport, measure_memory, measure_speed};
pub(in crate::backend::cuda) use timing::Captured;
pub use timing::Timing;
