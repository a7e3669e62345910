//! The committed JSON Schemas are those of the types, and the shipped files fit them.

use assay::harness::{parse_yaml, schema};
use serde_json::Value;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Compares a committed file with what it is generated from; `ASSAY_BLESS=1` rewrites it.
fn committed(path: &str, generated: &Value) {
    let path = root().join(path);
    let text = serde_json::to_string_pretty(generated).unwrap() + "\n";
    if std::env::var_os("ASSAY_BLESS").is_some() {
        std::fs::write(&path, text).unwrap();
        return;
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == text, "{} is out of date; run this test with ASSAY_BLESS=1", path.display());
}

#[test]
fn committed_schemas_are_current() {
    committed("docs/schema/gate.json", &schema::gate_schema());
    committed("docs/schema/scenario.json", &schema::scenario_schema());
    committed("docs/schema/record.json", &schema::record_schema());
}

#[test]
fn shipped_gates_fit_the_schema_and_name_it() {
    fit(&schema::gate_schema(), &assay::harness::discover(&root()).unwrap());
}

#[test]
fn shipped_scenarios_fit_the_schema_and_name_it() {
    let files = std::fs::read_dir(root().join("scenarios")).unwrap();
    let files: Vec<PathBuf> = files.map(|e| e.unwrap().path()).collect();
    fit(&schema::scenario_schema(), &files);
}

/// Files name the schema on their first line and are valid by it.
fn fit(schema: &Value, files: &[PathBuf]) {
    let validator = jsonschema::validator_for(schema).unwrap();
    assert!(!files.is_empty());
    for path in files {
        let text = std::fs::read_to_string(path).unwrap();
        let first = text.lines().next().unwrap_or_default();
        let schema = first.strip_prefix("# yaml-language-server: $schema=");
        let schema = schema.unwrap_or_else(|| panic!("{} names no schema", path.display()));
        let target: &Path = &path.parent().unwrap().join(schema);
        assert!(target.is_file(), "{}: there is no {schema}", path.display());
        let value: Value = parse_yaml(path, &text).unwrap();
        let faults: Vec<String> = validator.iter_errors(&value).map(|e| e.to_string()).collect();
        assert!(faults.is_empty(), "{}: {faults:#?}", path.display());
    }
}

#[test]
fn the_schema_refuses_what_the_parser_refuses() {
    let validator = jsonschema::validator_for(&schema::gate_schema()).unwrap();
    let gate = |more: &str| -> Value {
        let text = format!("gate: x\nclaim: c\ntrack: resource\nkind: runner_probe\n{more}\n");
        parse_yaml(Path::new("x.yaml"), &text).unwrap()
    };
    assert!(validator.is_valid(&gate("behaviour: [pass]")));
    for wrong in ["behaviour: []", "behaviour: [pas]", "behaviour: [pass]\nwat: 1", "{}"] {
        if let Ok(text) = std::panic::catch_unwind(|| gate(wrong)) {
            assert!(!validator.is_valid(&text), "{wrong}");
        }
    }
}
