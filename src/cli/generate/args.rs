//! The flags of `assay generate`.

use crate::cli::engine_args::EngineArgs;
use crate::cli::model_args::ModelArgs;
use crate::generation::{ControlTokens, Seed, Temperature};
use std::path::PathBuf;

/// What to continue, and how.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Text goes to stdout as it is generated, everything else to stderr. The seed is printed before the
text; the same model, policy, prompt, temperature and seed give the same text again.

Examples:
  assay generate --model DIR -p 'Once upon a time'
  assay generate --model DIR -p 'The capital of France is' --temperature 0 --max-tokens 8
  assay generate --model DIR --prompt-file story.txt --seed 42 > continued.txt
  assay generate --model DIR --prompt-ids '1,4093,198' --json")]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    pub(super) model: ModelArgs,
    #[command(flatten)]
    pub(super) prompt: PromptArgs,
    #[command(flatten)]
    pub(super) sampling: SamplingArgs,
    #[command(flatten)]
    pub(super) engine: EngineArgs,
}

/// Where the prompt comes from.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Prompt")]
pub(super) struct PromptArgs {
    #[command(flatten)]
    pub(super) source: PromptSource,
    /// Let text that spells a control token (such as <|im_end|>) be that token; by default it stays
    /// text
    #[arg(long, conflicts_with = "prompt_ids")]
    pub(super) parse_control_tokens: bool,
    /// Print generated control tokens instead of leaving them out
    #[arg(long)]
    pub(super) show_control_tokens: bool,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub(super) struct PromptSource {
    /// The prompt as text
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(super) prompt: Option<String>,
    /// The prompt as a UTF-8 file, used as it is, final line end included (- for stdin)
    #[arg(long, value_name = "FILE")]
    pub(super) prompt_file: Option<PathBuf>,
    /// The prompt as token ids, separated by commas or spaces; nothing is added to them
    #[arg(long, value_name = "IDS")]
    pub(super) prompt_ids: Option<String>,
}

/// How tokens are chosen and how many.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Sampling")]
pub(super) struct SamplingArgs {
    /// Largest number of generated tokens, the first one included [default: 256, or what the
    /// context has room for]
    #[arg(long, value_name = "N", value_parser = budget, allow_hyphen_values = true)]
    pub(super) max_tokens: Option<usize>,
    /// 0 is greedy; above 0, tokens are drawn from softmax(logits / T)
    #[arg(long, value_name = "T", default_value_t, allow_hyphen_values = true)]
    pub(super) temperature: Temperature,
    /// Start of the random stream, 0 to 2^64 - 1 [default: drawn once from the operating system]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(super) seed: Option<Seed>,
}

fn budget(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "expected a whole number of tokens, such as 256".to_owned())
}

impl PromptArgs {
    /// How control tokens in the prompt are read.
    pub(super) fn control_tokens(&self) -> ControlTokens {
        if self.parse_control_tokens { ControlTokens::Parse } else { ControlTokens::AsText }
    }
}
