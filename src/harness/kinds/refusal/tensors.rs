//! Well-formed changes of a safetensors file, through the reference implementation of the format:
//! for files that are valid by themselves and contradict something else.

use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Adds a tensor, or replaces it. The elements are a fixed pattern of finite values.
pub(super) fn set(
    file: &mut Vec<u8>,
    name: &str,
    dtype: &str,
    shape: &[usize],
) -> Result<(), String> {
    let quoted = serde_json::Value::from(dtype);
    let dtype: Dtype = serde_json::from_value(quoted).map_err(|e| format!("`{dtype}`: {e}"))?;
    let count: usize = shape.iter().product();
    // Every byte below 0x40 in the upper half keeps BF16, F16 and F32 finite and small.
    let data: Vec<u8> =
        (0..count * dtype.bitsize() / 8).map(|i| (i.wrapping_mul(37) % 61) as u8).collect();
    rebuild(file, |tensors| {
        tensors.insert(name.to_owned(), (dtype, shape.to_vec(), Cow::Owned(data)));
        Ok(())
    })
}

/// Adds a copy of a tensor under another name.
pub(super) fn copy(file: &mut Vec<u8>, from: &str, to: &str) -> Result<(), String> {
    rebuild(file, |tensors| {
        let copy = tensors.get(from).cloned().ok_or(format!("the file has no tensor `{from}`"))?;
        tensors.insert(to.to_owned(), copy);
        Ok(())
    })
}

/// Removes a tensor.
pub(super) fn drop(file: &mut Vec<u8>, name: &str) -> Result<(), String> {
    rebuild(file, |tensors| match tensors.remove(name) {
        Some(_) => Ok(()),
        None => Err(format!("the file has no tensor `{name}`")),
    })
}

type Tensors<'a> = BTreeMap<String, (Dtype, Vec<usize>, Cow<'a, [u8]>)>;

fn rebuild(
    file: &mut Vec<u8>,
    change: impl FnOnce(&mut Tensors<'_>) -> Result<(), String>,
) -> Result<(), String> {
    let words = |e: safetensors::SafeTensorError| e.to_string();
    let parsed = SafeTensors::deserialize(file).map_err(words)?;
    let mut tensors: Tensors<'_> = parsed
        .iter()
        .map(|(name, view)| {
            (name.to_owned(), (view.dtype(), view.shape().to_vec(), Cow::Borrowed(view.data())))
        })
        .collect();
    change(&mut tensors)?;
    let views = tensors.iter().map(|(name, (dtype, shape, data))| {
        TensorView::new(*dtype, shape.clone(), data).map(|view| (name.as_str(), view))
    });
    let views: Vec<(&str, TensorView<'_>)> = views.collect::<Result<_, _>>().map_err(words)?;
    let bytes = safetensors::serialize(views, None).map_err(words)?;
    *file = bytes;
    Ok(())
}
