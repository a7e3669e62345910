//! Everything worth telling, in the order of a report.

use super::{Facts, Finding, build, cuda, host};

/// Everything worth telling about this machine, in the order of a report.
pub fn findings(facts: &Facts) -> Vec<Finding> {
    let mut found = host::findings(&facts.machine, &facts.kernels);
    found.extend(cuda::findings(&facts.cuda));
    found.extend(build::findings(&facts.build));
    found
}
