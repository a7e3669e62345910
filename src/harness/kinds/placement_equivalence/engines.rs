//! One device and its ranks, made from the same weights.

use crate::backend::DeviceKind;
use crate::descriptor::Descriptor;
use crate::engine::{Engine, EngineOptions};
use crate::harness::kind::{Cell, RunContext};
use crate::harness::kinds::packing::Packing;
use crate::harness::kinds::placement_plan::{Ranks, read};
use crate::weights::{Model, WeightSet, synth, synth_quantised};
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::PathBuf;
use std::sync::Arc;

/// Where a model comes from.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Source {
    /// A checkpoint folder.
    Dir(PathBuf),
    /// Synthetic weights of a descriptor file, or of a folder with a `config.json`.
    Synth {
        descriptor: PathBuf,
        seed: u64,
        /// Roles packed into four bits before the ranks take their parts.
        #[serde(default)]
        int4: Option<Packing>,
    },
}

/// A descriptor with weights.
#[derive(Debug)]
pub(super) struct Weighted {
    pub(super) descriptor: Arc<Descriptor>,
    pub(super) weights: WeightSet,
}

impl Source {
    pub(super) fn name(&self) -> String {
        match self {
            Source::Dir(dir) => dir.display().to_string(),
            Source::Synth { descriptor, seed, int4 } => {
                let packed = int4.as_ref().map_or(String::new(), |p| format!(" {p:?}"));
                format!("{} {seed}{packed}", descriptor.display())
            }
        }
    }

    /// The weights, kept for the trials of a worker.
    pub(super) fn weighted(&self, context: &RunContext) -> Result<Arc<Weighted>, String> {
        let key = format!("weights {}", self.name());
        context.cache.get_or_make(&key, || match self {
            Source::Dir(dir) => {
                let model = Model::open(context.path(dir)).map_err(|e| e.to_string())?;
                let weights = model.checkpoint.load(&model.descriptor);
                let weights = weights.map_err(|e| e.to_string())?;
                Ok(Weighted { descriptor: Arc::new(model.descriptor), weights })
            }
            Source::Synth { descriptor, seed, int4 } => {
                let descriptor = read(&context.path(descriptor))?;
                let weights = match int4 {
                    None => synth(&descriptor, *seed),
                    Some(packed) => synth_quantised(&descriptor, *seed, &packed.recipe()?)
                        .map_err(|e| e.to_string())?,
                };
                Ok(Weighted { descriptor: Arc::new(descriptor), weights })
            }
        })
    }
}

impl Weighted {
    /// An engine of these ranks; `None` for one device.
    pub(super) fn engine(
        &self,
        ranks: Option<&Ranks>,
        cell: &Cell,
        context: &RunContext,
    ) -> Result<Engine, String> {
        if cell.device != DeviceKind::Cpu {
            return Err(format!("ranks run on the CPU, not on {}", cell.device));
        }
        let options = EngineOptions {
            placement: ranks.map(Ranks::request),
            threads: Some(context.threads),
            poison: true,
            ..EngineOptions::with_policy(cell.policy.ok_or("the cell has no policy")?)
        };
        Engine::new(Arc::clone(&self.descriptor), &self.weights, &options)
            .map_err(|e| e.to_string())
    }
}
