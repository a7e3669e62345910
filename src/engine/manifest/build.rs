//! `provenance.build`: what was compiled, by what, from which revision.

use super::NOT_APPLICABLE;
use crate::backend::{DeviceProvenance, KernelDigest};
use crate::units::{Build, Canonical, UNAVAILABLE};

/// Fields of the block. On the host no kernel is compiled at run time and no vendor library takes part.
pub fn build_fields(build: &Build, device: Option<&DeviceProvenance>) -> Canonical {
    let compiled = build.compiled();
    let digests = |of: fn(&KernelDigest) -> &str| match device {
        None => NOT_APPLICABLE.into(),
        Some(d) => {
            Canonical::object(d.kernels.iter().map(|k| (k.name.as_str(), Canonical::from(of(k)))))
        }
    };
    Canonical::object([
        ("git_revision", Canonical::from(build.git_revision)),
        ("git_dirty", build.git_dirty.map_or(UNAVAILABLE.into(), Canonical::from)),
        ("build_digest", compiled.digest().to_string().into()),
        ("compiled", compiled),
        ("kernel_sources", digests(|k| &k.source)),
        ("compiled_images", digests(|k| &k.image)),
        ("nvrtc_version", device.map_or(NOT_APPLICABLE.into(), |d| d.compiler.as_str().into())),
        (
            "cublas_version",
            device
                .and_then(|d| d.products.as_deref())
                .map_or(NOT_APPLICABLE.into(), Canonical::from),
        ),
    ])
}
