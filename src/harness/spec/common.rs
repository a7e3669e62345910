//! The keys that every gate has.

use super::yaml::Located;
use super::{NonEmpty, Select};
use crate::backend::{DeviceKind, Policy};
use serde::de::{Error, MapAccess, Unexpected};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;

/// Declares the common keys once: the struct, their names, how one is read.
macro_rules! common_keys {
    ($($(#[$meta:meta])* $name:ident: $type:ty,)*) => {
        /// The keys that every gate has; the rest belongs to its kind.
        #[derive(Clone, Debug, Default, schemars::JsonSchema)]
        pub(super) struct Common { $($(#[$meta])* pub(super) $name: Option<$type>,)* }

        impl Common {
            /// The names of the keys, in the order of documentation.
            pub(super) const KEYS: &'static [&'static str] = &[$(stringify!($name)),*];

            /// Reads the value of a common key; `false` if `key` is none.
            pub(super) fn read<'de, A: MapAccess<'de>>(
                &mut self,
                key: &str,
                map: &mut A,
            ) -> Result<bool, A::Error> {
                match key {
                    $(stringify!($name) => self.$name = Some(map.next_value()?),)*
                    _ => return Ok(false),
                }
                Ok(true)
            }
        }
    };
}

common_keys! {
    /// The gate's name: lower-case letters, digits and hyphens; the first part of trial names.
    gate: GateName,
    /// What is claimed, as one sentence that could be false.
    claim: Text,
    /// The part of the product it belongs to; reports group by it.
    track: Track,
    /// What the check is; decides which further keys there are.
    kind: String,
    /// Words to select gates by (`assay gates run tag:NAME`).
    tags: Vec<String>,
    /// What a machine must have for the gate to run there.
    requires: Requires,
    /// Numerical policies; those a device lacks are listed as not applicable.
    policy: NonEmpty<Policy>,
    /// Cells to leave out.
    exclude: Vec<Located<Select>>,
    /// Further cells, every axis given.
    include: Vec<Located<Select>>,
    /// Longest time one trial may take, in milliseconds (default 60000; ten times that with
    /// `--long`).
    timeout_ms: u64,
}

impl<T: schemars::JsonSchema> schemars::JsonSchema for Located<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        generator.subschema_for::<T>()
    }
}

/// What a claim is about.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Track {
    /// Descriptors and checkpoint files.
    Model,
    /// Agreement with an independent implementation.
    Reference,
    /// Which executions agree bit for bit.
    Contract,
    /// Manifests, identities, comparisons.
    Identity,
    /// Tokeniser, sampling, the generation loop.
    Generation,
    /// Memory, errors and recovery.
    Resource,
    /// Device facts.
    Device,
    /// Speed, and what it costs.
    Performance,
    /// Fused regions.
    Fusion,
    /// Quantised weights.
    Quantization,
    /// Speculative decoding.
    Speculation,
    /// Training.
    Training,
}

impl fmt::Display for Track {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = serde_json::to_value(self).ok();
        f.pad(name.as_ref().and_then(|n| n.as_str()).unwrap_or_default())
    }
}

/// A checked gate name.
#[derive(Clone, Debug, PartialEq, Eq, Default, schemars::JsonSchema)]
#[schemars(transparent)]
pub(super) struct GateName(
    #[schemars(regex(pattern = "^[a-z0-9]+(-[a-z0-9]+)*$"))] pub(super) String,
);

impl<'de> Deserialize<'de> for GateName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<GateName, D::Error> {
        let name = String::deserialize(deserializer)?;
        let word = |w: &str| {
            !w.is_empty() && w.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        };
        // The name becomes part of trial names, file names and command lines.
        if name.len() <= 64 && name.split('-').all(word) {
            Ok(GateName(name))
        } else {
            let expected = "at most 64 lower-case letters and digits, words joined by `-`";
            Err(D::Error::invalid_value(Unexpected::Str(&name), &expected))
        }
    }
}

/// Text that is not blank.
#[derive(Clone, Debug, PartialEq, Eq, Default, schemars::JsonSchema)]
#[schemars(transparent)]
pub(super) struct Text(#[schemars(length(min = 1))] pub(super) String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Text, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.trim().is_empty() {
            return Err(D::Error::invalid_value(Unexpected::Str(&text), &"a sentence"));
        }
        Ok(Text(text))
    }
}

/// What a machine or a command line must have for a gate to run; what is missing is the reason of
/// a skip.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Requires {
    /// `any` (every device present), `cpu`, `cuda`, or several GPUs as `cuda x2`.
    #[serde(default)]
    pub device: RequiredDevice,
    /// Keys that must be given with `--set KEY=VALUE`, such as the folder of a real model.
    #[serde(default)]
    pub set: Vec<String>,
}

/// The devices a gate is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequiredDevice {
    /// Every device.
    #[default]
    Any,
    /// The CPU alone.
    Cpu,
    /// This many GPUs.
    Cuda(usize),
}

impl RequiredDevice {
    /// Whether trials are listed for a device.
    pub fn includes(self, device: DeviceKind) -> bool {
        match self {
            RequiredDevice::Any => true,
            RequiredDevice::Cpu => device == DeviceKind::Cpu,
            RequiredDevice::Cuda(_) => device == DeviceKind::Cuda,
        }
    }

    /// GPUs needed for trials on CUDA.
    pub fn gpus(self) -> usize {
        if let RequiredDevice::Cuda(n) = self { n } else { 1 }
    }
}

impl<'de> Deserialize<'de> for RequiredDevice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RequiredDevice, D::Error> {
        let text = String::deserialize(deserializer)?;
        let several = |count: &str| count.trim().parse().ok().filter(|n| (1..=64).contains(n));
        match text.as_str() {
            "any" => Ok(RequiredDevice::Any),
            "cpu" => Ok(RequiredDevice::Cpu),
            "cuda" => Ok(RequiredDevice::Cuda(1)),
            other => {
                other.strip_prefix("cuda x").and_then(several).map(RequiredDevice::Cuda).ok_or_else(
                    || {
                        let expected = "`any`, `cpu`, `cuda`, or several GPUs as `cuda x2`";
                        D::Error::invalid_value(Unexpected::Str(other), &expected)
                    },
                )
            }
        }
    }
}

impl schemars::JsonSchema for RequiredDevice {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "RequiredDevice".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": "^(any|cpu|cuda|cuda x[1-9][0-9]?)$" })
    }
}

/// The schema of the common keys.
pub(in crate::harness) fn common_schema(
    generator: &mut schemars::SchemaGenerator,
) -> schemars::Schema {
    <Common as schemars::JsonSchema>::json_schema(generator)
}
