//! The input that runs, kept where it outlives a process that aborts, and an end to inputs that hang.

use std::fs::{self, File};
use std::io::{Seek as _, Write as _};
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A file with the input that runs, and a thread that aborts the process when that takes too long.
pub(crate) struct Watch {
    path: PathBuf,
    file: Option<File>,
    begun: Arc<Mutex<Option<Instant>>>,
    /// Ends the thread when it is dropped.
    _thread: Sender<()>,
}

impl Watch {
    /// Keeps inputs at `path`; none may take longer than `limit`.
    pub(crate) fn new(path: PathBuf, limit: Duration) -> Watch {
        // Where the folder cannot be written, inputs run all the same.
        let file = File::create(&path).ok();
        let begun: Arc<Mutex<Option<Instant>>> = Arc::default();
        let (thread, ended) = channel();
        let (watched, kept) = (begun.clone(), path.clone());
        std::thread::spawn(move || {
            while ended.recv_timeout(limit / 8) == Err(RecvTimeoutError::Timeout) {
                let since: Option<Instant> = *watched.lock().unwrap();
                if since.is_some_and(|since| since.elapsed() > limit) {
                    // Nobody is left to tell when stderr is closed.
                    _ = writeln!(
                        std::io::stderr(),
                        "an input takes longer than {limit:?}; it is kept as {}",
                        kept.display()
                    );
                    std::process::abort();
                }
            }
        });
        Watch { path, file, begun, _thread: thread }
    }

    /// Keeps an input, which runs from now on.
    pub(crate) fn begin(&self, input: &[u8]) {
        if let Some(mut file) = self.file.as_ref() {
            let written = file.rewind().and_then(|()| file.write_all(input));
            // A full disk costs the copy, not the hunt.
            _ = written.and_then(|()| file.set_len(input.len() as u64));
        }
        *self.begun.lock().unwrap() = Some(Instant::now());
    }

    /// The input has run.
    pub(crate) fn end(&self) {
        *self.begun.lock().unwrap() = None;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        _ = fs::remove_file(&self.path);
    }
}

/// The defects are planted in processes of their own, which this test starts of itself.
#[test]
fn an_input_that_aborts_or_hangs_is_kept() {
    const PLANTED: &str = "ASSAY_FUZZ_PLANTED";
    let planted = |path: PathBuf| -> Watch {
        let watch = Watch::new(path, Duration::from_millis(200));
        watch.begin(b"an input that ends, and is longer");
        watch.end();
        watch.begin(b"planted");
        watch
    };
    if let Some(path) = std::env::var_os(PLANTED).map(PathBuf::from) {
        let _watch = planted(path.clone());
        if path.ends_with("aborts") {
            std::process::abort();
        }
        std::thread::sleep(Duration::from_secs(60));
        panic!("nobody ended this process");
    }
    let folder = tempfile::tempdir().unwrap();
    for (defect, told) in [("aborts", ""), ("hangs", "an input takes longer than 200ms")] {
        let path = folder.path().join(defect);
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "watch::an_input_that_aborts_or_hangs_is_kept", "--nocapture"])
            .env(PLANTED, &path)
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && stderr.contains(told), "{defect}: {stderr}");
        assert_eq!(fs::read(&path).unwrap(), b"planted", "{defect}: {stderr}");
    }
    // An input that ends leaves nothing.
    let path = folder.path().join("ends");
    let watch = planted(path.clone());
    watch.end();
    assert!(path.is_file());
    drop(watch);
    assert!(!path.exists());
}
