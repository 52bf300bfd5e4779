//! The decisions about a job that runs once per occasion: whose a record is, and which records are
//! deleted (docs/protocol.md#once-record).

/// Separates who ran the job from the token of the run.
const TOKEN: &str = " token ";

/// Returns the data of a record: one line, with who ran the job and the token of the run.
pub(crate) fn record(by: &str, token: (i64, u64)) -> String {
    let line: String = by
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    format!("{line}{TOKEN}{}.{}", token.0, token.1)
}

/// Returns who ran the job, by a record; if another program has written the record, all of it.
pub(crate) fn by(record: &[u8]) -> String {
    let line = String::from_utf8_lossy(record);
    line.rsplit_once(TOKEN)
        .map_or(&*line, |(by, _)| by)
        .to_owned()
}

/// Returns whether a record is of the run with this token. No two runs have one token.
pub(crate) fn is_of(record: &[u8], token: (i64, u64)) -> bool {
    let token = format!("{TOKEN}{}.{}", token.0, token.1);
    record.ends_with(token.as_bytes())
}

/// Returns whether so many records are more than enough. A few more than `keep` stay until they are
/// deleted together, so that not every run reads all of them.
pub(crate) fn are_too_many(records: usize, keep: usize) -> bool {
    records > keep + keep / 4
}

/// Returns which records go, of some or all that there are, each with the zxid of its creation: the
/// oldest, and at most `most`. The last `keep` of all stay, because each that goes has as many that
/// came later.
pub(crate) fn to_prune(mut records: Vec<(i64, String)>, keep: usize, most: usize) -> Vec<String> {
    records.sort_unstable();
    let old = records.len().saturating_sub(keep);
    records.truncate(old.min(most));
    records.into_iter().map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Shows: once-record
    #[test]
    fn record_names_process_and_run() {
        let data = record("web-1/4711/re\nport", (77, 2));
        assert_eq!(data, "web-1/4711/re port token 77.2");
        assert_eq!(by(data.as_bytes()), "web-1/4711/re port");
        assert!(is_of(data.as_bytes(), (77, 2)));
        for other in [(77, 1), (7, 2), (177, 2), (77, 22)] {
            assert!(!is_of(data.as_bytes(), other), "{other:?}");
        }
        // One that names itself like a record.
        assert!(!is_of(record("x token 77.2", (78, 0)).as_bytes(), (77, 2)));
        assert_eq!(by(b"by hand"), "by hand");
        assert_eq!(by(&[0xff]), "\u{fffd}");
    }

    // Shows: once-record
    #[test]
    fn pruning_deletes_oldest_records() {
        let records = |zxids: &[i64]| {
            zxids
                .iter()
                .map(|zxid| (*zxid, format!("r{zxid}")))
                .collect()
        };
        assert_eq!(to_prune(records(&[5, 1, 9, 3]), 2, 10), ["r1", "r3"]);
        assert_eq!(to_prune(records(&[5, 1, 9, 3]), 1, 2), ["r1", "r3"]);
        assert_eq!(to_prune(records(&[5, 1]), 2, 10), [""; 0]);
        assert_eq!(to_prune(records(&[]), 1, 10), [""; 0]);
        // Whatever part of all is known.
        let all: Vec<i64> = (0..12).collect();
        for keep in 1..12 {
            for from in 0..12 {
                for pruned in to_prune(records(&all[from..]), keep, 100) {
                    let zxid: i64 = pruned[1..].parse().unwrap();
                    assert!(
                        zxid < 12 - keep as i64,
                        "{pruned} is one of the last {keep}"
                    );
                }
            }
        }
    }

    #[test]
    fn pruning_waits_for_a_few() {
        assert!(!are_too_many(1, 1) && are_too_many(2, 1));
        assert!(!are_too_many(125, 100) && are_too_many(126, 100));
    }
}
