//! What is checked of a conversion.

use super::bench::{Logits, Running, Words, contents, open, pack, start, with_prefill, words};
use super::values::{self, Quality};
use crate::backend::Policy;
use crate::engine::manifest::BlockName;
use crate::harness::kind::Outcome;
use crate::harness::spec::Tolerance;
use crate::tensor::Storage;
use crate::weights::{Check, Prefill, Recipe, SIDECAR, Sidecar, WeightSet, verify};
use serde::Deserialize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Large enough for one file.
pub(super) const ONE_FILE: u64 = 1 << 40;
/// Small enough for several.
const SMALL_FILES: u64 = 40_000;

macro_rules! claims {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// One claim about a conversion.
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize,
            schemars::JsonSchema,
        )]
        pub(super) enum Claim { $($(#[$doc])* #[serde(rename = $name)] $variant,)* }

        impl Claim {
            /// Every claim.
            pub(super) const ALL: &'static [Claim] = &[$(Claim::$variant),*];

            /// The name in gate files and trials.
            pub(super) fn name(self) -> &'static str {
                match self { $(Claim::$variant => $name),* }
            }
        }
    };
}

claims! {
    /// The folder gives the weights, digest and logits of the same weights packed in memory, in one
    /// file and in several.
    AsInMemory = "as_in_memory",
    /// With the BF16 weights kept, logits of a prompt are those of the model before, for any
    /// chunking; those after it are not.
    PrefillUnchanged = "prefill_unchanged",
    /// The manifest differs in `numerical_policy` and `weights_artifact` alone.
    TwoIdentities = "two_identities",
    /// A conversion that was killed goes on, and ends in the same bytes.
    Resumed = "resumed",
    /// The source has the bytes it had.
    SourceUntouched = "source_untouched",
    /// A verification holds, and notices a changed code, a changed source and a foreign source.
    Verified = "verified",
    /// Packing the values of the packed weights gives their codes and scales.
    FixedPoint = "fixed_point",
    /// Logits are those of a model of the dequantised weights: the same bits where a policy unpacks
    /// them, within `fast` under `fast`.
    OfDequantised = "of_dequantised",
    /// What the model predicts moves no further than `quality` allows.
    Quality = "quality",
}

/// What a check works with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subject<'a> {
    pub(super) model: &'a Path,
    pub(super) recipe: &'a Recipe,
    pub(super) policy: Policy,
    pub(super) threads: usize,
    pub(super) scratch: &'a Path,
    pub(super) fast: Option<&'a Tolerance>,
    pub(super) quality: Option<&'a Quality>,
}

impl Claim {
    /// Decides the claim.
    pub(super) fn decide(self, s: Subject<'_>) -> Words<Outcome> {
        match self {
            Claim::AsInMemory => as_in_memory(s),
            Claim::PrefillUnchanged => prefill_unchanged(s),
            Claim::TwoIdentities => two_identities(s),
            Claim::Resumed => resumed(s),
            Claim::SourceUntouched => source_untouched(s),
            Claim::Verified => verified(s),
            Claim::FixedPoint => values::fixed_point(s),
            Claim::OfDequantised => values::of_dequantised(s, s.fast),
            Claim::Quality => values::quality(s, s.quality),
        }
    }
}

fn memory(s: Subject<'_>, prefill: Prefill) -> Words<Running> {
    let (model, weights) = open(s.model)?;
    let recipe = with_prefill(s.recipe, prefill);
    let weights = weights.quantise(&model.descriptor, &recipe).map_err(words)?;
    start((model, weights), s.policy, s.threads)
}

fn as_in_memory(s: Subject<'_>) -> Words<Outcome> {
    let (model, weights) = open(s.model)?;
    let expected = weights.quantise(&model.descriptor, s.recipe).map_err(words)?;
    let digest = expected.artifact().map(|a| a.digest);
    let running = start((model, expected.clone()), s.policy, s.threads)?;
    let logits = running.logits(4)?;
    for (name, size) in [("one", ONE_FILE), ("several", SMALL_FILES)] {
        let out = s.scratch.join(name);
        pack(s.model, &out, s.recipe, size, None)?;
        let (packed, found) = open(&out)?;
        if found.artifact().map(|a| a.digest) != digest {
            return Ok(Outcome::fail(format!("{name}: the artifact has another digest")));
        }
        if let Some(problem) = other_weights(&expected, &found) {
            return Ok(Outcome::fail(format!("{name}: {problem}")));
        }
        let files = packed.checkpoint.files().count();
        if (files > 1) != (name == "several") {
            return Err(format!("{files} files were written for `{name}`"));
        }
        let found = start((packed, found), s.policy, s.threads)?.logits(4)?;
        if found != logits {
            return Ok(Outcome::fail(format!("{name}: other logits than from memory")));
        }
    }
    let digest = digest.map(|d| d.to_string()).unwrap_or_default();
    Ok(Outcome::pass("the same weights and logits").with("artifact", digest))
}

/// The first packed weight in which two sets differ.
fn other_weights(expected: &WeightSet, found: &WeightSet) -> Option<String> {
    let mut compared = 0;
    for (role, layer, weight) in expected.iter() {
        let Storage::Int4(wanted) = &weight.storage else { continue };
        let Some(Storage::Int4(found)) = found.get(role, layer).map(|w| &w.storage) else {
            return Some(format!("{role} {layer:?} is not packed"));
        };
        if (&wanted.codes[..], &wanted.scales[..]) != (&found.codes[..], &found.scales[..]) {
            return Some(format!("{role} {layer:?} has other codes or scales"));
        }
        compared += 1;
    }
    (compared == 0).then(|| "nothing is packed".into())
}

fn prefill_unchanged(s: Subject<'_>) -> Words<Outcome> {
    let before = start(open(s.model)?, s.policy, s.threads)?;
    let out = s.scratch.join("kept");
    pack(s.model, &out, &with_prefill(s.recipe, Prefill::Bf16), ONE_FILE, None)?;
    let kept = start(open(&out)?, s.policy, s.threads)?;
    let packed = memory(s, Prefill::Packed)?.logits(4)?;
    for chunk in [1, 4, 9] {
        let outcome = decide_prefill(&before.logits(chunk)?, &kept.logits(chunk)?, &packed);
        if let Some(problem) = outcome {
            return Ok(Outcome::fail(format!("in chunks of {chunk}: {problem}")));
        }
    }
    Ok(Outcome::pass("prefill is bitwise unchanged in chunks of 1, 4 and 9"))
}

/// What is wrong with logits of kept BF16 weights, if anything.
pub(super) fn decide_prefill(before: &Logits, kept: &Logits, packed: &Logits) -> Option<String> {
    if kept.prefill != before.prefill {
        return Some("the prompt's logits have changed".into());
    }
    if packed.prefill == before.prefill {
        return Some("packing changes nothing of this prompt, so nothing is shown".into());
    }
    if kept.decode.iter().zip(&before.decode).any(|(kept, before)| kept == before) {
        return Some("a decoded row has the logits of the BF16 weights".into());
    }
    None
}

fn two_identities(s: Subject<'_>) -> Words<Outcome> {
    let before = start(open(s.model)?, s.policy, s.threads)?;
    let out = s.scratch.join("packed");
    pack(s.model, &out, s.recipe, SMALL_FILES, None)?;
    let packed = start(open(&out)?, s.policy, s.threads)?;
    let moved = before.moved(&packed);
    let wanted = [BlockName::NumericalPolicy, BlockName::WeightsArtifact];
    let names = |blocks: &[BlockName]| {
        blocks.iter().map(BlockName::to_string).collect::<Vec<_>>().join(", ")
    };
    if moved != wanted {
        return Ok(Outcome::fail(format!(
            "expected {} to move, found {}",
            names(&wanted),
            names(&moved)
        )));
    }
    let in_memory = memory(s, s.recipe.prefill)?.moved(&packed);
    if !in_memory.is_empty() {
        let found = names(&in_memory);
        return Ok(Outcome::fail(format!("packed in memory, {found} differ from the folder's")));
    }
    Ok(Outcome::pass(format!("{} moved", names(&moved))))
}

fn resumed(s: Subject<'_>) -> Words<Outcome> {
    let whole = s.scratch.join("whole");
    pack(s.model, &whole, s.recipe, SMALL_FILES, None)?;
    let out = s.scratch.join("killed");
    // Killed in the middle: by a panic in the progress report, as a signal would, between two
    // writes.
    let killed = catch_unwind(AssertUnwindSafe(|| {
        let stop = |done: u64, total: u64| assert!(done < total * 9 / 10, "killed");
        pack(s.model, &out, s.recipe, SMALL_FILES, Some(&stop))
    }));
    if killed.is_ok() || out.exists() {
        return Ok(Outcome::fail("a killed conversion left a folder under its final name"));
    }
    let resumed = pack(s.model, &out, s.recipe, SMALL_FILES, None)?;
    if resumed == 0 {
        return Ok(Outcome::fail("nothing of the killed conversion was used"));
    }
    if contents(&whole)? != contents(&out)? {
        return Ok(Outcome::fail("the resumed conversion wrote other bytes"));
    }
    Ok(Outcome::pass(format!("{resumed} files kept, the same bytes")).with("resumed", resumed))
}

fn source_untouched(s: Subject<'_>) -> Words<Outcome> {
    let before = contents(s.model)?;
    pack(s.model, &s.scratch.join("packed"), s.recipe, ONE_FILE, None)?;
    match contents(s.model)? == before {
        true => Ok(Outcome::pass(format!("{} files as they were", before.len()))),
        false => Ok(Outcome::fail("the source folder has changed")),
    }
}

fn verified(s: Subject<'_>) -> Words<Outcome> {
    let out = s.scratch.join("packed");
    pack(s.model, &out, s.recipe, ONE_FILE, None)?;
    let found = verify(&out, Some(s.model), None).map_err(words)?;
    if !found.complete() {
        return Ok(Outcome::fail(format!("a fresh conversion: {}", failed(&found.checks))));
    }
    if verify(&out, None, None).map_err(words)?.complete() {
        return Ok(Outcome::fail("without its source a verification calls itself complete"));
    }
    // One code of the first weight, to another valid one.
    let file = out.join("model.safetensors");
    let pristine = std::fs::read(&file).map_err(words)?;
    let at = first_code(&out)?;
    let mut bytes = pristine.clone();
    bytes[at] = if bytes[at] & 0x0f == 0 { bytes[at] | 1 } else { bytes[at] & 0xf0 };
    std::fs::write(&file, &bytes).map_err(words)?;
    let changed = verify(&out, Some(s.model), None).map_err(words)?;
    for name in ["files", "codes and scales", "quantised again"] {
        if changed.checks.iter().find(|c| c.name == name).and_then(|c| c.holds) != Some(false) {
            return Ok(Outcome::fail(format!("a changed code goes unnoticed by `{name}`")));
        }
    }
    std::fs::write(&file, &pristine).map_err(words)?;
    if let Some(problem) = other_expert(&out)? {
        return Ok(Outcome::fail(problem));
    }
    // The source with one value changed.
    let foreign = s.scratch.join("foreign");
    std::fs::create_dir(&foreign).map_err(words)?;
    for (name, mut content) in contents(s.model)? {
        if name.ends_with(".safetensors") && !name.starts_with("reference") {
            let last = content.len() - 1;
            content[last] ^= 1;
        }
        std::fs::write(foreign.join(name), content).map_err(words)?;
    }
    let found = verify(&out, Some(&foreign), None).map_err(words)?;
    if found.checks.iter().find(|c| c.name == "source files").and_then(|c| c.holds) != Some(false) {
        return Ok(Outcome::fail("another source goes unnoticed"));
    }
    Ok(Outcome::pass("holds; a changed code and another source are noticed"))
}

/// A manifest that gives the first expert the digest of the second, where experts are packed.
fn other_expert(folder: &Path) -> Words<Option<String>> {
    let path = folder.join(SIDECAR);
    let pristine = std::fs::read(&path).map_err(words)?;
    let mut sidecar = Sidecar::parse(&pristine).map_err(words)?;
    let packed = sidecar.weights.iter_mut().filter_map(|weight| weight.packed.as_mut());
    let Some([first, second, ..]) =
        packed.map(|packed| packed.experts.as_mut_slice()).find(|experts| experts.len() > 1)
    else {
        return Ok(None);
    };
    first.codes.clone_from(&second.codes);
    std::fs::write(&path, sidecar.text()).map_err(words)?;
    let found = verify(folder, None, None).map_err(words)?;
    std::fs::write(&path, &pristine).map_err(words)?;
    let noticed = found.checks.iter().find(|c| c.name == "codes and scales");
    Ok((noticed.and_then(|c| c.holds) != Some(false))
        .then(|| "an expert with the digest of another goes unnoticed".to_owned()))
}

fn failed(checks: &[Check]) -> String {
    let failed = checks.iter().filter(|c| c.holds != Some(true));
    failed.map(|c| format!("{}: {}", c.name, c.detail)).collect::<Vec<_>>().join("; ")
}

/// The byte of the first code of the first packed weight in `model.safetensors`.
fn first_code(folder: &Path) -> Words<usize> {
    let (model, _) = open(folder)?;
    let sidecar = model.checkpoint.sidecar().ok_or(format!("there is no {SIDECAR}"))?;
    let (_, packed) = sidecar.quantised().next().ok_or("nothing is packed")?;
    let entry = model.checkpoint.tensor(&packed.codes.tensor).ok_or("the codes are missing")?;
    Ok(entry.start_bytes)
}
