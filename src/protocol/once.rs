//! The decisions about a job that runs once per occasion: which run has written a record, and which
//! records are deleted (docs/protocol.md#once-record).
//!
//! A record is a persistent node, which a run creates after its work by a transaction under the
//! lock of the job. Its data are one line: the runner's name, and the fencing token of the run. A
//! transaction without a reply may have happened; the token in the record shows whether it did,
//! because no two runs have the same token. Records accumulate, so runs delete the oldest, some at
//! a time.

/// The separator of the runner's name and the token of the run.
const TOKEN: &str = " token ";

/// Returns the data of a record: one line, with who ran the job and the token of the run.
pub(crate) fn record(by: &str, token: (i64, u64)) -> String {
    // The name may be anything, and a line break in it would make the record more than one line.
    let line: String = by
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    format!("{line}{TOKEN}{}.{}", token.0, token.1)
}

/// Returns the runner's name in a record; the whole record if another program has written it.
pub(crate) fn by(record: &[u8]) -> String {
    // The name may contain the separator, so the last one counts.
    let line = String::from_utf8_lossy(record);
    line.rsplit_once(TOKEN)
        .map_or(&*line, |(by, _)| by)
        .to_owned()
}

/// Returns whether the run with this token has written a record. No two runs have the same token.
pub(crate) fn is_of(record: &[u8], token: (i64, u64)) -> bool {
    let token = format!("{TOKEN}{}.{}", token.0, token.1);
    record.ends_with(token.as_bytes())
}

/// Returns whether `records` are so many more than `keep` that some are to be deleted. Up to a
/// quarter more stay until they are deleted together, so that not every run reads all of them.
pub(crate) fn are_too_many(records: usize, keep: usize) -> bool {
    records > keep + keep / 4
}

/// Returns the names of the records to delete: the oldest, and at most `most`. `records` are some
/// or all that exist, each with the zxid of its creation. The last `keep` of all stay, because each
/// deleted record has at least `keep` later ones.
pub(crate) fn to_prune(mut records: Vec<(i64, String)>, keep: usize, most: usize) -> Vec<String> {
    // The zxids give the order of creation, which the names of occasions need not have.
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
        // The runner's name looks like a record.
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
        // The result does not depend on which records are listed, as long as the oldest are.
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
