//! Checks with their thresholds. A check without one does not parse.

use crate::tensor::Difference;
use serde::de::{Error, MapAccess, Unexpected, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;

/// How two arrays must agree: `bitwise`, or `{ max_abs: 5e-4 }`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// Same shape, the same bits, every value finite.
    Bitwise,
    /// Every bound given holds, every value finite.
    Tolerance(Tolerance),
}

/// Upper bounds on the difference of two arrays, in the unit of their values (`ulp`: units in
/// the last place of the values' type). At least one is given; each is finite and not negative.
#[derive(Clone, Debug, Default, PartialEq, Serialize, schemars::JsonSchema)]
#[schemars(extend("minProperties" = 1), deny_unknown_fields)]
pub struct Tolerance {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_abs: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_abs: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_abs: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ulp: Option<u64>,
}

impl Tolerance {
    /// What is violated, as `max_abs is 2.1e-3, at most 5e-4`; values that are not finite, and
    /// nothing compared, violate every tolerance.
    pub fn violations(&self, d: &Difference) -> Vec<String> {
        if !d.is_finite() {
            return vec![format!("{} of {} values are not finite", d.non_finite, d.count)];
        }
        let reals = [
            ("max_abs", self.max_abs, d.max_abs),
            ("mean_abs", self.mean_abs, d.mean_abs),
            ("p99_abs", self.p99_abs, d.p99_abs),
            ("rms", self.rms, d.rms),
        ];
        let mut all: Vec<String> = reals
            .into_iter()
            .filter_map(|(name, bound, found)| Some((name, bound?, found)))
            .filter(|(_, bound, found)| found > bound)
            .map(|(name, bound, found)| format!("{name} is {found:.3e}, at most {bound:e}"))
            .collect();
        if let Some(bound) = self.ulp.filter(|bound| d.max_ulp > *bound) {
            all.push(format!("ulp is {}, at most {bound}", d.max_ulp));
        }
        all
    }
}

/// The bounds as they are written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Bounds {
    max_abs: Option<Bound>,
    mean_abs: Option<Bound>,
    p99_abs: Option<Bound>,
    rms: Option<Bound>,
    ulp: Option<u64>,
}

impl<'de> Deserialize<'de> for Tolerance {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Tolerance, D::Error> {
        let Bounds { max_abs, mean_abs, p99_abs, rms, ulp } = Bounds::deserialize(deserializer)?;
        let value = |bound: Option<Bound>| bound.map(|Bound(value)| value);
        let tolerance = Tolerance {
            max_abs: value(max_abs),
            mean_abs: value(mean_abs),
            p99_abs: value(p99_abs),
            rms: value(rms),
            ulp,
        };
        if tolerance == Tolerance::default() {
            let names = "at least one of max_abs, mean_abs, p99_abs, rms, ulp";
            return Err(D::Error::invalid_length(0, &names));
        }
        Ok(tolerance)
    }
}

/// A threshold: finite and not negative.
struct Bound(f64);

impl<'de> Deserialize<'de> for Bound {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Bound, D::Error> {
        let value = f64::deserialize(deserializer)?;
        if value.is_finite() && value >= 0.0 {
            return Ok(Bound(value));
        }
        let expected = "a finite threshold of at least 0";
        Err(D::Error::invalid_value(Unexpected::Float(value), &expected))
    }
}

impl<'de> Deserialize<'de> for Check {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Check, D::Error> {
        struct Form;

        impl<'de> Visitor<'de> for Form {
            type Value = Check;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`bitwise`, or bounds like `{ max_abs: 5e-4 }`")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Check, E> {
                match text {
                    "bitwise" => Ok(Check::Bitwise),
                    "tolerance" => Err(E::invalid_value(
                        Unexpected::Str(text),
                        &"a tolerance with its threshold, like `{ max_abs: 5e-4 }`",
                    )),
                    other => Err(E::unknown_variant(other, &["bitwise"])),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Check, A::Error> {
                Tolerance::deserialize(MapAccessDeserializer::new(map)).map(Check::Tolerance)
            }
        }

        deserializer.deserialize_any(Form)
    }
}

impl schemars::JsonSchema for Check {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Check".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let tolerance = generator.subschema_for::<Tolerance>();
        schemars::json_schema!({
            "description": "How two arrays must agree; a check without a threshold does not parse.",
            "anyOf": [{ "const": "bitwise" }, tolerance]
        })
    }
}
