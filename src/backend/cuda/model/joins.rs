//! Which rewrites of the plan join operations in one launch.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A rewrite that joins operations in one launch. None changes a bit.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Join {
    /// Gate and up projection with the activation of their products, for up to 8 tokens.
    GateUp,
    /// A residual addition with the norm of its result.
    ResidualNorm,
    /// Everything between projections and attention (the way of the queries out of a product that holds
    /// their gate, norms of heads, ropes, the cache write), and attention with its output gate.
    Attention,
    /// Convolution, its activation and the preparation of a gated delta net.
    GdnInputs,
}

impl Join {
    /// Every rewrite.
    pub const ALL: [Join; 4] = [Join::GateUp, Join::ResidualNorm, Join::Attention, Join::GdnInputs];
}

impl fmt::Display for Join {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Join::GateUp => "gate_up",
            Join::ResidualNorm => "residual_norm",
            Join::Attention => "attention",
            Join::GdnInputs => "gdn_inputs",
        })
    }
}

/// A set of [`Join`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joins(u8);

impl Joins {
    /// Every rewrite: how a model executes unless it is asked for something else.
    pub const ALL: Joins = Joins(0b1111);
    /// No rewrite: every operation by itself, as captures need it.
    pub const NONE: Joins = Joins(0);

    /// Every rewrite but these.
    pub fn without(apart: &[Join]) -> Joins {
        apart.iter().fold(Joins::ALL, |set, join| Joins(set.0 & !(1 << *join as u8)))
    }

    /// Whether the set has a rewrite.
    pub fn has(self, join: Join) -> bool {
        self.0 & (1 << join as u8) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rewrite_is_left_out_by_name() {
        assert_eq!(Joins::without(&[]), Joins::ALL);
        assert_eq!(Joins::without(&Join::ALL), Joins::NONE);
        let some = Joins::without(&[Join::ResidualNorm]);
        let left: Vec<Join> = Join::ALL.into_iter().filter(|j| some.has(*j)).collect();
        assert_eq!(left, [Join::GateUp, Join::Attention, Join::GdnInputs]);
        for join in Join::ALL {
            assert_eq!(serde_json::to_value(join).unwrap(), join.to_string());
        }
    }
}
