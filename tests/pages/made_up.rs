//! The pages to look at: of small runs of the binary, with hostile strings planted in their records.

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a gate's name, a claim or a model's output might hold.
pub(crate) const HOSTILE: &str = "</title><img src=x onerror=\"window.planted = 1\">\
                                  <script>window.planted = 1</script>\u{202e}`*|";

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
        self.plant("reports/hostile-decision", &record);
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

    /// Writes a record and renders its page.
    fn plant(&self, report: &str, record: &Value) {
        let folder = self.path().join(report);
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("record.json"), record.to_string()).expect("written");
        self.render(&folder, report);
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
