//! `storage`: how the weights lie in files.

use super::NOT_APPLICABLE;
use crate::units::Canonical;
use crate::weights::Checkpoint;

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
    let layout = checkpoint.layout();
    let files = layout.files.into_iter().map(|(f, tensors)| {
        Canonical::object([("file", Canonical::from(f)), ("tensors", tensors.into())])
    });
    Canonical::object([
        ("views", views),
        ("files", Canonical::List(files.collect())),
        ("tensor_files_digest", layout.tensor_files_digest.into()),
    ])
}
