//! The flags of `assay generate`.

use crate::cli::counts::token_count;
use crate::cli::engine_args::EngineArgs;
use crate::cli::model_args::ModelArgs;
use crate::generation::{ControlTokens, Seed, Share, Temperature, TopK, Truncation};
use std::path::PathBuf;

/// What to continue, and how.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Text goes to stdout as it is generated, everything else to stderr. The seed is printed before the \
text; the same model, device kind, placement, policy, prompt, temperature, truncation and seed give \
the same text again.

Examples:
  assay generate --model DIR -p 'Once upon a time'
  assay generate --model DIR --user 'Why is the sky blue?' --system 'Be brief.'
  assay generate --model DIR --chat messages.json --max-tokens 400 --stop '\\n\\n'
  assay generate --model DIR -p 'Paris is' --temperature 0 --max-tokens 8
  assay generate --model DIR --prompt-file story.txt --seed 42 > continued.txt
  assay generate --model DIR --prompts prompts.json --json
  assay generate --model DIR --prompt-ids '1,4093,198' --json --log-probs")]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    pub(super) model: ModelArgs,
    #[command(flatten)]
    pub(super) prompt: PromptArgs,
    #[command(flatten)]
    pub(super) sampling: SamplingArgs,
    #[command(flatten)]
    pub(super) output: OutputArgs,
    #[command(flatten)]
    pub(super) engine: EngineArgs,
}

/// Where the prompt comes from.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Prompt")]
pub(super) struct PromptArgs {
    #[command(flatten)]
    pub(super) source: PromptSource,
    /// A system message before the one of --user
    #[arg(long, value_name = "TEXT", requires = "user", allow_hyphen_values = true,
        conflicts_with_all = ["prompt", "prompt_file", "prompt_ids", "chat", "prompts"])]
    pub(super) system: Option<String>,
    /// Let text that spells a control token (such as <|im_end|>) be that token; by default it stays
    /// text
    #[arg(long, conflicts_with_all = ["prompt_ids", "chat", "user"])]
    pub(super) parse_control_tokens: bool,
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
    /// A user's message, rendered by the checkpoint's chat template
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(super) user: Option<String>,
    /// A conversation as JSON: a list of messages with role and content, or an object with
    /// `messages`, `tools` and other variables of the template (- for stdin)
    #[arg(long, value_name = "FILE")]
    pub(super) chat: Option<PathBuf>,
    /// Several prompts as JSON, decoded together: an object of names, each with a text or a list of
    /// token ids (- for stdin)
    #[arg(long, value_name = "FILE")]
    pub(super) prompts: Option<PathBuf>,
}

/// How tokens are chosen and how many.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Sampling")]
pub(super) struct SamplingArgs {
    /// Largest number of generated tokens, the first one included [default: 256, or what the
    /// context has room for]
    #[arg(long, value_name = "N", value_parser = token_count, allow_hyphen_values = true)]
    pub(super) max_tokens: Option<usize>,
    /// 0 is greedy; above 0, tokens are drawn from softmax(logits / T)
    #[arg(long, value_name = "T", default_value_t, allow_hyphen_values = true)]
    pub(super) temperature: Temperature,
    /// Start of the random stream, 0 to 2^64 - 1 [default: drawn once from the operating system]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(super) seed: Option<Seed>,
    /// Draw from the N largest logits only [default: from all]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(super) top_k: Option<TopK>,
    /// Draw from the fewest largest probabilities that together reach P [default: from all]
    #[arg(long, value_name = "P", allow_hyphen_values = true)]
    pub(super) top_p: Option<Share>,
    /// Draw from probabilities of at least P times the largest only [default: from all]
    #[arg(long, value_name = "P", allow_hyphen_values = true)]
    pub(super) min_p: Option<Share>,
    /// End before this text, wherever it comes; \n, \t and \\ are read as in C. May be repeated
    #[arg(long = "stop", value_name = "TEXT", value_parser = stop, allow_hyphen_values = true)]
    pub(super) stops: Vec<String>,
}

/// What is printed.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Output")]
pub(super) struct OutputArgs {
    /// Print generated control tokens instead of leaving them out
    #[arg(long)]
    pub(super) show_control_tokens: bool,
    /// With --json: ln p of every token, of the model and of the sampler
    #[arg(long)]
    pub(super) log_probs: bool,
    /// Write the execution manifest as JSON, the truncation of the sampler included
    #[arg(long, value_name = "FILE")]
    pub(super) manifest: Option<PathBuf>,
}

/// A stop string with its escapes read.
fn stop(text: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        out.push(match (c, if c == '\\' { chars.next() } else { None }) {
            ('\\', Some('n')) => '\n',
            ('\\', Some('t')) => '\t',
            ('\\', Some('\\')) => '\\',
            ('\\', other) => {
                let found = other.map(String::from).unwrap_or_default();
                return Err(format!(
                    "expected \\n, \\t or \\\\ after a backslash, found `\\{found}`"
                ));
            }
            (c, _) => c,
        });
    }
    if out.is_empty() { Err("expected some text, found none".to_owned()) } else { Ok(out) }
}

impl PromptArgs {
    /// How control tokens in the prompt are read.
    pub(super) fn control_tokens(&self) -> ControlTokens {
        if self.parse_control_tokens { ControlTokens::Parse } else { ControlTokens::AsText }
    }
}

impl SamplingArgs {
    /// The truncation of the distribution.
    pub(super) fn truncation(&self) -> Truncation {
        Truncation { top_k: self.top_k, top_p: self.top_p, min_p: self.min_p }
    }
}

#[cfg(test)]
mod tests {
    use super::stop;

    #[test]
    fn stop_strings_have_escapes() {
        assert_eq!(stop("\\n\\nUser:\\\\\\t"), Ok("\n\nUser:\\\t".into()));
        assert_eq!(stop("🙂"), Ok("🙂".into()));
        for bad in ["", "\\", "\\x"] {
            assert!(stop(bad).is_err(), "{bad}");
        }
    }
}
