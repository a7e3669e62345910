//! One gate file → its cells, with what cannot run here.

use super::plan::{PlanOptions, Trial};
use crate::backend::{DeviceKind, Policy};
use crate::harness::kind::{Case, Cell, DeviceUse, Fault, Part, PlanScope, PolicyUse};
use crate::harness::records::{DeviceRecord, NotApplicable};
use crate::harness::spec::{Diagnostic, GateFile, Located, Select};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What a gate expands into.
#[derive(Debug, Default)]
pub(super) struct Expansion {
    pub(super) trials: Vec<Trial>,
    pub(super) not_applicable: Vec<NotApplicable>,
    pub(super) part: Option<Part>,
}

/// Expands a gate for the devices known.
pub(super) fn expand(
    gate: &GateFile,
    at: usize,
    options: &PlanOptions,
) -> Result<Expansion, Diagnostic> {
    let mut expansion = Expansion::default();
    let mut cells: Vec<Cell> = Vec::new();
    let mut skips: BTreeMap<DeviceKind, String> = BTreeMap::new();
    let unset: Vec<&str> = gate
        .requires
        .set
        .iter()
        .map(String::as_str)
        .filter(|key| !gate.overrides.contains_key(*key))
        .collect();
    for device in options.devices.iter().filter(|d| is_about(gate, d.device)) {
        if let Some(reason) = unavailable(gate, device) {
            skips.insert(device.device, reason);
        } else if !unset.is_empty() {
            let set: Vec<String> = unset.iter().map(|key| format!("--set {key}=…")).collect();
            skips.insert(device.device, format!("needs {}", set.join(" ")));
        }
        for policy in policies(gate, device.device, &mut expansion.not_applicable) {
            let scope = PlanScope {
                device: device.device,
                policy,
                long: options.long,
                root: options.root.clone(),
                base: base(&gate.path),
            };
            if expansion.part.is_none() {
                expansion.part = gate.kind.part(&scope);
            }
            // Without the keys it needs the kind cannot know its matrix: one skipped trial.
            let cases = if unset.is_empty() {
                gate.kind.cases(&scope).map_err(|fault| gate.locate(&fault))?
            } else {
                vec![Case::default()]
            };
            cells.extend(cases.into_iter().map(|Case { case, axes }| Cell {
                device: device.device,
                policy,
                case,
                axes,
            }));
        }
    }
    if unset.is_empty() {
        apply_rows(gate, &mut cells)?;
        check_expectations(gate, &cells)?;
    }
    if cells.is_empty() && expansion.not_applicable.is_empty() {
        let key = if gate.exclude.is_empty() { None } else { Some("exclude") };
        let message = "the gate expands into no trial, so it would test nothing".to_owned();
        return Err(gate.locate(&Fault { key, message }));
    }
    let mut names = BTreeSet::new();
    for cell in cells {
        let name = trial_name(&gate.name, &cell);
        if let Some(bad) = name.chars().find(|c| c.is_control() || c.is_whitespace()) {
            let message =
                format!("the trial name `{}` has the character {bad:?}", name.escape_debug());
            return Err(gate.locate(&Fault::from(message)));
        }
        if !names.insert(name.clone()) {
            return Err(
                gate.locate(&Fault::from(format!("the matrix has the cell `{name}` twice")))
            );
        }
        let skip = skips.get(&cell.device).cloned();
        let group = gate.kind.group(&cell);
        expansion.trials.push(Trial { name, gate: at, cell, skip, group });
    }
    Ok(expansion)
}

/// The stable name of a cell.
fn trial_name(gate: &str, cell: &Cell) -> String {
    let mut parts = vec![gate.to_owned(), cell.device.to_string()];
    parts.extend(cell.policy.map(|p| p.to_string()));
    parts.extend(cell.case.clone());
    let axes: Vec<String> = cell.axes.iter().map(|(k, v)| format!("{k}={v}")).collect();
    if !axes.is_empty() {
        parts.push(axes.join(","));
    }
    parts.join("/")
}

/// The folder that paths in a file start from.
pub(in crate::harness) fn base(path: &Path) -> PathBuf {
    let folder = path.parent().unwrap_or(Path::new(""));
    std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned())
}

fn is_about(gate: &GateFile, device: DeviceKind) -> bool {
    gate.requires.device.includes(device)
        && (gate.device_use == DeviceUse::Any || device == DeviceKind::Cpu)
}

fn unavailable(gate: &GateFile, device: &DeviceRecord) -> Option<String> {
    let needed =
        if device.device == DeviceKind::Cuda { gate.requires.device.gpus() as u64 } else { 1 };
    let several = if needed > 1 { format!(" x{needed}") } else { String::new() };
    (device.count < needed).then(|| format!("needs {}{several}: {}", device.device, device.detail))
}

/// The policies a device executes for this gate; those it lacks are noted once.
fn policies(
    gate: &GateFile,
    device: DeviceKind,
    not_applicable: &mut Vec<NotApplicable>,
) -> Vec<Option<Policy>> {
    if gate.policy_use == PolicyUse::None {
        return vec![None];
    }
    let mut note = |policy: String, reason: String| {
        not_applicable.push(NotApplicable { gate: gate.name.clone(), device, policy, reason });
    };
    let Some(listed) = &gate.policies else {
        let all = Policy::available(device);
        if all.is_empty() {
            note("every".into(), format!("{device} has no policy in this version"));
        }
        return all.iter().map(|p| Some(*p)).collect();
    };
    let mut resolved: Vec<Option<Policy>> = Vec::new();
    for policy in listed {
        match policy.resolve(device) {
            Ok(policy) if resolved.contains(&Some(policy)) => {}
            Ok(policy) => match gate.kind.not_applicable(device, policy) {
                Some(reason) => note(policy.to_string(), reason),
                None => resolved.push(Some(policy)),
            },
            Err(error) => note(policy.to_string(), error.to_string()),
        }
    }
    resolved
}

/// `exclude` and `include`.
fn apply_rows(gate: &GateFile, cells: &mut Vec<Cell>) -> Result<(), Diagnostic> {
    for row in &gate.exclude {
        row.value.check(cells).map_err(|m| gate.at_row(row, m))?;
        let before = cells.len();
        cells.retain(|cell| !row.value.matches(cell));
        if cells.len() == before {
            return Err(gate.at_row(row, format!("no cell has {} together", row.value)));
        }
    }
    for row in &gate.include {
        let cell = included(row, cells).map_err(|m| gate.at_row(row, m))?;
        cells.push(cell);
    }
    Ok(())
}

/// The cell of an `include` row: every axis of the matrix, one value each.
fn included(row: &Located<Select>, cells: &[Cell]) -> Result<Cell, String> {
    let template = cells.first().ok_or("there is no matrix to add a cell to")?;
    let mut given: BTreeMap<&str, &str> = BTreeMap::new();
    for (axis, values) in row.value.axes() {
        let [value] = values else {
            return Err(format!("`{axis}` needs exactly one value in an included cell"));
        };
        if template.axis(axis).is_none() {
            return Err(format!("the gate has no axis `{axis}`"));
        }
        given.insert(axis, value);
    }
    let mut take = |axis: &str| {
        given.remove(axis).map(str::to_owned).ok_or_else(|| format!("`{axis}` is missing"))
    };
    let device = match take("device")?.as_str() {
        "cpu" => DeviceKind::Cpu,
        "cuda" => DeviceKind::Cuda,
        other => return Err(format!("`{other}` is no device; devices are cpu, cuda")),
    };
    let policy = match template.policy {
        Some(_) => Some(take("policy")?.parse::<Policy>()?),
        None => None,
    };
    let case = template.case.as_ref().map(|_| take("case")).transpose()?;
    let axes = template.axes.iter().map(|(name, _)| Ok((name.clone(), take(name)?)));
    let cell = Cell { device, policy, case, axes: axes.collect::<Result<_, String>>()? };
    if cells.contains(&cell) {
        return Err("the matrix has this cell already".to_owned());
    }
    Ok(cell)
}

/// Every cell matches exactly one expectation, every expectation some cell.
fn check_expectations(gate: &GateFile, cells: &[Cell]) -> Result<(), Diagnostic> {
    let expectations = gate.kind.expectations();
    if expectations.is_empty() {
        return Ok(());
    }
    let fault = |message: String| gate.locate(&Fault::at("expect", message));
    for cell in cells {
        let matching: Vec<String> =
            expectations.iter().filter(|e| e.matches(cell)).map(ToString::to_string).collect();
        let name = trial_name(&gate.name, cell);
        match matching.len() {
            1 => {}
            0 => return Err(fault(format!("no expectation matches the cell `{name}`"))),
            n => {
                let rows = matching.join(" and ");
                return Err(fault(format!("{n} expectations match the cell `{name}`: {rows}")));
            }
        }
    }
    let idle = expectations.iter().find(|e| !cells.iter().any(|cell| e.matches(cell)));
    idle.map_or(Ok(()), |e| Err(fault(format!("no cell matches the expectation for {e}"))))
}
