//! Files that are written whole or not at all.

use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fs, io};

/// Temporary files this process has made.
static MADE: AtomicU64 = AtomicU64::new(0);

/// Writes a file under its final name only once all of it is on the disk: a full disk leaves the name as
/// it was, absent or with its old content. What is no regular file (a pipe, `/dev/stdout`) is written
/// to as it stands.
///
/// # Errors
/// The file, or the one beside it that becomes it, cannot be written.
pub fn write_whole(path: &Path, content: impl AsRef<[u8]>) -> io::Result<()> {
    if path.file_name().is_none() || path.metadata().is_ok_and(|m| !m.is_file()) {
        return fs::write(path, content);
    }
    // A link keeps pointing where it does: its target is what is replaced.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    // Short, and no longer than names may be: the file's own may be as long as that.
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    let temporary = path.with_file_name(format!(".assay-{}-{number}.part", std::process::id()));
    let written = fs::File::create(&temporary).and_then(|mut file| {
        file.write_all(content.as_ref())?;
        file.sync_all()?;
        fs::rename(&temporary, &path)
    });
    if written.is_err() {
        // It may not even have been made; the error that counts is the first one.
        let _ = fs::remove_file(&temporary);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::write_whole;

    #[test]
    fn a_file_is_replaced_and_nothing_lies_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.html");
        write_whole(&path, "one").unwrap();
        write_whole(&path, "two").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        let missing = folder.path().join("none/page.html");
        assert!(write_whole(&missing, "one").is_err());
        assert!(write_whole(folder.path(), "a folder is no file").is_err());
        let long = folder.path().join("n".repeat(250));
        write_whole(&long, "one").unwrap();
        assert_eq!(std::fs::read_to_string(&long).unwrap(), "one");
    }

    #[cfg(unix)]
    #[test]
    fn links_and_devices_stay_what_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        std::fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        write_whole(&link, "new").unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "new");
        write_whole(std::path::Path::new("/dev/null"), "nothing").unwrap();
        assert!(!std::path::Path::new("/dev/null").metadata().unwrap().is_file());
    }
}
