//! Which rows of which tensors are used, and by whom: what is left over is a contradiction too.

use super::error::quoted;
use super::resolve::{label, stored_matrix};
use super::{Checkpoint, CheckpointError, Rule};
use crate::descriptor::{Descriptor, RoleName, Scope, TensorIndex};
use crate::units::mutant;
use std::collections::BTreeMap;
use std::ops::Range;

/// The name under which Hugging Face files keep the head.
const HEAD: &str = "lm_head.weight";

/// Rows taken so far, by tensor.
#[derive(Debug, Default)]
pub(super) struct Claims(BTreeMap<String, Vec<(Range<usize>, String)>>);

impl Claims {
    pub(super) fn claim(&mut self, tensor: &str, rows: Range<usize>, by: String) {
        self.0.entry(tensor.to_owned()).or_default().push((rows, by));
    }

    /// Requires that used tensors are used up and that unused ones may be ignored.
    pub(super) fn check(
        mut self,
        checkpoint: &Checkpoint,
        descriptor: &Descriptor,
    ) -> Result<(), CheckpointError> {
        for (name, rows) in &mut self.0 {
            check_cover(checkpoint, name, rows)?;
        }
        for (name, _) in checkpoint.tensors() {
            let known = self.0.contains_key(name) || mutant!("unclaimed_tensor_accepted");
            if !known && !TensorIndex::is_skipped(name) {
                check_unclaimed(checkpoint, descriptor, name)?;
            }
        }
        Ok(())
    }
}

fn check_cover(
    checkpoint: &Checkpoint,
    name: &str,
    rows: &mut [(Range<usize>, String)],
) -> Result<(), CheckpointError> {
    let refuse = |found: String| Err(error(checkpoint, name, Rule::RowCover, found));
    rows.sort_by_key(|(range, _)| range.start);
    let mut end = 0;
    let mut last = "";
    for (range, by) in rows.iter() {
        if range.start < end {
            return refuse(format!("row {} used by {last} and by {by}", range.start));
        }
        if range.start > end {
            return refuse(format!("rows {end} to {} unused before {by}", range.start));
        }
        (end, last) = (range.end, by);
    }
    match checkpoint.tensor(name).map(|entry| stored_matrix(&entry.shape).0) {
        Some(stored) if stored > end => refuse(format!("rows {end} to {stored} unused")),
        _ => Ok(()),
    }
}

fn check_unclaimed(
    checkpoint: &Checkpoint,
    descriptor: &Descriptor,
    name: &str,
) -> Result<(), CheckpointError> {
    let is_head = name == HEAD || name.ends_with(&format!(".{HEAD}"));
    if let Some(role) = descriptor.roles.iter().find(|r| is_head && r.name == RoleName::LmHead)
        && let Some(tied_to) = role.tied_to
    {
        return check_tied_head(checkpoint, descriptor, name, tied_to);
    }
    if let Some((role, layer)) = role_of_other_layer(descriptor, name) {
        let what = label(role, Some(layer));
        return Err(if layer >= descriptor.layers() {
            let found = format!("{what}, of {} layers", descriptor.layers());
            error(checkpoint, name, Rule::LayerCount, found)
        } else {
            let found = format!("{what}, a layer that has no such role");
            error(checkpoint, name, Rule::UnclaimedTensor, found)
        });
    }
    let entry = checkpoint.tensor(name).map(|e| e.describe()).unwrap_or_default();
    Err(error(checkpoint, name, Rule::UnclaimedTensor, format!("{entry} that no role uses")))
}

/// A tied model may carry its head as a copy; a different one contradicts the flag.
fn check_tied_head(
    checkpoint: &Checkpoint,
    descriptor: &Descriptor,
    name: &str,
    tied_to: RoleName,
) -> Result<(), CheckpointError> {
    let source = descriptor.roles.iter().find(|r| r.name == tied_to);
    let source = source.and_then(|role| role.tensors(None).into_iter().next());
    let source = source.map(|(name, _)| name).unwrap_or_default();
    let (Some(head), Some(embedding)) = (checkpoint.tensor(name), checkpoint.tensor(&source))
    else {
        return Ok(());
    };
    let same = head.dtype == embedding.dtype
        && head.shape == embedding.shape
        && checkpoint.bytes(name) == checkpoint.bytes(&source);
    if same || mutant!("other_tied_head_accepted") {
        return Ok(());
    }
    let found = format!("a head that differs from {}", quoted(&source));
    Err(error(checkpoint, name, Rule::TiedFlag, found)
        .expected(format!("no head, or a copy of {tied_to} (the descriptor ties them)"))
        .help("if the model does not tie head and embedding, set tie_word_embeddings to false"))
}

/// The role and layer that `name` would have if its layer had that role.
fn role_of_other_layer(descriptor: &Descriptor, name: &str) -> Option<(RoleName, usize)> {
    descriptor.roles.iter().filter(|r| matches!(r.scope, Scope::Layers(_))).find_map(|role| {
        role.views.iter().find_map(|view| {
            let (prefix, suffix) = view.tensor.split_once("{layer}")?;
            let number = name.strip_prefix(prefix)?.strip_suffix(suffix)?;
            Some((role.name, number.parse().ok()?))
        })
    })
}

fn error(checkpoint: &Checkpoint, name: &str, rule: Rule, found: String) -> CheckpointError {
    let file = checkpoint.file_of(name).unwrap_or(checkpoint.main_file());
    CheckpointError::new(file, rule, found).tensor(name)
}
