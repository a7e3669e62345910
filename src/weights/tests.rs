//! Loading against a small descriptor that uses every way of finding rows.

use super::*;
use crate::descriptor::{
    Attention, Descriptor, Ffn, Mixer, NormStyle, OutputGate, Role, RoleName, Rope, RopeConvention,
    RopeScaling, RowPattern, Scope, ShardRule, View,
};
use crate::tensor::{DType, bf16_bits};
use std::collections::BTreeMap;
use std::path::Path;

/// Tensors of a file, written with the reference implementation.
#[derive(Clone, Default)]
struct Tensors(BTreeMap<String, (safetensors::Dtype, Vec<usize>, Vec<u8>)>);

impl Tensors {
    fn bf16(&mut self, name: &str, shape: &[usize], first: usize) {
        let count = shape.iter().product::<usize>();
        let bytes = (first..first + count).flat_map(|i| bf16_bits(i as f32).to_le_bytes());
        self.0.insert(name.into(), (safetensors::Dtype::BF16, shape.into(), bytes.collect()));
    }

    fn write(&self, path: &Path) {
        let views = self.0.iter().map(|(name, (dtype, shape, data))| {
            (name, safetensors::tensor::TensorView::new(*dtype, shape.clone(), data).unwrap())
        });
        std::fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
    }
}

fn role(name: RoleName, scope: Scope, shape: &[usize], views: Vec<View>) -> Role {
    Role {
        name,
        scope,
        shape: shape.into(),
        shape_terms: shape.iter().map(|_| "n".into()).collect(),
        views,
        shard: ShardRule::None,
        tied_to: None,
    }
}

fn view(tensor: &str, rows: RowPattern) -> View {
    View { tensor: tensor.into(), rows }
}

/// Embedding [4, 2], interleaved gate and up of 2 layers in one tensor [4, 2], tied head.
fn descriptor() -> Descriptor {
    let blocks = |start| RowPattern::Blocks { start, block: 1, stride: 2, count: 2 };
    let layers = || Scope::Layers(vec![0, 1]);
    let mut head = role(RoleName::LmHead, Scope::Model, &[4, 2], vec![]);
    head.tied_to = Some(RoleName::Embed);
    Descriptor {
        family: "test".into(),
        hidden: 2,
        vocab: 4,
        max_position_tokens: 8,
        layer_mixers: vec![Mixer::FullAttention; 2],
        layer_ffns: vec![Ffn::Dense; 2],
        norm_style: NormStyle::Plain,
        norm_epsilon: 1e-5,
        attention: Some(Attention {
            query_heads: 1,
            kv_heads: 1,
            head_dim: 2,
            qk_norm: false,
            qkv_bias: false,
            window: None,
            output_gate: OutputGate::None,
            rope: Rope {
                convention: RopeConvention::HalfSplit,
                theta: 1e4,
                rotary_dim: 2,
                scaling: RopeScaling::None {},
            },
        }),
        mla: None,
        gdn: None,
        intermediate: Some(2),
        moe: None,
        end_tokens: vec![],
        roles: vec![
            role(RoleName::Embed, Scope::Model, &[4, 2], vec![view("e", RowPattern::All)]),
            head,
            role(RoleName::MlpGate, layers(), &[2, 2], vec![view("l.{layer}.gu", blocks(0))]),
            role(RoleName::MlpUp, layers(), &[2, 2], vec![view("l.{layer}.gu", blocks(1))]),
        ],
    }
}

fn tensors() -> Tensors {
    let mut tensors = Tensors::default();
    tensors.bf16("e", &[4, 2], 0);
    tensors.bf16("l.0.gu", &[4, 2], 10);
    tensors.bf16("l.1.gu", &[4, 1, 2], 20);
    tensors
}

fn load(tensors: &Tensors, descriptor: &Descriptor) -> Result<WeightSet, CheckpointError> {
    let folder = tempfile::tempdir().unwrap();
    tensors.write(&folder.path().join("model.safetensors"));
    Checkpoint::open(folder.path()).and_then(|c| c.load(descriptor))
}

fn rule_after(change: impl FnOnce(&mut Tensors, &mut Descriptor)) -> Option<Rule> {
    let (mut tensors, mut descriptor) = (tensors(), descriptor());
    change(&mut tensors, &mut descriptor);
    load(&tensors, &descriptor).err().map(|e| e.rule)
}

#[test]
fn interleaved_rows_are_gathered_and_whole_ones_stay_in_place() {
    let set = load(&tensors(), &descriptor()).unwrap();
    let weight = |role, layer| set.get(role, layer).unwrap();
    assert_eq!(weight(RoleName::MlpGate, Some(0)).to_f32(), [10.0, 11.0, 14.0, 15.0]);
    assert_eq!(weight(RoleName::MlpUp, Some(1)).to_f32(), [22.0, 23.0, 26.0, 27.0]);
    let head = weight(RoleName::LmHead, None);
    assert_eq!((head.rows, head.cols), (4, 2));
    let crate::tensor::Storage::Bf16(head) = &head.storage else { panic!("BF16 stays BF16") };
    assert!(head.is_mapped());
    assert_eq!(set.size_bytes(), 2 * (8 + 8 + 8));
}

/// Old writers did not pad the header, so the data section may begin anywhere.
#[test]
fn an_unaligned_data_section_is_copied() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    tensors().write(&path);
    let aligned = Checkpoint::open(&path).unwrap().load(&descriptor()).unwrap();
    let mut file = std::fs::read(&path).unwrap();
    let length = u64::from_le_bytes(*file.first_chunk().unwrap());
    file.insert(8 + length as usize, b' ');
    file[..8].copy_from_slice(&(length + 1).to_le_bytes());
    let odd = folder.path().join("odd.safetensors");
    std::fs::write(&odd, file).unwrap();
    let copied = Checkpoint::open(&odd).unwrap().load(&descriptor()).unwrap();
    assert_eq!(aligned.source(), copied.source());
    let storage = &copied.get(RoleName::Embed, None).unwrap().storage;
    let crate::tensor::Storage::Bf16(elements) = storage else { panic!("BF16 stays BF16") };
    assert!(!elements.is_mapped());
}

#[test]
fn f16_is_widened_exactly() {
    let mut tensors = tensors();
    let values =
        [1.0f32, -0.5, 6.1e-5, 5.9604645e-8, 65504.0, 0.1, 0.0, -0.0].map(half::f16::from_f32);
    let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    tensors.0.insert("e".into(), (safetensors::Dtype::F16, vec![4, 2], bytes));
    let set = load(&tensors, &descriptor()).unwrap();
    assert_eq!(set.get(RoleName::Embed, None).unwrap().to_f32(), values.map(|v| v.to_f32()));
}

#[test]
fn contradictions_are_refused() {
    assert_eq!(rule_after(|_, _| {}), None);
    assert_eq!(
        rule_after(|t, _| {
            t.0.remove("l.1.gu");
        }),
        Some(Rule::RoleMissing)
    );
    assert_eq!(rule_after(|t, _| t.bf16("e", &[5, 2], 0)), Some(Rule::Vocabulary));
    assert_eq!(rule_after(|t, _| t.bf16("e", &[4, 3], 0)), Some(Rule::RoleShape));
    assert_eq!(rule_after(|t, _| t.bf16("l.0.gu", &[3, 2], 0)), Some(Rule::RoleShape));
    assert_eq!(rule_after(|t, _| t.bf16("l.0.gu", &[6, 2], 0)), Some(Rule::RowCover));
    assert_eq!(rule_after(|t, _| t.bf16("l.2.gu", &[4, 2], 0)), Some(Rule::LayerCount));
    assert_eq!(rule_after(|t, _| t.bf16("x", &[1], 0)), Some(Rule::UnclaimedTensor));
    assert_eq!(rule_after(|t, _| t.bf16("mtp.x", &[1], 0)), None);
    assert_eq!(rule_after(|t, _| t.bf16("lm_head.weight", &[4, 2], 0)), None);
    assert_eq!(rule_after(|t, _| t.bf16("lm_head.weight", &[4, 2], 1)), Some(Rule::TiedFlag));
    assert_eq!(rule_after(|_, d| d.roles[3] = d.roles[2].clone()), Some(Rule::RowCover));
    assert_eq!(
        rule_after(|_, d| {
            d.roles[1].tied_to = None;
            d.roles[1].views = vec![view("lm_head.weight", RowPattern::All)];
        }),
        Some(Rule::TiedFlag)
    );
    assert_eq!(
        rule_after(|t, _| t.0.get_mut("e").unwrap().0 = safetensors::Dtype::I16),
        Some(Rule::RoleDType)
    );
}

#[test]
fn identity_is_of_logical_weights() {
    let base = load(&tensors(), &descriptor()).unwrap();
    // The same weights with gate and up as separate tensors under other names.
    let (mut split, mut other) = (Tensors::default(), descriptor());
    split.bf16("model.e", &[4, 2], 0);
    for layer in 0..2 {
        for (i, name) in ["gate", "up"].into_iter().enumerate() {
            let first = 10 * (layer + 1) + 2 * i;
            let rows = [first, first + 1, first + 4, first + 5];
            let bytes = rows.iter().flat_map(|v| bf16_bits(*v as f32).to_le_bytes()).collect();
            let tensor = (safetensors::Dtype::BF16, vec![2, 2], bytes);
            split.0.insert(format!("model.{layer}.{name}"), tensor);
        }
    }
    other.roles[0].views = vec![view("model.e", RowPattern::All)];
    other.roles[2].views = vec![view("model.{layer}.gate", RowPattern::All)];
    other.roles[3].views = vec![view("model.{layer}.up", RowPattern::All)];
    let again = load(&split, &other).unwrap();
    assert_eq!(base.source(), again.source());
    assert_eq!(full_content_digest(&base), full_content_digest(&again));
    // One changed bit moves both content digests.
    split.0.get_mut("model.1.up").unwrap().2[7] ^= 1;
    let changed = load(&split, &other).unwrap();
    assert_ne!(base.source(), changed.source());
    assert_ne!(full_content_digest(&base), full_content_digest(&changed));
}

#[test]
fn every_element_type_of_the_format_is_known_or_named() {
    for dtype in DType::ALL {
        assert_eq!(DType::parse(&dtype.to_string()), Some(dtype));
    }
    assert_eq!(DType::parse("F4"), None);
}

/// The reference implementation reads what was written, and reading it back gives the same set.
#[test]
fn written_weights_come_back_bit_for_bit() {
    let set = synth(&descriptor(), 11);
    for max_shard_bytes in [u64::MAX, 20] {
        let folder = tempfile::tempdir().unwrap();
        let options = WriteOptions { max_shard_bytes };
        let files = write_weights(folder.path(), &descriptor(), &set, &options).unwrap();
        assert_eq!(files.len(), if max_shard_bytes == 20 { 4 } else { 1 });
        for file in files.iter().filter(|f| f.extension().is_some_and(|e| e == "safetensors")) {
            safetensors::SafeTensors::deserialize(&std::fs::read(file).unwrap()).unwrap();
        }
        let checkpoint = Checkpoint::open(folder.path()).unwrap();
        let again = checkpoint.load(&descriptor()).unwrap();
        for (role, layer, weight) in set.iter() {
            assert_eq!(weight.as_bytes(), again.get(role, layer).unwrap().as_bytes());
        }
        let error = write_weights(folder.path(), &descriptor(), &set, &options).unwrap_err();
        assert!(matches!(error, WriteError::Exists { .. }));
        // Another layout of a layout.
        let other = tempfile::tempdir().unwrap();
        checkpoint.rewrite(other.path(), |n| format!("p.{n}"), &WriteOptions::default()).unwrap();
        let renamed = Checkpoint::open(other.path()).unwrap();
        assert_eq!(renamed.bytes("p.e"), checkpoint.bytes("e"));
    }
}

#[test]
fn a_failed_write_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let set = synth(&descriptor(), 1);
    let mut wrong = descriptor();
    wrong.roles[3] = wrong.roles[2].clone();
    let options = WriteOptions { max_shard_bytes: 20 };
    assert!(write_weights(folder.path(), &wrong, &set, &options).is_err());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    // A folder in the way of the second shard, when the first one is written.
    let name = format!(".model-00002-of-00003.safetensors.{}.partial", std::process::id());
    let obstacle = folder.path().join(name);
    std::fs::create_dir(&obstacle).unwrap();
    let error = write_weights(folder.path(), &descriptor(), &set, &options).unwrap_err();
    assert!(error.is_io());
    let left: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(left, [obstacle]);
}
