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
        }
        if let Some(g) = &self.gdn {
            named.extend([
                ("gdn_key_heads", g.key_heads),
                ("gdn_value_heads", g.value_heads),
                ("gdn_key_dim", g.key_dim),
                ("gdn_value_dim", g.value_dim),
                ("gdn_conv_width", g.conv_width),
            ]);
        }
        named.extend(self.intermediate.map(|i| ("intermediate", i)));
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
