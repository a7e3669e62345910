//! This binary.

use super::{Finding, State};
use crate::units::{Build, UNAVAILABLE};

/// Findings about the build.
pub(super) fn findings(build: &Build) -> Vec<Finding> {
    vec![revision(build), compiler(build)]
}

fn revision(build: &Build) -> Finding {
    let source = build.source_digest.get(..12).unwrap_or(build.source_digest);
    let found = format!("assay {}, source {source}", build.describe());
    match build.git_dirty {
        Some(false) => Finding::ok("build", found),
        Some(true) => Finding::new("build", State::Limited, found)
            .costs("records name a revision that is not quite what ran; committed reports want a clean one")
            .remedy("commit, then build again"),
        None => {
            let why = match build.git_note {
                "" => UNAVAILABLE,
                note => note,
            };
            Finding::new("build", State::Unavailable, found)
                .costs(format!("strict comparisons are refused, because the revision is not established ({why})"))
                .remedy("build from a git clone, or compare with --across builds")
        }
    }
}

fn compiler(build: &Build) -> Finding {
    let found = format!(
        "{}, {} {}, optimisation level {}",
        build.compiler, build.profile, build.target, build.opt_level
    );
    match build.opt_level {
        "0" | "1" => Finding::new("compiler", State::Limited, found)
            .costs("kernels are not vectorised: many times slower, with the same bits")
            .remedy("cargo run --release, or the dev profile of this repository"),
        _ => Finding::ok("compiler", found),
    }
}
