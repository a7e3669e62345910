//! What this machine has, what is missing, and what that costs.
//!
//! [`findings`] is a pure function of facts; reading them is [`Facts::probe`].

mod build;
mod cuda;
mod facts;
mod finding;
mod host;

pub use cuda::CudaFacts;
pub use facts::Facts;
pub use finding::{Finding, State};

/// Everything worth telling about this machine, in the order of a report.
pub fn findings(facts: &Facts) -> Vec<Finding> {
    let mut found = host::findings(&facts.machine, &facts.kernels);
    found.extend(cuda::findings(&facts.cuda));
    found.extend(build::findings(&facts.build));
    found
}
