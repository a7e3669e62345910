//! Placements as gate files spell them.

use crate::harness::plan::AxisValue;
use crate::placement::{Device, PlacementRequest};
use schemars::JsonSchema;
use serde::Deserialize;

/// Ranks that divide a model, as the flags `--pp`, `--tp`, `--ep` and `--gpus` do.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::harness::kinds) struct Ranks {
    /// Stages of consecutive layers.
    #[serde(default)]
    pp: Option<usize>,
    /// Ranks that divide heads and rows.
    #[serde(default = "one")]
    tp: usize,
    /// Ranks that divide experts.
    #[serde(default = "one")]
    ep: usize,
    /// Devices, one per rank; left out, all ranks share one.
    #[serde(default)]
    devices: Option<usize>,
}

fn one() -> usize {
    1
}

impl Ranks {
    /// The request, with every rank on the CPU.
    pub(in crate::harness::kinds) fn request(&self) -> PlacementRequest {
        PlacementRequest {
            devices: vec![Device::Cpu; self.devices.unwrap_or(1)],
            stages: self.pp,
            tensor: self.tp,
            expert: self.ep,
        }
    }
}

impl AxisValue for Ranks {
    /// `tp2`, `pp2-tp4`, `devices4-tp2`; `single` where nothing divides.
    fn axis_text(&self) -> String {
        let part = |name: &str, n: usize| (n != 1).then(|| format!("{name}{n}"));
        let parts = [
            self.devices.map(|n| format!("devices{n}")),
            self.pp.and_then(|n| part("pp", n)),
            part("tp", self.tp),
            part("ep", self.ep),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        if parts.is_empty() { "single".to_owned() } else { parts.join("-") }
    }
}
