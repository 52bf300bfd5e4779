//! Checks for user names and passwords of SASL that the client library cannot send.
//!
//! The client library would send them in a form from which the servers compute another hash, and
//! the servers would refuse them as wrong. That answer does not show the reason, so such names and
//! passwords are refused before any connection.

/// Checks the user and the password of SASL DIGEST-MD5. The error says what is wrong, and shows
/// neither.
pub(crate) fn check(user: &str, password: &str) -> Result<(), String> {
    if user.is_empty() {
        return Err("the user of `sasl_digest` is empty".to_owned());
    }
    // The client library puts the user name between quotation marks, without escapes.
    if user.contains(|c: char| c == '"' || c == '\\' || c.is_control()) {
        return Err(
            "the user of `sasl_digest` has a quotation mark, a backslash or a control character in it"
                .to_owned(),
        );
    }
    // RFC 2831 requires text that fits into Latin-1 to be hashed as Latin-1, but the client library
    // hashes all text as UTF-8.
    for (what, text) in [("user", user), ("password", password)] {
        if !text.is_ascii() && text.chars().all(|c| c <= '\u{ff}') {
            return Err(format!(
                "the {what} of `sasl_digest` has a letter like `\u{e9}`, of which client and server would make different hashes: use ASCII"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsendable_credentials_are_refused_and_hidden() {
        for (user, password) in [
            ("", "x"),
            ("a\"b", "x"),
            ("a\\", "x"),
            ("a\n", "x"),
            ("j\u{f6}", "x"),
            ("a", "gr\u{fc}n"),
        ] {
            let error = check(user, password).unwrap_err();
            assert!(
                user.is_empty() || !error.contains(&format!("{user}`")),
                "{error}"
            );
            assert!(!error.contains("gr\u{fc}n"), "{error}");
        }
        for (user, password) in [
            ("shop", ""),
            ("shop@EU", "a\"b\\ c"),
            ("\u{13e}", "\u{20ac}"),
        ] {
            assert_eq!(check(user, password), Ok(()), "{user}");
        }
    }
}
