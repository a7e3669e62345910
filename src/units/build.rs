//! The build stamp: what source was compiled, by what, from which revision.
//!
//! `build.rs` establishes the facts each time a compiled file, HEAD or the compiler's flags
//! change; a fact it could not establish is [`UNAVAILABLE`].

use super::{Canonical, Digest};

/// How a fact is spelt that should exist and could not be had.
pub const UNAVAILABLE: &str = "unavailable";

/// Facts of this build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Build {
    /// Version of the crate.
    pub crate_version: &'static str,
    /// SHA-256 of the list of compiled files as `sha256sum` prints it, sorted by path
    /// (`build.rs`, `Cargo.lock`, `Cargo.toml` and all of `src/` and the folders it embeds).
    pub source_digest: &'static str,
    /// The commit that HEAD named, or `unavailable`.
    pub git_revision: &'static str,
    /// Whether a compiled file differed from that commit, or was unknown to it; `None` where
    /// there is no revision.
    pub git_dirty: Option<bool>,
    /// Why there is no revision; empty where there is one.
    pub git_note: &'static str,
    /// The compiler's own name and version.
    pub compiler: &'static str,
    /// Target triple.
    pub target: &'static str,
    /// `debug` or `release`, and the optimisation level.
    pub profile: &'static str,
    pub opt_level: &'static str,
    /// Whether arithmetic overflow and debug assertions are checked.
    pub debug_assertions: bool,
    /// Instruction sets that the compiler may use anywhere, comma-separated.
    pub target_features: &'static str,
    /// Extra flags of the compiler.
    pub rustflags: &'static str,
    /// Cargo features, comma-separated.
    pub features: &'static str,
}

/// The stamp of this build.
pub const BUILD: Build = Build {
    crate_version: env!("CARGO_PKG_VERSION"),
    source_digest: env!("ASSAY_BUILD_SOURCE_DIGEST"),
    git_revision: env!("ASSAY_BUILD_GIT_REVISION"),
    git_dirty: flag(env!("ASSAY_BUILD_GIT_DIRTY")),
    git_note: env!("ASSAY_BUILD_GIT_NOTE"),
    compiler: env!("ASSAY_BUILD_COMPILER"),
    target: env!("ASSAY_BUILD_TARGET"),
    profile: env!("ASSAY_BUILD_PROFILE"),
    opt_level: env!("ASSAY_BUILD_OPT_LEVEL"),
    debug_assertions: cfg!(debug_assertions),
    target_features: env!("ASSAY_BUILD_TARGET_FEATURES"),
    rustflags: env!("ASSAY_BUILD_RUSTFLAGS"),
    features: env!("ASSAY_BUILD_FEATURES"),
};

impl Build {
    /// What the compiler read and how it was told to compile. Not the git facts: committing a
    /// tree does not change what was built from it.
    pub fn compiled(&self) -> Canonical {
        let list = |text: &str| Canonical::list(text.split(',').filter(|t| !t.is_empty()));
        Canonical::object([
            ("crate_version", Canonical::from(self.crate_version)),
            ("source_digest", self.source_digest.into()),
            ("compiler", self.compiler.into()),
            ("target", self.target.into()),
            ("profile", self.profile.into()),
            ("opt_level", self.opt_level.into()),
            ("debug_assertions", self.debug_assertions.into()),
            ("target_features", list(self.target_features)),
            ("rustflags", self.rustflags.into()),
            ("features", list(self.features)),
        ])
    }

    /// `0.1.0 (1a2b3c4d5e6f, modified)`, for `--version` and reports.
    pub fn describe(&self) -> String {
        let revision = self.git_revision.get(..12).unwrap_or(self.git_revision);
        match self.git_dirty {
            Some(true) => format!("{} ({revision}, modified)", self.crate_version),
            Some(false) => format!("{} ({revision})", self.crate_version),
            None => format!("{} (git revision {UNAVAILABLE})", self.crate_version),
        }
    }
}

/// Digest of [`Build::compiled`]: equal for two binaries built alike from the same source, with or
/// without a commit in between. Resuming a run requires it to be unchanged.
pub fn build_digest() -> Digest {
    BUILD.compiled().digest()
}

const fn flag(text: &str) -> Option<bool> {
    match text.as_bytes() {
        b"true" => Some(true),
        b"false" => Some(false),
        _ => None,
    }
}
