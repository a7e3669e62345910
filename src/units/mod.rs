//! Small shared vocabulary: exit codes, canonical JSON, digests, the build stamp, the process
//! environment.

mod build;
mod canonical;
mod digest;
mod exit;
mod splitmix64;

pub use build::{BUILD, Build, UNAVAILABLE, build_digest};
pub use canonical::Canonical;
pub use digest::{Digest, Hasher};
pub use exit::Exit;
pub use splitmix64::{SplitMix64, unit_from_word};
