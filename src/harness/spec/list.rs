//! Lists that must not be empty: an empty matrix axis would make a gate pass by testing nothing.

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

/// A list of at least one item; an empty one does not parse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NonEmpty<T>(Vec<T>);

impl<T> Deref for NonEmpty<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for NonEmpty<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<NonEmpty<T>, D::Error> {
        struct Items<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Items<T> {
            type Value = Vec<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of at least one item")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<T>, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    items.push(item);
                }
                Ok(items)
            }
        }

        let items = deserializer.deserialize_seq(Items(PhantomData))?;
        if items.is_empty() {
            return Err(D::Error::invalid_length(0, &"at least one item"));
        }
        Ok(NonEmpty(items))
    }
}

impl<T: schemars::JsonSchema> schemars::JsonSchema for NonEmpty<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("NonEmpty_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let items = generator.subschema_for::<T>();
        schemars::json_schema!({ "type": "array", "items": items, "minItems": 1 })
    }
}

/// A list whose items are distinct; one that names an item twice does not parse.
pub(in crate::harness) fn distinct<'de, D, T>(deserializer: D) -> Result<BTreeSet<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + serde::Serialize + Ord,
{
    let mut items = BTreeSet::new();
    for item in Vec::<T>::deserialize(deserializer)? {
        if let Some(item) = items.replace(item) {
            let name = serde_json::to_value(&item).map_err(D::Error::custom)?;
            let name = name.as_str().map_or_else(|| name.to_string(), str::to_owned);
            return Err(D::Error::custom(format!("`{name}` is listed twice")));
        }
    }
    Ok(items)
}
