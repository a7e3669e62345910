//! References on disk: `NAME.json` and `NAME.safetensors`, as `docs/references.md` describes them.

use super::bounds::{Bf16Noise, Threshold};
use crate::tensor::DType;
use crate::units::Hasher;
use crate::weights::Checkpoint;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What an independent implementation computed from a checkpoint.
#[derive(Debug)]
pub(super) struct Reference {
    path: PathBuf,
    pub(super) prompts: Vec<Prompt>,
    /// The prompt whose activations are kept.
    pub(super) tap_prompt: Option<String>,
    /// The prompt whose states are kept.
    pub(super) state_prompt: Option<String>,
    /// Digest of the weights, see [`weights_digest`].
    weights_digest: Option<String>,
    /// How far the same model in BF16 was from FP32.
    pub(super) noise: Option<Bf16Noise>,
    arrays: Checkpoint,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Prompt {
    pub(super) name: String,
    pub(super) ids: Vec<u32>,
    pub(super) greedy: Option<Greedy>,
}

/// A greedy continuation.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Greedy {
    pub(super) tokens: Vec<u32>,
    /// Gap between the two largest logits at each step.
    pub(super) margins: Vec<f64>,
}

/// FP32 values of the reference with their shape.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Array {
    pub(super) shape: Vec<usize>,
    pub(super) values: Vec<f32>,
}

/// Logits of every position of a prompt.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Logits {
    /// `[n, V]`.
    Full(Array),
    /// Some ids of every position, and the logsumexp of its whole row.
    Columns { ids: Vec<u32>, per_row: usize, values: Vec<f32>, logsumexp: Vec<f32> },
}

#[derive(Deserialize)]
struct File {
    prompts: Vec<FilePrompt>,
    #[serde(default)]
    greedy: BTreeMap<String, FileGreedy>,
    tap_prompt: Option<String>,
    state_prompt: Option<String>,
    weights_digest: Option<String>,
    measured: Option<FileMeasured>,
}

#[derive(Deserialize)]
struct FileMeasured {
    fp32_vs_bf16_worst: FileNoise,
}

#[derive(Deserialize)]
struct FileNoise {
    mean: Threshold,
    p99: Threshold,
    max: Threshold,
    max_before_flip: Option<Threshold>,
}

#[derive(Deserialize)]
struct FilePrompt {
    name: String,
    ids: Vec<u32>,
}

#[derive(Deserialize)]
struct FileGreedy {
    fp32: Vec<u32>,
    fp32_margin: Vec<f64>,
}

impl Reference {
    /// Opens `NAME.json` and the safetensors file beside it.
    ///
    /// # Errors
    /// A sentence that names the file and what is wrong with it.
    pub(super) fn open(path: &Path) -> Result<Reference, String> {
        let says = |what: String| format!("{}: {what}", path.display());
        let text = std::fs::read_to_string(path).map_err(|e| says(e.to_string()))?;
        let file: File = serde_json::from_str(&text).map_err(|e| says(e.to_string()))?;
        let numbers = path.with_extension("safetensors");
        let arrays = Checkpoint::open(&numbers).map_err(|e| e.to_string())?;
        Reference::new(path, file, arrays).map_err(says)
    }

    fn new(path: &Path, file: File, arrays: Checkpoint) -> Result<Reference, String> {
        let mut greedy = file.greedy;
        let mut names = BTreeSet::new();
        let mut prompts = Vec::new();
        for FilePrompt { name, ids } in file.prompts {
            if ids.is_empty() {
                return Err(format!("prompt `{name}` has no tokens"));
            }
            if !names.insert(name.clone()) {
                return Err(format!("prompt `{name}` occurs twice"));
            }
            let greedy = greedy.remove(&name).map(|g| checked_greedy(&name, g)).transpose()?;
            prompts.push(Prompt { name, ids, greedy });
        }
        if let Some(name) = greedy.into_keys().next() {
            return Err(format!("`greedy` names the prompt `{name}`, which is not in `prompts`"));
        }
        for name in file.tap_prompt.iter().chain(&file.state_prompt) {
            if !names.contains(name) {
                return Err(format!("`{name}` is kept taps or states of, but is not in `prompts`"));
            }
        }
        let state_prompt = file.state_prompt.or_else(|| file.tap_prompt.clone());
        let reference = Reference {
            path: path.to_owned(),
            prompts,
            tap_prompt: file.tap_prompt,
            state_prompt,
            weights_digest: file.weights_digest,
            noise: file.measured.map(|FileMeasured { fp32_vs_bf16_worst: n }| Bf16Noise {
                mean_abs: n.mean,
                p99_abs: n.p99,
                max_abs: n.max,
                max_abs_before_flip: n.max_before_flip,
            }),
            arrays,
        };
        let taps = !reference.names("tap.").is_empty();
        let states = !reference.names("state.").is_empty();
        match (taps && reference.tap_prompt.is_none(), states && reference.state_prompt.is_none()) {
            (true, _) => Err("there are `tap.` tensors, but no `tap_prompt`".into()),
            (_, true) => Err("there are `state.` tensors, but no `state_prompt`".into()),
            _ => Ok(reference),
        }
    }

    /// The file it was read from.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Names of tensors that begin with `prefix`, without it.
    pub(super) fn names(&self, prefix: &str) -> Vec<String> {
        let names = self.arrays.tensors().map(|(name, _)| name);
        names.filter_map(|n| n.strip_prefix(prefix)).map(str::to_owned).collect()
    }

    /// Whether logits of a prompt are kept, whole or as columns.
    pub(super) fn has_logits(&self, prompt: &str) -> bool {
        let kept = |name: String| self.arrays.tensor(&name).is_some();
        kept(format!("logits.{prompt}.f32")) || kept(format!("columns.{prompt}.index"))
    }

    /// An F32 tensor.
    ///
    /// # Errors
    /// It is missing, of another type, or holds a number that is not finite.
    pub(super) fn array(&self, name: &str) -> Result<Array, String> {
        let bytes = self.typed(name, DType::F32)?;
        let values: Vec<f32> =
            bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        if let Some(at) = values.iter().position(|x| !x.is_finite()) {
            return Err(self.says(name, format!("element {at} is {}", values[at])));
        }
        let shape = self.arrays.tensor(name).map(|e| e.shape.clone()).unwrap_or_default();
        Ok(Array { shape, values })
    }

    /// An I32 tensor of ids, as numbers; `None` if the tensor is of another type.
    ///
    /// # Errors
    /// A negative id.
    pub(super) fn ids(&self, name: &str) -> Result<Option<Array>, String> {
        let entry = self.arrays.tensor(name).filter(|e| e.dtype == DType::I32);
        let Some(entry) = entry else { return Ok(None) };
        let bytes = self.typed(name, DType::I32)?;
        let ids = bytes.as_chunks::<4>().0.iter().map(|b| i32::from_le_bytes(*b));
        let values = ids
            .map(|id| if id < 0 { Err(self.says(name, format!("id {id}"))) } else { Ok(id as f32) })
            .collect::<Result<Vec<f32>, String>>()?;
        Ok(Some(Array { shape: entry.shape.clone(), values }))
    }

    /// The logits of a prompt.
    ///
    /// # Errors
    /// As [`Reference::array`]; or shapes that contradict the prompt.
    pub(super) fn logits(&self, prompt: &Prompt) -> Result<Logits, String> {
        let rows = prompt.ids.len();
        let full = format!("logits.{}.f32", prompt.name);
        if self.arrays.tensor(&full).is_some() {
            let array = self.array(&full)?;
            self.check_shape(&full, &array.shape, rows, 2)?;
            return Ok(Logits::Full(array));
        }
        let index = format!("columns.{}.index", prompt.name);
        let bytes = self.typed(&index, DType::I32)?;
        let words = bytes.as_chunks::<4>().0.iter().map(|b| i32::from_le_bytes(*b));
        let ids = words
            .map(|id| u32::try_from(id).map_err(|_| self.says(&index, format!("id {id}"))))
            .collect::<Result<Vec<u32>, String>>()?;
        let name = format!("columns.{}.f32", prompt.name);
        let values = self.array(&name)?;
        self.check_shape(&name, &values.shape, rows, 2)?;
        if values.values.len() != ids.len() {
            return Err(
                self.says(&name, format!("{} ids, {} values", ids.len(), values.values.len()))
            );
        }
        let name = format!("logsumexp.{}.f32", prompt.name);
        let logsumexp = self.array(&name)?;
        self.check_shape(&name, &logsumexp.shape, rows, 1)?;
        let per_row = ids.len() / rows;
        Ok(Logits::Columns { ids, per_row, values: values.values, logsumexp: logsumexp.values })
    }

    /// Why logits of `checkpoint` need not agree at all: its weights are not the reference's.
    /// Reads every byte, so it is asked only once something has failed.
    pub(super) fn foreign_weights(&self, checkpoint: &Checkpoint) -> Option<String> {
        let expected = self.weights_digest.as_ref()?;
        let found = weights_digest(checkpoint);
        (*expected != found).then(|| {
            format!(
                "the reference was computed from other weights (digest {}…, these are {}…)",
                &expected[..expected.len().min(12)],
                &found[..12]
            )
        })
    }

    fn typed(&self, name: &str, dtype: DType) -> Result<&[u8], String> {
        let Some(entry) = self.arrays.tensor(name) else {
            return Err(self.says(name, "is missing".into()));
        };
        if entry.dtype != dtype {
            return Err(self.says(name, format!("is {}, expected {dtype}", entry.describe())));
        }
        Ok(self.arrays.bytes(name).unwrap_or_default())
    }

    /// `[rows, …]` with `rank` axes, none of them empty.
    fn check_shape(
        &self,
        name: &str,
        shape: &[usize],
        rows: usize,
        rank: usize,
    ) -> Result<(), String> {
        if shape.len() == rank && shape[0] == rows && !shape.contains(&0) {
            return Ok(());
        }
        Err(self.says(name, format!("is {shape:?}, expected {rank} axes, the first of {rows}")))
    }

    fn says(&self, tensor: &str, what: String) -> String {
        format!("{}: tensor `{tensor}`: {what}", self.arrays.main_file().display())
    }
}

fn checked_greedy(name: &str, greedy: FileGreedy) -> Result<Greedy, String> {
    let (tokens, margins) = (greedy.fp32, greedy.fp32_margin);
    if tokens.is_empty() || tokens.len() != margins.len() {
        let counts = format!("{} tokens and {} margins", tokens.len(), margins.len());
        return Err(format!(
            "`greedy.{name}` has {counts}; expected the same number, at least one"
        ));
    }
    match margins.iter().find(|m| !(m.is_finite() && **m >= 0.0)) {
        Some(margin) => Err(format!("`greedy.{name}.fp32_margin` holds {margin}")),
        None => Ok(Greedy { tokens, margins }),
    }
}

/// SHA-256 over every stored tensor in name order: name, type, shape, bytes. File layout and
/// shards do not matter. `scripts/make_reference.py` computes the same.
pub(super) fn weights_digest(checkpoint: &Checkpoint) -> String {
    let mut hasher = Hasher::new();
    for (name, entry) in checkpoint.tensors() {
        let shape: Vec<String> = entry.shape.iter().map(usize::to_string).collect();
        hasher.update(format!("{name}\n{}\n{}\n", entry.dtype, shape.join(",")).as_bytes());
        hasher.update(checkpoint.bytes(name).unwrap_or_default());
    }
    hasher.finish().to_string()
}
