//! What trials of one worker process share: loaded models, references, serial digests.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Entries kept; the least recently used one goes first. Trials come ordered by group, so a few
/// are enough, and memory stays bounded.
const ENTRIES: usize = 4;

/// A small cache of loaded things, by key and type.
#[derive(Default)]
pub struct Cache {
    entries: Mutex<Vec<(String, Arc<dyn Any + Send + Sync>)>>,
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cache")
    }
}

impl Cache {
    /// The entry of this key and type, made by `make` if it is not there.
    ///
    /// # Errors
    /// The error of `make`; nothing is kept then.
    pub fn get_or_make<T: Any + Send + Sync, E>(
        &self,
        key: &str,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        if let Some(hit) = self.take::<T>(key) {
            return Ok(hit);
        }
        let made = Arc::new(make()?);
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() == ENTRIES {
            entries.remove(0);
        }
        entries.push((key.to_owned(), made.clone()));
        Ok(made)
    }

    /// The entry, moved to the most recently used end.
    fn take<T: Any + Send + Sync>(&self, key: &str) -> Option<Arc<T>> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let at = entries.iter().position(|(k, v)| k == key && v.is::<T>())?;
        let entry = entries.remove(at);
        let value = entry.1.clone().downcast().ok();
        entries.push(entry);
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_are_made_once_and_the_oldest_goes() {
        let cache = Cache::default();
        let get = |key: &str, n: usize| *cache.get_or_make(key, || Ok::<_, ()>(n)).unwrap();
        assert_eq!(get("a", 1), 1);
        assert_eq!(get("a", 2), 1, "kept");
        for (i, key) in ["b", "c", "d"].into_iter().enumerate() {
            get(key, i);
        }
        assert_eq!(get("a", 3), 1, "used recently, still there");
        get("e", 0);
        assert_eq!(get("b", 9), 9, "the least recently used one went");
        assert_eq!(cache.get_or_make("a", || Err::<usize, _>("no")), Ok(Arc::new(1)));
        assert_eq!(cache.get_or_make("z", || Err::<usize, _>("no")), Err("no"));
    }
}
