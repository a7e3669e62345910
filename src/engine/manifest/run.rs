//! `provenance.run`: the machine and the moment.

use super::NOT_APPLICABLE;
use crate::backend::DeviceProvenance;
use crate::units::{Canonical, Digest, Machine, UNAVAILABLE};

/// What is recorded of a run.
#[derive(Clone, Debug)]
pub struct RunFacts {
    pub machine: Machine,
    /// Threads that compute.
    pub threads: usize,
    /// When the execution started, UTC, RFC 3339.
    pub time_utc: String,
    /// Digest of every byte of the weights, where somebody asked for it. It stands here and not in
    /// `weights_source`, so that asking for it does not change the weights' id.
    pub weights_full_content: Option<Digest>,
}

impl RunFacts {
    /// The facts of this process, now.
    pub fn probe(threads: usize, weights_full_content: Option<Digest>) -> RunFacts {
        RunFacts {
            machine: Machine::probe(),
            threads,
            time_utc: crate::units::utc_now(),
            weights_full_content,
        }
    }
}

/// Key of the part that a comparison looks at.
pub(super) const COMPARED: &str = "compared";
/// Key of the part that is shown only.
pub(super) const INFORMATIONAL: &str = "informational";
/// Key of [`RunFacts::weights_full_content`] within the informational part.
pub(super) const FULL_CONTENT: &str = "weights_full_content_digest";

/// Fields of the block.
pub fn run_fields(facts: &RunFacts, device: Option<&DeviceProvenance>) -> Canonical {
    let Machine { cpu, memory, system } = &facts.machine;
    let known = |value: Option<Canonical>| value.unwrap_or_else(|| UNAVAILABLE.into());
    let text = |value: &Option<String>| known(value.as_deref().map(Canonical::from));
    let count = |value: Option<usize>| known(value.map(Canonical::from));
    let bytes = |value: Option<u64>| known(value.map(Canonical::from));
    Canonical::object([
        (
            COMPARED,
            Canonical::object([
                ("device", Canonical::from(if device.is_some() { "cuda" } else { "cpu" })),
                ("device_name", device.map_or(text(&cpu.model), |d| d.name.as_str().into())),
                (
                    "capability",
                    match device {
                        Some(d) => Canonical::list([d.capability.as_str()]),
                        None => Canonical::list(cpu.instruction_sets.iter().copied()),
                    },
                ),
                ("architecture", cpu.architecture.into()),
                ("driver", device.map_or(NOT_APPLICABLE.into(), |d| d.driver.as_str().into())),
                ("cpu_model", text(&cpu.model)),
            ]),
        ),
        (
            INFORMATIONAL,
            Canonical::object([
                (
                    "device_uuid",
                    Canonical::from(match device {
                        Some(_) => UNAVAILABLE,
                        None => NOT_APPLICABLE,
                    }),
                ),
                ("clock_mhz", known(cpu.clock_mhz.map(Canonical::from))),
                ("frequency_governor", text(&cpu.governor)),
                ("physical_cores", count(cpu.physical_cores)),
                ("logical_processors", count(cpu.logical_processors)),
                ("usable_processors", cpu.usable_processors.into()),
                ("threads", facts.threads.into()),
                ("memory_bytes", bytes(memory.total_bytes)),
                ("memory_limit_bytes", memory.limit_bytes.map_or("none".into(), Canonical::from)),
                ("operating_system", system.family.into()),
                ("operating_system_name", text(&system.name)),
                ("kernel", text(&system.kernel)),
                ("host", text(&system.host)),
                ("time_utc", facts.time_utc.as_str().into()),
                (
                    FULL_CONTENT,
                    facts
                        .weights_full_content
                        .map_or("unspecified".into(), |d| d.to_string().into()),
                ),
            ]),
        ),
    ])
}
