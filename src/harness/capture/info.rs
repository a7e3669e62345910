//! What a capture executed.

use serde::{Deserialize, Serialize};

/// Version of the layout; a reader refuses later ones.
///
/// 2 added `tap_regions`; files of version 1 are read as before.
pub const CAPTURE_VERSION: u32 = 2;

/// What a capture executed: the metadata entry `capture`, as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaptureInfo {
    pub capture_version: u32,
    /// Whether logits of every position are kept, or the last one's only.
    pub all_positions: bool,
    /// Greedy tokens after each prompt; end tokens do not stop them.
    pub greedy_steps: usize,
    /// Rows of one prefill step at most.
    pub chunk_tokens: usize,
    /// Names of the captured activations in the order of execution.
    pub taps: Vec<String>,
    /// For each of `taps`, and at last for the logits: the regions that ran since the one before.
    #[serde(default)]
    pub tap_regions: Vec<Vec<String>>,
    pub states: bool,
    pub prompts: Vec<PromptInfo>,
}

/// One prompt of a capture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PromptInfo {
    pub name: String,
    pub token_ids: Vec<u32>,
    /// The text that gave the ids, where the prompt was text.
    pub text: Option<String>,
    /// The first position that `logits.NAME` has a row for; the last is the prompt's last.
    pub first_logits_position: usize,
    /// The steps that consumed it, in order.
    pub cases: Vec<CaseRun>,
}

/// Consecutive steps of one execution case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseRun {
    /// `chunked_prefill`, `recurrent_prefill`, `tail_1` or `decode`.
    pub case: String,
    /// Position of the first row.
    pub position: usize,
    /// Rows of every step.
    pub step_tokens: usize,
    pub steps: usize,
}

impl PromptInfo {
    /// The cases of a prompt of `tokens` tokens in chunks, followed by greedy steps.
    pub fn cases(tokens: usize, chunk_tokens: usize, greedy_steps: usize) -> Vec<CaseRun> {
        let run = |case: &str, position, step_tokens, steps| CaseRun {
            case: case.to_owned(),
            position,
            step_tokens,
            steps,
        };
        let mut cases = Vec::new();
        let (full, rest) = (tokens / chunk_tokens, tokens % chunk_tokens);
        if full > 0 {
            let case = if chunk_tokens == 1 { "recurrent_prefill" } else { "chunked_prefill" };
            cases.push(run(case, 0, chunk_tokens, full));
        }
        if rest > 0 {
            let case = if rest == 1 { "tail_1" } else { "chunked_prefill" };
            cases.push(run(case, full * chunk_tokens, rest, 1));
        }
        // The first greedy token comes from the prompt's last row, the last one is not consumed.
        if greedy_steps > 1 {
            cases.push(run("decode", tokens, 1, greedy_steps - 1));
        }
        cases
    }
}

#[cfg(test)]
mod tests {
    use super::PromptInfo;

    #[test]
    fn cases_cover_the_prompt_and_the_greedy_tokens() {
        let spelt = |tokens, chunk, greedy| -> Vec<String> {
            PromptInfo::cases(tokens, chunk, greedy)
                .into_iter()
                .map(|c| format!("{}@{} {}x{}", c.case, c.position, c.steps, c.step_tokens))
                .collect()
        };
        assert_eq!(spelt(7, 512, 0), ["chunked_prefill@0 1x7"]);
        assert_eq!(
            spelt(129, 64, 32),
            ["chunked_prefill@0 2x64", "tail_1@128 1x1", "decode@129 31x1"]
        );
        assert_eq!(spelt(3, 1, 1), ["recurrent_prefill@0 3x1"]);
        assert_eq!(spelt(1, 8, 2), ["tail_1@0 1x1", "decode@1 1x1"]);
    }
}
