//! The root of the command line: global flags, dispatch, exit codes.

use super::{Console, Failure};
use crate::units::{Exit, is_catching};
use clap::{Args, ColorChoice, Parser, Subcommand};
use std::process::ExitCode;

/// Declares the subcommands: documentation, variant, module (with `Args` and `run`).
macro_rules! commands {
    ($($(#[$meta:meta])* $variant:ident = $module:ident,)*) => {
        #[derive(Debug, Subcommand)]
        #[expect(clippy::large_enum_variant, reason = "one value, made once a process")]
        enum Command { $($(#[$meta])* $variant(super::$module::Args),)* }

        fn dispatch(command: Command, console: &Console) -> Result<Exit, Failure> {
            match command { $(Command::$variant(args) => super::$module::run(args, console),)* }
        }
    };
}

commands! {
    /// Claims about the engine: list, show, check, run, plant defects
    Gates = gates,
    /// Experiments that decide: list, show, check, run, error rates
    Scenario = scenario,
    /// Reports of runs: render, check, compare, merge
    Report = report,
    /// Continue a prompt: streaming text, replayable by seed
    Generate = generate,
    /// Measure how well a model predicts a text: likelihood, top-1, agreement with another
    Eval = eval,
    /// Execution manifests: show, check, compare
    Manifest = manifest,
    /// Record what an execution computes, and compare recordings
    Capture = capture,
    /// Checkpoints: describe, make synthetic ones, quantize, verify
    Model = model,
    /// CUDA kernels: list, compile without a GPU, probe, time a model
    Kernels = kernels,
    /// What this machine has, what is missing, and what that costs
    Doctor = doctor,
    /// Print the JSON Schema of a kind of file, for editors
    Schema = schema,
    #[command(hide = true)]
    Worker = worker,
    /// Print a completion script for a shell
    Completions = complete,
}

/// Assay assays LLM engines: an inference engine, and gates and scenarios that admit or decline
/// claims about it on recorded evidence.
#[derive(Debug, Parser)]
#[command(
    name = "assay",
    version,
    after_help = EXAMPLES,
    subcommand_required = true,
    arg_required_else_help = true,
    propagate_version = true,
    max_term_width = 100
)]
pub(super) struct Root {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// Flags that every command takes.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Global options")]
struct Global {
    /// When to colour output
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    color: ColorChoice,
    /// Print only the product and errors: no progress, no notes
    #[arg(long, short, global = true)]
    quiet: bool,
    /// Print data as JSON
    #[arg(long, global = true)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  assay gates run all                  every claim this machine can test
  assay gates list                     what would run, what cannot run here
  assay completions bash > assay.bash  shell completions

Exit codes:
  0    pass, admitted, or the expected decision
  1    fail, rejected, or another decision than the expected one
  2    legacy: equal, and unverified
  3    diagnostic only
  4    inconclusive or invalid
  64   usage or spec error
  70   internal error
  74   input/output error
  130  interrupted; records are kept";

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    // A panic is a bug of ours, not a mistake of the user: one sentence instead of a backtrace
    // (RUST_BACKTRACE still gives one), and the code that says so.
    let default_hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if is_catching() {
            return;
        }
        if std::env::var_os("RUST_BACKTRACE").is_some() {
            default_hook(info);
        } else {
            let console = Console::new(ColorChoice::Auto, false, false);
            console.error(&format!("internal error: {info}"));
            console.note("this is a bug in assay; RUST_BACKTRACE=1 shows where it happened");
        }
    }));
    std::panic::catch_unwind(run).unwrap_or(Exit::Internal).into()
}

fn run() -> Exit {
    let root = match Root::try_parse() {
        Ok(root) => root,
        Err(error) => return usage(&error),
    };
    let Global { color, quiet, json } = root.global;
    let console = Console::new(color, quiet, json);
    match dispatch(root.command, &console) {
        Ok(exit) => exit,
        Err(failure) => failure.report(&console),
    }
}

/// Prints clap's message and maps its exit code: help and version succeed, the rest is usage.
fn usage(error: &clap::Error) -> Exit {
    use clap::error::ErrorKind;
    // A closed pipe while printing help is the reader's choice.
    let _ = error.print();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Exit::Success,
        _ => Exit::Usage,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Root::command().debug_assert();
    }

    #[test]
    fn clap_codes_are_mapped() {
        let exit = |args: &[&str]| match Root::try_parse_from(args) {
            Ok(_) => None,
            Err(error) => Some(super::usage(&error)),
        };
        assert_eq!(exit(&["assay", "--help"]), Some(Exit::Success));
        assert_eq!(exit(&["assay", "--version"]), Some(Exit::Success));
        assert_eq!(exit(&["assay"]), Some(Exit::Usage));
        assert_eq!(exit(&["assay", "gats"]), Some(Exit::Usage));
        assert_eq!(exit(&["assay", "completions", "bash"]), None);
    }

    /// At 80 columns no example is broken, and paragraphs are left to clap to wrap.
    fn reads_well(help: &str, path: &str) {
        let prose = |line: &str| !line.is_empty() && !line.starts_with(' ') && !line.ends_with(':');
        for (line, next) in help.lines().zip(help.lines().skip(1).chain([""])) {
            let broken = line.starts_with(' ') && line.chars().count() > 80;
            assert!(!broken, "`{path}`: longer than 80 characters: {line}");
            assert!(!(prose(line) && prose(next)), "`{path}`: wrapped by hand: {line}");
        }
    }

    /// Every subcommand, at every level, says what it is for and shows an example.
    #[test]
    fn every_level_has_help_and_examples() {
        fn walk(command: &clap::Command, path: &str) {
            if command.is_hide_set() || command.get_name() == "help" {
                return;
            }
            let path = format!("{path} {}", command.get_name());
            assert!(command.get_about().is_some(), "`{path}` has no summary");
            let examples = command
                .get_after_help()
                .map(ToString::to_string)
                .unwrap_or_default()
                .to_lowercase();
            assert!(examples.contains("example"), "`{path}` has no examples in its help");
            reads_well(&examples, &path);
            for sub in command.get_subcommands() {
                walk(sub, &path);
            }
        }
        walk(&Root::command(), "");
    }
}
