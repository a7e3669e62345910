//! The runner's side of a worker process.

use super::Sample;
use super::worker::{Ask, Load, Loaded, Reply};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// How a worker is started: the program and the arguments that make it one.
#[derive(Clone, Debug)]
pub struct WorkerCommand {
    pub program: std::path::PathBuf,
    pub arguments: Vec<String>,
}

/// One arm's process: alive through a launch, blocked on its input between turns.
#[derive(Debug)]
pub(super) struct ArmProcess {
    arm: String,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// A worker did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[error("the worker of arm `{arm}` {what}")]
pub struct WorkerError {
    pub arm: String,
    pub what: String,
    /// Whether it said why it cannot (a model that does not load, a context that is too short),
    /// instead of dying or answering something else.
    pub refused: bool,
}

impl ArmProcess {
    /// Starts a process for an arm.
    pub(super) fn start(arm: &str, command: &WorkerCommand) -> Result<ArmProcess, WorkerError> {
        let failed = |what: String| WorkerError { arm: arm.to_owned(), what, refused: false };
        let mut child = Command::new(&command.program)
            .args(&command.arguments)
            .current_dir(Path::new("."))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| failed(format!("could not be started: {e}")))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(failed("has no pipes".into()));
        };
        Ok(ArmProcess { arm: arm.to_owned(), child, input, output: BufReader::new(output) })
    }

    /// Begins to load and to warm up; [`ArmProcess::loaded`] waits for the end.
    pub(super) fn load(&mut self, load: Load) -> Result<(), WorkerError> {
        self.send(&Ask::Load(load))
    }

    /// The reply to [`ArmProcess::load`].
    pub(super) fn loaded(&mut self) -> Result<Loaded, WorkerError> {
        match self.receive()? {
            Reply::Loaded(loaded) => Ok(*loaded),
            other => Err(self.failed(format!("answered a load with {other:?}"))),
        }
    }

    /// One timed run.
    pub(super) fn sample(&mut self, point: usize) -> Result<Sample, WorkerError> {
        self.sampled(&Ask::Sample { point })
    }

    /// Begins a timed run that advances step by step.
    pub(super) fn open(&mut self, point: usize) -> Result<(), WorkerError> {
        self.done(&Ask::Open { point })
    }

    /// One timed step of an open run.
    pub(super) fn step(&mut self, open: usize) -> Result<(), WorkerError> {
        self.done(&Ask::Step { open })
    }

    /// Ends the run that was opened first.
    pub(super) fn close(&mut self) -> Result<Sample, WorkerError> {
        self.sampled(&Ask::Close {})
    }

    fn sampled(&mut self, ask: &Ask) -> Result<Sample, WorkerError> {
        match self.ask(ask)? {
            Reply::Sampled(sample) => Ok(sample),
            other => Err(self.failed(format!("answered a sample with {other:?}"))),
        }
    }

    fn done(&mut self, ask: &Ask) -> Result<(), WorkerError> {
        match self.ask(ask)? {
            Reply::Done {} => Ok(()),
            other => Err(self.failed(format!("answered a step with {other:?}"))),
        }
    }

    /// Peak memory; the process ends.
    pub(super) fn finish(mut self) -> Result<Option<u64>, WorkerError> {
        match self.ask(&Ask::Finish {})? {
            Reply::Finished { host_bytes } => Ok(host_bytes),
            other => Err(self.failed(format!("answered the end with {other:?}"))),
        }
    }

    fn ask(&mut self, ask: &Ask) -> Result<Reply, WorkerError> {
        self.send(ask)?;
        self.receive()
    }

    fn send(&mut self, ask: &Ask) -> Result<(), WorkerError> {
        let text = serde_json::to_string(ask).map_err(|e| self.failed(e.to_string()))?;
        writeln!(self.input, "{text}")
            .and_then(|()| self.input.flush())
            .map_err(|e| self.failed(format!("ended early: {e}")))
    }

    fn receive(&mut self) -> Result<Reply, WorkerError> {
        let mut line = String::new();
        let read = self.output.read_line(&mut line);
        match read {
            Ok(0) => Err(self.died()),
            Err(e) => Err(self.failed(format!("ended early: {e}"))),
            Ok(_) => match serde_json::from_str(&line) {
                Ok(Reply::Failed { message }) => {
                    let failed = self.failed(format!("failed: {message}"));
                    Err(WorkerError { refused: true, ..failed })
                }
                Ok(reply) => Ok(reply),
                Err(e) => Err(self.failed(format!("gave a reply that is not understood: {e}"))),
            },
        }
    }

    fn died(&mut self) -> WorkerError {
        let status = self.child.wait().map_or_else(|e| e.to_string(), |s| s.to_string());
        self.failed(format!("ended without a reply ({status})"))
    }

    fn failed(&self, what: String) -> WorkerError {
        WorkerError { arm: self.arm.clone(), what, refused: false }
    }
}

impl Drop for ArmProcess {
    fn drop(&mut self) {
        // Already ended after `finish`; otherwise nobody will ask it anything any more.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
