//! `weights_source` and `weights_artifact`: what the weights are.

use super::NOT_APPLICABLE;
use crate::tensor::{INT4_FORMAT, INT4_VERSION};
use crate::units::{Canonical, mutant};
use crate::weights::{Artifact, WeightsSource};

/// Fields of `weights_source`.
///
/// A full content digest is not among them: two runs on the same weights have one id, whether or
/// not somebody asked for it (see [`super::RunFacts`]).
pub fn source_fields(source: &WeightsSource) -> Canonical {
    let (kind, roles, sampled, generator) = match source {
        WeightsSource::Checkpoint { roles, sampled_content, .. } => {
            ("checkpoint", roles, sampled_content.to_string().into(), NOT_APPLICABLE.into())
        }
        WeightsSource::Synthetic { generator, version, seed, roles } => (
            "synthetic",
            roles,
            Canonical::from(NOT_APPLICABLE),
            Canonical::object([
                ("name", Canonical::from(generator.as_str())),
                ("version", (*version).into()),
                ("seed", if mutant!("manifest_seed_omitted") { 0 } else { *seed }.into()),
            ]),
        ),
    };
    Canonical::object([
        ("kind", Canonical::from(kind)),
        ("roles_digest", roles.to_string().into()),
        ("sampled_content_digest", sampled),
        ("generator", generator),
        ("trained_version", NOT_APPLICABLE.into()),
    ])
}

/// Fields of `weights_artifact`: of packed weights and the source they are bound to, or
/// `not_applicable` where the weights are used as they came.
pub fn artifact_fields(artifact: Option<&Artifact>, source: &WeightsSource) -> Canonical {
    if let Some(artifact) = artifact {
        let bound_to = source_fields(source).digest();
        return Canonical::object([
            ("format", Canonical::from(format!("{INT4_FORMAT} {INT4_VERSION}"))),
            ("digest", artifact.digest.to_string().into()),
            ("bound_to", bound_to.to_string().into()),
        ]);
    }
    Canonical::object([
        ("format", Canonical::from(NOT_APPLICABLE)),
        ("digest", NOT_APPLICABLE.into()),
        ("bound_to", NOT_APPLICABLE.into()),
    ])
}
