//! `assay kernels build`.

use crate::backend::cuda::{
    Built, KERNEL_ARCHS, KernelArch, KernelCache, build_all, compiler, write_pack,
};
use crate::cli::console::Tone;
use crate::cli::{Console, Failure, OrExit};
use crate::units::Exit;
use serde_json::json;
use std::fmt::Write as _;
use std::path::PathBuf;

/// What to compile.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  assay kernels build
  assay kernels build --arch sm_90a --arch sm_80 -j 2
  assay kernels build --pack kernels.pack   to embed (feature embedded-kernels)

Exit code 1 if a source does not compile or the assembler reports lost performance.")]
pub(super) struct Args {
    /// An architecture, e.g. sm_90a; repeatable [default: all]
    #[arg(long = "arch", value_name = "ARCH")]
    archs: Vec<KernelArch>,
    /// Sources compiled at a time [default: the number of processors]
    #[arg(long, short, value_name = "N")]
    jobs: Option<usize>,
    /// Take what the cache has instead of compiling again
    #[arg(long)]
    cached: bool,
    /// Write the images to one file that a build can embed
    #[arg(long, value_name = "FILE")]
    pack: Option<PathBuf>,
}

/// Compiles and prints what every kernel uses.
pub(super) fn run(args: &Args, console: &Console) -> Result<Exit, Failure> {
    let archs = if args.archs.is_empty() { KERNEL_ARCHS.to_vec() } else { args.archs.clone() };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let cache = KernelCache::of_user();
    console.note(&compiler().or_exit(Exit::Io)?);
    let jobs = args.jobs.unwrap_or(processors);
    let built = build_all(&archs, jobs, &cache, args.cached).or_exit(Exit::Io)?;
    if console.json() {
        console.product_json(&as_json(&built))?;
    } else {
        console.product(&as_text(&built, console))?;
    }
    if let Some(error) = built.iter().flat_map(|b| &b.result).find_map(|f| f.cache_error.as_ref()) {
        console.warning(&format!("images are not kept in the cache: {error}"));
    }
    if let Some(path) = &args.pack {
        write_pack(path, built.iter().flat_map(|b| &b.result))
            .or_exit_with(Exit::Io, || path.display().to_string())?;
        console.note(&format!("wrote {}", path.display()));
    }
    Ok(if built.iter().all(is_good) { Exit::Success } else { Exit::Fail })
}

fn is_good(built: &Built) -> bool {
    built.result.as_ref().is_ok_and(|f| f.image.kernels.iter().all(|k| k.warnings.is_empty()))
}

fn as_text(built: &[Built], console: &Console) -> String {
    let mut text = format!(
        "{:<7} {:<38} {:>9} {:>12} {:>14}\n",
        "arch", "kernel", "registers", "shared bytes", "spilled bytes"
    );
    let (mut kernels, mut spilling, mut failed) = (0, 0, 0);
    for b in built {
        match &b.result {
            Ok(found) => {
                for k in &found.image.kernels {
                    kernels += 1;
                    let spilled = k.spill_store_bytes.max(k.spill_load_bytes);
                    spilling += usize::from(spilled > 0);
                    let _ = writeln!(
                        text,
                        "{:<7} {:<38} {:>9} {:>12} {:>14}",
                        b.arch, k.name, k.registers, k.shared_bytes, spilled
                    );
                    for warning in &k.warnings {
                        failed += 1;
                        let _ = writeln!(text, "        {}", console.paint(warning, Tone::Bad));
                    }
                }
            }
            Err(error) => {
                failed += 1;
                let _ = writeln!(text, "{}", console.paint(&error.to_string(), Tone::Bad));
            }
        }
    }
    let sources = built.len();
    let _ = writeln!(
        text,
        "{kernels} kernels in {sources} images; {spilling} spill registers; {failed} problems"
    );
    text
}

fn as_json(built: &[Built]) -> serde_json::Value {
    let images: Vec<_> = built
        .iter()
        .map(|b| match &b.result {
            Ok(found) => json!({
                "source": b.source.name,
                "arch": b.arch.to_string(),
                "origin": found.origin,
                "source_digest": found.key.source,
                "image_digest": found.digest().to_string(),
                "compiler": found.key.compiler,
                "elapsed_ms": b.elapsed_ms,
                "kernels": found.image.kernels,
            }),
            Err(error) => json!({
                "source": b.source.name,
                "arch": b.arch.to_string(),
                "error": error.to_string(),
            }),
        })
        .collect();
    json!({ "images": images })
}
