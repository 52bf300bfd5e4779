//! The behaviour of the real servers that the tests rely on.
#![expect(
    clippy::expect_used,
    reason = "a test fails by panicking; clippy knows this only of #[test] functions"
)]

use std::error::Error;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use test_support::peers::{self, RedisPeer, ZooKeeperPeer};
use test_support::{
    Mode, Options, Redis, SOON, Suite, ZooKeeper, poll_until, shared_standalone, stop_shared,
    unique_path,
};

type Outcome = Result<(), Box<dyn Error>>;

fn main() {
    if std::env::var_os(HOLD).is_some() {
        return hold_a_server().expect("a server");
    }
    let mut suite = Suite::new();
    // The trials wait most of the time, for servers to start and to notice the loss of others.
    suite.at_once(4);
    for (name, test) in [
        (
            "standalone_server_answers",
            standalone as fn(ZooKeeperPeer) -> Outcome,
        ),
        ("options_reach_the_server", options),
        ("killed_process_leaves_no_server", orphans),
        ("dropping_kills_paused_members_too", drop_paused),
        ("unstartable_server_shows_its_log", bad_config),
        ("health_check_sees_lost_quorum", health_check),
        ("shared_server_is_single_and_stops", shared),
        ("with_zookeeper_names_a_missing_command", missing_command),
    ] {
        suite.add_needing("zookeeper", name, peers::zookeeper(), test);
    }
    suite.add(
        "no peer",
        "with_zookeeper_names_a_missing_peer",
        missing_peer,
    );
    suite.add_needing("redis", "redis_answers_and_ends", peers::redis(), redis);
    suite.run()
}

fn ensure(condition: bool, what: impl Into<String>) -> Outcome {
    if condition {
        Ok(())
    } else {
        Err(what.into().into())
    }
}

fn exists(pid: u32) -> bool {
    // A zombie is gone as well: it only waits for its parent.
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

fn missing_peer() -> Outcome {
    let said = |arguments: &[&str], path: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_with-zookeeper"));
        command
            .args(arguments)
            .env("PATH", path)
            .env_remove("JAVA_HOME")
            .output()
    };
    let output = said(&["true"], "/nowhere")?;
    let expected = "with-zookeeper: no ZooKeeper: no `java` on the path \
                    (try: apt-get install libzookeeper-java default-jre-headless)\n";
    assert_eq!(String::from_utf8_lossy(&output.stderr), expected);
    assert_eq!(output.status.code(), Some(1));
    let output = said(&[], "/nowhere")?;
    let usage = "with-zookeeper: usage: with-zookeeper [--members N] COMMAND [ARG]..\n";
    assert_eq!(String::from_utf8_lossy(&output.stderr), usage);
    Ok(())
}

fn missing_command(_: ZooKeeperPeer) -> Outcome {
    let output = Command::new(env!("CARGO_BIN_EXE_with-zookeeper"))
        .arg("no-such-command")
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.starts_with("with-zookeeper: no-such-command: "),
        "{said}"
    );
    Ok(())
}

fn redis(_: RedisPeer) -> Outcome {
    let server = Redis::start()?;
    let pid = server.pid();
    let mut stream = TcpStream::connect(server.address())?;
    stream.write_all(b"SET a b\r\nCONFIG GET save\r\n")?;
    let expected = b"+OK\r\n*2\r\n$4\r\nsave\r\n$0\r\n\r\n";
    let mut answer = vec![0; expected.len()];
    stream.read_exact(&mut answer)?;
    assert_eq!(
        String::from_utf8_lossy(&answer),
        String::from_utf8_lossy(expected)
    );
    drop(server);
    ensure(!exists(pid), "the server is still there")
}

fn standalone(_: ZooKeeperPeer) -> Outcome {
    let server = ZooKeeper::standalone(&Options::default())?;
    let pid = server.pid(0).ok_or("it runs")?;
    assert_eq!(server.mode(0), Some(Mode::Standalone));
    assert_eq!(server.leader(), None);
    assert_eq!(server.four_letter(0, "ruok")?, "imok");
    assert_eq!(server.connect_string(), server.address(0).to_string());
    assert!(server.watches(0)?.is_empty());

    server.restart(0)?;
    assert_ne!(server.pid(0), Some(pid));
    assert!(!exists(pid));
    server.kill(0);
    assert_eq!(
        (server.pid(0), server.mode(0), server.is_running(0)),
        (None, None, false)
    );
    assert!(server.pause(0).is_err());
    Ok(())
}

fn options(_: ZooKeeperPeer) -> Outcome {
    let directory = tempfile::tempdir()?;
    let options = Options::new()
        .tick(Duration::from_millis(300))
        .setting("minSessionTimeout", "700")
        .max_session_timeout(Duration::from_secs(5))
        .container_check(Duration::from_millis(250))
        .jvm_arg("-Dtest.marker=1")
        .directory(directory.path())
        .setting("snapCount", "1234");
    let server = ZooKeeper::standalone(&options)?;
    let conf = server.four_letter(0, "conf")?;
    for line in [
        "tickTime=300",
        "minSessionTimeout=700",
        "maxSessionTimeout=5000",
        "maxClientCnxns=0",
    ] {
        ensure(
            conf.lines().any(|l| l == line),
            format!("{line} not in {conf}"),
        )?;
    }
    let env = fs::read_to_string(format!("/proc/{}/cmdline", server.pid(0).ok_or("it runs")?))?;
    for arg in [
        "-Dznode.container.checkIntervalMs=250",
        "-Dzookeeper.extendedTypesEnabled=true",
        "-Dtest.marker=1",
        "-Xmx128m",
    ] {
        ensure(
            env.split('\0').any(|a| a == arg),
            format!("{arg} not in {env}"),
        )?;
    }
    ensure(
        fs::read_dir(directory.path())?.count() == 1,
        "its data are where they were wanted",
    )
}

fn drop_paused(_: ZooKeeperPeer) -> Outcome {
    let servers = ZooKeeper::standalone(&Options::default())?;
    let pid = servers.pid(0).ok_or("it runs")?;
    servers.pause(0)?;
    drop(servers);
    ensure(!exists(pid), "the server is still there")
}

fn bad_config(_: ZooKeeperPeer) -> Outcome {
    let error = match ZooKeeper::standalone(&Options::new().setting("syncLimit", "many")) {
        Ok(_) => return Err("it started".into()),
        Err(e) => e.to_string(),
    };
    // The error must be that of the log, not that of a wait that timed out.
    ensure(
        error.contains("member 0 ended") && error.contains("Invalid config"),
        error,
    )
}

/// The command that `docker-compose.yml` gives the engine, on servers that serve and on servers
/// that do not.
fn health_check(_: ZooKeeperPeer) -> Outcome {
    let file = fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../docker-compose.yml"
    ))?;
    let line = file.lines().find_map(|line| {
        line.trim()
            .strip_prefix("test: [\"CMD\", \"bash\", \"-c\", \"")
    });
    let command = line
        .and_then(|rest| rest.strip_suffix("\"]"))
        .ok_or("no command")?;
    assert!(command.contains("/127.0.0.1/2181 "));

    let servers = ZooKeeper::ensemble(3, &Options::default())?;
    let healthy = |member: usize| {
        let here = command.replace("2181", &servers.address(member).port().to_string());
        let run = Command::new("bash")
            .args(["-c", &here])
            .stderr(Stdio::null())
            .status();
        run.is_ok_and(|status| status.success())
    };
    assert!((0..3).all(healthy));
    servers.kill(0);
    servers.kill(1);
    assert!(!healthy(0));
    poll_until("the last member to be unhealthy", SOON, || {
        (!healthy(2)).then_some(())
    })?;
    ensure(
        servers.four_letter(2, "ruok")? == "imok",
        "the simpler check has the same result",
    )
}

fn shared(_: ZooKeeperPeer) -> Outcome {
    let server = shared_standalone()?;
    assert_eq!(server.pid(0), shared_standalone()?.pid(0));
    assert_ne!(unique_path("lock"), unique_path("lock"));
    let pid = server.pid(0).ok_or("it runs")?;
    stop_shared();
    ensure(!exists(pid), "the server is still there")
}

/// Set for the other half of `orphans`, the process that is killed.
const HOLD: &str = "TEST_SUPPORT_HOLD_A_SERVER";

fn hold_a_server() -> Outcome {
    let server = ZooKeeper::standalone(&Options::default())?;
    println!("holding {}", server.pid(0).ok_or("it runs")?);
    // The process waits until it is killed.
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

fn orphans(_: ZooKeeperPeer) -> Outcome {
    use std::io::{BufRead as _, BufReader};
    let mut child = Command::new(std::env::current_exe()?)
        .env(HOLD, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let stdout = child.stdout.take().ok_or("its stdout")?;
    let pid = BufReader::new(stdout)
        .lines()
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("holding ")?.parse::<u32>().ok());
    let killed = child.kill().and_then(|()| child.wait());
    let pid = pid.ok_or("it said no number")?;
    killed?;
    poll_until("the server to be gone", SOON, || {
        (!exists(pid)).then_some(())
    })?;
    Ok(())
}
