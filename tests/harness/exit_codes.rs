//! Exit codes of the command line, as `units::Exit` documents them.

use crate::support::{Project, ended, trials};
use std::process::Command;

fn project() -> Project {
    Project::new(&[("probe", "behaviour: [pass]"), ("other", "behaviour: [pass]\ntags: [some]")])
}

/// Codes and whole messages, as `mistakes.txt` has them.
#[test]
fn usage_errors_are_64_and_name_the_nearest_spelling() {
    let project = project();
    let mut found = String::new();
    for arguments in [
        &["gats"][..],
        &["gates", "run", "prob"],
        &["gates", "run", "tag:sone"],
        &["gates", "run", "probe/cuda/*"],
        &["gates", "run", "all", "--set", "modell=x"],
        &["gates", "run", "all", "--set", "repeat=no"],
        &["gates", "run", "all", "--partition", "hash:3/2"],
        &["gates", "run", "all", "--require", "cuda0"],
        &["gates", "run", "all", "--max-skips", "many"],
        &["gates", "run", "all", "--max-skips", "-1"],
        &["gates", "run", "all", "--shuffle", "-1"],
        &["gates", "run", "all", "--set", "repeat=1", "--set", "repeat=2"],
        &["gates", "lint", "all", "--set", "repeat=1", "--set", "repeat=1"],
        &["scenario", "run", "none", "--set", "measure.quads=[20]", "--set", "measure.quads=[40]"],
        &["gates", "run", "all", "--resume", "none"],
        &["gates", "run", "./missing.yaml"],
        &["gates", "show", "prob"],
        &["gates", "mutate", "no_such_switch"],
        &["scenario", "run", "none"],
        &["report", "render", "none"],
        &["manifest", "check", "none.json"],
        &["capture", "compare", "a", "b"],
        &["model", "describe", "none"],
        &["eval", "--model", "none", "--text", "none.txt"],
        &["eval", "--model", "none", "--text", "none.txt", "--window", "0"],
        &["eval", "--model", "none", "--text", "none.txt", "--max-tokens", "-1"],
        &["schema", "gat"],
    ] {
        let (code, stdout, stderr) = project.run(arguments);
        assert!(code == 64 || code == 74, "{arguments:?}: {code} {stdout}{stderr}");
        assert_eq!(stdout, "", "{arguments:?}");
        let stderr = stderr.replace(&project.path().display().to_string(), "PROJECT");
        found += &format!("assay {}: {code}\n{stderr}\n", arguments.join(" "));
    }
    crate::snapshot::holds("tests/harness/mistakes.txt", &found);
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
    let mut require = project.assay(&["gates", "run", "all", "--require", "cuda"]);
    // The driver of a machine with a GPU shows none.
    let (code, _, stderr) = ended(require.env("CUDA_VISIBLE_DEVICES", "").output().unwrap());
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

/// What `gates mutate` cannot use is refused before a gate runs with it.
#[test]
fn a_binary_without_switches_is_refused_at_once() {
    if assay::units::HAS_MUTANTS {
        return;
    }
    // Running this gate would be refused for another reason.
    let project = Project::new(&[("bad", "behaviour: [fail]")]);
    let program = env!("CARGO_BIN_EXE_assay");
    let (code, stdout, stderr) = project.run(&["gates", "mutate", "--binary", program, "-q"]);
    assert_eq!((code, stdout.as_str()), (64, ""), "{stderr}");
    let expected =
        format!("error: {program} has no switches; it was built without the feature `mutants`\n");
    assert_eq!(stderr, expected);
    assert!(project.runs().is_empty());
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
    for how in [&["-v"][..], &["-q"], &["--json"]] {
        let full = std::fs::File::create("/dev/full").unwrap();
        let before = project.runs();
        let mut command = project.assay(&[&["gates", "run", "all"], how].concat());
        let (code, _, stderr) = ended(command.stdout(full).output().unwrap());
        assert_eq!(code, 74, "{how:?}: {stderr}");
        assert!(stderr.contains("error: No space left on device"), "{how:?}: {stderr}");
        let run = project.runs().into_iter().find(|run| !before.contains(run)).unwrap();
        assert_eq!(trials(&run).len(), 3, "{how:?}");
        assert!(run.extension().is_none() && run.join("report.html").is_file(), "{how:?}");
    }
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

/// What `assay doctor` says of a machine without anything of CUDA.
const NO_CUDA: &str = "           no CUDA driver
                           costs: gates that need CUDA are skipped and counted
                                  as such; everything runs on the CPU
                           remedy: install the NVIDIA driver (580 or newer for
                                   CUDA 13)
missing     nvrtc          NVRTC (libnvrtc) not found; `pip install
                           nvidia-cuda-nvrtc==13.0.88` or install the CUDA 13
                           toolkit, or name the folder in ASSAY_CUDA_PATH
                           costs: nothing without a GPU; with one, kernels that
                                  are neither cached nor built in cannot be
                                  compiled
missing     cublaslt       cuBLASLt (libcublasLt) not found; `pip install
                           nvidia-cublas` or install the CUDA 13 toolkit, or
                           name the folder in ASSAY_CUDA_PATH
                           costs: nothing without a GPU; with one, products
                                  cannot be compared with the vendor's
";

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
    // A machine with a driver says that it has no device; one without says this.
    let (_, cuda) = stdout.split_once("missing     gpu ").expect("a finding about GPUs");
    let (cuda, _) = cuda.split_once("ok          kernel cache").unwrap_or((cuda, ""));
    if cuda.contains("no CUDA driver") && !cuda.contains("ok  ") {
        assert_eq!(cuda, NO_CUDA, "{stdout}");
    }
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

/// Nobody reads: every verdict keeps its exit code, and records are made to their end.
#[test]
fn a_closed_pipe_changes_no_verdict() {
    let project = Project::new(&[("bad", "behaviour: [pass, fail]\nrepeat: 3")]);
    let closed = |arguments: &[&str]| {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let (code, _, stderr) = ended(project.assay(arguments).stdout(writer).output().unwrap());
        assert!(
            !stderr.contains("panicked") && !stderr.contains("error:"),
            "{arguments:?}: {stderr}"
        );
        code
    };
    for (at, how) in [&["-v"][..], &["-q"], &["--json"], &[]].into_iter().enumerate() {
        let before = project.runs();
        assert_eq!(closed(&[&["gates", "run", "all"], how].concat()), 1, "{how:?}");
        let run = project.runs().into_iter().find(|run| !before.contains(run)).unwrap();
        assert_eq!(project.runs().len(), at + 1);
        assert_eq!(trials(&run).len(), 6, "{how:?}");
        assert!(run.extension().is_none() && run.join("report.html").is_file(), "{how:?}");
    }
    let run = project.runs()[0].display().to_string();
    assert_eq!(closed(&["report", "merge", &run]), 1);
    assert_eq!(closed(&["gates", "list"]), 0);
    let llama = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/llama");
    let llama = llama.display().to_string();
    let manifest = |name: &str, policy: &str| {
        let arguments =
            ["generate", "--model", &llama, "-p", "a", "--max-tokens", "1", "--policy", policy];
        assert_eq!(project.run(&[&arguments[..], &["--manifest", name]].concat()).0, 0);
    };
    manifest("a.json", "fast");
    manifest("b.json", "f32");
    let compare = ["manifest", "compare", "a.json", "b.json"];
    assert_eq!(closed(&compare), project.run(&compare).0);
    assert_eq!(project.run(&compare).0, 1);
    // Text that is still being generated ends with its reader, in silence.
    assert_eq!(closed(&["generate", "--model", &llama, "-p", "a", "--max-tokens", "8", "-q"]), 0);
}

/// Whatever leads nowhere is found before anything is measured, and no mistake looks like a decision.
#[test]
fn a_scenario_that_names_what_is_not_there_is_64() {
    let project = Project::new(&[("probe", "behaviour: [pass]")]);
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let descriptor = root.join("descriptors/tiny-llama.json").display().to_string();
    let text = format!(
        "scenario: tiny\nquestion: Is it?\ntrack: performance\ngates: [probe]\n\
         profiles:\n  cpu: {{ model: {{ synth: {descriptor} }} }}\n\
         workload: {{ prompt_tokens: 4, decode_tokens: 3 }}\n\
         arms:\n  baseline: {{ policy: f32, threads: 1 }}\n  candidate: {{ policy: f32, threads: 1 }}\n\
         measure: {{ warmup: 1, quads: [12], launches: 2, metrics: [decode_tokens_per_second] }}\n\
         admit_when: {{ all: [{{ ratio: decode_tokens_per_second, lower_bound_at_least: 0.1 }}] }}\n"
    );
    let file = project.path().join("tiny.yaml");
    let lint = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        std::fs::write(&file, text.replace(from, to)).unwrap();
        let (code, stdout, stderr) = project.run(&["scenario", "lint", "./tiny.yaml"]);
        let (run, _, _) = project.run(&["scenario", "run", "./tiny.yaml", "-q"]);
        assert_eq!((code, run), (64, 64), "{to}: {stdout}{stderr}");
        stderr
    };
    assert!(lint("[probe]", "[prob]").contains("did you mean `probe`?"));
    assert!(lint("tiny-llama.json", "nope.json").contains("nope.json does not exist"));
    assert!(lint("prompt_tokens: 4", "prompt_tokens: 2046").contains("a workload has 2049 tokens"));
    std::fs::write(&file, &text).unwrap();
    let (code, stdout, stderr) = project.run(&["scenario", "lint", "./tiny.yaml"]);
    assert_eq!((code, stdout.as_str()), (0, "tiny: well-formed\n"), "{stderr}");
    // What only the engine can tell is no decision either.
    std::fs::create_dir(project.path().join("empty")).unwrap();
    std::fs::copy(
        root.join("tests/fixtures/llama/config.json"),
        project.path().join("empty/config.json"),
    )
    .unwrap();
    let run = ["scenario", "run", "./tiny.yaml", "-q", "--set", "model=empty"];
    let (code, stdout, stderr) = project.run(&run);
    assert_eq!(code, 64, "{stdout}{stderr}");
    assert!(stderr.contains("the worker of arm `baseline` failed"), "{stderr}");
}

/// Arms that differ are shown with what they differ in.
#[test]
fn a_scenario_shows_how_its_arms_differ() {
    let project = Project::new(&[]);
    let scenarios = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let show = |name: &str| {
        let file = scenarios.join(name).display().to_string();
        let (code, stdout, stderr) = project.run(&["scenario", "show", &file]);
        assert_eq!(code, 0, "{stderr}");
        stdout.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let int4 = show("int4-decode.yaml");
    for part in [
        "candidate: policy fast, threads every processor, weights int4, prefill bf16: mlp_gate mlp_up",
        "packed: policy fast, threads every processor, weights int4, prefill packed: mlp_gate",
        "budget nll_delta_nats: at most 0.05",
        "budget prefill_logits of candidate: those of the baseline, bit for bit",
    ] {
        assert!(int4.contains(part), "{part}\n{int4}");
    }
    assert!(show("f2-residual-norm.yaml").contains(", fusions residual_norm"));
    assert!(show("f3-cuda-joins.yaml").contains(", apart "));
}
