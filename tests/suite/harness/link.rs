//! A connection to the servers that can be broken.

use std::net::SocketAddr;

use test_support::{Cut, Proxy};

/// A proxy between a client and each server.
#[derive(Debug)]
pub(crate) struct Link {
    proxies: Vec<Proxy>,
    connect_string: String,
}

impl Link {
    pub(crate) fn to(servers: &[SocketAddr]) -> Self {
        let proxies: Vec<_> = servers
            .iter()
            .map(|server| Proxy::start(*server).unwrap())
            .collect();
        let addresses: Vec<_> = proxies
            .iter()
            .map(|proxy| proxy.address().to_string())
            .collect();
        Self {
            proxies,
            connect_string: addresses.join(","),
        }
    }

    /// Returns the connect string for the client.
    pub(crate) fn connect_string(&self) -> &str {
        &self.connect_string
    }

    /// Ends every connection, and refuses new ones.
    pub(crate) fn cut(&self) {
        for proxy in &self.proxies {
            proxy.refuse().unwrap();
            proxy.cut(Cut::Reset);
        }
    }

    /// Accepts connections again.
    pub(crate) fn mend(&self) {
        for proxy in &self.proxies {
            proxy.accept().unwrap();
        }
    }
}
