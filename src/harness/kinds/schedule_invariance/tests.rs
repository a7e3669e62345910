//! Schedules cover what the contract asks for, and a defect is found and shrunk.

use super::schedule::{Action, Class, generate};
use super::shrink::shrink;

/// Rows, most sequences and longest sequence of a schedule, by lengths alone.
fn measure(actions: &[Action]) -> (usize, usize, usize) {
    let mut lengths = std::collections::BTreeMap::new();
    let (mut rows, mut sequences, mut longest) = (0, 0, 0);
    for action in actions {
        match action {
            Action::Join { slot, .. } => {
                lengths.insert(*slot, 0usize);
            }
            Action::Leave { slot } => {
                lengths.remove(slot);
            }
            Action::Step { parts } => {
                sequences =
                    sequences.max(parts.iter().filter(|(s, _)| lengths.contains_key(s)).count());
                for (slot, n) in parts {
                    if let Some(length) = lengths.get_mut(slot) {
                        *length += n;
                        rows += n;
                        longest = longest.max(*length);
                    }
                }
            }
            Action::Truncate { slot, tokens } => {
                if let Some(length) = lengths.get_mut(slot) {
                    *length = length.saturating_sub(*tokens);
                }
            }
            _ => {}
        }
    }
    (rows, sequences, longest)
}

#[test]
fn two_hundred_schedules_cover_crowds_and_long_sequences() {
    let measured: Vec<_> = (0..200).map(|seed| measure(&generate(seed))).collect();
    let mut rows: Vec<usize> = measured.iter().map(|m| m.0).collect();
    rows.sort_unstable();
    assert!(rows[100] <= 400, "median {} rows", rows[100]);
    assert!(rows[0] >= 8, "smallest {} rows", rows[0]);
    assert!(measured.iter().filter(|m| m.1 >= 16).count() >= 20);
    assert!(measured.iter().filter(|m| m.2 > 520).count() >= 20);
    assert!(measured.iter().any(|m| m.1 == 1));
    let kinds = (0..200).flat_map(generate).map(|a| std::mem::discriminant(&a));
    assert_eq!(kinds.collect::<std::collections::HashSet<_>>().len(), 8, "every action occurs");
    assert_eq!(Class::of(15), Class::Crowd);
}

#[test]
fn the_first_schedules_have_every_class() {
    let measured: Vec<_> = (0..24).map(|seed| measure(&generate(seed))).collect();
    assert!(measured.iter().any(|m| m.1 >= 16) && measured.iter().any(|m| m.2 > 520));
}

#[test]
fn a_failing_schedule_shrinks_to_its_cause() {
    // The planted defect: a fork after a truncation, anywhere.
    let fails = |actions: &[Action]| {
        let at = actions.iter().position(|a| matches!(a, Action::Truncate { .. }));
        at.is_some_and(|i| actions[i..].iter().any(|a| matches!(a, Action::Fork { .. })))
    };
    let seed = (0..200).find(|s| fails(&generate(*s))).unwrap();
    let smallest = shrink(generate(seed), &mut |a| fails(a));
    assert_eq!(smallest.len(), 2, "{smallest:?}");
}

#[test]
fn rows_that_differ_from_serial_execution_fail() {
    use super::{execute::execute, schedule::token, serial::Serial};
    use crate::backend::Policy;
    use crate::engine::{Engine, EngineOptions};
    use crate::weights::Model;
    let folder = crate::harness::testing::root().join("tests/fixtures/llama");
    let model = Model::open(folder).unwrap();
    let weights = model.checkpoint.load(&model.descriptor).unwrap();
    let descriptor = std::sync::Arc::new(model.descriptor);
    let engine = |policy| {
        Engine::new(descriptor.clone(), &weights, &EngineOptions::with_policy(policy)).unwrap()
    };
    let (right, other) = (engine(Policy::Reference), engine(Policy::F32));
    let actions = [Action::Join { slot: 0, stream: 1 }, Action::Step { parts: vec![(0, 3)] }];
    assert_eq!(execute(&right, &mut Serial::default(), &actions).unwrap().rows, 3);
    // The planted defect: the serial digests come from another policy.
    let mut serial = Serial::default();
    let tokens: Vec<u32> = (0..3).map(|p| token(1, p, 512)).collect();
    serial.row(&other, &tokens).unwrap();
    let why = execute(&right, &mut serial, &actions).unwrap_err();
    assert!(why.contains("position 0 differs"), "{why}");
}
