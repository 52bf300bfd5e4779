//! Retry policies: when to try again, and when to stop.
//!
//! A policy is a formula. Its inputs are the number of failures so far, the time on a clock that
//! its user keeps, and a random number. Its output is the pause before the next try, or the end of
//! the tries. So a policy has no state, and one value serves for all requests of a client. The
//! table in `session/request/mod.rs` shows which functions repeat by a policy.
//!
//! Two kinds of pauses do not depend on the policy of the user: those of work that is repeated for
//! the life of a session, such as cleanup (`clean_up_pause`), and those of a request that lost to
//! others (`contended_pause`).

use std::time::Duration;

use crate::protocol::failure::FailureKind;

/// How often, and after which pauses, to try again when no server answers.
///
/// The policy applies to
///
/// - replacing a session that has ended, and the first session of a client that
///   [connects lazily](crate::ClientBuilder::connect_lazy), and
/// - repeating a request that failed. The first repetition is sent at once, without the policy's
///   first pause, unless the server asked the client to slow down.
///
/// The clock of the policy starts at the first failure for a call that acquires a lock, and at the
/// call for other requests. The policy does not apply to waiting for a lock that is held, which
/// ends at the deadline of the call. Nor does it apply to
/// [`connect`](crate::ClientBuilder::connect), which makes one attempt: its caller decides whether
/// to call again.
///
/// The names and formulas are Curator's. The default is [`exponential(1 s, 3, 5
/// s)`](Self::exponential), which is Curator's `ExponentialBackoffRetry(1000, 3, 5000)`.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let tick = std::time::Duration::from_millis(50);
/// # let server = zookeeper_test_server::Server::builder().tick(tick).start()?;
/// # let servers = server.connect_string();
/// use std::time::Duration;
/// use zookeeper_recipes::{Client, ErrorKind, InterProcessMutex, RetryPolicy};
///
/// let policy = RetryPolicy::n_times(2, Duration::from_millis(10));
/// let builder = Client::builder().retry_policy(policy);
/// # let builder = builder.session_timeout(tick * 4).connect_timeout(tick * 40);
/// let client = builder.connect(&servers).await?;
/// let mutex = InterProcessMutex::new(&client, "/inventory/sku-42")?;
///
/// // The servers go away. When the session has ended, the client asks for another, and after two
/// // more tries the call fails.
/// # server.stop();
/// let error = mutex.lock().await.unwrap_err();
/// assert_eq!(error.kind(), Some(ErrorKind::Connection));
/// assert!(error.is_retryable());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    formula: Formula,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Formula {
    Exponential {
        base: Duration,
        retries: u32,
        most: Duration,
    },
    Times {
        retries: u32,
        pause: Duration,
    },
    Elapsed {
        most: Duration,
        pause: Duration,
    },
    Forever {
        pause: Duration,
    },
    CleanUp,
}

/// Curator's cap on the exponent: beyond it the random factor would not fit into 32 bits.
const MAX_EXPONENT: u32 = 29;

impl RetryPolicy {
    /// The policy of cleanup, which continues until the session has ended.
    pub(crate) const CLEAN_UP: Self = Self {
        formula: Formula::CleanUp,
    };

    /// Returns a policy of at most `retries` further tries. The pause before the n-th is `base`
    /// times a random whole number from 1 to 2^n - 1, and at most `most`.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use zookeeper_recipes::RetryPolicy;
    ///
    /// // At most 3 more tries: after 1 s, after 1 to 3 s, and after 1 to 5 s (instead of 7).
    /// let policy = RetryPolicy::exponential(Duration::from_secs(1), 3, Duration::from_secs(5));
    /// assert_eq!(policy, RetryPolicy::default());
    /// ```
    #[doc(alias = "ExponentialBackoffRetry")]
    #[doc(alias = "BoundedExponentialBackoffRetry")]
    #[must_use]
    pub const fn exponential(base: Duration, retries: u32, most: Duration) -> Self {
        Self {
            formula: Formula::Exponential {
                base,
                retries,
                most,
            },
        }
    }

    /// Returns a policy of at most `retries` further tries, with the same `pause` before each.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use zookeeper_recipes::RetryPolicy;
    ///
    /// // 5 more tries in 10 s.
    /// let policy = RetryPolicy::n_times(5, Duration::from_secs(2));
    /// # assert_ne!(policy, RetryPolicy::default());
    /// ```
    #[doc(alias = "RetryNTimes")]
    #[must_use]
    pub const fn n_times(retries: u32, pause: Duration) -> Self {
        Self {
            formula: Formula::Times { retries, pause },
        }
    }

    /// Returns a policy of one further try after `pause`.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use zookeeper_recipes::RetryPolicy;
    ///
    /// let pause = Duration::from_millis(500);
    /// assert_eq!(RetryPolicy::one_time(pause), RetryPolicy::n_times(1, pause));
    /// ```
    #[doc(alias = "RetryOneTime")]
    #[must_use]
    pub const fn one_time(pause: Duration) -> Self {
        Self::n_times(1, pause)
    }

    /// Returns a policy of further tries, with the same `pause` before each, until `most` has
    /// passed on the clock of the policy, whose start the page of `RetryPolicy` gives.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use zookeeper_recipes::RetryPolicy;
    ///
    /// // A try each second for a minute.
    /// let policy = RetryPolicy::until_elapsed(Duration::from_secs(60), Duration::from_secs(1));
    /// # assert_ne!(policy, RetryPolicy::default());
    /// ```
    #[doc(alias = "RetryUntilElapsed")]
    #[must_use]
    pub const fn until_elapsed(most: Duration, pause: Duration) -> Self {
        Self {
            formula: Formula::Elapsed { most, pause },
        }
    }

    /// Returns a policy that tries again without a limit, with the same `pause` before each try.
    ///
    /// A call with a deadline still ends at the deadline; a call without one (`lock()`) waits for a
    /// server indefinitely.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let servers = server.connect_string();
    /// use std::time::Duration;
    /// use zookeeper_recipes::{Client, ErrorKind, InterProcessMutex, RetryPolicy};
    ///
    /// let policy = RetryPolicy::forever(Duration::from_millis(10));
    /// let client = Client::builder().retry_policy(policy).connect(&servers).await?;
    /// let mutex = InterProcessMutex::new(&client, "/inventory/sku-42")?;
    ///
    /// # server.stop();
    /// // No server answers: the deadline of the call ends the tries.
    /// let error = mutex.acquire(Duration::from_millis(50)).await.unwrap_err();
    /// assert_eq!(error.kind(), Some(ErrorKind::Connection), "{error}");
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "RetryForever")]
    #[must_use]
    pub const fn forever(pause: Duration) -> Self {
        Self {
            formula: Formula::Forever { pause },
        }
    }

    /// Returns the pause before retry number `retry` (0 is the first). `elapsed` is the time on the
    /// clock of the policy. `None` if the policy is exhausted.
    pub(crate) fn pause(&self, retry: u32, elapsed: Duration) -> Option<Duration> {
        self.pause_with(retry, elapsed, fastrand::u64(..))
    }

    /// Returns the pause before repetition number `failures` of a request (0 is the first).
    /// `elapsed` is the time on the clock of the policy. `None` if the policy is exhausted. The
    /// first repetition is sent at once, unless the server was busy. (The usual failure is a lost
    /// connection, and the client waits for the next connection anyway.)
    pub(crate) fn pause_before_repetition(
        &self,
        failures: u32,
        why: FailureKind,
        elapsed: Duration,
    ) -> Option<Duration> {
        // A busy server has asked for a pause. The pauses of cleanup are short, and begin with the
        // first failure (docs/protocol.md#cleanup).
        let at_once =
            failures == 0 && why != FailureKind::NotNow && self.formula != Formula::CleanUp;
        let pause = self.pause(failures, elapsed)?;
        Some(if at_once { Duration::ZERO } else { pause })
    }

    fn pause_with(&self, retry: u32, elapsed: Duration, random: u64) -> Option<Duration> {
        let pause = match self.formula {
            Formula::Exponential {
                base,
                retries,
                most,
            } => (retry < retries).then(|| {
                // The factor is 1 for both 0 and 1, as in Curator.
                let bound = 1_u32 << (retry.min(MAX_EXPONENT) + 1);
                let factor = u32::try_from(random % u64::from(bound))
                    .unwrap_or(u32::MAX)
                    .max(1);
                base.saturating_mul(factor).min(most)
            }),
            Formula::Times { retries, pause } => (retry < retries).then_some(pause),
            // Only the beginning of a pause is checked, so the last pause may end after the limit.
            Formula::Elapsed { most, pause } => (elapsed < most).then_some(pause),
            Formula::Forever { pause } => Some(pause),
            Formula::CleanUp => Some(clean_up_pause(retry)),
        };
        // Without any pause, the retries would keep a processor core busy for as long as no server
        // answers.
        pause.map(|pause| pause.max(Duration::from_millis(1)))
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self::exponential(Duration::from_secs(1), 3, Duration::from_secs(5))
    }
}

/// Returns the pause after this many failures of what is repeated for the life of a session
/// (cleanup, conversions, elections, persistent nodes): 10 ms, and twice as long each time up to 1
/// s. The requests of a session without a connection are queued, not failed, so a try already takes
/// long while no server is reachable; the pause is for servers that answer without a definite
/// outcome.
pub(crate) fn clean_up_pause(failures: u32) -> Duration {
    // The seventh doubling exceeds a second, and the limit applies from there on.
    Duration::from_millis(10)
        .saturating_mul(1 << failures.min(7))
        .min(Duration::from_secs(1))
}

/// Returns the pause before another try of a request that lost to others in the given number of
/// tries. The pause is random, up to a limit that doubles from 2 ms to 1 s, so that the contenders
/// spread out in time.
pub(crate) fn contended_pause(tries: u32) -> Duration {
    // The exponent stops at ten, which makes the longest pause 1,024 ms.
    Duration::from_millis(1 + fastrand::u64(..1 << tries.min(10)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn contention_pause_is_random_and_bounded() {
        for (tries, most) in [
            (0, 1),
            (1, 2),
            (5, 32),
            (10, 1_024),
            (11, 1_024),
            (u32::MAX, 1_024),
        ] {
            let pauses = || (0..2_000).map(|_| contended_pause(tries).as_millis());
            let (least, longest) = (
                pauses().min().unwrap_or_default(),
                pauses().max().unwrap_or_default(),
            );
            assert!(
                (1..=1 + most / 8).contains(&least),
                "{least} ms after {tries}"
            );
            assert!(
                (most - most / 8..=most).contains(&longest),
                "{longest} ms after {tries}"
            );
        }
    }

    #[test]
    fn first_repetition_is_at_once() {
        let policy = RetryPolicy::n_times(2, S);
        let pause = |failures, why| policy.pause_before_repetition(failures, why, Duration::ZERO);
        assert_eq!(pause(0, FailureKind::Unknown), Some(Duration::ZERO));
        assert_eq!(pause(0, FailureKind::NotNow), Some(S));
        assert_eq!(pause(1, FailureKind::Unknown), Some(S));
        assert_eq!(pause(2, FailureKind::Unknown), None);
        assert_eq!(
            RetryPolicy::CLEAN_UP.pause_before_repetition(0, FailureKind::Unknown, S),
            Some(clean_up_pause(0))
        );
    }

    #[test]
    fn default_is_curators_exponential() {
        assert_eq!(
            RetryPolicy::default(),
            RetryPolicy::exponential(S, 3, 5 * S)
        );
    }

    #[test]
    fn exponential_by_curators_formula() {
        let policy = RetryPolicy::exponential(S, 3, 5 * S);
        // random(2^(n+1)), at least 1, times the base, at most the cap
        assert_eq!(policy.pause_with(0, Duration::ZERO, 0), Some(S));
        assert_eq!(policy.pause_with(0, Duration::ZERO, 1), Some(S));
        assert_eq!(policy.pause_with(1, Duration::ZERO, 3), Some(3 * S));
        assert_eq!(policy.pause_with(2, Duration::ZERO, 4), Some(4 * S));
        assert_eq!(policy.pause_with(2, Duration::ZERO, 7), Some(5 * S));
        assert_eq!(policy.pause_with(3, Duration::ZERO, 0), None);
    }

    #[test]
    fn cleanup_pauses_double_to_a_second() {
        let pauses = [0, 1, 2, 6, 7, u32::MAX].map(|failures| clean_up_pause(failures).as_millis());
        assert_eq!(pauses, [10, 20, 40, 640, 1_000, 1_000]);
    }

    #[test]
    fn pauses_never_overflow() {
        let wild = RetryPolicy::exponential(Duration::MAX, u32::MAX, Duration::MAX);
        assert_eq!(
            wild.pause_with(u32::MAX - 1, Duration::MAX, u64::MAX),
            Some(Duration::MAX)
        );
        assert_eq!(wild.pause_with(u32::MAX, Duration::MAX, u64::MAX), None);
    }

    #[test]
    fn remaining_policies_pause_as_documented() {
        assert_eq!(RetryPolicy::one_time(S).pause(0, 9 * S), Some(S));
        assert_eq!(RetryPolicy::one_time(S).pause(1, S), None);
        assert_eq!(RetryPolicy::n_times(0, S).pause(0, S), None);
        assert_eq!(
            RetryPolicy::until_elapsed(3 * S, S).pause(100, 2 * S),
            Some(S)
        );
        assert_eq!(RetryPolicy::until_elapsed(3 * S, S).pause(0, 3 * S), None);
        assert_eq!(RetryPolicy::forever(S).pause(u32::MAX, 9 * S), Some(S));
        assert_eq!(
            RetryPolicy::forever(Duration::ZERO).pause(0, S),
            Some(Duration::from_millis(1))
        );
    }
}
