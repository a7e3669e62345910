//! Measures the quality of every candidate of a run.

use super::quality::{Figures, QualityMetric, QualityRecord, QualitySpec};
use super::run::{RunError, Runner, Watch};
use super::worker::{Load, ModelSource};
use super::{BASELINE, ScenarioFile};
use crate::engine::{Engine, EngineOptions};
use crate::generation::{Evaluation, TextTokenizer, Windows, evaluate};
use crate::units::Digest;
use crate::weights::{LoadOptions, Model, Prefill, Recipe, WeightSet};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

impl Runner<'_> {
    /// Measures quality where the file asks for it and no earlier part of the run did. What cannot be
    /// measured makes the run invalid.
    pub(super) fn measure_quality(&mut self, watch: &mut dyn Watch) -> Result<(), RunError> {
        let file = self.request.file;
        let Some(spec) = &file.spec.quality else { return Ok(()) };
        if self.content.run.quality.is_some() {
            return Ok(());
        }
        let plan = self.content.run.plan.clone();
        // Arms of other builds and peers execute elsewhere.
        let here = |arm: &&str| !self.request.builds.contains_key(*arm);
        let arms: BTreeMap<String, Load> =
            plan.arms().filter(here).map(|arm| (arm.to_owned(), self.load(arm, &plan))).collect();
        let mut step = |doing: &str| {
            watch.progress(0, 1, doing);
            !watch.stopped()
        };
        let found = measure(file, &spec.value, &self.request.model, &arms, &mut step);
        if watch.stopped() {
            return Ok(());
        }
        match found {
            Ok(record) => self.content.run.quality = Some(record),
            Err(e) => {
                self.content.run.refusals.push(format!("quality could not be measured: {e}"));
            }
        }
        self.store.update(&self.content.run)?;
        Ok(())
    }
}

/// Measures what the file asks for; told what is done, and asked whether to stop.
///
/// # Errors
/// In words: a file that cannot be read, a model that is refused, an engine that fails.
fn measure(
    file: &ScenarioFile,
    spec: &QualitySpec,
    model: &ModelSource,
    arms: &BTreeMap<String, Load>,
    watch: &mut dyn FnMut(&str) -> bool,
) -> Result<QualityRecord, String> {
    let unavailable = |reason: &str| Ok(QualityRecord::Unavailable { reason: reason.into() });
    let ModelSource::Folder { path: folder } = model else {
        return unavailable(
            "the weights are synthetic: nobody trained them, so they have no quality",
        );
    };
    let tokenizer = folder.join("tokenizer.json");
    if !tokenizer.is_file() {
        return unavailable("the model has no tokenizer.json");
    }
    let corpus = file.path.parent().unwrap_or(Path::new("")).join(&spec.corpus);
    let text =
        std::fs::read_to_string(&corpus).map_err(|e| format!("{}: {e}", corpus.display()))?;
    let tokenizer = TextTokenizer::open(&tokenizer).map_err(|e| e.to_string())?;
    let (prefix, mut tokens) = tokenizer.encode_apart(&text).map_err(|e| e.to_string())?;
    tokens.truncate(spec.corpus_tokens);
    let windows = Windows::new(prefix, tokens, spec.window_tokens).map_err(|e| e.to_string())?;

    let model = Model::open(folder).map_err(|e| e.to_string())?;
    let weights = model.load(&LoadOptions::default()).map_err(|e| e.to_string())?;
    let bench = Bench { model, weights, windows };
    let baseline = bench.engine(&arms[BASELINE], None)?;
    let asks_for_prefill = |arm: &str| {
        spec.budgets.iter().any(|b| {
            b.metric == QualityMetric::PrefillLogits && b.arm.as_deref().is_none_or(|a| a == arm)
        })
    };
    let mut figures = BTreeMap::new();
    let mut baseline_nll_nats = 0.0;
    let mut scored_tokens = 0;
    for (name, arm) in arms.iter().filter(|(name, _)| *name != BASELINE) {
        let mut step =
            |done: usize, of: usize| watch(&format!("quality of {name}: {done} of {of} tokens"));
        // Rows as decode computes them, whatever prefill reads.
        let decode = arm.recipe.clone();
        let decode = decode.map(|recipe| Recipe { prefill: Prefill::Packed, ..recipe });
        let engine = bench.engine(arm, decode.as_ref())?;
        let found = bench.evaluate(&engine, &baseline, &mut step)?;
        let mut of_arm = Figures::of(&found).ok_or("nothing was compared")?;
        baseline_nll_nats = found.agreement.map_or(0.0, |a| a.reference_nll_mean);
        scored_tokens = found.scored_tokens;
        if asks_for_prefill(name) {
            let engine = bench.engine(arm, arm.recipe.as_ref())?;
            let found = bench.evaluate(&engine, &baseline, &mut step)?;
            of_arm.prefill_max_abs = found.agreement.map(|a| a.logit_max_abs);
        }
        figures.insert(name.clone(), of_arm);
    }
    Ok(QualityRecord::Measured {
        corpus: corpus.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        corpus_sha256: Digest::of(text.as_bytes()).to_string(),
        window_tokens: spec.window_tokens,
        scored_tokens,
        baseline_nll_nats,
        arms: figures,
        budgets: spec.budgets.clone(),
    })
}

/// The model and the text.
struct Bench {
    model: Model,
    weights: WeightSet,
    windows: Windows,
}

impl Bench {
    fn engine(&self, arm: &Load, recipe: Option<&Recipe>) -> Result<Engine, String> {
        let descriptor = &self.model.descriptor;
        let weights = match recipe {
            Some(recipe) => {
                self.weights.clone().quantise(descriptor, recipe).map_err(|e| e.to_string())?
            }
            None => self.weights.clone(),
        };
        let options =
            EngineOptions { threads: Some(arm.threads), ..EngineOptions::with_policy(arm.policy) };
        Engine::new(Arc::new(descriptor.clone()), &weights, &options).map_err(|e| e.to_string())
    }

    fn evaluate(
        &self,
        engine: &Engine,
        baseline: &Engine,
        step: &mut dyn FnMut(usize, usize) -> bool,
    ) -> Result<Evaluation, String> {
        let mut progress = |done: usize, of: usize| match step(done, of) {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        };
        evaluate(engine, &self.windows, Some(baseline), &mut progress).map_err(|e| e.to_string())
    }
}
