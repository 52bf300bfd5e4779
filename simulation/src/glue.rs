//! The parts that the simulation provides to the library and to the test server: threads, and
//! connections in memory.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::task::Context;

use simnet::host;
use simnet::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use zookeeper_recipes::simulation;
use zookeeper_test_server::Listener;

#[derive(Debug)]
struct Thread(Arc<host::Host>);

impl simulation::Host for Thread {
    fn process(&self) -> u64 {
        self.0.process()
    }

    fn thread(&self) -> Arc<dyn simulation::Host> {
        Arc::new(Self(self.0.thread()))
    }

    fn poll(&self, context: &mut Context<'_>, task: &mut dyn FnMut(&mut Context<'_>)) {
        host::poll_on(&self.0, context, task);
    }

    fn adopt(&self, task: AbortHandle) {
        self.0.adopt(task);
    }

    fn end(&self) {
        self.0.end();
    }

    fn accepts<'a>(&self, host: &'a str, port: u16) -> simulation::Answer<'a> {
        Box::pin(async move { TcpStream::connect((host, port)).await.is_ok() })
    }
}

/// Makes the library find the simulated threads.
pub fn install() {
    simulation::set_current(|| Some(Arc::new(Thread(host::current()?))));
}

/// The port on which clients reach the server; of an ensemble the first member, and the others have
/// the next ones.
pub const PORT: u16 = 2181;

/// Returns the connect string of a machine, and its links: one to each member.
pub fn servers(machine: &str, members: usize) -> (String, Vec<String>) {
    let hosts: Vec<String> = (0..members)
        .map(|member| format!("{machine}-{member}"))
        .collect();
    let each: Vec<String> = hosts
        .iter()
        .zip(PORT..)
        .map(|(host, port)| format!("{host}:{port}"))
        .collect();
    (each.join(","), hosts)
}

#[derive(Debug)]
pub struct Port {
    number: u16,
    /// `None` while the server is stopped.
    listener: Option<TcpListener>,
}

impl Port {
    pub fn open() -> Self {
        Self::at(PORT)
    }

    /// Returns the ports of an ensemble.
    pub fn open_all(members: usize) -> Vec<Self> {
        (PORT..).take(members).map(Self::at).collect()
    }

    pub fn at(number: u16) -> Self {
        Self {
            number,
            listener: Some(TcpListener::bind(number)),
        }
    }
}

impl Listener for Port {
    type Stream = TcpStream;

    fn addr(&self) -> io::Result<SocketAddr> {
        Ok((Ipv4Addr::LOCALHOST, self.number).into())
    }

    async fn accept(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
        match &self.listener {
            Some(listener) => listener.accept().await,
            None => std::future::pending().await,
        }
    }

    fn stop(&mut self) {
        self.listener = None;
    }

    fn restart(&mut self) -> io::Result<()> {
        self.listener = Some(TcpListener::bind(self.number));
        Ok(())
    }

    fn reset(mut stream: TcpStream) {
        // The drop of the stream sends the reset.
        let _ = stream.set_zero_linger();
    }
}
