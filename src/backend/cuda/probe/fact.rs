//! A fact about a device: a question, the answer, the numbers behind it.

use super::{instruction_facts, order_facts};
use crate::backend::cuda::{CudaError, Device};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What is asked.
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
pub enum FactName {
    /// An element has the same bits in every row and column of an instruction's tile.
    Position,
    /// An element does not depend on other rows and columns, whatever they hold (NaN, infinity).
    Neighbours,
    /// `wgmma` gives an element the same bits for every N tile, 8 to 256.
    NTile,
    /// `mma.sync` and `wgmma` give the same bits.
    MmaSyncEqualsWgmma,
    /// `wgmma` gives the same bits with A in registers and in shared memory.
    OperandInRegisters,
    /// Ignoring the accumulator equals starting it at zero.
    ZeroStart,
    /// A chain stored and resumed after every instruction equals the unbroken chain: the
    /// accumulator is FP32 and nothing more.
    ChainResumes,
    /// Zero products appended to a chain change nothing, whatever the other operand's finite values.
    ZeroPadding,
    /// Padded token columns, zero or NaN, change nothing in the others.
    PaddedTokens,
    /// The same input gives the same bits again, about a hundred runs over all instructions.
    Repeatable,
    /// The data is hard enough: a reversed chain differs somewhere.
    OrderIsVisible,
    /// One k16 instruction against two k8 instructions.
    KSplit,
    /// Permuting k inside an instruction.
    KPermutation,
    /// The simplest arithmetic that explains every observed bit.
    Arithmetic,
    /// A chain over four segments against four accumulators added as a tree.
    SegmentTree,
    /// FP32 operands as sums of two and three BF16 parts.
    SplitOperands,
    /// What becomes of subnormal inputs and results.
    Subnormals,
    /// What becomes of NaN and infinities.
    SpecialValues,
}

impl FactName {
    /// Every fact.
    pub const ALL: [FactName; 18] = [
        FactName::Position,
        FactName::Neighbours,
        FactName::NTile,
        FactName::MmaSyncEqualsWgmma,
        FactName::OperandInRegisters,
        FactName::ZeroStart,
        FactName::ChainResumes,
        FactName::ZeroPadding,
        FactName::PaddedTokens,
        FactName::Repeatable,
        FactName::OrderIsVisible,
        FactName::KSplit,
        FactName::KPermutation,
        FactName::Arithmetic,
        FactName::SegmentTree,
        FactName::SplitOperands,
        FactName::Subnormals,
        FactName::SpecialValues,
    ];

    /// The name in files and reports.
    pub fn name(self) -> String {
        match serde_json::to_value(self) {
            Ok(Value::String(name)) => name,
            _ => format!("{self:?}"),
        }
    }

    /// Whether the question is about Hopper's warpgroup instruction.
    pub fn needs_wgmma(self) -> bool {
        matches!(
            self,
            FactName::NTile
                | FactName::MmaSyncEqualsWgmma
                | FactName::OperandInRegisters
                | FactName::ZeroStart
        )
    }

    /// Asks the device, with `samples` independent cases of each kind of data.
    ///
    /// # Errors
    /// The device could not be asked; says nothing about the fact.
    pub fn ask(self, device: &Device, samples: usize, seed: u64) -> Result<Fact, CudaError> {
        let q = instruction_facts::Question { device, samples, seed };
        match self {
            FactName::Position => q.position(),
            FactName::Neighbours => q.neighbours(),
            FactName::NTile => q.n_tile(),
            FactName::MmaSyncEqualsWgmma => q.mma_sync_equals_wgmma(),
            FactName::OperandInRegisters => q.operand_in_registers(),
            FactName::ZeroStart => q.zero_start(),
            FactName::ChainResumes => q.chain_resumes(),
            FactName::ZeroPadding => q.zero_padding(),
            FactName::PaddedTokens => q.padded_tokens(),
            FactName::Repeatable => q.repeatable(),
            FactName::OrderIsVisible => order_facts::order_is_visible(&q),
            FactName::KSplit => order_facts::k_split(&q),
            FactName::KPermutation => order_facts::k_permutation(&q),
            FactName::Arithmetic => order_facts::arithmetic(&q),
            FactName::SegmentTree => order_facts::segment_tree(&q),
            FactName::SplitOperands => order_facts::split_operands(&q),
            FactName::Subnormals => order_facts::subnormals(&q),
            FactName::SpecialValues => order_facts::special_values(&q),
        }
    }
}

/// The answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Fact {
    /// Elements compared, and those that differed.
    pub compared: u64,
    pub different: u64,
    /// Whether the statement of the fact's name held on everything compared.
    pub holds: bool,
    /// Counts and numbers behind it.
    pub evidence: Map<String, Value>,
}

impl Fact {
    /// Counts a comparison under a name; the fact holds while every one is without difference.
    pub(super) fn count(&mut self, name: &str, compared: usize, different: usize) {
        if self.compared == 0 {
            self.holds = true;
        }
        self.compared += compared as u64;
        self.different += different as u64;
        self.holds &= different == 0;
        self.note(name, format!("{different} of {compared} differ"));
    }

    /// Adds evidence.
    pub(super) fn note(&mut self, name: &str, value: impl Into<Value>) {
        self.evidence.insert(name.to_owned(), value.into());
    }
}
