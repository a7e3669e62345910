//! Logical weights and where their elements lie in files.

use super::Word as _;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The name of a logical weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RoleName {
    Embed,
    LmHead,
    FinalNorm,
    InputNorm,
    PostNorm,
    AttnQ,
    AttnK,
    AttnV,
    AttnO,
    AttnQNorm,
    AttnKNorm,
    AttnQBias,
    AttnKBias,
    AttnVBias,
    MlaQ,
    MlaQA,
    MlaQANorm,
    MlaQB,
    MlaKvA,
    MlaKvANorm,
    MlaKvB,
    MlaO,
    GdnQkv,
    GdnZ,
    GdnA,
    GdnB,
    GdnConv,
    GdnDtBias,
    GdnALog,
    GdnNorm,
    GdnOut,
    MlpGate,
    MlpUp,
    MlpDown,
    MoeRouter,
    MoeGate,
    MoeUp,
    MoeDown,
    SharedGate,
    SharedUp,
    SharedDown,
    SharedScale,
}

impl RoleName {
    /// Whether the weight is a matrix that activations are multiplied by, or one for each expert, and
    /// nothing else reads it: what may be quantised. The router of a mixture, the scale of a shared
    /// expert, norms, convolutions, the projections that set decay and rate, and the embedding are not;
    /// nor is the matrix that latent attention absorbs into queries and values.
    pub fn is_projection(self) -> bool {
        use RoleName::*;
        matches!(
            self,
            LmHead
                | AttnQ
                | AttnK
                | AttnV
                | AttnO
                | MlaQ
                | MlaQA
                | MlaQB
                | MlaKvA
                | MlaO
                | GdnQkv
                | GdnZ
                | GdnOut
                | MlpGate
                | MlpUp
                | MlpDown
                | MoeGate
                | MoeUp
                | MoeDown
                | SharedGate
                | SharedUp
                | SharedDown
        )
    }

    /// Every role, in a fixed order (the order of synthetic generation and of reports).
    pub const ALL: [RoleName; RoleName::WORDS.len()] = {
        let mut all = [RoleName::Embed; RoleName::WORDS.len()];
        let mut i = 0;
        while i < all.len() {
            all[i] = RoleName::WORDS[i].0;
            i += 1;
        }
        all
    };
}

/// Which layers have a role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Once per model.
    Model,
    /// Once in each of these layers.
    Layers(Vec<usize>),
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scope::Model => f.write_str("once per model"),
            Scope::Layers(layers) => write!(f, "layers {layers:?}"),
        }
    }
}

/// One logical weight: its shape, where its rows lie, how it may be divided.
#[derive(Clone, Debug, PartialEq)]
pub struct Role {
    pub name: RoleName,
    pub scope: Scope,
    /// Extents; the last one is the reduction (input) dimension of a matrix. A vector has one.
    pub shape: Vec<usize>,
    /// The same extents as products of dimension names, for people (`q_heads*head_dim`).
    pub shape_terms: Vec<String>,
    /// The views whose rows, one after the other, make up the weight. Empty for a tied role.
    pub views: Vec<View>,
    pub shard: ShardRule,
    /// The role whose weight this one shares.
    pub tied_to: Option<RoleName>,
}

/// Rows of one stored tensor.
///
/// A stored tensor counts as a matrix whose columns are its last axis and whose rows are all other
/// axes, flattened (`[channels, 1, width]` has `channels` rows; `[experts, rows, columns]` has
/// `experts · rows`). A stored vector has one element in each row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct View {
    /// Tensor name; `{layer}` stands for the layer's number. In roles of experts, `{expert}` stands
    /// for each expert's number in turn: one tensor for each.
    pub tensor: String,
    pub rows: RowPattern,
}

impl Role {
    /// Extents as rows and columns: columns are the last extent, a vector is one row.
    pub fn matrix(&self) -> (usize, usize) {
        match self.shape.as_slice() {
            [outer @ .., cols] => (outer.iter().product(), *cols),
            [] => (1, 1),
        }
    }

    /// Experts, for a role that has a matrix for each.
    pub fn experts(&self) -> Option<usize> {
        match self.shape.as_slice() {
            [experts, _, _] => Some(*experts),
            _ => None,
        }
    }

    /// The stored tensors of a layer (`None`: once per model), in the order of the rows, each with
    /// the rows taken.
    pub fn tensors(&self, layer: Option<usize>) -> Vec<(String, &RowPattern)> {
        let mut all = Vec::new();
        for view in &self.views {
            let name = match layer {
                Some(layer) => view.tensor.replace("{layer}", &layer.to_string()),
                None => view.tensor.clone(),
            };
            match self.experts().filter(|_| name.contains(EXPERT)) {
                Some(experts) => all.extend(
                    (0..experts).map(|e| (name.replace(EXPERT, &e.to_string()), &view.rows)),
                ),
                None => all.push((name, &view.rows)),
            }
        }
        all
    }

    /// The layers that have it, or `None` once for a role of the whole model.
    pub fn instances(&self) -> Vec<Option<usize>> {
        match &self.scope {
            Scope::Model => vec![None],
            Scope::Layers(layers) => layers.iter().map(|l| Some(*l)).collect(),
        }
    }
}

/// What stands for the expert's number in a tensor name.
pub(super) const EXPERT: &str = "{expert}";

/// Which rows of a tensor a view takes, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RowPattern {
    /// All rows.
    All,
    /// `count` blocks of `block` rows, the first at `start`, `stride` apart.
    Blocks { start: usize, block: usize, stride: usize, count: usize },
}

/// How tensor and expert parallelism may divide a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShardRule {
    /// Replicated.
    None,
    /// By output rows, in whole heads.
    OutHeads,
    /// By output rows.
    OutDim,
    /// By input columns.
    InDim,
    /// By experts.
    OutExperts,
}
