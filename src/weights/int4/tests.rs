//! Packing in memory: what it keeps, what it refuses, what it is called.

use super::{Prefill, QuantiseError, Recipe};
use crate::descriptor::{Descriptor, RoleName};
use crate::tensor::{Int4Error, Storage};
use crate::weights::{Model, synth, synth_quantised};
use std::path::Path;

fn descriptor(name: &str) -> Descriptor {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    Model::open(root.join("tests/fixtures").join(name)).unwrap().descriptor
}

fn recipe(roles: &[RoleName]) -> Recipe {
    let roles = roles.iter().copied().collect();
    Recipe { roles, group: None, prefill: Prefill::Packed }
}

#[test]
fn weights_packed_as_they_are_generated_are_those_packed_afterwards() {
    let d = descriptor("llama");
    let recipe = recipe(&[RoleName::MlpGate, RoleName::LmHead]);
    let afterwards = synth(&d, 5).quantise(&d, &recipe).unwrap();
    let at_once = synth_quantised(&d, 5, &recipe).unwrap();
    assert_eq!(afterwards.artifact(), at_once.artifact());
    assert_eq!(afterwards.source(), at_once.source());
    assert_eq!(afterwards.source(), synth(&d, 5).source());
    assert!(at_once.size_bytes() < synth(&d, 5).size_bytes());
    let weight = at_once.get(RoleName::MlpGate, Some(2)).unwrap();
    assert!(matches!(weight.storage, Storage::Int4(_)));
    let other = synth(&d, 6).quantise(&d, &recipe).unwrap();
    assert_ne!(afterwards.artifact(), other.artifact());
}

#[test]
fn a_tied_head_is_packed_and_the_embedding_stays() {
    let mut d = descriptor("llama");
    d.roles.iter_mut().find(|r| r.name == RoleName::LmHead).unwrap().tied_to =
        Some(RoleName::Embed);
    let set = synth(&d, 5).quantise(&d, &recipe(&[RoleName::LmHead])).unwrap();
    assert!(matches!(set.get(RoleName::LmHead, None).unwrap().storage, Storage::Int4(_)));
    assert!(matches!(set.get(RoleName::Embed, None).unwrap().storage, Storage::Bf16(_)));
}

#[test]
fn recipes_that_do_not_fit_are_refused_by_name() {
    let d = descriptor("llama");
    let refused = |recipe: Recipe| synth(&d, 5).quantise(&d, &recipe).unwrap_err();
    assert!(matches!(refused(recipe(&[])), QuantiseError::Nothing { .. }));
    assert!(matches!(refused(recipe(&[RoleName::Embed])), QuantiseError::Role { .. }));
    assert!(matches!(refused(recipe(&[RoleName::GdnZ])), QuantiseError::Role { .. }));
    // K = 176 has no group.
    let down = refused(recipe(&[RoleName::MlpDown]));
    assert_eq!(
        down.to_string(),
        "mlp_down of layer 0: K = 176 is not a multiple of the group of 32: partial groups do not exist"
    );
    let wide = Recipe { group: Some(128), ..recipe(&[RoleName::MlpUp]) };
    let error = Int4Error::Columns { cols: 64, group: 128 };
    let (role, layer) = (RoleName::MlpUp, Some(0));
    assert_eq!(refused(wide), QuantiseError::Weight { role, layer, error });
    let twice = synth_quantised(&d, 5, &recipe(&[RoleName::MlpUp])).unwrap();
    let again = twice.quantise(&d, &recipe(&[RoleName::MlpGate])).unwrap_err();
    assert_eq!(again, QuantiseError::Already);
}
