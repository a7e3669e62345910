//! Final norm and LM head over the rows whose output was asked for, in small blocks so that no
//! large matrix of logits is kept.

use super::buffers::Buffers;
use super::exec::Context;
use super::log_softmax;
use super::model::{CpuModel, capture};
use super::phase::Phases;
use super::sampler::sample;
use crate::backend::{NonFinite, OpKind, RowOutput, RowWant, Taps};
use crate::units::mutant;

/// Rows whose logits exist at the same time.
const BLOCK_ROWS: usize = 64;

pub(super) struct Head<'a> {
    pub(super) model: &'a CpuModel,
    pub(super) poison: bool,
    /// Of all rows of the step.
    pub(super) phases: Phases,
}

impl Head<'_> {
    /// Outputs of every row. `body` holds the residual stream of all rows.
    pub(super) fn run(
        &self,
        wants: &[RowWant],
        body: &Buffers,
        head: &mut Buffers,
        mut taps: Option<&mut Taps>,
    ) -> Vec<RowOutput> {
        let plan = &self.model.plan;
        let tapped = taps.as_deref().is_some_and(|taps| {
            plan.head_ops.iter().flat_map(|op| &op.taps).any(|(name, _)| taps.wants(name))
        });
        let rows: Vec<usize> =
            (0..wants.len()).filter(|i| tapped || wants[*i] != RowWant::Nothing).collect();
        let mut outputs = vec![RowOutput::Nothing; wants.len()];
        let width = body.width(plan.residual);
        for block in rows.chunks(BLOCK_ROWS) {
            head.resize_only(&self.buffers(block, wants), block.len(), self.poison);
            for (i, row) in block.iter().enumerate() {
                let row = if mutant!("head_rows_by_order") { &i } else { row };
                let source = &body.get(plan.residual)[row * width..][..width];
                head.get_mut(plan.residual)[i * width..][..width].copy_from_slice(source);
            }
            let context =
                Context::new(&self.model.executor, &[], &[]).with_phases(self.phases.select(block));
            for op in &plan.head_ops {
                let of_logits =
                    matches!(op.kind, OpKind::GemmF32 { .. } | OpKind::AllGather { .. });
                if of_logits && !needs_logits(block, wants) {
                    continue;
                }
                self.model.executor.run(&op.kind, &context, head, &mut []);
                if let Some(taps) = taps.as_deref_mut() {
                    capture(op, head, taps);
                }
            }
            for (i, row) in block.iter().enumerate() {
                outputs[*row] = self.output(&wants[*row], i, head);
            }
        }
        outputs
    }

    fn buffers(&self, block: &[usize], wants: &[RowWant]) -> Vec<crate::backend::Buf> {
        let plan = &self.model.plan;
        let mut buffers = vec![plan.residual, plan.final_hidden];
        if needs_logits(block, wants) {
            buffers.extend(plan.logits_buffers());
        }
        buffers
    }

    fn output(&self, want: &RowWant, row: usize, head: &Buffers) -> RowOutput {
        let plan = &self.model.plan;
        let line = |buf| &head.get(buf)[row * head.width(buf)..][..head.width(buf)];
        let non_finite = || RowOutput::NonFinite(NonFinite::of(line(plan.logits)));
        match want {
            RowWant::Nothing => RowOutput::Nothing,
            RowWant::Hidden => RowOutput::Hidden(line(plan.final_hidden).to_vec()),
            RowWant::Logits => RowOutput::Logits(line(plan.logits).to_vec()),
            _ if !all_finite(line(plan.logits)) => non_finite(),
            RowWant::Greedy => RowOutput::Greedy(top(line(plan.logits), 1)[0].0),
            RowWant::Top(n) => RowOutput::Top(top(line(plan.logits), *n)),
            RowWant::Sampled(draw) => {
                let row = line(plan.logits);
                sample(&row[..draw.choosable_ids.min(row.len())], draw.temperature, || draw.unit)
                    .map_or_else(|_| non_finite(), RowOutput::Sampled)
            }
            RowWant::LogProbOf(ids) => log_softmax(line(plan.logits), ids)
                .map_or_else(|_| non_finite(), RowOutput::LogProbs),
        }
    }
}

fn needs_logits(block: &[usize], wants: &[RowWant]) -> bool {
    block.iter().any(|row| !matches!(wants[*row], RowWant::Nothing | RowWant::Hidden))
}

/// Values looked at together, so that most are passed over several at a time.
const BLOCK_VALUES: usize = 64;

fn all_finite(values: &[f32]) -> bool {
    values.chunks(BLOCK_VALUES).all(|block| block.iter().fold(true, |all, x| all & x.is_finite()))
}

/// The `n` largest of finite logits with their ids, falling; the lowest id first on ties.
pub(crate) fn top(logits: &[f32], n: usize) -> Vec<(u32, f32)> {
    let tie_wins = mutant!("greedy_tie_order");
    let mut best: Vec<(u32, f32)> = Vec::with_capacity(n + 1);
    let too_small = |best: &[(u32, f32)], value: f32| {
        let least = best.last().filter(|_| best.len() == n);
        least.is_some_and(|(_, least)| if tie_wins { value < *least } else { value <= *least })
    };
    for (block, values) in logits.chunks(BLOCK_VALUES).enumerate() {
        let largest = values.iter().fold(f32::NEG_INFINITY, |m, v| if *v > m { *v } else { m });
        if too_small(&best, largest) {
            continue;
        }
        for (i, value) in values.iter().enumerate() {
            if too_small(&best, *value) {
                continue;
            }
            let at = match tie_wins {
                true => best.partition_point(|(_, v)| v > value),
                false => best.partition_point(|(_, v)| v >= value),
            };
            best.insert(at, ((block * BLOCK_VALUES + i) as u32, *value));
            best.truncate(n);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::top;

    #[test]
    fn ties_go_to_the_lowest_id() {
        let logits = [1.0, 3.0, 3.0, -2.0, 3.0];
        assert_eq!(top(&logits, 1), [(1, 3.0)]);
        assert_eq!(top(&logits, 4), [(1, 3.0), (2, 3.0), (4, 3.0), (0, 1.0)]);
        assert_eq!(top(&logits, 9).len(), 5);
        let mut many = vec![-1.0f32; 300];
        (many[70], many[71], many[130], many[299]) = (2.0, 5.0, 5.0, 2.0);
        assert_eq!(top(&many, 1), [(71, 5.0)]);
        assert_eq!(top(&many, 5), [(71, 5.0), (130, 5.0), (70, 2.0), (299, 2.0), (0, -1.0)]);
    }
}
