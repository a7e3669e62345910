//! Arms that are revisions: what is checked out and built, what is kept, what is refused. The compiler
//! is a script that puts the binary under test where cargo would: building is cargo's own business.
#![cfg(unix)]

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const ASSAY: &str = env!("CARGO_BIN_EXE_assay");

/// A repository with a gate and a scenario whose candidate is a revision.
struct Repository {
    folder: tempfile::TempDir,
}

const SCENARIO: &str = "\
scenario: tiny
question: Did the revision change anything?
track: performance
gates: [probe]
profiles:
  cpu: { model: { dir: FIXTURE } }
workload: { prompt_tokens: 4, decode_tokens: 3 }
arms:
  baseline: { policy: f32, threads: 1 }
  candidate: { policy: reference, threads: 1, build: REVISION }
differs_in: [build]
measure:
  warmup: 2
  quads: [12]
  launches: 2
  metrics: [decode_tokens_per_second]
admit_when:
  all:
    - { ratio: decode_tokens_per_second, lower_bound_at_least: 0.2 }
";

impl Repository {
    fn new() -> Repository {
        let repository = Repository { folder: tempfile::tempdir().unwrap() };
        repository.git(&["init", "--quiet", "--initial-branch", "main"]);
        repository.write("Cargo.toml", "[package]\nname = \"assay\"\n");
        repository.write(".gitignore", "target/\nresults/\n");
        repository.behaves("pass");
        repository
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    /// What the gate of the scenario finds from here on.
    fn behaves(&self, verdict: &str) {
        let gate = format!(
            "gate: probe\nclaim: The probe does what it is told.\ntrack: resource\n\
             kind: runner_probe\nbehaviour: [{verdict}]\n"
        );
        self.write("gates/probe.yaml", &gate);
    }

    fn git(&self, args: &[&str]) -> String {
        let identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"];
        let output = Command::new("git")
            .current_dir(self.path())
            .args(identity)
            .args(args)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn commit(&self) -> String {
        self.git(&["add", "."]);
        self.git(&["commit", "--quiet", "--message", "a state"]);
        self.git(&["rev-parse", "HEAD"])
    }

    /// A cargo that notes what it was asked and then does this.
    fn cargo(&self, then: &str) -> PathBuf {
        let log = self.path().join("target/cargo.log");
        std::fs::create_dir_all(log.parent().unwrap()).unwrap();
        let script = format!(
            "#!/bin/sh\necho \"$@\" >> '{}'\nwhile [ $# -gt 0 ]; do case $1 in --target-dir) target=$2;; \
             --release) profile=release;; esac; shift; done\n{then}\n",
            log.display()
        );
        let path = self.write("target/cargo.sh", &script);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// What cargo was asked so far.
    fn asked(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.path().join("target/cargo.log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    /// `assay scenario run` with this revision as the candidate: code, stdout and stderr.
    fn run(&self, revision: &str, cargo: &Path) -> (Option<i32>, String) {
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/llama");
        let text = SCENARIO
            .replace("FIXTURE", &fixture.display().to_string())
            .replace("REVISION", revision);
        let file = self.write("scenarios/tiny.yaml", &text);
        let output = Command::new(ASSAY)
            .current_dir(self.path())
            .args(["scenario", "run"])
            .arg(file)
            .args(["--device", "cpu"])
            .env("CARGO", cargo)
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    }
}

/// Puts the binary under test where cargo puts its own.
fn copying() -> String {
    format!(
        "mkdir -p \"$target/${{profile:-debug}}\" && cp '{ASSAY}' \"$target/${{profile:-debug}}/assay\""
    )
}

/// The arms differ in their policy, which the file does not allow: decided without a measurement,
/// after everything else was done.
fn decided(run: (Option<i32>, String)) -> String {
    let (code, text) = run;
    assert_eq!(code, Some(4), "{text}");
    assert!(text.contains("differ in numerical_policy"), "{text}");
    text
}

#[test]
fn a_revision_is_checked_out_built_once_and_recorded() {
    let repository = Repository::new();
    let first = repository.commit();
    repository.write("later.txt", "of another revision");
    repository.commit();
    let cargo = repository.cargo(&copying());

    let text = decided(repository.run(&first[..10], &cargo));
    let building = format!("arm candidate: building revision {} …", &first[..12]);
    assert!(text.contains(&building), "{text}");
    assert!(text.contains("arm candidate: running the gates with its build"), "{text}");
    let asked = repository.asked();
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert!(asked[0].starts_with("build --locked --bin assay --target-dir "), "{asked:?}");
    let arms: Vec<PathBuf> = std::fs::read_dir(repository.path().join("target/arms"))
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    assert_eq!(arms.len(), 1);
    let home = arms[0].file_name().unwrap().to_str().unwrap();
    assert!(home.starts_with(&format!("{}-", &first[..12])), "{home}");
    assert!(arms[0].join("source/Cargo.toml").is_file());
    assert!(!arms[0].join("source/later.txt").exists(), "the revision's own files");
    // The record names the whole revision, however it was written in the file.
    let runs = std::fs::read_dir(repository.path().join("results")).unwrap();
    let recorded = runs
        .filter_map(|run| std::fs::read_to_string(run.unwrap().path().join("run.json")).ok())
        .any(|text| text.contains("\"arms\"") && text.contains(&first));
    assert!(recorded, "{text}");

    // Built once: by another name of it, and with a cargo that could not build any more.
    let broken = repository.cargo("exit 101");
    let text = decided(repository.run("HEAD~1", &broken));
    assert!(!text.contains("building revision"), "{text}");
    assert_eq!(repository.asked().len(), 1);
}

#[test]
fn what_is_no_revision_or_does_not_build_is_named() {
    let repository = Repository::new();
    let revision = repository.commit();
    let cargo = repository.cargo("exit 101");
    for (build, code, message) in [
        (
            "no-such-tag",
            64,
            "error: arm `candidate`: `no-such-tag` is neither a file nor a revision that git knows \
             here"
                .to_owned(),
        ),
        (
            "HEAD",
            1,
            "error: arm `candidate`: cargo build failed: exit status: 101; its messages stand above"
                .to_owned(),
        ),
    ] {
        let (found, text) = repository.run(build, &cargo);
        assert_eq!(found, Some(code), "{build}: {text}");
        assert!(text.lines().any(|line| line == message), "{build}: {text}");
    }
    // A build that failed leaves nothing that a later run would take for finished.
    let good = repository.cargo(&copying());
    let text = decided(repository.run(&revision, &good));
    assert!(text.contains("building revision"), "{text}");
}

/// What lies in the working tree is not what the revision holds, in either direction.
#[test]
fn a_dirty_tree_is_no_part_of_a_revision() {
    let repository = Repository::new();
    repository.behaves("fail");
    let red = repository.commit();
    let cargo = repository.cargo(&copying());
    repository.behaves("pass");
    let (code, text) = repository.run(&red, &cargo);
    assert_eq!(code, Some(1), "{text}");
    let told = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        told.contains(
            "error: arm `candidate`: nothing is measured: gate `probe` is not green with its build: \
             probe/cpu/fail/n=0: expected nothing, found this probe"
        ),
        "{text}"
    );
    // The fix alone, committed, is green, whatever else lies around.
    let green = repository.commit();
    repository.write("src/half-written.rs", "fn");
    decided(repository.run(&green, &cargo));
}
