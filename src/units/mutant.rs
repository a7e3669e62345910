//! Planted defects: switches that show whether the gates can fail.
//!
//! Region code asks `mutant!("rope_base")` at the place where a plausible mistake could be made.
//! Without the cargo feature `mutants` that is the constant `false`. With it, the switch named by
//! the environment variable `ASSAY_MUTANT` is on, for the whole life of the process.

/// One plausible defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mutant {
    /// The name in `mutant!("…")` and `ASSAY_MUTANT`.
    pub name: &'static str,
    /// The region it sits in, or the area (`sampler`, `cache`, `manifest`, …).
    pub region: &'static str,
    /// What is wrong when it is on.
    pub defect: &'static str,
}

/// The environment variable that turns one switch on.
pub const MUTANT_VARIABLE: &str = "ASSAY_MUTANT";

macro_rules! mutants {
    ($($name:literal in $region:literal: $defect:literal,)*) => {
        /// Every switch. `mutant!` accepts these names only, and a test looks for each in the
        /// source.
        pub const MUTANTS: &[Mutant] =
            &[$(Mutant { name: $name, region: $region, defect: $defect },)*];
    };
}

mutants! {
    "overlapping_tensors" in "checkpoint": "byte ranges of a safetensors file may overlap",
    "rope_base" in "rope": "the base of the rotary frequencies is doubled",
    "conv_off_by_one" in "gdn_conv1d": "the convolution reads one position too early",
    "greedy_tie_order" in "gemm_f32": "equal logits give the highest id",
    "gdn_stale_group" in "gdn_core": "odd groups use the boundary state and rows of even ones",
    "gdn_query_scale" in "gdn_core": "the query is not scaled by dk^(-1/2)",
    "commit_drops_a_row" in "gdn_commit": "the last row of a group is not committed",
    "residual_lost_rounding" in "residual_add": "the residual stream is not rounded to BF16",
    "gemm_order_by_batch" in "gemm": "several tokens sum K in one chain, one token in segments",
    "attention_merge_unscaled" in "attention_core": "merging blocks does not rescale the earlier ones",
    "norm_weight_without_one" in "rms_norm": "one-plus norms multiply by w instead of 1 + w",
    "kv_write_wrong_slot" in "kv_write": "odd positions overwrite the even ones before them",
    "sampler_boundary" in "sampler": "a draw that hits a boundary selects the id before it",
    "int4_scale_by_eight" in "int4": "the scale of a group is its largest value / 8",
    "int4_round_half_up" in "int4": "codes round half up instead of half to even",
    "int4_nibbles_swapped" in "int4": "the lower K is read from the high nibble",
    "int4_code_unchecked" in "int4": "a code of -8 in a file is not looked for",
}

/// Whether a planted defect is on: `if mutant!("rope_base") { … }`. A name that [`MUTANTS`] lacks
/// does not compile.
macro_rules! mutant {
    ($name:literal) => {{
        const SWITCH: usize = $crate::units::mutant_index($name);
        $crate::units::mutant_active(SWITCH)
    }};
}

pub(crate) use mutant;

/// The place of a switch in [`MUTANTS`].
///
/// # Panics
/// At compile time, where the name is not listed.
#[doc(hidden)]
pub const fn mutant_index(name: &str) -> usize {
    let mut at = 0;
    while at < MUTANTS.len() {
        if same(MUTANTS[at].name.as_bytes(), name.as_bytes()) {
            return at;
        }
        at += 1;
    }
    panic!("this switch is not listed in MUTANTS")
}

const fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut at = 0;
    while at < a.len() {
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// Whether this build has switches at all.
pub const HAS_MUTANTS: bool = cfg!(feature = "mutants");

/// Whether the switch at `index` is on.
#[cfg(not(feature = "mutants"))]
#[doc(hidden)]
#[inline(always)]
pub const fn mutant_active(_index: usize) -> bool {
    false
}

/// Whether the switch at `index` is on.
#[cfg(feature = "mutants")]
#[doc(hidden)]
#[inline(always)]
pub fn mutant_active(index: usize) -> bool {
    active_mutant() == Some(index)
}

/// The switch that is on in this process.
#[cfg(feature = "mutants")]
fn active_mutant() -> Option<usize> {
    use std::sync::OnceLock;
    static ACTIVE: OnceLock<Option<usize>> = OnceLock::new();
    *ACTIVE.get_or_init(|| {
        let name = std::env::var(MUTANT_VARIABLE).ok()?;
        MUTANTS.iter().position(|m| m.name == name)
    })
}

#[cfg(test)]
mod tests {
    use super::MUTANTS;
    use std::path::Path;

    fn sources(folder: &Path, all: &mut String) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, all);
            } else if path.extension().is_some_and(|e| e == "rs") {
                all.push_str(&std::fs::read_to_string(&path).unwrap());
            }
        }
    }

    #[test]
    fn every_listed_switch_is_placed_and_names_are_unique() {
        let mut source = String::new();
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut source);
        for (i, mutant) in MUTANTS.iter().enumerate() {
            let call = format!("mutant!(\"{}\")", mutant.name);
            assert!(source.contains(&call), "{call} is listed and nowhere placed");
            assert!(MUTANTS[..i].iter().all(|m| m.name != mutant.name), "{} twice", mutant.name);
        }
    }
}
