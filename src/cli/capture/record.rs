//! `assay capture record`.

use crate::cli::counts::{count, token_count};
use crate::cli::engine_args::EngineArgs;
use crate::cli::generate::{listen, requested};
use crate::cli::loading::load_engine;
use crate::cli::model_args::ModelArgs;
use crate::cli::table::{self, bytes};
use crate::cli::{Console, Failure};
use crate::engine::EngineOptions;
use crate::engine::manifest::Execution;
use crate::generation::{ControlTokens, TextTokenizer};
use crate::harness::capture::{
    CaptureError, Prompt, PromptContent, RecordOptions, destination, parse_prompts, record,
};
use crate::units::Exit;
use crate::weights::full_content_digest;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  assay capture record --model ./SmolLM2-135M --prompts prompts.json \\
                       --greedy 32 --all-positions --out a.safetensors
  assay capture record --model ./SmolLM2-135M --prompts prompts.json --taps \\
                       --tap layers.3.attention_core.out --out b.safetensors
  assay capture record --model ./SmolLM2-135M --prompts prompts.json --tap all \\
                       --states --chunk 64 --out c.safetensors

prompts.json maps a name to token ids or to text:
  { \"ids\": [1, 2, 3], \"text\": \"Once upon a time\" }
Text is tokenised as the checkpoint's tokeniser does it, control tokens included.";

/// Arguments of `assay capture record`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// JSON file of prompts by name, each a text or a list of token ids
    #[arg(long, value_name = "FILE")]
    prompts: PathBuf,
    /// Greedy tokens after each prompt; end tokens do not stop them
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = token_count, allow_hyphen_values = true)]
    greedy: usize,
    /// Logits of every position instead of the last one only
    #[arg(long)]
    all_positions: bool,
    /// Embedding, mixer, feed-forward and output of every layer, and the final norm
    #[arg(long)]
    taps: bool,
    /// Further activations by name, such as layers.3.gdn_core.out; `all` for every one
    #[arg(long, value_name = "NAME", num_args = 1..)]
    tap: Vec<String>,
    /// Recurrent and convolution states after each prompt
    #[arg(long)]
    states: bool,
    /// Tokens of one prefill step at most
    #[arg(long, value_name = "N", value_parser = count, allow_hyphen_values = true)]
    chunk: Option<NonZeroUsize>,
    /// Digest every byte of the weights, beside the sampled digest
    #[arg(long)]
    full_digest: bool,
    #[command(flatten)]
    engine: EngineArgs,
    /// The capture to write; an existing one is replaced when the new one is complete, any other
    /// file is refused
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// Runs `assay capture record`.
pub(super) fn run(args: &Args, console: &Console) -> Result<Exit, Failure> {
    // Everything the user wrote is checked before a model is loaded.
    let text = std::fs::read(&args.prompts)
        .map_err(|e| Failure::new(Exit::Io, format!("{}: {e}", args.prompts.display())))?;
    let sources = parse_prompts(&args.prompts, &text)?;
    let folder = args.out.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        return Err(Failure::new(Exit::Io, format!("{}: no such folder", folder.display())));
    }
    destination(&args.out)?;
    let options = args.engine.options()?;
    let options = EngineOptions {
        chunk_tokens: args.chunk.map_or(options.chunk_tokens, NonZeroUsize::get),
        ..options
    };
    let model = args.model.open()?;
    let is_text = |content: &PromptContent| matches!(content, PromptContent::Text(_));
    let tokenizer = match sources.iter().find(|s| is_text(&s.content)) {
        Some(source) => {
            let file = args.model.model.join("tokenizer.json");
            if !file.is_file() {
                let (path, prompt) = (args.prompts.clone(), source.name.clone());
                return Err(CaptureError::NoTokenizer { path, prompt }.into());
            }
            Some(TextTokenizer::open(&file).map_err(Failure::usage)?)
        }
        None => None,
    };
    let mut prompts: Vec<Prompt> = Vec::new();
    for source in sources {
        let (path, prompt) = (args.prompts.clone(), source.name.clone());
        prompts.push(source.resolve(|text| match &tokenizer {
            Some(tokenizer) => {
                tokenizer.encode(text, ControlTokens::Parse).map_err(|source| CaptureError::Text {
                    path,
                    prompt,
                    source,
                })
            }
            None => Err(CaptureError::NoTokenizer { path, prompt }),
        })?);
    }
    let (engine, weights) = load_engine(&model, &options, console)?;
    args.model.check(engine.descriptor(), console)?;
    let threads = options
        .threads
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, NonZeroUsize::get));
    let mut execution = Execution::of(&engine, weights.source(), Some(&model.checkpoint), threads);
    if args.full_digest {
        execution.run.weights_full_content = Some(full_content_digest(&weights));
    }
    let manifest = execution.manifest();
    let record_options = RecordOptions {
        greedy_steps: args.greedy,
        all_positions: args.all_positions,
        taps: args.taps,
        tap_names: args.tap.clone(),
        states: args.states,
    };
    let total: usize = prompts.iter().map(|p| p.token_ids.len()).sum();
    let bar = progress(console, total as u64);
    let mut tick = |tokens: usize| {
        bar.inc(tokens as u64);
        if requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    listen()?;
    let recorded = record(&engine, &manifest, &prompts, &record_options, &args.out, &mut tick);
    bar.finish_and_clear();
    let recorded = match recorded {
        Err(interrupted @ CaptureError::Interrupted) => {
            console.note(&interrupted.to_string());
            return Ok(Exit::Interrupted);
        }
        other => other?,
    };
    if args.states && !recorded.has_states {
        console.note("note: the model has no recurrent states; none were recorded");
    }
    if console.json() {
        console.product_json(&json!({
            "file": args.out,
            "size_bytes": recorded.size_bytes,
            "prompts": recorded.info.prompts.len(),
            "prompt_tokens": total,
            "policy": engine.policy().to_string(),
            "ids": manifest.ids(),
        }))?;
    } else {
        console.note(&format!(
            "wrote {}: {}, {}, {}, policy {}",
            args.out.display(),
            table::count(recorded.info.prompts.len() as u64, "prompt"),
            table::count(total as u64, "token"),
            bytes(recorded.size_bytes),
            engine.policy()
        ));
    }
    Ok(Exit::Success)
}

fn progress(console: &Console, total: u64) -> ProgressBar {
    if !console.progress() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("prompts {bar:30} {pos}/{len} tokens {eta}");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(total).with_style(style)
}

impl From<CaptureError> for Failure {
    fn from(error: CaptureError) -> Failure {
        let exit = if error.is_io() { Exit::Io } else { Exit::Usage };
        Failure::new(exit, error)
    }
}
