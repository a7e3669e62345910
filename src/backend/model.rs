//! What the engine asks of a device: a loaded model that executes steps over sequence states.

use super::{Buf, DeviceKind, Region, Taps};
use crate::descriptor::GatedDeltaNet;
use std::any::Any;
use std::fmt;
use std::ops::Range;

/// A model loaded on a device.
pub trait DeviceModel: fmt::Debug + Send + Sync {
    /// The kind of device.
    fn device(&self) -> DeviceKind;

    /// Which implementation executes each region of the plan, for the manifest.
    fn bindings(&self) -> Vec<Binding>;

    /// What a manifest records of a device other than the host; `None` on the host.
    fn provenance(&self) -> Option<DeviceProvenance> {
        None
    }

    /// Times the regions of a step of one row a sequence, on a device that can; states do not
    /// advance.
    ///
    /// # Errors
    /// As [`DeviceModel::step`].
    fn profile(
        &self,
        _step: &Step<'_>,
        _states: &mut [&mut dyn State],
    ) -> Result<Vec<RegionCost>, Fault> {
        Ok(Vec::new())
    }

    /// Steps so far that were replays of a captured graph; zero on a device that captures none.
    fn replayed_steps(&self) -> u64 {
        0
    }

    /// The state of an empty sequence.
    fn new_state(&self) -> Box<dyn State>;

    /// Bytes that `new_state` allocates.
    fn new_state_bytes(&self) -> u64;

    /// Positions of one page of attention cache.
    fn page_tokens(&self) -> usize;

    /// Bytes of one page, all layers together.
    fn page_bytes(&self) -> u64;

    /// Executes one step. `states[i]` belongs to `step.spans[i]`. Results are one per row, in order.
    ///
    /// # Errors
    /// A [`Fault`] leaves the states of all spans undefined.
    fn step(
        &self,
        step: &Step<'_>,
        states: &mut [&mut dyn State],
        taps: Option<&mut Taps>,
    ) -> Result<Vec<RowOutput>, Fault>;

    /// Executes the plan's operations on given buffers: a region by itself, for conformance.
    ///
    /// # Errors
    /// As [`DeviceModel::step`].
    fn region(
        &self,
        run: &RegionRun<'_>,
        states: &mut [&mut dyn State],
    ) -> Result<Vec<Vec<f32>>, Fault>;
}

/// What all launches of one region in a step cost.
#[derive(Clone, Debug, PartialEq)]
pub struct RegionCost {
    pub region: Region,
    pub launches: usize,
    /// Of all of them, by themselves.
    pub time_us: f64,
    /// Fewest bytes that they move through device memory.
    pub bytes: u64,
}

/// The device, its driver and the kernels that execute on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceProvenance {
    /// The device's name, e.g. `NVIDIA H200`.
    pub name: String,
    /// Its architecture, e.g. `sm_90a`.
    pub capability: String,
    /// What the driver speaks, e.g. `CUDA 13.0`.
    pub driver: String,
    /// Version of the run-time compiler.
    pub compiler: String,
    /// Version of the vendor's library of products, where it is found; the bindings say who uses it.
    pub products: Option<String>,
    /// Digest of every kernel source, and of the image made of it.
    pub kernels: Vec<KernelDigest>,
}

/// A kernel source and its image by their digests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelDigest {
    pub name: String,
    pub source: String,
    pub image: String,
}

/// Rows given to and wanted from a plan of few operations.
#[derive(Clone, Debug)]
pub struct RegionRun<'a> {
    /// One per row (what `embedding` reads).
    pub tokens: &'a [u32],
    pub spans: &'a [Span],
    /// Contents of input buffers, `rows × width`.
    pub inputs: &'a [(Buf, Vec<f32>)],
    /// Buffers to return.
    pub outputs: &'a [Buf],
}

/// The rows of one step: the tokens of all spans, one after the other.
#[derive(Clone, Debug)]
pub struct Step<'a> {
    pub tokens: &'a [u32],
    pub spans: Vec<Span>,
    /// One per span.
    pub phases: Vec<Phase>,
    /// One per row.
    pub wants: Vec<RowWant>,
}

/// What rows are for. It matters only where a model keeps weights of two precisions: prefill then
/// reads the wide ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// A prompt, or a part of one.
    Prefill,
    /// Generated tokens, verified ones included.
    Decode,
}

/// Consecutive rows that belong to one sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Rows of the step.
    pub rows: Range<usize>,
    /// Absolute position of the first row.
    pub position: usize,
}

/// What is wanted of one row (one token position).
#[derive(Clone, Debug, PartialEq)]
pub enum RowWant {
    Nothing,
    /// The arg-max id (lowest on ties).
    Greedy,
    /// log p of these ids, natural log, computed in FP64 from the FP32 logits.
    LogProbOf(Vec<u32>),
    /// The n largest logits with their ids, falling; lowest id first on ties.
    Top(usize),
    /// The id that one draw takes.
    Sampled(Draw),
    /// The whole row of FP32 logits.
    Logits,
    /// The row after the final norm.
    Hidden,
}

/// One draw from softmax(logits / `temperature`) over the ids below `choosable_ids`, at least one.
///
/// # Numerics
/// Region `sampler`: FP64, blocks of 256 ids; the same id on every device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Draw {
    /// Positive and finite.
    pub temperature: f64,
    /// In [0, 1).
    pub unit: f64,
    pub choosable_ids: usize,
}

/// What one row gave.
#[derive(Clone, Debug, PartialEq)]
pub enum RowOutput {
    Nothing,
    Greedy(u32),
    Sampled(u32),
    LogProbs(Vec<f64>),
    Top(Vec<(u32, f32)>),
    Logits(Vec<f32>),
    Hidden(Vec<f32>),
    /// Logits were NaN or infinite where an order or a probability was asked for.
    NonFinite(NonFinite),
}

/// The logits of a row that are no numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NonFinite {
    /// How many, of `len`.
    pub count: usize,
    pub len: usize,
    /// The id of the first, and its bits (equality of NaN is that of bits).
    pub first_id: usize,
    pub first_bits: u32,
}

impl NonFinite {
    /// Counts them in a row of logits.
    pub fn of(logits: &[f32]) -> NonFinite {
        let first_id = logits.iter().position(|z| !z.is_finite()).unwrap_or_default();
        NonFinite {
            count: logits.iter().filter(|z| !z.is_finite()).count(),
            len: logits.len(),
            first_id,
            first_bits: logits.get(first_id).map_or(0, |z| z.to_bits()),
        }
    }
}

impl fmt::Display for NonFinite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NonFinite { count, len, first_id, first_bits } = *self;
        let first = f32::from_bits(first_bits);
        write!(f, "{count} of {len} logits are not finite, the first is {first} at id {first_id}")
    }
}

/// State of one sequence on a device.
pub trait State: fmt::Debug + Send {
    /// Tokens consumed.
    fn len_tokens(&self) -> usize;

    /// An independent copy (cheap: memory is shared until written).
    fn fork(&self) -> Box<dyn State>;

    /// Forgets the tokens from `len_tokens` on, exactly and without replay.
    ///
    /// # Errors
    /// Named reasons; nothing changes then.
    fn truncate(&mut self, len_tokens: usize) -> Result<(), TruncateError>;

    /// Bytes held, shared ones included.
    fn size_bytes(&self) -> u64;

    /// Recurrent and convolution states, materialised for inspection.
    fn inspect(&self) -> Vec<StateTensor>;

    /// Everything that later tokens can read, and nothing else: cached keys and values, boundary
    /// states, open group rows, convolution history. Two executions agree on state when these are
    /// equal bit for bit.
    fn live(&self) -> Vec<LiveState>;

    /// For the device that made it.
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

/// A state tensor in the layout of the references.
#[derive(Clone, Debug, PartialEq)]
pub struct StateTensor {
    /// `layers.{i}.recurrent` or `layers.{i}.conv`.
    pub name: String,
    pub shape: Vec<usize>,
    pub values: Vec<f32>,
}

/// A part of the state that later tokens can read.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveState {
    pub name: String,
    /// Widened to FP64, exactly.
    pub values: Vec<f64>,
}

/// Why a state cannot go back to a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TruncateError {
    #[error("the sequence has only {len_tokens} tokens")]
    Longer { len_tokens: usize },
    #[error(
        "gated-delta-net layers hold states back to {oldest_tokens} tokens only; \
         take a checkpoint before, or reset and replay"
    )]
    PastBoundary { oldest_tokens: usize },
    #[error(
        "convolution history reaches back to {oldest_tokens} tokens only; \
         take a checkpoint before, or reset and replay"
    )]
    PastWindow { oldest_tokens: usize },
}

/// An attention cache of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSpec {
    pub layer: usize,
    pub kv_heads: usize,
    /// Dimensions of a key.
    pub head_dim: usize,
    /// Dimensions of a value.
    pub value_dim: usize,
    pub kind: CacheKind,
}

/// What reads a cache, and how far back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheKind {
    /// Full attention: every earlier position.
    Full,
    /// Full attention over the last positions, so many.
    Window(usize),
    /// Latent attention: keys are rope keys, values are latents.
    Latent,
}

/// A gated-delta-net state of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GdnSpec {
    pub layer: usize,
    pub dims: GatedDeltaNet,
}

/// Which implementation executes a region.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Binding {
    pub region: Region,
    /// `device/name`, the name stating the numerics.
    pub implementation: String,
    /// Instruction set or matrix-instruction family the bits depend on; `any` if on none.
    pub instructions: String,
}

/// The device failed while executing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("region `{region}` failed: {message}")]
pub struct Fault {
    pub region: String,
    pub message: String,
}
