//! Spec: gate files, typed and validated, with errors that point at the place in the file.

mod check;
mod common;
mod diagnostic;
mod expect;
mod gate;
mod list;
mod select;
mod split;
mod yaml;

pub use check::{Check, Tolerance};
pub use common::{Requires, Track};
pub use diagnostic::Diagnostic;
pub use expect::{Expectation, Expectations, find};
pub use gate::GateFile;
pub use list::NonEmpty;
pub use select::Select;
pub use yaml::parse as parse_yaml;

pub(super) use common::common_schema;
pub(super) use diagnostic::did_you_mean;
pub(super) use gate::parse_kind;
pub(super) use list::distinct;
pub(super) use split::{Overrides, Reading};
pub(super) use yaml::{Located, parse_argument, read as read_file};
