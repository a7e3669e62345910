//! What the device is told about a step: rows, spans, pages, tiles, in one upload.
//!
//! The layout depends on capacities alone, so a captured graph can be replayed over the next
//! step's record at the same addresses. Page addresses come last: only the used part travels.

use super::memory::{Memory, Pinned};
use crate::backend::Span;
use crate::backend::cpu::{BLOCK_TOKENS, GROUP_TOKENS};
use crate::backend::cuda::{CudaError, Device};

/// Rows of one head block.
pub(super) const HEAD_ROWS: usize = 64;
const SPAN_BYTES: usize = 24;
const TILE_BYTES: usize = 16;

/// Room of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Capacity {
    pub(super) rows: usize,
    pub(super) spans: usize,
    pub(super) pages: usize,
}

/// Offsets of the arrays.
#[derive(Clone, Copy, Debug)]
struct Layout {
    tokens: usize,
    positions: usize,
    span_of_row: usize,
    head_rows: usize,
    spans: usize,
    tiles: usize,
    pages: usize,
    end: usize,
}

impl Layout {
    fn new(c: Capacity) -> Layout {
        let align = |n: usize| n.next_multiple_of(256);
        // One count of rows, then one per head block.
        let tokens = align(4 * (2 + c.rows.div_ceil(HEAD_ROWS)));
        let positions = tokens + align(4 * c.rows);
        let span_of_row = positions + align(4 * c.rows);
        let head_rows = span_of_row + align(4 * c.rows);
        let spans = head_rows + align(4 * c.rows);
        let tiles = spans + align(SPAN_BYTES * c.spans);
        let tile_count = c.rows / GROUP_TOKENS + 2 * c.spans + 2;
        let pages = tiles + align(TILE_BYTES * tile_count);
        Layout {
            tokens,
            positions,
            span_of_row,
            head_rows,
            spans,
            tiles,
            pages,
            end: pages + align(8 * c.pages),
        }
    }
}

/// A record on the host and its place on the device.
pub(super) struct Record {
    capacity: Capacity,
    layout: Layout,
    host: Pinned<u8>,
    device: Memory,
    used: usize,
    /// Tiles written by the last [`Record::fill`].
    pub(super) tiles: usize,
}

impl std::fmt::Debug for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Record").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}

impl Record {
    /// A record with room for a step.
    pub(super) fn new(device: &Device, capacity: Capacity) -> Result<Record, CudaError> {
        let layout = Layout::new(capacity);
        Ok(Record {
            capacity,
            layout,
            host: Pinned::zeros(device, layout.end)?,
            device: Memory::zeros(device, layout.end)?,
            used: 0,
            tiles: 0,
        })
    }

    /// Its room.
    pub(super) fn capacity(&self) -> Capacity {
        self.capacity
    }

    /// Writes a step; `head` are the rows whose output is wanted. Spans past the last are empty.
    pub(super) fn fill(
        &mut self,
        tokens: &[u32],
        spans: &[Span],
        entries: &[(Vec<u64>, u64)],
        head: &[u32],
    ) -> Result<(), CudaError> {
        let layout = self.layout;
        let bytes = self.host.as_mut_slice();
        let rows = spans.last().map_or(0, |s| s.rows.end);
        put(bytes, 0, &[rows as u32]);
        for (i, block) in head.chunks(HEAD_ROWS).enumerate() {
            put(bytes, 4 * (1 + i), &[block.len() as u32]);
        }
        put(bytes, layout.tokens, tokens);
        put(bytes, layout.head_rows, head);
        let (mut page, mut tiles) = (0usize, 0usize);
        for (i, (span, (pages, gdn))) in spans.iter().zip(entries).enumerate() {
            let count = span.rows.len();
            for (r, row) in span.rows.clone().enumerate() {
                put(bytes, layout.positions + 4 * row, &[(span.position + r) as u32]);
                put(bytes, layout.span_of_row + 4 * row, &[i as u32]);
            }
            let at = layout.spans + SPAN_BYTES * i;
            let head = [span.rows.start as u32, count as u32, span.position as u32, page as u32];
            put(bytes, at, &head);
            bytes[at + 16..at + 24].copy_from_slice(&gdn.to_le_bytes());
            for (j, address) in pages.iter().enumerate() {
                let at = layout.pages + 8 * (page + j);
                bytes[at..at + 8].copy_from_slice(&address.to_le_bytes());
            }
            page += pages.len();
            if count > 1 {
                for tile in group_tiles(span) {
                    let words = [i as u32, tile.0, tile.1, tile.2];
                    put(bytes, layout.tiles + TILE_BYTES * tiles, &words);
                    tiles += 1;
                }
            }
        }
        for i in spans.len()..self.capacity.spans {
            put(bytes, layout.spans + SPAN_BYTES * i, &[0u32; 4]);
        }
        self.tiles = tiles;
        self.used = layout.pages + 8 * page;
        Ok(())
    }

    /// Sends the step to the device, in stream order.
    pub(super) fn upload(&self, device: &Device) -> Result<(), CudaError> {
        self.host.upload(device, &self.device, self.used)
    }

    /// The same, of everything: what a captured step does again for every later one.
    pub(super) fn upload_all(&self, device: &Device) -> Result<(), CudaError> {
        self.host.upload(device, &self.device, self.layout.end)
    }

    /// The kernels' `Step`.
    pub(super) fn step(&self) -> [u64; 8] {
        let (base, l) = (self.device.address(), self.layout);
        let at = |offset: usize| base + offset as u64;
        [
            base,
            at(l.tokens),
            at(l.positions),
            at(l.span_of_row),
            at(l.spans),
            at(l.pages),
            at(l.tiles),
            0,
        ]
    }

    /// The `Step` of head block `block`: its own count of rows.
    pub(super) fn head_step(&self, block: usize) -> [u64; 8] {
        let mut step = self.step();
        step[0] += 4 * (1 + block as u64);
        step
    }

    /// Address of the row numbers of head block `block`.
    pub(super) fn head_rows(&self, block: usize) -> u64 {
        self.device.address() + (self.layout.head_rows + 4 * HEAD_ROWS * block) as u64
    }
}

fn put(bytes: &mut [u8], at: usize, words: &[u32]) {
    for (i, word) in words.iter().enumerate() {
        bytes[at + 4 * i..at + 4 * i + 4].copy_from_slice(&word.to_le_bytes());
    }
}

/// (row of the step, row in the group, rows) of every group that a span touches.
fn group_tiles(span: &Span) -> Vec<(u32, u32, u32)> {
    let mut tiles = Vec::new();
    let mut done = 0;
    while done < span.rows.len() {
        let first = (span.position + done) % GROUP_TOKENS;
        let rows = (span.rows.len() - done).min(GROUP_TOKENS - first);
        tiles.push(((span.rows.start + done) as u32, first as u32, rows as u32));
        done += rows;
    }
    tiles
}

/// Pages of cache that a span reads.
pub(super) fn pages_of(span: &Span) -> usize {
    (span.position + span.rows.len()).div_ceil(BLOCK_TOKENS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_follow_absolute_groups() {
        let span = Span { rows: 5..205, position: 60 };
        let tiles = group_tiles(&span);
        assert_eq!(tiles, [(5, 60, 4), (9, 0, 64), (73, 0, 64), (137, 0, 64), (201, 0, 4)]);
        assert_eq!(group_tiles(&Span { rows: 0..1, position: 63 }), [(0, 63, 1)]);
        assert_eq!(pages_of(&Span { rows: 0..1, position: 255 }), 1);
        assert_eq!(pages_of(&Span { rows: 0..1, position: 256 }), 2);
    }

    #[test]
    fn arrays_do_not_overlap() {
        let l = Layout::new(Capacity { rows: 100, spans: 7, pages: 9 });
        let order =
            [l.tokens, l.positions, l.span_of_row, l.head_rows, l.spans, l.tiles, l.pages, l.end];
        assert!(order.windows(2).all(|w| w[0] < w[1]), "{order:?}");
        assert!(l.tokens >= 4 * (1 + 2));
    }
}
