//! Dimensions by name, and shapes as sums of products of them.

use super::Descriptor;

impl Descriptor {
    /// The dimensions this model has, by the names that shape terms and messages use.
    pub fn dimensions(&self) -> Vec<(&'static str, usize)> {
        let mut named = vec![("hidden", self.hidden), ("vocab", self.vocab)];
        if let Some(a) = &self.attention {
            named.extend([
                ("query_heads", a.query_heads),
                ("kv_heads", a.kv_heads),
                ("head_dim", a.head_dim),
                ("rotary_dim", a.rope.rotary_dim),
            ]);
            named.extend(a.window.map(|w| ("window", w)));
        }
        if let Some(m) = &self.mla {
            named.extend([
                ("mla_heads", m.heads),
                ("mla_latent_dim", m.latent_dim),
                ("mla_nope_dim", m.nope_dim),
                ("mla_rope_dim", m.rope.rotary_dim),
                ("mla_value_dim", m.value_dim),
            ]);
            named.extend(m.query_rank.map(|rank| ("mla_query_rank", rank)));
        }
        if let Some(g) = &self.gdn {
            named.extend([
                ("gdn_key_heads", g.key_heads),
                ("gdn_value_heads", g.value_heads),
                ("gdn_key_dim", g.key_dim),
                ("gdn_value_dim", g.value_dim),
                ("gdn_conv_width", g.conv_width),
                ("gdn_heads_per_key", (g.value_heads / g.key_heads.max(1)).max(1)),
            ]);
        }
        named.extend(self.intermediate.map(|i| ("intermediate", i)));
        if let Some(m) = &self.moe {
            named.extend([
                ("moe_experts", m.experts),
                ("moe_experts_per_token", m.experts_per_token),
                ("moe_intermediate", m.intermediate),
                ("router_groups", m.router.groups),
                ("router_groups_kept", m.router.groups_kept),
            ]);
            named.extend(m.shared.map(|s| ("shared_intermediate", s.intermediate)));
        }
        named
    }

    /// The value of a shape term: a sum of products of dimension names and integers
    /// (`2*gdn_key_heads*gdn_key_dim+gdn_value_heads*gdn_value_dim`).
    ///
    /// # Errors
    /// Names the factor that is no dimension of this model, or the term that overflows.
    pub fn evaluate(&self, term: &str) -> Result<usize, String> {
        let dimensions = self.dimensions();
        let overflow = || format!("`{term}` does not fit in 64 bits");
        let mut sum = 0usize;
        for product in term.split('+') {
            let mut value = 1usize;
            for factor in product.split('*') {
                let known = dimensions.iter().find(|(name, _)| *name == factor).map(|(_, v)| *v);
                let is_number = !factor.is_empty() && factor.bytes().all(|b| b.is_ascii_digit());
                let number = is_number.then(|| factor.parse().ok()).flatten();
                let factor_value = known.or(number).ok_or_else(|| {
                    let names: Vec<&str> = dimensions.iter().map(|(name, _)| *name).collect();
                    format!("`{factor}` in `{term}` is no dimension; they are {}", names.join(", "))
                })?;
                value = value.checked_mul(factor_value).ok_or_else(overflow)?;
            }
            sum = sum.checked_add(value).ok_or_else(overflow)?;
        }
        Ok(sum)
    }
}
