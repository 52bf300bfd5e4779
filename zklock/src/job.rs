//! A command that runs while a lock is held, and is dead before the servers grant the lock to
//! another process.

use std::ffi::OsString;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::time::sleep;
use zookeeper_recipes::{LockState, Lost, LostReason};

use crate::clock;
use crate::exit::{self, End, Failure, LOST};
use crate::messages::{self, say};
use crate::options::{OnLost, Work};
use crate::signals::{ASK_TO_END, Signals, Stop, until_ended, until_stopped};
use crate::stage;
use crate::target::Target;
use crate::watchdog::{Orders, Watchdog};

/// How long a command may take to end whose lock is free already, because its node was deleted or
/// its session has ended: every moment of it may be one of the next holder's.
const WHEN_FREE: Duration = Duration::from_secs(1);

/// By how much sooner than the session timeout the servers may expire a session: half a tick, since
/// a follower tells its leader only that often which sessions it has heard of. This is that of the
/// default tick of 2 s. A session timeout is two ticks or more.
const HALF_TICK: Duration = Duration::from_secs(1);

/// The exit codes by which a shell tells that it could not run a command, or found none.
const NOT_RUN: [i32; 2] = [126, 127];

/// What people are told when another process has stopped the command.
const IS_STOPPED: &str = "the command is stopped, and keeps the lock: SIGCONT lets it go on";

/// What people are told when the kernel has stopped the command at the terminal.
const WANTS_TERMINAL: &str = "the command is stopped, since it uses the terminal, which it has only with --foreground: ^C, \
     or SIGTERM to zklock, ends the command";

/// What people are told when the system lets this process send no signal to the command.
const OUT_OF_REACH: &str = "the command has the rights of another user, so zklock cannot end it";

/// A variable of the environment, which is removed if it has no value.
pub(crate) type Variable = (&'static str, Option<String>);

/// The session timeout T, and what follows from it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Session(pub(crate) Duration);

impl Session {
    /// Returns when a command has to be dead, if its lock was in this state at that time or later.
    /// The servers have confirmed a lock that is held within the last third of the session timeout,
    /// and one that is not lost within the last two thirds.
    pub(crate) fn deadline(self, at: Duration, state: LockState) -> Duration {
        let stays = match state {
            LockState::Held => self.0 / 3 * 2,
            LockState::Suspended => self.0 / 3,
            _ => Duration::ZERO,
        };
        let margin = HALF_TICK.min(self.0 / 4) + self.0 / 20;
        at + stays.saturating_sub(margin)
    }

    /// How often the deadline is moved.
    fn beat(self) -> Duration {
        self.0 / 60
    }
}

/// How a command ended while the lock was held.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ended {
    /// The command ended by itself, or by a signal.
    Itself(ExitStatus),
    /// `zklock` ended the command because its lease was over.
    LeaseOver,
    /// The watchdog has ended, without which the command must not go on.
    Unwatched,
    /// The watchdog killed the command at the deadline, which this process was too late to move.
    Overdue,
}

impl Ended {
    /// Whether the watchdog may have killed the command: both are dead then, and either may be
    /// noticed first.
    fn is_of_the_watchdog(&self) -> bool {
        match self {
            Self::Itself(status) => is_killed(*status),
            ended => matches!(ended, Self::Unwatched),
        }
    }

    /// Returns how this process ends after such an end of the command.
    pub(crate) fn outcome(&self) -> Result<End, Failure> {
        match self {
            Self::Itself(status) => Ok(exit::of_status(*status)),
            Self::LeaseOver => Err(Failure::new(
                LOST,
                "the lease is over, and the command was ended",
            )),
            Self::Unwatched => Err(Failure::new(
                LOST,
                "the watchdog was killed, and the command with it",
            )),
            Self::Overdue => {
                let text = "zklock did not run for so long that the lock might be lost, and the command was killed";
                Err(Failure::new(LOST, text))
            }
        }
    }
}

/// A command, its watchdog and its deadline.
#[derive(Debug)]
pub(crate) struct Job {
    process: Pid,
    /// Whether this process has let the command begin: its [stage] waits for that.
    is_let_begin: bool,
    /// The signal that asked for the end before SIGHUP followed.
    hung_up: Option<Signal>,
    target: Target,
    watchdog: Watchdog,
    /// Whether the command was asked to end because its lease is over.
    is_lease_over: bool,
    /// The end of the lease and of the time to end after it, beyond which no deadline is, unless
    /// the command is spared at a loss. The watchdog knows it from the start, so that a lease ends
    /// also if this process is stopped.
    end_by: Duration,
    /// Held, and dropped after the watchdog, because only its drop makes the number of the process
    /// free.
    #[expect(dead_code, reason = "held until the job is dropped")]
    command: Child,
}

/// What a job needs to know of the lock.
pub(crate) struct HeldLock<'a> {
    pub(crate) session: Session,
    /// Returns the state of the lock, by the clock.
    pub(crate) state: &'a (dyn Fn() -> LockState + Sync),
    /// After which the command is ended.
    pub(crate) lease: Option<Duration>,
    /// Whether the lock is released at the loss, so that the command has to be killed then.
    pub(crate) is_killed_by_drop: bool,
    /// The environment of the command.
    pub(crate) environment: &'a [Variable],
}

impl HeldLock<'_> {
    /// Returns when the command has to be dead, as far as is known now.
    fn deadline(&self) -> Duration {
        // The clock is read first: a pause between the two does not move the deadline.
        let now = clock::now();
        self.session.deadline(now, (self.state)())
    }
}

impl Job {
    /// Starts a command, and waits until it has ended. Must be polled only while the lock is not
    /// lost. The job is in its place then, for [`finish`](Self::finish), and also if the future is
    /// dropped once the command may begin, for [`lose`](Self::lose) or [`kill`](Self::kill).
    pub(crate) async fn run(
        place: &mut Option<Self>,
        argv: &[OsString],
        work: &Work,
        held: &HeldLock<'_>,
        signals: &mut Signals,
        revoked: impl Future<Output = ()> + Send,
    ) -> Result<Ended, Failure> {
        let job = place.insert(Self::start(argv, work, held).await?);
        let armed = held.is_killed_by_drop.then(|| KillOnDrop(Some(job.target)));
        let ended = job.while_held(work, held, signals, revoked).await?;
        if let Some(armed) = armed {
            armed.disarm();
        }
        Ok(ended)
    }

    /// Starts the command.
    async fn start(argv: &[OsString], work: &Work, held: &HeldLock<'_>) -> Result<Self, Failure> {
        let Some((program, arguments)) = argv.split_first() else {
            return Err(Failure::new(exit::USAGE, "there is no command"));
        };
        stage::check_proc()?;
        let of_watchdog = |error| Failure::system("the watchdog", &error);
        messages::flush();
        let mut watchdog = Watchdog::start().await?;
        let end_by = held.lease.map_or(Duration::MAX, |lease| {
            let time = lease.saturating_add(work.kill_after);
            clock::now().saturating_add(time)
        });
        let deadline = held.deadline().min(end_by);
        watchdog
            .orders
            .kill_at(deadline)
            .await
            .map_err(of_watchdog)?;
        let of_command = |error| Failure::system("the command", &error);
        let mut command = stage::start().map_err(of_command)?;
        if !work.foreground {
            command.process_group(watchdog.group().as_raw_nonzero().get());
        }
        command.arg(program).args(arguments);
        set_environment(&mut command, held.environment);
        let mut command = Command::from(command);
        command.kill_on_drop(true);
        let command = match command.spawn() {
            Ok(command) => command,
            Err(error) => {
                watchdog.stand_down().await;
                return Err(Failure::not_started(&program.to_string_lossy(), &error));
            }
        };
        let id = command.id();
        let Some(process) = id.and_then(|id| Pid::from_raw(id.try_into().ok()?)) else {
            return Err(of_command(std::io::Error::other("it has no number")));
        };
        let target = if work.foreground {
            Target::Foreground(process)
        } else {
            Target::Group {
                group: watchdog.group(),
                command: Some(process),
            }
        };
        let mut job = Self {
            command,
            process,
            is_let_begin: false,
            hung_up: None,
            target,
            watchdog,
            is_lease_over: false,
            end_by,
        };
        // The command begins after this. A watchdog that is gone is noticed once the command is
        // waited for.
        let _ = job.watchdog.orders.set_target(target).await;
        // The runtime looks for signals here, so that those from before the fork come first.
        tokio::task::yield_now().await;
        Ok(job)
    }

    /// Waits until the command has ended. Must be polled only while the lock is not lost.
    async fn while_held(
        &mut self,
        work: &Work,
        held: &HeldLock<'_>,
        signals: &mut Signals,
        revoked: impl Future<Output = ()> + Send,
    ) -> Result<Ended, Failure> {
        let (target, watchdog) = (self.target, self.watchdog.group());
        let mut lease = std::pin::pin!(lease_over(held.lease));
        let begin = Begin {
            process: self.process,
            is_let: &mut self.is_let_begin,
            hung_up: &mut self.hung_up,
        };
        let mut steered = std::pin::pin!(steer(target, begin, work, signals, revoked));
        let ended = loop {
            tokio::select! {
                biased;
                status = until_ended(self.process) => break status.map(Ended::Itself),
                // A watchdog that has ended may never have known the process.
                _ = until_ended(watchdog) => break Ok(Ended::Unwatched),
                () = beat(&mut self.watchdog.orders, self.end_by, held) => {
                    break Ok(Ended::Unwatched);
                }
                () = &mut steered => {}
                () = &mut lease, if !self.is_lease_over => {
                    self.is_lease_over = true;
                    send(target, Signal::TERM);
                }
            }
        };
        let ended = ended.map_err(|error| Failure::system("the command", &error))?;
        let deadline = self.watchdog.orders.deadline();
        Ok(match ended {
            _ if self.is_lease_over => Ended::LeaseOver,
            ended if ended.is_of_the_watchdog() && clock::now() >= deadline => {
                if deadline >= self.end_by {
                    Ended::LeaseOver
                } else {
                    Ended::Overdue
                }
            }
            ended => ended,
        })
    }

    /// Ends the command because the lock is lost, and waits until it is dead. With `warn`, unless
    /// the lease is over, waits until the command has ended, and returns how. Returns `None` if
    /// this process or the watchdog has ended the command.
    pub(crate) async fn lose(
        mut self,
        lost: &Lost,
        work: &Work,
        environment: &[Variable],
        signals: &mut Signals,
    ) -> Result<Option<ExitStatus>, Failure> {
        let mut deadline = self.watchdog.orders.deadline();
        let is_late = clock::now() >= deadline;
        // A process that waits to begin would wait on after any other signal than SIGKILL.
        let is_waiting = is_waiting(self.process, self.is_let_begin);
        let is_spared = matches!(work.on_lost, OnLost::Warn) && !self.is_lease_over;
        let goes_on = is_spared && !is_waiting;
        let mut helper = None;
        match &work.on_lost {
            _ if is_waiting => self.target.send(Signal::KILL),
            OnLost::Term => send(self.target, Signal::TERM),
            OnLost::Kill => send(self.target, Signal::KILL),
            OnLost::Warn if is_spared => deadline = Duration::MAX,
            // The end of the lease has sent SIGTERM.
            OnLost::Warn => {}
            OnLost::Run(text) => match run_helper(text, self.target, environment) {
                Ok(started) => helper = Some(started),
                Err(failure) => {
                    say(&format!("{}; SIGTERM to the command instead", failure.text));
                    send(self.target, Signal::TERM);
                }
            },
        }
        if !goes_on {
            deadline = deadline.min(clock::now().saturating_add(grace(lost, work)));
        }
        // A watchdog that gets no order kills at the deadline that it has.
        let _ = self.watchdog.orders.kill_at(deadline).await;
        let ended = self.end(signals, !goes_on, helper).await?;
        Ok(match ended {
            // A command that has ended already may look as if it were waiting.
            Ended::Itself(status)
                if is_spared && !(is_killed(status) && (is_late || is_waiting)) =>
            {
                Some(status)
            }
            _ => None,
        })
    }

    /// Kills the command, and waits until it is dead.
    pub(crate) async fn kill(self, signals: &mut Signals) -> Result<(), Failure> {
        if self.is_lease_over {
            // SIGTERM was sent before.
            self.target.send(Signal::KILL);
        } else {
            send(self.target, Signal::KILL);
        }
        self.end(signals, true, None).await.map(drop)
    }

    /// Passes signals on until the command has ended, and kills the helper, and what is left of the
    /// groups if that is wanted. Returns whether the command has ended by itself or was killed
    /// because the watchdog was.
    async fn end(
        mut self,
        signals: &mut Signals,
        kills_rest: bool,
        mut helper: Option<Child>,
    ) -> Result<Ended, Failure> {
        let mut is_unwatched = false;
        let status = loop {
            tokio::select! {
                biased;
                status = until_ended(self.process) => break status,
                signal = signals.next() => pass_on(self.target, signal),
                code = not_run(&mut helper) => {
                    say(&format!(
                        "the command of --on-lost ended with {code}; SIGTERM to the command instead"
                    ));
                    self.target.send(Signal::TERM);
                }
                // The watchdog ends together with the command, unless another process has killed
                // the watchdog alone.
                _ = until_ended(self.watchdog.group()), if !is_unwatched => {
                    is_unwatched = true;
                    send(self.target, Signal::KILL);
                }
            }
        };
        // The numbers that the helper knows become free with the job.
        drop(helper);
        if kills_rest {
            self.target.send(Signal::KILL);
        }
        let status = status.map_err(|error| Failure::system("the command", &error));
        let watchdog_died_of = self.watchdog.stand_down().await;
        let status = status?;
        Ok(if is_unwatched || is_same(watchdog_died_of, status) {
            Ended::Unwatched
        } else {
            Ended::Itself(status)
        })
    }

    /// Leaves the processes alone that a command has left in its group when it ended by itself.
    /// Kills the groups of a command that was ended by force. Returns how the command has ended.
    pub(crate) async fn finish(
        place: &mut Option<Self>,
        ended: Ended,
        signals: &mut Signals,
    ) -> Result<Ended, Failure> {
        let Some(mut job) = place.take() else {
            return Ok(ended);
        };
        match ended {
            Ended::Itself(status) => {
                let is_hung_up = status.signal() == Some(Signal::HUP.as_raw());
                let watchdog_died_of = job.watchdog.stand_down().await;
                if is_same(watchdog_died_of, status) {
                    job.target.send(Signal::KILL);
                    return Ok(Ended::Unwatched);
                }
                // A script ends at ^C only if this process dies of that signal, too.
                if let Some(signal) = job.hung_up.filter(|_| is_hung_up) {
                    return Ok(Ended::Itself(ExitStatus::from_raw(signal.as_raw())));
                }
            }
            Ended::LeaseOver | Ended::Unwatched | Ended::Overdue => job.kill(signals).await?,
        }
        Ok(ended)
    }
}

/// Kills a command when it is dropped, and does not wait for its death.
#[derive(Debug)]
struct KillOnDrop(Option<Target>);

impl KillOnDrop {
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        if let Some(target) = self.0 {
            target.send(Signal::KILL);
        }
    }
}

/// Waits until a helper has ended that its shell could not run, and returns its exit code. Any
/// other helper has done what it was written for.
async fn not_run(helper: &mut Option<Child>) -> i32 {
    if let Some(started) = helper {
        let code = started.wait().await.ok().and_then(|status| status.code());
        *helper = None;
        if let Some(code) = code.filter(|code| NOT_RUN.contains(code)) {
            return code;
        }
    }
    std::future::pending().await
}

/// Sends a signal that ends a command, and tells people if the command cannot be reached.
fn send(target: Target, signal: Signal) {
    if !target.is_in_reach() {
        say(OUT_OF_REACH);
    }
    target.send(signal);
}

/// Sends a signal that this process got, unless the terminal has sent it to the command, too.
fn pass_on(target: Target, signal: Signal) {
    if target.is_sent_by_terminal(signal) {
        return;
    }
    if ASK_TO_END.contains(&signal) {
        send(target, signal);
    } else {
        target.send(signal);
    }
}

/// How long the command has to end after the loss, if its deadline is not sooner.
fn grace(lost: &Lost, work: &Work) -> Duration {
    match lost.reason() {
        LostReason::SessionExpired | LostReason::SessionReplaced | LostReason::NodeDeleted => {
            work.kill_after.min(WHEN_FREE)
        }
        _ => work.kill_after,
    }
}

/// Returns whether a process has died of SIGKILL.
fn is_killed(status: ExitStatus) -> bool {
    status.signal() == Some(Signal::KILL.as_raw())
}

/// Returns whether a command has died of the signal of which its watchdog has died, if of any: a
/// command that kills its group kills its watchdog, too.
fn is_same(watchdog_died_of: Option<i32>, status: ExitStatus) -> bool {
    watchdog_died_of.is_some() && watchdog_died_of == status.signal()
}

/// A command whose process waits to begin until the watchdog knows the process.
struct Begin<'a> {
    process: Pid,
    is_let: &'a mut bool,
    hung_up: &'a mut Option<Signal>,
}

impl Begin<'_> {
    /// Lets the command begin when its process has stopped for that. Returns whether this was such
    /// a stop: another process may stop the process before, and continue it.
    fn on_stop(&mut self) -> bool {
        let is_waiting = is_waiting(self.process, *self.is_let);
        *self.is_let = true;
        if is_waiting {
            let _ = kill_process(self.process, Signal::CONT);
        }
        is_waiting
    }
}

/// Returns whether a process is still to become its command. If the system does not tell, the first
/// stop that this process has seen is the one before the begin.
fn is_waiting(process: Pid, is_let_begin: bool) -> bool {
    stage::is_stage(process).unwrap_or(!is_let_begin)
}

/// Lets the command begin, and passes on signals and one request for the lock, for as long as this
/// is polled.
///
/// The kernel stops a command that uses the terminal without having it, and again when the command
/// continues. A shell ends there by SIGHUP alone, so a command that was asked to end and stops gets
/// that, too.
async fn steer(
    target: Target,
    mut begin: Begin<'_>,
    work: &Work,
    signals: &mut Signals,
    revoked: impl Future<Output = ()> + Send,
) {
    let mut revoked = std::pin::pin!(revoked);
    let (mut is_revoked, mut asked_by) = (false, None);
    // Each kind of stop is reported once.
    let mut reported = (false, false);
    let is_background = matches!(target, Target::Group { .. });
    loop {
        tokio::select! {
            biased;
            // Signals come first: those from before the begin go to the command in any case, since
            // the terminal sent them to a group that the command may not have been in yet.
            signal = signals.next() => {
                if ASK_TO_END.contains(&signal) {
                    asked_by = Some(signal);
                }
                if is_waiting(begin.process, *begin.is_let) {
                    target.send(signal);
                } else {
                    pass_on(target, signal);
                }
            }
            () = &mut revoked, if !is_revoked => {
                (is_revoked, asked_by) = (true, Some(Signal::TERM));
                work.say("another process asks for the lock: SIGTERM to the command");
                send(target, Signal::TERM);
            }
            stop = until_stopped(begin.process) => match stop {
                _ if begin.on_stop() || !is_background => {}
                Stop::ByTerminal if asked_by.is_some() => {
                    *begin.hung_up = asked_by.take();
                    target.send(Signal::HUP);
                }
                Stop::ByTerminal if !std::mem::replace(&mut reported.0, true) => say(WANTS_TERMINAL),
                Stop::ByProcess if !std::mem::replace(&mut reported.1, true) => say(IS_STOPPED),
                _ => {}
            },
        }
    }
}

/// Waits for the end of a lease.
pub(crate) async fn lease_over(lease: Option<Duration>) {
    match lease {
        Some(lease) => clock::until(clock::now().saturating_add(lease)).await,
        None => std::future::pending().await,
    }
}

/// Moves the deadline for as long as the lock is held; returns when the watchdog is gone.
async fn beat(orders: &mut Orders, end_by: Duration, held: &HeldLock<'_>) {
    loop {
        sleep(held.session.beat()).await;
        let proved = held.deadline();
        // A deadline that has passed stays, since the command is killed at it: by the thread of
        // this process, or by a watchdog that reads a later order too late.
        if clock::now() >= orders.deadline() {
            return std::future::pending().await;
        }
        let next = orders.deadline().max(proved).min(end_by);
        if orders.kill_at(next).await.is_err() {
            return;
        }
    }
}

fn set_environment(command: &mut std::process::Command, environment: &[Variable]) {
    for (name, value) in environment {
        match value {
            Some(value) => command.env(name, value),
            // The variable may be of a lock around this one.
            None => command.env_remove(name),
        };
    }
}

/// Runs the user's command for a loss, which is killed when it is dropped.
fn run_helper(text: &str, target: Target, environment: &[Variable]) -> Result<Child, Failure> {
    let mut command = Command::new("/bin/sh");
    set_environment(command.as_std_mut(), environment);
    command
        .arg("-c")
        .arg(text)
        .env("ZKLOCK_PID", target.of_kill())
        .kill_on_drop(true);
    // Standard output is the command's alone.
    command.stdin(Stdio::null()).stdout(std::io::stderr());
    command
        .spawn()
        .map_err(|error| Failure::system("the command of --on-lost", &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The servers may expire a session half a tick before its timeout.
    #[test]
    fn ten_ticks_leave_a_second() {
        for tick in 1..=10 {
            let tick = Duration::from_secs(tick);
            let timeout = tick * 10;
            let deadline = Session(timeout).deadline(Duration::ZERO, LockState::Held);
            // A lock that is held was confirmed within the last third.
            let expires = timeout / 3 * 2 - tick / 2;
            assert!(deadline + Duration::from_millis(999) < expires, "{tick:?}");
        }
    }
}
