//! The escapes of one segment of a path; see [`LockPath::segment`](crate::LockPath::segment).

/// The segment of the empty key. An escape has digits after its `%`, so no other key has this
/// segment.
const EMPTY: &str = "%";

/// Keys that are escaped as a whole. The first two are not valid in ZooKeeper's paths, and the
/// third is reserved for the server if it is the first segment.
const RESERVED: [&str; 3] = [".", "..", "zookeeper"];

/// Returns `key` as one segment of a path.
pub(crate) fn escape(key: &str) -> String {
    if key.is_empty() {
        return EMPTY.to_owned();
    }
    let whole = RESERVED.contains(&key);
    let mut segment = String::with_capacity(key.len());
    for c in key.chars() {
        if whole || matches!(c, '/' | '%') || is_refused(c) {
            for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                segment.push('%');
                segment.extend([byte >> 4, byte & 0xf].map(digit));
            }
        } else {
            segment.push(c);
        }
    }
    segment
}

/// Returns the text of a segment, in any escaped form. Returns `None` if an escape is incomplete or
/// has digits that [`escape`] does not use, or if the bytes are not UTF-8.
pub(crate) fn unescape(segment: &str) -> Option<String> {
    if segment == EMPTY {
        return Some(String::new());
    }
    let mut key = Vec::with_capacity(segment.len());
    let mut bytes = segment.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => key.push(value(bytes.next()?)? << 4 | value(bytes.next()?)?),
            byte => key.push(byte),
        }
    }
    String::from_utf8(key).ok()
}

/// Returns whether ZooKeeper refuses a character in paths. ZooKeeper checks the UTF-16 form, and so
/// refuses characters that take two units in it.
pub(crate) fn is_refused(c: char) -> bool {
    matches!(u32::from(c), 0x0000..=0x001f | 0x007f..=0x009f | 0xd800..=0xf8ff | 0xfff0..)
}

fn digit(value: u8) -> char {
    char::from_digit(value.into(), 16)
        .unwrap_or_default()
        .to_ascii_uppercase()
}

fn value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::values::path::LockPath;

    /// Keys with many of the characters that need an escape, and texts that look like escapes.
    fn keys() -> impl Strategy<Value = String> {
        let parts = prop_oneof![
            any::<char>().prop_map(String::from),
            "[./%a-c0-9A-F]{0,3}",
            Just("zookeeper".to_owned()),
            Just("\u{1f600}\u{fff0}\u{85}".to_owned()),
        ];
        prop::collection::vec(parts, 0..6).prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn every_key_round_trips_as_segment(key in keys()) {
            let segment = LockPath::segment(&key);
            prop_assert_eq!(LockPath::key(&segment).unwrap(), key.as_str());
            // The path is at the root, where more names are reserved.
            let path = format!("/{segment}");
            let parsed = LockPath::parse("", &path).unwrap();
            prop_assert_eq!(parsed.user().matches('/').count(), 1);
            prop_assert!(segment.len() <= 3 * key.len().max(1));
        }

        #[test]
        fn different_keys_have_different_segments(one in keys(), other in keys()) {
            prop_assert_eq!(one == other, LockPath::segment(&one) == LockPath::segment(&other));
        }

        #[test]
        fn different_segments_have_different_keys(text in keys()) {
            if let Ok(key) = LockPath::key(&text) {
                prop_assert_eq!(LockPath::segment(&key), text);
            }
        }
    }

    #[test]
    fn foreign_segment_has_no_key() {
        for segment in [
            "",
            "a/b",
            "%2f",
            "%2",
            "a%",
            "%zz",
            "%41",
            "%FF",
            ".",
            "..",
            "zookeeper",
            "%%",
            "\u{1f600}",
        ] {
            assert_eq!(LockPath::key(segment).unwrap_err().path(), segment);
        }
    }

    #[test]
    fn safe_characters_stay_unescaped() {
        for key in [
            "sku-42",
            "...",
            ".a",
            "zookeeper2",
            "Zookeeper",
            "库存",
            "a b",
            "lock-0000000007",
        ] {
            assert_eq!(LockPath::segment(key), key);
        }
    }
}
