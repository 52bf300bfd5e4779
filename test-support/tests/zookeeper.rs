//! The real servers do as they are told.
#![expect(
    clippy::expect_used,
    reason = "a test fails by panicking; clippy knows this only of #[test] functions"
)]

use std::error::Error;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use test_support::peers::{self, CuratorPeer, KazooPeer, RedisPeer, ZooKeeperPeer};
use test_support::{
    Mode, Options, Redis, SOON, Suite, ZooKeeper, poll_until, shared_standalone, stop_shared, unique_path,
};

type Outcome = Result<(), Box<dyn Error>>;

fn main() {
    if std::env::var_os(HOLD).is_some() {
        return hold_a_server().expect("a server");
    }
    let mut suite = Suite::new();
    // They wait most of the time, for servers to start and to miss one another.
    suite.at_once(4);
    for (name, test) in [
        ("a_standalone_server_answers", standalone as fn(ZooKeeperPeer) -> Outcome),
        ("options_reach_the_server", options),
        ("an_ensemble_replaces_its_leader", ensemble),
        ("a_paused_leader_is_replaced_and_comes_back", paused_leader),
        ("a_killed_process_leaves_no_server_behind", orphans),
        ("dropping_kills_paused_members_too", drop_paused),
        ("a_server_that_cannot_start_shows_its_log", bad_config),
        ("the_health_check_of_the_compose_file_sees_a_lost_quorum", health_check),
        ("quorum_connections_go_where_they_are_told", interposed),
        ("servers_started_at_once_get_different_ports", parallel),
        ("the_shared_server_is_one_and_stops", shared),
        ("with_zookeeper_names_a_command_that_is_not_there", a_command_that_is_not_there),
    ] {
        suite.add_needing("zookeeper", name, peers::zookeeper(), test);
    }
    suite.add("no peer", "with_zookeeper_names_what_is_missing", what_is_missing);
    suite.add_needing("redis", "a_server_answers_and_ends", peers::redis(), redis);
    suite.add_needing("curator", "a_program_compiles_and_runs", peers::curator(), curator);
    suite.add_needing("kazoo", "a_program_runs", peers::kazoo(), kazoo);
    suite.run()
}

fn ensure(condition: bool, what: impl Into<String>) -> Outcome {
    if condition { Ok(()) } else { Err(what.into().into()) }
}

fn exists(pid: u32) -> bool {
    // A zombie is gone as well: it only waits for its parent.
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

fn what_is_missing() -> Outcome {
    let said = |arguments: &[&str], path: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_with-zookeeper"));
        command.args(arguments).env("PATH", path).env_remove("JAVA_HOME").output()
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

fn a_command_that_is_not_there(_: ZooKeeperPeer) -> Outcome {
    let output = Command::new(env!("CARGO_BIN_EXE_with-zookeeper")).arg("no-such-command").output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.starts_with("with-zookeeper: no-such-command: "), "{said}");
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
    assert_eq!(String::from_utf8_lossy(&answer), String::from_utf8_lossy(expected));
    drop(server);
    ensure(!exists(pid), "the server is gone")
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
    assert_eq!((server.pid(0), server.mode(0), server.is_running(0)), (None, None, false));
    assert!(server.pause(0).is_err());
    Ok(())
}

fn options(_: ZooKeeperPeer) -> Outcome {
    let directory = tempfile::tempdir()?;
    let options = Options::new()
        .tick(Duration::from_millis(300))
        .min_session_timeout(Duration::from_millis(700))
        .max_session_timeout(Duration::from_secs(5))
        .container_check(Duration::from_millis(250))
        .jvm_arg("-Dtest.marker=1")
        .directory(directory.path())
        .setting("snapCount", "1234");
    let server = ZooKeeper::standalone(&options)?;
    let conf = server.four_letter(0, "conf")?;
    for line in ["tickTime=300", "minSessionTimeout=700", "maxSessionTimeout=5000", "maxClientCnxns=0"] {
        ensure(conf.lines().any(|l| l == line), format!("{line} not in {conf}"))?;
    }
    let env = fs::read_to_string(format!("/proc/{}/cmdline", server.pid(0).ok_or("it runs")?))?;
    for arg in [
        "-Dznode.container.checkIntervalMs=250",
        "-Dzookeeper.extendedTypesEnabled=true",
        "-Dtest.marker=1",
        "-Xmx128m",
    ] {
        ensure(env.split('\0').any(|a| a == arg), format!("{arg} not in {env}"))?;
    }
    ensure(fs::read_dir(directory.path())?.count() == 1, "its data are where they were wanted")
}

fn ensemble(_: ZooKeeperPeer) -> Outcome {
    let servers = ZooKeeper::ensemble(3, &Options::default())?;
    let leader = servers.wait_leader()?;
    assert!(servers.follower().is_some_and(|follower| follower != leader));
    assert_eq!(servers.connect_string().split(',').count(), 3);

    servers.kill(leader);
    let next = servers.wait_leader()?;
    assert_ne!(next, leader);
    servers.restart(leader)?;
    servers.wait_whole()?;
    Ok(())
}

fn paused_leader(_: ZooKeeperPeer) -> Outcome {
    let servers = ZooKeeper::ensemble(3, &Options::new().sync_limit(10))?;
    let leader = servers.wait_leader()?;
    servers.pause(leader)?;
    assert!(servers.is_running(leader));
    assert_eq!(servers.mode(leader), None);
    // It accepts a connection, as the kernel does for it, and says nothing.
    let mut stream = TcpStream::connect(servers.address(leader))?;
    stream.set_read_timeout(Some(Duration::from_millis(100)))?;
    stream.write_all(b"ruok")?;
    assert!(stream.read(&mut [0; 4]).is_err());

    let next = poll_until("another leader", SOON, || servers.leader())?;
    assert_ne!(next, leader);
    servers.resume(leader)?;
    poll_until("the old leader to follow", SOON, || {
        (servers.mode(leader) == Some(Mode::Follower)).then_some(())
    })?;
    Ok(())
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
    // Not that it was waited for in vain.
    ensure(error.contains("member 0 ended") && error.contains("Invalid config"), error)
}

/// The command that `docker-compose.yml` gives the engine, on servers that serve, and do not.
fn health_check(_: ZooKeeperPeer) -> Outcome {
    let file = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docker-compose.yml"))?;
    let line = file.lines().find_map(|line| line.trim().strip_prefix("test: [\"CMD\", \"bash\", \"-c\", \""));
    let command = line.and_then(|rest| rest.strip_suffix("\"]")).ok_or("no command")?;
    assert!(command.contains("/127.0.0.1/2181 "));

    let servers = ZooKeeper::ensemble(3, &Options::default())?;
    let healthy = |member: usize| {
        let here = command.replace("2181", &servers.address(member).port().to_string());
        let run = Command::new("bash").args(["-c", &here]).stderr(Stdio::null()).status();
        run.is_ok_and(|status| status.success())
    };
    assert!((0..3).all(healthy));
    servers.kill(0);
    servers.kill(1);
    assert!(!healthy(0));
    poll_until("the last member to be unhealthy", SOON, || (!healthy(2)).then_some(()))?;
    ensure(servers.four_letter(2, "ruok")? == "imok", "the simpler check says the same")
}

/// A listener stands in for each follower's view of the others and passes on what it gets.
fn interposed(_: ZooKeeperPeer) -> Outcome {
    let (seen, connections) = mpsc::channel();
    let seen = std::sync::Mutex::new(seen);
    let options = Options::new().quorum_addr(move |viewer, target, real| {
        let proxy = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = proxy.local_addr().expect("its address");
        let seen = seen.lock().expect("not poisoned").clone();
        std::thread::spawn(move || {
            for connection in proxy.incoming().map_while(Result::ok) {
                // Before the target listens, the connection ends; the member tries again.
                if let Ok(server) = TcpStream::connect(real) {
                    let _ = seen.send((viewer, target));
                    pass(&connection, &server);
                    pass(&server, &connection);
                }
            }
        });
        address
    });
    let servers = ZooKeeper::ensemble(3, &options)?;
    let leader = servers.wait_leader()?;
    let pairs: Vec<_> = connections.try_iter().collect();
    for follower in (0..3).filter(|m| *m != leader) {
        ensure(pairs.contains(&(follower, leader)), format!("{follower} to {leader} not in {pairs:?}"))?;
    }
    Ok(())
}

fn pass(from: &TcpStream, to: &TcpStream) {
    let (mut from, mut to) = (from.try_clone().expect("a handle"), to.try_clone().expect("a handle"));
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(std::net::Shutdown::Both);
    });
}

fn parallel(_: ZooKeeperPeer) -> Outcome {
    let start = || ZooKeeper::standalone(&Options::default()).map_err(|e| e.to_string());
    let servers = std::thread::scope(|scope| {
        let starts: Vec<_> = (0..3).map(|_| scope.spawn(start)).collect();
        starts.into_iter().map(|s| s.join().expect("no panic")).collect::<Result<Vec<_>, _>>()
    })?;
    let mut addresses: Vec<SocketAddr> = servers.iter().map(|s| s.address(0)).collect();
    addresses.sort_unstable();
    addresses.dedup();
    assert_eq!(addresses.len(), servers.len());
    Ok(())
}

fn curator(peer: CuratorPeer) -> Outcome {
    const PROGRAM: &str = "import org.apache.curator.framework.recipes.locks.InterProcessMutex;
        import org.apache.curator.retry.RetryOneTime;
        import org.apache.curator.framework.CuratorFrameworkFactory;
        class Main { public static void main(String[] args) throws Exception {
            var client = CuratorFrameworkFactory.newClient(\"127.0.0.1:1\", new RetryOneTime(1));
            System.out.print(new InterProcessMutex(client, \"/lock\").isAcquiredInThisProcess());
        } }";
    let dir = tempfile::tempdir()?;
    let source = dir.path().join("Main.java");
    fs::write(&source, PROGRAM)?;
    let compiled = peer.compiler().args(["-proc:none", "-cp", &peer.classpath]).arg(&source).status()?;
    ensure(compiled.success(), "it does not compile")?;
    let classpath = format!("{}:{}", dir.path().display(), peer.classpath);
    let ran = Command::new(peer.java).args(["-cp", &classpath, "Main"]).output()?;
    ensure(ran.stdout == b"false", String::from_utf8_lossy(&ran.stderr))
}

fn kazoo(peer: KazooPeer) -> Outcome {
    let script = "from kazoo.recipe.lock import Lock; print(Lock.__name__)";
    let ran = Command::new(peer.python).args(["-c", script]).output()?;
    ensure(ran.stdout == b"Lock\n", String::from_utf8_lossy(&ran.stderr))
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
    // Until it is killed.
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
    poll_until("the server to be gone", SOON, || (!exists(pid)).then_some(()))?;
    Ok(())
}
