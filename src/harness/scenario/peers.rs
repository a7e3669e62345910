//! Live peers within a run: their failures end their own measurement and nothing else.

use super::foreign::PeerProcess;
use super::loaded_arm::prompt;
use super::process::{ArmProcess, WorkerError};
use super::run::{RunError, Runner, Watch};
use super::{Line, Plan, Sample};
use std::collections::BTreeMap;
use std::path::Path;

/// Whoever executes an arm.
#[derive(Debug)]
pub(super) enum Process {
    Engine(ArmProcess),
    Peer(PeerProcess),
}

impl Process {
    pub(super) fn sample(&mut self, arm: &str, point: usize) -> Result<Sample, WorkerError> {
        match self {
            Process::Engine(process) => process.sample(point),
            Process::Peer(process) => process.sample(point).map_err(|what| WorkerError {
                arm: arm.to_owned(),
                what,
                refused: false,
            }),
        }
    }

    /// The worker of an arm of this engine: whoever else executes one runs whole samples.
    pub(super) fn engine(&mut self, arm: &str) -> Result<&mut ArmProcess, WorkerError> {
        match self {
            Process::Engine(process) => Ok(process),
            Process::Peer(_) => Err(WorkerError {
                arm: arm.to_owned(),
                what: "is another engine, which cannot be advanced step by step".into(),
                refused: false,
            }),
        }
    }

    /// Peak memory, or what was wrong with a peer; the process ends.
    pub(super) fn finish(self) -> Result<Result<Option<u64>, String>, WorkerError> {
        match self {
            Process::Engine(process) => process.finish().map(Ok),
            Process::Peer(process) => Ok(process.finish()),
        }
    }
}

impl Runner<'_> {
    /// Starts a live peer for this launch; `None` once it has failed, which is recorded and ends
    /// nothing but its own measurement.
    pub(super) fn start_peer(
        &mut self,
        arm: &str,
        plan: &Plan,
    ) -> Result<Option<(PeerProcess, Vec<String>)>, RunError> {
        let known = self.content.run.peers.get(arm).cloned().unwrap_or_default();
        if known.problem.is_some() {
            return Ok(None);
        }
        let seed = self.request.file.prompt_seed();
        let prompts =
            plan.points.iter().map(|p| prompt(seed, p.prompt_tokens, self.request.vocab)).collect();
        let folder = self.request.file.path.parent().unwrap_or(Path::new(""));
        let workloads = (plan.points.clone(), prompts);
        let started = PeerProcess::start(
            &known.command,
            folder,
            self.threads(arm),
            workloads,
            self.request.file.prefill(),
            plan.warmup,
        );
        let started = started.and_then(|(process, record, tokens)| {
            let same = known.name.is_none() || known == record;
            let changed = || "what it says of itself changed between launches".to_owned();
            same.then_some((process, record, tokens)).ok_or_else(changed)
        });
        match started {
            Ok((process, record, tokens)) => {
                self.content.run.peers.insert(arm.to_owned(), record);
                self.store.update(&self.content.run)?;
                Ok(Some((process, tokens)))
            }
            Err(problem) => self.peer_failed(arm, problem).map(|()| None),
        }
    }

    pub(super) fn peer_failed(&mut self, arm: &str, problem: String) -> Result<(), RunError> {
        let record = self.content.run.peers.entry(arm.to_owned()).or_default();
        record.problem.get_or_insert(problem);
        Ok(self.store.update(&self.content.run)?)
    }

    /// One quad of every live peer at every workload. Its samples are checked like any other's, and
    /// a quad that does not count is not repeated: nothing is decided by it.
    pub(super) fn peer_quads(
        &mut self,
        plan: &Plan,
        launch: u32,
        processes: &mut BTreeMap<String, Process>,
        watch: &mut dyn Watch,
    ) -> Result<(), RunError> {
        for (point, arm) in plan.peer_series() {
            if watch.stopped() || !processes.contains_key(arm) {
                continue;
            }
            self.tell(watch, &format!("launch {}: measuring {arm}", launch + 1));
            let expected = self.untimed(launch, arm, point);
            let quad = match self.quad(plan, launch, point, arm, processes) {
                Ok(quad) => quad,
                Err(RunError::Worker(error)) if error.arm == arm => {
                    processes.remove(arm);
                    self.peer_failed(arm, error.what)?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            if [1, 2].iter().any(|i| Some(&quad.samples[*i].tokens) != expected.as_ref()) {
                processes.remove(arm);
                let problem = "a timed forward gave another output than its untimed one";
                self.peer_failed(arm, problem.into())?;
            }
            self.append(Line::Quad(quad))?;
        }
        Ok(())
    }

    /// What an arm's untimed run of a launch produced.
    fn untimed(&self, launch: u32, arm: &str, point: usize) -> Option<String> {
        self.content.lines.iter().rev().find_map(|line| match line {
            Line::Launch(l) if l.launch == launch => l.arms.get(arm)?.tokens.get(point).cloned(),
            _ => None,
        })
    }
}
