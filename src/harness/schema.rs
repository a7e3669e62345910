//! JSON Schemas of the files people write and of the records runs leave, for editors and for
//! readers in other languages. Committed under `docs/schema/`, kept current by a test.

use super::kinds::REGISTRY;
use super::records::{RunRecord, TrialRecord};
use super::spec::common_schema;
use schemars::{SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

/// The schema of a gate file: one alternative per kind, each closed.
pub fn gate_schema() -> Value {
    let mut generator = generator();
    let common = common_schema(&mut generator).to_value();
    let alternatives: Vec<Value> = REGISTRY
        .iter()
        .map(|registration| {
            let own = (registration.schema)(&mut generator).to_value();
            let mut properties = object(&common, "properties");
            properties.insert("kind".into(), json!({ "const": registration.name }));
            properties.extend(object(&own, "properties"));
            let mut required = vec![json!("gate"), json!("claim"), json!("track"), json!("kind")];
            required
                .extend(own.get("required").and_then(Value::as_array).cloned().unwrap_or_default());
            json!({
                "title": registration.name,
                "description": own.get("description"),
                "type": "object",
                "properties": properties,
                "required": required,
                "additionalProperties": false,
            })
        })
        .collect();
    json!({
        "$schema": DIALECT,
        "title": "Assay gate",
        "oneOf": alternatives,
        "$defs": generator.take_definitions(true),
    })
}

/// The schema of a scenario file.
pub fn scenario_schema() -> Value {
    super::scenario::scenario_schema().to_value()
}

/// The schema of records: `run.json` and a line of `trials.jsonl`.
pub fn record_schema() -> Value {
    let mut generator = generator();
    let run = generator.subschema_for::<RunRecord>();
    let trial = generator.subschema_for::<TrialRecord>();
    json!({
        "$schema": DIALECT,
        "title": "Assay records: run.json, or a line of trials.jsonl",
        "anyOf": [run, trial],
        "$defs": generator.take_definitions(true),
    })
}

const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

fn generator() -> SchemaGenerator {
    SchemaSettings::draft2020_12().into_generator()
}

fn object(schema: &Value, key: &str) -> Map<String, Value> {
    schema.get(key).and_then(Value::as_object).cloned().unwrap_or_default()
}
