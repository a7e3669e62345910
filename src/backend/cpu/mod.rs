//! The CPU backend: the embedded default and the oracle.
//!
//! One module per region, each stating its numerics; [`CpuModel`] walks a plan. The kernels of `f32`
//! and `reference` are portable code compiled for several instruction sets that all give the same bits
//! (`isa`); those of `fast` ([`Kernels`]) have an order per instruction set.

mod arena;
mod attention_core;
mod bindings;
mod buffers;
mod collective;
mod elementwise;
mod exec;
mod fast;
mod gdn_conv1d;
mod gdn_core;
mod gdn_gated_norm;
mod gdn_prepare;
mod gdn_state;
mod gemm;
mod gemm_part;
mod head;
mod int4;
mod isa;
mod lanes;
mod log_softmax;
mod math;
mod mla_attention;
mod model;
mod moe_combine;
mod moe_experts;
mod moe_router;
mod phase;
mod pool;
mod rms_norm;
mod rope;
mod rows;
mod sampler;
mod softmax64;
mod state;
mod support;
mod weighted_rows;

pub use crate::tensor::segments;
pub use attention_core::BLOCK_TOKENS;
pub use bindings::policy_bindings;
pub use buffers::Buffers;
pub use fast::Kernels;
pub(crate) use gdn_core::materialise_group;
pub use gdn_core::{MAX_KEY_DIM, MAX_VALUE_DIM};
pub use gdn_prepare::{L2_EPSILON, LEAST_LOG_DECAY};
pub use gdn_state::{GROUP_TOKENS, VERIFY_WINDOW_TOKENS};
pub(crate) use head::top;
pub use isa::{Isa, Level};
pub use log_softmax::log_softmax;
pub use model::{CpuModel, CpuOptions, THREADS_LIMIT};
pub(crate) use rope::Frequencies;
pub use sampler::{SAMPLER, SAMPLER_VERSION, greedy, sample};
pub use softmax64::{LogitsError, SOFTMAX_BLOCK_IDS, Softmax64, check_logits};
pub(crate) use support::check as check_shapes;
