//! The worker process: reads requests, runs trials, answers.

use super::protocol::{Hello, Reply, Request};
use crate::harness::Cache;
use crate::harness::kind::{Outcome, RunContext};
use crate::harness::spec::GateFile;
use crate::units::build_digest;
use std::collections::BTreeMap;
use std::io::{self, BufRead as _, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, mpsc};

/// Serves requests until stdin ends, then leaves the process, in the middle of a trial if need
/// be: without a runner nobody waits for it.
///
/// # Errors
/// stdout cannot be written.
pub fn serve() -> io::Result<()> {
    let (sender, requests) = mpsc::channel::<String>();
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
        std::process::exit(0);
    });
    let panics = Arc::new(Mutex::new(String::new()));
    let seen = panics.clone();
    std::panic::set_hook(Box::new(move |info| {
        *seen.lock().unwrap_or_else(PoisonError::into_inner) = info.to_string();
    }));
    let mut state = State { gates: BTreeMap::new(), cache: Arc::new(Cache::default()), panics };
    answer(&Hello { build_digest: build_digest().to_string() })?;
    for line in requests {
        let reply = match serde_json::from_str::<Request>(&line) {
            Ok(request) => state.run(request),
            Err(e) => Reply {
                outcome: Outcome::error(format!("request not understood: {e}")),
                spent: true,
            },
        };
        let spent = reply.spent;
        answer(&reply)?;
        if spent {
            break;
        }
    }
    Ok(())
}

fn answer(message: &impl serde::Serialize) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{}", serde_json::to_string(message)?)?;
    stdout.flush()
}

/// What a worker keeps between trials.
struct State {
    gates: BTreeMap<PathBuf, GateFile>,
    cache: Arc<Cache>,
    panics: Arc<Mutex<String>>,
}

impl State {
    fn run(&mut self, request: Request) -> Reply {
        let gate = match self.gate(&request) {
            Ok(gate) => gate,
            Err(message) => return Reply { outcome: Outcome::error(message), spent: false },
        };
        let context = RunContext {
            long: request.long,
            base: crate::harness::plan::base(&request.path),
            root: request.root,
            scratch: request.scratch,
            threads: request.threads,
            cache: self.cache.clone(),
        };
        match catch_unwind(AssertUnwindSafe(|| gate.kind.run(&request.cell, &context))) {
            Ok(outcome) => Reply { outcome, spent: false },
            Err(_) => {
                let text = self.panics.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let outcome = Outcome::error(format!("the trial panicked: {}", one_line(&text)));
                Reply { outcome, spent: true }
            }
        }
    }

    /// The gate file, read once per worker.
    fn gate(&mut self, request: &Request) -> Result<GateFile, String> {
        if let Some(gate) = self.gates.get(&request.path) {
            return Ok(gate.clone());
        }
        let gate = GateFile::read(&request.path, &request.set).map_err(|e| e.to_string())?;
        if gate.digest.to_string() != request.spec_digest {
            return Err("the gate file was changed while the run was going on".to_owned());
        }
        self.gates.insert(request.path.clone(), gate.clone());
        Ok(gate)
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
