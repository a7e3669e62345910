//! Multi-head latent attention.

use super::Rope;

/// Epsilon of the norms of the latent and of the compressed query, whatever the config says: the
/// published implementation never passes its own.
pub const MLA_NORM_EPSILON: f64 = 1e-6;

/// Attention whose keys and values are projections of one cached latent per token.
///
/// A query head is `[nope | rope]`; all heads share one rotated rope key per token. Scores are scaled
/// by (nope + rope)^-0.5 and by the square of YaRN's magnitude for all dimensions.
#[derive(Clone, Debug, PartialEq)]
pub struct Mla {
    pub heads: usize,
    /// Width of the compressed query, if queries are compressed.
    pub query_rank: Option<usize>,
    /// Width of the latent.
    pub latent_dim: usize,
    /// Dimensions of a query head that do not rotate.
    pub nope_dim: usize,
    /// Dimensions of a value head.
    pub value_dim: usize,
    /// Its `rotary_dim` is the width of the rope key.
    pub rope: Rope,
}

impl Mla {
    /// Factor on the scores.
    pub fn score_scale(&self) -> f64 {
        let m = self.rope.scaling.score_magnitude();
        m * m / ((self.nope_dim + self.rope.rotary_dim) as f64).sqrt()
    }
}
