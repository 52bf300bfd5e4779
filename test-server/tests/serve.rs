//! The example `serve`, run as a program of another language would run it.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking; clippy knows this only of #[test] functions"
)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};

fn serve() -> Command {
    Command::new(test_support::example("serve").unwrap())
}

#[test]
fn serves_until_its_input_ends_and_says_so() {
    let mut command = serve();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut server = command.spawn().unwrap();
    let mut address = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut address).unwrap();
    let mut client = TcpStream::connect(address.trim()).unwrap();
    client.write_all(b"ruok").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "imok");
    drop(server.stdin.take());
    let output = server.wait_with_output().unwrap();
    assert!(output.status.success());
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("standard input has ended"), "{stderr}");
}

#[test]
fn says_what_is_wrong_with_a_port() {
    for port in ["nonsense", "65536"] {
        let output = serve().arg(port).stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.contains(&format!("{port} is not a port")), "{stderr}");
    }
}
