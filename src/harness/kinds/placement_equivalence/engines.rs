//! One device and its ranks, made from the same weights.

use crate::backend::DeviceKind;
use crate::descriptor::Descriptor;
use crate::engine::{Engine, EngineOptions};
use crate::harness::kind::{Cell, RunContext};
use crate::harness::kinds::packing::Packing;
use crate::harness::kinds::placement_plan::{Ranks, read};
use crate::weights::{Model, WeightSet, synth, synth_quantised};
use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::ops::Deref;
use std::path::{Path, PathBuf};
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

/// A model as gates spell it: a [`Source`], or the path of a checkpoint folder alone, as `--set model=DIR`
/// gives it.
#[derive(Clone, Debug)]
pub(super) struct ModelSource(Source);

impl Deref for ModelSource {
    type Target = Source;

    fn deref(&self) -> &Source {
        &self.0
    }
}

impl<'de> Deserialize<'de> for ModelSource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ModelSource, D::Error> {
        struct Form;

        impl<'de> Visitor<'de> for Form {
            type Value = Source;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the path of a checkpoint folder, `{ dir: … }` or `{ synth: … }`")
            }

            fn visit_str<E: Error>(self, path: &str) -> Result<Source, E> {
                Ok(Source::Dir(path.into()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Source, A::Error> {
                Source::deserialize(MapAccessDeserializer::new(map))
            }
        }

        deserializer.deserialize_any(Form).map(ModelSource)
    }
}

impl JsonSchema for ModelSource {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ModelSource".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let source = generator.subschema_for::<Source>();
        schemars::json_schema!({ "anyOf": [{ "type": "string" }, source] })
    }
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

    /// The descriptor, where its file can be read: what is wrong with it is said when it is executed.
    pub(super) fn descriptor(&self, base: &Path) -> Option<Descriptor> {
        let (Source::Dir(path) | Source::Synth { descriptor: path, .. }) = self;
        read(&base.join(path)).ok()
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
