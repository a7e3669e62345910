//! Runs: isolation, records, kill and resume, partitions.

use crate::support::{Project, names, trials};
use std::path::Path;
use std::time::{Duration, Instant};

fn wait_for_lines(folder: &Path, lines: usize) -> std::path::PathBuf {
    let start = Instant::now();
    loop {
        let run =
            std::fs::read_dir(folder).ok().and_then(|mut l| l.next()).map(|e| e.unwrap().path());
        if let Some(run) = run {
            let text = std::fs::read_to_string(run.join("trials.jsonl")).unwrap_or_default();
            if text.lines().count() >= lines {
                return run;
            }
        }
        assert!(start.elapsed() < Duration::from_secs(60), "no records appear");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_trial_that_panics_dies_or_hangs_is_alone_in_that() {
    let project = Project::new(&[(
        "probe",
        "behaviour: [pass, panic, abort, hang, fail, measure]\nrepeat: 2\ntimeout_ms: 1500",
    )]);
    let (code, stdout, _) = project.run(&["gates", "run", "all", "--jobs", "2"]);
    assert_eq!(code, 1, "{stdout}");
    let run = &project.runs()[0];
    let trials = trials(run);
    assert_eq!(trials.len(), 12);
    for trial in &trials {
        let (verdict, part) = match trial["case"].as_str().unwrap() {
            "pass" => ("pass", "as asked"),
            "fail" => ("fail", "expected nothing, found this probe"),
            "measure" => ("measured", "a number"),
            "panic" => ("error", "the trial panicked: panicked at"),
            "abort" => ("error", "the worker died: it aborted"),
            "hang" => ("error", "no result within 1500 ms"),
            other => panic!("{other}"),
        };
        assert_eq!(trial["verdict"], verdict, "{trial}");
        assert!(trial["message"].as_str().unwrap().contains(part), "{trial}");
    }
}

#[test]
fn trials_of_a_group_share_one_worker() {
    let project =
        Project::new(&[("probe", "behaviour: [first]\nrepeat: 6\nwait_ms: 20\ngrouped: true")]);
    project.run(&["gates", "run", "all", "--jobs", "3"]);
    let trials = trials(&project.runs()[0]);
    assert_eq!(trials.iter().filter(|t| t["verdict"] == "pass").count(), 1);
}

#[test]
fn a_killed_run_loses_nothing_and_repeats_nothing() {
    let project = Project::new(&[("probe", "behaviour: [pass]\nrepeat: 30\nwait_ms: 60")]);
    let mut child = project
        .assay(&["gates", "run", "all", "--jobs", "2", "-q"])
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let partial = wait_for_lines(&project.path().join("results"), 6);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(partial.to_string_lossy().ends_with(".partial"));
    let file = partial.join("trials.jsonl");
    let before = std::fs::read_to_string(&file).unwrap();
    assert!(before.lines().count() < 30, "killed too late to show anything");
    // As if the kill had come in the middle of a write.
    std::fs::write(&file, format!("{before}{{\"name\":\"probe/cpu/pa")).unwrap();

    let id = partial.file_name().unwrap().to_str().unwrap().trim_end_matches(".partial").to_owned();
    let (code, stdout, stderr) = project.run(&["gates", "run", "all", "--resume", &id]);
    assert_eq!(code, 0, "{stdout}{stderr}");
    let done = project.path().join("results").join(&id);
    let after = std::fs::read_to_string(done.join("trials.jsonl")).unwrap();
    assert!(after.starts_with(&before), "finished lines are kept as they are");
    let all = names(&trials(&done));
    let mut unique = all.clone();
    unique.dedup();
    assert_eq!((all.len(), unique.len()), (30, 30), "each trial once");
    assert!(!partial.exists());
}

#[test]
fn resuming_retries_errors_and_never_failures() {
    let project = Project::new(&[("probe", "behaviour: [pass, fail, panic]")]);
    assert_eq!(project.run(&["gates", "run", "all"]).0, 1);
    let run = project.runs()[0].clone();
    let id = run.file_name().unwrap().to_str().unwrap().to_owned();
    assert_eq!(project.run(&["gates", "run", "all", "--resume", &id]).0, 1);
    let lines: Vec<(String, u64)> = trials(&run)
        .iter()
        .map(|t| (t["case"].as_str().unwrap().to_owned(), t["attempt"].as_u64().unwrap()))
        .collect();
    let of =
        |case: &str| lines.iter().filter(|(c, _)| c == case).map(|(_, a)| *a).collect::<Vec<_>>();
    assert_eq!((of("pass"), of("fail"), of("panic")), (vec![1], vec![1], vec![1, 2]));
}

#[test]
fn a_changed_record_build_or_machine_is_refused() {
    let project = Project::new(&[("probe", "behaviour: [pass]\nrepeat: 3")]);
    assert_eq!(project.run(&["gates", "run", "all"]).0, 0);
    let run = project.runs()[0].clone();
    let resume = |expected: &str| {
        let (code, _, stderr) =
            project.run(&["gates", "run", "all", "--resume", run.to_str().unwrap()]);
        assert!(code != 0 && stderr.contains(expected), "{code} {stderr}");
    };
    let edit = |file: &str, from: &str, to: &str| {
        let path = run.join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        let edited = text.replacen(from, to, 1);
        assert_ne!(edited, text);
        std::fs::write(&path, edited).unwrap();
        text
    };
    let whole = edit("trials.jsonl", "\"as asked\"", "\"as told\"");
    resume("trials.jsonl:2: the line does not continue the line before it");
    std::fs::write(run.join("trials.jsonl"), whole).unwrap();
    let whole = edit("run.json", "\"digest\": \"", "\"digest\": \"0");
    resume("it was made by another build");
    std::fs::write(run.join("run.json"), whole).unwrap();
    let whole = edit("run.json", "\"cpu\": \"", "\"cpu\": \"Other ");
    resume("it was made on another machine");
    std::fs::write(run.join("run.json"), whole).unwrap();
    edit("run.json", "\"schema_version\": 1", "\"schema_version\": 999");
    resume("was written by a newer version of assay (record version 999");
}

#[test]
fn parts_cover_everything_once() {
    let project = Project::new(&[("probe", "behaviour: [pass]\nrepeat: 20")]);
    let mut all = Vec::new();
    for part in ["hash:1/2", "hash:2/2"] {
        assert_eq!(project.run(&["gates", "run", "all", "--partition", part, "--out", part]).0, 0);
        let run = std::fs::read_dir(project.path().join(part)).unwrap().next().unwrap();
        all.extend(trials(&run.unwrap().path()));
    }
    let all = names(&all);
    let mut unique = all.clone();
    unique.dedup();
    assert_eq!((all.len(), unique.len()), (20, 20));
}

fn only_run(folder: &Path) -> std::path::PathBuf {
    let mut runs = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path());
    let run = runs.next().unwrap();
    assert!(runs.next().is_none(), "one run in {}", folder.display());
    run
}

#[test]
fn parts_are_merged_into_the_whole_and_a_lost_part_is_a_failure() {
    let project = Project::new(&[("probe", "behaviour: [pass, measure]\nrepeat: 12")]);
    for part in ["hash:1/3", "hash:2/3", "hash:3/3"] {
        project.run(&["gates", "run", "all", "--partition", part, "--out", &part[5..6]]);
    }
    let part = |n: &str| only_run(&project.path().join(n)).display().to_string();
    let (one, two, three) = (part("1"), part("2"), part("3"));
    let files = ["--junit", "j.xml", "--markdown", "m.md"];
    let merge = |runs: &[&str]| {
        let mut arguments = vec!["report", "merge"];
        arguments.extend(runs.iter().chain(&files));
        project.run(&arguments)
    };
    let (code, stdout, stderr) = merge(&[&one, &two, &three]);
    assert_eq!(code, 0, "{stdout}{stderr}");
    assert!(stdout.contains("12 passed, 12 measured"), "{stdout}");
    let whole = only_run(&project.path().join("results"));
    let all = names(&trials(&whole));
    let mut unique = all.clone();
    unique.dedup();
    assert_eq!((all.len(), unique.len()), (24, 24));
    assert!(whole.join("report.html").is_file());
    let junit = std::fs::read_to_string(project.path().join("j.xml")).unwrap();
    assert!(junit.contains("tests=\"24\""), "{junit}");
    // The result is a run like any other: it loads, and compares.
    let whole = whole.display().to_string();
    let (code, stdout, stderr) = project.run(&["report", "compare", &whole, &whole]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("same: 24 trials"), "{stdout}");

    let (code, stdout, _) = merge(&[&one, &three]);
    assert_eq!(code, 1, "{stdout}");
    let told = stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(told.contains("the trials of part hash:2/3: no such run given"), "{stdout}");
    let (code, _, stderr) = merge(&[&one, &one]);
    assert_eq!(code, 64);
    assert!(stderr.contains("the same run is given twice"), "{stderr}");
    let (code, _, stderr) = merge(&[&one, "nowhere"]);
    assert_eq!(code, 74);
    assert!(stderr.contains("cannot read nowhere/run.json"), "{stderr}");
}

#[test]
fn a_merged_run_keeps_the_gravest_verdict_and_refuses_what_does_not_belong_together() {
    let project = Project::new(&[("probe", "behaviour: [first]\nrepeat: 2\ngrouped: true")]);
    let run = |out: &str, more: &[&str]| {
        let mut arguments = vec!["gates", "run", "probe", "--jobs", "1", "--out", out];
        arguments.extend(more);
        project.run(&arguments);
        only_run(&project.path().join(out)).display().to_string()
    };
    let (a, b) = (run("a", &[]), run("b", &["--shuffle", "1"]));
    let (code, stdout, stderr) = project.run(&["report", "merge", &a, &b]);
    assert_eq!(code, 1, "{stdout}{stderr}");
    assert!(stderr.contains("2 trials executed by more than one run"), "{stderr}");
    let (set, other) = (run("c", &["--set", "repeat=3"]), run("d", &["--long"]));
    let refused = |x: &str, y: &str, reason: &str| {
        let (code, _, stderr) = project.run(&["report", "merge", x, y]);
        assert_eq!(code, 64, "{stderr}");
        let told = stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(told.contains(reason), "{stderr}");
    };
    refused(&a, &set, "made with different --set values");
    refused(&a, &other, "one ran without --long, one with");
    project.write("probe", "behaviour: [pass]\nrepeat: 2");
    refused(&a, &run("e", &[]), "the file of gate `probe` differs");
    let changed = format!("{b}/run.json");
    let text = std::fs::read_to_string(&changed).unwrap();
    std::fs::write(&changed, text.replacen("\"digest\": \"", "\"digest\": \"0", 1)).unwrap();
    refused(&a, &b, "made by different builds");
}

#[test]
fn a_killed_part_resumes_as_that_part() {
    let project = Project::new(&[("probe", "behaviour: [pass]\nrepeat: 40\nwait_ms: 60")]);
    let part = ["gates", "run", "all", "--partition", "hash:1/2", "--jobs", "1", "-q"];
    let mut child = project.assay(&part).stdout(std::process::Stdio::null()).spawn().unwrap();
    let partial = wait_for_lines(&project.path().join("results"), 3);
    child.kill().unwrap();
    child.wait().unwrap();
    let id = partial.file_name().unwrap().to_str().unwrap().trim_end_matches(".partial").to_owned();
    // Another part of the same gates is another run.
    let whole = ["gates", "run", "all", "--resume", &id];
    let (code, _, stderr) = project.run(&whole);
    assert_eq!(code, 64, "{stderr}");
    assert!(stderr.contains("it ran part hash:1/2, this is the whole"), "{stderr}");
    let (code, stdout, stderr) = project.run(&[&part[..], &["--resume", &id]].concat());
    assert_eq!(code, 0, "{stdout}{stderr}");
    let done = project.path().join("results").join(&id);
    let all = names(&trials(&done));
    let mut unique = all.clone();
    unique.dedup();
    assert_eq!(all.len(), unique.len(), "each trial once");
    assert!((10..30).contains(&all.len()), "{} of 40 trials are half", all.len());
}

#[test]
fn fail_fast_stops_and_what_did_not_run_can_be_resumed() {
    let project = Project::new(&[("probe", "behaviour: [fail, pass]\nrepeat: 5\nwait_ms: 20")]);
    let (code, stdout, stderr) =
        project.run(&["gates", "run", "all", "--fail-fast", "--jobs", "1"]);
    assert_eq!(code, 1, "{stdout}");
    assert!(
        stderr.contains("9 trials not run; continue with: assay gates run all --resume"),
        "{stderr}"
    );
    assert!(project.runs()[0].to_string_lossy().ends_with(".partial"));
}

#[test]
fn junit_and_markdown_name_every_failure() {
    let project = Project::new(&[("probe", "behaviour: [pass, fail, panic]")]);
    project.run(&["gates", "run", "all", "--junit", "j.xml", "--markdown", "m.md"]);
    let junit = std::fs::read_to_string(project.path().join("j.xml")).unwrap();
    assert!(junit.contains("tests=\"3\" failures=\"1\" errors=\"1\" skipped=\"0\""), "{junit}");
    assert_eq!(junit.matches("<testcase").count(), 3);
    assert!(junit.contains("<failure message=\"expected nothing, found this probe\">"), "{junit}");
    let markdown = std::fs::read_to_string(project.path().join("m.md")).unwrap();
    assert!(markdown.contains("- **probe/cpu/fail/n=0** (fail): expected nothing"), "{markdown}");
}

/// Kills `gates run` with these arguments once some records are there; the `.partial` folder.
fn killed(project: &Project, out: &str, arguments: &[&str]) -> std::path::PathBuf {
    let arguments = [&["gates", "run"], arguments, &["--jobs", "1", "-q", "--out", out]].concat();
    let mut child = project.assay(&arguments).stdout(std::process::Stdio::null()).spawn().unwrap();
    let partial = wait_for_lines(&project.path().join(out), 3);
    child.kill().unwrap();
    child.wait().unwrap();
    partial
}

const SLOW: &str = "behaviour: [pass]\nrepeat: 30\nwait_ms: 60";

/// A stopped run of two gates is no complete run of one of them.
#[test]
fn a_run_is_resumed_with_its_own_selection_values_and_gates() {
    let project = Project::new(&[("one", SLOW), ("two", SLOW)]);
    let partial = killed(&project, "r", &["one", "two"]);
    let run = partial.display().to_string();
    let resume = |arguments: &[&str]| {
        let (code, stdout, stderr) =
            project.run(&[&["gates", "run"], arguments, &["-q", "--resume", &run]].concat());
        (code, stdout + &stderr)
    };
    for (arguments, reason) in [
        (&["one"][..], "it selected `one two`, this selects `one`; name the same gates"),
        (&["two", "one"], "it selected `one two`, this selects `two one`"),
        (&["one", "two", "--set", "repeat=31"], "it was made with other values of --set"),
    ] {
        let (code, told) = resume(arguments);
        assert!(code == 64 && told.contains(reason), "{arguments:?}: {code} {told}");
    }
    // A trial that the gate lacks by now would be counted in place of one that it has.
    project.write("one", "behaviour: [measure]\nrepeat: 30");
    let (code, told) = resume(&["one", "two"]);
    assert!(code == 64 && told.contains("its gates have changed"), "{code} {told}");
    assert!(told.contains("they have no trial `one/cpu/pass/n="), "{told}");
    project.write("one", SLOW);
    // Without a word about gates it goes on as what it was.
    let (code, told) = resume(&[]);
    assert_eq!(code, 0, "{told}");
    let done = project.path().join("r").join(partial.file_stem().unwrap());
    assert_eq!(trials(&done).len(), 60);
    let record = std::fs::read_to_string(done.join("run.json")).unwrap();
    assert!(!record.contains("\"pending\""), "nothing is missing from a complete run");
    let run = done.display().to_string();
    let again = ["gates", "run", "one", "two", "--resume", &run];
    let (code, _, stderr) = project.run(&again);
    assert!(code == 64 && stderr.contains("it is complete"), "{code} {stderr}");
}

#[test]
fn what_stopped_parts_did_not_run_is_named_everywhere() {
    let project = Project::new(&[("probe", SLOW)]);
    let parts = ["hash:1/2", "hash:2/2"].map(|part| {
        killed(&project, &part[5..6], &["all", "--partition", part]).display().to_string()
    });
    let files = ["--junit", "j.xml", "--markdown", "m.md", "--json"];
    let merge = [&["report", "merge", &parts[0], &parts[1]], &files[..]].concat();
    let (code, stdout, stderr) = project.run(&merge);
    assert_eq!(code, 1, "{stdout}{stderr}");
    let summary: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    let missing = summary["missing"].as_array().unwrap().len();
    assert!((1..28).contains(&missing), "{missing}");
    assert_eq!(summary["missing_trials"].as_u64(), Some(missing as u64));
    let read = |name: &str| std::fs::read_to_string(project.path().join(name)).unwrap();
    let junit = read("j.xml");
    assert_eq!(junit.matches("<error message=\"planned and not run\"/>").count(), missing);
    assert!(
        junit.contains(&format!("tests=\"30\" failures=\"0\" errors=\"{missing}\"")),
        "{junit}"
    );
    assert!(read("m.md").contains(&format!(", {missing} planned and not run on")));
    // What one part lost and the whole executed is not lost.
    let (_, stdout, _) = project.run(&merge[..4]);
    assert!(stdout.contains(&format!("{missing} planned and not run in")), "{stdout}");
    assert_eq!(project.run(&["gates", "run", "all", "-q", "--out", "whole"]).0, 0);
    let whole = only_run(&project.path().join("whole")).display().to_string();
    let (code, stdout, _) = project.run(&["report", "merge", "-q", &parts[0], &parts[1], &whole]);
    assert!(code == 0 && stdout.starts_with("passed: 30 passed in "), "{code} {stdout}");
    // A run that was put together is not one to go on with.
    let merged = project.runs().pop().unwrap().display().to_string();
    let (code, _, stderr) = project.run(&["gates", "run", "all", "--resume", &merged]);
    assert!(code == 64 && stderr.contains("it was merged from "), "{code} {stderr}");
}

#[test]
fn a_part_without_trials_is_a_part() {
    let project = Project::new(&[("probe", "behaviour: [pass]")]);
    let mut words = Vec::new();
    for part in ["1", "2"] {
        let hash = format!("hash:{part}/2");
        let run = ["gates", "run", "all", "-q", "--partition", &hash, "--out", part];
        let (code, stdout, stderr) = project.run(&run);
        assert_eq!(code, 0, "{stdout}{stderr}");
        words.push(stdout.split(" in ").next().unwrap().to_owned());
    }
    words.sort();
    assert_eq!(words, ["nothing ran: 0 passed", "passed: 1 passed"]);
    let part = |n: &str| only_run(&project.path().join(n)).display().to_string();
    let (code, stdout, stderr) = project.run(&["report", "merge", "-q", &part("1"), &part("2")]);
    assert!(code == 0 && stdout.starts_with("passed: 1 passed in "), "{stdout}{stderr}");
    // Where nothing is selected, a part of it is a mistake.
    let (code, _, _) = project.run(&["gates", "run", "probe/gpu/*", "--partition", "hash:1/2"]);
    assert_eq!(code, 64);
}

#[test]
fn a_run_that_only_skips_does_not_say_that_it_passed() {
    let project = Project::new(&[("probe", "behaviour: [pass]\nrequires: { set: [repeat] }")]);
    let (code, stdout, stderr) = project.run(&["gates", "run", "all", "--markdown", "m.md"]);
    assert_eq!(code, 0, "{stdout}{stderr}");
    assert!(stdout.contains("nothing ran: 0 passed, 1 skipped in"), "{stdout}");
    let markdown = std::fs::read_to_string(project.path().join("m.md")).unwrap();
    assert!(markdown.starts_with("### Assay gates: nothing ran\n"), "{markdown}");
    let page = std::fs::read_to_string(project.runs()[0].join("report.html")).unwrap();
    assert!(page.contains("Nothing ran, 1 trial skipped"), "{page}");
    assert!(page.contains("verdict skip"), "{page}");
}

/// The command that a stopped run prints goes through a shell.
#[cfg(unix)]
#[test]
fn the_command_to_continue_continues() {
    let keys = "behaviour: [fail, pass]\nrepeat: 5\nwait_ms: 20";
    let project = Project::new(&[("probe", keys)]);
    let odd = "it's here";
    let (code, _, stderr) = project.run(&[
        "gates",
        "run",
        "prob*",
        "--fail-fast",
        "--jobs",
        "1",
        "--long",
        "--partition",
        "hash:1/1",
        "--set",
        "repeat=4",
        "--out",
        odd,
    ]);
    assert_eq!(code, 1, "{stderr}");
    let hint = stderr.split("continue with: assay ").nth(1).unwrap().lines().next().unwrap();
    assert!(hint.starts_with("gates run 'prob*' --resume "), "{hint}");
    let mut shell = std::process::Command::new("bash");
    let script = format!("exec \"$0\" -q {hint}");
    shell.current_dir(project.path()).args(["-c", &script, env!("CARGO_BIN_EXE_assay")]);
    let (code, stdout, stderr) = crate::support::ended(shell.output().unwrap());
    assert_eq!(code, 1, "{stdout}{stderr}");
    assert!(stdout.contains("failed: 4 passed, 4 failed in"), "{stdout}{stderr}");
    let run = only_run(&project.path().join(odd));
    assert!(run.extension().is_none(), "{} is complete", run.display());
}
