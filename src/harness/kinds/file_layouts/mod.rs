//! `file_layouts`: the same weights in other files are the same model, with the same bits.

mod gate;
mod layout;

pub(super) use gate::FileLayouts;
