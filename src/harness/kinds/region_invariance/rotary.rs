//! Subject of the rotary embedding, and the scalings of its frequencies that models publish.

use super::axes::{optional, pair, read_word};
use super::builder::Builder;
use super::subject::Draw;
use crate::backend::OpKind;
use crate::descriptor::{Rope, RopeScaling};
use crate::harness::kind::Cell;
use serde::{Deserialize, Serialize};

/// How frequencies are scaled.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Scaling {
    #[default]
    None,
    /// By 4.
    Linear,
    /// As Llama 3.1.
    Llama3,
    /// As DeepSeek-V2, whose two magnitudes are equal and cancel, but with a first one of 1.
    Yarn,
}

impl Scaling {
    fn parameters(self) -> RopeScaling {
        match self {
            Scaling::None => RopeScaling::None {},
            Scaling::Linear => RopeScaling::Linear { factor: 4.0 },
            Scaling::Llama3 => RopeScaling::Llama3 {
                factor: 8.0,
                low_freq_factor: 1.0,
                high_freq_factor: 4.0,
                original_max_position_tokens: 8192,
            },
            Scaling::Yarn => RopeScaling::Yarn {
                factor: 40.0,
                beta_fast: 32.0,
                beta_slow: 1.0,
                mscale: 1.0,
                mscale_all_dim: 0.707,
                original_max_position_tokens: 4096,
            },
        }
    }
}

/// Adds the region's operation, input and output.
pub(super) fn rope(b: &mut Builder, cell: &Cell) -> Result<(), String> {
    let [heads, _] = pair(cell)?;
    let head_dim = cell.read("head_dim")?;
    let x = b.input("x", heads * head_dim, Draw::Activation);
    b.outputs.push(x);
    let scaling: Scaling = optional(cell, "scaling", read_word)?.unwrap_or_default();
    b.plan.rope = Some(Rope {
        convention: read_word(cell, "convention")?,
        theta: 1e6,
        rotary_dim: cell.read("rotary_dim")?,
        scaling: scaling.parameters(),
    });
    let offset = optional(cell, "offset", Cell::read)?.unwrap_or(0);
    b.op(OpKind::Rope { x, heads, head_dim, offset });
    Ok(())
}
