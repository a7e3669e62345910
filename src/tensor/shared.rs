//! Weight memory: owned or mapped from a file, cheap to share.

use memmap2::Mmap;
use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

#[cfg(target_endian = "big")]
compile_error!("mapped safetensors are little-endian and are used in place");

/// Plain numbers.
///
/// # Safety
/// Every bit pattern must be a valid value, and there must be no padding.
pub unsafe trait Element: Copy + Send + Sync + 'static {}
// SAFETY: integers and floats have no padding and no invalid bit patterns.
unsafe impl Element for u8 {}
// SAFETY: as above.
unsafe impl Element for u16 {}
// SAFETY: as above.
unsafe impl Element for f32 {}

/// A shared immutable slice: owned memory, or a range of a mapped file.
#[derive(Clone)]
pub struct Shared<T: Element> {
    owner: Owner<T>,
    start: usize,
    len: usize,
}

#[derive(Clone)]
enum Owner<T> {
    Vec(Arc<Vec<T>>),
    Map(Arc<Mmap>),
}

impl<T: Element> Shared<T> {
    /// Owned elements.
    pub fn owned(elements: Vec<T>) -> Shared<T> {
        let len = elements.len();
        Shared { owner: Owner::Vec(Arc::new(elements)), start: 0, len }
    }

    /// `len` elements of a mapped file from byte `start_bytes`, or `None` if the range lies
    /// outside the map or the first element is not aligned.
    pub fn mapped(map: Arc<Mmap>, start_bytes: usize, len: usize) -> Option<Shared<T>> {
        let bytes = len.checked_mul(size_of::<T>())?;
        let end = start_bytes.checked_add(bytes)?;
        let aligned = (map.as_ptr() as usize + start_bytes).is_multiple_of(align_of::<T>());
        (end <= map.len() && aligned).then_some(Shared {
            owner: Owner::Map(map),
            start: start_bytes,
            len,
        })
    }

    /// A part of the elements; memory stays shared.
    ///
    /// # Panics
    /// If the range lies outside.
    pub fn slice(&self, range: Range<usize>) -> Shared<T> {
        assert!(range.start <= range.end && range.end <= self.len, "a range of the slice");
        let bytes = match self.owner {
            Owner::Vec(_) => 1,
            Owner::Map(_) => size_of::<T>(),
        };
        Shared {
            owner: self.owner.clone(),
            start: self.start + range.start * bytes,
            len: range.len(),
        }
    }

    /// The elements as little-endian bytes, which is how they lie in memory and in files.
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: the slice covers exactly the memory of the elements, plain numbers without
        // padding (`Element` promises it), and borrows `self`.
        unsafe { std::slice::from_raw_parts(self.as_ptr().cast::<u8>(), size_of_val(&self[..])) }
    }

    /// Asks the system to read mapped elements ahead of their use.
    pub fn will_need(&self) {
        #[cfg(unix)]
        if let Owner::Map(map) = &self.owner {
            let bytes = self.len * size_of::<T>();
            // A hint only: failing to give it costs time, nothing else.
            let _ = map.advise_range(memmap2::Advice::WillNeed, self.start, bytes);
        }
    }

    /// Gives back the memory of mapped elements: a later read fetches them from the file again. Owned
    /// elements stay.
    pub fn release(&self) {
        #[cfg(unix)]
        if let Owner::Map(map) = &self.owner {
            let bytes = self.len * size_of::<T>();
            // SAFETY: the map is a read-only view of a file, so a dropped page is read again with the
            // same content. It is a hint: failing to give it costs memory, nothing else.
            let _ = unsafe {
                map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, self.start, bytes)
            };
        }
    }

    /// Whether the elements lie in a mapped file.
    pub fn is_mapped(&self) -> bool {
        matches!(self.owner, Owner::Map(_))
    }
}

impl<T: Element> Deref for Shared<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &self.owner {
            Owner::Vec(v) => &v[self.start..self.start + self.len],
            // SAFETY: `mapped` checked range and alignment; every bit pattern is a valid `T`
            // (`Element` promises it); the map lives as long as `self`.
            Owner::Map(m) => unsafe {
                std::slice::from_raw_parts(m.as_ptr().add(self.start).cast::<T>(), self.len)
            },
        }
    }
}

impl<T: Element> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shared({} elements, mapped: {})", self.len, self.is_mapped())
    }
}

/// Elements of one logical weight as they are kept in memory.
#[derive(Clone, Debug)]
pub enum Storage {
    /// BF16 bits.
    Bf16(Shared<u16>),
    /// FP32; also what F16 sources are widened to, exactly.
    F32(Shared<f32>),
    /// Packed four-bit codes with their scales.
    Int4(super::Int4),
}

impl Storage {
    /// Bytes the elements occupy.
    pub fn size_bytes(&self) -> usize {
        match self {
            Storage::Bf16(s) => s.len() * 2,
            Storage::F32(s) => s.len() * 4,
            Storage::Int4(packed) => packed.size_bytes(),
        }
    }
}

/// One logical weight: a row-major matrix (`rows × cols`; a vector has one row).
#[derive(Clone, Debug)]
pub struct Weight {
    pub rows: usize,
    pub cols: usize,
    pub storage: Storage,
}

impl Weight {
    /// Some rows; memory stays shared.
    ///
    /// # Panics
    /// If the rows lie outside, or the weight is packed.
    pub fn slice_rows(&self, rows: Range<usize>) -> Weight {
        let elements = rows.start * self.cols..rows.end * self.cols;
        let storage = match &self.storage {
            Storage::Bf16(s) => Storage::Bf16(s.slice(elements)),
            Storage::F32(s) => Storage::F32(s.slice(elements)),
            Storage::Int4(_) => panic!("rows of packed codes are not sliced"),
        };
        Weight { rows: rows.len(), cols: self.cols, storage }
    }

    /// All elements widened to FP32, row-major; of a packed weight the values of its codes.
    pub fn to_f32(&self) -> Vec<f32> {
        match &self.storage {
            Storage::Bf16(s) => s.iter().map(|b| super::bf16_from_bits(*b)).collect(),
            Storage::F32(s) => s.to_vec(),
            Storage::Int4(packed) => {
                let mut row = Vec::new();
                (0..self.rows)
                    .flat_map(|r| {
                        packed.dequantise_row(r, &mut row);
                        row.clone()
                    })
                    .collect()
            }
        }
    }

    /// All elements as little-endian bytes, row-major; of a packed weight its codes.
    pub fn as_bytes(&self) -> &[u8] {
        match &self.storage {
            Storage::Bf16(s) => s.as_bytes(),
            Storage::F32(s) => s.as_bytes(),
            Storage::Int4(packed) => packed.codes.as_bytes(),
        }
    }

    /// Bytes the elements occupy.
    pub fn size_bytes(&self) -> usize {
        self.storage.size_bytes()
    }
}
