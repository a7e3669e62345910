//! A model loaded on the CPU.

use super::bindings::bindings;
use super::buffers::Buffers;
use super::exec::{Context, Executor};
use super::fast::PanelPage;
use super::gdn_state::GdnState;
use super::head::Head;
use super::phase::Phases;
use super::pool::Pool;
use super::rope::Frequencies;
use super::state::{AttentionCache, CpuState};
use super::support;
use crate::backend::cpu::Isa;
use crate::backend::cpu::attention_core::BLOCK_TOKENS;
use crate::backend::ranks::Link;
use crate::backend::{
    Binding, Buf, CacheSpec, DeviceKind, DeviceModel, Fault, Op, OpKind, Plan, Policy, RegionRun,
    RowOutput, Span, State, Step, Taps, WeightRef,
};
use crate::tensor::Weight;
use crate::units::panic_message;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

/// Most worker threads of a model; beyond the processors of any machine they only wait.
pub const THREADS_LIMIT: usize = 1024;

/// How a CPU model executes.
#[derive(Clone, Copy, Debug)]
pub struct CpuOptions {
    /// `f32`, `reference` or `fast`.
    pub policy: Policy,
    pub isa: Isa,
    /// Worker threads, at most [`THREADS_LIMIT`]; `None` takes one per available core.
    pub threads: Option<usize>,
    /// Fill activation buffers with NaN before every step (for tests).
    pub poison: bool,
}

/// A plan bound to weights, ready to execute.
pub struct CpuModel {
    pub(super) plan: Plan,
    pub(super) executor: Executor,
    policy: Policy,
    poison: bool,
    pool: Pool,
    /// Buffers of `plan.ops`: all but those that only the head uses.
    body_buffers: Vec<Buf>,
    scratch: Mutex<Scratch>,
}

struct Scratch {
    body: Buffers,
    head: Buffers,
}

impl CpuModel {
    /// Binds a plan to weights.
    ///
    /// # Errors
    /// When a region does not support its shapes, or worker threads are too many or cannot be started.
    pub fn new(
        plan: Plan,
        weights: HashMap<WeightRef, Weight>,
        options: &CpuOptions,
    ) -> Result<CpuModel, String> {
        let available = || std::thread::available_parallelism().map_or(1, usize::from);
        let threads = options.threads.unwrap_or_else(|| available().min(THREADS_LIMIT));
        if !(1..=THREADS_LIMIT).contains(&threads) {
            return Err(format!("expected 1 to {THREADS_LIMIT} threads, found {threads}"));
        }
        let pool = Pool::new(threads).map_err(|e| format!("cannot start worker threads: {e}"))?;
        support::check(&plan, &weights)?;
        let asks = |op: &Op| matches!(op.kind, OpKind::AttentionCore { log_sums: Some(_), .. });
        if plan.all_ops().any(asks) {
            return Err(
                "the sums of attention (`log_sums`) are given on CUDA devices only".to_owned()
            );
        }
        let frequencies = plan.rope.as_ref().map(Frequencies::new);
        let executor = pool
            .install(|| Executor::new(&plan, weights, frequencies, options.isa, options.policy))?;
        let scratch = Mutex::new(Scratch {
            body: Buffers::new(&plan.buffers),
            head: Buffers::new(&plan.buffers),
        });
        let body_buffers = (0..plan.buffers.len())
            .map(Buf)
            .filter(|buf| *buf != plan.final_hidden && !plan.logits_buffers().contains(buf))
            .collect();
        Ok(CpuModel {
            body_buffers,
            plan,
            executor,
            policy: options.policy,
            poison: options.poison,
            pool,
            scratch,
        })
    }

    /// As [`CpuModel::new`], for a plan of one of several ranks.
    ///
    /// # Errors
    /// As [`CpuModel::new`].
    pub fn of_rank(
        plan: Plan,
        weights: HashMap<WeightRef, Weight>,
        options: &CpuOptions,
        link: Link,
    ) -> Result<CpuModel, String> {
        let mut model = CpuModel::new(plan, weights, options)?;
        model.executor.link = Some(link);
        Ok(model)
    }

    /// The instruction set its kernels run on.
    pub fn isa(&self) -> Isa {
        self.executor.isa
    }

    /// Worker threads.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// Runs on the worker threads; a panic in a kernel is a device fault of this step, not the end
    /// of the process.
    fn guarded<R>(&self, f: impl FnOnce() -> R) -> Result<R, Fault> {
        catch_unwind(AssertUnwindSafe(|| self.pool.install(f))).map_err(|panic| Fault {
            region: self.executor.current_region(),
            message: panic_message(panic.as_ref()),
        })
    }

    fn run(
        &self,
        step: &Step<'_>,
        states: &mut [&mut dyn State],
        mut taps: Option<&mut Taps>,
    ) -> Vec<RowOutput> {
        let mut states = own(states);
        let mut scratch = self.scratch.lock().unwrap_or_else(|e| e.into_inner());
        let Scratch { body, head } = &mut *scratch;
        body.resize_only(&self.body_buffers, step.tokens.len(), self.poison);
        let phases = Phases::of_spans(&step.spans, &step.phases);
        let context =
            Context::new(&self.executor, step.tokens, &step.spans).with_phases(phases.clone());
        let mut left = &self.plan.ops[..];
        while !left.is_empty() {
            let (done, later) =
                left.split_at(self.executor.run_next(left, &context, body, &mut states));
            if let Some(taps) = taps.as_deref_mut() {
                done.iter().for_each(|op| capture(op, body, taps));
            }
            left = later;
        }
        advance(&mut states, &step.spans);
        if self.plan.head_ops.is_empty() {
            // A stage before the last.
            return vec![RowOutput::Nothing; step.wants.len()];
        }
        Head { model: self, poison: self.poison, phases }.run(&step.wants, body, head, taps)
    }
}

/// Captures the requested buffers of an operation.
pub(super) fn capture(op: &crate::backend::Op, buffers: &Buffers, taps: &mut Taps) {
    for (name, buf) in &op.taps {
        if taps.wants(name) {
            taps.append(name, buffers.width(*buf), buffers.get(*buf));
        }
    }
}

impl DeviceModel for CpuModel {
    fn device(&self) -> DeviceKind {
        DeviceKind::Cpu
    }

    fn bindings(&self) -> Vec<Binding> {
        bindings(&self.plan, self.policy, self.isa())
    }

    fn new_state(&self) -> Box<dyn State> {
        Box::new(CpuState {
            len: 0,
            attention: self
                .plan
                .attention_slots
                .iter()
                .map(|spec| AttentionCache::new(self.policy, spec))
                .collect(),
            gdn: self.plan.gdn_slots.iter().map(|spec| GdnState::new(*spec)).collect(),
        })
    }

    fn new_state_bytes(&self) -> u64 {
        self.plan.gdn_slots.iter().map(GdnState::bytes_of).sum()
    }

    fn page_bytes(&self) -> u64 {
        let bytes = |spec: &CacheSpec| match self.policy {
            Policy::Fast if spec.in_panels() => PanelPage::bytes_of(spec) as u64,
            policy => {
                let element = if policy.rounds_to_bf16() { 2 } else { 4 };
                (spec.kv_heads * (spec.head_dim + spec.value_dim) * BLOCK_TOKENS * element) as u64
            }
        };
        self.plan.attention_slots.iter().map(bytes).sum()
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
        self.guarded(|| self.run(step, states, taps))
    }

    fn region(
        &self,
        run: &RegionRun<'_>,
        states: &mut [&mut dyn State],
    ) -> Result<Vec<Vec<f32>>, Fault> {
        self.guarded(|| {
            let mut states = own(states);
            let mut buffers = Buffers::new(&self.plan.buffers);
            let rows = run.spans.last().map_or(0, |s| s.rows.end);
            buffers.resize(rows, self.poison);
            for (buf, values) in run.inputs {
                buffers.get_mut(*buf).copy_from_slice(values);
            }
            let context = Context::new(&self.executor, run.tokens, run.spans);
            for op in &self.plan.ops {
                self.executor.run(&op.kind, &context, &mut buffers, &mut states);
            }
            advance(&mut states, run.spans);
            run.outputs.iter().map(|buf| buffers.get(*buf).to_vec()).collect()
        })
    }
}

/// This device's states.
fn own<'a>(states: &'a mut [&mut dyn State]) -> Vec<&'a mut CpuState> {
    states
        .iter_mut()
        .map(|s| s.as_any_mut().downcast_mut::<CpuState>().expect("a state of this device"))
        .collect()
}

fn advance(states: &mut [&mut CpuState], spans: &[Span]) {
    for (state, span) in states.iter_mut().zip(spans) {
        state.len = span.position + span.rows.len();
    }
}

impl std::fmt::Debug for CpuModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CpuModel")
            .field("policy", &self.policy)
            .field("isa", &self.executor.isa)
            .field("threads", &self.threads())
            .finish_non_exhaustive()
    }
}
