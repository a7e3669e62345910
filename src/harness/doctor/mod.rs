//! What this machine has, what is missing, and what that costs.
//!
//! [`findings()`] is a pure function of facts; reading them is [`Facts::probe`].

mod build;
mod cuda;
mod facts;
mod finding;
mod findings;
mod host;
#[cfg(test)]
mod tests;

pub use cuda::CudaFacts;
pub use facts::Facts;
pub use finding::{Finding, State};
pub use findings::findings;
