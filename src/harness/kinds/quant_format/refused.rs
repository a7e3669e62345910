//! What the format does not have.

use crate::tensor::{Int4Error, Int4Shape, check_codes, check_scales, quantise};

macro_rules! cases {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// One input that must be refused.
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Deserialize,
            schemars::JsonSchema,
        )]
        pub(super) enum Refused { $($(#[$doc])* #[serde(rename = $name)] $variant,)* }

        impl Refused {
            /// Every case.
            pub(super) const ALL: &'static [Refused] = &[$(Refused::$variant),*];

            /// The name in gate files and trials.
            pub(super) fn name(self) -> &'static str {
                match self { $(Refused::$variant => $name),* }
            }
        }
    };
}

cases! {
    /// A group of 16.
    UnknownGroup = "unknown_group",
    /// K = 100 in groups of 32.
    PartialGroup = "partial_group",
    /// N = 12.
    PartialTile = "partial_tile",
    /// More elements than can be addressed.
    TooLarge = "too_large",
    /// Fewer values than N · K.
    MissingValues = "missing_values",
    /// A NaN.
    NotANumber = "not_a_number",
    /// An infinity.
    Infinite = "infinite",
    /// A group whose scale would be subnormal.
    SubnormalScale = "subnormal_scale",
    /// A group whose scale rounds to zero.
    VanishingScale = "vanishing_scale",
    /// A group whose largest value would come back as infinity.
    LargeScale = "large_scale",
    /// A code of −8 in a low nibble.
    LowCode = "low_code",
    /// A code of −8 in a high nibble.
    HighCode = "high_code",
    /// Codes of another length.
    MissingCodes = "missing_codes",
    /// A scale of zero.
    ZeroScale = "zero_scale",
    /// A negative scale.
    NegativeScale = "negative_scale",
    /// An infinite scale.
    InfiniteScale = "infinite_scale",
    /// A scale that is NaN.
    NotANumberScale = "not_a_number_scale",
    /// A subnormal scale.
    StoredSubnormalScale = "stored_subnormal_scale",
    /// Scales of another number.
    MissingScales = "missing_scales",
}

impl Refused {
    /// What the format says to it.
    pub(super) fn attempt(self) -> Result<(), Int4Error> {
        let shape = Int4Shape::new(16, 64, 32)?;
        let with_value = |value: f32| {
            let mut values = vec![0.25; 16 * 64];
            values[5 * 64 + 40] = value;
            quantise(&values, shape).map(|_| ())
        };
        // A group of zeros and one value, so that the value sets the scale.
        let alone = |value: f32| {
            let mut values = vec![0.0; 16 * 64];
            values[5 * 64 + 40] = value;
            quantise(&values, shape).map(|_| ())
        };
        let with_code = |byte: u8| {
            let mut codes = vec![0x79; 16 * 32];
            codes[5 * 32 + 20] = byte;
            check_codes(&codes, shape)
        };
        let with_scale = |bits: u16| {
            let mut scales = vec![0x3f80; 32];
            scales[11] = bits;
            check_scales(&scales, shape)
        };
        match self {
            Refused::UnknownGroup => Int4Shape::new(16, 64, 16).map(|_| ()),
            Refused::PartialGroup => Int4Shape::new(16, 100, 32).map(|_| ()),
            Refused::PartialTile => Int4Shape::new(12, 64, 32).map(|_| ()),
            Refused::TooLarge => Int4Shape::new(1 << 33, 1 << 33, 32).map(|_| ()),
            Refused::MissingValues => quantise(&[0.0; 1000], shape).map(|_| ()),
            Refused::NotANumber => with_value(f32::NAN),
            Refused::Infinite => with_value(f32::NEG_INFINITY),
            Refused::SubnormalScale => alone(5e-38),
            Refused::VanishingScale => alone(1e-45),
            Refused::LargeScale => alone(f32::MAX),
            Refused::LowCode => with_code(0x78),
            Refused::HighCode => with_code(0x87),
            Refused::MissingCodes => check_codes(&[0; 500], shape),
            Refused::ZeroScale => with_scale(0),
            Refused::NegativeScale => with_scale(0xbf80),
            Refused::InfiniteScale => with_scale(0x7f80),
            Refused::NotANumberScale => with_scale(0x7fc0),
            Refused::StoredSubnormalScale => with_scale(0x007f),
            Refused::MissingScales => check_scales(&[0x3f80; 31], shape),
        }
    }
}
