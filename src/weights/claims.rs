//! Which rows of which tensors are used, and by whom: what is left over is a contradiction too.

use super::error::quoted;
use super::resolve::{label, tensor_name};
use super::{Checkpoint, CheckpointError, Rule};
use crate::descriptor::{Descriptor, RoleName, Scope};
use std::collections::BTreeMap;
use std::ops::Range;

/// Tensors that a text engine skips: vision towers, and the multi-token-prediction head.
const IGNORED_PREFIXES: [&str; 4] = ["model.visual.", "visual.", "mtp.", "model.mtp."];
/// Buffers that old writers stored although they follow from the config.
const IGNORED_SUFFIXES: [&str; 1] = ["rotary_emb.inv_freq"];
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
            if !self.0.contains_key(name) && !is_ignored(name) {
                check_unclaimed(checkpoint, descriptor, name)?;
            }
        }
        Ok(())
    }
}

/// Whether a tensor of this name is indexed and never read.
pub(super) fn is_ignored(name: &str) -> bool {
    IGNORED_PREFIXES.iter().any(|p| name.starts_with(p))
        || IGNORED_SUFFIXES.iter().any(|s| name.ends_with(s))
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
    match checkpoint.tensor(name).and_then(|entry| entry.shape.first()) {
        Some(&stored) if stored > end => refuse(format!("rows {end} to {stored} unused")),
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
    Err(error(checkpoint, name, Rule::UnclaimedTensor, format!("{entry} that no role uses")).help(
        format!(
            "ignored are names that start with {} or end in {}",
            IGNORED_PREFIXES.join(", "),
            IGNORED_SUFFIXES.join(", ")
        ),
    ))
}

/// A tied model may carry its head as a copy; a different one contradicts the flag.
fn check_tied_head(
    checkpoint: &Checkpoint,
    descriptor: &Descriptor,
    name: &str,
    tied_to: RoleName,
) -> Result<(), CheckpointError> {
    let source = descriptor.roles.iter().find(|r| r.name == tied_to).and_then(|r| r.views.first());
    let source = source.map(|view| tensor_name(&view.tensor, None)).unwrap_or_default();
    let (Some(head), Some(embedding)) = (checkpoint.tensor(name), checkpoint.tensor(&source))
    else {
        return Ok(());
    };
    let same = head.dtype == embedding.dtype
        && head.shape == embedding.shape
        && checkpoint.bytes(name) == checkpoint.bytes(&source);
    if same {
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

/// The candidate closest to `name`, if one is close enough to be a likely misspelling.
pub(super) fn nearest<'a>(
    name: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    candidates
        .map(|c| (distance(name, c), c))
        .min()
        .filter(|(d, _)| *d <= name.len() / 4)
        .map(|(_, c)| c)
}

/// Levenshtein distance in bytes.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_finds_its_neighbour() {
        let names = ["model.embed_tokens.weight", "model.norm.weight"];
        let find = |name| nearest(name, names.into_iter());
        assert_eq!(find("model.embed_token.weight"), Some("model.embed_tokens.weight"));
        assert_eq!(find("something.else"), None);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
