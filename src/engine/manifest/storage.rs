//! `storage`: how the weights lie in files.

use super::NOT_APPLICABLE;
use crate::units::Canonical;
use crate::weights::Checkpoint;
use std::collections::BTreeMap;
use std::path::Path;

/// Fields of the block: the descriptor's views into tensors, and which file holds which tensor
/// where there are files at all.
pub fn storage_fields(views: Canonical, checkpoint: Option<&Checkpoint>) -> Canonical {
    let Some(checkpoint) = checkpoint else {
        return Canonical::object([
            ("views", views),
            ("files", NOT_APPLICABLE.into()),
            ("tensor_files_digest", NOT_APPLICABLE.into()),
        ]);
    };
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut counts: BTreeMap<String, usize> = checkpoint.files().map(|f| (name(f), 0)).collect();
    let mut places = BTreeMap::new();
    for (tensor, entry) in checkpoint.tensors() {
        let file = checkpoint.file_of(tensor).map(name).unwrap_or_default();
        *counts.entry(file.clone()).or_default() += 1;
        let shape = Canonical::list(entry.shape.iter().copied());
        let place = Canonical::object([
            ("file", Canonical::from(file)),
            ("dtype", entry.dtype.to_string().into()),
            ("shape", shape),
        ]);
        places.insert(tensor.to_owned(), place);
    }
    let files = counts.into_iter().map(|(f, tensors)| {
        Canonical::object([("file", Canonical::from(f)), ("tensors", tensors.into())])
    });
    Canonical::object([
        ("views", views),
        ("files", Canonical::List(files.collect())),
        ("tensor_files_digest", Canonical::Object(places).digest().to_string().into()),
    ])
}
