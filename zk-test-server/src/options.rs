//! The command line.

use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use zookeeper_test_server::{Builder, Server, Version};

pub(crate) const USAGE: &str = "\
A ZooKeeper server for tests, in memory. It serves until it is killed.

Usage: zk-test-server [OPTION]..

  --port PORT                    the port for clients; 0, the default, is a free one
  --bind ADDRESS                 the address to listen on; 127.0.0.1 by default
  --admin PORT                   a port that takes faults as lines of JSON; none by default, 0 is a free one
  --tick MS                      ZooKeeper's tickTime; 2000 by default
  --min-session-timeout MS       the shortest session timeout; two ticks by default
  --max-session-timeout MS       the longest session timeout; twenty ticks by default
  --version VERSION              3.8 (the default), 3.9, keeper or keeper-without-containers
  --sweep MS                     how often containers and TTL nodes are looked for; 60000 by default
  --cluster NUMBER               of how many members the ensemble is; 1 by default
  --super-digest DIGEST          `super:` and a hash, as ZooKeeper's superDigest; none by default
  --races                        who does not wait for replies loses the races of ZooKeeper's pipeline
  --local-sessions               a member that is read-only opens sessions, as with localSessionsEnabled
  --exit-with-stdin              ends when the standard input does, as it does with the parent process

When it serves it prints a line: {\"ready\":true,\"connect\":\"127.0.0.1:2181\",\"admin\":\"127.0.0.1:2182\"}
";

/// The options of the command line.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) builder: Builder,
    pub(crate) bind: IpAddr,
    pub(crate) admin: Option<u16>,
    /// Whether the server ends with its standard input.
    pub(crate) with_stdin: bool,
}

impl Options {
    /// Reads the command line; returns `None` if it asks for help.
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut builder = Server::builder();
        let (mut bind, mut admin, mut with_stdin) = (IpAddr::from([127, 0, 0, 1]), None, false);
        while let Some(option) = words.next() {
            if option == "--help" || option == "-h" {
                return Ok(None);
            }
            if option == "--exit-with-stdin" {
                with_stdin = true;
                continue;
            }
            if option == "--races" {
                builder = builder.races(true);
                continue;
            }
            if option == "--local-sessions" {
                builder = builder.local_sessions(true);
                continue;
            }
            let value = words.next().ok_or_else(|| format!("{option} has no value"));
            builder = match option.as_str() {
                "--port" => builder.port(number(&option, &value?)?),
                "--bind" => {
                    bind = number(&option, &value?)?;
                    builder
                }
                "--admin" => {
                    admin = Some(number(&option, &value?)?);
                    builder
                }
                "--tick" => builder.tick(milliseconds(&option, &value?)?),
                "--min-session-timeout" => {
                    builder.min_session_timeout(milliseconds(&option, &value?)?)
                }
                "--max-session-timeout" => {
                    builder.max_session_timeout(milliseconds(&option, &value?)?)
                }
                "--version" => builder.zookeeper_version(version(&value?)?),
                "--sweep" => builder.container_check_interval(milliseconds(&option, &value?)?),
                "--cluster" => builder.members(number(&option, &value?)?),
                "--super-digest" => builder.super_digest(value?),
                _ => return Err(format!("there is no option {option}")),
            };
        }
        Ok(Some(Self {
            builder,
            bind,
            admin,
            with_stdin,
        }))
    }
}

fn number<T: FromStr>(option: &str, value: &str) -> Result<T, String> {
    value
        .parse()
        .map_err(|_| format!("{option}: {value} is not valid"))
}

fn milliseconds(option: &str, value: &str) -> Result<Duration, String> {
    number(option, value).map(Duration::from_millis)
}

fn version(name: &str) -> Result<Version, String> {
    match name {
        "3.8" => Ok(Version::V3_8),
        "3.9" => Ok(Version::V3_9),
        "keeper" => Ok(Version::ClickHouseKeeper),
        "keeper-without-containers" => Ok(Version::ClickHouseKeeperWithoutContainers),
        _ => Err(format!(
            "--version: {name} is not 3.8, 3.9, keeper or keeper-without-containers"
        )),
    }
}
