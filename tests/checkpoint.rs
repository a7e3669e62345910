//! The checkpoints under `tests/fixtures/`, read and compared with the reference implementation of
//! the format.

use assay::descriptor::RoleName;
use assay::tensor::Storage;
use assay::weights::{LoadOptions, Model, WeightsSource, WriteOptions, synth, write_weights};
use std::path::{Path, PathBuf};

const FAMILIES: [&str; 4] = ["llama", "qwen3", "qwen3_5_text", "qwen3_5"];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

#[test]
fn every_weight_has_the_bytes_that_the_reference_reader_finds() {
    for family in FAMILIES {
        let model = Model::open(fixture(family)).unwrap();
        let files: Vec<Vec<u8>> =
            model.checkpoint.files().map(|f| std::fs::read(f).unwrap()).collect();
        let theirs: Vec<_> =
            files.iter().map(|f| safetensors::SafeTensors::deserialize(f).unwrap()).collect();
        let weights = model.load(&LoadOptions::default()).unwrap();
        let mut compared = 0;
        for role in &model.descriptor.roles {
            for layer in 0..model.descriptor.layers() {
                let in_layer = weights.get(role.name, Some(layer));
                let Some(weight) = in_layer.or(weights.get(role.name, None)) else { continue };
                let stored = role.tensors(Some(layer));
                // A tied role is another's weight.
                let Some((name, _)) = stored.first() else { continue };
                let tensor = theirs.iter().find_map(|t| t.tensor(name).ok()).unwrap();
                assert_eq!(weight.as_bytes(), tensor.data(), "{family}: {name}");
                compared += 1;
            }
        }
        assert!(compared > 40, "{family}: {compared}");
    }
}

#[test]
fn types_and_skipped_parts_are_as_the_files_have_them() {
    let model = Model::open(fixture("qwen3_5")).unwrap();
    assert!(model.checkpoint.tensor("model.visual.pos_embed.weight").is_some());
    assert!(model.checkpoint.tensor("mtp.fc.weight").is_some());
    let weights = model.load(&LoadOptions::default()).unwrap();
    let storage = |role, layer| &weights.get(role, Some(layer)).unwrap().storage;
    assert!(matches!(storage(RoleName::GdnALog, 0), Storage::F32(_)));
    let Storage::Bf16(conv) = storage(RoleName::GdnConv, 0) else { panic!("BF16 in the file") };
    assert!(conv.is_mapped());
    let conv = weights.get(RoleName::GdnConv, Some(0)).unwrap();
    assert_eq!((conv.rows, conv.cols), (160, 4));
    assert!(model.checkpoint.warnings().is_empty());
}

/// Another file layout of the same weights: other shards, other prefix.
#[test]
fn another_layout_has_the_same_identity() {
    let base = Model::open(fixture("qwen3_5")).unwrap();
    let options = LoadOptions { full_digest: true, ..LoadOptions::default() };
    let weights = base.load(&options).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let copy = |name: &str| {
        std::fs::copy(fixture("qwen3_5").join(name), folder.path().join(name)).unwrap();
    };
    copy("config.json");
    copy("generation_config.json");
    let rename = |name: &str| name.replace("model.language_model.", "model.");
    let small = WriteOptions { max_shard_bytes: 100_000 };
    let files = base.checkpoint.rewrite(folder.path(), rename, &small).unwrap();
    assert!(files.len() > 10);
    let other = Model::open(folder.path()).unwrap();
    assert_ne!(base.descriptor.roles[0].views, other.descriptor.roles[0].views);
    let again = other.load(&options).unwrap();
    assert_eq!(weights.source(), again.source());
    let WeightsSource::Checkpoint { full_content, .. } = again.source() else { panic!("files") };
    assert!(full_content.is_some());
}

#[test]
fn synthetic_weights_are_a_checkpoint_like_any_other() {
    for family in FAMILIES {
        let descriptor = assay::descriptor::from_dir(&fixture(family)).unwrap();
        let weights = synth(&descriptor, 3);
        let folder = tempfile::tempdir().unwrap();
        write_weights(folder.path(), &descriptor, &weights, &WriteOptions::default()).unwrap();
        let model = Model::with_descriptor(folder.path(), descriptor).unwrap();
        let again = model.load(&LoadOptions::default()).unwrap();
        for (role, layer, weight) in weights.iter() {
            assert_eq!(weight.as_bytes(), again.get(role, layer).unwrap().as_bytes());
        }
    }
}
