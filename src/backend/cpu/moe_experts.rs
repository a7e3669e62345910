//! Regions `moe_permute` and `moe_experts`: rows gathered by expert, and every expert over its rows.
//!
//! # Numerics
//! `moe_permute` copies. `moe_experts`: gate and up are products as in `gemm`, then
//! silu(gate) · up, then down as in `gemm`; each rounded once where the policy rounds. A row's bits
//! depend on the row and on the expert's weights alone, never on the other rows of the expert. Matrices
//! of four bits are those of [`super::int4`]; rows of prefill read the matrix before quantisation where
//! it is kept.

use super::elementwise::silu_mul;
use super::fast::{self, Kernels, Panels};
use super::gemm::gemm;
use super::int4::{self, Packed, Panel, Reads, Rounding};
use super::phase::Phases;
use super::pool::current_threads;
use super::rows::for_each_part;
use crate::backend::ExpertSpan;
use crate::backend::cpu::Isa;
use crate::tensor::Weight;
use crate::units::mutant;
use std::ops::Range;

/// Where the choices of all rows lie once they are sorted by (expert, row), for the experts that are
/// here.
#[derive(Clone, Debug)]
pub(super) struct Order {
    /// The expert e of those that are here has the places `starts[e] .. starts[e + 1]`.
    starts: Vec<usize>,
    /// The place of every choice (`row · k + choice`); `None` if its expert is elsewhere.
    places: Vec<Option<usize>>,
}

impl Order {
    /// The order of `index` (`rows × k` expert ids).
    pub(super) fn new(index: &[f32], experts: ExpertSpan) -> Order {
        let here = |id: &f32| experts.place(*id as usize);
        let mut starts = vec![0; experts.count + 1];
        for e in index.iter().filter_map(here) {
            starts[e + 1] += 1;
        }
        for e in 0..experts.count {
            starts[e + 1] += starts[e];
        }
        let mut next = starts.clone();
        let places = index.iter().map(|id| {
            let place = &mut next[here(id)?];
            *place += 1;
            Some(*place - 1)
        });
        Order { places: places.collect(), starts }
    }

    /// The place of every choice whose expert is here.
    pub(super) fn places(&self) -> &[Option<usize>] {
        &self.places
    }

    /// The row of every place, where every row has `per_row` choices.
    fn sources(&self, per_row: usize) -> Vec<usize> {
        let mut sources = vec![0; self.len()];
        for (choice, place) in self.places.iter().enumerate() {
            let Some(place) = *place else { continue };
            let place = if mutant!("moe_permute_swapped") { place ^ 1 } else { place };
            if let Some(source) = sources.get_mut(place) {
                let at = if mutant!("moe_permute_unsorted") { place } else { choice };
                *source = at / per_row;
            }
        }
        sources
    }

    /// Choices whose experts are here.
    fn len(&self) -> usize {
        self.starts.last().copied().unwrap_or(0)
    }
}

/// Copies the rows of `x` (`rows × width`) to the places of their choices; rows of `out` after the last
/// place are left as they are.
pub(super) fn moe_permute(x: &[f32], order: &Order, width: usize, out: &mut [f32]) {
    let k = order.places.len() / (x.len() / width).max(1);
    let sources = order.sources(k);
    super::rows::for_each_row(&mut out[..order.len() * width], width, |place, row| {
        row.copy_from_slice(&x[sources[place] * width..][..width]);
    });
}

/// One matrix of one expert.
#[derive(Debug)]
pub(super) enum Matrix {
    Plain(Weight),
    /// Repacked for policy `fast`.
    Panels(Panels),
    /// Of four bits, and what rows of prefill read instead, if anything.
    Packed(Packed, Option<Box<Matrix>>),
}

impl Matrix {
    fn rows(&self) -> usize {
        match self {
            Matrix::Plain(weight) => weight.rows,
            Matrix::Panels(panels) => panels.rows,
            Matrix::Packed(packed, _) => packed.rows(),
        }
    }

    fn cols(&self) -> usize {
        match self {
            Matrix::Plain(weight) => weight.cols,
            Matrix::Panels(panels) => panels.cols,
            Matrix::Packed(packed, _) => packed.cols(),
        }
    }

    /// Whether rows of prefill are not multiplied as others are.
    fn keeps_prefill(&self) -> bool {
        matches!(self, Matrix::Packed(packed, _) if packed.keeps_prefill())
    }

    /// The repacked weight of four bits, if every row reads it.
    fn panel(&self, phases: &Phases, rows: usize) -> Option<&Panel> {
        let Matrix::Packed(packed, _) = self else { return None };
        match packed.reads(phases, rows) {
            Reads::Panel(panel) => Some(panel),
            _ => None,
        }
    }

    fn product(
        &self,
        kernels: (Isa, Kernels),
        x: &[f32],
        phases: &Phases,
        out: &mut [f32],
        round: bool,
    ) {
        match self {
            Matrix::Plain(weight) => gemm(kernels.0, x, weight, out, round),
            Matrix::Panels(panels) => fast::gemm(kernels.1, x, panels, out, round),
            Matrix::Packed(packed, wide) => {
                let before = |x: &[f32], out: &mut [f32]| {
                    if let Some(wide) = wide {
                        wide.product(kernels, x, phases, out, round);
                    }
                };
                let rounding = Rounding { weights: round, results: round };
                packed.product(kernels.0, x, phases, before, out, rounding);
            }
        }
    }
}

/// The weights of one expert.
#[derive(Debug)]
pub(super) struct Expert {
    pub(super) gate: Matrix,
    pub(super) up: Matrix,
    pub(super) down: Matrix,
}

impl Expert {
    fn keeps_prefill(&self) -> bool {
        [&self.gate, &self.up, &self.down].into_iter().any(Matrix::keeps_prefill)
    }
}

/// The choices of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choices<'a> {
    pub(super) order: &'a Order,
    /// Choices of every row.
    pub(super) per_row: usize,
    /// Which rows are prefill.
    pub(super) phases: &'a Phases,
}

/// One expert and its rows.
struct Task<'a> {
    expert: &'a Expert,
    x: &'a [f32],
    /// Which of its rows are prefill.
    phases: Phases,
    gate: &'a mut [f32],
    up: &'a mut [f32],
    act: &'a mut [f32],
    out: &'a mut [f32],
}

impl Task<'_> {
    fn run(&mut self, kernels: (Isa, Kernels), round: bool) {
        self.gate_and_up(kernels, round);
        let (gate, up) = match mutant!("moe_gate_up_swapped") {
            true => (&self.up, &self.gate),
            false => (&self.gate, &self.up),
        };
        silu_mul(kernels.0, gate, up, self.expert.gate.rows(), round, self.act);
        self.expert.down.product(kernels, self.act, &self.phases, self.out, round);
    }

    /// Both products of the rows: one job where one kernel executes both.
    fn gate_and_up(&mut self, kernels: (Isa, Kernels), round: bool) {
        let (expert, phases) = (self.expert, &self.phases);
        let rows = self.x.len() / expert.gate.cols();
        let panels = [&expert.gate, &expert.up].map(|matrix| matrix.panel(phases, rows));
        if let [Some(gate), Some(up)] = panels
            && int4::of_one_group(&[gate, up])
        {
            let job = [(gate, &mut *self.gate), (up, &mut *self.up)];
            let job = job.map(|(panel, out)| int4::Product { panel, out, round });
            return int4::int4_products(kernels.0, self.x, job);
        }
        expert.gate.product(kernels, self.x, phases, self.gate, round);
        expert.up.product(kernels, self.x, phases, self.up, round);
    }
}

/// Executes every expert over its places of `x`. `inner` is scratch for gate, up and their product.
pub(super) fn moe_experts(
    kernels: (Isa, Kernels),
    x: &[f32],
    choices: Choices<'_>,
    experts: &[Expert],
    round: bool,
    inner: [&mut [f32]; 3],
    out: &mut [f32],
) {
    let order = choices.order;
    // Only where some expert multiplies rows of prefill by other weights.
    let sources = match experts.iter().any(Expert::keeps_prefill) {
        true => order.sources(choices.per_row),
        false => Vec::new(),
    };
    let phases = |places: Range<usize>| match sources.get(places.clone()) {
        _ if mutant!("int4_experts_prefill_by_place") => {
            choices.phases.select(&places.collect::<Vec<_>>())
        }
        Some(rows) => choices.phases.select(rows),
        None => Phases::default(),
    };
    let mut tasks = Vec::new();
    let [mut gates, mut ups, mut acts] = inner;
    let (mut inputs, mut outputs) = (x, out);
    for (id, span) in order.starts.windows(2).enumerate() {
        let id = if mutant!("moe_neighbouring_expert") { (id + 1) % experts.len() } else { id };
        let expert = &experts[id];
        let rows = span[1] - span[0];
        if rows == 0 {
            continue;
        }
        let width = expert.gate.rows();
        let (x, gate, up, act, out);
        (x, inputs) = inputs.split_at(rows * expert.gate.cols());
        (gate, gates) = gates.split_at_mut(rows * width);
        (up, ups) = ups.split_at_mut(rows * width);
        (act, acts) = acts.split_at_mut(rows * width);
        (out, outputs) = outputs.split_at_mut(rows * expert.down.rows());
        let phases = phases(span[0]..span[1]);
        tasks.push(Task { expert, x, phases, gate, up, act, out });
    }
    // Many experts are tasks; the products of few are divided themselves. Bits are the same.
    if tasks.len() >= 2 * current_threads() {
        for_each_part(tasks, 1, |_, task| task.run(kernels, round));
    } else {
        tasks.iter_mut().for_each(|task| task.run(kernels, round));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_sorted_by_expert_then_row() {
        // Rows choose (2, 0), (0, 1), (2, 1).
        let index = [2.0, 0.0, 0.0, 1.0, 2.0, 1.0];
        let order = Order::new(&index, ExpertSpan::all(4));
        assert_eq!(order.starts, [0, 2, 4, 6, 6]);
        assert_eq!(order.places(), [4, 0, 1, 2, 5, 3].map(Some));
        let mut out = vec![f32::NAN; 6];
        moe_permute(&[10.0, 11.0, 12.0], &order, 1, &mut out);
        assert_eq!(out, [10.0, 11.0, 11.0, 12.0, 10.0, 12.0]);
    }

    #[test]
    fn choices_of_experts_elsewhere_have_no_place() {
        let index = [2.0, 0.0, 0.0, 1.0, 2.0, 1.0];
        let order = Order::new(&index, ExpertSpan { first: 2, count: 2, of: 4 });
        assert_eq!(order.starts, [0, 2, 2]);
        assert_eq!(order.places(), [Some(0), None, None, None, Some(1), None]);
        let mut out = vec![-1.0; 6];
        moe_permute(&[10.0, 11.0, 12.0], &order, 1, &mut out);
        assert_eq!(out, [10.0, 12.0, -1.0, -1.0, -1.0, -1.0]);
    }
}
