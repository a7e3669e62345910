//! The first place where two captures differ: step, activation, token and element, in the order in
//! which the engine computed them.

use super::{Capture, CaptureInfo, PromptInfo};
use crate::tensor::DType;
use serde::Serialize;

/// The name under which logits take part in the walk, after every activation.
pub const LOGITS: &str = "logits";

/// The first element that is not the same.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FirstDifference {
    pub prompt: String,
    /// Name of the array in the captures.
    pub array: String,
    /// The activation, or [`LOGITS`].
    pub activation: String,
    /// Regions that ran since the activation before, which is the same on both sides; the last one
    /// made this activation. Empty where the capture does not say (older ones).
    pub regions: Vec<String>,
    /// The activation before; `None` for the first one.
    pub before: Option<String>,
    /// `chunked_prefill`, `tail_1`, …: how the step was executed.
    pub case: String,
    /// Position of the token in the sequence.
    pub position: usize,
    pub token_id: Option<u32>,
    /// Index of the element in its row, and the length of the row.
    pub element: usize,
    pub width: usize,
    #[serde(serialize_with = "number")]
    pub left: f32,
    #[serde(serialize_with = "number")]
    pub right: f32,
    /// The same as hexadecimal bits.
    pub left_bits: String,
    pub right_bits: String,
    /// Distance in steps of the FP32 grid; `None` where a side is not a number.
    pub ulp: Option<u64>,
    /// Elements of this row that differ.
    pub unequal_in_row: usize,
    /// Row of the array.
    pub row: usize,
}

/// What a walk came to.
#[derive(Clone, Debug, PartialEq)]
pub enum Walk {
    Different(Box<FirstDifference>),
    /// Nothing that both captures hold differs in any bit.
    Same {
        activations: usize,
    },
}

/// A capture that cannot be walked, in a sentence that says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CannotWalk(pub String);

/// Non-finite numbers as their names, since JSON has none.
fn number<S: serde::Serializer>(value: &f32, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        v if v.is_finite() => serializer.serialize_f32(*v),
        v if v.is_nan() => serializer.serialize_str("nan"),
        v if *v > 0.0 => serializer.serialize_str("inf"),
        _ => serializer.serialize_str("-inf"),
    }
}

/// How activations are recorded, for messages.
pub const HOW_TO_RECORD: &str = "record both sides with `assay capture record … --tap all` (every activation) or `--taps` (the \
     residual stream of every layer)";

/// Walks both captures in the order of execution: prompts, steps, activations, rows, elements.
///
/// # Errors
/// A file that does not say what was executed, or captures without a prompt in common.
pub fn first_difference(left: &Capture, right: &Capture) -> Result<Walk, CannotWalk> {
    let info = |capture: &'_ Capture| {
        capture.info.clone().ok_or_else(|| {
            CannotWalk(format!(
                "{} does not say what was executed, so there is no order to walk in; {HOW_TO_RECORD}",
                capture.path.display()
            ))
        })
    };
    let (l, r) = (info(left)?, info(right)?);
    let mut activations = 0;
    let mut shared = false;
    for prompt in &l.prompts {
        let Some(other) = r.prompts.iter().find(|p| p.name == prompt.name) else { continue };
        shared = true;
        let walk = Prompt { left, right, info: &l, prompt, other };
        let stops = walk.stops();
        activations += stops.len();
        if let Some(found) = walk.first(&stops) {
            return Ok(Walk::Different(Box::new(found)));
        }
    }
    if !shared {
        return Err(CannotWalk("the captures have no prompt in common".to_owned()));
    }
    Ok(Walk::Same { activations })
}

/// One prompt of both captures.
struct Prompt<'a> {
    left: &'a Capture,
    right: &'a Capture,
    info: &'a CaptureInfo,
    prompt: &'a PromptInfo,
    other: &'a PromptInfo,
}

/// An array on the way.
struct Stop {
    activation: String,
    array: String,
    regions: Vec<String>,
    /// Position of its first row.
    first_position: usize,
    rows: usize,
    width: usize,
}

/// A step: its positions and how it was executed.
struct Step {
    first: usize,
    end: usize,
    case: String,
}

impl Prompt<'_> {
    /// The arrays that both sides have with the same type and shape, in the order of execution.
    /// Regions of activations that one side lacks are added to those of the next shared one.
    fn stops(&self) -> Vec<Stop> {
        let mut stops = Vec::new();
        let mut regions: Vec<String> = Vec::new();
        let names = self.info.taps.iter().map(String::as_str).chain([LOGITS]);
        for (at, activation) in names.enumerate() {
            for region in self.info.tap_regions.get(at).into_iter().flatten() {
                regions.retain(|r| r != region);
                regions.push(region.clone());
            }
            let name = &self.prompt.name;
            let (array, first_position) = if activation == LOGITS {
                (format!("logits.{name}"), self.prompt.first_logits_position)
            } else {
                (format!("tap.{name}.{activation}"), 0)
            };
            let Some((rows, width)) = self.shape(&array) else { continue };
            // The head runs for the last rows only, where nothing else is wanted of the others.
            let first_position = match activation {
                LOGITS => first_position,
                _ => self.prompt.token_ids.len().saturating_sub(rows),
            };
            if activation == LOGITS
                && self.prompt.first_logits_position != self.other.first_logits_position
            {
                continue;
            }
            stops.push(Stop {
                activation: activation.to_owned(),
                array,
                regions: std::mem::take(&mut regions),
                first_position,
                rows,
                width,
            });
        }
        stops
    }

    fn shape(&self, array: &str) -> Option<(usize, usize)> {
        let (l, r) = (self.left.arrays.tensor(array)?, self.right.arrays.tensor(array)?);
        let same = l.shape == r.shape && l.dtype == r.dtype && l.dtype == DType::F32;
        match l.shape[..] {
            [rows, width] if same && width > 0 => Some((rows, width)),
            _ => None,
        }
    }

    /// The steps that consumed the prompt; one step of everything where the two sides were fed in
    /// other pieces and so have no common order.
    fn steps(&self) -> Vec<Step> {
        let tokens = self.prompt.token_ids.len();
        let prefill = |p: &PromptInfo| -> Vec<Step> {
            let runs = p.cases.iter().filter(|run| run.step_tokens > 0);
            runs.flat_map(|run| {
                // A file may claim any number of steps; those behind the prompt consumed nothing of it.
                let starts = (run.position..tokens).step_by(run.step_tokens).take(run.steps);
                starts.map(move |first| {
                    let end = first.saturating_add(run.step_tokens);
                    Step { first, end, case: run.case.clone() }
                })
            })
            .collect()
        };
        if self.prompt.cases == self.other.cases {
            return prefill(self.prompt);
        }
        let case = "fed in other pieces".to_owned();
        vec![Step { first: 0, end: tokens, case }]
    }

    fn first(&self, stops: &[Stop]) -> Option<FirstDifference> {
        for step in self.steps() {
            let mut before = None;
            for stop in stops {
                for row in 0..stop.rows {
                    let position = stop.first_position.saturating_add(row);
                    if (step.first..step.end).contains(&position)
                        && let Some(found) = self.row(stop, row, &step, before)
                    {
                        return Some(found);
                    }
                }
                before = Some(stop);
            }
        }
        None
    }

    /// The first difference of a row.
    fn row(
        &self,
        stop: &Stop,
        row: usize,
        step: &Step,
        before: Option<&Stop>,
    ) -> Option<FirstDifference> {
        let side = |capture: &'_ Capture| row_bytes(capture, &stop.array, row, stop.width).to_vec();
        // The whole row at once first: most rows are equal.
        if row_bytes(self.left, &stop.array, row, stop.width)
            == row_bytes(self.right, &stop.array, row, stop.width)
        {
            return None;
        }
        let (a, b) = (floats(&side(self.left)), floats(&side(self.right)));
        let unequal: Vec<usize> =
            (0..stop.width).filter(|&i| a[i].to_bits() != b[i].to_bits()).collect();
        let element = *unequal.first()?;
        let position = stop.first_position.saturating_add(row);
        let (left, right) = (a[element], b[element]);
        Some(FirstDifference {
            prompt: self.prompt.name.clone(),
            array: stop.array.clone(),
            activation: stop.activation.clone(),
            regions: stop.regions.clone(),
            before: before.map(|s| s.activation.clone()),
            case: step.case.clone(),
            position,
            token_id: self.prompt.token_ids.get(position).copied(),
            element,
            width: stop.width,
            left,
            right,
            left_bits: format!("{:#010x}", left.to_bits()),
            right_bits: format!("{:#010x}", right.to_bits()),
            ulp: ulp(left, right),
            unequal_in_row: unequal.len(),
            row,
        })
    }
}

/// The bytes of a row of an FP32 array.
pub(super) fn row_bytes<'a>(
    capture: &'a Capture,
    array: &str,
    row: usize,
    width: usize,
) -> &'a [u8] {
    let bytes = capture.arrays.bytes(array).unwrap_or_default();
    bytes.get(row * width * 4..(row + 1) * width * 4).unwrap_or_default()
}

/// FP32 values from their bytes.
pub(super) fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// Distance on the grid of FP32 numbers.
fn ulp(a: f32, b: f32) -> Option<u64> {
    if a.is_nan() || b.is_nan() {
        return None;
    }
    // Bits of negative numbers run the other way.
    let ordered = |x: f32| {
        let bits = i64::from(x.to_bits() as i32);
        if bits < 0 { i64::from(i32::MIN) - bits } else { bits }
    };
    Some(ordered(a).abs_diff(ordered(b)))
}

#[cfg(test)]
mod tests {
    use super::ulp;

    #[test]
    fn distances_count_grid_steps_across_zero() {
        let up = |x: f32| f32::from_bits(x.to_bits() + 1);
        assert_eq!(ulp(1.0, up(1.0)), Some(1));
        assert_eq!(ulp(-0.0, 0.0), Some(0));
        assert_eq!(ulp(-f32::from_bits(1), f32::from_bits(1)), Some(2));
        assert_eq!(ulp(f32::NAN, 1.0), None);
    }
}
