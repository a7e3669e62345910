//! `manifest_identity`: one change moves exactly the ids that it should, and every id can be derived
//! again from the definitions.

mod base;
mod change;
mod kind;
mod rederive;
#[cfg(test)]
mod tests;

pub(super) use kind::ManifestIdentity;
