use super::*;
use crate::harness::Verdict;
use crate::harness::records::{BuildRecord, MachineRecord};
use crate::units::MUTANTS;
use std::path::Path;

/// A survey of every switch in which those named survive.
pub(in crate::harness) fn made_up(survivors: &[&str]) -> Survey {
    let mutations: Vec<Mutation> = MUTANTS
        .iter()
        .map(|m| Mutation {
            switch: m.name.into(),
            region: m.region.into(),
            defect: m.defect.into(),
            killed_by: (!survivors.contains(&m.name)).then(|| Kill {
                trial: format!("some-gate/cpu/f32/{}", m.region),
                verdict: Verdict::Fail,
                message: "expected 1, found </script><b>2".into(),
            }),
            trials: 3,
            duration_ms: 1200,
        })
        .collect();
    let run = SurveyRecord {
        schema_version: SURVEY_VERSION,
        kind: SurveyKind::MutationSurvey,
        run_id: "20310509t140359z-mutants".into(),
        command: vec!["assay".into(), "gates".into(), "mutate".into()],
        started: "2031-05-09T14:03:59Z".into(),
        finished: Some("2031-05-09T14:13:59Z".into()),
        build: BuildRecord::current(),
        machine: MachineRecord::current(),
        gates: 40,
        baseline_trials: 5000,
        baseline_ms: 60_000,
        switches: MUTANTS.len() as u64,
    };
    Survey { run, mutations }
}

#[test]
fn shares_add_up_and_survivors_are_named() {
    let survey = made_up(&["rope_base", "gdn_stale_group"]);
    assert_eq!(survey.killed() as usize, MUTANTS.len() - 2);
    let names: Vec<&str> = survey.survivors().map(|m| m.switch.as_str()).collect();
    assert_eq!(names.len(), 2);
    let regions = survey.by_region();
    assert_eq!(regions.values().map(|r| r.planted).sum::<u64>() as usize, MUTANTS.len());
    assert_eq!(regions["rope"].planted - regions["rope"].killed, 1);
}

#[test]
fn the_record_survives_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut survey = made_up(&[]);
    survey.run.finished = None;
    let partial = store(&survey, folder.path()).unwrap();
    assert!(partial.extension().is_some_and(|e| e == "partial"));
    survey.run.finished = Some("2031-05-09T14:13:59Z".into());
    let done = store(&survey, folder.path()).unwrap();
    let text = std::fs::read_to_string(done.join("record.json")).unwrap();
    assert_eq!(serde_json::from_str::<Survey>(&text).unwrap(), survey);
    assert!(!partial.exists());
}

#[test]
fn every_region_has_two_switches_and_a_gate_tagged_with_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let subject = Subject { root: root.into(), program: "assay".into(), all_gates: false };
    for region in crate::backend::Region::ALL {
        let switches = MUTANTS.iter().filter(|m| m.region == region.name()).count();
        assert!(switches >= 2, "{region}: {switches} switches");
    }
    for mutant in MUTANTS {
        let rounds = rounds(&subject, mutant.region).unwrap();
        assert_eq!(rounds.len(), 2, "no gate is tagged with {}", mutant.region);
    }
    assert!(MUTANTS.len() >= 50);
}
