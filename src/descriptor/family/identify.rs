//! Which family and layout a config is of.

use super::FAMILIES;
use super::table::{Family, Layout};
use crate::descriptor::Refusal;
use crate::descriptor::config::Fields;
use crate::units::nearest;

type Result<T> = std::result::Result<T, Box<Refusal>>;

/// The family and layout that `model_type` names.
pub(super) fn family_of(outer: &Fields<'_>) -> Result<(&'static Family, &'static Layout)> {
    const KEY: &str = "model_type";
    let known = || FAMILIES.iter().flat_map(|f| f.layouts.iter().map(move |l| (*f, l)));
    let names = || known().map(|(_, l)| l.model_type);
    let listed = names().collect::<Vec<_>>().join(", ");
    let Some(found) = outer.optional_text(KEY)? else {
        return Err(outer.missing(KEY, &format!("one of {listed}")));
    };
    known().find(|(_, layout)| layout.model_type == found).ok_or_else(|| {
        let refusal = outer.refuse(KEY, format!("expected one of {listed}, found \"{found}\""));
        match nearest(found, names()) {
            Some(near) => refusal.help(format!("the nearest family is \"{near}\"")),
            None => refusal,
        }
    })
}

/// The model class, and the inner `model_type` of a nested config.
pub(super) fn check_layout(
    family: &Family,
    layout: &Layout,
    outer: &Fields<'_>,
    inner: Option<&Fields<'_>>,
) -> Result<()> {
    for item in outer.optional_list("architectures")?.unwrap_or_default() {
        if !item.as_str().is_some_and(|a| layout.architectures.contains(&a)) {
            let expected = layout.architectures.join(" or ");
            return Err(outer.expected("architectures", item, &expected));
        }
    }
    let Some(inner) = inner else { return Ok(()) };
    // A published text part may name the class it would have alone.
    _ = inner.get("architectures");
    if let Some(found) = inner.optional_text("model_type")? {
        let mut flat = family.layouts.iter().filter(|l| !l.nested).map(|l| l.model_type);
        if !flat.clone().any(|f| f == found) {
            let expected = flat.next().unwrap_or_default();
            return Err(
                inner.refuse("model_type", format!("expected \"{expected}\", found \"{found}\""))
            );
        }
    }
    Ok(())
}
