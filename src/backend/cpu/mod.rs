//! The CPU backend: the embedded default and the oracle.
