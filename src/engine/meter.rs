//! Accounting of memory that sequences and weights hold.

use super::SequenceError;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes in use against a limit.
#[derive(Debug)]
pub(super) struct Meter {
    used: AtomicU64,
    limit: u64,
}

impl Meter {
    pub(super) fn new(limit: Option<u64>) -> Arc<Meter> {
        Arc::new(Meter { used: AtomicU64::new(0), limit: limit.unwrap_or(u64::MAX) })
    }

    /// Bytes charged now.
    pub(super) fn used_bytes(&self) -> u64 {
        self.used.load(Ordering::SeqCst)
    }

    /// Charges bytes, or refuses without charging any.
    pub(super) fn charge(self: &Arc<Meter>, bytes: u64) -> Result<Charge, SequenceError> {
        let mut charge = Charge { meter: Arc::clone(self), bytes: 0 };
        charge.grow(bytes)?;
        Ok(charge)
    }
}

/// Bytes that are given back when this is dropped.
#[derive(Debug)]
pub(super) struct Charge {
    meter: Arc<Meter>,
    bytes: u64,
}

impl Charge {
    /// Charges more, or refuses and changes nothing.
    pub(super) fn grow(&mut self, bytes: u64) -> Result<(), SequenceError> {
        let limit = self.meter.limit;
        let grown = |used: u64| used.checked_add(bytes).filter(|total| *total <= limit);
        self.meter
            .used
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, grown)
            .map_err(|_| SequenceError::OutOfMemory { needed_bytes: bytes, limit_bytes: limit })?;
        self.bytes += bytes;
        Ok(())
    }

    /// Gives back all but `bytes`.
    pub(super) fn shrink_to(&mut self, bytes: u64) {
        let surplus = self.bytes.saturating_sub(bytes);
        self.meter.used.fetch_sub(surplus, Ordering::SeqCst);
        self.bytes -= surplus;
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.meter.used.fetch_sub(self.bytes, Ordering::SeqCst);
    }
}
