//! From logical roles to rows of stored tensors, and the contradictions found on the way.

use super::claims::Claims;
use super::error::quoted;
use super::header::TensorEntry;
use super::{Checkpoint, CheckpointError, Rule};
use crate::descriptor::{Descriptor, Role, RoleName, RowPattern};
use crate::tensor::DType;
use crate::units::nearest;
use std::collections::BTreeSet;
use std::ops::Range;

/// A logical weight and the stored rows that make it up.
#[derive(Clone, Debug)]
pub(super) struct Located {
    pub(super) role: RoleName,
    pub(super) layer: Option<usize>,
    /// Extents of the logical matrix; a vector is one row.
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) dtype: DType,
    pub(super) parts: Vec<Part>,
}

/// Consecutive rows of one stored tensor.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) tensor: String,
    /// Bytes of the tensor, from its start.
    pub(super) bytes: Range<usize>,
}

impl Located {
    pub(super) fn elements(&self) -> usize {
        self.rows * self.cols
    }
}

/// Finds every weight of `descriptor` in `checkpoint`.
///
/// # Errors
/// The first contradiction: see the rules from [`Rule::RoleMissing`] on.
pub(super) fn resolve(
    checkpoint: &Checkpoint,
    descriptor: &Descriptor,
) -> Result<Vec<Located>, CheckpointError> {
    let mut located = Vec::new();
    let mut claims = Claims::default();
    for role in descriptor.roles.iter().filter(|r| r.tied_to.is_none()) {
        for layer in role.instances() {
            let instance = Instance { checkpoint, descriptor, role, layer };
            if checkpoint.sidecar().is_some_and(|s| s.replaces(role.name, layer)) {
                // A tensor that other roles take rows of, too, is still there.
                if role.tensors(layer).iter().any(|(name, _)| checkpoint.tensor(name).is_some()) {
                    instance.locate(&mut claims)?;
                }
                continue;
            }
            located.push(instance.locate(&mut claims)?);
        }
    }
    if let Some(attached) = checkpoint.attached() {
        attached.check_model(descriptor)?;
        for (weight, packed) in attached.sidecar.quantised() {
            for part in [&packed.codes, &packed.scales] {
                claims.claim(&part.tensor, 0..weight.shape[0], label(weight.role, weight.layer));
            }
        }
    }
    claims.check(checkpoint, descriptor)?;
    Ok(located)
}

/// The extents of a logical weight as a matrix: columns are the last extent.
pub(super) fn matrix(shape: &[usize]) -> (usize, usize) {
    match shape {
        [outer @ .., cols] => (outer.iter().product(), *cols),
        [] => (1, 1),
    }
}

/// The extents of a stored tensor as views count them: columns are the last axis, a vector has one
/// element in each row.
pub(super) fn stored_matrix(shape: &[usize]) -> (usize, usize) {
    match shape {
        [outer @ .., cols] if !outer.is_empty() => (outer.iter().product(), *cols),
        _ => (shape.iter().product(), 1),
    }
}

struct Instance<'a> {
    checkpoint: &'a Checkpoint,
    descriptor: &'a Descriptor,
    role: &'a Role,
    layer: Option<usize>,
}

impl Instance<'_> {
    fn locate(&self, claims: &mut Claims) -> Result<Located, CheckpointError> {
        let (rows, cols) = self.role.matrix();
        let mut dtype: Option<(DType, String)> = None;
        let mut parts = Vec::new();
        let mut rows_found = 0usize;
        let tensors = self.role.tensors(self.layer);
        let alone = tensors.len() == 1 && self.role.experts() != Some(1);
        for (name, pattern) in &tensors {
            let entry = self.checkpoint.tensor(name).ok_or_else(|| self.missing(name))?;
            self.check_dtype(name, entry, &dtype)?;
            dtype.get_or_insert_with(|| (entry.dtype, name.clone()));
            let ranges = self.rows_of_view(name, entry, pattern, alone)?;
            let row_bytes = stored_matrix(&entry.shape).1 * entry.dtype.size_bytes();
            for range in ranges {
                rows_found += range.len();
                let bytes = range.start * row_bytes..range.end * row_bytes;
                claims.claim(name, range, self.label());
                parts.push(Part { tensor: name.clone(), bytes });
            }
        }
        let (wanted, _) = stored_matrix(&self.role.shape);
        match dtype {
            Some((dtype, _)) if rows_found == wanted => {
                let (role, layer) = (self.role.name, self.layer);
                Ok(Located { role, layer, rows, cols, dtype, parts })
            }
            _ => {
                let found = format!("views with {rows_found} rows in all");
                let file = self.checkpoint.main_file();
                Err(CheckpointError::new(file, Rule::RoleShape, found)
                    .expected(self.shape_wanted()))
            }
        }
    }

    fn rows_of_view(
        &self,
        name: &str,
        entry: &TensorEntry,
        pattern: &RowPattern,
        alone: bool,
    ) -> Result<Vec<Range<usize>>, CheckpointError> {
        let (stored_rows, stored_cols) = stored_matrix(&entry.shape);
        let (_, cols) = stored_matrix(&self.role.shape);
        let whole = alone && *pattern == RowPattern::All;
        // Extents of 1 inside carry no information: a depthwise convolution is stored as
        // [channels, 1, taps].
        let squeezed = |shape: &[usize]| -> Vec<usize> {
            let (first, inner) = shape.split_at(shape.len().min(1));
            first.iter().chain(inner.iter().filter(|e| **e != 1)).copied().collect()
        };
        if stored_cols != cols || (whole && squeezed(&entry.shape) != squeezed(&self.role.shape)) {
            return Err(self.shape_error(name, entry));
        }
        let ranges = pattern_ranges(pattern, stored_rows).ok_or_else(|| {
            let found = format!("{:?}, of which the view takes {}", entry.shape, spell(pattern));
            let error = self.error(name, Rule::RoleShape, found);
            error.expected(format!("rows that are there for {}", self.label()))
        })?;
        let count: usize = ranges.iter().map(Range::len).sum();
        if alone && stored_matrix(&self.role.shape).0 != count {
            return Err(self.shape_error(name, entry));
        }
        Ok(ranges)
    }

    fn check_dtype(
        &self,
        name: &str,
        entry: &TensorEntry,
        first: &Option<(DType, String)>,
    ) -> Result<(), CheckpointError> {
        if !matches!(entry.dtype, DType::BF16 | DType::F16 | DType::F32) {
            let found = format!("{} for {}", entry.dtype, self.label());
            return Err(self.error(name, Rule::RoleDType, found));
        }
        match first {
            Some((dtype, other)) if *dtype != entry.dtype => {
                let found = format!("{} beside {dtype} in {}", entry.dtype, quoted(other));
                Err(self.error(name, Rule::MixedDType, found))
            }
            _ => Ok(()),
        }
    }

    fn missing(&self, name: &str) -> CheckpointError {
        let file = self.checkpoint.main_file();
        if self.role.name == RoleName::LmHead {
            return CheckpointError::new(file, Rule::TiedFlag, "no head")
                .tensor(name)
                .expected("a stored head (the descriptor does not tie it)")
                .help("if the model ties head and embedding, set tie_word_embeddings to true");
        }
        let error = CheckpointError::new(file, Rule::RoleMissing, "no tensor of this name")
            .tensor(name)
            .expected(format!("{} {:?}", self.label(), self.role.shape));
        let used = self.used();
        let unused = self.checkpoint.tensors().map(|(n, _)| n).filter(|n| !used.contains(*n));
        match nearest(name, unused) {
            Some(near) => error.help(format!("the nearest name is {}", quoted(near))),
            None => error,
        }
    }

    /// The tensors that some role takes rows of.
    fn used(&self) -> BTreeSet<String> {
        let roles = self.descriptor.roles.iter();
        let tensors = roles
            .flat_map(|role| role.instances().into_iter().flat_map(|layer| role.tensors(layer)));
        tensors.map(|(name, _)| name).collect()
    }

    fn shape_error(&self, name: &str, entry: &TensorEntry) -> CheckpointError {
        let (rule, help) = self.shape_rule(&entry.shape);
        let error =
            self.error(name, rule, format!("{:?}", entry.shape)).expected(self.shape_wanted());
        match help {
            Some(help) => error.help(help),
            None => error,
        }
    }

    /// The rule that a wrong shape breaks: the config key most likely at fault gives it its name.
    fn shape_rule(&self, found: &[usize]) -> (Rule, Option<String>) {
        use RoleName::{AttnK, AttnKNorm, AttnO, AttnQ, AttnQNorm, AttnV, Embed, LmHead};
        let wanted = &self.role.shape;
        let differs: Vec<usize> = (0..wanted.len().max(found.len()))
            .filter(|axis| wanted.get(*axis) != found.get(*axis))
            .collect();
        let head_axis = match self.role.name {
            Embed | LmHead if differs == [0] => {
                let help = found.first().map(|rows| format!("vocab_size {rows} would fit"));
                return (Rule::Vocabulary, help);
            }
            AttnQ | AttnK | AttnV | AttnQNorm | AttnKNorm => 0,
            AttnO => 1,
            _ => return (Rule::RoleShape, None),
        };
        let Some(attention) = self.descriptor.attention.as_ref().filter(|_| differs == [head_axis])
        else {
            return (Rule::RoleShape, None);
        };
        let wanted = wanted.get(head_axis).copied().unwrap_or(0);
        let blocks = wanted.checked_div(attention.head_dim).unwrap_or(0);
        let fits = found.get(head_axis).filter(|e| blocks > 0 && e.is_multiple_of(blocks));
        (Rule::HeadDim, fits.map(|e| format!("head_dim {} would fit", e / blocks)))
    }

    fn shape_wanted(&self) -> String {
        let terms = self.role.shape_terms.join(", ");
        format!("{:?} = [{terms}] for {}", self.role.shape, self.label())
    }

    fn label(&self) -> String {
        label(self.role.name, self.layer)
    }

    fn error(&self, name: &str, rule: Rule, found: String) -> CheckpointError {
        let file = self.checkpoint.file_of(name).unwrap_or(self.checkpoint.main_file());
        CheckpointError::new(file, rule, found).tensor(name)
    }
}

/// A role and its layer in words.
pub(super) fn label(role: RoleName, layer: Option<usize>) -> String {
    match layer {
        Some(layer) => format!("{role} of layer {layer}"),
        None => role.to_string(),
    }
}

fn spell(pattern: &RowPattern) -> String {
    match pattern {
        RowPattern::All => "all rows".into(),
        RowPattern::Blocks { start, block, stride, count } => {
            format!("{count} blocks of {block} rows from row {start}, {stride} apart")
        }
    }
}

/// The row ranges of a pattern, or `None` if they do not lie in `rows` rows in ascending order.
pub(super) fn pattern_ranges(pattern: &RowPattern, rows: usize) -> Option<Vec<Range<usize>>> {
    match *pattern {
        RowPattern::All => Some(std::iter::once(0..rows).collect()),
        RowPattern::Blocks { start, block, stride, count } => {
            let steps = count.checked_sub(1)?;
            let end = steps.checked_mul(stride)?.checked_add(start)?.checked_add(block)?;
            // Together these bound `count` by `rows`.
            if block == 0 || (count > 1 && stride < block) || end > rows {
                return None;
            }
            if stride == block {
                return Some(std::iter::once(start..end).collect());
            }
            Some((0..count).map(|i| start + i * stride).map(|at| at..at + block).collect())
        }
    }
}
