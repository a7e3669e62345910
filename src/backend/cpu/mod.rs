//! The CPU backend: the embedded default and the oracle.

mod log_softmax;
mod sampler;
mod softmax64;

pub use log_softmax::log_softmax;
pub use sampler::{SAMPLER, SAMPLER_VERSION, greedy, sample};
pub use softmax64::{LogitsError, SOFTMAX_BLOCK_IDS, Softmax64, check_logits};
