//! Element types of stored tensors.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The element type of a stored tensor, spelt as safetensors spells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[expect(non_camel_case_types, reason = "the spelling of the file format")]
pub enum DType {
    BOOL,
    U8,
    I8,
    U16,
    I16,
    F16,
    BF16,
    U32,
    I32,
    F32,
    U64,
    I64,
    F64,
    F8_E4M3,
    F8_E5M2,
}

impl DType {
    /// Every element type this crate knows.
    pub const ALL: [DType; 15] = [
        DType::BOOL,
        DType::U8,
        DType::I8,
        DType::U16,
        DType::I16,
        DType::F16,
        DType::BF16,
        DType::U32,
        DType::I32,
        DType::F32,
        DType::U64,
        DType::I64,
        DType::F64,
        DType::F8_E4M3,
        DType::F8_E5M2,
    ];

    /// Bytes of one element.
    pub fn size_bytes(self) -> usize {
        match self {
            DType::BOOL | DType::U8 | DType::I8 | DType::F8_E4M3 | DType::F8_E5M2 => 1,
            DType::U16 | DType::I16 | DType::F16 | DType::BF16 => 2,
            DType::U32 | DType::I32 | DType::F32 => 4,
            DType::U64 | DType::I64 | DType::F64 => 8,
        }
    }

    /// The type of this safetensors spelling.
    pub fn parse(name: &str) -> Option<DType> {
        Self::ALL.into_iter().find(|d| d.to_string() == name)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}
