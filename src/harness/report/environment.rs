//! Where and by what a record was made, the same on every page.

use super::format;
use super::html::{Element, text};
use super::page::{facts, section};
use crate::harness::records::{BuildRecord, MachineRecord};

/// The section of a page: facts about what ran, the machine, the build, the moment, and the rest.
pub(super) fn environment(
    subject: &[(&str, String)],
    (machine, build): (&MachineRecord, &BuildRecord),
    (started, finished): (&str, Option<&str>),
    rest: impl IntoIterator<Item = (String, String)>,
) -> Element {
    let or = |fact: Option<String>| fact.unwrap_or_else(|| "unavailable".to_owned());
    let features = match build.features.as_str() {
        "" => String::new(),
        features => format!(", features {features}"),
    };
    let dirty = match build.git_dirty {
        Some(true) => ", modified",
        Some(false) => ", clean",
        None => "",
    };
    let revision = build.git_revision.get(..12).unwrap_or(&build.git_revision);
    let facts_of_all = [
        ("Processor", or(machine.cpu.clone())),
        ("Instruction sets", machine.instruction_sets.join(", ")),
        ("Processors usable", machine.usable_processors.to_string()),
        ("Memory", or(machine.memory_bytes.map(format::bytes))),
        ("System", or(machine.system.clone())),
        ("Kernel", or(machine.kernel.clone())),
        (
            "Build",
            format!(
                "assay {} ({revision}{dirty}), {}, {}{features}",
                build.version, build.profile, build.compiler
            ),
        ),
        ("Build digest", build.digest.clone()),
        ("Started", format::moment(started)),
        ("Finished", finished.map_or("not finished".to_owned(), format::moment)),
    ];
    let named = |(name, value): &(&str, String)| ((*name).to_owned(), value.clone());
    let rows = subject.iter().chain(&facts_of_all).map(named).chain(rest);
    let rows = rows.map(|(name, value)| (name, text(&value))).collect();
    section("environment", "Environment").with(facts("Machine, build and moment", rows))
}
