//! Writing one file of a conversion: digested as it is written, whole or not under its name.

use super::convert::{ConvertError, Done, PackedOf, io};
use super::pack::pack;
use super::plan::{Item, Shard};
use super::sidecar::FileRecord;
use crate::units::{Digest, Hasher};
use crate::weights::{Checkpoint, Progress};
use std::fs::File;
use std::io::{BufWriter, Read as _, Write as _};
use std::path::Path;

/// Counts bytes done.
pub(super) struct Meter<'a> {
    progress: Option<Progress<'a>>,
    done: std::sync::atomic::AtomicU64,
    total: u64,
}

impl<'a> Meter<'a> {
    pub(super) fn new(progress: Option<Progress<'a>>, total: u64) -> Meter<'a> {
        Meter { progress, done: 0.into(), total }
    }

    pub(super) fn add(&self, bytes: u64) {
        let done = self.done.fetch_add(bytes, std::sync::atomic::Ordering::Relaxed) + bytes;
        if let Some(progress) = self.progress {
            progress(done.min(self.total), self.total);
        }
    }
}

/// SHA-256 of a file, read once; `report` is told the bytes of every block.
pub(super) fn hash_file(path: &Path, report: impl Fn(u64)) -> std::io::Result<Digest> {
    let mut file = File::open(path)?;
    let mut hasher = Hasher::new();
    let mut block = vec![0; 1 << 20];
    loop {
        let read = file.read(&mut block)?;
        if read == 0 {
            return Ok(hasher.finish());
        }
        hasher.update(&block[..read]);
        report(read as u64);
    }
}

/// Writes a file, under its final name when it is complete.
pub(super) fn write_shard(
    checkpoint: &Checkpoint,
    shard: &Shard,
    plan: &str,
    work: &Path,
    meter: &Meter<'_>,
) -> Result<Done, ConvertError> {
    let path = work.join(&shard.file);
    let temporary = path.with_extension("part");
    let file = File::create(&temporary).map_err(io(&temporary))?;
    let mut out = Output {
        out: BufWriter::with_capacity(1 << 20, file),
        hasher: Hasher::new(),
        bytes: 0,
        meter,
    };
    let fail = |e| io(&temporary)(e);
    out.write(&shard.header(plan)).map_err(fail)?;
    let mut packed = Vec::new();
    for item in &shard.items {
        match item {
            Item::Tensor { name, .. } => {
                for block in checkpoint.bytes(name).unwrap_or_default().chunks(1 << 20) {
                    out.write(block).map_err(fail)?;
                }
                checkpoint.forget(name);
            }
            Item::Packed(p) => packed.push(PackedOf {
                role: p.role,
                layer: p.layer,
                packed: pack(checkpoint, p, &mut out, &temporary)?,
            }),
        }
    }
    let (file, sha256, bytes) = out.finish().map_err(fail)?;
    file.sync_all().map_err(fail)?;
    std::fs::rename(&temporary, &path).map_err(io(&path))?;
    Ok(Done { file: FileRecord { file: shard.file.clone(), bytes, sha256 }, packed })
}

/// A file that digests what is written to it.
pub(super) struct Output<'a> {
    out: BufWriter<File>,
    hasher: Hasher,
    bytes: u64,
    meter: &'a Meter<'a>,
}

impl Output<'_> {
    pub(super) fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.out.write_all(bytes)?;
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
        self.meter.add(bytes.len() as u64);
        Ok(())
    }

    fn finish(self) -> std::io::Result<(File, String, u64)> {
        Ok((self.out.into_inner()?, self.hasher.finish().to_string(), self.bytes))
    }
}
