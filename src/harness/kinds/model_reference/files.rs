//! A key that takes one path or several.

use crate::harness::spec::NonEmpty;
use serde::de::{Error, SeqAccess, Visitor, value::SeqAccessDeserializer};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::path::PathBuf;

/// One path, or a list of at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Files(pub(super) Vec<PathBuf>);

impl<'de> Deserialize<'de> for Files {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Files, D::Error> {
        struct Form;

        impl<'de> Visitor<'de> for Form {
            type Value = Files;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a path, or a list of paths")
            }

            fn visit_str<E: Error>(self, path: &str) -> Result<Files, E> {
                Ok(Files(vec![path.into()]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Files, A::Error> {
                let paths = NonEmpty::<PathBuf>::deserialize(SeqAccessDeserializer::new(seq))?;
                Ok(Files(paths.to_vec()))
            }
        }

        deserializer.deserialize_any(Form)
    }
}

impl schemars::JsonSchema for Files {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Files".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "anyOf": [
                { "type": "string" },
                { "type": "array", "items": { "type": "string" }, "minItems": 1 }
            ]
        })
    }
}
