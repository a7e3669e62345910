//! How any command names a model.

use super::{Console, Failure};
use crate::descriptor::{Descriptor, DescriptorError, from_dir};
use crate::units::Exit;
use crate::weights::{Model, ModelError};
use clap::Args;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The flags by which a command names a model.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct ModelArgs {
    /// Hugging Face folder: config.json, safetensors, tokenizer.json
    #[arg(long, value_name = "DIR")]
    pub(crate) model: PathBuf,
    #[command(flatten)]
    pub(crate) overrides: DescriptorArgs,
}

/// The flags that replace or check the descriptor of a checkpoint folder.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct DescriptorArgs {
    /// Use this descriptor instead of the one that config.json gives
    #[arg(long, value_name = "FILE")]
    pub(crate) descriptor: Option<PathBuf>,
    /// Print on stderr the descriptor that the engine holds, and fail if it is not the one that
    /// config.json gives
    #[arg(long)]
    pub(crate) check_descriptor: bool,
}

impl ModelArgs {
    /// Opens the folder, with `--descriptor` in place of what config.json gives.
    ///
    /// # Errors
    /// 64 for a refused file, 74 for one that cannot be read.
    pub(crate) fn open(&self) -> Result<Model, Failure> {
        folder_exists(&self.model)?;
        Ok(match &self.overrides.descriptor {
            Some(file) => Model::with_descriptor(&self.model, read_descriptor(file)?)?,
            None => Model::open(&self.model)?,
        })
    }

    /// With `--check-descriptor`: prints the descriptor that the engine holds and compares it with
    /// the one that config.json gives. Call it with the descriptor of the created engine.
    ///
    /// # Errors
    /// 1 if they differ, with every difference by key.
    pub(crate) fn check(&self, held: &Descriptor, console: &Console) -> Result<(), Failure> {
        self.overrides.check(&self.model, held, console)
    }
}

impl DescriptorArgs {
    /// `--descriptor`, or what the config.json of `dir` gives.
    ///
    /// # Errors
    /// As [`ModelArgs::open`].
    pub(crate) fn descriptor_of(&self, dir: &Path) -> Result<Descriptor, Failure> {
        match &self.descriptor {
            Some(file) => read_descriptor(file),
            None => {
                folder_exists(dir)?;
                Ok(from_dir(dir)?)
            }
        }
    }

    /// As [`ModelArgs::check`], for the folder `dir`.
    pub(crate) fn check(
        &self,
        dir: &Path,
        held: &Descriptor,
        console: &Console,
    ) -> Result<(), Failure> {
        if !self.check_descriptor {
            return Ok(());
        }
        console.diagnostic(held.to_json().trim_end());
        let differences = from_dir(dir)?.differences(held);
        if differences.is_empty() {
            return Ok(());
        }
        let listed: Vec<String> = differences.iter().map(|d| format!("\n  {d}")).collect();
        Err(Failure::new(
            Exit::Fail,
            format!(
                "the engine's descriptor is not the one of {}:{}",
                dir.join("config.json").display(),
                listed.concat()
            ),
        ))
    }
}

/// Reads what `--descriptor` names.
///
/// # Errors
/// 64 for a folder or a refused file, 74 for one that cannot be read.
pub(crate) fn read_descriptor(file: &Path) -> Result<Descriptor, Failure> {
    if file.is_dir() {
        let message =
            "a folder; --descriptor expects a file such as `assay model descriptor DIR` prints";
        return Err(Failure::usage(format!("{}: {message}", file.display())));
    }
    Ok(Descriptor::read(file)?)
}

/// Says of a folder of a model that is not there what it should be.
///
/// # Errors
/// 74 if nothing of this name exists.
pub(crate) fn folder_exists(dir: &Path) -> Result<(), Failure> {
    if std::fs::metadata(dir).is_err_and(|e| e.kind() == ErrorKind::NotFound) {
        let message = "no such folder; expected a Hugging Face folder with config.json and \
                       *.safetensors";
        return Err(Failure::new(Exit::Io, format!("{}: {message}", dir.display())));
    }
    Ok(())
}

impl From<DescriptorError> for Failure {
    fn from(error: DescriptorError) -> Failure {
        match error {
            DescriptorError::Io { .. } => Failure::new(Exit::Io, error),
            DescriptorError::Refused(_) => Failure::usage(error),
        }
    }
}

impl From<ModelError> for Failure {
    fn from(error: ModelError) -> Failure {
        Failure::new(if error.is_io() { Exit::Io } else { Exit::Usage }, error)
    }
}
