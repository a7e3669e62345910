//! Finding the libraries of CUDA at run time, without a panic and without a link-time dependency.
//!
//! The binary is built without CUDA. A library is first looked for where the system's loader
//! looks; otherwise in `ASSAY_CUDA_PATH`, toolkit folders and the Python wheels that carry CUDA's
//! libraries, in which case it is loaded from there once and for all. Nothing may call into a
//! library before [`Library::require`] has found it: the bindings panic on a missing one.

use super::CudaError;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A library that the CUDA backend uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// The driver, part of the NVIDIA driver package.
    Driver,
    /// The run-time compiler of kernels.
    Nvrtc,
    /// The vendor's matrix products.
    CublasLt,
}

/// Where a library was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The system's loader finds it.
    Loader,
    /// It was loaded from this file.
    File(PathBuf),
}

impl Library {
    /// Every library, in the order of need.
    pub const ALL: [Library; 3] = [Library::Driver, Library::Nvrtc, Library::CublasLt];

    /// The name people know it by.
    pub fn name(self) -> &'static str {
        match self {
            Library::Driver => "CUDA driver (libcuda)",
            Library::Nvrtc => "NVRTC (libnvrtc)",
            Library::CublasLt => "cuBLASLt (libcublasLt)",
        }
    }

    /// What to do where it is missing.
    pub fn remedy(self) -> &'static str {
        match self {
            Library::Driver => "install the NVIDIA driver (580 or newer for CUDA 13)",
            Library::Nvrtc => {
                "`pip install nvidia-cuda-nvrtc==13.0.88` or install the CUDA 13 toolkit, or name \
                 the folder in ASSAY_CUDA_PATH"
            }
            Library::CublasLt => {
                "`pip install nvidia-cublas` or install the CUDA 13 toolkit, or name the folder \
                 in ASSAY_CUDA_PATH"
            }
        }
    }

    /// Finds the library, once per process.
    pub fn locate(self) -> Option<&'static Origin> {
        static FOUND: [OnceLock<Option<Origin>>; 3] =
            [OnceLock::new(), OnceLock::new(), OnceLock::new()];
        FOUND[self as usize].get_or_init(|| self.search()).as_ref()
    }

    /// As [`Library::locate`].
    ///
    /// # Errors
    /// [`CudaError::LibraryMissing`] with the remedy.
    pub fn require(self) -> Result<&'static Origin, CudaError> {
        self.locate()
            .ok_or(CudaError::LibraryMissing { library: self.name(), remedy: self.remedy() })
    }

    fn loads(self) -> bool {
        // SAFETY: loading one of NVIDIA's libraries runs its initialisers only.
        unsafe {
            match self {
                Library::Driver => cudarc::driver::sys::is_culib_present(),
                Library::Nvrtc => cudarc::nvrtc::sys::is_culib_present(),
                Library::CublasLt => cudarc::cublaslt::sys::is_culib_present(),
            }
        }
    }

    /// File names to look for in a folder; those before the last are loaded first.
    fn files(self) -> &'static [&'static str] {
        match self {
            Library::Driver => &["libcuda.so.1"],
            Library::Nvrtc => &["libnvrtc-builtins.so.13", "libnvrtc.so.13"],
            Library::CublasLt => &["libcublasLt.so.13"],
        }
    }

    fn search(self) -> Option<Origin> {
        let named = std::env::var_os("ASSAY_CUDA_PATH");
        let named: Vec<PathBuf> = named.iter().flat_map(std::env::split_paths).collect();
        if let Some(file) = self.load_from(named) {
            return Some(Origin::File(file));
        }
        if self.loads() {
            return Some(Origin::Loader);
        }
        self.load_from(usual_folders()).map(Origin::File)
    }

    /// Loads the library from the first folder that holds it and keeps it for the process: later
    /// look-ups by name find the loaded one.
    fn load_from(self, folders: Vec<PathBuf>) -> Option<PathBuf> {
        folders.iter().find_map(|folder| {
            let files: Option<Vec<PathBuf>> =
                self.files().iter().map(|name| find_file(folder, name)).collect();
            let files = files?;
            files.iter().all(|file| open_globally(file)).then(|| files.last().cloned())?
        })
    }
}

/// A file of this name, or of this name and a longer version, in a folder.
fn find_file(folder: &Path, name: &str) -> Option<PathBuf> {
    let exact = folder.join(name);
    if exact.is_file() {
        return Some(exact);
    }
    let prefix = format!("{name}.");
    let mut longer: Vec<PathBuf> = std::fs::read_dir(folder)
        .ok()?
        .flatten()
        .filter(|e| e.file_name().to_str().is_some_and(|n| n.starts_with(&prefix)))
        .map(|e| e.path())
        .collect();
    longer.sort();
    longer.pop()
}

#[cfg(unix)]
fn open_globally(file: &Path) -> bool {
    use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
    // SAFETY: loading one of NVIDIA's libraries runs its initialisers only.
    match unsafe { Library::open(Some(file), RTLD_NOW | RTLD_GLOBAL) } {
        Ok(library) => {
            // The bindings keep pointers into it until the process ends.
            std::mem::forget(library);
            true
        }
        Err(_) => false,
    }
}

#[cfg(not(unix))]
fn open_globally(_file: &Path) -> bool {
    false
}

/// Toolkit folders and the site-packages of Python environments that may hold CUDA's wheels.
fn usual_folders() -> Vec<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let mut folders = Vec::new();
    for root in ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(variable) {
        folders.push(root.join("lib64"));
    }
    folders.extend(["/usr/local/cuda/lib64", "/opt/cuda/lib64"].map(PathBuf::from));
    let versioned = children(Path::new("/usr/local"), "cuda-13");
    folders.extend(versioned.into_iter().map(|root| root.join("lib64")));
    for prefix in python_prefixes(&variable) {
        for python in children(&prefix.join("lib"), "python3") {
            for packages in ["site-packages", "dist-packages"] {
                let nvidia = python.join(packages).join("nvidia");
                for wheel in ["cu13/lib", "cuda_nvrtc/lib", "cublas/lib"] {
                    folders.push(nvidia.join(wheel));
                }
            }
        }
    }
    folders
}

/// Installation prefixes of the Python environments in sight: the active one, those whose
/// interpreter is on the search path, the user's and the system's.
fn python_prefixes(variable: &dyn Fn(&str) -> Option<PathBuf>) -> Vec<PathBuf> {
    let mut prefixes: Vec<PathBuf> =
        ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(variable).collect();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let with_python = std::env::split_paths(&path).filter(|p| p.join("python3").exists());
    prefixes.extend(with_python.filter_map(|p| p.parent().map(Path::to_path_buf)));
    prefixes.extend(variable("HOME").map(|home| home.join(".local")));
    prefixes.extend(["/usr", "/usr/local"].map(PathBuf::from));
    prefixes
}

fn children(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .filter(|e| e.file_name().to_str().is_some_and(|n| n.starts_with(prefix)))
        .map(|e| e.path())
        .collect();
    found.sort();
    found.reverse();
    found
}

/// The version of the loaded run-time compiler, e.g. `13.0`.
///
/// # Errors
/// The library is missing.
pub fn nvrtc_version() -> Result<String, CudaError> {
    Library::Nvrtc.require()?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the library is present; both pointers are valid for the call.
    let status = unsafe { cudarc::nvrtc::sys::nvrtcVersion(&mut major, &mut minor) };
    status.result().map_err(|error| CudaError::Driver {
        doing: "asking NVRTC for its version".into(),
        code: format!("{:?}", error.0),
    })?;
    Ok(format!("{major}.{minor}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_version_is_found_and_the_exact_name_wins() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(find_file(folder.path(), "libx.so.13"), None);
        for name in ["libx.so.13.0", "libx.so.13.1", "libx.so.130"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let found = find_file(folder.path(), "libx.so.13").unwrap();
        assert_eq!(found.file_name().unwrap(), "libx.so.13.1");
        std::fs::write(folder.path().join("libx.so.13"), "").unwrap();
        let found = find_file(folder.path(), "libx.so.13").unwrap();
        assert_eq!(found.file_name().unwrap(), "libx.so.13");
    }

    #[test]
    fn a_file_that_is_no_library_is_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("libcublasLt.so.13"), "no library").unwrap();
        assert_eq!(Library::CublasLt.load_from(vec![folder.path().to_path_buf()]), None);
    }

    #[test]
    fn probing_twice_gives_the_same_answer_and_no_panic() {
        for library in Library::ALL {
            assert_eq!(library.locate(), library.locate());
            if let Err(error) = library.require() {
                assert!(error.to_string().contains(library.remedy()), "{error}");
            }
        }
    }
}
