//! Memory of repacked weights: one map for all of a model, on huge pages where the system grants them.

use memmap2::MmapMut;
use std::ops::Deref;
use std::sync::Arc;

/// Bytes that every piece starts at a multiple of: a cache line.
const LINE_BYTES: usize = 64;

/// Zeroed memory that is filled piece by piece and then no longer changes.
#[derive(Debug)]
pub(super) struct Arena {
    map: MmapMut,
    used_bytes: usize,
}

/// Where a piece lies in an arena that is still being filled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    start_bytes: usize,
    len: usize,
}

/// 16-bit elements in a finished arena.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    arena: Arc<Arena>,
    place: Place,
}

impl Arena {
    /// Room for pieces of these lengths, in 16-bit elements.
    ///
    /// # Errors
    /// When the system has no such memory.
    pub(super) fn for_pieces(lens: impl Iterator<Item = usize>) -> std::io::Result<Arena> {
        let bytes: usize = lens.map(size_bytes).sum();
        let map = MmapMut::map_anon(bytes.max(1))?;
        // A hint: without huge pages the same kernels run, somewhat slower.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Ok(Arena { map, used_bytes: 0 })
    }

    /// The next piece, to be filled.
    ///
    /// # Panics
    /// When the arena was made for other pieces.
    pub(super) fn take(&mut self, len: usize) -> (Place, &mut [u16]) {
        let place = Place { start_bytes: self.used_bytes, len };
        self.used_bytes += size_bytes(len);
        let bytes = &mut self.map[place.start_bytes..][..len * size_of::<u16>()];
        // SAFETY: the map is page-aligned and pieces take whole cache lines, so the slice is aligned;
        // any bits are a valid u16.
        let (head, elements, tail) = unsafe { bytes.align_to_mut::<u16>() };
        assert!(head.is_empty() && tail.is_empty());
        (place, elements)
    }
}

impl Place {
    /// The piece, in its finished arena.
    pub(super) fn within(self, arena: &Arc<Arena>) -> Piece {
        assert!(self.start_bytes + size_bytes(self.len) <= arena.used_bytes);
        Piece { arena: arena.clone(), place: self }
    }
}

impl Deref for Piece {
    type Target = [u16];

    #[inline(always)]
    fn deref(&self) -> &[u16] {
        let Place { start_bytes, len } = self.place;
        // SAFETY: `within` checked that the piece lies in the map, `take` gave it whole cache lines of
        // a page-aligned map; a shared arena no longer changes and any bits are a valid u16.
        unsafe {
            let start = self.arena.map.as_ptr().add(start_bytes).cast::<u16>();
            std::slice::from_raw_parts(start, len)
        }
    }
}

fn size_bytes(len: usize) -> usize {
    (len * size_of::<u16>()).next_multiple_of(LINE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_start_at_cache_lines_and_keep_what_they_were_filled_with() {
        let lens = [3, 64, 0, 33];
        let mut arena = Arena::for_pieces(lens.into_iter()).unwrap();
        let fill = |(i, len): (usize, usize)| {
            let (place, elements) = arena.take(len);
            assert!(elements.iter().all(|e| *e == 0));
            elements.fill(i as u16 + 1);
            place
        };
        let places: Vec<Place> = lens.into_iter().enumerate().map(fill).collect();
        let arena = Arc::new(arena);
        for ((i, len), place) in lens.into_iter().enumerate().zip(places) {
            let piece = place.within(&arena);
            assert_eq!(*piece, vec![i as u16 + 1; len]);
            assert_eq!(piece.as_ptr() as usize % LINE_BYTES, 0);
        }
    }
}
