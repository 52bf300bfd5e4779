//! How paths and errors are shown in messages: on one line, and with a limited length.

use std::error::Error;
use std::fmt;

/// The number of characters beyond which a text is cut.
const LONGEST: usize = 120;
/// The same limit for a reason, which may contain one reason for each of several servers.
const LONGEST_REASON: usize = 800;

/// A text for a message; a long text is cut in the middle, and keeps its beginning and its end.
pub(crate) struct Short<'a>(pub(crate) &'a str);

/// The same text in quotation marks, as [`Debug`](fmt::Debug) for `str` writes it.
pub(crate) struct Quoted<'a>(pub(crate) &'a str);

/// Returns the beginning and the end of a text that has more characters than `longest`.
fn cut(text: &str, longest: usize) -> Option<(&str, &str)> {
    let longer = text.char_indices().nth(longest).is_some();
    let half = longest / 2;
    let (begin, _) = text.char_indices().nth(half).filter(|_| longer)?;
    let (end, _) = text.char_indices().rev().nth(half - 2)?;
    Some((text.get(..begin)?, text.get(end..)?))
}

impl fmt::Display for Short<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match cut(self.0, LONGEST) {
            Some((begin, end)) => write!(f, "{begin}…{end}"),
            None => f.write_str(self.0),
        }
    }
}

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match cut(self.0, LONGEST) {
            Some((begin, end)) => write!(f, "\"{}…{}\"", begin.escape_debug(), end.escape_debug()),
            None => fmt::Debug::fmt(self.0, f),
        }
    }
}

impl fmt::Debug for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Returns the reason of an error, with which the text of the error ends: the messages of its
/// sources, on one line.
///
/// So a user who prints an error sees its cause. A message that an earlier one contains is left
/// out, because the errors of this crate contain the messages of their sources.
pub(crate) fn why(source: &dyn Error) -> String {
    let mut why = String::new();
    let mut next = Some(source);
    while let Some(error) = next {
        let text = one_line(error);
        if !why.contains(&text) {
            if !why.is_empty() {
                why.push_str(": ");
            }
            why.push_str(&text);
        }
        next = error.source();
    }
    match cut(&why, LONGEST_REASON) {
        Some((begin, end)) => format!("{begin}…{end}"),
        None => why,
    }
}

/// Returns the message of an error on one line. (A list of causes has one line for each.)
fn one_line(error: &dyn Error) -> String {
    error.to_string().lines().collect::<Vec<_>>().join("; ")
}

/// Writes an error on one line: its name, and its message, which includes its reason.
pub(crate) fn debug(name: &str, error: &dyn Error, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "{name}({})", one_line(error))
}

/// `Debug` for errors: their messages, after the name of the type and of the variant.
///
/// The variants in parentheses contain other errors, whose `Debug` output (which also begins with a
/// name) is shown.
macro_rules! debug_as_text {
    ($error:ident($($inner:ident),+) { $($variant:ident),+ $(,)? }) => {
        impl std::fmt::Debug for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                // The match has no wildcard, so that a new variant must be listed.
                let name = match self {
                    $(
                        Self::$inner(error) => {
                            let name = concat!(stringify!($error), "::", stringify!($inner));
                            return write!(f, "{name}({error:?})");
                        }
                    )+
                    $(Self::$variant { .. } => concat!(stringify!($error), "::", stringify!($variant)),)+
                };
                $crate::values::shown::debug(name, self, f)
            }
        }
    };
    ($error:ident { $($variant:ident),+ $(,)? }) => {
        impl std::fmt::Debug for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                // The match has no wildcard, so that a new variant must be listed.
                let name = match self {
                    $(Self::$variant { .. } => concat!(stringify!($error), "::", stringify!($variant)),)+
                };
                $crate::values::shown::debug(name, self, f)
            }
        }
    };
    ($error:ident) => {
        impl std::fmt::Debug for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                $crate::values::shown::debug(stringify!($error), self, f)
            }
        }
    };
}

/// `Debug` for locks: their paths.
macro_rules! debug_as_path {
    ($($lock:ident),* $(,)?) => {
        $(
            impl std::fmt::Debug for $lock {
                fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    write!(f, "{}({})", stringify!($lock), $crate::values::shown::Quoted(self.path()))
                }
            }
        )*
    };
}

pub(crate) use {debug_as_path, debug_as_text};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_text_is_shown_whole() {
        let exact = "x".repeat(LONGEST);
        for text in ["", "/locks/a", "/Ä\"\n", &exact] {
            assert_eq!(Short(text).to_string(), text);
            assert_eq!(Quoted(text).to_string(), format!("{text:?}"));
        }
    }

    #[test]
    fn long_text_keeps_both_ends() {
        let long = format!("/begin/{}/end", "ä".repeat(16_000));
        for shown in [Short(&long).to_string(), Quoted(&long).to_string()] {
            assert!(shown.chars().count() <= LONGEST + 2, "{shown}");
            assert!(
                shown.contains("/begin/") && shown.contains("/end") && shown.contains('…'),
                "{shown}"
            );
        }
        assert_eq!(Short(&long).to_string().chars().count(), LONGEST);
    }

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Failed {
        text: String,
        source: Option<Box<Self>>,
    }

    fn failed(text: &str, source: Option<Failed>) -> Failed {
        Failed {
            text: text.to_owned(),
            source: source.map(Box::new),
        }
    }

    #[test]
    fn reason_has_all_sources_once() {
        let last = failed("a: refused\nb: silent", None);
        let first = failed("no session", Some(failed("no server", Some(last))));
        assert_eq!(why(&first), "no session: no server: a: refused; b: silent");
        let known = failed("no session: no server", Some(failed("no server", None)));
        assert_eq!(why(&known), "no session: no server");
    }

    #[test]
    fn long_reason_is_cut() {
        let long = failed(&"x".repeat(2 * LONGEST_REASON), None);
        assert_eq!(why(&long).chars().count(), LONGEST_REASON);
    }
}
