//! Small shared vocabulary: exit codes, canonical JSON, digests, the process environment.

mod canonical;
mod digest;
mod exit;

pub use canonical::Canonical;
pub use digest::{Digest, Hasher};
pub use exit::Exit;
