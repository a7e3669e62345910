//! The comparison of two captures.

use super::arrays::{ArrayComparison, compare_arrays};
use super::{Admission, Capture, CaptureInfo, Mode, admit};
use crate::engine::manifest::{self, ManifestDifference};
use crate::units::Exit;

/// How two captures compare.
#[derive(Clone, Debug, PartialEq)]
pub struct CaptureComparison {
    pub mode: Mode,
    /// Field by field; `None` where a side has no manifest, in which case nothing is assumed.
    pub manifests: Option<ManifestDifference>,
    /// What the manifests admit; `None` as above.
    pub admission: Option<Admission>,
    /// Differences of what was fed in: prompts, token ids, positions kept, greedy steps.
    pub inputs: Vec<String>,
    /// Differences of how it was fed in: chunks. Shown; equal bits across them are a result.
    pub cases: Vec<String>,
    pub arrays: Vec<ArrayComparison>,
}

impl CaptureComparison {
    /// Whether there are arrays, all are on both sides, and all are bitwise equal and finite.
    pub fn arrays_equal(&self) -> bool {
        !self.arrays.is_empty() && self.arrays.iter().all(ArrayComparison::equal)
    }

    /// The exit code of the comparison (see `docs/identities.md`).
    pub fn exit(&self) -> Exit {
        match (&self.admission, self.mode) {
            (_, Mode::Diagnostic) => Exit::Diagnostic,
            (None, _) if self.shared_arrays_equal() => Exit::Legacy,
            (Some(Admission::Admitted { .. } | Admission::Scoped { .. }), _)
                if self.inputs.is_empty() && self.arrays_equal() =>
            {
                Exit::Success
            }
            _ => Exit::Fail,
        }
    }

    /// Of a file without a manifest, whatever it has in common with the other.
    fn shared_arrays_equal(&self) -> bool {
        let mut shared = self.arrays.iter().filter(|a| a.shared()).peekable();
        shared.peek().is_some() && shared.all(ArrayComparison::equal)
    }
}

/// Compares two captures.
pub fn compare(left: &Capture, right: &Capture, mode: Mode) -> CaptureComparison {
    let manifests = match (&left.manifest, &right.manifest) {
        (Some(l), Some(r)) => Some(manifest::compare(l, r)),
        _ => None,
    };
    let (inputs, cases) = match (&left.info, &right.info) {
        (Some(l), Some(r)) => (inputs(l, r), cases(l, r)),
        (None, None) => (vec!["neither file says what was fed in".to_owned()], Vec::new()),
        (None, _) => (vec!["the left file does not say what was fed in".to_owned()], Vec::new()),
        (_, None) => (vec!["the right file does not say what was fed in".to_owned()], Vec::new()),
    };
    CaptureComparison {
        mode,
        admission: manifests.as_ref().map(|m| admit(m, mode)),
        manifests,
        inputs,
        cases,
        arrays: compare_arrays(&left.arrays, &right.arrays),
    }
}

fn inputs(left: &CaptureInfo, right: &CaptureInfo) -> Vec<String> {
    let mut found = Vec::new();
    let names = |info: &CaptureInfo| -> Vec<String> {
        info.prompts.iter().map(|p| p.name.clone()).collect()
    };
    for name in names(left).iter().filter(|n| !names(right).contains(n)) {
        found.push(format!("prompt `{name}` is in the left capture only"));
    }
    for r in &right.prompts {
        match left.prompts.iter().find(|l| l.name == r.name) {
            None => found.push(format!("prompt `{}` is in the right capture only", r.name)),
            Some(l) if l.token_ids != r.token_ids => {
                let at = l.token_ids.iter().zip(&r.token_ids).take_while(|(a, b)| a == b).count();
                found
                    .push(format!("prompt `{}` has other token ids from position {at} on", r.name));
            }
            Some(_) => {}
        }
    }
    let mut differs = |what: &str, l: String, r: String| {
        if l != r {
            found.push(format!("{what}: {l} against {r}"));
        }
    };
    let positions = |info: &CaptureInfo| if info.all_positions { "all" } else { "last" }.to_owned();
    differs("positions", positions(left), positions(right));
    differs("greedy steps", left.greedy_steps.to_string(), right.greedy_steps.to_string());
    found
}

fn cases(left: &CaptureInfo, right: &CaptureInfo) -> Vec<String> {
    if left.chunk_tokens == right.chunk_tokens {
        return Vec::new();
    }
    left.prompts
        .iter()
        .filter_map(|l| Some((l, right.prompts.iter().find(|r| r.name == l.name)?)))
        .filter(|(l, r)| l.cases != r.cases)
        .map(|(l, _)| {
            format!(
                "prompt `{}` in chunks of {} against {}",
                l.name, left.chunk_tokens, right.chunk_tokens
            )
        })
        .collect()
}
