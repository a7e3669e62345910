//! Captured activations.

use std::collections::{BTreeMap, BTreeSet};

/// Which activations to capture, and those captured so far.
///
/// Names: `embed`, `layers.{i}.mixer`, `layers.{i}.mlp`, `layers.{i}.out`, `final_norm`, where there
/// are experts `layers.{i}.router_index` and `layers.{i}.router_weight`, and
/// `layers.{i}.{region or role}.out` for every operation of the plan.
#[derive(Clone, Debug, Default)]
pub struct Taps {
    standard: bool,
    names: BTreeSet<String>,
    captured: BTreeMap<String, Tap>,
}

/// Rows of one captured activation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tap {
    pub width: usize,
    /// `rows × width`, rows in the order of the steps.
    pub values: Vec<f32>,
}

impl Taps {
    /// Captures the residual-stream taps of every layer.
    pub fn standard() -> Taps {
        Taps { standard: true, ..Taps::default() }
    }

    /// Captures the named activations too.
    pub fn with_names<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Taps {
        self.names.extend(names.into_iter().map(Into::into));
        self
    }

    /// The same request, nothing captured.
    pub(in crate::backend) fn request(&self) -> Taps {
        Taps { standard: self.standard, names: self.names.clone(), captured: BTreeMap::new() }
    }

    /// Whether an activation of that name is to be captured.
    pub fn wants(&self, name: &str) -> bool {
        (self.standard && is_standard(name)) || self.names.contains(name)
    }

    /// The requested names that no operation of a plan produces.
    pub fn unknown<'a>(&'a self, known: &BTreeSet<String>) -> Vec<&'a str> {
        self.names.iter().filter(|n| !known.contains(*n)).map(String::as_str).collect()
    }

    /// Appends rows.
    pub fn append(&mut self, name: &str, width: usize, values: &[f32]) {
        let tap = self.captured.entry(name.to_owned()).or_default();
        tap.width = width;
        tap.values.extend_from_slice(values);
    }

    /// What was captured, by name.
    pub fn captured(&self) -> &BTreeMap<String, Tap> {
        &self.captured
    }

    /// Takes what was captured, leaving the request in place.
    pub fn take(&mut self) -> BTreeMap<String, Tap> {
        std::mem::take(&mut self.captured)
    }
}

/// Whether a tap belongs to the standard set (region taps end in `.out` after a region name).
fn is_standard(name: &str) -> bool {
    let parts: Vec<&str> = name.split('.').collect();
    matches!(
        parts[..],
        ["embed" | "final_norm"]
            | ["layers", _, "mixer" | "mlp" | "out" | "router_index" | "router_weight"]
    )
}
