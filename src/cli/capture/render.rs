//! Comparisons as text.

use crate::cli::table::columns;
use crate::cli::{Console, Tone};
use crate::engine::manifest::ManifestDifference;
use crate::harness::capture::{
    Admission, ArrayComparison, ArrayState, CaptureComparison, FirstDifference, Walk,
};
use crate::units::{Canonical, Exit};

/// Arrays listed one by one before the rest is counted.
const LISTED_ARRAYS: usize = 40;
/// Characters of a field's value before it is cut.
const VALUE_WIDTH: usize = 40;

/// A whole comparison.
pub(super) fn comparison(
    comparison: &CaptureComparison,
    names: &[String; 2],
    walk: Option<&Walk>,
    console: &Console,
) -> String {
    let mut text = format!("left   {}\nright  {}\n", names[0], names[1]);
    text += &format!("mode   {}\n\n", comparison.mode.describe());
    match &comparison.manifests {
        Some(manifests) => text += &difference(manifests, console),
        None => text += "a side has no manifest: identities are not compared\n",
    }
    let admission = comparison.admission.as_ref();
    let label = match admission {
        Some(Admission::Refused { .. }) => "refused",
        _ => "shown",
    };
    for note in admission.map_or(&[][..], Admission::notes) {
        text += &format!("{label}: {note}\n");
    }
    for input in &comparison.inputs {
        text += &format!("inputs: {input}\n");
    }
    for case in &comparison.cases {
        text += &format!("cases: {case}\n");
    }
    text += &format!("\n{}", arrays(&comparison.arrays, console));
    match walk {
        Some(Walk::Different(found)) => text += &first_difference(found),
        Some(Walk::Same { activations }) => {
            text += &format!("first difference: none in {activations} arrays walked\n");
        }
        None => {}
    }
    let tone = match comparison.exit() {
        Exit::Success => Tone::Good,
        Exit::Fail => Tone::Bad,
        _ => Tone::Caution,
    };
    text + &format!("\n{}\n", console.paint(&comparison.verdict(), tone))
}

/// Where two captures part.
fn first_difference(found: &FirstDifference) -> String {
    let token = found.token_id.map_or(String::new(), |id| format!(" (token id {id})"));
    let region = match &found.regions[..] {
        [] => "not recorded".to_owned(),
        [one] => one.clone(),
        more => format!("one of {}", more.join(", ")),
    };
    let ulp = found.ulp.map_or(String::new(), |n| format!(", {n} ulp apart"));
    let rows = [
        ("activation", found.activation.clone()),
        ("region", region),
        ("equal before it", found.before.clone().unwrap_or_else(|| "nothing was captured".into())),
        ("prompt", found.prompt.clone()),
        ("position", format!("{}{token}, {}", found.position, found.case)),
        ("element", format!("{} of {}", found.element, found.width)),
        ("left", format!("{:e} ({})", found.left, found.left_bits)),
        ("right", format!("{:e} ({}){ulp}", found.right, found.right_bits)),
        ("in this row", format!("{} of {} elements differ", found.unequal_in_row, found.width)),
    ];
    let rows: Vec<Vec<String>> =
        rows.into_iter().map(|(name, value)| vec![format!("  {name}"), value]).collect();
    format!("first difference\n{}", columns(&rows, &[]))
}

/// Blocks side by side, and the fields that differ.
pub(crate) fn difference(difference: &ManifestDifference, console: &Console) -> String {
    let mut rows = Vec::new();
    for block in &difference.blocks {
        let state = if block.equal() { "equal" } else { "differs" };
        rows.push(vec![
            block.name.to_string(),
            block.left_id.short(),
            block.right_id.short(),
            state.to_owned(),
        ]);
    }
    let mut text = columns(&rows, &[]);
    for block in difference.blocks.iter().filter(|b| !b.equal()) {
        text += &format!("\n{}\n", console.paint(block.name.as_str(), Tone::Strong));
        let fields = block.fields.iter().map(|f| {
            let side = |v: &Option<Canonical>| v.as_ref().map_or("-".into(), value);
            vec![format!("  {}", f.path), side(&f.left), side(&f.right)]
        });
        text += &columns(&fields.collect::<Vec<_>>(), &[]);
    }
    text
}

/// A value on one line, long ones cut.
fn value(value: &Canonical) -> String {
    let text = match value {
        Canonical::Text(text) => text.clone(),
        other => other.encode(),
    };
    match text.char_indices().nth(VALUE_WIDTH) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

fn arrays(arrays: &[ArrayComparison], console: &Console) -> String {
    let equal = arrays.iter().filter(|a| a.equal()).count();
    let mut text = format!("arrays: {} compared, {equal} bitwise equal\n", arrays.len());
    let different: Vec<&ArrayComparison> = arrays.iter().filter(|a| !a.equal()).collect();
    let floats = |a: &&&ArrayComparison| matches!(a.state, ArrayState::Different { .. });
    let mut rows: Vec<Vec<String>> = different.iter().filter(floats).map(|a| row(a)).collect();
    if !rows.is_empty() {
        let head = ["", "max_abs", "mean_abs", "p99_abs", "rms", "rows", "first"];
        rows.truncate(LISTED_ARRAYS);
        rows.insert(0, head.map(str::to_owned).to_vec());
        text += &columns(&rows, &[1, 2, 3, 4, 5, 6]);
    }
    for array in different.iter().filter(|a| !floats(a)).take(LISTED_ARRAYS) {
        text += &format!("  {}: {}\n", array.name, sentence(&array.state));
    }
    if different.len() > LISTED_ARRAYS {
        let dim = format!("  of {} arrays that differ, --json lists all\n", different.len());
        text += &console.paint(&dim, Tone::Dim);
    }
    text
}

fn row(array: &ArrayComparison) -> Vec<String> {
    let ArrayState::Different { difference: d, first_row, rows } = &array.state else {
        return vec![array.name.clone()];
    };
    let number = |v: f64| format!("{v:.2e}");
    let note = match d.non_finite {
        0 => String::new(),
        n => format!(" ({n} not finite)"),
    };
    vec![
        format!("  {}{note}", array.name),
        number(d.max_abs),
        number(d.mean_abs),
        number(d.p99_abs),
        number(d.rms),
        format!("{}/{}", rows.0, rows.1),
        first_row.to_string(),
    ]
}

fn sentence(state: &ArrayState) -> String {
    match state {
        ArrayState::DifferentIds { first, unequal, values } => {
            format!("{unequal} of {values} ids differ, the first at index {first}")
        }
        ArrayState::Mismatch { left, right } => format!("{left} against {right}"),
        ArrayState::OnlyLeft => "in the left capture only".into(),
        ArrayState::OnlyRight => "in the right capture only".into(),
        ArrayState::Equal { .. } | ArrayState::Different { .. } => String::new(),
    }
}
