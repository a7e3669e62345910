//! The dialects of `config.json`: typed access to its keys, with refusals that name the place.
//!
//! Every key that is asked for is remembered; [`Fields::finish`] then refuses the keys that nobody
//! asked for and that are not known to be without effect on the arithmetic.

mod fields;
mod ignored;
mod only;
mod rope;
mod spelling;

pub(super) use fields::{DIMENSION_LIMIT, Fields};
pub(super) use ignored::IGNORED_EVERYWHERE;
pub(super) use only::Only;
pub(super) use rope::{HALF_SPLIT_SCALINGS, PartialRotary, RopeRule, read_rope};
pub(super) use spelling::agreed;
