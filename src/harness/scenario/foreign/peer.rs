//! The protocol of live peers: one JSON object a line, a request and then its reply.

use crate::harness::scenario::PrefillUse;
use serde::{Deserialize, Serialize};

/// Version of the protocol; a peer answers `load` with the one it speaks.
pub const PEER_PROTOCOL: u32 = 1;

/// What a peer is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum PeerAsk {
    /// Load the model. Asked once.
    Load {
        protocol: u32,
        /// Computing threads that the peer may use.
        threads: usize,
    },
    /// From an empty sequence: the prompt in one step, then the greedy token of every step fed back
    /// `decode_tokens` times. With `prefill: once` the prompt may be the one that an earlier forward ran:
    /// nothing about prefill is measured.
    Forward {
        prompt: Vec<u32>,
        decode_tokens: u32,
        #[serde(default, skip_serializing_if = "PrefillUse::is_timed")]
        prefill: PrefillUse,
    },
    /// Report memory and end.
    Finish {},
}

/// What a peer answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case", deny_unknown_fields)]
pub enum PeerReply {
    Loaded {
        protocol: u32,
        /// The engine and its version, in words.
        name: String,
        /// The model as it runs (file, element type), in words.
        #[serde(default)]
        model: Option<String>,
        /// Digest of the Hugging Face folder that the weights were converted from
        /// ([`super::folder_digest`]).
        #[serde(default)]
        weights_from: Option<String>,
        output: PeerOutput,
        /// Threads it uses.
        #[serde(default)]
        threads: Option<usize>,
    },
    Forwarded(PeerSample),
    Finished {
        /// Peak resident memory.
        #[serde(default)]
        host_bytes: Option<u64>,
    },
    /// The request could not be carried out; the peer ends.
    Failed {
        message: String,
    },
}

/// What a peer gives out of every forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PeerOutput {
    /// Every greedy token.
    Tokens,
    /// The logits of the last step.
    Logits,
    /// Nothing: its times cannot be checked against what it computed.
    None,
}

impl std::fmt::Display for PeerOutput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            PeerOutput::Tokens => "tokens",
            PeerOutput::Logits => "logits",
            PeerOutput::None => "none",
        })
    }
}

/// One forward of a peer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerSample {
    /// From an empty sequence to the first token.
    pub prefill_ms: f64,
    /// All single-token steps together.
    pub decode_ms: f64,
    /// Prompt tokens that were computed.
    pub prompt_tokens: u32,
    /// Single-token steps that were computed.
    pub decode_tokens: u32,
    /// `decode_tokens + 1` ids, where the output is `tokens`.
    #[serde(default)]
    pub tokens: Option<Vec<u32>>,
    /// A row of the vocabulary, where the output is `logits`.
    #[serde(default)]
    pub logits: Option<Vec<f32>>,
}

/// A live peer as it is recorded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerRecord {
    /// The command, as the file gives it.
    pub command: Vec<String>,
    /// What it said of itself; absent until it was loaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights_from: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<PeerOutput>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<usize>,
    /// Why it is not measured any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}
