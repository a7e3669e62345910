//! Which device holds and computes what: a pure function of descriptor, device facts and policy.
