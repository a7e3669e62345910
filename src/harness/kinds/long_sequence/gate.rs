//! The gate: a trial per cut, and one for the text where the file asks for it.

use super::bitwise::{Trace, compare, execute};
use super::quality::{Measured, Quality};
use crate::backend::cpu::Softmax64;
use crate::backend::{DeviceKind, Policy};
use crate::generation::{ControlTokens, TextTokenizer};
use crate::harness::kind::{
    Case, Cell, DeviceUse, Fault, GateKind, KindSpec, Outcome, PlanScope, PolicyUse, RunContext,
};
use crate::harness::kinds::loaded::{Loaded, load};
use crate::harness::plan::Matrix;
use crate::harness::spec::NonEmpty;
use crate::units::SplitMix64;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A long prompt in two pieces and at once, and a long continuation: every row has the same bits.
/// With `quality`, the continuation does not collapse and the text's tail is as likely as its start.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::harness::kinds) struct LongSequence {
    /// Folder of the checkpoint.
    model: Option<PathBuf>,
    /// Tokens of the prompt.
    prompt_tokens: usize,
    /// Where it is cut in two, one trial each.
    cut_tokens: NonEmpty<usize>,
    /// Tokens of the continuation.
    continuation_tokens: usize,
    /// Draws prompts from the vocabulary where there is no text, and continuations.
    seed: u64,
    /// A text whose first tokens are the prompt.
    text: Option<PathBuf>,
    /// What is asked of the text and its continuation.
    quality: Option<Quality>,
}

impl KindSpec for LongSequence {
    const NAME: &'static str = "long_sequence";
    const DEVICE: DeviceUse = DeviceUse::Any;
    const POLICY: PolicyUse = PolicyUse::Listed;
}

impl GateKind for LongSequence {
    fn cases(&self, _scope: &PlanScope) -> Result<Vec<Case>, Fault> {
        if let Some(cut) = self.cut_tokens.iter().find(|c| **c == 0 || **c >= self.prompt_tokens) {
            let message = format!("{cut} cuts a prompt of {} tokens nowhere", self.prompt_tokens);
            return Err(Fault::at("cut_tokens", message));
        }
        if self.continuation_tokens == 0 {
            return Err(Fault::at("continuation_tokens", "nothing would be continued"));
        }
        if self.quality.is_some() && self.text.is_none() {
            return Err(Fault::at("quality", "quality is asked of a text; give `text`"));
        }
        if let Some(q) = &self.quality {
            let numbers = [
                q.temperature,
                q.distinct_4gram_share_at_least,
                q.tail_excess_at_most_nats,
                q.continuation_excess_at_most_nats,
            ];
            if numbers.iter().any(|n| !n.is_finite() || *n <= 0.0) {
                return Err(Fault::at("quality", "thresholds are positive and finite"));
            }
        }
        let mut cases = Matrix::new().axis("cut", &self.cut_tokens).cases(["bitwise".to_owned()]);
        if self.quality.is_some() {
            cases.push(Case::named("text"));
        }
        Ok(cases)
    }

    /// A policy whose bits depend on how rows are cut into steps makes no such claim.
    fn not_applicable(&self, device: DeviceKind, policy: Policy) -> Option<String> {
        policy.no_invariance(device)
    }

    fn run(&self, cell: &Cell, context: &RunContext) -> Outcome {
        self.decide(cell, context).unwrap_or_else(Outcome::error)
    }

    fn group(&self, cell: &Cell) -> Option<String> {
        let model = self.model.as_ref()?;
        Some(format!("{} {:?}", model.display(), cell.policy))
    }
}

impl LongSequence {
    fn decide(&self, cell: &Cell, context: &RunContext) -> Result<Outcome, String> {
        let model = self.model.as_ref().ok_or("the gate names no model; give --set model=DIR")?;
        let folder = context.path(model);
        let loaded = load(&folder, cell, context)?;
        let prompt = self.prompt(&folder, &loaded, context)?;
        if cell.case.as_deref() == Some("text") {
            let quality = self.quality.as_ref().ok_or("the gate asks nothing of the text")?;
            return self.read(&folder, &loaded, &prompt, quality);
        }
        let policy = cell.axis("policy").unwrap_or_default();
        let further = self.continuation_tokens;
        let key =
            format!("long {} {} {policy} {prompt:?} {further}", folder.display(), cell.device);
        let whole: Arc<Trace> =
            context.cache.get_or_make(&key, || execute(&loaded, &prompt, &[], further))?;
        let cut = execute(&loaded, &prompt, &[cell.read("cut")?], further)?;
        let all: Vec<u32> = prompt.iter().chain(&whole.tokens).copied().collect();
        let forced = execute(&loaded, &all, &[], 0)?;
        Ok(compare(prompt.len(), &whole, &cut, &forced))
    }

    /// The prompt's ids: of the text, or drawn from the vocabulary.
    fn prompt(
        &self,
        folder: &Path,
        loaded: &Loaded,
        context: &RunContext,
    ) -> Result<Vec<u32>, String> {
        let Some(text) = &self.text else {
            let vocab = loaded.engine.descriptor().vocab as u64;
            let mut words = SplitMix64::new(self.seed);
            return Ok((0..self.prompt_tokens)
                .map(|_| (words.next_word() % vocab) as u32)
                .collect());
        };
        let path = context.path(text);
        let text =
            std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let tokenizer = tokenizer(folder)?;
        let ids = tokenizer.encode(&text, ControlTokens::AsText).map_err(|e| e.to_string())?;
        match ids.get(..self.prompt_tokens) {
            Some(ids) => Ok(ids.to_vec()),
            None => Err(format!(
                "{} has {} tokens, {} are needed",
                path.display(),
                ids.len(),
                self.prompt_tokens
            )),
        }
    }

    fn read(
        &self,
        folder: &Path,
        loaded: &Loaded,
        prompt: &[u32],
        quality: &Quality,
    ) -> Result<Outcome, String> {
        let mut sequence = loaded.sequence()?;
        let mut logits = loaded.logits(&mut sequence, prompt)?;
        let mut nll_nats = Vec::new();
        for (row, next) in logits.iter().zip(&prompt[1..]) {
            let softmax = Softmax64::new(row, 1.0).map_err(|e| e.to_string())?;
            nll_nats.push(-softmax.log_prob(*next).map_err(|e| e.to_string())?);
        }
        let mut words = SplitMix64::new(self.seed);
        let (mut continuation, mut continuation_nats) = (Vec::new(), Vec::new());
        for _ in 0..self.continuation_tokens {
            let row = logits.last().ok_or("no logits came back")?;
            let softmax = Softmax64::new(row, quality.temperature).map_err(|e| e.to_string())?;
            let id = softmax.select(words.next_unit());
            continuation.push(id);
            let plain = Softmax64::new(row, 1.0).map_err(|e| e.to_string())?;
            continuation_nats.push(-plain.log_prob(id).map_err(|e| e.to_string())?);
            logits = loaded.logits(&mut sequence, &[id])?;
        }
        let text = tokenizer(folder)?.decode(&continuation, true).map_err(|e| e.to_string())?;
        let measured = Measured { nll_nats, continuation, continuation_nats };
        Ok(measured.judge(quality).with("continuation", text))
    }
}

fn tokenizer(folder: &Path) -> Result<TextTokenizer, String> {
    let file = folder.join("tokenizer.json");
    TextTokenizer::open(&file).map_err(|e| format!("{}: {e}", file.display()))
}
