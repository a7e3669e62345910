//! Descriptors of the checkpoints under `tests/fixtures/`.

use assay::descriptor::{Descriptor, Mixer, NormStyle, RoleName, from_dir};
use std::path::{Path, PathBuf};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

#[test]
fn the_llama_fixture_has_its_roles() {
    let d = from_dir(&fixture("llama")).unwrap();
    assert_eq!((d.hidden, d.layers(), d.vocab), (64, 4, 512));
    assert_eq!(d.norm_style, NormStyle::Plain);
    assert_eq!(d.end_tokens, [506, 509]);
    assert!(d.gdn.is_none());
    assert_eq!(d.roles.len(), 12);
    let head = d.roles.iter().find(|r| r.name == RoleName::LmHead).unwrap();
    assert_eq!((head.tied_to, head.views[0].tensor.as_str()), (None, "lm_head.weight"));
}

#[test]
fn both_layouts_of_the_dense_hybrid_are_read() {
    let flat = from_dir(&fixture("qwen3_5_text")).unwrap();
    let nested = from_dir(&fixture("qwen3_5")).unwrap();
    assert_eq!((flat.layers(), nested.layers()), (4, 8));
    for (d, rotary_dim, prefix) in [(&flat, 12, "model."), (&nested, 16, "model.language_model.")] {
        assert_eq!(d.layer_mixers[..4], [Mixer::Gdn, Mixer::Gdn, Mixer::Gdn, Mixer::FullAttention]);
        assert_eq!(d.attention.as_ref().unwrap().rope.rotary_dim, rotary_dim);
        let a_log = d.roles.iter().find(|r| r.name == RoleName::GdnALog).unwrap();
        assert_eq!(a_log.views[0].tensor, format!("{prefix}layers.{{layer}}.linear_attn.A_log"));
    }
}

#[test]
fn canonical_json_reads_back_to_the_same_bytes() {
    for name in ["llama", "qwen3", "qwen3_5_text", "qwen3_5"] {
        let d = from_dir(&fixture(name)).unwrap();
        let text = d.to_json();
        let back = Descriptor::from_json(name, text.as_bytes()).unwrap();
        assert_eq!(back, d);
        assert_eq!(back.to_json(), text);
    }
}

#[test]
fn the_page_on_families_quotes_a_whole_one() {
    let page = include_str!("../docs/families.md");
    let file = include_str!("../src/descriptor/family/qwen2.rs");
    let quoted = page.split("```rust\n").nth(1).and_then(|rest| rest.split("```").next());
    assert_eq!(quoted, file.find("pub(super) const").map(|item| &file[item..]));
    assert!(quoted.is_some_and(|item| item.starts_with("pub(super) const QWEN2")));
}
