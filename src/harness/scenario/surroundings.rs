//! What a scenario names outside its file: gates, models, a text.

use super::plan::points;
use super::{MODEL_KEY, ModelSpec, ScenarioFile};
use crate::descriptor::{Descriptor, DescriptorError, from_dir};
use crate::harness::spec::{Diagnostic, did_you_mean};
use std::collections::BTreeMap;
use std::path::Path;

impl ScenarioFile {
    /// Checks what the file names: gates that exist, descriptors and a text that can be read, models
    /// whose context holds every workload.
    ///
    /// `gates` are the names of the project's gates, `None` where there is no project; `set` holds the
    /// `--set` values, whose `model` stands in place of every profile's. A model folder that is not
    /// there is no mistake of the file: `--set` gives one.
    ///
    /// # Errors
    /// A [`Diagnostic`] about the first name that leads nowhere.
    pub fn check_surroundings(
        &self,
        gates: Option<&[String]>,
        set: &BTreeMap<String, String>,
    ) -> Result<(), Diagnostic> {
        let complain = |message: String| Diagnostic::new(&self.path, message);
        let names = || gates.into_iter().flatten().map(String::as_str);
        let is_known = |gate: &String| gates.is_none_or(|gates| gates.contains(gate));
        if let Some(gate) = self.spec.gates.iter().find(|gate| !is_known(gate)) {
            return Err(complain(format!("`gates` names `{gate}`, which is no gate"))
                .help(did_you_mean(gate, names())));
        }
        let base = self.path.parent().unwrap_or(Path::new(""));
        if let Some(folder) = set.get(MODEL_KEY) {
            let folder = Path::new(folder);
            if folder.is_dir() {
                self.fits(folder, from_dir(folder)).map_err(complain)?;
            }
        } else {
            for profile in self.spec.profiles.values() {
                let place = &profile.model;
                let ModelSpec { dir, synth, or_synth, .. } = &place.value;
                let at_place = |message: String| self.at(place, message);
                for folder in dir.iter().map(|d| base.join(d)).filter(|d| d.is_dir()) {
                    self.fits(&folder, from_dir(&folder)).map_err(at_place)?;
                }
                for path in [synth, or_synth].into_iter().flatten().map(|d| base.join(d)) {
                    if !path.is_file() {
                        let message = format!("the descriptor {} does not exist", path.display());
                        return Err(at_place(message));
                    }
                    self.fits(&path, Descriptor::read(&path)).map_err(at_place)?;
                }
            }
        }
        let Some(quality) = &self.spec.quality else { return Ok(()) };
        let corpus = base.join(&quality.value.corpus);
        if !corpus.is_file() {
            return Err(self.at(quality, format!("the text {} does not exist", corpus.display())));
        }
        Ok(())
    }

    /// Whether a model is one, and every workload fits its context.
    fn fits(&self, path: &Path, model: Result<Descriptor, DescriptorError>) -> Result<(), String> {
        let context = model.map_err(|error| error.to_string())?.max_position_tokens as u64;
        let tokens = |p: &super::Point| u64::from(p.prompt_tokens) + u64::from(p.decode_tokens);
        match points(&self.spec).iter().map(tokens).max() {
            Some(most) if most > context => Err(format!(
                "a workload has {most} tokens, prompt and decode together; the context of {} holds \
                 {context}",
                path.display()
            )),
            _ => Ok(()),
        }
    }
}
