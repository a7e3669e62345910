//! Products by the vendor's library: prefill under `fast`.

use crate::backend::cuda::{Blas, BlasPlan, CudaError, Device, Product};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};

/// Tokens from which the library takes a product; fewer read the weights at memory's rate anyway.
pub(super) const LEAST_TOKENS: usize = 65;

/// The library with a plan per shape.
#[derive(Debug)]
pub(super) struct VendorProducts {
    blas: Arc<Blas>,
    plans: Mutex<HashMap<(usize, usize, usize), BlasPlan>>,
}

impl VendorProducts {
    /// Opens the library, or `None` where there is none: our own products take its place.
    pub(super) fn open(device: &Device) -> Option<VendorProducts> {
        let blas = Blas::open(device).ok()?;
        Some(VendorProducts { blas, plans: Mutex::default() })
    }

    /// Whether a product is one for the library.
    pub(super) fn takes(product: &Product) -> bool {
        !product.wide && product.n >= LEAST_TOKENS && product.output_stride == product.m
    }

    /// Puts a product into the device's stream.
    ///
    /// # Safety
    /// The addresses are device memory of the product's sizes.
    pub(super) unsafe fn run(&self, device: &Device, product: &Product) -> Result<(), CudaError> {
        let shape = (product.m, product.n, product.k);
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        let plan = match plans.entry(shape) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(self.blas.plan(product.m, product.n, product.k)?),
        };
        // SAFETY: the plan is for this shape; the caller answers for the memory.
        unsafe { plan.run(device, product) }
    }
}
