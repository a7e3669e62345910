//! A comparison in words and as JSON.

use super::{Admission, ArrayComparison, ArrayState, CaptureComparison, Mode};
use serde_json::{Value, json};

impl Admission {
    /// One word for tables and JSON.
    pub fn word(&self) -> &'static str {
        match self {
            Admission::Admitted { .. } => "admitted",
            Admission::Scoped { .. } => "scoped_exception",
            Admission::Refused { .. } => "refused",
            Admission::Diagnostic => "diagnostic",
        }
    }

    /// Why it was refused, or which allowed differences are shown.
    pub fn notes(&self) -> &[String] {
        match self {
            Admission::Admitted { shown } | Admission::Scoped { shown } => shown,
            Admission::Refused { reasons } => reasons,
            Admission::Diagnostic => &[],
        }
    }
}

impl Mode {
    /// As the command line spells it.
    pub fn describe(self) -> String {
        match self {
            Mode::Diagnostic => "diagnostic".into(),
            Mode::Strict { across, deployment_scoped } => {
                let across = across.map_or(String::new(), |a| format!(" across {}", a.as_str()));
                let scoped = if deployment_scoped { ", deployment-scoped" } else { "" };
                format!("strict{across}{scoped}")
            }
        }
    }
}

impl CaptureComparison {
    /// What the comparison came to, in a sentence.
    pub fn verdict(&self) -> String {
        let shared = self.arrays.iter().filter(|a| a.shared()).count();
        let equal = self.arrays.iter().filter(|a| a.equal()).count();
        let lone = self.arrays.len() - shared;
        let mut arrays = match (shared, shared - equal) {
            (0, _) => "the captures have no array in common".to_owned(),
            (n, 0) => format!("all {n} arrays in common are bitwise equal"),
            (n, different) => format!("{different} of {n} arrays in common differ"),
        };
        if lone > 0 {
            arrays += &format!(", {lone} are on one side only");
        }
        let inputs = if self.inputs.is_empty() { "" } else { "; the inputs differ" };
        match &self.admission {
            None => format!("legacy: a side has no manifest, nothing is verified; {arrays}"),
            Some(Admission::Diagnostic) => format!("diagnostic, never a pass: {arrays}{inputs}"),
            Some(Admission::Refused { .. }) => {
                format!("refused: the manifests do not admit this comparison; {arrays}{inputs}")
            }
            Some(admitted) => {
                let passed = self.inputs.is_empty() && self.arrays_equal();
                let word = if passed { "pass" } else { "fail" };
                let scoped = match admitted {
                    Admission::Scoped { .. } => ", but for where it ran (scoped exception)",
                    _ => "",
                };
                format!("{word}: the manifests agree{scoped}; {arrays}{inputs}")
            }
        }
    }

    /// Everything that was found.
    pub fn to_json(&self) -> Value {
        json!({
            "mode": self.mode.describe(),
            "exit": self.exit().code(),
            "verdict": self.verdict(),
            "admission": self.admission.as_ref().map_or("legacy", Admission::word),
            "notes": self.admission.as_ref().map_or(&[][..], Admission::notes),
            "inputs": self.inputs,
            "cases": self.cases,
            "manifests": self.manifests.as_ref().map(|m| m.to_json()),
            "arrays": self.arrays.iter().map(array_json).collect::<Vec<_>>(),
        })
    }
}

fn array_json(array: &ArrayComparison) -> Value {
    // A number that is not finite has no JSON spelling: its name stands for it.
    let number = |v: f64| if v.is_finite() { json!(v) } else { json!(v.to_string()) };
    let mut value = match &array.state {
        ArrayState::Equal { values } => json!({ "state": "equal", "values": values }),
        ArrayState::Different { difference: d, first_row, rows } => json!({
            "state": "different",
            "values": d.count,
            "unequal_bits": d.unequal_bits,
            "non_finite": d.non_finite,
            "max_abs": number(d.max_abs),
            "mean_abs": number(d.mean_abs),
            "p99_abs": number(d.p99_abs),
            "rms": number(d.rms),
            "max_ulp": d.max_ulp,
            "first_row": first_row,
            "rows_different": rows.0,
            "rows": rows.1,
        }),
        ArrayState::DifferentIds { first, unequal, values } => json!({
            "state": "different",
            "values": values,
            "unequal": unequal,
            "first": first,
        }),
        ArrayState::Mismatch { left, right } => {
            json!({ "state": "mismatch", "left": left, "right": right })
        }
        ArrayState::OnlyLeft => json!({ "state": "only_left" }),
        ArrayState::OnlyRight => json!({ "state": "only_right" }),
    };
    value["name"] = array.name.as_str().into();
    value
}
