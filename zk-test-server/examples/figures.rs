//! Measures the test server and a real ZooKeeper side by side, and prints the table of the README:
//!
//! ```console
//! $ ulimit -n 12000
//! $ cargo build --release -p zk-test-server
//! $ cargo run --release -p zk-test-server --example figures
//! ```

#[path = "../../test-server/tests/raw/mod.rs"]
mod raw;

use std::error::Error;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use raw::{Body, Raw, op};
use test_support::{Options, ZooKeeper};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// How many requests of one client are timed one by one.
const TIMED: usize = 5000;
/// How many requests each client sends when the server has all it can do.
const PIPELINED: usize = 20_000;
const CLIENTS: usize = 8;
const CONNECTIONS: usize = 10_000;
const WATCHES: usize = 100_000;
/// How many watches each client sets.
const OF_EACH: usize = 1000;
/// Longer than all of it takes: nothing sends heartbeats.
const TIMEOUT: i32 = 600_000;

fn main() -> Outcome<()> {
    let (ours, start, pid) = program()?;
    let mut columns = vec![measured(ours.addr, start, pid)?];
    drop(ours);
    let options = Options::new()
        .tick(Duration::from_secs(2))
        .max_session_timeout(Duration::from_secs(600))
        .jvm_arg("-Xmx2g")
        .jvm_arg("-XX:TieredStopAtLevel=4");
    let begun = Instant::now();
    let real = ZooKeeper::standalone(&options)?;
    let start = begun.elapsed();
    let pid = real.pid(0).ok_or("it has ended")?;
    columns.push(measured(real.address(0), start, pid)?);
    println!(
        "| | zk-test-server | ZooKeeper {} |\n|---|---|---|",
        real.version().unwrap_or_default()
    );
    for (row, name) in ROWS.iter().enumerate() {
        println!("| {name} | {} | {} |", columns[0][row], columns[1][row]);
    }
    Ok(())
}

/// The rows of the table.
const ROWS: [&str; 9] = [
    "start until it serves",
    "a create, one after another: median, 99th percentile",
    "a read, one after another: median, 99th percentile",
    "creates in a second, by 8 clients that do not wait",
    "reads in a second, by 8 clients that do not wait",
    "10,000 connections, opened one after another",
    "memory at the start",
    "memory for a session with its connection",
    "memory for a watch, of 100,000 by 100 clients",
];

/// The program, which ends with this.
struct Program {
    process: Child,
    addr: SocketAddr,
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn program() -> Outcome<(Program, Duration, u32)> {
    // Beside the directory of the examples.
    let example = std::env::current_exe()?;
    let directory = example
        .parent()
        .and_then(|it| it.parent())
        .map(PathBuf::from)
        .unwrap_or_default();
    let begun = Instant::now();
    let mut process = Command::new(directory.join("zk-test-server"))
        .args(["--max-session-timeout", "600000"])
        .stdout(Stdio::piped())
        .spawn()?;
    let pid = process.id();
    let stdout = process.stdout.take().ok_or("no output")?;
    let mut ready = String::new();
    BufReader::new(stdout).read_line(&mut ready)?;
    let ready: serde_json::Value = serde_json::from_str(&ready)?;
    let addr = ready["connect"].as_str().unwrap_or_default().parse()?;
    Ok((Program { process, addr }, begun.elapsed(), pid))
}

/// Returns the column of a server.
fn measured(addr: SocketAddr, start: Duration, pid: u32) -> Outcome<[String; 9]> {
    let at_start = resident(pid)?;
    let mut raw = Raw::connect(addr, TIMEOUT)?;
    raw.create("/figures", 0);
    raw.create("/figures/one", 0);
    let create = one_by_one(&mut raw, |n| {
        (
            op::CREATE,
            Body::create(&format!("/figures/n{n}"), b"0123456789", 0),
        )
    });
    let read = one_by_one(&mut raw, |_| {
        (op::GET_DATA, Body::path_watch("/figures/one", false))
    });
    let creates = pipelined(addr, |client, n| {
        (
            op::CREATE,
            Body::create(&format!("/figures/c{client}-{n}"), b"0123456789", 0),
        )
    })?;
    let reads = pipelined(addr, |_, _| {
        (op::GET_DATA, Body::path_watch("/figures/one", false))
    })?;

    let (before, begun) = (resident(pid)?, Instant::now());
    let mut held = (0..CONNECTIONS)
        .map(|_| Raw::connect(addr, TIMEOUT))
        .collect::<io::Result<Vec<Raw>>>()?;
    let (opened, of_sessions) = (begun.elapsed(), resident(pid)?.saturating_sub(before));
    // The server answers each connection.
    for raw in &mut held {
        raw.call(op::PING, &Body::new());
    }
    let before = resident(pid)?;
    for raw in held.iter_mut().take(WATCHES / OF_EACH) {
        let requests: Vec<_> = (0..OF_EACH)
            .map(|n| {
                (
                    op::GET_DATA,
                    Body::path_watch(&format!("/figures/n{n}"), true),
                )
            })
            .collect();
        exchange(raw, &requests)?;
    }
    let of_watches = resident(pid)?.saturating_sub(before);
    // All watches of a node fire.
    raw.call(
        op::SET_DATA,
        &Body::new().string("/figures/n7").buffer(None).i32(-1),
    );
    for raw in held.iter_mut().take(WATCHES / OF_EACH) {
        assert_eq!(raw.recv()?.event().2, "/figures/n7");
    }
    Ok([
        millis(start),
        format!(
            "{}, {}",
            micros(create[TIMED / 2]),
            micros(create[TIMED / 100 * 99])
        ),
        format!(
            "{}, {}",
            micros(read[TIMED / 2]),
            micros(read[TIMED / 100 * 99])
        ),
        format!("{creates:.0}"),
        format!("{reads:.0}"),
        format!("{:.1} s", opened.as_secs_f64()),
        format!("{:.1} MiB", at_start as f64 / 1024.0),
        format!("{:.1} KiB", of_sessions as f64 / CONNECTIONS as f64),
        format!("{:.0} bytes", of_watches as f64 * 1024.0 / WATCHES as f64),
    ])
}

/// Returns how long each of some requests took, sorted.
fn one_by_one(raw: &mut Raw, request: impl Fn(usize) -> (i32, Body)) -> Vec<Duration> {
    let timed = |n| {
        let (op, body) = request(n);
        let begun = Instant::now();
        raw.call(op, &body);
        begun.elapsed()
    };
    let mut times: Vec<Duration> = (0..TIMED).map(timed).collect();
    times.sort();
    times
}

/// Returns how many requests of several clients are done in a second.
fn pipelined(
    addr: SocketAddr,
    request: impl Fn(usize, usize) -> (i32, Body) + Sync,
) -> Outcome<f64> {
    let mut clients = (0..CLIENTS)
        .map(|_| Raw::connect(addr, TIMEOUT))
        .collect::<io::Result<Vec<Raw>>>()?;
    let begun = Instant::now();
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for (client, raw) in clients.iter_mut().enumerate() {
            let requests: Vec<_> = (0..PIPELINED).map(|n| request(client, n)).collect();
            threads.push(scope.spawn(move || {
                requests
                    .chunks(500)
                    .try_for_each(|chunk| exchange(raw, chunk))
            }));
        }
        let failed = |_| Err(io::Error::other("a client panicked"));
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap_or_else(failed))
    })?;
    Ok((CLIENTS * PIPELINED) as f64 / begun.elapsed().as_secs_f64())
}

/// Sends requests together, and reads their replies.
fn exchange(raw: &mut Raw, requests: &[(i32, Body)]) -> io::Result<()> {
    let mut bytes = Vec::new();
    for (op, body) in requests {
        let frame = Body::new().i32(1).i32(*op).then(body).0;
        bytes.extend((frame.len() as i32).to_be_bytes());
        bytes.extend(frame);
    }
    raw.stream.write_all(&bytes)?;
    for _ in requests {
        let error = raw.recv()?.error;
        if error != 0 {
            return Err(io::Error::other(format!("error {error}")));
        }
    }
    Ok(())
}

/// Returns what a process has in memory, in KiB.
fn resident(pid: u32) -> Outcome<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

fn millis(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1e3)
}

fn micros(duration: Duration) -> String {
    format!("{:.0} µs", duration.as_secs_f64() * 1e6)
}
