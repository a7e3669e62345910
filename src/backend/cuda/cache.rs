//! Compiled kernels on disk.
//!
//! An entry is one file: a line of JSON (key, digest and length of the image, resources) and the
//! image. Entries are written to a temporary name and renamed, so a reader sees a whole one or
//! none; an entry that does not match its own digests is as good as absent and is replaced.

use super::compile::options;
use super::resources::KernelResources;
use super::{Image, KernelArch, KernelSource};
use crate::units::{Digest, Hasher};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// What an image depends on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageKey {
    pub kernel: String,
    pub source: String,
    pub options: Vec<String>,
    pub arch: String,
    /// Version of the compiler, e.g. `13.0`.
    pub compiler: String,
}

impl ImageKey {
    /// The key of a source compiled for `arch` by a compiler of this version.
    pub fn new(source: &KernelSource, arch: KernelArch, compiler: &str) -> ImageKey {
        ImageKey {
            kernel: source.name.to_owned(),
            source: source.digest().to_string(),
            options: options(arch),
            arch: arch.to_string(),
            compiler: compiler.to_owned(),
        }
    }

    /// SHA-256 over every field.
    pub fn digest(&self) -> Digest {
        let mut hasher = Hasher::new();
        let fields = [&self.kernel, &self.source, &self.arch, &self.compiler];
        for field in fields.into_iter().chain(&self.options) {
            hasher.update(&(field.len() as u64).to_le_bytes());
            hasher.update(field.as_bytes());
        }
        hasher.finish()
    }

    fn file_name(&self) -> String {
        format!("{}-{}-{}.cubin", self.kernel, self.arch, self.digest().short())
    }
}

#[derive(Serialize, Deserialize)]
struct Header {
    format: u32,
    key: ImageKey,
    image: String,
    size_bytes: usize,
    kernels: Vec<KernelResources>,
}

const FORMAT: u32 = 1;

/// One entry as bytes: what a cache file and a pack of embedded images are made of.
pub(super) fn encode(key: &ImageKey, image: &Image) -> Vec<u8> {
    let header = Header {
        format: FORMAT,
        key: key.clone(),
        image: Digest::of(&image.cubin).to_string(),
        size_bytes: image.cubin.len(),
        kernels: image.kernels.clone(),
    };
    let mut bytes = serde_json::to_vec(&header).expect("strings and numbers serialise");
    bytes.push(b'\n');
    bytes.extend(&image.cubin);
    bytes
}

/// The first entry of `bytes` and what follows it, or `None` where it is torn or altered.
pub(super) fn decode(bytes: &[u8]) -> Option<(ImageKey, Image, &[u8])> {
    let end = bytes.iter().position(|b| *b == b'\n')?;
    let header: Header = serde_json::from_slice(&bytes[..end]).ok()?;
    let rest = &bytes[end + 1..];
    let cubin = rest.get(..header.size_bytes)?;
    let whole = header.format == FORMAT && Digest::of(cubin).to_string() == header.image;
    whole.then(|| {
        let image = Image { cubin: cubin.to_vec(), kernels: header.kernels };
        (header.key, image, &rest[header.size_bytes..])
    })
}

/// A folder of compiled kernels.
#[derive(Clone, Debug)]
pub struct KernelCache {
    folder: Option<PathBuf>,
}

impl KernelCache {
    /// The user's cache: `ASSAY_KERNEL_CACHE`, else `assay/kernels` in the platform's cache folder.
    /// Without a home directory nothing is cached.
    pub fn of_user() -> KernelCache {
        let variable =
            |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let folder = variable("ASSAY_KERNEL_CACHE").or_else(|| {
            let base = variable("XDG_CACHE_HOME")
                .or_else(|| variable("HOME").map(|home| home.join(".cache")))?;
            Some(base.join("assay").join("kernels"))
        });
        KernelCache { folder }
    }

    /// A cache in this folder, which is made when it is first written to.
    pub fn at(folder: impl Into<PathBuf>) -> KernelCache {
        KernelCache { folder: Some(folder.into()) }
    }

    /// The folder, if anything is cached at all.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// The image of this key, if a whole one is there.
    pub fn get(&self, key: &ImageKey) -> Option<Image> {
        let bytes = std::fs::read(self.folder.as_ref()?.join(key.file_name())).ok()?;
        let (found, image, rest) = decode(&bytes)?;
        (found == *key && rest.is_empty()).then_some(image)
    }

    /// Keeps an image. Does nothing where nothing is cached.
    ///
    /// # Errors
    /// The folder cannot be written to; the image is still good.
    pub fn put(&self, key: &ImageKey, image: &Image) -> io::Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        std::fs::create_dir_all(folder)?;
        write_whole(&folder.join(key.file_name()), &encode(key, image))
    }
}

/// Writes a file that a reader sees whole or not at all.
pub(super) fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    static SERIAL: AtomicU64 = AtomicU64::new(0);
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    let temporary = path.with_file_name(format!(".{}-{serial}.partial", std::process::id()));
    let written =
        std::fs::write(&temporary, bytes).and_then(|()| std::fs::rename(&temporary, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(compiler: &str) -> ImageKey {
        ImageKey::new(KernelSource::find("gemm").unwrap(), KernelArch::SM_90A, compiler)
    }

    fn image() -> Image {
        let kernel = KernelResources { name: "k".into(), registers: 7, ..Default::default() };
        Image { cubin: b"an image\nof two lines".to_vec(), kernels: vec![kernel] }
    }

    #[test]
    fn an_entry_comes_back_whole_and_under_its_key_only() {
        let folder = tempfile::tempdir().unwrap();
        let cache = KernelCache::at(folder.path().join("not/yet"));
        assert_eq!(cache.get(&key("13.0")), None);
        cache.put(&key("13.0"), &image()).unwrap();
        assert_eq!(cache.get(&key("13.0")), Some(image()));
        assert_eq!(cache.get(&key("13.1")), None);
        let files: Vec<_> = std::fs::read_dir(cache.folder().unwrap()).unwrap().collect();
        assert_eq!(files.len(), 1, "no temporary file is left");
    }

    #[test]
    fn a_torn_or_altered_entry_is_absent_and_can_be_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let cache = KernelCache::at(folder.path());
        cache.put(&key("13.0"), &image()).unwrap();
        let file = folder.path().join(key("13.0").file_name());
        let good = std::fs::read(&file).unwrap();
        let mut altered = good.clone();
        *altered.last_mut().unwrap() ^= 1;
        let mut longer = good.clone();
        longer.push(0);
        for bad in [&good[..good.len() - 1], &good[..20], &[], &altered, &longer] {
            std::fs::write(&file, bad).unwrap();
            assert_eq!(cache.get(&key("13.0")), None);
        }
        cache.put(&key("13.0"), &image()).unwrap();
        assert_eq!(cache.get(&key("13.0")), Some(image()));
    }

    #[test]
    fn every_field_moves_the_key() {
        let base = key("13.0");
        let mut others = vec![key("12.9"); 4];
        others[1].options.push("--use_fast_math".into());
        others[2].source = "0".into();
        others[3].arch = "sm_80".into();
        assert!(others.iter().all(|k| k.digest() != base.digest()));
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_an_error_and_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a file");
        std::fs::write(&file, "").unwrap();
        let cache = KernelCache::at(file.join("cache"));
        assert!(cache.put(&key("13.0"), &image()).is_err());
        assert_eq!(cache.get(&key("13.0")), None);
    }
}
