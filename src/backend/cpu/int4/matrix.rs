//! A packed weight of a loaded model: which kernel executes it, and which rows.

use super::super::phase::Phases;
use super::oracle::oracle;
use super::panel::Panel;
use super::product::int4_product;
use crate::backend::cpu::Isa;
use crate::backend::{Policy, WeightRef};
use crate::tensor::{Int4, Storage, Weight};
use std::collections::HashMap;

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

/// Takes the packed weights out of `matrices`; the weights before quantisation, where they are kept
/// for prefill, take their places.
///
/// Under `fast` weights are repacked, and pages of a mapped file that were read for it leave this
/// process's memory.
pub(in crate::backend::cpu) fn take(
    matrices: &mut HashMap<WeightRef, Weight>,
    policy: Policy,
) -> HashMap<WeightRef, Packed> {
    let refs: Vec<WeightRef> = matrices
        .iter()
        .filter(|(_, weight)| matches!(weight.storage, Storage::Int4(_)))
        .map(|(at, _)| *at)
        .collect();
    let mut packed = HashMap::new();
    for at in refs {
        let Some(Weight { rows, cols, storage: Storage::Int4(mut stored) }) = matrices.remove(&at)
        else {
            continue;
        };
        let wide = stored.prefill.take();
        let prefill_is_wide = wide.is_some();
        if let Some(wide) = wide {
            matrices.insert(at, *wide);
        }
        let form = match policy {
            Policy::Fast => {
                let panel = Panel::new(&stored);
                stored.codes.release();
                stored.scales.release();
                Form::Panel(panel)
            }
            _ => Form::Stored(stored),
        };
        packed.insert(at, Packed { rows, cols, prefill_is_wide, form });
    }
    packed
}

impl Packed {
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
        let tokens = x.len() / self.cols;
        let runs = match self.prefill_is_wide {
            true => phases.runs(tokens),
            false => vec![(0..tokens, false)],
        };
        for (rows, prefill) in runs {
            let x = &x[rows.start * self.cols..rows.end * self.cols];
            let out = &mut out[rows.start * self.rows..rows.end * self.rows];
            match (prefill, &self.form) {
                (true, _) => wide(x, out),
                (false, Form::Stored(stored)) => oracle(isa, x, stored, out, rounding),
                (false, Form::Panel(panel)) => int4_product(isa, x, panel, out, rounding.results),
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
                let packed = take(&mut matrices, policy);
                assert_eq!(matrices.contains_key(&at), keep);
                let rounding = Rounding { weights: true, results: true };
                let mut out = vec![f32::NAN; 32];
                let wide = |x: &[f32], out: &mut [f32]| out.fill(x.len() as f32);
                let phases = Phases::of([(1..3, true)]);
                packed[&at].product(Isa::detect(), &x, &phases, wide, &mut out, rounding);
                assert!(out.iter().all(|v| v.is_finite()));
                let wide_rows: Vec<usize> = (0..4).filter(|r| out[r * 8] == 128.0).collect();
                assert_eq!(wide_rows, if keep { vec![1, 2] } else { vec![] });
            }
        }
    }
}
