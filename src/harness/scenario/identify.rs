//! What the arms of a launch are, by their manifests.

use super::ArmRecord;
use super::run::{RunError, Runner};
use super::worker::Loaded;
use crate::engine::manifest::{Manifest, compare};
use std::collections::BTreeMap;

impl Runner<'_> {
    /// Records what the arms are at the first launch; later launches must be the same.
    pub(super) fn identify(&mut self, loaded: &BTreeMap<String, Loaded>) -> Result<(), RunError> {
        let device = self.request.device;
        let first = self.content.run.arms.is_empty();
        for (name, l) in loaded {
            let load = self.load(name, &self.content.run.plan);
            if first {
                let arm = ArmRecord {
                    policy: load.policy.resolve(device).unwrap_or(load.policy),
                    threads: load.threads,
                    revision: self.request.builds.get(name).and_then(|b| b.revision.clone()),
                    apart: load.apart.clone(),
                    slowdown_ratio: load.slowdown_ratio,
                    manifest: l.manifest.clone(),
                    bytes_per_token: l.bytes_per_token.clone(),
                    regions: l.regions.clone(),
                };
                self.content.run.arms.insert(name.clone(), arm);
            } else {
                let known = &self.content.run.arms[name].manifest;
                let differing = differing(known, &l.manifest);
                if !differing.is_empty() {
                    let message =
                        format!("{name} changed between launches in {}", differing.join(", "));
                    self.content.run.refusals.push(message);
                }
            }
        }
        if first {
            let allowed = super::identity::allowed(&self.content.run.scenario.differs_in);
            let baseline = &loaded[&self.content.run.plan.baseline].manifest;
            for candidate in &self.content.run.plan.candidates {
                let extra: Vec<String> = differing(baseline, &loaded[candidate].manifest)
                    .into_iter()
                    .filter(|b| !allowed.contains(b))
                    .collect();
                if !extra.is_empty() {
                    self.content.run.refusals.push(format!(
                        "the manifests of {candidate} and the baseline differ in {}; the scenario allows {}",
                        extra.join(", "),
                        if allowed.is_empty() { "no difference".into() } else { allowed.join(", ") }
                    ));
                }
            }
        }
        self.store.update(&self.content.run)?;
        Ok(())
    }
}

/// Names of the blocks in which two manifests differ.
fn differing(left: &serde_json::Value, right: &serde_json::Value) -> Vec<String> {
    match (super::manifest_of(left), super::manifest_of(right)) {
        (Some(left), Some(right)) => {
            compare(&left, &right).differing().iter().map(ToString::to_string).collect()
        }
        _ => vec!["a manifest that cannot be read".into()],
    }
}

pub(super) fn ids(loaded: &Loaded) -> BTreeMap<String, String> {
    let Some(manifest) = super::manifest_of(&loaded.manifest) else { return BTreeMap::new() };
    let ids: BTreeMap<String, serde_json::Value> = Manifest::ids(&manifest).into_iter().collect();
    ids.into_iter()
        .filter_map(|(key, id)| Some((key, id.as_str()?.get(..12)?.to_owned())))
        .collect()
}
