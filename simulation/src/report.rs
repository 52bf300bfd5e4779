//! What many worlds have shown, as one JSON object.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::world::Report;

fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04x}", c as u32);
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

fn counts(counts: &BTreeMap<String, u64>) -> String {
    let each: Vec<String> = counts.iter().map(|(name, count)| format!("{}:{count}", quoted(name))).collect();
    format!("{{{}}}", each.join(","))
}

/// One line of JSON.
pub fn json(seeds: (u64, u64), worlds: u64, seconds: f64, sum: &Report) -> String {
    let examples: Vec<String> = sum.violations.iter().take(20).map(|text| quoted(text)).collect();
    let margin = sum.least_margin_ms.map_or_else(|| "null".to_owned(), |margin| margin.to_string());
    format!(
        "{{\"first_seed\":{},\"last_seed\":{},\"worlds\":{worlds},\"seconds\":{seconds:.1},\"grants\":{},\
         \"losses\":{},\"connects\":{},\"virtual_hours\":{:.3},\"faults\":{},\"sometimes\":{},\
         \"least_margin_ms\":{margin},\"slowest_recovery_ms\":{},\"violations\":{},\"examples\":[{}]}}",
        seeds.0,
        seeds.1,
        sum.grants,
        sum.losses,
        sum.connects,
        sum.virtual_ms as f64 / 3.6e6,
        counts(&sum.faults),
        counts(&sum.sometimes),
        sum.slowest_recovery_ms,
        sum.violations.len(),
        examples.join(","),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_quoted() {
        assert_eq!(quoted("a \"b\" \\ \n"), "\"a \\\"b\\\" \\\\ \\u000a\"");
    }
}
