//! Device memory that outlives a step, and pools of equal blocks of it.

use crate::backend::cuda::error::Doing;
use crate::backend::cuda::{CudaError, Device};
use cudarc::driver::{CudaSlice, DeviceRepr, PinnedHostSlice, ValidAsZeroBits, result};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Raw bytes on the device, freed when dropped.
pub(super) struct Memory {
    slice: CudaSlice<u8>,
    address: u64,
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({} bytes)", self.slice.len())
    }
}

impl Memory {
    /// Uninitialised memory (never of no bytes).
    pub(super) fn new(device: &Device, bytes: usize) -> Result<Memory, CudaError> {
        // SAFETY: contents are written before they are read, or poisoned on purpose in tests.
        let slice = unsafe { device.stream().alloc::<u8>(bytes.max(256)) }
            .doing(format!("allocating {bytes} bytes"))?;
        let address = device.address(&slice);
        Ok(Memory { slice, address })
    }

    /// Memory of zeros.
    pub(super) fn zeros(device: &Device, bytes: usize) -> Result<Memory, CudaError> {
        let memory = Memory::new(device, bytes)?;
        memory.fill(device, 0)?;
        Ok(memory)
    }

    /// Its first byte.
    pub(super) fn address(&self) -> u64 {
        self.address
    }

    /// Its size.
    pub(super) fn len_bytes(&self) -> usize {
        self.slice.len()
    }

    /// Writes one byte everywhere, in stream order.
    pub(super) fn fill(&self, device: &Device, byte: u8) -> Result<(), CudaError> {
        device.stream().context().bind_to_thread().doing("binding the context")?;
        let stream = device.stream().cu_stream();
        // SAFETY: the range is this memory's.
        unsafe { result::memset_d8_async(self.address, byte, self.len_bytes(), stream) }
            .doing("filling memory")
    }

    /// Copies `source` to `offset`, in stream order; returns when `source` may be reused.
    pub(super) fn write<T: Copy>(
        &self,
        device: &Device,
        offset: usize,
        source: &[T],
    ) -> Result<(), CudaError> {
        assert!(offset + size_of_val(source) <= self.len_bytes(), "a write past its memory");
        device.stream().context().bind_to_thread().doing("binding the context")?;
        let to = self.address + offset as u64;
        // SAFETY: in bounds by the assertion; pageable sources are staged before the call returns.
        unsafe { result::memcpy_htod_async(to, source, device.stream().cu_stream()) }
            .doing("uploading")
    }

    /// Copies `len` elements from `offset` on to the host, once all earlier work is done.
    pub(super) fn read<T: Copy + Default>(
        &self,
        device: &Device,
        offset: usize,
        len: usize,
    ) -> Result<Vec<T>, CudaError> {
        let mut host = vec![T::default(); len];
        assert!(offset + size_of_val(&host[..]) <= self.len_bytes(), "a read past its memory");
        device.stream().context().bind_to_thread().doing("binding the context")?;
        let from = self.address + offset as u64;
        // SAFETY: in bounds by the assertion; the host copy is used after the synchronisation.
        unsafe { result::memcpy_dtoh_async(&mut host, from, device.stream().cu_stream()) }
            .doing("downloading")?;
        device.synchronize()?;
        Ok(host)
    }

    /// Copies everything of `other`, which has the same size, in stream order.
    pub(super) fn copy_from(&self, device: &Device, other: &Memory) -> Result<(), CudaError> {
        assert_eq!(self.len_bytes(), other.len_bytes(), "copies are of equal sizes");
        device.stream().context().bind_to_thread().doing("binding the context")?;
        let stream = device.stream().cu_stream();
        // SAFETY: both ranges have this size.
        unsafe { result::memcpy_dtod_async(self.address, other.address, self.len_bytes(), stream) }
            .doing("copying state")
    }
}

/// Page-locked host memory at an address that captured copies keep. Whoever copies waits for the
/// device before the other side is used.
pub(super) struct Pinned<T> {
    // Held for its memory; reached through `start`, because asking for it may wait for an event, which
    // a capture forbids.
    _slice: PinnedHostSlice<T>,
    start: *mut T,
    len: usize,
}

// SAFETY: the memory belongs to this value alone, and moves with it.
unsafe impl<T: Send> Send for Pinned<T> {}

impl<T> fmt::Debug for Pinned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pinned({} elements)", self.len)
    }
}

impl<T: DeviceRepr + ValidAsZeroBits + Copy> Pinned<T> {
    /// Memory of zeros.
    pub(super) fn zeros(device: &Device, len: usize) -> Result<Pinned<T>, CudaError> {
        // SAFETY: zero is a value of the type, and is written before anything is read.
        let mut slice = unsafe { device.stream().context().alloc_pinned_with_flags::<T>(len, 0) }
            .doing("allocating page-locked memory")?;
        let start = slice.as_mut_ptr().doing("mapping page-locked memory")?;
        // SAFETY: `start` is the first of `len` elements.
        unsafe { std::ptr::write_bytes(start, 0, len) };
        Ok(Pinned { _slice: slice, start, len })
    }

    /// Where the device finds it: the address space is one.
    pub(super) fn address(&self) -> u64 {
        self.start as u64
    }

    /// Its elements, once no copy to or from them is under way.
    pub(super) fn as_slice(&self) -> &[T] {
        // SAFETY: the memory has `len` elements and lives as long as this value.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }

    /// Its elements, to be written once no copy from them is under way.
    pub(super) fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: as above, and nothing else holds a reference.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }

    /// Copies the first `len` elements to `memory`, in stream order.
    pub(super) fn upload(
        &self,
        device: &Device,
        memory: &Memory,
        len: usize,
    ) -> Result<(), CudaError> {
        memory.write(device, 0, &self.as_slice()[..len])
    }

    /// Copies everything from the start of `memory`, in stream order.
    pub(super) fn download(&self, device: &Device, memory: &Memory) -> Result<(), CudaError> {
        let bytes = self.len * size_of::<T>();
        assert!(bytes <= memory.len_bytes(), "a read past its memory");
        device.stream().context().bind_to_thread().doing("binding the context")?;
        // SAFETY: the host side has `len` elements, and nobody reads them before the copy is done.
        unsafe {
            let host = std::slice::from_raw_parts_mut(self.start, self.len);
            result::memcpy_dtoh_async(host, memory.address(), device.stream().cu_stream())
        }
        .doing("downloading")
    }
}

/// Blocks of one size. A block that is dropped waits here for its next user.
#[derive(Debug)]
pub(super) struct Pool {
    device: Arc<Device>,
    bytes: usize,
    free: Mutex<Vec<Memory>>,
}

impl Pool {
    /// A pool of blocks of `bytes`; nothing is allocated before the first is taken.
    pub(super) fn new(device: &Arc<Device>, bytes: usize) -> Arc<Pool> {
        Arc::new(Pool { device: Arc::clone(device), bytes, free: Mutex::default() })
    }

    /// Size of a block.
    pub(super) fn block_bytes(&self) -> usize {
        self.bytes
    }

    /// A block of zeros.
    pub(super) fn take(self: &Arc<Pool>) -> Result<Block, CudaError> {
        let waiting = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let memory = match waiting {
            Some(memory) => memory,
            None => Memory::new(&self.device, self.bytes)?,
        };
        memory.fill(&self.device, 0)?;
        Ok(Block { memory: Some(memory), pool: Arc::clone(self) })
    }

    /// A block with the contents of another.
    pub(super) fn copy_of(self: &Arc<Pool>, other: &Block) -> Result<Block, CudaError> {
        let block = self.take()?;
        block.memory().copy_from(&self.device, other.memory())?;
        Ok(block)
    }
}

/// A block of a pool.
#[derive(Debug)]
pub(super) struct Block {
    memory: Option<Memory>,
    pool: Arc<Pool>,
}

impl Block {
    pub(super) fn memory(&self) -> &Memory {
        self.memory.as_ref().expect("a block holds its memory until it is dropped")
    }

    pub(super) fn address(&self) -> u64 {
        self.memory().address()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.pool.free.lock().unwrap_or_else(PoisonError::into_inner).push(memory);
        }
    }
}
