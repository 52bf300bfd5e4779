//! The tokens of exclusive grants of a path rise in the order of the grants.

/// The tokens of one path.
#[derive(Debug)]
pub struct Tokens<T>(Option<T>);

impl<T> Default for Tokens<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Copy + Ord + std::fmt::Debug> Tokens<T> {
    pub fn granted(&mut self, who: u64, token: T) -> Result<(), String> {
        let last = self.0;
        self.0 = last.max(Some(token));
        match last {
            Some(last) if last >= token => {
                Err(format!("{who}'s token {token:?} is not above {last:?}"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_token_that_does_not_rise() {
        let mut tokens = Tokens::default();
        tokens.granted(1, 5).unwrap();
        tokens.granted(2, 6).unwrap();
        tokens.granted(3, 6).unwrap_err();
        tokens.granted(4, 5).unwrap_err();
        tokens.granted(5, 7).unwrap();
    }
}
