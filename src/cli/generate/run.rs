//! The command: check, load, generate, report.

use super::Args;
use super::interrupt;
use super::printer::Printer;
use super::prompt::open_tokenizer;
use super::report::{JsonReport, Statistics, Timing, sampling_line, stop_text};
use crate::backend::cpu::{SAMPLER, SAMPLER_VERSION};
use crate::cli::engine_args::EngineArgs;
use crate::cli::{Console, Failure, OrExit};
use crate::engine::{Engine, SequenceError};
use crate::generation::{
    GenerateError, Generated, Request, Sampling, Seed, Stop, TextTokenizer, generate,
};
use crate::units::Exit;
use std::ops::ControlFlow;
use std::time::Instant;

/// Budget where none is given.
const DEFAULT_BUDGET_TOKENS: usize = 256;

/// Generates text.
///
/// Everything that can be refused without reading weights is refused before: flags by clap, then
/// the prompt, the config, the tokeniser, and whether prompt and budget fit.
pub(in crate::cli) fn run(args: Args, console: &Console) -> Result<Exit, Failure> {
    let options = args.engine.options()?;
    let prompt = args.prompt.read()?;
    let model = args.model.open()?;
    let tokenizer = open_tokenizer(&args.model.model, &prompt)?;
    let descriptor = &model.descriptor;
    let ids = args.prompt.ids(prompt, tokenizer.as_ref(), descriptor.vocab, console)?;
    let room = (descriptor.max_position_tokens + 1).saturating_sub(ids.len());
    let budget_tokens = args.sampling.max_tokens.unwrap_or(DEFAULT_BUDGET_TOKENS.min(room.max(1)));
    let mut request = Request {
        prompt: &ids,
        budget_tokens,
        end_tokens: &descriptor.end_tokens,
        choosable_ids: tokenizer.as_ref().map_or(descriptor.vocab, TextTokenizer::ids),
        sampling: Sampling { temperature: args.sampling.temperature, seed: Seed(0) },
        log_probs: false,
    };
    request.check_size(descriptor.max_position_tokens).or_exit(Exit::Usage)?;

    let engine = match budget_tokens {
        0 => None,
        _ => Some(EngineArgs::load(&model, &options, console)?.0),
    };
    if let Some(engine) = &engine {
        args.model.check(engine.descriptor(), console)?;
        console.note(&engine_line(engine));
    }
    let seed = seed(&args, budget_tokens)?;
    request.sampling.seed = seed.unwrap_or(Seed(0));
    console.note(&match budget_tokens {
        0 => "nothing to generate: the budget is 0 tokens".to_owned(),
        _ => sampling_line(&request.sampling, args.sampling.seed.is_some()),
    });

    let printer = Printer::new(console, tokenizer.as_ref(), args.prompt.show_control_tokens);
    let (generated, timing, text) = match &engine {
        None => (Generated::nothing(), Timing::default(), printer.finish()?),
        Some(engine) => stream(engine, &request, printer)?,
    };
    let statistics = Statistics::new(ids.len(), &generated, timing);
    if console.json() {
        console.product_json(&JsonReport {
            text: if tokenizer.is_some() { &text } else { "" },
            ids: generated.ids(),
            prompt_ids: &ids,
            stop: generated.stop.into(),
            temperature: request.sampling.temperature.value(),
            seed: seed.filter(|_| generated.words_drawn > 0).map(|s| s.0),
            sampler: SAMPLER,
            sampler_version: SAMPLER_VERSION,
            policy: engine.as_ref().map(|e| e.policy().to_string()),
            device: engine.as_ref().map(|_| options.device.to_string()),
            statistics: statistics.clone(),
        })?;
    }
    let stop = stop_text(generated.stop, budget_tokens, tokenizer.as_ref());
    console.note(&statistics.line(&stop));
    Ok(if generated.stop == Stop::Cancelled { Exit::Interrupted } else { Exit::Success })
}

/// The seed: as given, else drawn once from the operating system, unless nothing will be drawn.
fn seed(args: &Args, budget_tokens: usize) -> Result<Option<Seed>, Failure> {
    match args.sampling.seed {
        Some(seed) => Ok(Some(seed)),
        None if args.sampling.temperature.is_greedy() || budget_tokens == 0 => Ok(None),
        None => Seed::from_os().map(Some).or_exit(Exit::Io),
    }
}

fn engine_line(engine: &Engine) -> String {
    let descriptor = engine.descriptor();
    format!(
        "{}, {} layers, {:.1} MB of weights on {}, policy {}",
        descriptor.family,
        descriptor.layers(),
        engine.weight_bytes() as f64 / 1e6,
        engine.placement().devices[0],
        engine.policy()
    )
}

/// Generates, printing every token as it comes.
fn stream(
    engine: &Engine,
    request: &Request<'_>,
    mut printer: Printer<'_>,
) -> Result<(Generated, Timing, String), Failure> {
    interrupt::listen()?;
    let start = Instant::now();
    let mut first = None;
    let mut failure = None;
    let result = generate(engine, request, &mut |choice| {
        first.get_or_insert_with(Instant::now);
        if let Err(error) = printer.token(choice.id) {
            failure = Some(error);
        }
        if failure.is_some() || interrupt::requested() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    let end = Instant::now();
    let first = first.unwrap_or(end);
    let timing = Timing { first_token: first - start, decode: end - first };
    if let Some(failure) = failure {
        return Err(failure);
    }
    // The text so far stays complete also where an error follows.
    let text = printer.finish()?;
    let generated = result.map_err(|error| Failure::new(exit_of(&error), error))?;
    Ok((generated, timing, text))
}

fn exit_of(error: &GenerateError) -> Exit {
    match error {
        GenerateError::EmptyPrompt | GenerateError::ContextTooSmall { .. } => Exit::Usage,
        GenerateError::Engine { source, .. } => match source {
            SequenceError::TokenOutOfRange { .. } | SequenceError::ContextFull { .. } => {
                Exit::Usage
            }
            _ => Exit::Internal,
        },
        GenerateError::Logits { .. } | GenerateError::WrongOutput { .. } => Exit::Internal,
    }
}
