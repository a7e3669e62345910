//! The image of a source for an architecture: from the cache, from this build, or compiled now.

use super::cache::{ImageKey, KernelCache, decode, encode, write_whole};
use super::compile::{compile, compiler};
use super::library::nvrtc_version;
use super::{CudaError, Image, KernelArch, KernelSource};
use crate::units::Digest;
use std::path::Path;

/// Where an image came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ImageOrigin {
    Cache,
    /// Embedded when this binary was built (feature `embedded-kernels`).
    Build,
    Compiled,
}

/// An image with what identifies it.
#[derive(Clone, Debug)]
pub struct FoundImage {
    pub key: ImageKey,
    pub image: Image,
    pub origin: ImageOrigin,
    /// Why the image could not be kept in the cache, if it could not.
    pub cache_error: Option<String>,
}

impl FoundImage {
    /// SHA-256 of the image.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.image.cubin)
    }
}

/// Finds or makes the image of `source` for `arch`.
///
/// The order is: cache, embedded images, compiler. Without a compiler, an image of the same source
/// and options by any compiler version is taken from the build.
///
/// # Errors
/// [`CudaError::NoImage`] if there is neither image nor compiler; [`CudaError::Compile`].
pub fn find_image(
    source: &'static KernelSource,
    arch: KernelArch,
    cache: &KernelCache,
) -> Result<FoundImage, CudaError> {
    let version = nvrtc_version();
    if let Ok(version) = &version {
        let key = ImageKey::new(source, arch, version);
        if let Some(image) = cache.get(&key) {
            return Ok(FoundImage { key, image, origin: ImageOrigin::Cache, cache_error: None });
        }
    }
    if let Some((key, image)) = embedded(source, arch) {
        return Ok(FoundImage { key, image, origin: ImageOrigin::Build, cache_error: None });
    }
    let version = version.map_err(|error| CudaError::NoImage {
        kernel: source.name,
        arch,
        cache: cache.folder().map_or("none".into(), |f| f.display().to_string()),
        compiler: error.to_string(),
    })?;
    let key = ImageKey::new(source, arch, &version);
    let image = compile(source, arch)?;
    let cache_error = cache.put(&key, &image).err().map(|e| e.to_string());
    Ok(FoundImage { key, image, origin: ImageOrigin::Compiled, cache_error })
}

fn embedded(source: &KernelSource, arch: KernelArch) -> Option<(ImageKey, Image)> {
    let mut pack = EMBEDDED;
    while let Some((key, image, rest)) = decode(pack) {
        if key == ImageKey::new(source, arch, &key.compiler) {
            return Some((key, image));
        }
        pack = rest;
    }
    None
}

/// A pack as `assay kernels build --pack FILE` writes it; the feature embeds the file that
/// `ASSAY_EMBEDDED_KERNELS` names while the crate is compiled.
#[cfg(feature = "embedded-kernels")]
const EMBEDDED: &[u8] = include_bytes!(env!("ASSAY_EMBEDDED_KERNELS"));
#[cfg(not(feature = "embedded-kernels"))]
const EMBEDDED: &[u8] = &[];

/// One source for one architecture, or what was wrong with it.
#[derive(Clone, Debug)]
pub struct Built {
    pub source: &'static KernelSource,
    pub arch: KernelArch,
    pub result: Result<FoundImage, CudaError>,
    pub elapsed_ms: u64,
}

/// Compiles every source for every architecture, `jobs` at a time; needs no GPU. `use_cache` takes
/// what the cache has.
///
/// # Errors
/// The compiler is missing. What is wrong with single sources is in the results.
pub fn build_all(
    archs: &[KernelArch],
    jobs: usize,
    cache: &KernelCache,
    use_cache: bool,
) -> Result<Vec<Built>, CudaError> {
    compiler()?;
    let version = nvrtc_version()?;
    let work: Vec<(&'static KernelSource, KernelArch)> = KernelSource::all()
        .iter()
        .flat_map(|source| archs.iter().map(move |arch| (source, *arch)))
        .collect();
    let next = std::sync::atomic::AtomicUsize::new(0);
    let done = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, work.len().max(1)) {
            scope.spawn(|| {
                while let Some((source, arch)) =
                    work.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)).copied()
                {
                    let start = std::time::Instant::now();
                    let result = if use_cache {
                        find_image(source, arch, cache)
                    } else {
                        compile(source, arch).map(|image| {
                            let key = ImageKey::new(source, arch, &version);
                            let cache_error = cache.put(&key, &image).err().map(|e| e.to_string());
                            FoundImage { key, image, origin: ImageOrigin::Compiled, cache_error }
                        })
                    };
                    let elapsed_ms = start.elapsed().as_millis() as u64;
                    let built = Built { source, arch, result, elapsed_ms };
                    done.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(built);
                }
            });
        }
    });
    let mut built = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    built.sort_by_key(|b| (b.source.name, b.arch));
    Ok(built)
}

/// Writes images as one file that the feature `embedded-kernels` can embed.
///
/// # Errors
/// The file cannot be written.
pub fn write_pack<'a>(
    path: &Path,
    images: impl IntoIterator<Item = &'a FoundImage>,
) -> std::io::Result<()> {
    let bytes: Vec<u8> = images.into_iter().flat_map(|i| encode(&i.key, &i.image)).collect();
    write_whole(path, &bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cuda::KERNEL_ARCHS;

    #[test]
    fn without_image_and_compiler_the_remedy_is_named() {
        if nvrtc_version().is_ok() {
            return; // The case cannot be had on this machine.
        }
        let folder = tempfile::tempdir().unwrap();
        let source = KernelSource::find("memory_probe").unwrap();
        let error = find_image(source, KERNEL_ARCHS[0], &KernelCache::at(folder.path()))
            .unwrap_err()
            .to_string();
        assert!(error.contains("memory_probe") && error.contains("pip install"), "{error}");
    }

    #[test]
    fn a_corrupt_cache_entry_is_rebuilt() {
        if nvrtc_version().is_err() {
            return; // Needs the compiler.
        }
        let folder = tempfile::tempdir().unwrap();
        let cache = KernelCache::at(folder.path());
        let source = KernelSource::find("memory_probe").unwrap();
        let origin = |cache| find_image(source, KERNEL_ARCHS[0], cache).unwrap().origin;
        assert_eq!(origin(&cache), ImageOrigin::Compiled);
        assert_eq!(origin(&cache), ImageOrigin::Cache);
        let entry = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
        std::fs::write(&entry, "torn").unwrap();
        assert_eq!(origin(&cache), ImageOrigin::Compiled);
        assert_eq!(origin(&cache), ImageOrigin::Cache);
    }
}
