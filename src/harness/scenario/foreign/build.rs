//! An arm that is another build of this engine.

use crate::harness::scenario::{GateEvidence, WorkerCommand};
use crate::units::BUILD;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// An arm's own binary.
#[derive(Clone, Debug)]
pub struct ArmBuild {
    pub worker: WorkerCommand,
    /// The revision it was built from; absent for a binary given by path.
    pub revision: Option<String>,
    /// The folder that its gates are read from.
    root: PathBuf,
}

/// Why there is no such build.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error("arm `{arm}`: `{build}` is neither a file nor a revision that git knows here{}", detail(.message))]
    Unknown { arm: String, build: String, message: String },
    #[error("arm `{arm}`: {action} failed: {message}")]
    Failed { arm: String, action: String, message: String },
    #[error(
        "arm `{arm}`: nothing is measured: gate `{gate}` is not green with its build: {message}"
    )]
    Gate { arm: String, gate: String, message: String },
}

fn detail(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(" ({message})") }
}

/// The build that an arm names: the file at that path (relative to the scenario file), or the
/// revision, checked out and built on first use under `target/arms/` of the project at `root`.
///
/// `tell` is told what takes long; cargo's own progress goes to stderr.
///
/// # Errors
/// [`BuildError`].
pub fn resolve_build(
    arm: &str,
    build: &str,
    file: &Path,
    root: &Path,
    tell: &dyn Fn(&str),
) -> Result<ArmBuild, BuildError> {
    let path = file.parent().unwrap_or(Path::new("")).join(build);
    if path.is_file() {
        let program = std::path::absolute(&path).unwrap_or(path);
        return Ok(ArmBuild { worker: worker(program), revision: None, root: root.to_owned() });
    }
    let revision = git(
        root,
        &["rev-parse", "--verify", "--quiet", "--end-of-options", &format!("{build}^{{commit}}")],
    )
    .map_err(|message| BuildError::Unknown {
        arm: arm.into(),
        build: build.into(),
        message,
    })?;
    let failed = |action: &str| {
        let (arm, action) = (arm.to_owned(), action.to_owned());
        move |message: String| BuildError::Failed { arm, action, message }
    };
    let home = root.join("target/arms").join(format!("{}-{}", &revision[..12], BUILD.profile));
    let source = home.join("source");
    let program = home.join(format!("assay{}", std::env::consts::EXE_SUFFIX));
    if !source.join("Cargo.toml").is_file() {
        let home_made = std::fs::create_dir_all(&home).map_err(|e| e.to_string());
        home_made.map_err(failed("making the folder"))?;
        // A worktree that was removed by hand is still listed.
        let _ = git(root, &["worktree", "prune"]);
        let place = source.to_string_lossy().into_owned();
        git(root, &["worktree", "add", "--quiet", "--detach", &place, &revision])
            .map_err(failed("checking the revision out"))?;
    }
    if !program.is_file() {
        tell(&format!("arm {arm}: building revision {} …", &revision[..12]));
        let built = cargo(&source, &home, root).map_err(failed("cargo build"))?;
        // A copy of its own, put in place in one step: cargo replaces what it built.
        let new = home.join("assay.new");
        std::fs::copy(built, &new)
            .and_then(|_| std::fs::rename(&new, &program))
            .map_err(|e| failed("keeping the binary")(e.to_string()))?;
    }
    Ok(ArmBuild { worker: worker(program), revision: Some(revision), root: source })
}

fn worker(program: PathBuf) -> WorkerCommand {
    WorkerCommand { program, arguments: vec!["scenario".into(), "worker".into()] }
}

fn git(root: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("git")
        .current_dir(root)
        .args(arguments)
        .output()
        .map_err(|e| format!("git cannot be run: {e}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

/// Builds a checked-out revision as this binary was built; returns the finished file.
fn cargo(source: &Path, home: &Path, root: &Path) -> Result<PathBuf, String> {
    let program = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let target = home.join("target");
    let mut command = Command::new(&program);
    command
        .current_dir(source)
        .args(["build", "--locked", "--bin", "assay", "--target-dir"])
        .arg(&target)
        // The product goes to stdout; cargo writes none, but build scripts might.
        .stdout(Stdio::null());
    if std::env::var_os("CARGO_BUILD_BUILD_DIR").is_none() {
        // Dependencies that were compiled already are used again.
        command.env("CARGO_BUILD_BUILD_DIR", root.join("target"));
    }
    let release = BUILD.profile == "release";
    if release {
        command.arg("--release");
    }
    let status = command.status().map_err(|e| format!("{program} cannot be run: {e}"))?;
    if !status.success() {
        return Err(format!("{status}; its messages stand above"));
    }
    let folder = target.join(if release { "release" } else { "debug" });
    Ok(folder.join(format!("assay{}", std::env::consts::EXE_SUFFIX)))
}

/// What `gates run --json` says, as far as it matters here.
#[derive(Deserialize)]
struct Summary {
    run: Run,
    gates: Vec<Gate>,
    failures: Vec<Failure>,
    missing_trials: u64,
}

#[derive(Deserialize)]
struct Run {
    run_id: String,
}

#[derive(Deserialize)]
struct Gate {
    gate: Named,
    counts: Counts,
}

#[derive(Deserialize)]
struct Named {
    gate: String,
    trials: u64,
}

#[derive(Deserialize)]
struct Counts {
    pass: u64,
}

#[derive(Deserialize)]
struct Failure {
    name: String,
    gate: String,
    message: String,
}

impl ArmBuild {
    /// Runs the gates that the arms rest on with this build.
    ///
    /// # Errors
    /// [`BuildError::Gate`] naming the first gate that is not green.
    pub fn establish(&self, arm: &str, gates: &[String]) -> Result<Vec<GateEvidence>, BuildError> {
        let red = |gate: &str, message: String| BuildError::Gate {
            arm: arm.to_owned(),
            gate: gate.to_owned(),
            message,
        };
        let all = gates.join(", ");
        let out = std::env::temp_dir().join(format!("assay-arm-{}-{arm}", std::process::id()));
        let output = Command::new(&self.worker.program)
            .current_dir(&self.root)
            .args(["gates", "run", "--json", "--out"])
            .arg(&out)
            .args(gates)
            .output()
            .map_err(|e| red(&all, e.to_string()))?;
        let _ = std::fs::remove_dir_all(&out);
        let summary: Summary = serde_json::from_slice(&output.stdout)
            .map_err(|_| red(&all, String::from_utf8_lossy(&output.stderr).trim().to_owned()))?;
        if let Some(f) = summary.failures.first() {
            return Err(red(&f.gate, format!("{}: {}", f.name, f.message)));
        }
        gates
            .iter()
            .map(|name| {
                let found = summary.gates.iter().find(|g| g.gate.gate == *name);
                match found.filter(|g| g.counts.pass > 0 && summary.missing_trials == 0) {
                    Some(found) => Ok(GateEvidence {
                        gate: name.clone(),
                        trials: found.gate.trials,
                        run_id: summary.run.run_id.clone(),
                        arm: Some(arm.to_owned()),
                    }),
                    None => Err(red(name, "no trial of it passed".into())),
                }
            })
            .collect()
    }
}
