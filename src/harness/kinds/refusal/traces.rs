//! What an attempt to load may leave behind: changed files, open files, maps.

use crate::units::{Canonical, Digest};
use std::fs;
use std::path::Path;

/// Digest of a folder's entries: names, kinds and content.
pub(super) fn folder_digest(folder: &Path) -> std::io::Result<Digest> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let content = if entry.file_type()?.is_file() {
            Digest::of(&fs::read(entry.path())?).to_string()
        } else {
            "no file".to_owned()
        };
        entries.push((entry.file_name().to_string_lossy().into_owned(), Canonical::from(content)));
    }
    Ok(Canonical::object(entries).digest())
}

/// Open files and maps of this process that lie in `folder`, or `None` where the system does not
/// say.
pub(super) fn held(folder: &Path) -> Option<Vec<String>> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let needle = folder.to_str()?;
    let mut held: Vec<String> =
        maps.lines().filter(|l| l.contains(needle)).map(|l| format!("map {l}")).collect();
    for descriptor in fs::read_dir("/proc/self/fd").ok()?.flatten() {
        if let Ok(target) = fs::read_link(descriptor.path())
            && target.starts_with(folder)
        {
            held.push(format!("open {}", target.display()));
        }
    }
    Some(held)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn an_open_file_and_a_changed_one_are_seen() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap();
        let before = folder_digest(&path).unwrap();
        let file = fs::File::create(path.join("x")).unwrap();
        assert_eq!(held(&path).unwrap().len(), 1);
        drop(file);
        assert_eq!(held(&path).unwrap(), [""; 0]);
        assert_ne!(folder_digest(&path).unwrap(), before);
    }
}
