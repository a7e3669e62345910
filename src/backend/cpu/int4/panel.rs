//! Packed weights in the order in which the kernels of `fast` read them.

use super::super::arena::{Arena, Piece, Place};
use super::super::rows::for_each_part;
use crate::tensor::{INT4_TILE_ROWS, Int4, Int4Shape};
use std::sync::Arc;

/// Weight rows of a tile; the lanes of an accumulator.
pub(super) const ROWS: usize = INT4_TILE_ROWS;
/// Values along K of a block: one 32-byte load of a tile.
pub(super) const BLOCK: usize = 8;
/// 16-bit words of a block.
pub(super) const WORDS: usize = 16;

/// Tiles of eight rows, each block after block along K.
///
/// # Shapes
/// Codes are `[N / 8, K / 8, 16]` words. Word 2r + p of a block belongs to row r of the tile and
/// holds four values, those at k = 2j + p for j = 0 … 3 in its nibble j, biased by 8 (1 … 15): a
/// shift and a mask give sixteen-bit pairs (k, k + 1) of eight rows, which one multiply-add
/// consumes. Scales follow, `[N / 8, K / group, 8]` BF16.
#[derive(Debug)]
pub(in crate::backend::cpu) struct Panel {
    pub(super) shape: Int4Shape,
    elements: Piece,
}

/// A panel of an arena that is still being filled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    shape: Int4Shape,
    place: Place,
}

impl Placed {
    /// The panel, in its finished arena.
    pub(super) fn within(self, arena: &Arc<Arena>) -> Panel {
        Panel { shape: self.shape, elements: self.place.within(arena) }
    }
}

impl Panel {
    /// Elements of the panel of a matrix.
    pub(super) fn len(shape: Int4Shape) -> usize {
        code_words(shape) + shape.scale_count()
    }

    /// Repacks weights, and leaves them as they are.
    ///
    /// # Panics
    /// When the arena was made for other weights.
    pub(super) fn place(packed: &Int4, arena: &mut Arena) -> Placed {
        let shape = packed.shape;
        let blocks = shape.cols() / BLOCK;
        let groups = shape.groups_per_row();
        let (place, elements) = arena.take(Panel::len(shape));
        let (codes, scales) = elements.split_at_mut(code_words(shape));
        let tiles =
            codes.chunks_exact_mut(blocks * WORDS).zip(scales.chunks_exact_mut(groups * ROWS));
        for_each_part(tiles.collect(), 1, |tile, (codes, scales)| {
            for r in 0..ROWS {
                let (row_codes, row_scales) = packed.row(tile * ROWS + r);
                let words = codes.chunks_exact_mut(WORDS);
                for (words, bytes) in words.zip(row_codes.as_chunks::<4>().0) {
                    let [even, odd] = biased(*bytes);
                    words[2 * r] = even;
                    words[2 * r + 1] = odd;
                }
                for (scales, scale) in scales.chunks_exact_mut(ROWS).zip(row_scales) {
                    scales[r] = *scale;
                }
            }
        });
        Placed { shape, place }
    }

    /// A panel in an arena of its own.
    #[cfg(test)]
    pub(super) fn new(packed: &Int4) -> Panel {
        let mut arena = Arena::for_pieces([Panel::len(packed.shape)].into_iter()).unwrap();
        let placed = Panel::place(packed, &mut arena);
        placed.within(&Arc::new(arena))
    }

    /// Tiles of eight rows.
    pub(super) fn tiles(&self) -> usize {
        self.shape.rows() / ROWS
    }

    /// Codes and scales of a tile.
    pub(super) fn tile(&self, tile: usize) -> Tile<'_> {
        let words = self.tile_words();
        let count = self.shape.groups_per_row() * ROWS;
        let (codes, scales) = self.elements.split_at(code_words(self.shape));
        Tile { codes: &codes[tile * words..][..words], scales: &scales[tile * count..][..count] }
    }

    /// Words of one tile's codes.
    pub(super) fn tile_words(&self) -> usize {
        self.shape.cols() / BLOCK * WORDS
    }
}

/// Words of all codes.
fn code_words(shape: Int4Shape) -> usize {
    shape.rows() / ROWS * (shape.cols() / BLOCK) * WORDS
}

/// Eight rows of a panel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tile<'a> {
    pub(super) codes: &'a [u16],
    pub(super) scales: &'a [u16],
}

/// The words of the even and the odd values of eight codes in four bytes, each biased by 8.
fn biased(bytes: [u8; 4]) -> [u16; 2] {
    let mut words = [0u16; 2];
    for (j, byte) in bytes.into_iter().enumerate() {
        // Two's complement plus 8, modulo 16, flips the top bit of a nibble.
        let byte = byte ^ 0x88;
        words[0] |= u16::from(byte & 0x0f) << (4 * j);
        words[1] |= u16::from(byte >> 4) << (4 * j);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::{Int4Shape, Shared};

    #[test]
    fn words_hold_the_codes_of_their_row_and_column() {
        let shape = Int4Shape::new(16, 64, 32).unwrap();
        let code = |row: usize, k: usize| ((row * 7 + k * 3) % 15) as i8 - 7;
        let bytes = (0..16 * 32).map(|i| {
            let (row, pair) = (i / 32, i % 32);
            (code(row, 2 * pair) as u8 & 15) | ((code(row, 2 * pair + 1) as u8 & 15) << 4)
        });
        let scales = (0..32).map(|i| 0x3f80 + i as u16);
        let packed = Int4 {
            shape,
            codes: Shared::owned(bytes.collect()),
            scales: Shared::owned(scales.collect()),
            prefill: None,
        };
        let panel = Panel::new(&packed);
        for row in 0..16 {
            let tile = panel.tile(row / 8);
            for k in 0..64 {
                let word = tile.codes[k / BLOCK * WORDS + 2 * (row % 8) + k % 2];
                let nibble = (word >> (4 * (k % BLOCK / 2))) & 15;
                assert_eq!(nibble as i8 - 8, code(row, k), "row {row}, column {k}");
            }
            for group in 0..2 {
                assert_eq!(tile.scales[group * 8 + row % 8], 0x3f80 + (row * 2 + group) as u16);
            }
        }
    }
}
