//! `region_inventory`: the inventory and the regions compiled into the engine are the same, and
//! every reachable execution has one verdict.

use crate::backend::{DeviceKind, Policy, Region};
use crate::harness::inventory::{RegionEntry, RegionVerdict};
use crate::harness::kind::{
    Case, Cell, DeviceUse, Fault, GateKind, KindSpec, Outcome, PlanScope, PolicyUse, RunContext,
};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// Every region of the engine with its contract, and what the engine lacks.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RegionInventory {
    /// The regions compiled into the engine.
    regions: BTreeMap<Region, RegionEntry>,
    /// Names of the numerical contract that are no region of this engine, with the reason.
    #[serde(default)]
    excluded: BTreeMap<String, String>,
}

impl KindSpec for RegionInventory {
    const NAME: &'static str = "region_inventory";
    const DEVICE: DeviceUse = DeviceUse::Host;
    const POLICY: PolicyUse = PolicyUse::None;
}

impl GateKind for RegionInventory {
    /// One case per name of either side, so that a region missing on one side is a failing trial
    /// of its own.
    fn cases(&self, _scope: &PlanScope) -> Result<Vec<Case>, Fault> {
        if let Some((name, _)) = self.excluded.iter().find(|(_, why)| why.trim().is_empty()) {
            return Err(Fault::at("excluded", format!("`{name}` is excluded without a reason")));
        }
        let compiled = Region::ALL.iter().map(|r| r.name());
        let names: BTreeSet<&str> =
            compiled.chain(self.excluded.keys().map(String::as_str)).collect();
        Ok(names.into_iter().map(Case::named).collect())
    }

    fn run(&self, cell: &Cell, _context: &RunContext) -> Outcome {
        let name = cell.case.as_deref().unwrap_or_default();
        let region = Region::ALL.iter().copied().find(|r| r.name() == name);
        let entry = region.and_then(|r| self.regions.get(&r));
        match (region, entry, self.excluded.get(name)) {
            (Some(_), Some(_), Some(_)) => {
                Outcome::fail("the region is both listed and excluded; remove one of the two")
            }
            (Some(region), Some(entry), None) => entry_outcome(region, entry),
            (Some(_), None, Some(why)) => {
                Outcome::pass("compiled, excluded from the inventory").with("reason", why.as_str())
            }
            (Some(_), None, None) => Outcome::fail(
                "expected an entry or an exclusion with a reason for this region of the engine, \
                 found neither",
            ),
            (None, _, Some(why)) => {
                Outcome::pass("not in this engine, as stated").with("reason", why.as_str())
            }
            (None, _, None) => Outcome::fail("no region of this engine has this name"),
        }
    }
}

/// Every case × policy × device that the engine executes has exactly one verdict; under CPU
/// `reference` and CUDA `invariant` that verdict is `exact`.
fn entry_outcome(region: Region, entry: &RegionEntry) -> Outcome {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for device in [DeviceKind::Cpu, DeviceKind::Cuda] {
        for &policy in Policy::available(device) {
            for &case in entry.cases.iter() {
                let place = format!("`{region}` in `{case}` under `{policy}` on {device}");
                let verdicts = entry.verdicts_of(case, policy, device);
                let [verdict] = verdicts[..] else {
                    return Outcome::fail(format!(
                        "expected one verdict for {place}, found {}",
                        verdicts.len()
                    ));
                };
                let promised = matches!(
                    (device, policy),
                    (DeviceKind::Cpu, Policy::Reference) | (DeviceKind::Cuda, Policy::Invariant)
                );
                // A region that a device does not have yet promises nothing there.
                let absent = device == DeviceKind::Cuda
                    && matches!(verdict, RegionVerdict::NotApplicable { .. });
                if promised && !absent && *verdict != RegionVerdict::Exact {
                    return Outcome::fail(format!(
                        "expected `exact` for {place}: the policy promises it"
                    ));
                }
                *counts.entry(verdict_name(verdict)).or_default() += 1;
            }
        }
    }
    let total: u64 = counts.values().sum();
    let mut outcome = Outcome::pass(format!("one verdict for each of {total} executions"));
    for (name, count) in counts {
        outcome = outcome.with(name, count);
    }
    outcome
}

fn verdict_name(verdict: &RegionVerdict) -> &'static str {
    match verdict {
        RegionVerdict::Exact => "exact",
        RegionVerdict::Exception { .. } => "exception",
        RegionVerdict::Unverified => "unverified",
        RegionVerdict::NotApplicable { .. } => "not_applicable",
    }
}

#[cfg(test)]
mod tests {
    use crate::harness::testing::problems;

    const FILE: &str = include_str!("../../../gates/region-inventory.yaml");

    #[test]
    fn the_shipped_inventory_holds() {
        assert_eq!(problems(FILE), [""; 0]);
    }

    #[test]
    fn a_region_that_is_missing_fails() {
        let (before, rest) = FILE.split_once("  rope:\n").unwrap();
        let after = &rest[rest.find("  kv_write:\n").unwrap()..];
        let found = problems(&format!("{before}{after}"));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("rope: expected an entry"), "{found:?}");
    }

    #[test]
    fn a_missing_a_second_and_a_weaker_verdict_fail() {
        let row = "{ device: [cpu], policy: [f32, reference, fast], verdict: exact }";
        let planted = |with: &str| problems(&FILE.replacen(row, with, 1));
        let missing = planted("{ device: [cpu], policy: [reference, fast], verdict: exact }");
        assert!(missing[0].contains("under `f32` on cpu, found 0"), "{missing:?}");
        let twice = planted(&format!("{row}\n      - {row}"));
        assert!(twice[0].contains("found 2"), "{twice:?}");
        let weaker =
            planted("{ device: [cpu], policy: [f32, reference, fast], verdict: unverified }");
        assert!(weaker[0].contains("the policy promises it"), "{weaker:?}");
    }
}
