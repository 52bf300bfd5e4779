//! A persistent node has the data that were confirmed, and does not exist when its end was
//! confirmed.

/// Compares the data that were set with those on the servers; `None` if there is no node.
pub fn has(path: &str, set: &[u8], found: Option<&[u8]>) -> Result<(), String> {
    if found == Some(set) {
        return Ok(());
    }
    let text = |data: &[u8]| String::from_utf8_lossy(data).into_owned();
    Err(format!(
        "{path} was given {:?}, and has {:?}",
        text(set),
        found.map(text)
    ))
}

/// Checks a node whose end was confirmed.
pub fn is_gone(path: &str, exists: bool) -> Result<(), String> {
    if exists {
        Err(format!("{path} is there after its end was confirmed"))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_old_missing_or_leftover_node() {
        has("/a", b"1", Some(b"1")).unwrap();
        has("/a", b"1", Some(b"0")).unwrap_err();
        has("/a", b"1", None).unwrap_err();
        is_gone("/a", false).unwrap();
        is_gone("/a", true).unwrap_err();
    }
}
