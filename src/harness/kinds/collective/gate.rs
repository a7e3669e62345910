//! The kind: its keys, its cells, and how one is decided.

use super::oracle::{self, Format};
use crate::backend::ranks::{Elements, Member, World, sum};
use crate::harness::kind::{
    Case, Cell, DeviceUse, Fault, GateKind, KindSpec, Outcome, PlanScope, PolicyUse, RunContext,
};
use crate::harness::plan::Matrix;
use crate::harness::spec::NonEmpty;
use crate::tensor::DType;
use crate::units::{Hasher, SplitMix64};
use serde::Deserialize;
use std::thread;
use std::time::Duration;

/// Ranks that add seeded values.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::harness::kinds) struct Collective {
    /// Element types: `F32`, `F16`, `BF16`, `F8_E4M3`, `F8_E5M2`.
    element_types: NonEmpty<String>,
    /// Ranks that meet.
    ranks: NonEmpty<usize>,
    /// Elements of each rank.
    elements: NonEmpty<usize>,
    /// Orders of arrival that are tried, each drawn by its number.
    arrivals: u64,
}

impl KindSpec for Collective {
    const NAME: &'static str = "collective";
    const DEVICE: DeviceUse = DeviceUse::Host;
    const POLICY: PolicyUse = PolicyUse::None;
}

impl GateKind for Collective {
    fn cases(&self, _scope: &PlanScope) -> Result<Vec<Case>, Fault> {
        for name in self.element_types.iter() {
            if DType::parse(name).and_then(Format::of).is_none() {
                let known = "F32, F16, BF16, F8_E4M3, F8_E5M2";
                let message = format!("ranks do not add `{name}`; element types are {known}");
                return Err(Fault::at("element_types", message));
            }
        }
        if self.arrivals == 0 {
            return Err(Fault::at("arrivals", "expected at least 1"));
        }
        if let Some(ranks) = self.ranks.iter().find(|n| !(1..=64).contains(*n)) {
            return Err(Fault::at("ranks", format!("expected 1 to 64 ranks, found {ranks}")));
        }
        Ok(Matrix::new()
            .axis("ranks", &self.ranks)
            .axis("elements", &self.elements)
            .cases(self.element_types.iter()))
    }

    fn run(&self, cell: &Cell, _context: &RunContext) -> Outcome {
        self.decide(cell).unwrap_or_else(Outcome::error)
    }
}

impl Collective {
    fn decide(&self, cell: &Cell) -> Result<Outcome, String> {
        let name = cell.case.as_deref().unwrap_or_default();
        let dtype = DType::parse(name).ok_or("no such element type")?;
        let (ranks, elements) = (cell.read("ranks")?, cell.read("elements")?);
        let brought = contributions(dtype, ranks, elements)?;
        let expected = by_definition(&brought, dtype)?;
        let mut digests = Vec::new();
        for arrival in 0..self.arrivals {
            let sums = meet(&brought, arrival)?;
            for (rank, found) in sums.iter().enumerate() {
                if let Some(problem) = difference(&expected, found) {
                    return Ok(Outcome::fail(format!("arrival {arrival}, rank {rank}: {problem}")));
                }
            }
            digests.push(digest(&sums[0]));
        }
        digests.dedup();
        if digests.len() != 1 {
            return Ok(Outcome::fail("the order of arrival changes the sum"));
        }
        Ok(Outcome::pass(format!(
            "{ranks} ranks, {} orders of arrival: the sum by definition",
            self.arrivals
        ))
        .with("digest", digests.remove(0))
        .with("elements", elements as u64))
    }
}

/// Seeded values of mixed magnitude, rounded to the element type.
pub(super) fn contributions(
    dtype: DType,
    ranks: usize,
    elements: usize,
) -> Result<Vec<Elements>, String> {
    let one = |rank: usize| {
        let mut words = SplitMix64::new(rank as u64 + 1);
        let values: Vec<f32> = (0..elements)
            .map(|i| {
                let scale = [1.0, 16.0, 0.02, 100.0][(i + rank) % 4];
                ((2.0 * words.next_unit() - 1.0) * scale) as f32
            })
            .collect();
        Elements::rounded(&values, dtype).map_err(|e| e.to_string())
    };
    (0..ranks).map(one).collect()
}

/// The sum of every element, by definition.
pub(super) fn by_definition(brought: &[Elements], dtype: DType) -> Result<Vec<f64>, String> {
    let format = Format::of(dtype).ok_or("the element type has no sum")?;
    let widened: Vec<Vec<f32>> = brought.iter().map(Elements::widened).collect();
    let of_all = |i: usize| widened.iter().map(|v| f64::from(v[i])).collect::<Vec<_>>();
    Ok((0..brought[0].len()).map(|i| oracle::sum(&of_all(i), format)).collect())
}

/// What every rank gets, when they arrive in the order that `arrival` draws.
fn meet(brought: &[Elements], arrival: u64) -> Result<Vec<Vec<f32>>, String> {
    let world = World::new(vec![brought.len()], brought.len());
    let mut words = SplitMix64::new(arrival);
    let waits: Vec<u64> = brought.iter().map(|_| words.next_word() % 300).collect();
    thread::scope(|scope| {
        let rank = |(index, own): (usize, &Elements)| {
            let (world, own, wait) = (&world, own.clone(), waits[index]);
            scope.spawn(move || {
                thread::sleep(Duration::from_micros(wait));
                let all = world.exchange(Member { group: 0, index }, own);
                let all = all.map_err(|e| e.to_string())?;
                sum(&all).map(|s| s.widened()).map_err(|e| e.to_string())
            })
        };
        let handles: Vec<_> = brought.iter().enumerate().map(rank).collect();
        let joined = handles.into_iter().map(|h| h.join().map_err(|_| "a rank died".to_owned())?);
        joined.collect()
    })
}

/// The first element that is not the expected one, by bits.
pub(super) fn difference(expected: &[f64], found: &[f32]) -> Option<String> {
    if expected.len() != found.len() {
        return Some(format!("{} elements, expected {}", found.len(), expected.len()));
    }
    let same = |(a, b): (&f64, &f32)| a.to_bits() == f64::from(*b).to_bits() && b.is_finite();
    let at = expected.iter().zip(found).position(|pair| !same(pair))?;
    Some(format!("element {at} is {:e}, by definition {:e}", found[at], expected[at]))
}

fn digest(values: &[f32]) -> String {
    let mut hasher = Hasher::new();
    hasher.update_f32(values);
    hasher.finish().to_string()
}
