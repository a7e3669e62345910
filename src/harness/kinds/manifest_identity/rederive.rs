//! Derives every id of a manifest a second time, from its JSON and from the definitions.

use crate::descriptor::Descriptor;
use crate::engine::manifest::{BlockName, Manifest};
use crate::harness::independent::{derive_ids, scientific};
use crate::harness::kind::Outcome;

/// Whether the ids, the reals and the reader agree with the manifest.
pub(super) fn outcome(manifest: &Manifest, descriptor: &Descriptor) -> Outcome {
    check(&manifest.to_json().to_string(), manifest, descriptor).unwrap_or_else(Outcome::fail)
}

fn check(text: &str, manifest: &Manifest, descriptor: &Descriptor) -> Result<Outcome, String> {
    let ids = derive_ids(text)?;
    let expected = BlockName::ALL.len();
    if ids.len() != expected {
        return Err(format!("expected {expected} ids in the manifest, found {}", ids.len()));
    }
    if let Some((key, (stated, derived))) = ids.iter().find(|(_, (s, d))| s != d) {
        return Err(format!("{key} is {stated}, derived a second time it is {derived}"));
    }
    let document: serde_json::Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
    let epsilon = descriptor.norm_epsilon;
    let mut reals = vec![
        ("/semantic/fields/norm_epsilon", epsilon),
        ("/numerical_policy/fields/effective/norm_epsilon", f64::from(epsilon as f32)),
    ];
    if let Some(theta) = descriptor.attention.as_ref().map(|a| a.rope.theta) {
        reals.push(("/semantic/fields/attention/rope_theta", theta));
        reals.push(("/numerical_policy/fields/effective/rope_theta", f64::from(theta as f32)));
    }
    for (path, value) in &reals {
        let (stated, derived) = (document.pointer(path), scientific(*value));
        if stated.and_then(|v| v.as_str()) != Some(&derived) {
            return Err(format!("{path} is {stated:?}, derived a second time it is {derived:?}"));
        }
    }
    let read = Manifest::from_json(text.as_bytes()).map_err(|e| e.to_string())?;
    if read != *manifest {
        return Err("the manifest, written and read again, is another one".into());
    }
    let outcome =
        Outcome::pass(format!("{expected} ids and {} reals derived a second time", reals.len()));
    Ok(ids.into_iter().fold(outcome, |outcome, (key, (id, _))| outcome.with(&key, id)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::kinds::manifest_identity::base::Base;
    use crate::harness::testing::root;

    /// Each defect is one a serialiser could have.
    #[test]
    fn defects_show() {
        let base = Base::open(&root().join("tests/fixtures/llama")).unwrap();
        let (manifest, descriptor) = (base.execution().manifest(), &base.model.descriptor);
        let text = manifest.to_json().to_string();
        assert_eq!(check(&text, &manifest, descriptor).map(|_| ()), Ok(()));
        for (what, from, to) in [
            ("a field that no id covers", "\"policy\":\"reference\"", "\"policy\":\"f32\""),
            ("another spelling of a real", "1.0000000000000001e-05", "1e-05"),
            ("an id in capitals", "_id\":\"", "_id\":\"A"),
            ("a missing block", "\"storage_id\"", "\"storage\""),
        ] {
            let defect = text.replacen(from, to, 1);
            assert_ne!(defect, text, "{what}");
            assert!(check(&defect, &manifest, descriptor).is_err(), "{what}");
        }
        let mut other = descriptor.clone();
        other.norm_epsilon = 0.1;
        assert!(check(&text, &manifest, &other).is_err(), "a real that is not the model's");
    }
}
