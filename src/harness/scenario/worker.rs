//! The worker side of a run: one arm, one process, one line of JSON per request and reply.

use super::loaded_arm::LoadedArm;
use super::{Point, PrefillUse, Sample, StepRegions};
use crate::backend::cuda::Join;
use crate::backend::{DeviceKind, Fusion, Policy};
use crate::units::peak_resident_bytes;
use crate::weights::Recipe;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Write};
use std::path::PathBuf;

/// What the runner asks of a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case", deny_unknown_fields)]
pub enum Ask {
    /// Load the model, warm up, run every workload untimed.
    Load(Load),
    /// Run one workload, timed.
    Sample { point: usize },
    /// Begin a timed run of a workload that advances step by step, behind those that are open.
    Open { point: usize },
    /// Advance an open run by one timed step; the first that was opened is 0.
    Step { open: usize },
    /// End the open run that was opened first.
    Close {},
    /// Report memory and end.
    Finish {},
}

/// What a worker loads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    pub model: ModelSource,
    #[serde(default = "cpu", skip_serializing_if = "is_cpu")]
    pub device: DeviceKind,
    #[serde(default, skip_serializing_if = "PrefillUse::is_timed")]
    pub prefill: PrefillUse,
    pub policy: Policy,
    pub threads: usize,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fusions: Vec<Fusion>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub apart: Vec<Join>,
    pub points: Vec<Point>,
    /// Time the regions of a step of each kind, once warm.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub regions: bool,
    pub prompt_seed: u64,
    pub warmup: u32,
    /// What is packed when the model is loaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recipe: Option<Recipe>,
    /// Share of the speed that every step gives up by waiting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slowdown_ratio: Option<f64>,
}

fn cpu() -> DeviceKind {
    DeviceKind::Cpu
}

// Values that an older build does not know are left out where they say nothing new.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_cpu(device: &DeviceKind) -> bool {
    *device == DeviceKind::Cpu
}

/// The model of every arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ModelSource {
    /// A Hugging Face folder.
    Folder { path: PathBuf },
    /// Synthetic weights of a descriptor.
    Synthetic { descriptor: PathBuf, seed: u64 },
}

impl std::fmt::Display for ModelSource {
    /// In words, without the path that leads there.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = |path: &std::path::Path| {
            path.file_name().map_or_else(|| "model".into(), |n| n.to_string_lossy().into_owned())
        };
        match self {
            ModelSource::Folder { path } => write!(f, "checkpoint {}", name(path)),
            ModelSource::Synthetic { descriptor, seed } => {
                write!(f, "synthetic weights (seed {seed}) of {}", name(descriptor))
            }
        }
    }
}

/// What a worker answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case", deny_unknown_fields)]
pub enum Reply {
    Loaded(Box<Loaded>),
    Sampled(Sample),
    /// A run was opened or advanced.
    Done {},
    Finished {
        host_bytes: Option<u64>,
    },
    /// The request could not be carried out; the worker ends.
    Failed {
        message: String,
    },
}

/// A warm model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Loaded {
    pub manifest: serde_json::Value,
    /// Digest of the tokens of an untimed run, one per point.
    pub tokens: Vec<String>,
    /// Bytes that one single-token step reads at least, a sequence's share of them, one per point.
    pub bytes_per_token: Vec<u64>,
    /// Milliseconds from the request to the engine, before anything ran.
    #[serde(default)]
    pub ready_ms: f64,
    /// Where the time of steps goes, where that was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub regions: Vec<StepRegions>,
}

/// A request to an arm that is loaded.
fn measure(arm: &mut LoadedArm, ask: &Ask) -> Result<Reply, String> {
    match *ask {
        Ask::Sample { point } => arm.sample(point).map(Reply::Sampled),
        Ask::Open { point } => arm.open(point).map(|()| Reply::Done {}),
        Ask::Step { open } => arm.step(open).map(|()| Reply::Done {}),
        Ask::Close {} => arm.close().map(Reply::Sampled),
        Ask::Load(_) | Ask::Finish {} => Err("this is no request for a sample".into()),
    }
}

/// Serves one arm until it is told to finish or its input ends.
///
/// # Errors
/// The pipes broke.
pub fn serve(input: impl BufRead, mut output: impl Write) -> std::io::Result<()> {
    let mut arm: Option<LoadedArm> = None;
    for line in input.lines() {
        let reply = match serde_json::from_str::<Ask>(&line?) {
            Err(e) => Err(format!("the request is not understood: {e}")),
            Ok(Ask::Load(load)) => LoadedArm::load(load).map(|(loaded, reply)| {
                arm = Some(loaded);
                Reply::Loaded(Box::new(reply))
            }),
            Ok(Ask::Finish {}) => Ok(Reply::Finished { host_bytes: peak_resident_bytes() }),
            Ok(ask) => match &mut arm {
                Some(arm) => measure(arm, &ask),
                None => Err("a sample was asked for before a model".into()),
            },
        };
        let reply = reply.unwrap_or_else(|message| Reply::Failed { message });
        let last = matches!(reply, Reply::Finished { .. } | Reply::Failed { .. });
        writeln!(output, "{}", serde_json::to_string(&reply)?)?;
        output.flush()?;
        if last {
            break;
        }
    }
    Ok(())
}
