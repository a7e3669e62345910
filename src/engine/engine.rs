//! The engine: a plan bound to weights on a device.

use super::sequence::Home;
use super::{Batch, Output, Sequence, SequenceError, Want};
use crate::backend::cpu::Isa;
use crate::backend::cuda::Join;
use crate::backend::{
    Binding, DeviceKind, DeviceProvenance, Fusion, Phase, Plan, Policy, RowOutput, RowWant, Span,
    State, Step, Taps,
};
use crate::descriptor::Descriptor;
use crate::placement::{Device, Placement, PlacementRequest};
use crate::weights::Artifact;
use std::sync::Arc;

/// How an engine executes.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    pub device: Device,
    /// Ranks to divide the model over, of the kind of `device`; `None` for that device alone.
    pub placement: Option<PlacementRequest>,
    /// `invariant` is resolved to what the device calls it.
    pub policy: Policy,
    /// Worker threads of the CPU backend; `None` takes one per available core.
    pub threads: Option<usize>,
    /// Rows of one step; a longer prompt is prefilled in chunks of this size.
    pub chunk_tokens: usize,
    /// Longest sequence, if less than the model's own limit.
    pub context_tokens: Option<usize>,
    /// Limit on the memory of sequences and checkpoints.
    pub memory_limit_bytes: Option<u64>,
    /// Instruction set of the CPU backend; `None` takes the widest.
    pub isa: Option<Isa>,
    /// Rewrites of the plan.
    pub fusions: Vec<Fusion>,
    /// Rewrites that a CUDA device is to leave undone (for measuring what they gain): no bit changes.
    pub apart: Vec<Join>,
    /// Fill activation buffers with NaN before every step (for tests).
    pub poison: bool,
    /// Capture decode steps as graphs where the device has them.
    pub graphs: bool,
}

impl Default for EngineOptions {
    fn default() -> EngineOptions {
        EngineOptions {
            device: Device::Cpu,
            placement: None,
            policy: Policy::Fast,
            threads: None,
            chunk_tokens: 512,
            context_tokens: None,
            memory_limit_bytes: None,
            isa: None,
            fusions: Vec::new(),
            apart: Vec::new(),
            poison: false,
            graphs: true,
        }
    }
}

impl EngineOptions {
    /// The default options with a policy.
    pub fn with_policy(policy: Policy) -> EngineOptions {
        EngineOptions { policy, ..EngineOptions::default() }
    }
}

/// A model ready to execute.
#[derive(Debug)]
pub struct Engine {
    pub(super) descriptor: Arc<Descriptor>,
    pub(super) plan: Plan,
    pub(super) policy: Policy,
    pub(super) placement: Placement,
    pub(super) home: Arc<Home>,
    pub(super) chunk_tokens: usize,
    pub(super) context_tokens: usize,
    pub(super) weight_bytes: u64,
    pub(super) artifact: Option<Artifact>,
    pub(super) isa: Isa,
    pub(super) fusions: Vec<Fusion>,
}

impl Engine {
    /// What the model is.
    pub fn descriptor(&self) -> &Arc<Descriptor> {
        &self.descriptor
    }

    /// The order of operations.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The policy that executes (aliases resolved).
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// The instruction set that the CPU backend's kernels are compiled for.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Rewrites of the plan that execute, sorted.
    pub fn fusions(&self) -> &[Fusion] {
        &self.fusions
    }

    /// Where the model runs.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Which implementation executes each region.
    pub fn bindings(&self) -> Vec<Binding> {
        self.home.model.bindings()
    }

    /// The kind of device that executes.
    pub fn device(&self) -> DeviceKind {
        self.home.model.device()
    }

    /// The device, its driver and kernels; `None` on the host.
    pub fn provenance(&self) -> Option<DeviceProvenance> {
        self.home.model.provenance()
    }

    /// Rows of one step at most.
    pub fn chunk_tokens(&self) -> usize {
        self.chunk_tokens
    }

    /// Tokens of one sequence at most.
    pub fn context_tokens(&self) -> usize {
        self.context_tokens
    }

    /// The packed part of the weights, if some are.
    pub fn artifact(&self) -> Option<&Artifact> {
        self.artifact.as_ref()
    }

    /// Bytes of weights.
    pub fn weight_bytes(&self) -> u64 {
        self.weight_bytes
    }

    /// Bytes that live sequences and checkpoints account for.
    pub fn sequence_bytes(&self) -> u64 {
        self.home.meter.used_bytes()
    }

    /// Steps so far that were replays of a captured graph (CUDA).
    pub fn replayed_steps(&self) -> u64 {
        self.home.model.replayed_steps()
    }

    /// A new, empty sequence.
    ///
    /// # Errors
    /// When memory is short.
    pub fn sequence(&self) -> Result<Sequence, SequenceError> {
        Sequence::new(&self.home)
    }

    /// Executes one step. Results are one per entry, in order; a refused entry changes nothing and
    /// touches no other. A device fault invalidates the sequences that took part.
    pub fn forward(&self, batch: &mut Batch<'_>) -> Vec<Result<Output, SequenceError>> {
        self.forward_tapped(batch, None)
    }

    /// [`Engine::forward`] with captured activations: rows of all admitted entries, in order.
    pub fn forward_tapped(
        &self,
        batch: &mut Batch<'_>,
        taps: Option<&mut Taps>,
    ) -> Vec<Result<Output, SequenceError>> {
        let mut results: Vec<Result<Output, SequenceError>> = Vec::new();
        let mut step =
            Step { tokens: &[], spans: Vec::new(), phases: Vec::new(), wants: Vec::new() };
        let mut tokens: Vec<u32> = Vec::new();
        let mut admitted: Vec<usize> = Vec::new();
        let mut states: Vec<&mut dyn State> = Vec::new();
        let mut valid: Vec<&mut bool> = Vec::new();
        for (i, entry) in batch.entries.iter_mut().enumerate() {
            match self.admit(entry.sequence, entry.tokens, &entry.want, tokens.len()) {
                Ok(wants) => {
                    let start = tokens.len();
                    tokens.extend_from_slice(entry.tokens);
                    let position = entry.sequence.len_tokens();
                    step.spans.push(Span { rows: start..tokens.len(), position });
                    step.phases.push(entry.phase);
                    step.wants.extend(wants);
                    admitted.push(i);
                    states.push(entry.sequence.state.as_mut());
                    valid.push(&mut entry.sequence.valid);
                    results.push(Ok(Output::default()));
                }
                Err(error) => results.push(Err(error)),
            }
        }
        if admitted.is_empty() {
            return results;
        }
        step.tokens = &tokens;
        match self.home.model.step(&step, &mut states, taps) {
            Ok(rows) => {
                let mut rows = rows.into_iter();
                for ((i, span), valid) in admitted.into_iter().zip(&step.spans).zip(valid) {
                    let rows: Vec<RowOutput> = rows.by_ref().take(span.rows.len()).collect();
                    let mut found = rows.iter().enumerate();
                    let bad = found.find_map(|(row, output)| match output {
                        RowOutput::NonFinite(logits) => Some((row, *logits)),
                        _ => None,
                    });
                    results[i] = match bad {
                        None => Ok(Output { rows }),
                        Some((row, logits)) => {
                            *valid = false;
                            Err(SequenceError::NonFinite { position: span.position + row, logits })
                        }
                    };
                }
            }
            Err(fault) => {
                for (i, valid) in admitted.into_iter().zip(valid) {
                    *valid = false;
                    results[i] = Err(SequenceError::DeviceFault {
                        region: fault.region.clone(),
                        message: fault.message.clone(),
                    });
                }
            }
        }
        results
    }

    /// Checks an entry before any work and charges the memory it needs.
    fn admit(
        &self,
        sequence: &mut Sequence,
        tokens: &[u32],
        want: &Want,
        rows_before: usize,
    ) -> Result<Vec<RowWant>, SequenceError> {
        if !Arc::ptr_eq(&sequence.home, &self.home) {
            return Err(SequenceError::ForeignEngine);
        }
        sequence.check_valid()?;
        if tokens.is_empty() {
            return Err(SequenceError::NoTokens);
        }
        let vocab = self.descriptor.vocab;
        let in_range = |ids: &[u32]| match ids.iter().find(|id| **id as usize >= vocab) {
            Some(id) => Err(SequenceError::TokenOutOfRange { id: *id, vocab }),
            None => Ok(()),
        };
        in_range(tokens)?;
        let rows = tokens.len();
        let wants = want.rows(rows).map_err(|wants| SequenceError::WantCount { wants, rows })?;
        for want in &wants {
            if let RowWant::LogProbOf(ids) = want {
                in_range(ids)?;
            }
        }
        let end_tokens = sequence.len_tokens() + rows;
        if end_tokens > self.context_tokens {
            let limit_tokens = self.context_tokens;
            return Err(SequenceError::ContextFull { end_tokens, limit_tokens });
        }
        let rows = rows_before + rows;
        if rows > self.chunk_tokens {
            return Err(SequenceError::BatchFull { rows, limit_rows: self.chunk_tokens });
        }
        let model = &self.home.model;
        let pages = |len: usize| len.div_ceil(model.page_tokens()) as u64;
        let new_pages = pages(end_tokens) - pages(sequence.len_tokens());
        sequence.charge.grow(new_pages * model.page_bytes())?;
        Ok(wants)
    }

    /// Feeds a prompt in chunks; `want` applies to the last row.
    ///
    /// # Errors
    /// As [`Engine::forward`]; tokens of earlier chunks stay consumed.
    pub fn prefill(
        &self,
        sequence: &mut Sequence,
        tokens: &[u32],
        want: RowWant,
    ) -> Result<Output, SequenceError> {
        if tokens.is_empty() {
            return Err(SequenceError::NoTokens);
        }
        let end_tokens = sequence.len_tokens() + tokens.len();
        if end_tokens > self.context_tokens {
            let limit_tokens = self.context_tokens;
            return Err(SequenceError::ContextFull { end_tokens, limit_tokens });
        }
        let mut output = Output::default();
        let last = (tokens.len() - 1) / self.chunk_tokens;
        for (i, chunk) in tokens.chunks(self.chunk_tokens).enumerate() {
            let want = if i == last { Want::Last(want.clone()) } else { Want::Nothing };
            output = self.single(Phase::Prefill, sequence, chunk, want)?;
        }
        Ok(output)
    }

    /// Feeds one token.
    ///
    /// # Errors
    /// As [`Engine::forward`].
    pub fn decode(
        &self,
        sequence: &mut Sequence,
        token: u32,
        want: RowWant,
    ) -> Result<Output, SequenceError> {
        self.single(Phase::Decode, sequence, &[token], Want::Last(want))
    }

    /// Feeds tokens and returns something of every row.
    ///
    /// # Errors
    /// As [`Engine::forward`].
    pub fn verify_rows(
        &self,
        sequence: &mut Sequence,
        tokens: &[u32],
        want: RowWant,
    ) -> Result<Output, SequenceError> {
        self.single(Phase::Decode, sequence, tokens, Want::Every(want))
    }

    fn single(
        &self,
        phase: Phase,
        sequence: &mut Sequence,
        tokens: &[u32],
        want: Want,
    ) -> Result<Output, SequenceError> {
        let mut batch = Batch::new();
        batch.push_as(phase, sequence, tokens, want);
        self.forward(&mut batch).swap_remove(0)
    }
}
