//! A packed weight of a loaded model: which kernel executes it, and which rows.

use super::super::arena::Arena;
use super::super::gemm_part::packed_part;
use super::super::phase::Phases;
use super::oracle::oracle;
use super::panel::Panel;
use super::product::{Product, int4_products};
use crate::backend::cpu::Isa;
use crate::backend::{Policy, WeightRef};
use crate::tensor::{Int4, Int4Shape, Storage, Weight};
use std::collections::HashMap;
use std::sync::Arc;

/// What is rounded to BF16.
#[derive(Clone, Copy, Debug)]
pub(in crate::backend::cpu) struct Rounding {
    /// Unpacked weights.
    pub(in crate::backend::cpu) weights: bool,
    /// Results.
    pub(in crate::backend::cpu) results: bool,
}

/// A packed weight.
#[derive(Debug)]
pub(in crate::backend::cpu) struct Packed {
    rows: usize,
    cols: usize,
    /// Whether rows of prefill use the weight before quantisation.
    prefill_is_wide: bool,
    form: Form,
}

#[derive(Debug)]
enum Form {
    /// As stored.
    Stored(Int4),
    /// Repacked for the kernels of `fast`.
    Panel(Panel),
}

/// The packed weights of a plan.
#[derive(Debug, Default)]
pub(in crate::backend::cpu) struct Taken {
    pub(in crate::backend::cpu) matrices: HashMap<WeightRef, Packed>,
    /// Those of experts, every expert's by itself.
    pub(in crate::backend::cpu) experts: HashMap<WeightRef, Vec<Packed>>,
}

impl Taken {
    fn add(&mut self, at: WeightRef, of_expert: bool, packed: Packed) {
        match of_expert {
            true => self.experts.entry(at).or_default().push(packed),
            false => _ = self.matrices.insert(at, packed),
        }
    }
}

/// Takes the packed weights out of `matrices`; the weights before quantisation, where they are kept
/// for prefill, take their places. `experts` says how many matrices a weight of experts has.
///
/// Under `fast` weights are repacked, and pages of a mapped file that were read for it leave this
/// process's memory.
///
/// # Errors
/// When the system has no memory for repacked weights, or experts do not have whole tiles.
pub(in crate::backend::cpu) fn take(
    matrices: &mut HashMap<WeightRef, Weight>,
    experts: &HashMap<WeightRef, usize>,
    policy: Policy,
) -> Result<Taken, String> {
    let mut refs: Vec<WeightRef> = matrices
        .iter()
        .filter(|(_, weight)| matches!(weight.storage, Storage::Int4(_)))
        .map(|(at, _)| *at)
        .collect();
    refs.sort_unstable();
    let mut found = Vec::new();
    for at in refs {
        let Some(Weight { storage: Storage::Int4(mut stored), .. }) = matrices.remove(&at) else {
            continue;
        };
        let wide = stored.prefill.take();
        let prefill_is_wide = wide.is_some();
        if let Some(wide) = wide {
            matrices.insert(at, *wide);
        }
        let parts = match experts.get(&at) {
            None => vec![stored],
            Some(count) => {
                stored.row_parts(*count).map_err(|e| format!("an expert of `{}`: {e}", at.role))?
            }
        };
        let of_expert = experts.contains_key(&at);
        found.extend(parts.into_iter().map(|part| (at, of_expert, prefill_is_wide, part)));
    }
    let mut taken = Taken::default();
    let packed = |shape: Int4Shape, prefill_is_wide, form| Packed {
        rows: shape.rows(),
        cols: shape.cols(),
        prefill_is_wide,
        form,
    };
    if policy != Policy::Fast {
        for (at, of_expert, wide, stored) in found {
            taken.add(at, of_expert, packed(stored.shape, wide, Form::Stored(stored)));
        }
        return Ok(taken);
    }
    let lens = found.iter().map(|(.., stored)| Panel::len(stored.shape));
    let mut arena = Arena::for_pieces(lens)
        .map_err(|e| format!("cannot allocate memory for the weights: {e}"))?;
    let mut placed = Vec::with_capacity(found.len());
    for (at, of_expert, wide, stored) in found {
        placed.push((at, of_expert, wide, stored.shape, Panel::place(&stored, &mut arena)));
        stored.codes.release();
        stored.scales.release();
    }
    let arena = Arc::new(arena);
    for (at, of_expert, wide, shape, placed) in placed {
        taken.add(at, of_expert, packed(shape, wide, Form::Panel(placed.within(&arena))));
    }
    Ok(taken)
}

/// What executes a product.
#[derive(Debug)]
pub(in crate::backend::cpu) enum Reads<'a> {
    /// Every row the weight before quantisation.
    Wide,
    /// Every row the repacked weight.
    Panel(&'a Panel),
    /// Some one and some the other, or the weight as stored.
    Other,
}

impl Packed {
    /// Whether rows of prefill use the weight before quantisation.
    pub(in crate::backend::cpu) fn keeps_prefill(&self) -> bool {
        self.prefill_is_wide
    }

    /// Columns of the matrix.
    pub(in crate::backend::cpu) fn cols(&self) -> usize {
        self.cols
    }

    /// Rows of the matrix.
    pub(in crate::backend::cpu) fn rows(&self) -> usize {
        self.rows
    }

    /// What `tokens` rows read.
    pub(in crate::backend::cpu) fn reads(&self, phases: &Phases, tokens: usize) -> Reads<'_> {
        let runs = phases.runs(tokens);
        let prefill = |prefill: bool| runs.iter().all(|(_, p)| *p == prefill);
        match &self.form {
            _ if self.prefill_is_wide && prefill(true) => Reads::Wide,
            Form::Panel(panel) if !self.prefill_is_wide || prefill(false) => Reads::Panel(panel),
            _ => Reads::Other,
        }
    }

    /// Y = X·Wᵀ, rows of `x` (`tokens × k`) into `out` (`tokens × n`). Rows of prefill go to `wide`
    /// where the weight before quantisation is kept.
    pub(in crate::backend::cpu) fn product(
        &self,
        isa: Isa,
        x: &[f32],
        phases: &Phases,
        wide: impl Fn(&[f32], &mut [f32]),
        out: &mut [f32],
        rounding: Rounding,
    ) {
        self.multiply(x, phases, wide, out, |form, x, out| match form {
            Form::Stored(stored) => oracle(isa, x, stored, out, rounding),
            Form::Panel(panel) => {
                int4_products(isa, x, [Product { panel, out, round: rounding.results }]);
            }
        });
    }

    /// As [`Packed::product`] over part of K, which holds `segments` of the whole: FP32 sums.
    #[expect(clippy::too_many_arguments, reason = "a kernel names every operand")]
    pub(in crate::backend::cpu) fn part(
        &self,
        isa: Isa,
        x: &[f32],
        phases: &Phases,
        wide: impl Fn(&[f32], &mut [f32]),
        segments: usize,
        out: &mut [f32],
        round_weights: bool,
    ) {
        self.multiply(x, phases, wide, out, |form, x, out| match form {
            Form::Stored(stored) => packed_part(isa, x, stored, segments, round_weights, out),
            Form::Panel(panel) => int4_products(isa, x, [Product { panel, out, round: false }]),
        });
    }

    /// Rows of prefill by `wide` where it is kept, others by `packed`.
    fn multiply(
        &self,
        x: &[f32],
        phases: &Phases,
        wide: impl Fn(&[f32], &mut [f32]),
        out: &mut [f32],
        packed: impl Fn(&Form, &[f32], &mut [f32]),
    ) {
        let tokens = x.len() / self.cols;
        let runs = match self.prefill_is_wide {
            true => phases.runs(tokens),
            false => vec![(0..tokens, false)],
        };
        for (rows, prefill) in runs {
            let x = &x[rows.start * self.cols..rows.end * self.cols];
            let out = &mut out[rows.start * self.rows..rows.end * self.rows];
            match prefill {
                true => wide(x, out),
                false => packed(&self.form, x, out),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptor::RoleName;
    use crate::tensor::{Int4Plan, Shared};

    #[test]
    fn prefill_rows_use_the_weight_before_quantisation() {
        let at = WeightRef { role: RoleName::MlpUp, layer: Some(0) };
        let bits = (0..8 * 64).map(|i| 0x3f80 + (i * 37 % 128) as u16).collect();
        let weight = Weight { rows: 8, cols: 64, storage: Storage::Bf16(Shared::owned(bits)) };
        let x: Vec<f32> = (0..4 * 64).map(|i| (i % 7) as f32 - 3.0).collect();
        for policy in [Policy::Reference, Policy::Fast] {
            for keep in [true, false] {
                let stored = Int4::of(&weight, Int4Plan { group: Some(32), keep }).unwrap();
                let mut matrices = HashMap::new();
                matrices.insert(at, Weight { storage: Storage::Int4(stored), ..weight.clone() });
                let packed = take(&mut matrices, &HashMap::new(), policy).unwrap().matrices;
                assert_eq!(matrices.contains_key(&at), keep);
                let rounding = Rounding { weights: true, results: true };
                let mut out = vec![f32::NAN; 32];
                let wide = |x: &[f32], out: &mut [f32]| out.fill(x.len() as f32);
                let phases = Phases::of([(1..3, true)]);
                packed[&at].product(Isa::detect(), &x, &phases, wide, &mut out, rounding);
                assert!(out.iter().all(|v| v.is_finite()));
                let wide_rows: Vec<usize> = (0..4).filter(|r| out[r * 8] == 128.0).collect();
                assert_eq!(wide_rows, if keep { vec![1, 2] } else { vec![] });
                let reads = |prefill: bool| packed[&at].reads(&Phases::of([(0..4, prefill)]), 4);
                assert_eq!(matches!(reads(true), Reads::Wide), keep);
                let panel = policy == Policy::Fast;
                assert_eq!(matches!(reads(false), Reads::Panel(_)), panel);
                assert_eq!(matches!(reads(true), Reads::Panel(_)), panel && !keep);
                assert_eq!(
                    matches!(packed[&at].reads(&phases, 4), Reads::Panel(_)),
                    panel && !keep
                );
            }
        }
    }
}
