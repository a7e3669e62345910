//! Activations and states against the reference.

use super::reference::{Array, Reference};
use crate::harness::kind::Outcome;
use crate::tensor::Difference;

/// Compares every tensor that the reference keeps under `prefix` (`tap.`, `state.`) with what
/// `found` gives for its name: shape and values.
///
/// # Errors
/// A tensor of the reference cannot be read.
pub(super) fn outcome(
    reference: &Reference,
    prefix: &str,
    max_relative: f64,
    found: impl Fn(&str) -> Option<Array>,
) -> Result<Outcome, String> {
    let names = reference.names(prefix);
    let mut worst = Worst::default();
    let mut complaints = Vec::new();
    for name in &names {
        let full = format!("{prefix}{name}");
        let ids = reference.ids(&full)?;
        let exact = ids.is_some();
        let expected = match ids {
            Some(ids) => ids,
            None => reference.array(&full)?,
        };
        match found(name) {
            None => complaints.push(format!("`{name}`: the engine has none")),
            Some(found) if exact => {
                complaints
                    .extend(same_ids(&expected, &found).map(|why| format!("`{name}`: {why}")));
            }
            Some(found) => match compare(&expected, &found, max_relative) {
                Ok(relative) => worst.see(name, relative),
                Err(why) => complaints.push(format!("`{name}`: {why}")),
            },
        }
    }
    let outcome = match complaints.split_first() {
        _ if names.is_empty() => Outcome::fail("the reference has nothing to compare"),
        None => Outcome::pass(format!(
            "{} tensors, largest relative difference {:.1e} (`{}`)",
            names.len(),
            worst.relative,
            worst.name
        )),
        Some((first, [])) => Outcome::fail(first.clone()),
        Some((first, more)) => Outcome::fail(format!("{first}; and {} more tensors", more.len())),
    };
    Ok(outcome
        .with("tensors", names.len())
        .with("failed_tensors", complaints.len())
        .number("max_relative", worst.relative)
        .with("worst_tensor", worst.name))
}

#[derive(Default)]
struct Worst {
    name: String,
    relative: f64,
}

impl Worst {
    fn see(&mut self, name: &str, relative: f64) {
        if self.name.is_empty() || relative > self.relative {
            *self = Worst { name: name.to_owned(), relative };
        }
    }
}

/// Where ids differ, if they do: the first row.
pub(super) fn same_ids(expected: &Array, found: &Array) -> Option<String> {
    if expected.shape != found.shape {
        return Some(format!("expected shape {:?}, found {:?}", expected.shape, found.shape));
    }
    let width = expected.shape.last().copied().unwrap_or(1).max(1);
    let rows = || expected.values.chunks(width).zip(found.values.chunks(width));
    let (at, (expected, found)) = rows().enumerate().find(|(_, (a, b))| a != b)?;
    Some(format!("row {at}: expected ids {expected:?}, found {found:?}"))
}

/// The largest difference as a share of the largest expected value, if it is within the bound.
pub(super) fn compare(expected: &Array, found: &Array, max_relative: f64) -> Result<f64, String> {
    if expected.shape != found.shape {
        return Err(format!("expected shape {:?}, found {:?}", expected.shape, found.shape));
    }
    let d = Difference::between(&expected.values, &found.values).map_err(|e| e.to_string())?;
    if !d.is_finite() {
        return Err(format!("{} of {} values are not finite", d.non_finite, d.count));
    }
    let relative = if d.max_abs == 0.0 { 0.0 } else { d.max_abs / d.largest_expected };
    if relative <= max_relative {
        return Ok(relative);
    }
    Err(format!(
        "relative difference {relative:.2e} exceeds {max_relative:.1e} at element {}: expected {}, \
         found {}",
        d.worst_at, expected.values[d.worst_at], found.values[d.worst_at]
    ))
}
