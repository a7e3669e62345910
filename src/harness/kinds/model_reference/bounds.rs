//! How close is close enough, per family, as the gate file states it.

use serde::de::{Error, MapAccess, Unexpected, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer};
use std::fmt;

/// BF16 runs may be this many times as far from the FP32 reference as the family's measured noise.
pub(super) const BF16_ALLOWANCE: f64 = 2.0;

/// A threshold: finite and above zero.
#[derive(Clone, Copy, Debug, PartialEq, schemars::JsonSchema)]
#[schemars(transparent)]
pub(super) struct Threshold(#[schemars(extend("exclusiveMinimum" = 0))] f64);

impl Threshold {
    pub(super) fn get(self) -> f64 {
        self.0
    }
}

impl<'de> Deserialize<'de> for Threshold {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Threshold, D::Error> {
        let value = f64::deserialize(deserializer)?;
        if value.is_finite() && value > 0.0 {
            return Ok(Threshold(value));
        }
        Err(D::Error::invalid_value(Unexpected::Float(value), &"a finite threshold above 0"))
    }
}

/// Bounds under policy `f32`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct F32Bounds {
    /// Largest difference of any logit and of any logsumexp.
    pub(super) logits_max_abs: Threshold,
    /// Largest difference in an activation or state, as a share of that tensor's largest value.
    pub(super) activations_max_relative: Threshold,
}

/// Measured noise of the family: how far the independent implementation in BF16 is from itself in
/// FP32. Policies that round to BF16 may be twice as far in the mean and in the 0.99 quantile;
/// greedy tokens must agree where the reference's margin is at least twice the maximum.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Bf16Noise {
    pub(super) mean_abs: Threshold,
    pub(super) p99_abs: Threshold,
    pub(super) max_abs: Threshold,
    /// The maximum over the rows before BF16 first sends a token to another expert than FP32 does, of a
    /// model with experts. Given it, the same rows of the policy may be twice as far in the maximum, and
    /// greedy tokens must agree there from twice this margin on, and at every step before the first
    /// below it.
    pub(super) max_abs_before_flip: Option<Threshold>,
}

/// Where a gate takes the noise from: its own file, or what the reference says it measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum NoiseSource {
    Stated(Bf16Noise),
    Measured,
}

impl<'de> Deserialize<'de> for NoiseSource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<NoiseSource, D::Error> {
        struct Form;

        impl<'de> Visitor<'de> for Form {
            type Value = NoiseSource;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`{ mean_abs: …, p99_abs: …, max_abs: … }`, or `measured`")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<NoiseSource, E> {
                match text {
                    "measured" => Ok(NoiseSource::Measured),
                    _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<NoiseSource, A::Error> {
                Bf16Noise::deserialize(MapAccessDeserializer::new(map)).map(NoiseSource::Stated)
            }
        }

        deserializer.deserialize_any(Form)
    }
}

impl schemars::JsonSchema for NoiseSource {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "NoiseSource".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let stated = generator.subschema_for::<Bf16Noise>();
        schemars::json_schema!({ "anyOf": [stated, { "const": "measured" }] })
    }
}

/// The bounds that apply to a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Bounds {
    F32(F32Bounds),
    Bf16(Bf16Noise),
    /// BF16 noise that nobody measured: reported, never a pass.
    Unknown,
}

impl Bounds {
    /// The smallest margin at which a greedy token must agree.
    pub(super) fn decided_margin(self) -> f64 {
        match self {
            Bounds::F32(_) => 0.0,
            Bounds::Bf16(noise) => BF16_ALLOWANCE * noise.max_abs.get(),
            Bounds::Unknown => f64::INFINITY,
        }
    }

    /// How far logits may be in rows that no other choice of experts has touched, where that has a
    /// bound of its own; and the margin at which a greedy token must agree there.
    pub(super) fn before_flip(self) -> Option<f64> {
        match self {
            Bounds::Bf16(noise) => noise.max_abs_before_flip.map(|t| BF16_ALLOWANCE * t.get()),
            Bounds::F32(_) | Bounds::Unknown => None,
        }
    }
}
