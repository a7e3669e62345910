//! Packing in memory: what it keeps, what it refuses, what it is called.

use super::{Prefill, QuantiseError, Recipe};
use crate::descriptor::{Descriptor, RoleName};
use crate::tensor::{Int4Error, Storage};
use crate::weights::{ConvertOptions, LoadOptions, Model, SIDECAR, Sidecar, convert};
use crate::weights::{synth, synth_quantised};
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
    // Eight experts of 12 rows: 96 in all, and no expert has whole tiles.
    let mut d = descriptor("qwen3_moe");
    d.roles.iter_mut().find(|r| r.name == RoleName::MoeUp).unwrap().shape = vec![8, 12, 64];
    let error = recipe(&[RoleName::MoeUp]).check(&d).unwrap_err();
    assert_eq!(
        error.to_string(),
        "moe_up of layer 0: N = 12 is not a multiple of the tile of 8 rows"
    );
    let router = recipe(&[RoleName::MoeRouter]).check(&d).unwrap_err();
    assert!(matches!(router, QuantiseError::Role { role: RoleName::MoeRouter, .. }));
    let absorbed = recipe(&[RoleName::MlaKvB]).check(&descriptor("deepseek_v2")).unwrap_err();
    assert!(absorbed.to_string().ends_with("shared_gate, shared_up, shared_down"), "{absorbed}");
    let d = descriptor("llama");
    let twice = synth_quantised(&d, 5, &recipe(&[RoleName::MlpUp])).unwrap();
    let again = twice.quantise(&d, &recipe(&[RoleName::MlpGate])).unwrap_err();
    assert_eq!(again, QuantiseError::Already);
}

/// Folders whose manifest counts experts otherwise than its parts or the model do.
#[test]
fn experts_of_a_manifest_are_those_of_the_model() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/qwen3_5_moe");
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("packed");
    let recipe = recipe(&[RoleName::MoeUp]);
    let options = ConvertOptions { recipe, max_shard_bytes: 1 << 40, progress: None };
    let model = Model::open(&source).unwrap();
    let Sidecar { weights, .. } = convert(&model, &source, &out, &options).unwrap().sidecar;
    let record = weights.iter().find(|w| w.role == RoleName::MoeUp).unwrap();
    let packed = record.packed.as_ref().unwrap();
    assert_eq!((record.shape, record.experts, packed.experts.len()), ([6 * 24, 64], Some(6), 6));
    assert!(packed.experts.iter().all(|e| e.error.rms > 0.0 && e.codes != packed.codes.sha256));
    let path = out.join(SIDECAR);
    let pristine = std::fs::read(&path).unwrap();
    let refused = |role: RoleName, change: &dyn Fn(&mut crate::weights::WeightRecord)| {
        let mut sidecar = Sidecar::parse(&pristine).unwrap();
        change(sidecar.weights.iter_mut().find(|w| w.role == role).unwrap());
        std::fs::write(&path, sidecar.text()).unwrap();
        let loaded = Model::open(&out).and_then(|model| model.load(&LoadOptions::default()));
        loaded.map(|_| ()).unwrap_err().to_string()
    };
    let says = |found: String, wanted: &str| {
        assert!(found.contains("[packed_shape]") && found.contains(wanted), "{found}");
    };
    let fewer = refused(RoleName::MoeUp, &|w| w.experts = Some(3));
    says(fewer, "moe_up of layer 0: 6 experts are described, it has 3");
    let missing = refused(RoleName::MoeUp, &|w| _ = w.packed.as_mut().unwrap().experts.pop());
    says(missing, "moe_up of layer 0: 5 experts are described, it has 6");
    let halves = refused(RoleName::MoeUp, &|w| {
        w.experts = Some(12);
        let experts = &mut w.packed.as_mut().unwrap().experts;
        experts.extend(experts.clone());
    });
    says(halves, "moe_up of layer 0: an expert: N = 12 is not a multiple of the tile of 8 rows");
    let none = refused(RoleName::MoeGate, &|w| w.experts = None);
    says(none, "expected 6 experts, found moe_gate of layer 0: no experts");
    std::fs::write(&path, &pristine).unwrap();
    Model::open(&out).unwrap().load(&LoadOptions::default()).unwrap();
}
