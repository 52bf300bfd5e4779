//! The members of a group: none that has certainly left, each with data that it was given, and when
//! all works again exactly the present ones.

use std::collections::{BTreeMap, BTreeSet};

/// The history of the members of a group, by their ids, which are used once. Their data are numbers
/// that rise.
#[derive(Clone, Debug, Default)]
pub struct Members {
    wanted: BTreeMap<String, u64>,
    confirmed: BTreeMap<String, u64>,
    left: BTreeSet<String>,
}

impl Members {
    /// Records that a member is given data.
    pub fn wants(&mut self, id: &str, data: u64) {
        self.wanted.insert(id.to_owned(), data);
    }

    /// Records that a member has confirmed data.
    pub fn has(&mut self, id: &str, data: u64) {
        self.confirmed.insert(id.to_owned(), data);
    }

    /// Records that a member's node was reported as deleted.
    pub fn left(&mut self, id: &str) {
        self.left.insert(id.to_owned());
    }

    /// Checks the members that were found by a look that began at the moment of `before` and ends
    /// now.
    pub fn found(&self, before: &Self, found: &BTreeMap<String, Vec<u8>>) -> Result<(), String> {
        for (id, data) in found {
            let data: Option<u64> = String::from_utf8_lossy(data).parse().ok();
            let (least, most) = (
                before.confirmed.get(id).copied(),
                self.wanted.get(id).copied(),
            );
            if before.left.contains(id) {
                return Err(format!("{id} is a member, and has left"));
            }
            if data.is_none() || data < least || data > most {
                return Err(format!(
                    "{id} has the data {data:?}, and had {least:?} of {most:?}"
                ));
            }
        }
        Ok(())
    }
}

/// Checks that the members are those that are in the group, and no others, when all works.
pub fn exactly(live: &BTreeSet<String>, found: &BTreeSet<String>) -> Result<(), String> {
    if live == found {
        Ok(())
    } else {
        Err(format!(
            "the members are {found:?}, and {live:?} are in the group"
        ))
    }
}

/// Checks that a member with confirmed data finds itself with them.
pub fn has_itself(
    id: &str,
    data: u64,
    found: Option<&BTreeMap<String, Vec<u8>>>,
) -> Result<(), String> {
    match found {
        Some(found)
            if found
                .get(id)
                .is_some_and(|found| *found == data.to_string().as_bytes()) =>
        {
            Ok(())
        }
        found => Err(format!("{id} with the data {data} is not among {found:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(id: &str, data: &str) -> BTreeMap<String, Vec<u8>> {
        BTreeMap::from([(id.to_owned(), data.as_bytes().to_vec())])
    }

    #[test]
    fn flags_old_or_foreign_data() {
        let mut members = Members::default();
        members.wants("a", 1);
        members.has("a", 1);
        let before = members.clone();
        members.wants("a", 2);
        members.found(&before, &found("a", "1")).unwrap();
        members.found(&before, &found("a", "2")).unwrap();
        members.found(&before, &found("a", "3")).unwrap_err();
        members.found(&before, &found("b", "1")).unwrap_err();
        members.has("a", 2);
        members.found(&members, &found("a", "1")).unwrap_err();
    }

    #[test]
    fn flags_member_missing_from_own_view() {
        has_itself("a", 1, Some(&found("a", "1"))).unwrap();
        has_itself("a", 1, Some(&found("a", "0"))).unwrap_err();
        has_itself("a", 1, Some(&found("b", "1"))).unwrap_err();
        has_itself("a", 1, None).unwrap_err();
    }

    #[test]
    fn flags_member_that_left() {
        let mut members = Members::default();
        members.wants("a", 1);
        let before = members.clone();
        members.left("a");
        members.found(&before, &found("a", "1")).unwrap();
        members.found(&members, &found("a", "1")).unwrap_err();
    }

    #[test]
    fn flags_wrong_number_of_members() {
        let ids = |all: &[&str]| all.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
        exactly(&ids(&["a", "b"]), &ids(&["b", "a"])).unwrap();
        exactly(&ids(&["a", "b"]), &ids(&["a"])).unwrap_err();
        exactly(&ids(&["a"]), &ids(&["a", "b"])).unwrap_err();
    }
}
