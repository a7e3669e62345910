//! The gate: cells of the matrix, refusals, and how they are decided.

use super::contents::Contents;
use super::definition::{self, Packed};
use super::refused::Refused;
use crate::harness::kind::{
    Case, Cell, DeviceUse, Fault, GateKind, KindSpec, Outcome, PlanScope, PolicyUse, RunContext,
};
use crate::harness::plan::Matrix;
use crate::harness::spec::NonEmpty;
use crate::tensor::{Int4Shape, dequantise_row, quantise};
use crate::units::Digest;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The case of a matrix cell.
const FORMAT: &str = "format";

/// The packed format `int4_symmetric_group_bf16_scale`.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::harness::kinds) struct QuantFormat {
    matrix: Cells,
    /// What the format refuses, each with the whole message.
    refusals: BTreeMap<Refused, String>,
}

#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Cells {
    /// Values along K that share a scale.
    group: NonEmpty<usize>,
    /// N and K.
    shape: NonEmpty<[usize; 2]>,
    contents: NonEmpty<Contents>,
}

impl KindSpec for QuantFormat {
    const NAME: &'static str = "quant_format";
    const DEVICE: DeviceUse = DeviceUse::Host;
    const POLICY: PolicyUse = PolicyUse::None;
}

impl GateKind for QuantFormat {
    fn cases(&self, _scope: &PlanScope) -> Result<Vec<Case>, Fault> {
        if let Some(missing) = Refused::ALL.iter().find(|r| !self.refusals.contains_key(r)) {
            let message = format!("`{}` is missing: every refusal is tried", missing.name());
            return Err(Fault::at("refusals", message));
        }
        for group in self.matrix.group.iter() {
            for [rows, cols] in self.matrix.shape.iter() {
                Int4Shape::new(*rows, *cols, *group)
                    .map_err(|e| Fault::at("matrix", e.to_string()))?;
            }
        }
        let mut cases = Matrix::new()
            .axis("group", &self.matrix.group)
            .axis("shape", &self.matrix.shape)
            .axis("contents", &self.matrix.contents)
            .cases([FORMAT]);
        cases.extend(self.refusals.keys().map(|r| Case::named(r.name())));
        Ok(cases)
    }

    fn run(&self, cell: &Cell, _context: &RunContext) -> Outcome {
        let refused = self.refusals.iter().find(|(r, _)| cell.case.as_deref() == Some(r.name()));
        match refused {
            Some((case, message)) => refusal(*case, message),
            None => trial(cell).unwrap_or_else(Outcome::error),
        }
    }
}

fn refusal(case: Refused, expected: &str) -> Outcome {
    match case.attempt() {
        Err(e) if e.to_string() == expected => Outcome::pass("refused").with("message", expected),
        Err(e) => Outcome::fail(format!("expected the message: {expected}\nfound: {e}")),
        Ok(()) => Outcome::fail(format!("expected a refusal, found none: {expected}")),
    }
}

fn trial(cell: &Cell) -> Result<Outcome, String> {
    let group: usize = cell.read("group")?;
    let [rows, cols]: [usize; 2] =
        cell.read_list("shape")?.try_into().map_err(|_| "axis `shape` needs two numbers")?;
    let named = cell.axis("contents");
    let contents = Contents::ALL
        .into_iter()
        .find(|c| Some(crate::harness::plan::AxisValue::axis_text(c)) == named)
        .ok_or("axis `contents` names none")?;
    let shape = Int4Shape::new(rows, cols, group).map_err(|e| e.to_string())?;
    let values = contents.values(rows, cols, group);
    let (codes, scales) = quantise(&values, shape).map_err(|e| e.to_string())?;
    Ok(decide(&values, Packed { codes, scales }, shape))
}

/// Decides what a quantiser made of `values`.
pub(super) fn decide(values: &[f32], found: Packed, shape: Int4Shape) -> Outcome {
    let (cols, group) = (shape.cols(), shape.group());
    let expected = definition::pack(values, cols, group);
    if let Some(at) = first_difference(&found.scales, &expected.scales) {
        return Outcome::fail(format!(
            "scale {at}: the definition gives {:04x?}, found {:04x?}",
            expected.scales.get(at),
            found.scales.get(at)
        ));
    }
    if let Some(at) = first_difference(&found.codes, &expected.codes) {
        return Outcome::fail(format!(
            "codes {} and {}: the definition gives {:02x?}, found {:02x?}",
            2 * at,
            2 * at + 1,
            expected.codes.get(at),
            found.codes.get(at)
        ));
    }
    let mut back = vec![f32::NAN; values.len()];
    let rows = back
        .chunks_exact_mut(cols)
        .zip(found.codes.chunks_exact(shape.row_bytes()))
        .zip(found.scales.chunks_exact(shape.groups_per_row()));
    for ((row, codes), scales) in rows {
        dequantise_row(codes, scales, group, row);
    }
    let exact = definition::unpack(&expected, group);
    if let Some(i) = (0..back.len()).find(|i| f64::from(back[*i]) != exact[*i]) {
        return Outcome::fail(format!("value {i}: q * s is {}, found {}", exact[i], back[i]));
    }
    match quantise(&back, shape) {
        Err(e) => Outcome::fail(format!("what was dequantised is refused: {e}")),
        Ok((codes, scales)) if (&codes, &scales) != (&found.codes, &found.scales) => {
            Outcome::fail("quantising what was dequantised gives other codes or scales")
        }
        Ok(_) => Outcome::pass(format!("{} codes, {} scales", values.len(), found.scales.len()))
            .with("codes_sha256", Digest::of(&found.codes).to_string()),
    }
}

fn first_difference<T: PartialEq>(a: &[T], b: &[T]) -> Option<usize> {
    match a.iter().zip(b).position(|(a, b)| a != b) {
        None if a.len() != b.len() => Some(a.len().min(b.len())),
        at => at,
    }
}
