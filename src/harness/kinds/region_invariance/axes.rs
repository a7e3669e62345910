//! The axes of a region's matrix.

use super::rotary::Scaling;
use crate::backend::Region;
use crate::descriptor::{GatedDeltaNet, NormStyle, RopeConvention};
use crate::harness::Matrix;
use crate::harness::kind::Cell;
use crate::harness::spec::NonEmpty;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

macro_rules! axes {
    ($($(#[$doc:meta])* $name:ident: $type:ty => $text:expr,)*) => {
        /// Values of each axis; a region has those that its shapes have, and some may be left out.
        #[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub(super) struct Axes { $($(#[$doc])* #[serde(default)] $name: Option<NonEmpty<$type>>,)* }

        impl Axes {
            /// The product of a region's axes, in their order.
            pub(super) fn matrix(&self, region: Region) -> Result<Matrix, String> {
                let optional = optional_axes_of(region);
                let known = [axes_of(region), optional].concat();
                let mut values: Vec<(&str, Vec<String>)> = Vec::new();
                $(if let Some(list) = &self.$name {
                    let text: fn(&$type) -> String = $text;
                    values.push((stringify!($name), list.iter().map(text).collect()));
                })*
                if let Some((name, _)) = values.iter().find(|(name, _)| !known.contains(name)) {
                    return Err(format!(
                        "this region has no axis `{name}`; it has {}", known.join(", ")
                    ));
                }
                let mut matrix = Matrix::new();
                for name in known {
                    match values.iter().find(|(n, _)| *n == name) {
                        Some((_, list)) => matrix = matrix.axis(name, list),
                        None if optional.contains(&name) => {}
                        None => return Err(format!("the region's axis `{name}` is missing")),
                    }
                }
                Ok(matrix)
            }
        }
    };
}

axes! {
    /// Query heads and key-value heads.
    heads: [usize; 2] => |v| format!("{}x{}", v[0], v[1]),
    /// Dimensions of a head.
    head_dim: usize => usize::to_string,
    /// Leading dimensions of a head that rotate.
    rotary_dim: usize => usize::to_string,
    /// Which dimensions form a rotated pair.
    convention: RopeConvention => |v| word(v),
    /// How frequencies are scaled; left out, they are not.
    scaling: Scaling => |v| word(v),
    /// The first dimension of a head that rotates; left out, 0.
    offset: usize => usize::to_string,
    /// How norm weights act.
    style: NormStyle => |v| word(v),
    /// Ranks that meet.
    ranks: usize => usize::to_string,
    /// Width of a row.
    width: usize => usize::to_string,
    /// Reduction dimension of a matrix product.
    k: usize => usize::to_string,
    /// Output dimension of a matrix product.
    n: usize => usize::to_string,
    /// Gated delta net: key heads, value heads, key dimension, value dimension.
    gdn: [usize; 4] => |v| format!("{}x{}x{}x{}", v[0], v[1], v[2], v[3]),
    /// Latent attention: heads, latent, nope, rope and value dimensions.
    mla: [usize; 5] => |v| v.map(|n| n.to_string()).join("x"),
    /// Experts, and those that a token is sent to.
    experts: [usize; 2] => |v| format!("{}x{}", v[0], v[1]),
    /// Groups of experts, and those that are kept.
    groups: [usize; 2] => |v| format!("{}x{}", v[0], v[1]),
    /// Whether the shared expert has a gate; left out, it has.
    gated: bool => bool::to_string,
    /// Width of one expert.
    intermediate: usize => usize::to_string,
    /// Rows of the sequence.
    tokens: usize => usize::to_string,
    /// Cached positions, the last rows of which are executed.
    kv_tokens: usize => usize::to_string,
    /// Keys that a query sees, its own included; left out, all.
    window: usize => usize::to_string,
}

/// The axes that a region needs, in the order of trial names.
pub(super) fn axes_of(region: Region) -> &'static [&'static str] {
    match region {
        Region::Embedding
        | Region::ResidualAdd
        | Region::ResidualNorm
        | Region::SiluMul
        | Region::GdnConvSilu
        | Region::AttentionOutputGate
        | Region::BiasAdd
        | Region::MoeShared
        | Region::LogSoftmax
        | Region::Sampler => &["width", "tokens"],
        Region::MlaLatentNorm => &["mla", "tokens"],
        Region::MlaAttention => &["mla", "kv_tokens"],
        Region::MoeRouter => &["experts", "groups", "tokens"],
        Region::MoePermute | Region::MoeCombine => &["experts", "width", "tokens"],
        Region::MoeExperts => &["experts", "width", "intermediate", "tokens"],
        Region::AllReduce | Region::AllGather | Region::StageTransfer => {
            &["ranks", "width", "tokens"]
        }
        Region::RmsNorm => &["style", "width", "tokens"],
        Region::MoeRouterLogits => &["style", "k", "n", "tokens"],
        Region::PerHeadNorm => &["style", "heads", "head_dim", "tokens"],
        Region::Gemm | Region::GemmF32 | Region::GateUp => &["k", "n", "tokens"],
        Region::QGateSplit => &["heads", "head_dim", "tokens"],
        Region::Rope => &["convention", "heads", "head_dim", "rotary_dim", "tokens"],
        Region::KvWrite | Region::AttentionCore => &["heads", "head_dim", "kv_tokens"],
        Region::GdnConv1d
        | Region::GdnPrepare
        | Region::GdnCore
        | Region::GdnCommit
        | Region::GdnGatedNorm => &["gdn", "tokens"],
    }
}

/// The axes that may be left out, after those of [`axes_of`] in trial names.
fn optional_axes_of(region: Region) -> &'static [&'static str] {
    match region {
        Region::AttentionCore => &["window"],
        Region::MoeShared => &["gated"],
        Region::Rope => &["scaling", "offset"],
        _ => &[],
    }
}

/// The snake_case spelling of an enum value.
fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(text)) => text,
        _ => String::new(),
    }
}

/// An enum value of an axis, by its snake_case spelling.
pub(super) fn read_word<T: DeserializeOwned>(cell: &Cell, axis: &str) -> Result<T, String> {
    let text: String = cell.read(axis)?;
    serde_json::from_value(text.into()).map_err(|e| format!("axis `{axis}`: {e}"))
}

/// What `read` gives of an axis, where the cell has it.
pub(super) fn optional<T>(
    cell: &Cell,
    axis: &str,
    read: impl Fn(&Cell, &str) -> Result<T, String>,
) -> Result<Option<T>, String> {
    cell.axis(axis).map(|_| read(cell, axis)).transpose()
}

pub(super) fn pair(cell: &Cell) -> Result<[usize; 2], String> {
    pair_of(cell, "heads")
}

pub(super) fn pair_of(cell: &Cell, axis: &str) -> Result<[usize; 2], String> {
    cell.read_list(axis)?.try_into().map_err(|_| format!("axis `{axis}` needs two numbers"))
}

pub(super) fn dims(cell: &Cell) -> Result<GatedDeltaNet, String> {
    let [key_heads, value_heads, key_dim, value_dim] = cell
        .read_list("gdn")?
        .try_into()
        .map_err(|_| "axis `gdn` needs four numbers".to_owned())?;
    Ok(GatedDeltaNet { key_heads, value_heads, key_dim, value_dim, conv_width: 4 })
}
