//! The runner's side of one worker process.

use super::protocol::{Hello, Reply, Request};
use crate::harness::kind::Outcome;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A worker has this long to start.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How often a waiting runner looks whether it should stop.
const STOP_CHECK: Duration = Duration::from_millis(50);
/// Characters kept of what a dying worker printed.
const STDERR_KEPT: usize = 2_000;

/// How the workers of a run are started.
#[derive(Clone, Debug)]
pub(super) struct WorkerCommand {
    /// The `assay` binary.
    pub(super) program: PathBuf,
    pub(super) threads: usize,
}

/// A running worker process.
#[derive(Debug)]
pub(super) struct Worker {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
    stderr: Arc<Mutex<String>>,
    stderr_reader: Option<JoinHandle<()>>,
    /// The build it said it is.
    pub(super) build_digest: String,
}

/// What a request came to.
#[derive(Debug)]
pub(super) enum Answer {
    /// An outcome; `true`: the worker can take another trial.
    Outcome(Outcome, bool),
    /// The run was stopped while the trial ran; the worker is gone.
    Stopped,
}

impl Worker {
    /// Starts a worker and waits for its first line.
    pub(super) fn start(command: &WorkerCommand) -> Result<Worker, String> {
        let threads = command.threads.to_string();
        let mut process = Command::new(&command.program);
        process
            .arg("worker")
            .env("RAYON_NUM_THREADS", &threads)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // Ctrl-C reaches the whole foreground group; the runner alone decides what it means.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut process, 0);
        let failed =
            |e: io::Error| format!("cannot start a worker ({}): {e}", command.program.display());
        let mut child = process.spawn().map_err(failed)?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr_pipe)) = pipes else {
            return Err("a worker has no pipes".to_owned());
        };
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let stderr = Arc::new(Mutex::new(String::new()));
        let stderr_reader = Some(collect(stderr_pipe, stderr.clone()));
        let mut worker =
            Worker { child, stdin, lines, stderr, stderr_reader, build_digest: String::new() };
        let hello = worker.lines.recv_timeout(START_LIMIT).ok();
        match hello.and_then(|line| serde_json::from_str::<Hello>(&line).ok()) {
            Some(hello) => worker.build_digest = hello.build_digest,
            None => return Err(format!("a worker did not start: {}", worker.last_words())),
        }
        Ok(worker)
    }

    /// Runs one trial; a time-out or a death is an error of the trial.
    pub(super) fn run(
        &mut self,
        request: &Request,
        timeout: Duration,
        stop: &dyn Fn() -> bool,
    ) -> Answer {
        let line = match serde_json::to_string(request) {
            Ok(line) => line + "\n",
            Err(e) => return Answer::Outcome(Outcome::error(e.to_string()), true),
        };
        if self.stdin.write_all(line.as_bytes()).and_then(|()| self.stdin.flush()).is_err() {
            return self.died();
        }
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left.min(STOP_CHECK)) {
                Ok(line) => {
                    return match serde_json::from_str::<Reply>(&line) {
                        Ok(reply) => Answer::Outcome(reply.outcome, !reply.spent),
                        Err(_) => {
                            let message = format!("the worker answered `{}`", shortened(&line));
                            Answer::Outcome(Outcome::error(message), false)
                        }
                    };
                }
                Err(RecvTimeoutError::Disconnected) if stop() => return Answer::Stopped,
                Err(RecvTimeoutError::Disconnected) => return self.died(),
                Err(RecvTimeoutError::Timeout) if stop() => {
                    self.kill();
                    return Answer::Stopped;
                }
                Err(RecvTimeoutError::Timeout) if left.is_zero() => {
                    self.kill();
                    let message = format!("no result within {} ms", timeout.as_millis());
                    return Answer::Outcome(Outcome::error(message), false);
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn kill(&mut self) {
        // It may be gone already; either way it is reaped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn died(&mut self) -> Answer {
        let message = format!("the worker died: {}", self.last_words());
        Answer::Outcome(Outcome::error(message), false)
    }

    /// How the process ended and the last it printed.
    fn last_words(&mut self) -> String {
        let _ = self.child.kill();
        let status = self.child.wait().map_or_else(|e| e.to_string(), describe);
        if let Some(reader) = self.stderr_reader.take() {
            let _ = reader.join();
        }
        let text = self.stderr.lock().unwrap_or_else(PoisonError::into_inner);
        let text = text.trim();
        if text.is_empty() { status } else { format!("{status}; it printed: {}", shortened(text)) }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Keeps the end of what a process prints on stderr.
fn collect(mut pipe: impl io::Read + Send + 'static, kept: Arc<Mutex<String>>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = pipe.by_ref().read(&mut buffer) {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.push_str(&String::from_utf8_lossy(&buffer[..read]));
            let excess = kept.chars().count().saturating_sub(STDERR_KEPT);
            if excess > 0 {
                *kept = kept.chars().skip(excess).collect();
            }
        }
    })
}

/// An exit status in words; a kill from outside is most often the kernel's for want of memory.
fn describe(status: ExitStatus) -> String {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return match signal {
            6 => "it aborted (signal 6)".to_owned(),
            9 => "it was killed (signal 9; out of memory?)".to_owned(),
            11 => "it accessed invalid memory (signal 11)".to_owned(),
            other => format!("signal {other}"),
        };
    }
    status.to_string()
}

fn shortened(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let count = line.chars().count();
    if count > 300 {
        format!("…{}", line.chars().skip(count - 300).collect::<String>())
    } else {
        line
    }
}

/// An empty folder for one trial, removed when dropped.
#[derive(Debug)]
pub(super) struct Scratch(PathBuf);

impl Scratch {
    /// Makes the folder.
    pub(super) fn new(parent: &Path, at: usize) -> io::Result<Scratch> {
        let path = parent.join(format!("trial-{at}"));
        std::fs::create_dir_all(&path)?;
        Ok(Scratch(path))
    }

    /// Its path.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A leftover in the temporary folder is no failure of the trial.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
