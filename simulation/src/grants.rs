//! The grants of callers, and their owners.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use zookeeper_recipes::{
    AnyGuard, FencingToken, LeaderSelector, Leadership, LockState, Lost, MultiLockGuard, ReadGuard,
    ReleaseError, SemaphorePermit, Token, Transaction, TransactionError, WriteGuard,
};

use crate::check::exclusion::{Guard, Share};
use crate::check::leases;
use crate::world::Machine;

/// The grant of a caller.
pub enum Held {
    Lock(AnyGuard),
    Read(ReadGuard),
    Write(WriteGuard),
    Permit(SemaphorePermit),
    Multi(MultiLockGuard),
    Term(Leadership),
    /// The work of a selector, which is dropped when its term is lost.
    Selected(LeaderSelector, FencingToken),
    /// The run of a job, which is dropped when its lock is lost.
    Run(FencingToken),
}

/// Runs the same code on each guard, and other code on a grant without a guard.
macro_rules! each {
    ($held:expr, $guard:ident => $what:expr, $other:ident => $otherwise:expr) => {
        match $held {
            Held::Lock($guard) => $what,
            Held::Read($guard) => $what,
            Held::Write($guard) => $what,
            Held::Permit($guard) => $what,
            Held::Multi($guard) => $what,
            $other => $otherwise,
        }
    };
}

fn numbers(token: FencingToken) -> (i64, u64) {
    (token.zxid(), token.counter())
}

impl Held {
    /// Returns whether the grant is held, by the clock. A run cannot tell, because it is dropped at
    /// a loss.
    pub fn is_held(&self) -> bool {
        each!(self, guard => guard.is_held(), other => match other {
            Held::Term(term) => term.is_held(),
            Held::Selected(selector, _) => selector.has_leadership(),
            _ => true,
        })
    }

    /// Returns the state that the guard reports; `None` if the grant has no guard.
    pub fn state(&self) -> Option<LockState> {
        each!(self, guard => Some(guard.state()), _other => None)
    }

    /// Waits until the grant is lost. A grant that is dropped then is not notified.
    pub async fn lost(&self) -> Lost {
        each!(self, guard => guard.lost().await, other => match other {
            Held::Term(term) => term.lost().await,
            _ => std::future::pending().await,
        })
    }

    pub async fn release(self) -> Result<(), ReleaseError> {
        each!(self, guard => guard.release().await, _other => Ok(()))
    }

    /// Returns a transaction under the grant; `None` if the grant has no transactions.
    pub fn transaction(&self) -> Option<Transaction<'_>> {
        each!(self, guard => Some(guard.transaction()), other => match other {
            Held::Term(term) => Some(term.transaction()),
            _ => None,
        })
    }

    pub async fn get_data(
        &self,
        path: &str,
    ) -> Option<Result<Option<(Vec<u8>, i32)>, TransactionError>> {
        Some(
            each!(self, guard => guard.get_data(path).await, other => match other {
                Held::Term(term) => term.get_data(path).await,
                _ => return None,
            }),
        )
    }

    /// Returns the tokens that rise from one grant to the next, of each of its paths that it has
    /// alone.
    pub fn tokens(&self) -> Vec<Option<(i64, u64)>> {
        match self {
            Self::Lock(guard) => vec![Some((
                guard.fencing_token().zxid(),
                guard.fencing_token().counter(),
            ))],
            Self::Write(guard) => vec![Some(numbers(guard.fencing_token()))],
            Self::Term(term) => vec![Some(numbers(term.fencing_token()))],
            Self::Selected(_, token) | Self::Run(token) => vec![Some(numbers(*token))],
            Self::Read(_) | Self::Permit(_) => vec![None],
            Self::Multi(guard) => {
                let exclusive = |token| match token {
                    Token::Write(token) => Some(numbers(token)),
                    Token::Read(_) => None,
                };
                guard.fencing_tokens().into_iter().map(exclusive).collect()
            }
        }
    }

    /// Returns the tokens for resources, one for each path.
    pub fn shows(&self) -> Vec<Option<Token>> {
        match self {
            Self::Lock(guard) => vec![Some(guard.fencing_token())],
            Self::Read(guard) => vec![Some(guard.fencing_token().into())],
            Self::Write(guard) => vec![Some(guard.fencing_token().into())],
            Self::Term(term) => vec![Some(term.fencing_token().into())],
            Self::Selected(_, token) | Self::Run(token) => vec![Some((*token).into())],
            // Permits do not exclude each other.
            Self::Permit(_) => vec![None],
            Self::Multi(guard) => guard.fencing_tokens().into_iter().map(Some).collect(),
        }
    }

    /// Returns the nodes of the grant, as far as it knows them.
    pub fn nodes(&self) -> Vec<String> {
        match self {
            Self::Lock(guard) => vec![guard.node().to_string()],
            Self::Read(guard) => vec![guard.node().to_string()],
            Self::Write(guard) => vec![guard.node().to_string()],
            Self::Term(term) => vec![term.node().to_string()],
            Self::Permit(permit) => permit.nodes().iter().map(ToString::to_string).collect(),
            Self::Multi(guard) => guard.nodes().iter().map(ToString::to_string).collect(),
            Self::Selected(..) | Self::Run(_) => Vec::new(),
        }
    }

    /// Sets a lease; returns `None` if the grant cannot have one.
    pub fn set_lease(&self, lease: Duration) -> Option<Result<(), Lost>> {
        each!(self, guard => Some(guard.set_lease(lease)), _other => None)
    }

    /// Returns another guard of the same hold.
    pub fn reenter(&self) -> Option<Result<Self, Lost>> {
        match self {
            Self::Lock(guard) => Some(guard.reenter().map(Self::Lock)),
            Self::Read(guard) => Some(guard.reenter().map(Self::Read)),
            Self::Write(guard) => Some(guard.reenter().map(Self::Write)),
            Self::Multi(guard) => Some(guard.reenter().map(Self::Multi)),
            _ => None,
        }
    }

    /// Waits until another process asks for the lock.
    pub async fn revoked(&self) {
        each!(self, guard => guard.revoked().await, _other => std::future::pending().await);
    }

    pub fn slots(&self) -> Vec<u32> {
        match self {
            Self::Permit(permit) => permit.slots(),
            _ => Vec::new(),
        }
    }

    pub fn permits(&self) -> u32 {
        match self {
            Self::Permit(permit) => permit.num_permits(),
            _ => 1,
        }
    }
}

/// A path that a grant is of.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    pub place: usize,
    pub share: Share,
    /// The number of the last exclusive grant of the path, up to this one.
    pub number: u64,
}

/// A grant, and its owner.
pub struct Grant {
    pub who: u64,
    pub held: Held,
    pub machine: Arc<Machine>,
    /// The paths of the grant: several of a multi-lock.
    pub parts: Vec<Part>,
    pub nodes: Vec<String>,
    /// Whether another process has deleted the grant's node. The holder is notified with the next
    /// heartbeat, and may hold the lock together with others until then: RELIABILITY.md promises no
    /// more.
    pub is_broken: AtomicBool,
    pub granted: u64,
    /// Whether it was held when its caller learned of it, by nodes that no other process had
    /// deleted: then the grant follows all earlier ones.
    pub counts: bool,
    /// Whether the caller was notified of the loss.
    pub is_told: AtomicBool,
    /// Whether the grant was suspended at the last look.
    pub is_suspended: AtomicBool,
    /// Since when it waits to be asked to stop; 0 if it does not.
    pub listens: AtomicU64,
    /// When the lease ends that its caller has set.
    pub lease_end: Mutex<Option<leases::End>>,
}

impl Grant {
    pub fn into_held(self) -> Held {
        self.held
    }
}

impl Guard for Arc<Grant> {
    fn is_held(&self) -> bool {
        let may_act = match &self.held {
            // Dropped when the task is polled, which a frozen one is not.
            Held::Run(_) => !self.machine.executor.is_frozen(),
            held => held.is_held(),
        };
        !self.machine.is_dead() && !self.is_broken.load(Ordering::Relaxed) && may_act
    }

    fn show(&self) -> String {
        format!(
            "{:?} {:?} of {}",
            self.held.state(),
            self.nodes,
            self.machine.number
        )
    }
}
