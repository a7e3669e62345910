//! A model loaded on a CUDA device.

use super::activations::Activations;
use super::bindings::bindings;
use super::exec::{Executor, Workspace};
use super::graph::Graphs;
use super::head::HeadBuffers;
use super::joins::Joins;
use super::launcher::Launcher;
use super::memory::Memory;
use super::nodes::{Groups, Node, nodes, unfused};
use super::record::Record;
use super::room::{Scratch, address};
use super::sampling::Draws;
use super::state::{CudaState, StateLayout};
use super::weights::{BoundWeight, DeviceWeights};
use crate::backend::cpu::{BLOCK_TOKENS, Frequencies, check_shapes};
use crate::backend::cuda::{Blas, CudaError, Device, FoundImage};
use crate::backend::{
    Binding, CacheKind, DeviceKind, DeviceModel, DeviceProvenance, Fault, KernelDigest, Plan,
    Policy, Region, RegionCost, RegionRun, RowOutput, State, Step, Taps, WeightRef,
};
use crate::descriptor::RopeScaling;
use crate::tensor::{Shared, Storage, Weight};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// How a CUDA model executes.
#[derive(Clone, Copy, Debug)]
pub struct CudaOptions {
    /// `f32`, `invariant` or `fast`.
    pub policy: Policy,
    /// Which device.
    pub ordinal: usize,
    /// Fill activation buffers with NaN before every step, and wait for every operation so that a
    /// fault names its region (for tests).
    pub poison: bool,
    /// Capture decode steps as graphs.
    pub graphs: bool,
    /// Which operations share a launch.
    pub joins: Joins,
}

/// A plan bound to weights on a device, ready to execute.
#[derive(Debug)]
pub struct CudaModel {
    pub(super) plan: Plan,
    /// Of the plan as it was given.
    pub(super) bindings: Vec<Binding>,
    pub(super) policy: Policy,
    pub(super) options: CudaOptions,
    pub(super) device: Arc<Device>,
    pub(super) launcher: Launcher,
    pub(super) weights: DeviceWeights,
    pub(super) states: Arc<StateLayout>,
    /// Nodes of a step, and of one in which buffers are captured.
    pub(super) fused: Vec<Node>,
    pub(super) plain: Vec<Node>,
    pub(super) current: AtomicUsize,
    pub(super) inner: Mutex<Inner>,
}

/// What steps share, one at a time.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) activations: Activations,
    pub(super) head: Option<HeadBuffers>,
    /// Made when a row is drawn from for the first time.
    pub(super) draws: Option<Draws>,
    /// Records of decode steps and of all others.
    pub(super) decode: Option<Record>,
    pub(super) other: Option<Record>,
    pub(super) scratch: Scratch,
    pub(super) graphs: Graphs,
}

/// Refuses what the CPU executes and no CUDA kernel does yet.
fn check_kinds(plan: &Plan) -> Result<(), String> {
    let region = plan.all_ops().map(|op| op.kind.region()).find(|region| {
        matches!(
            region,
            Region::BiasAdd
                | Region::MlaLatentNorm
                | Region::MlaAttention
                | Region::MoeRouterLogits
                | Region::MoeRouter
                | Region::MoePermute
                | Region::MoeExperts
                | Region::MoeCombine
                | Region::MoeShared
        )
    });
    let window = plan.attention_slots.iter().any(|slot| slot.kind != CacheKind::Full);
    let scaling = plan.rope.as_ref().map(|rope| &rope.scaling);
    let what = match (region, window, scaling) {
        (Some(region), _, _) => format!("region `{region}`"),
        (None, true, _) => "a sliding window".to_owned(),
        (None, false, Some(RopeScaling::Yarn { .. })) => "yarn".to_owned(),
        _ => return Ok(()),
    };
    Err(format!("{what} has no CUDA kernel yet; use the CPU (--device cpu)"))
}

impl CudaModel {
    /// Binds a plan to weights and brings them to the device.
    ///
    /// # Errors
    /// A sentence: the device or its compiler is missing, a region does not support its shapes, or
    /// memory is short. Nothing stays allocated.
    pub fn new(
        plan: Plan,
        weights: &HashMap<WeightRef, BoundWeight>,
        options: CudaOptions,
    ) -> Result<CudaModel, String> {
        check_shapes(&plan, &shapes_only(weights))?;
        check_kinds(&plan)?;
        if let Some((packed, _)) = weights.iter().find(|(_, w)| w.is_packed()) {
            return Err(format!(
                "weight `{}` is packed in four bits, which CUDA kernels do not take yet; load the \
                 unpacked weights or use the CPU",
                packed.role
            ));
        }
        CudaModel::load(plan, weights, options).map_err(|e| e.to_string())
    }

    fn load(
        plan: Plan,
        weights: &HashMap<WeightRef, BoundWeight>,
        options: CudaOptions,
    ) -> Result<CudaModel, CudaError> {
        let device = Arc::new(Device::open(options.ordinal)?);
        let bindings = bindings(&plan, options.policy);
        let plan = unfused(plan);
        let round = options.policy.rounds_to_bf16();
        device.preload(&sources(&plan))?;
        let groups = Groups::find(&plan, |w| weights.get(&w).is_some_and(BoundWeight::is_tiled));
        let loaded = DeviceWeights::load(&device, &plan, &groups, weights)?;
        let states =
            Arc::new(StateLayout::new(&device, &plan.attention_slots, &plan.gdn_slots, round));
        let mut scratch = Scratch::default();
        if let Some(rope) = &plan.rope {
            let frequencies = Frequencies::new(rope);
            let inverse = Memory::new(&device, frequencies.inverse().len() * 4)?;
            inverse.write(&device, 0, frequencies.inverse())?;
            scratch.rope_half = frequencies.inverse().len();
            scratch.rope_inverse = Some(inverse);
        }
        let inner = Inner {
            activations: Activations::new(&plan, &groups, round),
            head: HeadBuffers::new(&device, &plan, round)?,
            draws: None,
            decode: None,
            other: None,
            scratch,
            graphs: Graphs::default(),
        };
        device.synchronize()?;
        Ok(CudaModel {
            fused: nodes(&plan, &groups, options.joins),
            plain: nodes(&plan, &groups, Joins::NONE),
            policy: options.policy,
            options,
            launcher: Launcher::new(&device, options.policy),
            device,
            weights: loaded,
            states,
            bindings,
            plan,
            current: AtomicUsize::new(0),
            inner: Mutex::new(inner),
        })
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Images of the kernels used so far.
    pub fn images(&self) -> Vec<Arc<FoundImage>> {
        self.device.images()
    }

    /// Bytes of weights on the device.
    pub fn weight_bytes(&self) -> u64 {
        self.weights.len_bytes() as u64
    }

    /// Device memory that sequences may take: what is free now, less room for the rows of a step.
    pub fn capacity_bytes(&self, chunk_tokens: usize) -> u64 {
        let element = if self.policy.rounds_to_bf16() { 2 } else { 4 };
        let row: usize = self.plan.buffers.iter().map(|b| b.width * element).sum();
        let reserve = (row * chunk_tokens + (256 << 20)) as u64;
        self.device.free_bytes().unwrap_or(0).saturating_sub(reserve)
    }

    fn fault(&self, error: CudaError) -> Fault {
        let region = Region::ALL[self.current.load(Ordering::Relaxed)].name().to_owned();
        Fault { region, message: error.to_string() }
    }

    pub(super) fn executor<'a>(&'a self, scratch: &Scratch) -> Executor<'a> {
        Executor {
            plan: &self.plan,
            launcher: &self.launcher,
            weights: &self.weights,
            states: &self.states,
            workspace: Workspace {
                rope_inverse: address(&scratch.rope_inverse),
                rope_table: address(&scratch.rope_table),
                rope_half: scratch.rope_half,
                partial: address(&scratch.partial),
                arrived: address(&scratch.arrived),
                dots: address(&scratch.dots),
                running: address(&scratch.running),
                chunks: address(&scratch.chunks),
                rates: address(&scratch.rates),
            },
            current: &self.current,
        }
    }
}

/// The kernel sources that a plan needs, the same under every policy: what is compiled is the build's
/// identity, what is launched the policy's.
fn sources(plan: &Plan) -> Vec<&'static str> {
    let mut names = vec!["elementwise", "gemm", "greedy", "rms_norm", "sampler", "synthetic"];
    if !plan.attention_slots.is_empty() || plan.rope.is_some() {
        names.extend(["attention_core", "rope"]);
    }
    if !plan.gdn_slots.is_empty() {
        names.extend(["gdn_chunk", "gdn_core", "gdn_gated_norm", "gdn_inputs"]);
    }
    names
}

/// Weights of the right shapes and no elements, for checks of shapes.
fn shapes_only(weights: &HashMap<WeightRef, BoundWeight>) -> HashMap<WeightRef, Weight> {
    let empty = |w: &BoundWeight| {
        let [rows, cols] = w.shape();
        Weight { rows, cols, storage: Storage::Bf16(Shared::owned(Vec::new())) }
    };
    weights.iter().map(|(r, w)| (*r, empty(w))).collect()
}

impl DeviceModel for CudaModel {
    fn device(&self) -> DeviceKind {
        DeviceKind::Cuda
    }

    fn bindings(&self) -> Vec<Binding> {
        self.bindings.clone()
    }

    fn provenance(&self) -> Option<DeviceProvenance> {
        let facts = self.device.facts();
        let images = self.device.images();
        let digest = |found: &Arc<FoundImage>| KernelDigest {
            name: found.key.kernel.clone(),
            source: found.key.source.clone(),
            image: found.digest().to_string(),
        };
        Some(DeviceProvenance {
            name: facts.name.clone(),
            capability: facts.arch.clone(),
            driver: format!("CUDA {}", facts.driver_cuda),
            compiler: images.first().map_or_else(String::new, |i| i.key.compiler.clone()),
            products: Blas::version().ok(),
            kernels: images.iter().map(digest).collect(),
        })
    }

    fn replayed_steps(&self) -> u64 {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).graphs.replayed()
    }

    fn new_state(&self) -> Box<dyn State> {
        Box::new(CudaState::new(&self.states))
    }

    fn new_state_bytes(&self) -> u64 {
        if self.states.gdn.is_empty() { 0 } else { self.states.gdn_pool.block_bytes() as u64 }
    }

    fn page_bytes(&self) -> u64 {
        self.states.pages.block_bytes() as u64
    }

    fn page_tokens(&self) -> usize {
        BLOCK_TOKENS
    }

    fn step(
        &self,
        step: &Step<'_>,
        states: &mut [&mut dyn State],
        taps: Option<&mut Taps>,
    ) -> Result<Vec<RowOutput>, Fault> {
        self.run(step, states, taps).map_err(|e| self.fault(e))
    }

    fn profile(
        &self,
        step: &Step<'_>,
        states: &mut [&mut dyn State],
    ) -> Result<Vec<RegionCost>, Fault> {
        self.profile_step(step, states).map_err(|e| self.fault(e))
    }

    fn region(
        &self,
        run: &RegionRun<'_>,
        states: &mut [&mut dyn State],
    ) -> Result<Vec<Vec<f32>>, Fault> {
        self.run_region(run, states).map_err(|e| self.fault(e))
    }
}
