//! `--set KEY=VALUE` for scenarios: the numbers of a file replaced from the command line.

use super::ScenarioFile;
use crate::harness::spec::{Diagnostic, did_you_mean, parse_argument, parse_yaml};
use crate::units::Digest;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The key that names a model folder; it belongs to the profile, not to the document.
pub const MODEL_KEY: &str = "model";

/// What may be replaced. The question, the gates and the rule stay as they stand in the file:
/// whoever changes those asks another question.
const REPLACEABLE: [&str; 5] = ["workload", "sweep", "measure", "arms", "profiles"];

impl ScenarioFile {
    /// The same scenario with values replaced: keys are paths joined by dots
    /// (`workload.decode_tokens`, `measure.quads`, `arms.candidate.threads`), values YAML.
    ///
    /// The digest covers the text and what was replaced in it.
    ///
    /// # Errors
    /// A key that may not be replaced or does not exist, or a value that the key does not take.
    pub fn with(self, set: &BTreeMap<String, String>) -> Result<ScenarioFile, Diagnostic> {
        let mut given: BTreeMap<&str, Value> = BTreeMap::new();
        for (key, value) in set.iter().filter(|(key, _)| *key != MODEL_KEY) {
            let complain = |message: String| Diagnostic::new(&self.path, message);
            let top = key.split('.').next().unwrap_or_default();
            if !REPLACEABLE.contains(&top) {
                let known = REPLACEABLE.iter().copied().chain([MODEL_KEY]);
                return Err(complain(format!(
                    "--set {key}: a scenario lets `{top}` stand as it is"
                ))
                .expected(format!("`{MODEL_KEY}`, or a path below {}", REPLACEABLE.join(", ")))
                .help(did_you_mean(top, known)));
            }
            self.exists(key).map_err(|fault| Diagnostic {
                message: format!("--set {key}: {}", fault.message),
                ..fault
            })?;
            let value = parse_argument(value).map_err(|e| complain(format!("--set {key}: {e}")))?;
            given.insert(key, value);
        }
        if given.is_empty() {
            return Ok(self);
        }
        let mut document: Value = parse_yaml(&self.path, &self.text)?;
        for (key, value) in &given {
            place(&mut document, key, value.clone())
                .map_err(|e| Diagnostic::new(&self.path, format!("--set {key}: {e}")))?;
        }
        // JSON is YAML: the same strict reader judges the result.
        let changed = ScenarioFile::parse(&self.path, &document.to_string()).map_err(|fault| {
            let keys: Vec<&str> = given.keys().copied().collect();
            let message = format!("with --set {}: {}", keys.join(", "), fault.message);
            // Places are those of the changed text, which nobody wrote.
            Diagnostic { message, position: None, excerpt: None, ..fault }
        })?;
        let mut stamped = self.text.as_bytes().to_vec();
        stamped.extend(serde_json::to_vec(&given).unwrap_or_default());
        Ok(ScenarioFile { text: self.text, digest: Digest::of(&stamped), ..changed })
    }
}

impl ScenarioFile {
    /// Whether a path has no empty part, and arms and profiles that the file has: another name would
    /// be one more of them, which measures something else.
    fn exists(&self, key: &str) -> Result<(), Diagnostic> {
        let parts: Vec<&str> = key.split('.').collect();
        if parts.contains(&"") {
            let message = "a name between two dots is empty";
            return Err(
                Diagnostic::new(&self.path, message).expected("names joined by single dots")
            );
        }
        let (what, known): (&str, Vec<String>) = match parts[0] {
            "arms" => ("arm", self.arms().keys().cloned().collect()),
            "profiles" => ("profile", self.spec.profiles.keys().map(ToString::to_string).collect()),
            _ => return Ok(()),
        };
        match parts.get(1) {
            Some(name) if !known.iter().any(|k| k == name) => {
                Err(Diagnostic::new(&self.path, format!("there is no {what} `{name}`"))
                    .expected(format!("one of `{}`", known.join("`, `")))
                    .help(did_you_mean(name, known.iter().map(String::as_str))))
            }
            _ => Ok(()),
        }
    }
}

/// Puts a value at a path; mappings on the way are made where they are missing.
fn place(document: &mut Value, path: &str, value: Value) -> Result<(), String> {
    let mut at = document;
    let mut walked = String::new();
    let (parents, last) = path.rsplit_once('.').unwrap_or(("", path));
    for part in parents.split('.').filter(|p| !p.is_empty()) {
        let Value::Object(fields) = at else {
            return Err(format!("`{walked}` is no mapping"));
        };
        at = fields.entry(part).or_insert_with(|| Value::Object(Map::new()));
        walked = if walked.is_empty() { part.to_owned() } else { format!("{walked}.{part}") };
    }
    match at {
        Value::Object(fields) if !last.is_empty() => {
            fields.insert(last.to_owned(), value);
            Ok(())
        }
        _ => Err(format!("`{walked}` is no mapping")),
    }
}
