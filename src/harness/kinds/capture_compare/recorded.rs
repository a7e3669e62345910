//! Recording the two captures of a comparison.

use super::edit::Edit;
use crate::backend::Policy;
use crate::engine::manifest::{Execution, RunFacts};
use crate::engine::{Engine, EngineOptions};
use crate::harness::capture::{Capture, Prompt, RecordOptions, record};
use crate::harness::kind::RunContext;
use crate::harness::{Cache, NonEmpty};
use crate::units::{BUILD, Build};
use crate::weights::{LoadOptions, Model, WeightSet};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How one capture is recorded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Side {
    pub(super) policy: Option<Policy>,
    pub(super) chunk_tokens: Option<usize>,
    pub(super) edit: Option<Edit>,
}

impl Side {
    /// Recorded plainly.
    pub(super) const PLAIN: Side = Side { policy: None, chunk_tokens: None, edit: None };
}

/// What both captures have in common.
#[derive(Debug)]
pub(super) struct Base {
    model: Arc<(Model, WeightSet)>,
    prompts: Vec<Prompt>,
    options: RecordOptions,
    run: RunFacts,
    scratch: PathBuf,
    cache: Arc<Cache>,
    /// Names the plain capture of this model, these prompts and this worker.
    plain_key: String,
}

impl Base {
    /// Loads the model, or finds it loaded.
    pub(super) fn open(
        folder: &Path,
        prompts: &BTreeMap<String, NonEmpty<u32>>,
        greedy_steps: usize,
        context: &RunContext,
    ) -> Result<Base, String> {
        let key = format!("captured model {}", folder.display());
        let model = context.cache.get_or_make(&key, || {
            let model = Model::open(folder).map_err(|e| e.to_string())?;
            let weights = model.load(&LoadOptions::default()).map_err(|e| e.to_string())?;
            Ok::<_, String>((model, weights))
        })?;
        let plain_key = format!("plain capture {} {greedy_steps} {prompts:?}", folder.display());
        let prompts = prompts.iter().map(|(name, ids)| Prompt {
            name: name.clone(),
            token_ids: ids.to_vec(),
            text: None,
        });
        let mut run = RunFacts::probe(context.threads, None);
        // The table is under test, not this machine: what it needs established is.
        run.machine.cpu.model.get_or_insert("a processor".into());
        Ok(Base {
            cache: context.cache.clone(),
            plain_key,
            model,
            prompts: prompts.collect(),
            options: RecordOptions {
                greedy_steps,
                all_positions: true,
                taps: true,
                tap_names: Vec::new(),
                states: true,
            },
            run,
            scratch: context.scratch.clone(),
        })
    }

    /// One capture, opened: recorded, or a copy of the plain one if it is the left one or the
    /// difference is made in the file. A right one without an edit is always recorded, so that two
    /// executions are compared.
    pub(super) fn capture(&self, side: &Side, name: &str) -> Result<Capture, String> {
        let path = self.scratch.join(format!("{name}.safetensors"));
        let plain = side.policy.is_none() && side.chunk_tokens.is_none();
        let copied = side.edit.map_or(name == "left", Edit::in_the_file);
        if plain && copied {
            let bytes = self.cache.get_or_make(&self.plain_key, || {
                self.record(&Side::PLAIN, &path)?;
                std::fs::read(&path).map_err(|e| e.to_string())
            })?;
            std::fs::write(&path, bytes.as_slice()).map_err(|e| e.to_string())?;
        } else {
            self.record(side, &path)?;
        }
        let path = match side.edit {
            Some(edit) => edit.file(&path)?,
            None => path,
        };
        Capture::open(&path).map_err(|e| e.to_string())
    }

    fn record(&self, side: &Side, path: &Path) -> Result<(), String> {
        let (model, weights) = &*self.model;
        let defaults = EngineOptions::default();
        let options = EngineOptions {
            policy: side.policy.unwrap_or(Policy::Reference),
            threads: Some(self.run.threads),
            chunk_tokens: side.chunk_tokens.unwrap_or(defaults.chunk_tokens),
            ..defaults
        };
        let engine = Engine::new(Arc::new(model.descriptor.clone()), weights, &options)
            .map_err(|e| e.to_string())?;
        let mut execution =
            Execution::of(&engine, weights.source(), Some(&model.checkpoint), self.run.threads);
        execution.run = self.run.clone();
        execution.build = Build {
            git_revision: "1111111111111111111111111111111111111111",
            git_dirty: Some(false),
            ..BUILD
        };
        let (mut prompts, mut options) = (self.prompts.clone(), self.options.clone());
        if let Some(edit) = side.edit {
            edit.inputs(&mut prompts, &mut options);
            edit.facts(&mut execution);
        }
        let go_on = &mut |_| ControlFlow::Continue(());
        record(&engine, &execution.manifest(), &prompts, &options, path, go_on)
            .map(|_| ())
            .map_err(|e| e.to_string())
    }
}
