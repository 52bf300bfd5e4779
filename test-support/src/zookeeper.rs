//! Real ZooKeeper servers as child processes.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fmt::{self, Write as _};
use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tempfile::TempDir;

use crate::peers::{self, Missing, ZooKeeperPeer};
use crate::poll::{TimedOut, poll_until};
use crate::ports::{BLOCK, Ports};
use crate::watchdog::{Watchdog, own_group};

/// The time within which servers must serve. A Java virtual machine starts in under a second; the
/// limit allows for a busy machine.
const START_LIMIT: Duration = Duration::from_secs(120);
/// How many blocks of ports to try when another process takes one of ours in between.
const ATTEMPTS: usize = 3;
/// A client port, a quorum port, an election port, and one for clients with TLS.
const PORTS_PER_MEMBER: u16 = 4;
/// The number of lines of a log that an error contains.
const LOG_LINES: usize = 60;

#[derive(Clone)]
struct QuorumAddr(Arc<dyn Fn(usize, usize, SocketAddr) -> SocketAddr + Send + Sync>);

impl fmt::Debug for QuorumAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("QuorumAddr")
    }
}

/// How servers are configured. The defaults suit tests: a tick of 200 ms, sessions from 400 ms (two
/// ticks) to a minute, extended types on, all four-letter words, no sync to disk.
#[derive(Clone, Debug)]
pub struct Options {
    tick: Duration,
    init_limit: u32,
    sync_limit: u32,
    max_session: Duration,
    container_check: Option<Duration>,
    jvm_args: Vec<String>,
    settings: Vec<(String, String)>,
    directory: Option<PathBuf>,
    quorum_addr: Option<QuorumAddr>,
    secure: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            tick: Duration::from_millis(200),
            init_limit: 50,
            sync_limit: 25,
            max_session: Duration::from_secs(60),
            container_check: None,
            jvm_args: Vec::new(),
            settings: Vec::new(),
            directory: None,
            quorum_addr: None,
            secure: false,
        }
    }
}

impl Options {
    /// Returns the defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `tickTime`: the unit of the limits, and of the times at which sessions expire. Default
    /// 200 ms.
    #[must_use]
    pub fn tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self
    }

    /// Sets `initLimit`, in ticks: how long a follower may take to catch up with a new leader.
    /// Default 50.
    #[must_use]
    pub fn init_limit(mut self, ticks: u32) -> Self {
        self.init_limit = ticks;
        self
    }

    /// Sets `syncLimit`, in ticks: how long leader and followers tolerate silence. Default 25,
    /// which is 5 s. A lower limit replaces a stopped leader sooner, but also mistakes a busy
    /// leader for a stopped one sooner.
    #[must_use]
    pub fn sync_limit(mut self, ticks: u32) -> Self {
        self.sync_limit = ticks;
        self
    }

    /// Sets `maxSessionTimeout`. Default: one minute.
    #[must_use]
    pub fn max_session_timeout(mut self, timeout: Duration) -> Self {
        self.max_session = timeout;
        self
    }

    /// Sets `znode.container.checkIntervalMs`: how often empty containers and old TTL nodes are
    /// deleted. ZooKeeper's default is a minute.
    #[must_use]
    pub fn container_check(mut self, interval: Duration) -> Self {
        self.container_check = Some(interval);
        self
    }

    /// Adds an argument for the Java virtual machine.
    #[must_use]
    pub fn jvm_arg(mut self, arg: impl Into<String>) -> Self {
        self.jvm_args.push(arg.into());
        self
    }

    /// Adds a line to `zoo.cfg`; keys that the server does not know become `zookeeper.*`
    /// properties.
    #[must_use]
    pub fn setting(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((key.into(), value.into()));
        self
    }

    /// Sets `secureClientPort`: a second port, for clients with TLS
    /// ([`ZooKeeper::secure_address`]). The certificates are set by [`setting`](Self::setting).
    /// Default: no such port.
    #[must_use]
    pub fn secure_port(mut self) -> Self {
        self.secure = true;
        self
    }

    /// Sets the directory in which the servers' data and logs are kept, in a new subdirectory.
    /// Default: the system's directory for temporary files.
    #[must_use]
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// Configures member `viewer` with a quorum address of member `target` other than the real one,
    /// so that a proxy can be placed between them. Call this once per pair, before the servers
    /// start. Members are numbered from 0.
    ///
    /// Votes go to a member's real election address, and so bypass the proxy; quorum connections
    /// always pass through it.
    #[must_use]
    pub fn quorum_addr(
        mut self,
        view: impl Fn(usize, usize, SocketAddr) -> SocketAddr + Send + Sync + 'static,
    ) -> Self {
        self.quorum_addr = Some(QuorumAddr(Arc::new(view)));
        self
    }
}

/// The mode that a server reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The only server.
    Standalone,
    /// The member of an ensemble that orders writes.
    Leader,
    /// A member that votes.
    Follower,
}

/// The error of servers that could not be started, or that did not do what a call requested.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServerError {
    /// ZooKeeper is not installed on this machine.
    Missing(Missing),
    /// The operating system returned an error.
    Io(io::Error),
    /// A server did not reach the expected state; the text ends with the end of the server's log.
    Failed(String),
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(e) => e.fmt(f),
            Self::Io(e) => e.fmt(f),
            Self::Failed(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for ServerError {}

impl From<Missing> for ServerError {
    fn from(e: Missing) -> Self {
        Self::Missing(e)
    }
}

impl From<io::Error> for ServerError {
    fn from(e: io::Error) -> Self {
        Self::Io(e)
    }
}

impl From<TimedOut> for ServerError {
    fn from(e: TimedOut) -> Self {
        Self::Failed(e.to_string())
    }
}

/// One standalone server or the members of an ensemble, numbered from 0.
///
/// Dropping the value kills the servers and deletes their data. While a test panics, data and logs
/// are kept and their directory is printed. If this process ends without the drop, a watchdog kills
/// the servers and deletes their data.
#[derive(Debug)]
pub struct ZooKeeper {
    // The order of the fields is the order of their drops: the watchdog would kill by process id,
    // so it ends after the servers are reaped and before the directory is deleted.
    members: Vec<Member>,
    watchdog: Mutex<Watchdog>,
    dir: Option<TempDir>,
    peer: ZooKeeperPeer,
    options: Options,
    _ports: Ports,
}

#[derive(Debug)]
struct Member {
    dir: PathBuf,
    client: SocketAddr,
    secure: SocketAddr,
    /// The address at which followers reach the leader, for proposals, acknowledgements and pings.
    quorum: SocketAddr,
    /// The address for the exchange of votes.
    election: SocketAddr,
    process: Mutex<Process>,
}

#[derive(Debug, Default)]
struct Process {
    child: Option<Child>,
    paused: bool,
}

impl ZooKeeper {
    /// Starts one server and waits until it serves.
    ///
    /// # Errors
    /// [`ServerError::Missing`] if ZooKeeper is not installed; otherwise an error with the log.
    pub fn standalone(options: &Options) -> Result<Self, ServerError> {
        Self::start_all(1, options)
    }

    /// Starts `size` servers and waits until all of them serve under one leader.
    ///
    /// # Errors
    /// [`ServerError::Missing`] if ZooKeeper is not installed; otherwise an error with the logs.
    pub fn ensemble(size: usize, options: &Options) -> Result<Self, ServerError> {
        Self::start_all(size, options)
    }

    fn start_all(size: usize, options: &Options) -> Result<Self, ServerError> {
        let peer = peers::zookeeper()?;
        let mut attempt = 1;
        loop {
            let servers = Self::prepare(size, &peer, options)?;
            match servers.start_and_wait() {
                Ok(()) => return Ok(servers),
                Err(_) if attempt < ATTEMPTS && servers.lost_a_port() => attempt += 1,
                Err(e) => return Err(e),
            }
        }
    }

    fn prepare(size: usize, peer: &ZooKeeperPeer, options: &Options) -> Result<Self, ServerError> {
        let most = usize::from((BLOCK - 1) / PORTS_PER_MEMBER);
        let size = match u16::try_from(size) {
            Ok(n) if (1..=most).contains(&size) => n,
            _ => {
                return Err(ServerError::Failed(format!(
                    "an ensemble has 1 to {most} members, not {size}"
                )));
            }
        };
        let parent = options.directory.clone().unwrap_or_else(env::temp_dir);
        let dir = tempfile::Builder::new()
            .prefix("zookeeper-")
            .tempdir_in(parent)?;
        let ports = Ports::take()?;
        let local = |index| SocketAddr::from((Ipv4Addr::LOCALHOST, ports.port(index)));
        let members: Vec<_> = (0..size)
            .map(|i| Member {
                dir: dir.path().join(format!("member-{i}")),
                client: local(PORTS_PER_MEMBER * i),
                secure: local(PORTS_PER_MEMBER * i + 3),
                quorum: local(PORTS_PER_MEMBER * i + 1),
                election: local(PORTS_PER_MEMBER * i + 2),
                process: Mutex::default(),
            })
            .collect();
        for (viewer, member) in members.iter().enumerate() {
            fs::create_dir_all(member.dir.join("data"))?;
            fs::write(member.dir.join("data/myid"), format!("{}\n", viewer + 1))?;
            fs::write(
                member.dir.join("zoo.cfg"),
                config(viewer, &members, options),
            )?;
        }
        let watchdog = Mutex::new(Watchdog::start(dir.path())?);
        let (peer, options) = (peer.clone(), options.clone());
        Ok(Self {
            members,
            watchdog,
            dir: Some(dir),
            peer,
            options,
            _ports: ports,
        })
    }

    fn start_and_wait(&self) -> Result<(), ServerError> {
        for member in 0..self.len() {
            self.start(member)?;
        }
        for member in 0..self.len() {
            self.wait_serving(member)?;
        }
        // The first member may have lost its leader during the wait for the last.
        self.wait_whole()
    }

    /// Returns whether a server ended because another process used its port.
    fn lost_a_port(&self) -> bool {
        (0..self.len())
            .any(|m| !self.is_running(m) && self.log(m).contains("Address already in use"))
    }

    /// Returns how many members there are.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "there is always one")]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns the members' client addresses as a connect string: `127.0.0.1:20001,127.0.0.1:..`.
    #[must_use]
    pub fn connect_string(&self) -> String {
        let addresses: Vec<_> = self.members.iter().map(|m| m.client.to_string()).collect();
        addresses.join(",")
    }

    /// Returns where a member serves clients.
    ///
    /// # Panics
    /// If there is no such member. The same holds for every function that takes a member.
    #[must_use]
    pub fn address(&self, member: usize) -> SocketAddr {
        self.members[member].client
    }

    /// Returns the address at which a member serves clients with TLS, if [`Options::secure_port`]
    /// was set.
    #[must_use]
    pub fn secure_address(&self, member: usize) -> SocketAddr {
        self.members[member].secure
    }

    /// Returns the version of ZooKeeper, if the jar's name contains it.
    #[must_use]
    pub fn version(&self) -> Option<&str> {
        self.peer.version.as_deref()
    }

    /// Returns the options with which the servers were started.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns the process id of a running member.
    #[must_use]
    pub fn pid(&self, member: usize) -> Option<u32> {
        self.process(member).child.as_ref().map(Child::id)
    }

    /// Returns whether the process of a member exists, paused or not.
    #[must_use]
    pub fn is_running(&self, member: usize) -> bool {
        let mut process = self.process(member);
        process
            .child
            .as_mut()
            .is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Returns everything that a member has logged, over all its starts.
    #[must_use]
    pub fn log(&self, member: usize) -> String {
        fs::read(self.members[member].dir.join("log"))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Starts a member that is not running, without waiting until it serves;
    /// [`restart`](Self::restart) waits.
    ///
    /// # Errors
    /// Returns an error if the process cannot be started.
    pub fn start(&self, member: usize) -> Result<(), ServerError> {
        let mut process = self.process(member);
        if process.child.is_some() {
            return Ok(());
        }
        let dir = &self.members[member].dir;
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(dir.join("log"))?;
        let mut command = Command::new(&self.peer.java);
        command
            .args(["-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"])
            .arg("-Djava.net.preferIPv4Stack=true")
            .arg("-Dorg.slf4j.simpleLogger.showDateTime=true")
            .arg("-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS")
            .args(self.properties())
            .args(&self.options.jvm_args)
            .args([
                "-cp",
                &self.peer.classpath,
                "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            ])
            .arg(dir.join("zoo.cfg"))
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        own_group(&mut command);
        *process = Process {
            child: Some(command.spawn()?),
            paused: false,
        };
        drop(process);
        self.tell_watchdog();
        Ok(())
    }

    /// Kills a member at once, as a power cut would; data that it had written stays.
    pub fn kill(&self, member: usize) {
        let child = {
            let mut process = self.process(member);
            process.paused = false;
            process.child.take()
        };
        if let Some(mut child) = child {
            // The process may have just ended by itself, which is not an error here.
            let _ = child.kill();
            // The watchdog is updated before another process can have the same id.
            self.tell_watchdog();
            let _ = child.wait();
        }
    }

    /// Kills a member if it runs, starts it on the same data and ports and waits until it serves.
    ///
    /// # Errors
    /// Returns an error if the member does not serve, which needs a quorum.
    pub fn restart(&self, member: usize) -> Result<(), ServerError> {
        self.kill(member);
        self.start(member)?;
        self.wait_serving(member).map(drop)
    }

    /// Pauses the process of a member (`SIGSTOP`): its connections stay open, but it answers
    /// nothing.
    ///
    /// # Errors
    /// Returns an error if the member does not run or does not stop.
    pub fn pause(&self, member: usize) -> Result<(), ServerError> {
        let mut process = self.process(member);
        let pid = signal(&process, "STOP")?;
        // The signal may not have taken effect when `kill` returns, so this waits until the process
        // has stopped.
        if let Some(stopped) = is_stopped(pid) {
            if !stopped {
                poll_until("a process to stop", Duration::from_secs(10), || {
                    is_stopped(pid).unwrap_or(true).then_some(())
                })?;
            }
        }
        process.paused = true;
        Ok(())
    }

    /// Lets a paused member continue (`SIGCONT`).
    ///
    /// # Errors
    /// Returns an error if the member does not run.
    pub fn resume(&self, member: usize) -> Result<(), ServerError> {
        let mut process = self.process(member);
        signal(&process, "CONT")?;
        process.paused = false;
        Ok(())
    }

    /// Returns the answer of a member to a four-letter word such as `wchp`, `mntr` or `cons`.
    ///
    /// # Errors
    /// Returns an error if the member cannot be reached or does not answer within 20 s.
    pub fn four_letter(&self, member: usize, word: &str) -> io::Result<String> {
        four_letter(self.address(member), word, Duration::from_secs(20))
    }

    /// Returns the watches that a member's clients have set, by path: the sessions (`0x..`) that
    /// watch it.
    ///
    /// # Errors
    /// The errors are those of [`four_letter`](Self::four_letter).
    pub fn watches(&self, member: usize) -> io::Result<BTreeMap<String, BTreeSet<String>>> {
        Ok(by_path(&self.four_letter(member, "wchp")?))
    }

    /// Returns the mode of a member; `None` while it does not serve.
    #[must_use]
    pub fn mode(&self, member: usize) -> Option<Mode> {
        let process = self.process(member);
        if process.child.is_none() || process.paused {
            return None;
        }
        drop(process);
        let answer = four_letter(self.address(member), "srvr", Duration::from_secs(10)).ok()?;
        match answer
            .lines()
            .find_map(|line| line.strip_prefix("Mode: "))?
            .trim()
        {
            "standalone" => Some(Mode::Standalone),
            "leader" => Some(Mode::Leader),
            "follower" => Some(Mode::Follower),
            _ => None,
        }
    }

    /// Returns the member that currently reports that it leads, if any. Paused members are not
    /// asked. On a busy machine there may be none for a moment: [`wait_leader`](Self::wait_leader).
    #[must_use]
    pub fn leader(&self) -> Option<usize> {
        (0..self.len()).find(|&member| self.mode(member) == Some(Mode::Leader))
    }

    /// Waits until a member leads.
    ///
    /// # Errors
    /// Returns an error if no member leads within two minutes.
    pub fn wait_leader(&self) -> Result<usize, ServerError> {
        poll_until("a leader", START_LIMIT, || self.leader())
            .map_err(|e| self.failed(&e.to_string()))
    }

    /// Waits until all members serve, one of them as the leader.
    ///
    /// # Errors
    /// Returns an error with the ends of the logs if not all members serve within two minutes.
    pub fn wait_whole(&self) -> Result<(), ServerError> {
        let whole = || {
            let modes: Option<Vec<_>> = (0..self.len()).map(|member| self.mode(member)).collect();
            let leads = |mode: &Mode| matches!(mode, Mode::Leader | Mode::Standalone);
            let leaders = modes?.iter().filter(|mode| leads(mode)).count();
            (leaders == 1).then_some(())
        };
        poll_until("all ZooKeeper members to serve", START_LIMIT, whole)
            .map_err(|e| self.failed(&e.to_string()))
    }

    /// Waits until a member serves.
    ///
    /// # Errors
    /// Returns an error with the end of its log if the member's process ends, or if the member does
    /// not serve within two minutes.
    pub fn wait_serving(&self, member: usize) -> Result<Mode, ServerError> {
        let what = format!("ZooKeeper member {member} to serve");
        let found = poll_until(&what, START_LIMIT, || match self.mode(member) {
            Some(mode) => Some(Ok(mode)),
            None if self.is_running(member) => None,
            None => Some(Err(())),
        });
        match found {
            Ok(Ok(mode)) => Ok(mode),
            Ok(Err(())) => Err(self.failed(&format!("ZooKeeper member {member} ended"))),
            Err(e) => Err(self.failed(&e.to_string())),
        }
    }

    /// Kills all members, as dropping the value does. Use this for values that are never dropped.
    pub fn shutdown(&self) {
        for member in 0..self.len() {
            self.kill(member);
        }
    }

    /// Keeps data and logs, and prints their directory.
    fn keep(&mut self) {
        if let Some(dir) = self.dir.take() {
            eprintln!(
                "ZooKeeper's data and logs are kept in {}",
                dir.path().display()
            );
            std::mem::forget(dir);
        }
    }

    fn failed(&self, why: &str) -> ServerError {
        let mut text = why.to_owned();
        for member in 0..self.len() {
            let log = self.log(member);
            let lines: Vec<_> = log.lines().collect();
            let from = lines.len().saturating_sub(LOG_LINES);
            let _ = write!(
                text,
                "\n--- the end of the log of member {member} ---\n{}",
                lines[from..].join("\n")
            );
        }
        ServerError::Failed(text)
    }

    fn properties(&self) -> Vec<String> {
        let mut properties = vec![
            "-Dzookeeper.extendedTypesEnabled=true".to_owned(),
            // Data that a killed process has passed to the operating system is kept; only a power
            // failure would lose it.
            "-Dzookeeper.forceSync=no".to_owned(),
            // The size is in kilobytes; the default is 64 MiB for every log.
            "-Dzookeeper.preAllocSize=256".to_owned(),
        ];
        if let Some(interval) = self.options.container_check {
            properties.push(format!(
                "-Dznode.container.checkIntervalMs={}",
                interval.as_millis()
            ));
        }
        properties
    }

    fn process(&self, member: usize) -> MutexGuard<'_, Process> {
        lock(&self.members[member].process)
    }

    fn tell_watchdog(&self) {
        let live: Vec<_> = (0..self.len()).filter_map(|m| self.pid(m)).collect();
        lock(&self.watchdog).guard(&live);
    }
}

impl Drop for ZooKeeper {
    fn drop(&mut self) {
        self.shutdown();
        lock(&self.watchdog).end();
        if std::thread::panicking() {
            self.keep();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends a signal to a child that has not been waited for, so the process id still belongs to it.
fn signal(process: &Process, name: &str) -> Result<u32, ServerError> {
    let Some(child) = &process.child else {
        return Err(ServerError::Failed(format!(
            "SIG{name} for a member that does not run"
        )));
    };
    let pid = child.id();
    let script = format!("kill -s {name} {pid}");
    let status = Command::new("sh")
        .args(["-c", &script])
        .stdin(Stdio::null())
        .status()?;
    if status.success() {
        Ok(pid)
    } else {
        Err(ServerError::Failed(format!("`{script}` failed")))
    }
}

/// Returns whether a process is stopped; `None` if the system has no `/proc`.
fn is_stopped(pid: u32) -> Option<bool> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The process name before the state is in parentheses, and may contain any character.
    Some(stat.rsplit_once(") ")?.1.starts_with(['T', 't']))
}

fn config(viewer: usize, members: &[Member], options: &Options) -> String {
    let me = &members[viewer];
    let tick = options.tick.as_millis();
    let mut lines = vec![
        format!("dataDir={}", me.dir.join("data").display()),
        format!("clientPortAddress={}", me.client.ip()),
        format!("clientPort={}", me.client.port()),
        format!("tickTime={tick}"),
        format!("initLimit={}", options.init_limit),
        format!("syncLimit={}", options.sync_limit),
        format!("maxSessionTimeout={}", options.max_session.as_millis()),
        "maxClientCnxns=0".to_owned(),
        "admin.enableServer=false".to_owned(),
        "4lw.commands.whitelist=*".to_owned(),
    ];
    if options.secure {
        lines.push(format!("secureClientPortAddress={}", me.secure.ip()));
        lines.push(format!("secureClientPort={}", me.secure.port()));
        // The default connection factory does not support TLS.
        lines.push(
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory".to_owned(),
        );
    }
    if members.len() > 1 {
        for (target, member) in members.iter().enumerate() {
            let quorum = match &options.quorum_addr {
                Some(view) if target != viewer => view.0(viewer, target, member.quorum),
                _ => member.quorum,
            };
            lines.push(format!(
                "server.{}={quorum}:{}",
                target + 1,
                member.election.port()
            ));
        }
    }
    lines.extend(
        options
            .settings
            .iter()
            .map(|(key, value)| format!("{key}={value}")),
    );
    lines.push(String::new());
    lines.join("\n")
}

fn four_letter(address: SocketAddr, word: &str, patience: Duration) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, patience)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    stream.write_all(word.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    // The server closes the connection first, so an error here only means that it has already done
    // so.
    let _ = stream.shutdown(Shutdown::Both);
    Ok(answer)
}

/// Reads `wchp`: a path, then the sessions that watch it, each indented.
fn by_path(wchp: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut watches: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    let mut path = None;
    for line in wchp.lines().filter(|line| !line.is_empty()) {
        match (line.strip_prefix('\t'), &path) {
            (Some(session), Some(path)) => {
                watches
                    .entry(String::clone(path))
                    .or_default()
                    .insert(session.trim().to_owned());
            }
            (Some(_), None) => {}
            (None, _) => path = Some(line.to_owned()),
        }
    }
    watches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wchp_is_read_by_path() {
        let watches = by_path("/a/lock-0000000001\n\t0x1000001\n\t0x1000002\n/b\n\t0x1000001\n\n");
        let sessions: Vec<_> = watches["/a/lock-0000000001"]
            .iter()
            .map(String::as_str)
            .collect();
        assert_eq!(sessions, ["0x1000001", "0x1000002"]);
        assert_eq!(watches.len(), 2);
    }

    #[test]
    fn members_get_their_own_view() {
        let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let member = |port| Member {
            dir: PathBuf::from("/data"),
            client: at(port),
            secure: at(port + 3),
            quorum: at(port + 1),
            election: at(port + 2),
            process: Mutex::default(),
        };
        let members = [member(10), member(20)];
        let options =
            Options::new()
                .setting("snapCount", "7")
                .quorum_addr(|viewer, target, real| {
                    assert_ne!(viewer, target);
                    SocketAddr::new(real.ip(), 99)
                });
        let config = config(0, &members, &options);
        assert!(
            config.contains("\nserver.1=127.0.0.1:11:12\nserver.2=127.0.0.1:99:22\nsnapCount=7\n")
        );
    }
}
