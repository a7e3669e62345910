//! One small bad file per class of error, its message beside it (`ASSAY_BLESS=1` rewrites them).

use assay::harness::scenario::ScenarioFile;
use assay::harness::{GateFile, Pattern, PlanError, PlanOptions, devices, plan, read_gates};
use std::path::{Path, PathBuf};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/harness").join(name)
}

/// Reads and plans a gate file.
fn gate(path: &Path) -> Result<String, String> {
    let options = PlanOptions {
        root: folder("spec"),
        long: false,
        devices: devices(),
        patterns: vec![Pattern::File(path.to_owned())],
        partition: None,
    };
    read_gates(None, &options.patterns, &Default::default())
        .and_then(|gates| plan(gates, &options))
        .map(|plan| format!("{} trials", plan.trials.len()))
        .map_err(|e| e.to_string())
}

/// Reads a scenario file.
fn scenario(path: &Path) -> Result<String, String> {
    ScenarioFile::read(path).map(|file| file.name().to_owned()).map_err(|e| e.to_string())
}

/// Compares the message of every file in a folder with the one beside it.
fn messages(name: &str, read: impl Fn(&Path) -> Result<String, String>, least: usize) {
    let folder = folder(name);
    let mut wrong = Vec::new();
    let mut seen = 0;
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    for file in files.iter().filter(|f| f.extension().is_some_and(|e| e == "yaml")) {
        seen += 1;
        let text = match read(file) {
            Ok(accepted) => format!("accepted: {accepted}"),
            Err(message) => message.replace(&format!("{}/", folder.display()), ""),
        };
        // Long lists of kinds and regions grow with the product; their beginning is enough.
        let short = |line: &str| match line.char_indices().nth(60) {
            Some((at, _)) if line.contains("= expected: one of") => format!("{} …", &line[..at]),
            _ => line.to_owned(),
        };
        let found = text.lines().map(short).collect::<Vec<_>>().join("\n") + "\n";
        let snapshot = file.with_extension("txt");
        if std::env::var_os("ASSAY_BLESS").is_some() {
            std::fs::write(&snapshot, &found).unwrap();
        }
        let expected = std::fs::read_to_string(&snapshot).unwrap_or_default();
        if found != expected {
            wrong.push(format!("{}\nexpected:\n{expected}\nfound:\n{found}", file.display()));
        }
        if found.starts_with("accepted") {
            wrong.push(format!("{} is not refused", file.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen >= least, "{seen} files");
}

#[test]
fn every_class_of_error_in_a_gate_has_its_message() {
    messages("spec", gate, 45);
}

#[test]
fn every_class_of_error_in_a_scenario_has_its_message() {
    messages("scenario", scenario, 20);
}

const HEAD: &str = "gate: x\nclaim: c\ntrack: resource\nkind: runner_probe\nbehaviour: [pass]\n";

fn parse(more: &str) -> Result<GateFile, String> {
    GateFile::parse(Path::new("x.yaml"), &format!("{HEAD}{more}\n"), &Default::default())
        .map_err(|e| e.to_string())
}

#[test]
fn integers_survive_exactly() {
    for value in [u64::MAX, (1 << 53) + 1, 0] {
        let gate = parse(&format!("wait_ms: {value}")).unwrap();
        assert!(format!("{:?}", gate.kind).contains(&format!("wait_ms: {value},")), "{value}");
    }
    for wrong in ["18446744073709551616", "-1", "1e3", "1.0", "'7'x"] {
        assert!(parse(&format!("wait_ms: {wrong}")).is_err(), "{wrong}");
    }
}

#[test]
fn words_that_look_like_booleans_are_words() {
    assert!(parse("grouped: no").unwrap_err().contains("expected: `true` or `false`"));
    assert_eq!(parse("tags: [no, off, '1e3']").unwrap().tags, ["no", "off", "1e3"]);
}

#[test]
fn an_alias_bomb_and_an_oversize_file_are_refused_quickly() {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for i in 1..9 {
        let list = vec![format!("*a{}", i - 1); 10].join(", ");
        bomb.push_str(&format!("a{i}: &a{i} [{list}]\n"));
    }
    let start = std::time::Instant::now();
    let error = parse(&format!("tags: *a8\n{bomb}")).unwrap_err();
    assert!(!error.is_empty());
    let error = GateFile::parse(
        Path::new("x.yaml"),
        &format!("{bomb}tags: *a8\n{HEAD}"),
        &Default::default(),
    );
    let error = error.unwrap_err().to_string();
    assert!(error.contains("larger than a spec may be once aliases are expanded"), "{error}");
    assert!(start.elapsed().as_secs() < 5);

    let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    std::fs::write(file.path(), vec![b'#'; (1 << 20) + 1]).unwrap();
    let error = GateFile::read(file.path(), &Default::default()).unwrap_err().to_string();
    assert!(error.contains("larger than the limit of 1048576 bytes"), "{error}");
}

#[test]
fn the_same_name_twice_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, HEAD).unwrap();
        Pattern::File(path)
    };
    let patterns = [file("a.yaml"), file("b.yaml")];
    let error = read_gates(None, &patterns, &Default::default()).unwrap_err();
    assert!(matches!(error, PlanError::Files(_)));
    assert!(error.to_string().contains("a gate `x` is also in"), "{error}");
}
