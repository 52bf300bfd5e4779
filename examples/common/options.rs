//! Options that several examples have.

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct RunOptions {
    /// ZooKeeper servers, host:port[,host:port...] [default: $ZK_CONNECT, or a server in this
    /// process]
    #[arg(long, value_name = "SERVERS")]
    pub(crate) connect: Option<String>,
    /// Prints the result as one JSON object too, as the last line
    #[arg(long)]
    pub(crate) json: bool,
}
