//! Reads one mapping into two structs: the common keys and the keys of the kind.
//!
//! `#[serde(flatten)]` would buffer the values and so lose their places in the file, and cannot
//! refuse unknown keys. Here the values go straight from the parser to whichever struct owns the
//! key.

use super::common::Common;
use super::yaml::Located;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Error, IgnoredAny, IntoDeserializer, MapAccess, Visitor,
};
use serde::{Deserializer, forward_to_deserialize_any};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

/// Overrides from the command line: key → value.
pub(in crate::harness) type Overrides = BTreeMap<String, serde_json::Value>;

/// What is learnt while a file is read.
#[derive(Debug, Default)]
pub(in crate::harness) struct Reading {
    pub(super) common: RefCell<Common>,
    /// Top-level keys with line and column.
    pub(super) places: RefCell<BTreeMap<String, (usize, usize)>>,
    /// The keys of the kind, for messages.
    pub(super) kind_keys: Cell<&'static [&'static str]>,
}

/// Reads a document into a kind, its common keys into a [`Reading`].
pub(super) struct Split<'a, K> {
    pub(super) reading: &'a Reading,
    pub(super) overrides: &'a Overrides,
    pub(super) kind: PhantomData<K>,
}

impl<'de, K: DeserializeOwned> DeserializeSeed<'de> for Split<'_, K> {
    type Value = K;

    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<K, D::Error> {
        let Split { reading, overrides, .. } = self;
        K::deserialize(Document { inner, reading, overrides })
    }
}

/// The document as the kind's struct sees it.
struct Document<'a, D> {
    inner: D,
    reading: &'a Reading,
    overrides: &'a Overrides,
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Document<'_, D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.deserialize_struct("", &[], visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.reading.kind_keys.set(fields);
        self.inner.deserialize_map(Keys {
            visitor,
            fields,
            reading: self.reading,
            overrides: self.overrides,
        })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

struct Keys<'a, V> {
    visitor: V,
    fields: &'static [&'static str],
    reading: &'a Reading,
    overrides: &'a Overrides,
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Keys<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping with the keys of a gate")
    }

    fn visit_map<A: MapAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        let Keys { visitor, fields, reading, overrides } = self;
        let given = overrides.keys().filter(|k| fields.contains(&k.as_str())).collect();
        visitor.visit_map(Filter { inner, fields, reading, overrides, given, value: None })
    }
}

/// The entries of the document without the common ones, values given on the command line first.
struct Filter<'a, A> {
    inner: A,
    fields: &'static [&'static str],
    reading: &'a Reading,
    overrides: &'a Overrides,
    given: Vec<&'a String>,
    value: Option<&'a serde_json::Value>,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Filter<'_, A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        if let Some(key) = self.given.pop() {
            self.value = self.overrides.get(key);
            return seed.deserialize(key.as_str().into_deserializer()).map(Some);
        }
        while let Some(key) = self.inner.next_key::<Located<String>>()? {
            let name = key.value;
            self.reading.places.borrow_mut().insert(name.clone(), (key.line, key.column));
            if self.reading.common.borrow_mut().read(&name, &mut self.inner)? {
                continue;
            }
            if !self.fields.contains(&name.as_str()) {
                return Err(A::Error::unknown_field(&name, self.fields));
            }
            if self.overrides.contains_key(&name) {
                self.inner.next_value::<IgnoredAny>()?;
                continue;
            }
            return seed.deserialize(name.as_str().into_deserializer()).map(Some);
        }
        Ok(None)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        match self.value.take() {
            Some(value) => seed.deserialize(value.clone()).map_err(A::Error::custom),
            None => self.inner.next_value_seed(seed),
        }
    }
}
