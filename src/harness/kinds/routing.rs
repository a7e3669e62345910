//! `routing`: which experts are chosen, also where scores are equal or nearly so, and their weights.

use super::region_invariance::route;
use crate::backend::DeviceKind;
use crate::descriptor::{Precision, Router};
use crate::harness::kind::{
    Case, Cell, DeviceUse, Fault, GateKind, KindSpec, Outcome, PlanScope, PolicyUse, RunContext,
};
use crate::harness::plan::{AxisValue, Matrix};
use crate::harness::spec::NonEmpty;
use crate::units::SplitMix64;
use serde::Deserialize;

/// Rows of constructed logits, alone and among others, against the rule in FP64: the largest
/// probabilities of the kept groups, the lowest id on ties, and the weights that a model makes of them.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Routing {
    /// Experts, and those that a token is sent to.
    experts: NonEmpty<[usize; 2]>,
    /// Groups of experts, and those that are kept: the ones with the largest best expert. Left out, one
    /// group of all.
    #[serde(default)]
    groups: Option<NonEmpty<[usize; 2]>>,
    /// Whether weights are divided by their sum. Left out, they are.
    #[serde(default)]
    renormalise: Option<NonEmpty<bool>>,
    /// Factors on the weights. Left out, 1.
    #[serde(default)]
    scaling: Option<NonEmpty<f64>>,
    /// What weights are kept in. Left out, `f32`.
    #[serde(default)]
    weights: Option<NonEmpty<Kept>>,
    /// Largest difference of a weight, as a share of the factor, beside what rounding to BF16 may change.
    weights_max_abs: f64,
}

/// What the weights of chosen experts are kept in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Kept {
    /// The type of the activations: BF16 where the policy rounds.
    Model,
    F32,
}

impl AxisValue for Kept {
    fn axis_text(&self) -> String {
        match self {
            Kept::Model => "model".to_owned(),
            Kept::F32 => "f32".to_owned(),
        }
    }
}

/// How experts are chosen and weighed.
#[derive(Clone, Copy, Debug)]
struct Rule {
    /// Groups of experts, and those that are kept.
    groups: [usize; 2],
    renormalise: bool,
    scaling: f64,
    weights: Kept,
}

impl Rule {
    /// Groups, and the common rest.
    const fn of(groups: [usize; 2]) -> Rule {
        Rule { groups, renormalise: true, scaling: 1.0, weights: Kept::F32 }
    }

    fn router(self) -> Router {
        Router {
            logits: Precision::F32,
            weights: match self.weights {
                Kept::Model => Precision::Model,
                Kept::F32 => Precision::F32,
            },
            renormalise: self.renormalise,
            scaling: self.scaling,
            groups: self.groups[0],
            groups_kept: self.groups[1],
        }
    }
}

/// The last has logits that are spread wide.
const CASES: [&str; 5] =
    ["all_equal", "equal_pairs", "equal_at_the_last", "near_tie_1e-7", "spread"];
/// Rows of a case.
const ROWS: usize = 40;

impl KindSpec for Routing {
    const NAME: &'static str = "routing";
    const DEVICE: DeviceUse = DeviceUse::Any;
    const POLICY: PolicyUse = PolicyUse::Listed;
}

impl GateKind for Routing {
    fn cases(&self, _scope: &PlanScope) -> Result<Vec<Case>, Fault> {
        if let Some([e, k]) = self.experts.iter().find(|[e, k]| *k == 0 || k >= e) {
            let message = format!("expected fewer choices than experts, found {k} of {e}");
            return Err(Fault::at("experts", message));
        }
        if !(self.weights_max_abs.is_finite() && self.weights_max_abs > 0.0) {
            return Err(Fault::at("weights_max_abs", "must be finite and above 0"));
        }
        let mut matrix = Matrix::new().axis("experts", &self.experts);
        if let Some(groups) = &self.groups {
            let both = |g| self.experts.iter().map(move |e| (g, e));
            for ([g, kept], [e, k]) in groups.iter().flat_map(both) {
                let is_divided = *g > 0 && e.is_multiple_of(*g) && kept <= g;
                if !is_divided || *k > kept * (e / g) {
                    let message = format!("{kept} of {g} groups do not hold {k} of {e} experts");
                    return Err(Fault::at("groups", message));
                }
            }
            matrix = matrix.axis("groups", groups);
        }
        if let Some(renormalise) = &self.renormalise {
            matrix = matrix.axis("renormalise", renormalise);
        }
        if let Some(scaling) = &self.scaling {
            if !scaling.iter().all(|s| s.is_finite() && *s > 0.0) {
                return Err(Fault::at("scaling", "must be finite and above 0"));
            }
            matrix = matrix.axis("scaling", scaling);
        }
        if let Some(weights) = &self.weights {
            matrix = matrix.axis("weights", weights);
        }
        Ok(matrix.cases(CASES))
    }

    fn run(&self, cell: &Cell, context: &RunContext) -> Outcome {
        self.trial(cell, context).unwrap_or_else(Outcome::error)
    }
}

impl Routing {
    fn trial(&self, cell: &Cell, context: &RunContext) -> Result<Outcome, String> {
        if cell.device != DeviceKind::Cpu {
            return Err(format!("the router runs by itself on the CPU, not on {}", cell.device));
        }
        let pair = |axis: &str| -> Result<[usize; 2], String> {
            cell.read_list(axis)?.try_into().map_err(|_| format!("`{axis}` needs two numbers"))
        };
        let [experts, k] = pair("experts")?;
        let groups = if self.groups.is_some() { pair("groups")? } else { [1, 1] };
        let mut rule = Rule::of(groups);
        if self.renormalise.is_some() {
            rule.renormalise = cell.read("renormalise")?;
        }
        if self.scaling.is_some() {
            rule.scaling = cell.read("scaling")?;
        }
        if cell.axis("weights") == Some(Kept::Model.axis_text()) {
            rule.weights = Kept::Model;
        }
        let case = cell.case.clone().unwrap_or_default();
        let policy = cell.policy.ok_or("the cell has no policy")?;
        let row = |row| match groups {
            [1, _] => logits(&case, row, experts, k),
            groups => grouped_logits(&case, row, experts, groups),
        };
        let rows: Vec<Vec<f32>> = (0..ROWS).map(row).collect();
        let rounded = rule.weights == Kept::Model && policy.rounds_to_bf16();
        let together = route(&rows, k, rule.router(), policy, context.threads)?;
        let mut complaints = Vec::new();
        let mut worst = 0.0f64;
        for (row, logits) in rows.iter().enumerate() {
            let row_alone = std::slice::from_ref(logits);
            let alone = route(row_alone, k, rule.router(), policy, context.threads)?;
            let (ids, weights) = &together[row];
            if alone[0] != together[row] {
                complaints.push(format!("row {row}: other bits alone than among {ROWS} rows"));
            }
            let (expected_ids, expected_weights) = by_the_rule(logits, k, rule);
            if *ids != expected_ids {
                complaints
                    .push(format!("row {row}: expected experts {expected_ids:?}, found {ids:?}"));
            }
            for (expected, found) in expected_weights.iter().zip(weights) {
                worst = worst.max(weight_error(*expected, *found, rounded) / rule.scaling);
            }
        }
        if worst > self.weights_max_abs {
            complaints.push(format!("a weight differs by {worst:.2e}"));
        }
        let outcome = match complaints.split_first() {
            None => Outcome::pass(format!("{ROWS} rows, weights within {worst:.1e}")),
            Some((first, more)) => Outcome::fail(format!("{first}; and {} more", more.len())),
        };
        Ok(outcome.with("rows", ROWS).number("weights_max_abs", worst))
    }
}

/// Logits of a case.
fn logits(case: &str, row: usize, experts: usize, k: usize) -> Vec<f32> {
    // A permutation that differs from row to row, so that the ids concerned do.
    let step = (1..).map(|s| 2 * s + 1).filter(|s| gcd(*s, experts) == 1).nth(row % 5).unwrap_or(1);
    let rank = |id: usize| (id * step + row) % experts;
    let spaced = |rank: usize| -(rank as f32) / experts as f32;
    let mut words = SplitMix64::new(row as u64);
    let base: Vec<f32> = (0..experts)
        .map(|id| match case {
            "all_equal" => 0.75,
            "equal_pairs" => spaced(rank(id) / 2),
            // Multiples of 1/16 in [−8, 8).
            "spread" => (words.next_word() >> 56) as f32 / 16.0 - 8.0,
            "equal_at_the_last" | "near_tie_1e-7" if rank(id) == k => spaced(k - 1),
            _ => spaced(rank(id)),
        })
        .collect();
    if case != "near_tie_1e-7" {
        return base;
    }
    // The first expert left out comes before the last one chosen.
    let nearer = slightly_above(spaced(k - 1), &base);
    (0..experts).map(|id| if rank(id) == k { nearer } else { base[id] }).collect()
}

/// Logits of a case with groups: their best experts are equal, or nearly, where the last group is kept and the
/// first one is not.
fn grouped_logits(case: &str, row: usize, experts: usize, [groups, kept]: [usize; 2]) -> Vec<f32> {
    let size = experts / groups;
    if !["equal_at_the_last", "near_tie_1e-7"].contains(&case) {
        return logits(case, row, experts, kept * size - 1);
    }
    let best = logits("equal_at_the_last", row, groups, kept);
    let inner = |id: usize| match (id + row) % size {
        0 => 0.0,
        rank => 1.37 * (1.0 + rank as f32 / size as f32),
    };
    let mut all: Vec<f32> = (0..experts).map(|id| best[id / size] - inner(id)).collect();
    let raised = logits(case, row, groups, kept);
    if let Some(group) = (0..groups).find(|group| raised[*group] > best[*group]) {
        let nearer = slightly_above(best[group], &all);
        (group * size..(group + 1) * size)
            .filter(|id| inner(*id) == 0.0)
            .for_each(|id| all[id] = nearer);
    }
    all
}

/// The logit whose probability beside `all` is 1e−7 above that of `logit`.
fn slightly_above(logit: f32, all: &[f32]) -> f32 {
    let total: f64 = all.iter().map(|x| f64::from(*x).exp()).sum();
    let logit = f64::from(logit);
    (logit + 1e-7 * total / logit.exp()) as f32
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The experts chosen and their weights before any rounding, from the definition.
fn by_the_rule(logits: &[f32], k: usize, rule: Rule) -> (Vec<usize>, Vec<f64>) {
    let [groups, kept] = rule.groups;
    let size = logits.len() / groups;
    let best =
        |group: usize| logits[group * size..][..size].iter().copied().fold(f32::MIN, f32::max);
    let mut by_best: Vec<usize> = (0..groups).collect();
    by_best.sort_by(|a, b| best(*b).total_cmp(&best(*a)).then(a.cmp(b)));
    by_best.truncate(kept);
    let mut order: Vec<usize> =
        (0..logits.len()).filter(|id| by_best.contains(&(id / size))).collect();
    order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b)));
    order.truncate(k);
    let exponential = |logit: &f32| f64::from(*logit).exp();
    let chosen: Vec<f64> = order.iter().map(|id| exponential(&logits[*id])).collect();
    // The softmax is over all experts, of groups that are not kept, too.
    let total: f64 = match rule.renormalise {
        true => chosen.iter().sum(),
        false => logits.iter().map(exponential).sum(),
    };
    (order, chosen.iter().map(|e| e / total * rule.scaling).collect())
}

/// How far `found` is from `exact`, or where it is to be rounded to BF16, from what may round to it.
fn weight_error(exact: f64, found: f32, rounded: bool) -> f64 {
    let difference = (exact - f64::from(found)).abs();
    if !difference.is_finite() || (rounded && found.to_bits() & 0xffff != 0) {
        return f64::INFINITY;
    }
    // BF16 has eight significant bits: half a step is 2⁻⁸ of the power of two below.
    let half_step = if rounded { exact.log2().floor().exp2() / 256.0 } else { 0.0 };
    (difference - half_step).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Policy;
    use crate::harness::kinds::region_invariance::Route;

    #[test]
    fn the_rule_prefers_low_ids_only_on_ties() {
        let one = Rule::of([1, 1]);
        assert_eq!(by_the_rule(&[1.0, 2.0, 2.0, 0.0], 2, one).0, [1, 2]);
        assert_eq!(by_the_rule(&[1.0, 2.0, 2.000_001, 0.0], 2, one).0, [2, 1]);
        let groups = Rule::of([2, 1]);
        assert_eq!(by_the_rule(&[1.0, 2.0, 2.0, 0.0], 2, groups).0, [1, 0], "groups tie, too");
        assert_eq!(by_the_rule(&[1.0, 2.0, 2.5, 0.0], 2, groups).0, [2, 3]);
        let near = logits("near_tie_1e-7", 3, 8, 2);
        let (ids, weights) = by_the_rule(&near, 3, one);
        let gap = weights[1] - weights[2];
        assert!(gap > 0.0 && gap < 5e-7, "{ids:?} {gap:e}");
    }

    #[test]
    fn weights_have_their_sum_factor_and_rounding() {
        let rule = Rule { renormalise: false, scaling: 16.0, ..Rule::of([2, 1]) };
        // Probabilities 4, 1, 2 and 1 of 8.
        let logits = [4.0f32.ln(), 0.0, 2.0f32.ln(), 0.0];
        let near = |rule: Rule, expected: [f64; 2]| {
            let (_, found) = by_the_rule(&logits, 2, rule);
            found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-6)
        };
        assert!(near(rule, [8.0, 2.0]));
        assert!(near(Rule { renormalise: true, ..rule }, [12.8, 3.2]));

        // 1 + 2⁻⁷ is BF16, 1 + 2⁻⁸ lies halfway to it.
        let step = 1.0 / 128.0;
        for (exact, found, error) in [
            (1.0 + 0.5 * step, 1.0, 0.0),
            (1.0 + 0.5 * step, 1.0 + step, 0.0),
            (1.0 + 0.75 * step, 1.0, 0.25 * step),
            (1.0, 1.0 + step, 0.5 * step),
            (1.0, 1.0 + 0.5 * step, f64::INFINITY),
            (1.0, f64::NAN, f64::INFINITY),
        ] {
            assert_eq!(weight_error(exact, found as f32, true), error, "{exact} {found}");
        }
        assert_eq!(weight_error(1.0, 1.0 + step as f32, false), step);
        assert_eq!(weight_error(1.0, f32::NAN, false), f64::INFINITY);
    }

    /// A router with another rule is found by its weights.
    #[test]
    fn weights_of_another_rule_are_found() {
        let rows: Vec<Vec<f32>> = (0..ROWS).map(|row| logits("spread", row, 60, 6)).collect();
        let rule = Rule { scaling: 2.5, weights: Kept::Model, ..Rule::of([4, 2]) };
        let error = |found: Rule| {
            let routes = route(&rows, 6, found.router(), Policy::Reference, 1).unwrap();
            let of_row = |(logits, (_, weights)): (&Vec<f32>, &Route)| {
                let (_, expected) = by_the_rule(logits, 6, rule);
                let errors = expected.iter().zip(weights).map(|(e, f)| weight_error(*e, *f, true));
                errors.fold(0.0, f64::max)
            };
            rows.iter().zip(&routes).map(of_row).fold(0.0, f64::max)
        };
        assert!(error(rule) < 1e-6, "{}", error(rule));
        assert_eq!(error(Rule { weights: Kept::F32, ..rule }), f64::INFINITY, "not rounded");
        assert!(error(Rule { renormalise: false, ..rule }) > 1e-2, "their sum");
        assert!(error(Rule { scaling: 2.0, ..rule }) > 1e-2, "another factor");
    }

    #[test]
    fn groups_tie_where_the_last_is_kept() {
        let groups = [10, 3];
        let cut = |case: &str, row: usize| {
            let all = grouped_logits(case, row, 60, groups);
            let mut best: Vec<f32> =
                all.chunks(6).map(|g| g.iter().copied().fold(f32::MIN, f32::max)).collect();
            best.sort_by(|a, b| b.total_cmp(a));
            (best[2], best[3])
        };
        for row in 0..ROWS {
            let (last, first_out) = cut("equal_at_the_last", row);
            assert_eq!(last, first_out);
            let (last, first_out) = cut("near_tie_1e-7", row);
            assert!(last > first_out && last - first_out < 1e-5, "{last} {first_out}");
        }
    }
}
