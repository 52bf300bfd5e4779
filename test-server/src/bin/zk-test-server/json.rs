//! Lines of JSON, with integers only: a hundred lines instead of a dependency.

use std::fmt::{self, Write as _};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    Number(i64),
    Text(String),
    List(Vec<Self>),
    Object(Vec<(String, Self)>),
}

impl Json {
    pub(crate) fn object<const N: usize>(fields: [(&str, Self); N]) -> Self {
        Self::Object(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// Returns a field of an object; `None` if there is none, or it is null.
    pub(crate) fn get(&self, name: &str) -> Option<&Self> {
        let Self::Object(fields) = self else { return None };
        let (_, value) = fields.iter().find(|(field, _)| field == name)?;
        (*value != Self::Null).then_some(value)
    }

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut reader = Reader { rest: text };
        let value = reader.value(DEPTH)?;
        reader.skip();
        if reader.rest.is_empty() { Ok(value) } else { Err(format!("more than one value: {}", reader.rest)) }
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => value.fmt(f),
            Self::Number(value) => value.fmt(f),
            Self::Text(text) => quoted(f, text),
            Self::List(values) => {
                for (index, value) in values.iter().enumerate() {
                    write!(f, "{}{value}", if index == 0 { '[' } else { ',' })?;
                }
                f.write_str(if values.is_empty() { "[]" } else { "]" })
            }
            Self::Object(fields) => {
                for (index, (name, value)) in fields.iter().enumerate() {
                    f.write_char(if index == 0 { '{' } else { ',' })?;
                    quoted(f, name)?;
                    write!(f, ":{value}")?;
                }
                f.write_str(if fields.is_empty() { "{}" } else { "}" })
            }
        }
    }
}

fn quoted(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_char('"')?;
    for c in text.chars() {
        match c {
            '"' | '\\' => write!(f, "\\{c}")?,
            '\u{0}'..='\u{1f}' | '\u{7f}' => write!(f, "\\u{:04x}", u32::from(c))?,
            c => f.write_char(c)?,
        }
    }
    f.write_char('"')
}

/// How deep values may be in others.
const DEPTH: usize = 8;

struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    fn skip(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
    }

    /// Takes what is next, if it is this.
    fn take(&mut self, token: &str) -> bool {
        self.skip();
        let rest = self.rest.strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn value(&mut self, depth: usize) -> Result<Json, String> {
        let below = depth.checked_sub(1).ok_or("the values are too deep")?;
        for (token, value) in [("null", Json::Null), ("true", Json::Bool(true)), ("false", Json::Bool(false))]
        {
            if self.take(token) {
                return Ok(value);
            }
        }
        if self.take("\"") {
            return self.string().map(Json::Text);
        }
        if self.take("[") {
            return self.items("]", |reader| reader.value(below)).map(Json::List);
        }
        if self.take("{") {
            let field = |reader: &mut Self| {
                let name = if reader.take("\"") { reader.string()? } else { return Err(reader.wrong()) };
                if reader.take(":") { Ok((name, reader.value(below)?)) } else { Err(reader.wrong()) }
            };
            return self.items("}", field).map(Json::Object);
        }
        self.number()
    }

    fn items<T>(
        &mut self,
        end: &str,
        item: impl Fn(&mut Self) -> Result<T, String>,
    ) -> Result<Vec<T>, String> {
        let mut items = Vec::new();
        if self.take(end) {
            return Ok(items);
        }
        loop {
            items.push(item(self)?);
            if self.take(end) {
                return Ok(items);
            }
            if !self.take(",") {
                return Err(self.wrong());
            }
        }
    }

    fn number(&mut self) -> Result<Json, String> {
        let end = self.rest.find(|c: char| c != '-' && !c.is_ascii_digit()).unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(end);
        let number = digits.parse().map_err(|_| self.wrong())?;
        if rest.starts_with(['.', 'e', 'E']) {
            return Err(format!("only integers are numbers here: {}", self.rest));
        }
        self.rest = rest;
        Ok(Json::Number(number))
    }

    /// Reads a string behind its first quote.
    fn string(&mut self) -> Result<String, String> {
        let mut units: Vec<u16> = Vec::new();
        let mut chars = self.rest.chars();
        while let Some(c) = chars.next() {
            match c {
                '"' => {
                    self.rest = chars.as_str();
                    return Ok(String::from_utf16_lossy(&units));
                }
                '\\' => units.push(escaped(&mut chars).ok_or_else(|| self.wrong())?),
                c => units.extend_from_slice(c.encode_utf16(&mut [0; 2])),
            }
        }
        Err("a string does not end".to_owned())
    }

    fn wrong(&self) -> String {
        format!("not JSON: {}", if self.rest.is_empty() { "it ends too early" } else { self.rest })
    }
}

fn escaped(chars: &mut std::str::Chars<'_>) -> Option<u16> {
    Some(match chars.next()? {
        'n' => 0x0a,
        't' => 0x09,
        'r' => 0x0d,
        'b' => 0x08,
        'f' => 0x0c,
        c @ ('"' | '\\' | '/') => u16::try_from(u32::from(c)).ok()?,
        'u' => {
            let mut digit = || chars.next()?.to_digit(16);
            let digits = [digit()?, digit()?, digit()?, digit()?];
            u16::try_from(digits.iter().fold(0, |unit, digit| unit << 4 | digit)).ok()?
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::Json;

    #[test]
    fn values_are_read_as_they_are_written() {
        for text in [
            "null",
            "[]",
            "{}",
            "[1,-2,true,false,null]",
            r#"{"do":"hold_reply","path":"/a\"b\\","nth":2}"#,
            r#""\u0001é""#,
        ] {
            assert_eq!(Json::parse(text).map(|value| value.to_string()).as_deref(), Ok(text));
        }
        let spaced = " { \"a\" : [ 1 , \"\\ud83d\\udca9\\n\" ] } ";
        let value = Json::object([("a", Json::List(vec![Json::Number(1), Json::text("\u{1f4a9}\n")]))]);
        assert_eq!(Json::parse(spaced), Ok(value));
    }

    #[test]
    fn what_is_no_json_is_refused() {
        for text in ["", "{", "[1,]", "{\"a\"}", "\"", "1.5", "nul", "1 2", "\"\\x\"", "99999999999999999999"]
        {
            assert!(Json::parse(text).is_err(), "{text}");
        }
        assert!(Json::parse(&"[".repeat(10_000)).is_err());
    }
}
