//! The adapter for transformers, over modules that stand in for the foreign engine: what is tested is
//! the adapter's part of the protocol, and what a run says of each way in which it can end.

use crate::{scenario, settled, undisturbed};
use assay::harness::report::write_report;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// As much of torch as the adapter touches.
const TORCH: &str = r#"
import contextlib
__version__ = "0.0 (a stand-in)"
float32, bfloat16 = "float32", "bfloat16"
threads = 1
def set_num_threads(n):
    global threads
    threads = n
def get_num_threads():
    return threads
def inference_mode():
    return contextlib.nullcontext()
def tensor(rows):
    return rows
"#;

/// A model whose next id is the sum of what it has seen, and that goes wrong as BEHAVIOUR says.
const TRANSFORMERS: &str = r#"
import os, pathlib, time, types
__version__ = "0.0 (a stand-in)"
behaviour = os.environ["BEHAVIOUR"]
class Row:
    def __init__(self, id):
        self.id = id
    def __getitem__(self, at):
        assert at == (0, -1)
        return self
    def argmax(self):
        return self.id
class Cache:
    def __init__(self):
        self.ids = []
    def crop(self, rows):
        del self.ids[rows:]
class Model:
    prompts = 0
    def eval(self):
        return self
    def __call__(self, ids, past_key_values=None, use_cache=False, logits_to_keep=0):
        time.sleep(0.002)
        assert use_cache and len(ids) == 1
        if len(ids[0]) > 1:
            self.prompts += 1
        if behaviour == "raises" and self.prompts > 3:
            raise MemoryError("no room for the cache")
        if behaviour == "dies" and self.prompts > 3:
            os._exit(3)
        drift = self.prompts if behaviour == "drifts" else 0
        cache = past_key_values or Cache()
        cache.ids += ids[0]
        logits = Row((sum(cache.ids) + drift) % 512)
        return types.SimpleNamespace(logits=logits, past_key_values=cache)
class AutoModelForCausalLM:
    @staticmethod
    def from_pretrained(folder, dtype):
        if not (pathlib.Path(folder) / "config.json").is_file():
            raise OSError(f"{folder} holds no config.json")
        print("loading: this must not reach the protocol")
        return Model()
"#;

/// Whether there is a Python that the adapter runs on. Without one the test is named on stderr, past
/// the capture of what passed: most of it is not run.
fn has_python(test: &str) -> bool {
    let found =
        Command::new("python3").args(["-c", "import hashlib; hashlib.file_digest"]).output();
    let found = found.is_ok_and(|output| output.status.success());
    if !found {
        // Nobody is left to tell when stderr is closed.
        _ = writeln!(std::io::stderr(), "not run: adapter::{test}: needs python3, 3.11 or later");
    }
    found
}

#[test]
fn every_way_in_which_the_transformers_adapter_ends_is_told() {
    let modules = tempfile::tempdir().unwrap();
    std::fs::write(modules.path().join("torch.py"), TORCH).unwrap();
    std::fs::write(modules.path().join("transformers.py"), TRANSFORMERS).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let adapter = root.join("scripts/peers/transformers_peer.py").display().to_string();
    let llama = root.join("tests/fixtures/llama").display().to_string();
    let path = format!("PYTHONPATH={}", modules.path().display());
    let arm = |name: &str, behaviour: &str, more: &[&str]| {
        let behaviour = format!("BEHAVIOUR={behaviour}");
        let start = ["env", &path, &behaviour, "python3"];
        let words = [&start[..], more].concat();
        format!("  {name}: {{ threads: 1, command: {} }}\n", serde_json::to_string(&words).unwrap())
    };
    let run = [adapter.as_str(), "--model", llama.as_str()];
    let nowhere = [adapter.as_str(), "--model", "no/such/folder"];
    let arms = [
        "candidate: { policy: reference, threads: 1 }\n".to_owned(),
        arm("honest", "none", &run),
        // No site packages and no PYTHONPATH: a Python without torch.
        arm("bare", "none", &[&["-I", "-S"][..], &run].concat()),
        arm("nowhere", "none", &nowhere),
        arm("refuses", "none", &[&run[..], &["--dtype", "int8"]].concat()),
        arm("raises", "raises", &run),
        arm("dies", "dies", &run),
        arm("drifts", "drifts", &run),
    ];
    let out = tempfile::tempdir().unwrap();
    let file = scenario(&[("candidate: { policy: reference, threads: 1 }\n", &arms.concat())]);
    let (folder, run) = undisturbed(|| settled(&file, out.path()));
    assert!(write_report(&folder).unwrap().is_file());
    assert!(run.verdict().comparisons.iter().all(|c| c.arm == "candidate"), "peers decide nothing");
    if !has_python("every_way_in_which_the_transformers_adapter_ends_is_told") {
        // Then none can be loaded, which ends nothing but their own measurement.
        assert!(run.run.peers.values().all(|peer| peer.problem.is_some()), "{:?}", run.run.peers);
        return;
    }
    let problem = |arm: &str| run.run.peers[arm].problem.as_deref().unwrap_or("none");
    assert_eq!(problem("bare"), "it failed: ModuleNotFoundError: No module named 'torch'");
    assert_eq!(problem("nowhere"), "it failed: OSError: no/such/folder holds no config.json");
    assert!(
        ["it ended without a reply (exit status: 2)", "it ended early: "]
            .iter()
            .any(|told| problem("refuses").starts_with(told)),
        "{}",
        problem("refuses")
    );
    // Of itself, the stand-in says what the adapter reports of any engine.
    let honest = &run.run.peers["honest"];
    assert_eq!(
        honest.name.as_deref(),
        Some("transformers 0.0 (a stand-in), torch 0.0 (a stand-in)")
    );
    assert_eq!(honest.weights_from.as_deref().map(str::len), Some(64));
    assert_eq!(honest.threads, Some(1));
    assert_eq!(problem("raises"), "it failed: MemoryError: no room for the cache");
    assert!(
        ["it ended without a reply (exit status: 3)", "it ended early: "]
            .iter()
            .any(|told| problem("dies").starts_with(told)),
        "{}",
        problem("dies")
    );
    assert_eq!(problem("drifts"), "a timed forward gave another output than its untimed one");
}

/// With `prefill: once` a prompt runs once, and every forward behind it gives the same.
#[test]
fn a_prompt_that_may_be_kept_is_not_run_again() {
    if !has_python("a_prompt_that_may_be_kept_is_not_run_again") {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/peers/transformers_peer.py");
        let adapter = std::fs::read_to_string(path).unwrap();
        assert!(adapter.contains(r#"once = ask.get("prefill") == "once""#));
        return;
    }
    let modules = tempfile::tempdir().unwrap();
    std::fs::write(modules.path().join("torch.py"), TORCH).unwrap();
    std::fs::write(modules.path().join("transformers.py"), TRANSFORMERS).unwrap();
    let answers = |prefill: &str| {
        let mut peer = Command::new("python3")
            .args(["scripts/peers/transformers_peer.py", "--model", "tests/fixtures/llama"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .envs([("PYTHONPATH", modules.path().to_str().unwrap()), ("BEHAVIOUR", "raises")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let forward = format!(r#"{{"ask":"forward","prompt":[5,7,9],"decode_tokens":3{prefill}}}"#);
        let load = r#"{"ask":"load","protocol":1,"threads":1}"#;
        let asked = format!("{load}\n{}", format!("{forward}\n").repeat(5));
        peer.stdin.take().unwrap().write_all(asked.as_bytes()).unwrap();
        let output = peer.wait_with_output().unwrap();
        let lines = String::from_utf8(output.stdout).unwrap();
        let replies = lines.lines().skip(1).map(|line| serde_json::from_str(line).unwrap());
        replies.collect::<Vec<serde_json::Value>>()
    };
    // The stand-in has room for three prompts.
    let timed = answers("");
    assert_eq!(timed.len(), 4);
    assert_eq!(timed[3]["reply"], "failed", "{timed:?}");
    let kept = answers(r#","prefill":"once""#);
    assert_eq!(kept.len(), 5, "{kept:?}");
    assert!(kept.iter().all(|reply| reply["tokens"] == timed[0]["tokens"]), "{kept:?}");
}
