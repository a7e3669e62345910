//! Texts that are committed: what was found equals them.

use std::path::Path;

/// Compares what was found with a committed text, one paragraph after the other, so that a difference is
/// shown alone. `ASSAY_BLESS=1` writes what was found.
pub(crate) fn holds(path: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os("ASSAY_BLESS").is_some() {
        std::fs::write(&path, found).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    for (expected, found) in expected.split("\n\n").zip(found.split("\n\n")) {
        assert_eq!(found, expected);
    }
    assert_eq!(found, expected);
}
