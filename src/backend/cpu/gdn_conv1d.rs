//! Region `gdn_conv1d`: causal depthwise convolution over the channels q | k | v.
//!
//! # Numerics
//! out\[c] = ((w₀·x₋₃ + w₁·x₋₂) + w₂·x₋₁) + w₃·x₀ in FP32, oldest tap first, one rounding; columns
//! before the first token are zeros.

use super::gdn_state::GdnState;
use super::isa::multiversion;
use super::rows::for_each_row;
use crate::backend::cpu::Isa;
use crate::tensor::round_bf16;
use crate::units::mutant;

/// Convolves a chunk (`rows × channels`, the first row at `position`) and keeps its columns as
/// history. `taps` is `[tap][channel]`, oldest tap first.
pub(super) fn gdn_conv1d(
    isa: Isa,
    x: &[f32],
    taps: &[f32],
    position: usize,
    state: &mut GdnState,
    round: bool,
    out: &mut [f32],
) {
    let channels = state.spec.dims.channels();
    let width = state.spec.dims.conv_width;
    let history = &*state;
    for_each_row(out, channels, |row, out| {
        out.fill(0.0);
        for tap in 0..width {
            let back = if mutant!("conv_off_by_one") { width - tap } else { width - 1 - tap };
            let column = if row >= back {
                Some(&x[(row - back) * channels..][..channels])
            } else if mutant!("conv_forgets_history") {
                None
            } else {
                history.column((position + row) as isize - back as isize)
            };
            let tap = if mutant!("conv_taps_reversed") { width - 1 - tap } else { tap };
            if let Some(column) = column {
                add_product(isa, out, column, &taps[tap * channels..][..channels]);
            }
        }
        if round {
            out.iter_mut().for_each(|o| *o = round_bf16(*o));
        }
    });
    state.keep_columns(position, x);
}

multiversion! {
    fn add_product = add_product_body(out: &mut [f32], x: &[f32], w: &[f32]);
}

#[inline(always)]
fn add_product_body(out: &mut [f32], x: &[f32], w: &[f32]) {
    for ((o, x), w) in out.iter_mut().zip(x).zip(w) {
        *o += x * w;
    }
}
