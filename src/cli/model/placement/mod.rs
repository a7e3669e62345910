//! The placement part of `assay model describe`.

mod facts;
mod json;
mod text;

pub(super) use facts::Placed;
