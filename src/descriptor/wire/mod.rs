//! The canonical JSON of a descriptor, written and read.
//!
//! One flat object: the dimensions of kinds that a model does not have are null, every key is
//! there, in a fixed order and layout, so that a snapshot in version control changes exactly where
//! the model does. The layout is part of the format only for writing: any strict JSON with the same
//! keys reads.

mod layout;
mod read;
mod read_roles;
mod values;
mod write;

pub use write::SCHEMA_VERSION;
