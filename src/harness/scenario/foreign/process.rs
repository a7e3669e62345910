//! The runner's side of a live peer. Nothing that a peer says is taken on trust that can be checked.

use super::peer::{PEER_PROTOCOL, PeerAsk, PeerOutput, PeerRecord, PeerReply, PeerSample};
use crate::harness::scenario::{Point, PrefillUse, Sample};
use crate::units::Digest;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Longest time a peer may take to load.
const LOAD_LIMIT: Duration = Duration::from_secs(600);
/// Longest time one forward may take.
const FORWARD_LIMIT: Duration = Duration::from_secs(60);
/// Longest line a peer may write.
const LINE_LIMIT_BYTES: u64 = 64 << 20;
/// Least share of its replies' time that a peer must account for: what it does besides may not hide
/// computing.
const ACCOUNTED_SHARE: f64 = 0.8;
/// Time of every reply that needs no account: parsing, pipes, a scheduler's slice.
const UNACCOUNTED_MS: f64 = 15.0;

/// One peer's process: alive through a launch, blocked on its input between turns.
#[derive(Debug)]
pub(in crate::harness::scenario) struct PeerProcess {
    child: Child,
    input: ChildStdin,
    lines: Receiver<Result<String, String>>,
    output: PeerOutput,
    prompts: Vec<Vec<u32>>,
    points: Vec<Point>,
    prefill: PrefillUse,
    account: Account,
}

impl PeerProcess {
    /// Starts a peer in the folder of the scenario file, loads it and runs every workload untimed.
    /// Gives what the peer said of itself and the digest of what each workload produced.
    pub(in crate::harness::scenario) fn start(
        command: &[String],
        folder: &Path,
        threads: usize,
        workloads: (Vec<Point>, Vec<Vec<u32>>),
        prefill: PrefillUse,
        warmup: u32,
    ) -> Result<(PeerProcess, PeerRecord, Vec<String>), String> {
        let words = command.iter().map(|w| expanded(w)).collect::<Result<Vec<_>, _>>()?;
        let (program, arguments) = words.split_first().ok_or("the command is empty")?;
        let mut child = Command::new(program)
            .args(arguments)
            .current_dir(if folder.as_os_str().is_empty() { Path::new(".") } else { folder })
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("`{program}` could not be started: {e}"))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("it has no pipes".into());
        };
        let lines = reader(output);
        let (points, prompts) = workloads;
        let output = PeerOutput::None;
        let account = Account::default();
        let mut peer =
            PeerProcess { child, input, lines, output, prompts, points, prefill, account };
        let ask = PeerAsk::Load { protocol: PEER_PROTOCOL, threads };
        let mut record = match peer.ask(&ask, LOAD_LIMIT)? {
            PeerReply::Loaded {
                protocol: PEER_PROTOCOL,
                name,
                model,
                weights_from,
                output,
                threads,
            } => {
                peer.output = output;
                PeerRecord {
                    name: Some(name),
                    model,
                    weights_from,
                    output: Some(output),
                    threads,
                    ..PeerRecord::default()
                }
            }
            PeerReply::Loaded { protocol, .. } => {
                return Err(format!("it speaks protocol {protocol}, expected {PEER_PROTOCOL}"));
            }
            other => return Err(format!("it answered a load with {}", kind(&other))),
        };
        record.command = command.to_vec();
        let mut digests = Vec::new();
        for point in 0..peer.points.len() {
            for _ in 1..warmup {
                peer.sample(point)?;
            }
            digests.push(peer.sample(point)?.tokens);
        }
        Ok((peer, record, digests))
    }

    /// One timed forward.
    pub(in crate::harness::scenario) fn sample(&mut self, point: usize) -> Result<Sample, String> {
        let (Some(place), Some(prompt)) = (self.points.get(point), self.prompts.get(point)) else {
            return Err(format!("there is no workload {point}"));
        };
        let place = *place;
        let (prompt, decode_tokens) = (prompt.clone(), place.decode_tokens);
        let ask = PeerAsk::Forward { prompt, decode_tokens, prefill: self.prefill };
        let begun = Instant::now();
        let reply = self.ask(&ask, FORWARD_LIMIT)?;
        let took_ms = begun.elapsed().as_secs_f64() * 1e3;
        match reply {
            PeerReply::Forwarded(sample) => {
                let found = check(&sample, place, self.output, took_ms)?;
                self.account.add(sample.prefill_ms + sample.decode_ms, took_ms)?;
                Ok(found)
            }
            other => Err(format!("it answered a forward with {}", kind(&other))),
        }
    }

    /// Peak memory; the process ends.
    pub(in crate::harness::scenario) fn finish(mut self) -> Result<Option<u64>, String> {
        match self.ask(&PeerAsk::Finish {}, FORWARD_LIMIT)? {
            PeerReply::Finished { host_bytes } => Ok(host_bytes),
            other => Err(format!("it answered the end with {}", kind(&other))),
        }
    }

    fn ask(&mut self, ask: &PeerAsk, limit: Duration) -> Result<PeerReply, String> {
        let text = serde_json::to_string(ask).map_err(|e| e.to_string())?;
        writeln!(self.input, "{text}")
            .and_then(|()| self.input.flush())
            .map_err(|e| format!("it ended early: {e}"))?;
        let line = match self.lines.recv_timeout(limit) {
            Ok(line) => line?,
            Err(RecvTimeoutError::Timeout) => {
                return Err(format!("it gave no reply within {} s", limit.as_secs()));
            }
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.child.wait().map_or_else(|e| e.to_string(), |s| s.to_string());
                return Err(format!("it ended without a reply ({status})"));
            }
        };
        match serde_json::from_str(&line) {
            Ok(PeerReply::Failed { message }) => Err(format!("it failed: {message}")),
            Ok(reply) => Ok(reply),
            Err(e) => {
                let start: String = line.trim_end().chars().take(80).collect();
                Err(format!("it gave a reply that is not understood ({e}): {start:?}"))
            }
        }
    }
}

impl Drop for PeerProcess {
    fn drop(&mut self) {
        // Already ended after `finish`; otherwise nobody will ask it anything any more.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A word of a command: `$NAME` stands for that environment variable, so that a committed file names
/// no place of one machine.
fn expanded(word: &str) -> Result<String, String> {
    match word.strip_prefix('$') {
        None => Ok(word.to_owned()),
        Some(name) => std::env::var(name).map_err(|_| {
            format!("its command names the environment variable {name}, which is not set")
        }),
    }
}

/// What a peer reported of the time that its replies took, all of them together: one that was held
/// up once is no cheat.
#[derive(Debug, Default)]
pub(super) struct Account {
    replies: u32,
    reported_ms: f64,
    took_ms: f64,
}

impl Account {
    /// Adds a reply.
    pub(super) fn add(&mut self, reported_ms: f64, took_ms: f64) -> Result<(), String> {
        self.replies += 1;
        self.reported_ms += reported_ms;
        self.took_ms += took_ms;
        let free = UNACCOUNTED_MS * f64::from(self.replies);
        if self.reported_ms >= ACCOUNTED_SHARE * (self.took_ms - free) {
            return Ok(());
        }
        Err(format!(
            "it accounts for {:.1} ms of the {:.1} ms that its {} replies took; a peer times everything it computes",
            self.reported_ms, self.took_ms, self.replies
        ))
    }
}

/// Lines of a pipe, read on a thread so that a silent peer can be given up.
fn reader(output: std::process::ChildStdout) -> Receiver<Result<String, String>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut output = BufReader::new(output);
        loop {
            let mut line = Vec::new();
            let line = match (&mut output).take(LINE_LIMIT_BYTES).read_until(b'\n', &mut line) {
                Ok(0) => return,
                Ok(_) if line.last() != Some(&b'\n') => {
                    Err(format!("it wrote a line without an end or over {LINE_LIMIT_BYTES} bytes"))
                }
                Ok(_) => String::from_utf8(line).map_err(|_| "its reply is not UTF-8".to_owned()),
                Err(e) => Err(format!("its reply cannot be read: {e}")),
            };
            let stop = line.is_err();
            if sender.send(line).is_err() || stop {
                return;
            }
        }
    });
    receiver
}

/// Checks a forward against what was asked and against the harness's own clock.
pub(super) fn check(
    sample: &PeerSample,
    place: Point,
    output: PeerOutput,
    took_ms: f64,
) -> Result<Sample, String> {
    let counted = (sample.prompt_tokens, sample.decode_tokens);
    if counted != (place.prompt_tokens, place.decode_tokens) {
        return Err(format!(
            "it computed {} prompt and {} decode tokens instead of {} and {}",
            counted.0, counted.1, place.prompt_tokens, place.decode_tokens
        ));
    }
    let timed = [sample.prefill_ms, sample.decode_ms];
    if !timed.iter().all(|ms| ms.is_finite() && *ms > 0.0) {
        return Err("it reported a time that is not finite and positive".into());
    }
    let reported: f64 = timed.iter().sum();
    if reported > took_ms {
        return Err(format!("it reported {reported:.2} ms for a reply that took {took_ms:.2} ms"));
    }
    let digest = match (output, &sample.tokens, &sample.logits) {
        (PeerOutput::Tokens, Some(tokens), None) => {
            let expected = place.decode_tokens as usize + 1;
            if tokens.len() != expected {
                return Err(format!("it gave {} tokens instead of {expected}", tokens.len()));
            }
            super::super::loaded_arm::digest(tokens)
        }
        (PeerOutput::Logits, None, Some(logits)) => {
            if logits.is_empty() || logits.iter().any(|z| !z.is_finite()) {
                return Err("its logits are empty or not finite".into());
            }
            let bytes: Vec<u8> = logits.iter().flat_map(|z| z.to_le_bytes()).collect();
            Digest::of(&bytes).short()
        }
        (PeerOutput::None, None, None) => "none".to_owned(),
        _ => return Err(format!("it declared the output `{output}` and gave another")),
    };
    Ok(Sample { prefill_ms: sample.prefill_ms, decode_ms: sample.decode_ms, tokens: digest })
}

fn kind(reply: &PeerReply) -> &'static str {
    match reply {
        PeerReply::Loaded { .. } => "`loaded`",
        PeerReply::Forwarded(_) => "`forwarded`",
        PeerReply::Finished { .. } => "`finished`",
        PeerReply::Failed { .. } => "`failed`",
    }
}
