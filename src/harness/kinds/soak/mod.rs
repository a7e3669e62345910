//! `soak`: a server's day in a minute. Random requests, and nothing may be left of them.

mod gate;
mod judge;
mod memory;
mod requests;

#[cfg(test)]
mod tests;

pub(super) use gate::Soak;
