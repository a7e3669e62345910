//! How any command makes an engine of a model: at once, or while it reads other files.

use super::{Console, Failure, OrExit};
use crate::backend::Policy;
use crate::engine::{Engine, EngineError, EngineOptions};
use crate::placement::Device;
use crate::units::Exit;
use crate::weights::{LoadOptions, Model, Sidecar, WeightSet};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

/// An engine with the weights that it shares; manifests are made from them.
pub(crate) type Loaded = (Engine, WeightSet);

/// A model whose weights are being loaded, or will be.
#[derive(Debug)]
pub(crate) struct Loading {
    warnings: Vec<String>,
    bar: ProgressBar,
    work: Work,
}

#[derive(Debug)]
enum Work {
    /// Under way on another thread. Where nobody waits for it, it ends with the process.
    Begun(JoinHandle<Result<Loaded, Failure>>),
    Later(Box<(Model, EngineOptions)>),
    /// The model does not fit the devices.
    Refused(Failure),
}

impl Loading {
    /// Begins to load: on the CPU at once, on another thread. Nothing is printed before
    /// [`Loading::finish`], and what is refused is refused there, so that a command which reads other
    /// files meanwhile reports their errors first, whichever is found first.
    pub(crate) fn begin(model: &Model, options: &EngineOptions) -> Loading {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        let work = match placed(model, options).or_exit(Exit::Usage) {
            Err(refused) => Work::Refused(refused),
            Ok(()) => begin(model.clone(), options.clone(), &bar),
        };
        Loading { warnings: model.checkpoint.warnings().to_vec(), bar, work }
    }

    /// Warns of what is odd about the files, and waits, with a progress bar on a terminal.
    ///
    /// # Errors
    /// 64 for weights or a model that are refused, 74 for files that cannot be read.
    pub(crate) fn finish(self, console: &Console) -> Result<Loaded, Failure> {
        let Loading { warnings, bar, work } = self;
        if let Work::Refused(failure) = work {
            return Err(failure);
        }
        warnings.iter().for_each(|warning| console.warning(warning));
        show(&bar, console);
        let loaded = match work {
            Work::Begun(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Work::Later(what) => load(&what.0, &what.1, &bar),
            Work::Refused(failure) => Err(failure),
        };
        bar.finish_and_clear();
        loaded
    }
}

/// Plans where the model would run, before its weights are read.
fn placed(model: &Model, options: &EngineOptions) -> Result<(), EngineError> {
    let sidecar = model.checkpoint.sidecar();
    let stored = sidecar.map(|s| s.stored(&model.descriptor)).unwrap_or_default();
    let placement = options.place(&model.descriptor, &stored)?;
    let packed = sidecar.into_iter().flat_map(Sidecar::packings);
    Ok(placement.check_packed(&model.descriptor, packed)?)
}

fn begin(model: Model, options: EngineOptions, bar: &ProgressBar) -> Work {
    // A driver of another device does not like to be left in the middle of something.
    if options.device == Device::Cpu {
        let (model, options, bar) = (model.clone(), options.clone(), bar.clone());
        let work = move || load(&model, &options, &bar);
        if let Ok(thread) = thread::Builder::new().name("assay-load".into()).spawn(work) {
            return Work::Begun(thread);
        }
    }
    Work::Later(Box::new((model, options)))
}

/// Loads the weights of `model`, with a progress bar on a terminal, and makes an engine. The weights
/// are shared with the engine, not a copy.
///
/// # Errors
/// As [`Loading::finish`].
pub(crate) fn load_engine(
    model: &Model,
    options: &EngineOptions,
    console: &Console,
) -> Result<Loaded, Failure> {
    Loading::begin(model, options).finish(console)
}

fn load(model: &Model, options: &EngineOptions, bar: &ProgressBar) -> Result<Loaded, Failure> {
    let report = |done: u64, total: u64| {
        bar.set_length(total);
        bar.set_position(done);
    };
    // `fast` on the CPU copies matrices into panels, in parallel, and gives the file's pages back as
    // it goes.
    let read_ahead = options.policy != Policy::Fast || options.device != Device::Cpu;
    let load = LoadOptions { progress: Some(&report), read_ahead, ..LoadOptions::default() };
    let weights = model.load(&load);
    bar.finish_and_clear();
    let weights = weights?;
    let descriptor = Arc::new(model.descriptor.clone());
    let engine = Engine::new(descriptor, &weights, options).or_exit(Exit::Usage)?;
    Ok((engine, weights))
}

fn show(bar: &ProgressBar, console: &Console) {
    if !console.progress() {
        return;
    }
    let template = "loading {bar:30} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec}";
    let style = ProgressStyle::with_template(template);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_draw_target(ProgressDrawTarget::stderr());
}
