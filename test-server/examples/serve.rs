//! A server for clients in other processes and languages: prints its address and runs until its input ends.
//!
//! ```text
//! $ cargo run -p zookeeper-test-server --example serve -- 2181
//! 127.0.0.1:2181
//! ```

use std::error::Error;
use std::io::Read as _;

use zookeeper_test_server::Server;

fn main() -> Result<(), Box<dyn Error>> {
    let port = std::env::args().nth(1).map_or(Ok(0), |port| port.parse())?;
    let server = Server::builder().port(port).start()?;
    println!("{}", server.connect_string());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
