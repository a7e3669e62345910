//! Selectors: which cells of a matrix a row of a file is about.

use super::diagnostic::did_you_mean;
use crate::harness::kind::Cell;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::fmt;

/// Cells whose axes have these values: `{ policy: f32, kv_tokens: [1, 63] }`.
///
/// An axis that is not named matches every value. Axes with list values are spelt as in trial
/// names (`heads: 24x4`). `device`, `policy` and `case` are axes too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Select {
    axes: BTreeMap<String, Vec<String>>,
}

impl Select {
    /// Whether the cell has the values named here.
    pub fn matches(&self, cell: &Cell) -> bool {
        self.axes
            .iter()
            .all(|(axis, allowed)| cell.axis(axis).is_some_and(|v| allowed.contains(&v)))
    }

    /// The axes and their allowed values, by name.
    pub fn axes(&self) -> impl Iterator<Item = (&str, &[String])> {
        self.axes.iter().map(|(k, v)| (k.as_str(), v.as_slice()))
    }

    /// Checks that every axis named exists in some cell and has each of the values there.
    ///
    /// # Errors
    /// The axis or value, with the nearest valid one.
    pub fn check(&self, cells: &[Cell]) -> Result<(), String> {
        let mut known: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for cell in cells {
            let fixed = ["device", "policy", "case"].into_iter();
            for name in fixed.chain(cell.axes.iter().map(|(n, _)| n.as_str())) {
                if let Some(value) = cell.axis(name) {
                    known.entry(name).or_default().push(value);
                }
            }
        }
        let hint = |found: &str, candidates: &mut dyn Iterator<Item = &str>| {
            let all: Vec<&str> = candidates.collect();
            did_you_mean(found, all.iter().copied())
                .unwrap_or_else(|| format!("it has {}", all.join(", ")))
        };
        for (axis, values) in self.axes() {
            let Some(present) = known.get_mut(axis) else {
                let hint = hint(axis, &mut known.keys().copied());
                return Err(format!("the gate has no axis `{axis}`; {hint}"));
            };
            present.sort();
            present.dedup();
            if let Some(value) = values.iter().find(|v| !present.contains(v)) {
                let hint = hint(value, &mut present.iter().map(String::as_str));
                return Err(format!("no cell has {axis}={value}; {hint}"));
            }
        }
        Ok(())
    }
}

impl fmt::Display for Select {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> =
            self.axes.iter().map(|(axis, values)| format!("{axis}={}", values.join("|"))).collect();
        f.write_str(&if parts.is_empty() { "every cell".to_owned() } else { parts.join(",") })
    }
}

/// Scalars of one axis, as the text that trial names use.
struct Values(Vec<String>);

impl<'de> Deserialize<'de> for Values {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Values, D::Error> {
        struct Scalars;

        macro_rules! scalar {
            ($($method:ident: $t:ty),*) => {$(
                fn $method<E>(self, value: $t) -> Result<Values, E> {
                    Ok(Values(vec![value.to_string()]))
                }
            )*};
        }

        impl<'de> Visitor<'de> for Scalars {
            type Value = Values;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value of the axis, or a list of values")
            }

            scalar!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str);

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Values, A::Error> {
                let mut all = Vec::new();
                while let Some(Values(more)) = seq.next_element()? {
                    all.extend(more);
                }
                Ok(Values(all))
            }
        }

        deserializer.deserialize_any(Scalars)
    }
}

impl<'de> Deserialize<'de> for Select {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Select, D::Error> {
        struct Axes;

        impl<'de> Visitor<'de> for Axes {
            type Value = Select;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("axes and values, like `{ policy: f32, kv_tokens: [1, 63] }`")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Select, A::Error> {
                let mut select = Select::default();
                while let Some((axis, Values(values))) = map.next_entry::<String, Values>()? {
                    select.axes.insert(axis, values);
                }
                Ok(select)
            }
        }

        deserializer.deserialize_map(Axes)
    }
}

impl schemars::JsonSchema for Select {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Select".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "object",
            "description": "Axes and their values; `device`, `policy` and `case` are axes too. List values are spelt as in trial names (`24x4`).",
            "additionalProperties": {
                "type": ["string", "number", "boolean", "array"],
                "items": { "type": ["string", "number", "boolean"] }
            }
        })
    }
}
