//! The shipped gate holds; a tokeniser with one planted defect fails.

use super::check::Check;
use super::reference::Reference;
use super::subject::Subject;
use crate::harness::testing::{problems, root};

const FILE: &str = include_str!("../../../../gates/tokenizer-stream.yaml");

#[test]
fn the_shipped_gate_holds() {
    assert_eq!(problems(FILE), [""; 0]);
}

/// Names of the checks that fail after `plant`.
fn failing(plant: impl Fn(&mut Subject)) -> Vec<&'static str> {
    let folder = root().join("tests/fixtures/tokenizer");
    let reference = Reference::read(&folder.join("reference.json")).unwrap();
    let open = |name: &str| {
        let mut subject = Subject::open(&folder.join(name)).unwrap();
        plant(&mut subject);
        subject
    };
    let (plain, bos) = (open("tokenizer.json"), open("tokenizer_bos.json"));
    let failing = Check::ALL.iter().filter(|c| c.run(&reference, &plain, &bos).is_err());
    failing.map(|c| c.name()).collect()
}

#[test]
fn nothing_fails_unplanted() {
    assert_eq!(failing(|_| ()), [""; 0]);
}

#[test]
fn a_stream_that_does_not_hold_back_is_caught() {
    let failing = failing(|s| {
        s.pieces = |tokenizer, ids, show_control| {
            // Each token on its own: characters that span tokens fall apart.
            let decode = |id: &u32| tokenizer.decode(&[*id], show_control);
            let mut pieces: Vec<String> =
                ids.iter().map(decode).collect::<Result<_, _>>().map_err(|e| e.to_string())?;
            pieces.push(String::new());
            Ok(pieces)
        };
    });
    for name in ["decode", "stream", "cut_anywhere"] {
        assert!(failing.contains(&name), "{failing:?}");
    }
}

#[test]
fn a_tail_that_is_lost_is_caught() {
    let failing = failing(|s| {
        s.pieces = |tokenizer, ids, show_control| {
            let mut stream = tokenizer.stream(show_control);
            let mut pieces: Vec<String> =
                ids.iter().map(|id| stream.push(*id).unwrap_or_default()).collect();
            pieces.push(String::new());
            Ok(pieces)
        };
    });
    assert!(failing.contains(&"cut_anywhere"), "{failing:?}");
}

#[test]
fn text_that_becomes_a_control_token_is_caught() {
    let failing = failing(|s| {
        s.encode = |tokenizer, text, _| {
            tokenizer
                .encode(text, crate::generation::ControlTokens::Parse)
                .map_err(|e| e.to_string())
        };
    });
    assert_eq!(failing, ["control_token_as_text"]);
}

#[test]
fn a_lost_bos_is_caught() {
    let failing = failing(|s| {
        s.encode = |tokenizer, text, control| {
            let mut ids = tokenizer.encode(text, control).map_err(|e| e.to_string())?;
            ids.retain(|id| *id != 507);
            Ok(ids)
        };
    });
    assert!(failing.contains(&"encode_bos"), "{failing:?}");
}

#[test]
fn a_reference_that_compares_nothing_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("reference.json");
    let empty = r#"{"vocab_size": 1, "special_tokens": {"a": 0}, "encode": [], "decode_lossy": [],
                    "chat": []}"#;
    std::fs::write(&path, empty).unwrap();
    assert!(Reference::read(&path).unwrap_err().contains("`encode` is empty"));
}
