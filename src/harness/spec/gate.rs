//! A gate file: the common keys and its kind.

use super::common::Common;
use super::diagnostic::did_you_mean;
use super::split::{Overrides, Reading, Split};
use super::yaml::{self, Located};
use super::{Diagnostic, Requires, Select, Track};
use crate::backend::Policy;
use crate::harness::kind::{DeviceUse, Fault, GateKind, KindSpec, PolicyUse};
use crate::harness::kinds::{self, Registration};
use crate::units::Digest;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const DEFAULT_TIMEOUT_MS: u64 = 60_000;

/// A parsed and validated gate file.
#[derive(Clone, Debug)]
pub struct GateFile {
    pub name: String,
    pub claim: String,
    pub track: Track,
    pub kind_name: &'static str,
    pub tags: Vec<String>,
    pub requires: Requires,
    /// The policies asked for; `None`: every one the device has.
    pub policies: Option<Vec<Policy>>,
    pub timeout_ms: u64,
    pub device_use: DeviceUse,
    pub policy_use: PolicyUse,
    pub kind: Arc<dyn GateKind>,
    /// The file as it was named.
    pub path: PathBuf,
    /// SHA-256 of the file and of what `--set` changed in it.
    pub digest: Digest,
    /// `--set` values that took part, by key.
    pub overrides: BTreeMap<String, serde_json::Value>,
    /// The keys that `--set` can give: those of the kind.
    pub settable: &'static [&'static str],
    pub(in crate::harness) exclude: Vec<Located<Select>>,
    pub(in crate::harness) include: Vec<Located<Select>>,
    text: Arc<str>,
    places: Arc<BTreeMap<String, (usize, usize)>>,
}

impl GateFile {
    /// Reads a gate file; `set` holds `KEY=VALUE` pairs from the command line, of which those are
    /// taken whose key the gate has.
    ///
    /// # Errors
    /// A [`Diagnostic`] that points at the place in the file.
    pub fn read(path: &Path, set: &BTreeMap<String, String>) -> Result<GateFile, Diagnostic> {
        GateFile::parse(path, &yaml::read(path)?, set)
    }

    /// As [`GateFile::read`], from text.
    ///
    /// # Errors
    /// As [`GateFile::read`].
    pub fn parse(
        path: &Path,
        text: &str,
        set: &BTreeMap<String, String>,
    ) -> Result<GateFile, Diagnostic> {
        let registration = registration(path, text)?;
        let mut overrides = Overrides::new();
        for (key, value) in set {
            let value = yaml::parse_argument(value)
                .map_err(|e| Diagnostic::new(path, format!("--set {key}: {e}")))?;
            overrides.insert(key.clone(), value);
        }
        let reading = Reading::default();
        let kind =
            (registration.parse)(path, text, &reading, &overrides).map_err(|diagnostic| {
                let fails_so = |only: Overrides| {
                    let failure =
                        (registration.parse)(path, text, &Reading::default(), &only).err();
                    failure.is_some_and(|e| e.message == diagnostic.message)
                };
                if overrides.is_empty() || fails_so(Overrides::new()) {
                    return diagnostic;
                }
                let alone = |key: &String| fails_so([(key.clone(), overrides[key].clone())].into());
                let typed = set.iter().filter(|(key, _)| overrides.contains_key(*key));
                match typed.clone().find(|(key, _)| alone(key)) {
                    Some(one) => blame_set(diagnostic, std::iter::once(one)),
                    None => blame_set(diagnostic, typed),
                }
            })?;
        let kind_keys = reading.kind_keys.get();
        overrides.retain(|key, _| kind_keys.contains(&key.as_str()));
        build(path, text, registration, kind, reading, overrides)
    }

    /// What decides whether a gate is selected, read without the rest; nothing of what is faulty.
    pub(in crate::harness) fn heading(path: &Path, text: &str) -> Heading {
        yaml::parse(path, text).unwrap_or_default()
    }

    /// The keys of every gate, which `--set` leaves alone.
    pub(in crate::harness) fn common_keys() -> &'static [&'static str] {
        Common::KEYS
    }

    /// Of a fault found while planning that the file alone does not have: says what `--set` gave.
    pub(in crate::harness) fn blame_set(
        &self,
        fault: Diagnostic,
        alone: impl Fn(&GateFile) -> Option<Diagnostic>,
    ) -> Diagnostic {
        let plain = GateFile::parse(&self.path, &self.text, &BTreeMap::new());
        let same = |e: Diagnostic| e.message == fault.message;
        if self.overrides.is_empty() || plain.is_ok_and(|plain| alone(&plain).is_some_and(same)) {
            return fault;
        }
        let given: BTreeMap<String, String> = self
            .overrides
            .iter()
            .map(|(key, value)| {
                (key.clone(), value.as_str().map_or_else(|| value.to_string(), str::to_owned))
            })
            .collect();
        blame_set(fault, given.iter())
    }

    /// A fault found while planning, located in the file.
    pub fn locate(&self, fault: &Fault) -> Diagnostic {
        locate(&self.path, &self.text, &self.places, fault)
    }

    /// A message about a row of `exclude` or `include`.
    pub(in crate::harness) fn at_row(&self, row: &Located<Select>, message: String) -> Diagnostic {
        Diagnostic::new(&self.path, message).at(&self.text, row.line, row.column, 1)
    }
}

/// The start of a gate file.
#[derive(Debug, Default, Deserialize)]
pub(in crate::harness) struct Heading {
    #[serde(default)]
    pub(in crate::harness) gate: String,
    #[serde(default)]
    pub(in crate::harness) tags: Vec<String>,
    #[serde(default)]
    pub(in crate::harness) requires: Requires,
}

/// What was typed has no place in the file.
fn blame_set<'a>(
    fault: Diagnostic,
    given: impl Iterator<Item = (&'a String, &'a String)>,
) -> Diagnostic {
    let given: Vec<String> = given.map(|(key, value)| format!("--set {key}={value}")).collect();
    let message = format!("{}: {}", given.join(" "), fault.message);
    Diagnostic { message, position: None, excerpt: None, ..fault }
}

/// Parses a kind; the function that a registry line stores.
pub(in crate::harness) fn parse_kind<K: KindSpec>(
    path: &Path,
    text: &str,
    reading: &Reading,
    overrides: &Overrides,
) -> Result<Arc<dyn GateKind>, Diagnostic> {
    let seed = Split::<K> { reading, overrides, kind: PhantomData };
    yaml::parse_seed(path, text, seed)
        .map(|kind| Arc::new(kind) as Arc<dyn GateKind>)
        .map_err(|diagnostic| with_common_keys(diagnostic, text, reading))
}

/// An unknown key at the top level may be a misspelt common key as well.
fn with_common_keys(mut diagnostic: Diagnostic, text: &str, reading: &Reading) -> Diagnostic {
    let Some((line, column)) = diagnostic.position else { return diagnostic };
    let places = reading.places.borrow();
    let Some(key) = places.iter().find(|(_, at)| **at == (line, column)).map(|(k, _)| k) else {
        return diagnostic;
    };
    let kind_keys = reading.kind_keys.get();
    if kind_keys.contains(&key.as_str()) || Common::KEYS.contains(&key.as_str()) {
        return diagnostic;
    }
    let all: Vec<&str> = kind_keys.iter().chain(Common::KEYS).copied().collect();
    diagnostic =
        yaml::unknown_key(&diagnostic.path, key, &all).at(text, line, column, key.chars().count());
    diagnostic
}

/// The kind of a file, before the rest is read.
fn registration(path: &Path, text: &str) -> Result<&'static Registration, Diagnostic> {
    #[derive(Deserialize)]
    struct Peek {
        kind: Option<Located<String>>,
    }
    let peek: Peek = yaml::parse(path, text)?;
    let names = || {
        let mut names: Vec<&str> = kinds::REGISTRY.iter().map(|r| r.name).collect();
        names.sort_unstable();
        names.into_iter()
    };
    let Some(kind) = peek.kind else {
        return Err(Diagnostic::new(path, "the key `kind` is missing")
            .expected(format!("one of {}", names().collect::<Vec<_>>().join(", "))));
    };
    kinds::find(&kind.value).ok_or_else(|| {
        Diagnostic::new(path, format!("unknown kind `{}`", kind.value))
            .at(text, kind.line, kind.column, kind.value.chars().count())
            .expected(format!("one of {}", names().collect::<Vec<_>>().join(", ")))
            .help(did_you_mean(&kind.value, names()))
    })
}

fn build(
    path: &Path,
    text: &str,
    registration: &'static Registration,
    kind: Arc<dyn GateKind>,
    reading: Reading,
    overrides: Overrides,
) -> Result<GateFile, Diagnostic> {
    let settable = reading.kind_keys.get();
    let common = reading.common.into_inner();
    let places = reading.places.into_inner();
    let missing = |key: &str| Diagnostic::new(path, format!("the key `{key}` is missing"));
    let name = common.gate.ok_or_else(|| missing("gate"))?.0;
    let claim = common.claim.ok_or_else(|| missing("claim"))?.0;
    let track = common.track.ok_or_else(|| missing("track"))?;
    if common.policy.is_some() && registration.policy == PolicyUse::None {
        let fault = Fault::at(
            "policy",
            format!("a gate of kind `{}` has no numerical policy", registration.name),
        );
        return Err(locate(path, text, &places, &fault));
    }
    let timeout_ms = common.timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS);
    if timeout_ms == 0 {
        return Err(locate(path, text, &places, &Fault::at("timeout_ms", "no trial fits 0 ms")));
    }
    let mut stamped = text.as_bytes().to_vec();
    if !overrides.is_empty() {
        stamped.extend(serde_json::to_vec(&overrides).unwrap_or_default());
    }
    Ok(GateFile {
        name,
        claim,
        track,
        kind_name: registration.name,
        tags: common.tags.unwrap_or_default(),
        requires: common.requires.unwrap_or_default(),
        policies: common.policy.map(|p| p.to_vec()),
        timeout_ms,
        device_use: registration.device,
        policy_use: registration.policy,
        kind,
        path: path.to_owned(),
        digest: Digest::of(&stamped),
        overrides,
        settable,
        exclude: common.exclude.unwrap_or_default(),
        include: common.include.unwrap_or_default(),
        text: text.into(),
        places: Arc::new(places),
    })
}

fn locate(
    path: &Path,
    text: &str,
    places: &BTreeMap<String, (usize, usize)>,
    fault: &Fault,
) -> Diagnostic {
    let diagnostic = Diagnostic::new(path, &fault.message);
    match fault.key.and_then(|key| places.get(key).map(|at| (key, at))) {
        Some((key, (line, column))) => diagnostic.at(text, *line, *column, key.len()),
        None => diagnostic,
    }
}
