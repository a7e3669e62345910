//! Expectations that differ by cell.

use super::{NonEmpty, Select};
use crate::harness::kind::Cell;
use serde::Deserialize;

/// What is expected of the cells that `when` selects.
#[derive(Clone, Debug, PartialEq, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Expectation<T> {
    /// The cells; left out, every cell.
    #[serde(default)]
    pub when: Select,
    /// What is expected of them.
    pub then: T,
}

/// The `expect:` list of a kind. Every cell must match exactly one row (checked by the planner).
pub type Expectations<T> = NonEmpty<Expectation<T>>;

/// The expectation of a cell.
///
/// # Errors
/// No row matches; cannot happen for planned cells.
pub fn find<'a, T>(expectations: &'a [Expectation<T>], cell: &Cell) -> Result<&'a T, String> {
    expectations
        .iter()
        .find(|row| row.when.matches(cell))
        .map(|row| &row.then)
        .ok_or_else(|| "no row of `expect` matches this cell".to_owned())
}
