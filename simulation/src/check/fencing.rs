//! A resource that compares fencing tokens accepts nothing of an earlier holder after a later one
//! has been there, and refuses nothing of a holder if no later one has been there.
//!
//! Holders are known by the numbers of their grants: an exclusive one has its own, and one that
//! shares has that of the last exclusive grant before its own.

/// The highest grants whose writes the resource of one path has accepted.
#[derive(Debug, Default)]
pub struct FencedResource {
    /// The highest grant of exclusive holders.
    alone: Option<u64>,
    /// The highest grant of holders that share.
    shared: Option<u64>,
}

impl FencedResource {
    /// Checks the resource's answer to a holder that has shown its token.
    pub fn shown(
        &mut self,
        who: u64,
        number: u64,
        is_alone: bool,
        is_accepted: bool,
    ) -> Result<(), String> {
        let behind = self.alone.filter(|other| *other > number);
        // A sharing grant with the number of an exclusive grant was made after that.
        let behind = behind.or_else(|| self.shared.filter(|other| is_alone && *other >= number));
        match (behind, is_accepted) {
            (Some(other), true) => Err(format!(
                "{who} of the grant {number} was let in by its token behind one of {other}"
            )),
            (None, false) => Err(format!(
                "{who} of the grant {number} was refused for its token, and no later one was let in"
            )),
            (_, false) => Ok(()),
            (None, true) => {
                let highest = if is_alone {
                    &mut self.alone
                } else {
                    &mut self.shared
                };
                *highest = (*highest).max(Some(number));
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_write_of_former_holder() {
        let mut fenced = FencedResource::default();
        fenced.shown(1, 1, true, true).unwrap();
        fenced.shown(2, 2, true, true).unwrap();
        fenced.shown(1, 1, true, false).unwrap();
        fenced.shown(1, 1, true, true).unwrap_err();
        fenced.shown(2, 2, true, true).unwrap();
    }

    #[test]
    fn flags_refusal_of_latest_holder() {
        let mut fenced = FencedResource::default();
        fenced.shown(1, 1, true, true).unwrap();
        fenced.shown(2, 2, true, false).unwrap_err();
        fenced.shown(3, 1, false, false).unwrap_err();
    }

    #[test]
    fn next_exclusive_holder_fences_sharers() {
        let mut fenced = FencedResource::default();
        fenced.shown(1, 1, true, true).unwrap();
        fenced.shown(2, 1, false, true).unwrap();
        fenced.shown(3, 1, false, true).unwrap();
        fenced.shown(1, 1, true, true).unwrap_err();
        fenced.shown(1, 1, true, false).unwrap();
        fenced.shown(4, 2, true, true).unwrap();
        fenced.shown(2, 1, false, false).unwrap();
        fenced.shown(2, 1, false, true).unwrap_err();
    }
}
