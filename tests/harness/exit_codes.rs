//! Exit codes of the command line, as `units::Exit` documents them.

use crate::support::{Project, ended, trials};
use std::process::Command;

fn project() -> Project {
    Project::new(&[("probe", "behaviour: [pass]"), ("other", "behaviour: [pass]\ntags: [some]")])
}

#[test]
fn usage_errors_are_64_and_name_the_nearest_spelling() {
    let project = project();
    for (arguments, expected) in [
        (&["gats"][..], "unrecognized subcommand 'gats'"),
        (&["gates", "run", "prob"], "no gate is called `prob`; did you mean `probe`?"),
        (&["gates", "run", "tag:sone"], "no gate has the tag `sone`; did you mean `some`?"),
        (&["gates", "run", "probe/cuda/*"], "no trial matches `probe/cuda/*`"),
        (&["gates", "run", "all", "--set", "modell=x"], "no gate selected has the key `modell`"),
        (&["gates", "run", "all", "--partition", "hash:3/2"], "expected `hash:I/N`"),
        (&["gates", "run", "all", "--resume", "none"], "there is no such run"),
        (&["gates", "run", "./missing.yaml"], "./missing.yaml: cannot be read"),
        (&["gates", "mutate", "no_such_switch"], "no switch is called `no_such_switch`"),
    ] {
        let (code, stdout, stderr) = project.run(arguments);
        assert_eq!(code, 64, "{arguments:?}: {stdout}{stderr}");
        assert!(stderr.contains(expected), "{arguments:?}: {stderr}");
        assert!(!stderr.contains("RUST_BACKTRACE"), "{stderr}");
    }
}

#[test]
fn help_and_version_succeed_on_stdout() {
    let project = project();
    for arguments in [&["--help"][..], &["--version"], &["gates", "run", "--help"]] {
        let (code, stdout, stderr) = project.run(arguments);
        assert_eq!((code, stderr.as_str()), (0, ""), "{arguments:?}");
        assert!(!stdout.is_empty());
    }
}

#[test]
fn requiring_an_absent_device_and_too_many_skips_fail() {
    let project = project();
    let (code, _, stderr) = project.run(&["gates", "run", "all", "--require", "cuda"]);
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("--require cuda"), "{stderr}");
    project.write("needs", "behaviour: [pass]\nrequires: { set: [repeat] }");
    assert_eq!(project.run(&["gates", "run", "all"]).0, 0);
    let (code, stdout, stderr) = project.run(&["gates", "run", "all", "--max-skips", "0"]);
    assert_eq!(code, 1, "{stdout}");
    assert!(stderr.contains("1 trial skipped, more than --max-skips allows"), "{stderr}");
    let (code, stdout, _) = project.run(&["gates", "run", "needs", "--set", "repeat=4"]);
    assert_eq!(code, 0);
    assert!(stdout.contains("4 passed"), "{stdout}");
}

#[test]
fn records_that_cannot_be_written_are_74() {
    let project = project();
    std::fs::write(project.path().join("a-file"), "").unwrap();
    let (code, _, stderr) = project.run(&["gates", "run", "all", "--out", "a-file"]);
    assert_eq!(code, 74, "{stderr}");
    assert!(stderr.contains("cannot make the folder"), "{stderr}");
}

/// A disk that is full after a few lines: a limit on file size stands in for it.
#[cfg(unix)]
#[test]
fn a_full_disk_is_74_and_keeps_what_was_written() {
    let project = Project::new(&[("probe", "behaviour: [pass]\nrepeat: 100")]);
    let script = format!(
        "trap '' XFSZ; ulimit -f 8; exec {} gates run all -q --jobs 1",
        env!("CARGO_BIN_EXE_assay")
    );
    let mut command = Command::new("bash");
    let output = command.current_dir(project.path()).args(["-c", &script]).output().unwrap();
    let (code, _, stderr) = ended(output);
    assert_eq!(code, 74, "{stderr}");
    assert!(stderr.contains("records written before are intact"), "{stderr}");
    let run = project.runs()[0].clone();
    let lines = trials(&run).len();
    assert!((1..100).contains(&lines), "{lines}");
    let id = run.file_name().unwrap().to_str().unwrap().trim_end_matches(".partial");
    assert_eq!(project.run(&["gates", "run", "all", "--resume", id]).0, 0);
}

/// `/dev/full` is a disk without a free byte.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_under_any_output_is_74_and_named() {
    let project = Project::new(&[("probe", "behaviour: [pass]\nrepeat: 3")]);
    for option in ["--junit", "--markdown"] {
        let (code, _, stderr) = project.run(&["gates", "run", "all", "-q", option, "/dev/full"]);
        assert_eq!(code, 74, "{option}: {stderr}");
        let expected = "error: cannot write /dev/full: No space left on device (os error 28)";
        assert!(stderr.contains(expected), "{option}: {stderr}");
    }
    let run = project.runs()[0].display().to_string();
    let page = ["report", "compare", &run, &run, "--out", "/dev/full"];
    let (code, _, stderr) = project.run(&page);
    assert_eq!(code, 74, "{stderr}");
    for arguments in [&["gates", "list"][..], &["gates", "list", "--json"], &["doctor"]] {
        let full = std::fs::File::create("/dev/full").unwrap();
        let (code, _, stderr) = ended(project.assay(arguments).stdout(full).output().unwrap());
        assert_eq!(code, 74, "{arguments:?}: {stderr}");
        assert!(stderr.contains("No space left on device"), "{arguments:?}: {stderr}");
    }
}

/// A folder in which nothing can be made; `/proc` refuses even the superuser.
#[cfg(target_os = "linux")]
#[test]
fn a_read_only_folder_is_74_and_named() {
    let project = project();
    for arguments in [
        &["gates", "run", "all", "-q", "--out", "/proc/assay"][..],
        &["gates", "run", "all", "-q", "--junit", "/proc/assay/j.xml"],
    ] {
        let (code, _, stderr) = project.run(arguments);
        assert_eq!(code, 74, "{arguments:?}: {stderr}");
        assert!(stderr.contains("/proc/assay"), "{arguments:?}: {stderr}");
        assert!(!stderr.contains("panicked"), "{stderr}");
    }
    let run = project.runs()[0].display().to_string();
    let (code, _, stderr) = project.run(&["report", "render", &run, "--out", "/proc/assay"]);
    assert_eq!(code, 74, "{stderr}");
    assert!(stderr.contains("cannot write /proc/assay"), "{stderr}");
}

/// Without a CUDA driver everything else works, and what could not be established is said.
#[test]
fn a_machine_without_a_cuda_driver_is_told_so() {
    let project = project();
    let gate = "gate: device\nclaim: The model runs on CUDA.\ntrack: resource\nkind: resource_safety\n\
                requires: { device: cuda }\npolicy: [reference]\nmodel: ../nowhere\n";
    std::fs::write(project.path().join("gates/device.yaml"), gate).unwrap();
    let hidden = |arguments: &[&str]| {
        let mut command = project.assay(arguments);
        ended(
            command
                .env("ASSAY_CUDA_PATH", project.path())
                .env("CUDA_VISIBLE_DEVICES", "")
                .output()
                .unwrap(),
        )
    };
    let (code, stdout, stderr) = hidden(&["doctor"]);
    assert_eq!(code, 0, "{stdout}{stderr}");
    let (code, stdout, stderr) = hidden(&["gates", "run", "all", "-q"]);
    assert_eq!(code, 0, "{stdout}{stderr}");
    assert!(stdout.contains("not established: nothing on CUDA"), "{stdout}");
    let (code, _, stderr) = hidden(&["gates", "run", "all", "--require", "cuda"]);
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("--require cuda: "), "{stderr}");
    assert!(stderr.contains("; nothing was run"), "{stderr}");
}

#[cfg(unix)]
#[test]
fn an_interrupt_is_130_and_keeps_records() {
    let project = Project::new(&[("probe", "behaviour: [pass]\nrepeat: 200\nwait_ms: 50")]);
    let child = project
        .assay(&["gates", "run", "all", "-q"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1500));
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let (code, stdout, stderr) = ended(child.wait_with_output().unwrap());
    assert_eq!(code, 130, "{stdout}{stderr}");
    assert!(stdout.starts_with("interrupted:"), "{stdout}");
    let run = project.runs()[0].clone();
    assert!(run.to_string_lossy().ends_with(".partial"));
    assert!(trials(&run).iter().all(|t| t["verdict"] == "pass"), "no trial is blamed");
}

#[test]
fn a_closed_pipe_is_no_failure() {
    let project = project();
    let script = format!("{} gates list --json | head -c 1", env!("CARGO_BIN_EXE_assay"));
    let mut command = Command::new("bash");
    command.current_dir(project.path()).args(["-o", "pipefail", "-c", &script]);
    let (code, _, stderr) = ended(command.output().unwrap());
    assert_eq!((code, stderr.as_str()), (0, ""));
}
