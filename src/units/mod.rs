//! Small shared vocabulary: exit codes, canonical JSON, digests, the build stamp, the process
//! environment.

mod build;
mod canonical;
mod digest;
mod exit;

pub use build::{BUILD, Build, UNAVAILABLE, build_digest};
pub use canonical::Canonical;
pub use digest::{Digest, Hasher};
pub use exit::Exit;
