//! Sizes that follow from a descriptor alone.

use super::{Descriptor, GatedDeltaNet, Mixer, Role, Scope};

const BF16_BYTES: u64 = 2;
const F32_BYTES: u64 = 4;

impl Role {
    /// How many times the model has this weight.
    pub fn copies(&self) -> usize {
        match &self.scope {
            Scope::Model => 1,
            Scope::Layers(layers) => layers.len(),
        }
    }

    /// Stored elements over all layers; 0 for a tied role.
    pub fn parameters(&self) -> u64 {
        if self.tied_to.is_some() {
            return 0;
        }
        self.shape.iter().map(|e| *e as u64).product::<u64>() * self.copies() as u64
    }
}

impl GatedDeltaNet {
    /// Bytes of the state of so many channels and value heads in one layer: an FP32 matrix per value
    /// head and the BF16 columns that the convolution looks back on.
    pub fn state_bytes(&self, channels: usize, value_heads: usize) -> u64 {
        let matrix = (value_heads * self.key_dim * self.value_dim) as u64 * F32_BYTES;
        matrix + (channels * (self.conv_width - 1)) as u64 * BF16_BYTES
    }
}

impl Descriptor {
    /// Weights of the text model, tied ones once.
    pub fn parameters(&self) -> u64 {
        self.roles.iter().map(Role::parameters).sum()
    }

    /// Bytes of all weights in BF16.
    pub fn weights_bf16_bytes(&self) -> u64 {
        self.parameters() * BF16_BYTES
    }

    /// Layers with this mixer.
    pub fn layers_with(&self, mixer: Mixer) -> usize {
        self.layer_mixers.iter().filter(|m| **m == mixer).count()
    }

    /// Bytes of BF16 keys and values, or latents and rope keys, that one token adds to all attention caches.
    pub fn cache_bytes_per_token(&self) -> u64 {
        let attention = self
            .attention
            .as_ref()
            .map_or(0, |a| 2 * a.kv_heads * a.head_dim * self.layers_with(Mixer::FullAttention));
        let latent = self
            .mla
            .as_ref()
            .map_or(0, |m| (m.latent_dim + m.rope.rotary_dim) * self.layers_with(Mixer::Mla));
        (attention + latent) as u64 * BF16_BYTES
    }

    /// Bytes of one state of all gated delta nets of a sequence.
    pub fn gdn_state_bytes_per_sequence(&self) -> u64 {
        let layers = self.layers_with(Mixer::Gdn) as u64;
        self.gdn.map_or(0, |g| g.state_bytes(g.channels(), g.value_heads) * layers)
    }
}
