//! Identities derived a second time, from the definitions and not from the code under test.
//!
//! Nothing here uses [`crate::units::Canonical`], [`crate::units::Digest`] or the JSON parsers of
//! this crate or of its dependencies: a mistake in one of them has to be made twice, in two ways,
//! to stay unseen.

mod canonical;
mod decimal;
mod sha256;

pub use canonical::{canonical_json, derive_ids};
pub use decimal::scientific;
pub use sha256::sha256_hex;
