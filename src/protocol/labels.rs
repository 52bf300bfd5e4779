//! The label of a lock in metrics: the longest of the configured prefixes of its path. A recorder
//! keeps a series for each label, so paths themselves would be labels without a bound.

use std::sync::Arc;

/// The label of a lock whose path has none of the prefixes.
pub(crate) const OTHER: &str = "other";

/// The prefixes of paths that are labels.
#[derive(Clone)]
pub(crate) struct Labels {
    /// The prefixes, the longest first, so that the first match is the longest.
    prefixes: Arc<[Arc<str>]>,
    other: Arc<str>,
}

impl Labels {
    /// Returns the labels of these prefixes. A `/` at the beginning is added where it is missing,
    /// and one at the end is left out.
    pub(crate) fn new(prefixes: &[String]) -> Self {
        let mut prefixes: Vec<Arc<str>> = prefixes
            .iter()
            .map(|prefix| ["/", prefix.trim_matches('/')].concat().into())
            .collect();
        // The sort need not be stable, because two different prefixes of the same length never
        // match the same path.
        prefixes.sort_unstable_by_key(|prefix| std::cmp::Reverse(prefix.len()));
        Self {
            prefixes: prefixes.into(),
            other: OTHER.into(),
        }
    }

    /// Returns the label of a path: the longest prefix that is this path or a directory above it.
    pub(crate) fn of(&self, path: &str) -> Arc<str> {
        let is_above = |prefix: &&Arc<str>| {
            // A prefix ends at a slash: `/locks` is not the label of `/locks-of-others`.
            let below = path.strip_prefix(&***prefix);
            // Only the root ends with a slash itself, so the test below would refuse its children.
            ***prefix == *"/"
                || below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
        };
        Arc::clone(self.prefixes.iter().find(is_above).unwrap_or(&self.other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_prefix_is_the_label() {
        let labels = Labels::new(&[
            "/inventory".into(),
            "inventory/vip/".into(),
            "/orders".into(),
        ]);
        for (path, label) in [
            ("/inventory", "/inventory"),
            ("/inventory/sku-42", "/inventory"),
            ("/inventory/vip", "/inventory/vip"),
            ("/inventory/vip/sku-1", "/inventory/vip"),
            ("/inventory/vips", "/inventory"),
            ("/inventory-old/sku-42", "other"),
            ("/orders/7", "/orders"),
            ("/", "other"),
        ] {
            assert_eq!(&*labels.of(path), label, "{path}");
        }
        assert_eq!(&*Labels::new(&[]).of("/inventory"), "other");
        assert_eq!(&*Labels::new(&["/".into()]).of("/inventory"), "/");
    }
}
