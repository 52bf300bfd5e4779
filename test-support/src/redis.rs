//! A Redis server as a child process.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::peers::{self, RedisPeer};
use crate::poll::poll_until;
use crate::ports::Ports;
use crate::watchdog::{Watchdog, own_group};
use crate::zookeeper::ServerError;

/// The time within which the server must serve, even on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(60);
/// The number of port blocks to try, in case another process takes one of the ports in between.
const ATTEMPTS: usize = 3;

/// A Redis server on loopback that writes nothing to disk, so its data is lost when it ends.
///
/// Dropping the value kills the server. If this process ends without dropping the value, a watchdog
/// kills the server.
#[derive(Debug)]
pub struct Redis {
    address: SocketAddr,
    child: Child,
    watchdog: Watchdog,
    dir: TempDir,
    peer: RedisPeer,
    _ports: Ports,
}

impl Redis {
    /// Starts a server and waits until it serves.
    ///
    /// # Errors
    /// [`ServerError::Missing`] if Redis is not installed; otherwise an error with the log of the
    /// server.
    pub fn start() -> Result<Self, ServerError> {
        let mut attempt = 1;
        loop {
            let mut server = Self::spawn()?;
            match server.wait_serving() {
                Err(_) if attempt < ATTEMPTS && server.log().contains("Address already in use") => {
                    attempt += 1;
                }
                result => return result.map(|()| server),
            }
        }
    }

    fn spawn() -> Result<Self, ServerError> {
        let peer = peers::redis()?;
        let dir = tempfile::Builder::new().prefix("redis-").tempdir()?;
        let ports = Ports::take()?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, ports.port(0)));
        let mut watchdog = Watchdog::start(dir.path())?;
        let child = run(&peer, address, dir.path())?;
        watchdog.guard(&[child.id()]);
        Ok(Self {
            address,
            child,
            watchdog,
            dir,
            peer,
            _ports: ports,
        })
    }

    /// Kills the server, and starts it again without data.
    ///
    /// # Errors
    /// Returns an error with the log of the server if it does not serve.
    pub fn restart(&mut self) -> Result<(), ServerError> {
        self.child.kill()?;
        self.child.wait()?;
        self.child = run(&self.peer, self.address, self.dir.path())?;
        self.watchdog.guard(&[self.child.id()]);
        self.wait_serving()
    }

    fn wait_serving(&mut self) -> Result<(), ServerError> {
        let address = self.address;
        let child = &mut self.child;
        let served = poll_until("Redis to serve", START_LIMIT, || {
            let ended = !matches!(child.try_wait(), Ok(None));
            if answers(address) {
                Some(true)
            } else {
                ended.then_some(false)
            }
        });
        match served {
            Ok(true) => Ok(()),
            Ok(false) => Err(ServerError::Failed(format!("Redis ended\n{}", self.log()))),
            Err(e) => Err(ServerError::Failed(format!("{e}\n{}", self.log()))),
        }
    }

    /// Returns the address of the server.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the process id of the server.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the version of the server.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.peer.version
    }

    /// Returns the log of the server, which has warnings only.
    #[must_use]
    pub fn log(&self) -> String {
        read_log(self.dir.path())
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // A process that has ended cannot be killed, which is not an error here.
        let _ = self.child.kill();
        // The watchdog ends before another process can have the same id.
        self.watchdog.end();
        let _ = self.child.wait();
    }
}

fn run(peer: &RedisPeer, address: SocketAddr, dir: &Path) -> std::io::Result<Child> {
    let mut command = Command::new(&peer.server);
    command
        .args([
            "--bind",
            &address.ip().to_string(),
            "--port",
            &address.port().to_string(),
        ])
        // The server writes neither snapshots nor a log.
        .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
        .arg("--dir")
        .arg(dir)
        .args(["--loglevel", "warning", "--logfile", "log"])
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    own_group(&mut command);
    command.spawn()
}

fn read_log(dir: &Path) -> String {
    fs::read(dir.join("log"))
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default()
}

/// Returns whether a server answers a ping.
fn answers(address: SocketAddr) -> bool {
    let ping = || {
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"PING\r\n")?;
        let mut answer = [0; 7];
        stream.read_exact(&mut answer)?;
        Ok::<_, std::io::Error>(&answer == b"+PONG\r\n")
    };
    ping().unwrap_or(false)
}
