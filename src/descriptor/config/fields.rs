//! Typed access to the keys of one JSON object.

use super::spelling::same_value;
use crate::descriptor::Refusal;
use crate::descriptor::range::{FP32_RANGE, fits_fp32};
use crate::units::{JsonMember, JsonNode, JsonValue, Position, nearest};
use std::cell::RefCell;
use std::collections::BTreeSet;

type Result<T> = std::result::Result<T, Box<Refusal>>;

/// Largest value accepted for any dimension: products of three stay inside 64 bits.
pub(in crate::descriptor) const DIMENSION_LIMIT: usize = 1 << 20;

/// One object of a file and which of its keys were asked for.
#[derive(Debug)]
pub(in crate::descriptor) struct Fields<'a> {
    file: &'a str,
    node: &'a JsonNode,
    /// Path of the object in the file, with a trailing dot unless empty.
    prefix: String,
    asked: RefCell<BTreeSet<&'static str>>,
}

impl<'a> Fields<'a> {
    /// The outermost object of a file.
    pub(in crate::descriptor) fn of(file: &'a str, node: &'a JsonNode) -> Result<Fields<'a>> {
        Fields::at(file, node, String::new())
    }

    fn at(file: &'a str, node: &'a JsonNode, prefix: String) -> Result<Fields<'a>> {
        let fields = Fields { file, node, prefix, asked: RefCell::default() };
        match node.value {
            JsonValue::Object(_) => Ok(fields),
            _ => {
                let mut refusal =
                    Refusal::of_file(file, format!("expected an object, found {node}"));
                refusal.position = Some(node.position);
                let key = fields.prefix.trim_end_matches('.');
                refusal.key = (!key.is_empty()).then(|| key.to_owned());
                Err(refusal)
            }
        }
    }

    /// The full name of a key, for messages.
    pub(in crate::descriptor) fn path(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    fn members(&self) -> &'a [JsonMember] {
        match &self.node.value {
            JsonValue::Object(members) => members,
            _ => &[],
        }
    }

    /// The value of a key; an explicit null counts as absent.
    pub(in crate::descriptor) fn get(&self, key: &'static str) -> Option<&'a JsonNode> {
        self.asked.borrow_mut().insert(key);
        self.node.get(key).map(|m| &m.node).filter(|n| !n.is_null())
    }

    /// A refusal about a key, at its value or, if it is absent, at its object.
    pub(in crate::descriptor) fn refuse(&self, key: &str, problem: String) -> Box<Refusal> {
        let position = self.node.get(key).map_or(self.node.position, |m| m.node.position);
        self.refuse_at(position, key, problem)
    }

    fn refuse_at(&self, position: Position, key: &str, problem: String) -> Box<Refusal> {
        let mut refusal = Refusal::of_file(self.file, problem);
        refusal.position = Some(position);
        refusal.key = Some(self.path(key));
        refusal
    }

    /// The refusal of a value of the wrong type or outside its range.
    pub(in crate::descriptor) fn expected(
        &self,
        key: &str,
        node: &JsonNode,
        what: &str,
    ) -> Box<Refusal> {
        self.refuse(key, format!("expected {what}, found {node}"))
    }

    /// The same of an item inside the value of `key`.
    pub(in crate::descriptor) fn expected_at(
        &self,
        item: &JsonNode,
        key: &str,
        what: &str,
    ) -> Box<Refusal> {
        self.refuse_at(item.position, key, format!("expected {what}, found {item}"))
    }

    /// The value of a key that has to be there; null is a value.
    pub(in crate::descriptor) fn present(&self, key: &'static str) -> Result<&'a JsonNode> {
        self.asked.borrow_mut().insert(key);
        self.node.get(key).map(|m| &m.node).ok_or_else(|| self.missing(key, "a value"))
    }

    /// Refuses an absent key that null would be a value of.
    pub(in crate::descriptor) fn given_or_null(&self, key: &'static str) -> Result<()> {
        self.present(key).map(|_| ()).map_err(|_| self.missing(key, "a value or null"))
    }

    /// The refusal of an absent key, with a present key that looks like a misspelling of it.
    pub(in crate::descriptor) fn missing(&self, key: &str, what: &str) -> Box<Refusal> {
        let found = self.node.get(key).map_or("missing", |_| "null");
        let refusal = self.refuse(key, format!("expected {what}, found it {found}"));
        let asked = self.asked.borrow();
        let unasked = self.members().iter().filter(|m| !asked.contains(m.key.as_str()));
        match nearest(key, unasked.map(|m| m.key.as_str())) {
            Some(near) => refusal.help(format!("`{}` is given; is it meant?", self.path(near))),
            None => refusal,
        }
    }

    /// An inner object, if given.
    pub(in crate::descriptor) fn object(&self, key: &'static str) -> Result<Option<Fields<'a>>> {
        self.get(key)
            .map(|node| Fields::at(self.file, node, format!("{}.", self.path(key))))
            .transpose()
    }

    /// An object inside the value of a key, under the name `path`.
    pub(in crate::descriptor) fn inner(
        &self,
        node: &'a JsonNode,
        path: &str,
    ) -> Result<Fields<'a>> {
        Fields::at(self.file, node, format!("{}.", self.path(path)))
    }

    /// A positive integer up to [`DIMENSION_LIMIT`], or `None` if absent.
    pub(in crate::descriptor) fn optional_count(&self, key: &'static str) -> Result<Option<usize>> {
        self.optional_count_up_to(key, DIMENSION_LIMIT)
    }

    /// A positive integer up to `limit`, or `None` if absent.
    pub(in crate::descriptor) fn optional_count_up_to(
        &self,
        key: &'static str,
        limit: usize,
    ) -> Result<Option<usize>> {
        let Some(node) = self.get(key) else { return Ok(None) };
        node.as_u64()
            .and_then(|n| usize::try_from(n).ok())
            .filter(|n| (1..=limit).contains(n))
            .map(Some)
            .ok_or_else(|| self.expected(key, node, &format!("an integer in 1…{limit}")))
    }

    /// A positive integer up to [`DIMENSION_LIMIT`].
    pub(in crate::descriptor) fn count(&self, key: &'static str) -> Result<usize> {
        self.count_up_to(key, DIMENSION_LIMIT)
    }

    /// A positive integer up to `limit`.
    pub(in crate::descriptor) fn count_up_to(
        &self,
        key: &'static str,
        limit: usize,
    ) -> Result<usize> {
        self.optional_count_up_to(key, limit)?
            .ok_or_else(|| self.missing(key, &format!("an integer in 1…{limit}")))
    }

    /// A positive real that FP32 holds, or `None` if absent.
    pub(in crate::descriptor) fn optional_real(&self, key: &'static str) -> Result<Option<f64>> {
        let Some(node) = self.get(key) else { return Ok(None) };
        self.fp32(key, node).map(Some)
    }

    /// The positive real of a value that has to be one, of a size that FP32 holds: arithmetic would
    /// make 0 or infinity of others.
    pub(in crate::descriptor) fn fp32(&self, key: &str, node: &JsonNode) -> Result<f64> {
        let real = node.as_f64().filter(|r| *r > 0.0);
        let real = real.ok_or_else(|| self.expected(key, node, "a positive number"))?;
        match fits_fp32(real) {
            true => Ok(real),
            false => Err(self.expected(key, node, FP32_RANGE)),
        }
    }

    /// A real from 1 on that FP32 holds.
    pub(in crate::descriptor) fn real_from_one(&self, key: &'static str) -> Result<f64> {
        let real = self.real(key)?;
        match self.get(key) {
            Some(node) if real < 1.0 => Err(self.expected(key, node, "a number from 1 on")),
            _ => Ok(real),
        }
    }

    /// A positive real that FP32 holds.
    pub(in crate::descriptor) fn real(&self, key: &'static str) -> Result<f64> {
        self.optional_real(key)?.ok_or_else(|| self.missing(key, "a positive number"))
    }

    /// A finite real that is not negative, or `None` if absent.
    pub(in crate::descriptor) fn optional_magnitude(
        &self,
        key: &'static str,
    ) -> Result<Option<f64>> {
        let Some(node) = self.get(key) else { return Ok(None) };
        node.as_f64()
            .filter(|r| *r >= 0.0)
            .map(Some)
            .ok_or_else(|| self.expected(key, node, "a number from 0 on"))
    }

    /// A text, or `None` if absent.
    pub(in crate::descriptor) fn optional_text(
        &self,
        key: &'static str,
    ) -> Result<Option<&'a str>> {
        let Some(node) = self.get(key) else { return Ok(None) };
        node.as_str().map(Some).ok_or_else(|| self.expected(key, node, "a text"))
    }

    /// A truth value, or `None` if absent.
    pub(in crate::descriptor) fn optional_flag(&self, key: &'static str) -> Result<Option<bool>> {
        let Some(node) = self.get(key) else { return Ok(None) };
        node.as_bool().map(Some).ok_or_else(|| self.expected(key, node, "true or false"))
    }

    /// A list, or `None` if absent.
    pub(in crate::descriptor) fn optional_list(
        &self,
        key: &'static str,
    ) -> Result<Option<&'a [JsonNode]>> {
        let Some(node) = self.get(key) else { return Ok(None) };
        match &node.value {
            JsonValue::List(items) => Ok(Some(items)),
            _ => Err(self.expected(key, node, "a list")),
        }
    }

    /// Refuses the first key that was neither asked for nor is in `ignored`. Keys that begin with
    /// an underscore are private notes by convention, and a null key says nothing.
    pub(in crate::descriptor) fn finish(&self, ignored: &[&[&'static str]]) -> Result<()> {
        self.finish_beside(ignored, None)
    }

    /// As [`Fields::finish`] for the outer object of a nested config: a key that the inner object
    /// gives with the same value says nothing new.
    pub(in crate::descriptor) fn finish_beside(
        &self,
        ignored: &[&[&'static str]],
        inner: Option<&Fields<'_>>,
    ) -> Result<()> {
        let asked = self.asked.borrow();
        let ignored = || ignored.iter().flat_map(|list| list.iter().copied());
        for member in self.members() {
            let key = member.key.as_str();
            let known = asked.contains(key) || ignored().any(|i| i == key) || key.starts_with('_');
            if known || member.node.is_null() {
                continue;
            }
            if let Some((inner, said)) = inner.and_then(|i| Some((i, i.node.get(key)?))) {
                if same_value(&said.node, &member.node) {
                    continue;
                }
                let (path, line) = (inner.path(key), said.position.line);
                let expected = format!("{} as `{path}` says in line {line}", said.node);
                return Err(self.expected(key, &member.node, &expected));
            }
            let problem = format!("unknown key, found with {}", member.node);
            let refusal = self.refuse_at(member.position, key, problem);
            let near = nearest(key, asked.iter().copied().chain(ignored()));
            return Err(refusal.help(match near {
                Some(near) => format!("is `{}` meant?", self.path(near)),
                None => "a key that may change the arithmetic is not ignored; \
                         if it does not, remove it or set it to null"
                    .to_owned(),
            }));
        }
        Ok(())
    }

    /// Refuses the first key that was not asked for.
    pub(in crate::descriptor) fn finish_strict(&self) -> Result<()> {
        let asked = self.asked.borrow();
        let unknown = self.members().iter().find(|m| !asked.contains(m.key.as_str()));
        let Some(member) = unknown else { return Ok(()) };
        let refusal = self.refuse_at(member.position, &member.key, "unknown key".to_owned());
        Err(match nearest(&member.key, asked.iter().copied()) {
            Some(near) => refusal.help(format!("is `{}` meant?", self.path(near))),
            None => refusal,
        })
    }
}
