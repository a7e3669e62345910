//! `provenance.build`: what was compiled, by what, from which revision.

use super::NOT_APPLICABLE;
use crate::units::{Build, Canonical, UNAVAILABLE};

/// Fields of the block, for executions without CUDA: no kernel is compiled at run time and no
/// vendor library takes part.
pub fn build_fields(build: &Build) -> Canonical {
    let compiled = build.compiled();
    Canonical::object([
        ("git_revision", Canonical::from(build.git_revision)),
        ("git_dirty", build.git_dirty.map_or(UNAVAILABLE.into(), Canonical::from)),
        ("build_digest", compiled.digest().to_string().into()),
        ("compiled", compiled),
        ("kernel_sources", NOT_APPLICABLE.into()),
        ("compiled_images", NOT_APPLICABLE.into()),
        ("nvrtc_version", NOT_APPLICABLE.into()),
        ("cublas_version", NOT_APPLICABLE.into()),
    ])
}
