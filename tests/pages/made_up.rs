//! The pages to look at: of small runs of the binary, with hostile strings planted in their records.

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a gate's name, a claim or a model's output might hold.
pub(crate) const HOSTILE: &str = "</title><img src=x onerror=\"window.planted = 1\">\
                                  <script>window.planted = 1</script>\u{202e}`*|";

/// Names of arms, short enough for columns that are made for names.
const HOSTILE_ARM: &str = "<i onclick=x>";
const HOSTILE_PEER: &str = "<b onclick=x>";

/// A folder with a small project and everything rendered from it.
pub(crate) struct Made {
    folder: tempfile::TempDir,
}

impl Made {
    /// Runs gates, plants hostile strings, and renders every kind of page.
    pub(crate) fn new() -> Made {
        let made = Made { folder: tempfile::tempdir().expect("a temporary folder") };
        made.gates();
        made.decisions();
        made.comparisons();
        made.survey();
        made.error_rates();
        for page in [
            "reports/hostile-gates/report.html",
            "reports/hostile-decision/report.html",
            "compare-hostile.html",
            "survey/report.html",
            "error-rates/report.html",
        ] {
            let text = std::fs::read_to_string(made.page(page)).expect("a page");
            let planted = "&lt;script&gt;window.planted = 1&lt;/script&gt;";
            assert!(text.contains(planted), "nothing hostile is on {page}");
        }
        made
    }

    /// A page, by its path below the folder.
    pub(crate) fn page(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Runs `assay`; codes above 4 mean that the test itself is wrong.
    fn assay(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_assay"));
        let output = command.current_dir(self.path()).args(arguments).output().expect("assay runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code().is_some_and(|c| c <= 4), "{arguments:?}: {stderr}");
        String::from_utf8(output.stdout).expect("text")
    }

    fn gates(&self) {
        std::fs::create_dir(self.path().join("gates")).expect("a folder");
        for (name, keys) in [
            ("probe", "behaviour: [pass, fail, panic, measure]\nrepeat: 24"),
            ("absent", "behaviour: [pass]\nrequires: { set: [repeat] }"),
            ("steady", "behaviour: [pass]\nrepeat: 6"),
        ] {
            let text = format!(
                "gate: {name}\nclaim: The probe does what it is told, `{name}` or not.\n\
                 track: resource\nkind: runner_probe\n{keys}\n"
            );
            std::fs::write(self.path().join(format!("gates/{name}.yaml")), text).expect("written");
        }
        for part in ["hash:1/2", "hash:2/2"] {
            self.assay(&["gates", "run", "all", "-q", "--partition", part, "--out", "parts"]);
        }
        let parts: Vec<String> = std::fs::read_dir(self.path().join("parts"))
            .expect("parts")
            .map(|e| e.expect("an entry").path().display().to_string())
            .collect();
        self.assay(&["report", "merge", &parts[0], &parts[1], "--out", "merged", "-q"]);
        let merged = only(&self.path().join("merged"));
        self.render(&merged, "reports/gates");
        let mut record = self.record("reports/gates");
        for trial in list(&mut record["trials"]) {
            if trial["verdict"] == "fail" || trial["verdict"] == "skip" {
                trial["message"] = json!(HOSTILE);
                trial["evidence"] = json!({ HOSTILE: HOSTILE, "generated": [HOSTILE] });
            }
            if trial["gate"] == "probe" {
                trial["gate"] = json!(HOSTILE);
                trial["axes"][HOSTILE] = json!(HOSTILE);
                trial["name"] =
                    json!(trial["name"].as_str().unwrap_or_default().replace("probe", HOSTILE));
            }
        }
        for gate in list(&mut record["run"]["gates"]) {
            gate["claim"] = json!(HOSTILE);
            if gate["gate"] == "probe" {
                gate["gate"] = json!(HOSTILE);
            }
        }
        record["run"]["machine"]["cpu"] = json!(HOSTILE);
        record["run"]["options"]["selection"] = json!([HOSTILE]);
        self.plant("reports/hostile-gates", &record);
    }

    fn decisions(&self) {
        self.plant("reports/decision", &self.decision("Is the candidate `faster`?", 1.4));
        self.plant("reports/decline", &self.decision("Is the candidate faster?", 1.1));
        let mut record = self.decision(HOSTILE, 1.25);
        record["run"]["plan"]["scenario"] = json!(HOSTILE);
        record["run"]["scenario"]["text"] = json!(HOSTILE);
        record["run"]["scenario"]["model"] = json!(HOSTILE);
        record["run"]["refusals"] = json!([HOSTILE]);
        hostile_surroundings(&mut record);
        hostile_provenance(&mut record["run"]);
        self.plant("reports/hostile-decision", &record);
        record["run"]["plan"]["scenario"] = json!(format!("other {HOSTILE}"));
        record["run"]["scenario"]["set"] = json!({ HOSTILE: HOSTILE });
        record["run"]["build"]["compiler"] = json!("another");
        self.write("other-decision", &record);
    }

    /// A survey of planted defects that the gates noticed, and that they did not.
    fn survey(&self) {
        let mut record = committed("mutants");
        let mutations = list(&mut record["mutations"]);
        mutations.truncate(8);
        for (at, mutation) in mutations.iter_mut().enumerate() {
            for key in ["switch", "region", "defect"] {
                mutation[key] = json!(HOSTILE);
            }
            mutation["killed_by"] = match at % 2 {
                0 => json!({ "trial": HOSTILE, "verdict": "fail", "message": HOSTILE }),
                _ => Value::Null,
            };
        }
        record["run"]["command"] = json!([HOSTILE]);
        hostile_provenance(&mut record["run"]);
        self.plant_alone("survey", &record);
    }

    fn error_rates(&self) {
        let mut record = committed("error-rates-cpu");
        // As few as still make rates: this is not about them.
        record["run"]["spec"]["pseudo_runs"] = json!(100);
        for key in ["path", "model", "question", "text"] {
            record["run"]["scenario"][key] = json!(HOSTILE);
        }
        record["run"]["scenario"]["set"] = json!({ HOSTILE: HOSTILE });
        record["run"]["plans"]["real"]["scenario"] = json!(HOSTILE);
        hostile_provenance(&mut record["run"]);
        self.plant_alone("error-rates", &record);
    }

    fn comparisons(&self) {
        let mut better = self.record("reports/gates");
        for trial in list(&mut better["trials"]).iter_mut().step_by(3) {
            trial["verdict"] = json!(if trial["verdict"] == "pass" { "fail" } else { "pass" });
            trial["message"] = json!(HOSTILE);
            trial["evidence"] = json!({ "rms": 0.5 });
        }
        better["run"]["build"]["git_revision"] = json!(HOSTILE);
        self.plant("other", &better);
        for (name, left, right) in [
            ("compare-gates.html", "reports/gates", "other"),
            ("compare-decisions.html", "reports/decision", "reports/decline"),
            ("compare-hostile.html", "reports/hostile-decision", "other-decision"),
        ] {
            self.assay(&["report", "compare", left, right, "--out", name, "-q"]);
        }
    }

    fn render(&self, run: &Path, out: &str) {
        self.assay(&["report", "render", &run.display().to_string(), "--out", out, "-q"]);
    }

    fn record(&self, report: &str) -> Value {
        let path = self.path().join(report).join("record.json");
        let text = std::fs::read_to_string(path).expect("a record");
        serde_json::from_str(&text).expect("a record is JSON")
    }

    fn write(&self, report: &str, record: &Value) {
        let folder = self.path().join(report);
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("record.json"), record.to_string()).expect("written");
    }

    /// Writes a record and renders its page.
    fn plant(&self, report: &str, record: &Value) {
        self.write(report, record);
        self.render(&self.path().join(report), report);
    }

    /// The same without an index page, which would render every record again.
    fn plant_alone(&self, report: &str, record: &Value) {
        self.write(report, record);
        self.assay(&["report", "render", report, "-q"]);
    }

    fn manifest(&self, policy: &str) -> Value {
        let model = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/llama");
        let text =
            self.assay(&["manifest", "show", "--model", model, "--policy", policy, "--json"]);
        serde_json::from_str(&text).expect("a manifest is JSON")
    }

    /// A decision over a sweep of two prompts; the candidate is `ratio` times as fast.
    fn decision(&self, question: &str, ratio: f64) -> Value {
        let arm = |policy: &str| {
            json!({ "policy": policy, "threads": 2, "manifest": self.manifest(policy),
                    "bytes_per_token": [1_000_000, 1_000_000, 1_000_000] })
        };
        let point = |prompt: u32| json!({ "prompt_tokens": prompt, "decode_tokens": 8 });
        json!({
            "run": {
                "schema_version": 1, "kind": "scenario_run", "run_id": "20310509t140359z-made-up",
                "command": ["assay"], "started": "2031-05-09T14:03:59Z",
                "finished": "2031-05-09T14:08:11Z",
                "build": { "digest": "0".repeat(64), "version": "0.1.0", "git_revision": "0123456789ab",
                           "git_dirty": false, "compiler": "rustc", "target": "x86_64",
                           "profile": "release", "features": "" },
                "machine": { "cpu": "Made-up processor with a rather long name @ 2.40 GHz",
                             "architecture": "x86_64", "instruction_sets": ["avx2"],
                             "usable_processors": 2, "memory_bytes": 17_179_869_184_u64,
                             "system": null, "kernel": null, "host": null },
                "scenario": { "question": question, "track": "performance",
                              "path": "scenarios/made-up.yaml", "text": "scenario: made-up\n",
                              "spec_digest": "0".repeat(64), "device": "cpu", "model": "synthetic",
                              "set": {}, "differs_in": ["numerical_policy"],
                              "bound": "memory_bandwidth", "error_rates": null,
                              "expected": "admit" },
                "plan": { "scenario": "made-up", "baseline": "baseline",
                          "candidates": ["candidate"], "points": [point(16), point(64), point(512)],
                          "warmup": 1, "looks": { "quads": [20, 40], "quads_per_launch": 5 },
                          "metrics": ["decode_tokens_per_second", "time_to_first_token_ms", "host_bytes"],
                          "rules": [{ "ratio": "decode_tokens_per_second",
                                      "lower_bound_at_least": 1.25 }] },
                "gates": [{ "gate": "probe", "trials": 4, "run_id": "20310509t140101z-0c11" }],
                "arms": { "baseline": arm("f32"), "candidate": arm("reference") },
                "refusals": [], "parts": 1,
            },
            "lines": lines(ratio),
        })
    }
}

/// The record of a committed report.
fn committed(report: &str) -> Value {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("reports").join(report);
    let text = std::fs::read_to_string(folder.join("record.json")).expect("a committed record");
    serde_json::from_str(&text).expect("a record is JSON")
}

/// Plants hostile names of arms in a decision, two live peers, a recorded arm, and quality.
fn hostile_surroundings(record: &mut Value) {
    let renamed = record.to_string().replace("\"candidate\"", &json!(HOSTILE_ARM).to_string());
    *record = serde_json::from_str(&renamed).expect("still JSON");
    let lines = list(&mut record["lines"]);
    let mut of_peer = Vec::new();
    for line in lines.iter().filter(|line| line["line"] == "quad") {
        let mut line = line.clone();
        line["arm"] = json!(HOSTILE_PEER);
        of_peer.push(line);
    }
    lines.extend(of_peer);
    let digest = "0".repeat(64);
    let run = &mut record["run"];
    run["scenario"]["model_digest"] = json!(digest);
    run["plan"]["peers"] = json!([HOSTILE_PEER, "broken"]);
    run["peers"] = json!({
        HOSTILE_PEER: { "command": [HOSTILE], "name": HOSTILE, "model": HOSTILE,
                        "weights_from": digest },
        "broken": { "command": [HOSTILE], "problem": HOSTILE },
    });
    run["beside"] = json!({
        HOSTILE_ARM: { "run_id": HOSTILE, "arm": HOSTILE, "started": "2031-05-09T14:03:59Z",
                       "model": HOSTILE, "cpu": HOSTILE,
                       "values": [{ "metric": "decode_tokens_per_second",
                                    "point": { "prompt_tokens": 16, "decode_tokens": 8 },
                                    "samples": 20, "median": 80.0, "low": 70.0, "high": 90.0 }] },
    });
    run["quality"] = json!({
        "state": "measured", "corpus": HOSTILE, "corpus_sha256": HOSTILE,
        "window_tokens": 256, "scored_tokens": 1020, "baseline_nll_nats": 3.4,
        "arms": { HOSTILE_ARM: { "nll_delta_nats": 0.06, "top1_agreement": 0.75, "logit_rms": 2.4,
                                 "logit_max_abs": 12.6, "kl_mean_nats": 0.17 } },
        "budgets": [{ "metric": "nll_delta_nats", "at_most": 0.05 },
                    { "metric": "top1_agreement", "arm": HOSTILE_ARM, "at_least": 0.5 }],
    });
    for gate in list(&mut run["gates"]) {
        gate["gate"] = json!(HOSTILE);
        gate["run_id"] = json!(HOSTILE);
    }
}

/// Plants hostile strings in what every record says of its machine and its build.
fn hostile_provenance(run: &mut Value) {
    for key in ["cpu", "architecture", "system", "kernel", "host"] {
        run["machine"][key] = json!(HOSTILE);
    }
    run["machine"]["instruction_sets"] = json!([HOSTILE]);
    for key in ["version", "git_revision", "compiler", "target", "profile", "features"] {
        run["build"][key] = json!(HOSTILE);
    }
    run["run_id"] = json!(HOSTILE);
}

/// Eight launches of five quads at each of three points.
fn lines(ratio: f64) -> Vec<Value> {
    let mut lines = Vec::new();
    let mut state = 7_u64;
    let mut noise = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / f64::from(1 << 24)
    };
    for launch in 0..8 {
        let started = json!({ "ids": {}, "tokens": ["t", "t", "t"] });
        lines.push(json!({ "line": "launch", "launch": launch, "start_ms": 900.0,
                           "arms": { "baseline": started, "candidate": started } }));
        for quad in 0..15 {
            let samples: Vec<Value> = [1.0, ratio, ratio, 1.0]
                .iter()
                .map(|speed| {
                    json!({ "prefill_ms": 10.0 + noise(), "tokens": "t",
                            "decode_ms": 100.0 * (1.0 + 0.02 * noise()) / speed })
                })
                .collect();
            lines.push(json!({ "line": "quad", "launch": launch, "point": quad % 3,
                               "arm": "candidate", "samples": samples,
                               "bandwidth_bytes_per_second": [1.0e10, 1.05e10, 1.02e10] }));
        }
        lines.push(json!({ "line": "launch_end", "launch": launch, "throttle_events": null,
                           "host_bytes": { "baseline": 100_000_000, "candidate": 90_000_000 } }));
    }
    lines
}

fn only(folder: &Path) -> PathBuf {
    std::fs::read_dir(folder)
        .expect("a folder")
        .next()
        .expect("one entry")
        .expect("readable")
        .path()
}

fn list(value: &mut Value) -> &mut Vec<Value> {
    value.as_array_mut().expect("a list")
}
