//! The help, the manual pages and the completions of the program.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use crate::started::{Files, run, server, zklock};

/// Returns the lines for a shell in the blocks of a page, without comments, and those of its
/// crontabs. Commands that install files in the system's directories are left out.
fn commands(page: &str) -> Vec<String> {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(page)).unwrap();
    let lines = text
        .lines()
        .filter_map(|line| match line.strip_prefix("$ zklock ") {
            Some(arguments) if arguments.contains(" >/") => None,
            Some(arguments) => Some(format!(
                "zklock {}",
                arguments.split(" # ").next().unwrap_or_default()
            )),
            // The command follows the five fields of the time.
            None => line
                .split_once("* * *")
                .map(|(_, command)| command.trim_start_matches([' ', '*']).into()),
        });
    lines
        .map(|line| line.replace("\\%", "%").replace("/opt/shop/", "./"))
        .collect()
}

/// The examples of the pages, with programs that do nothing.
pub(crate) fn examples() {
    let (server, files) = (server(), Files::new());
    for name in ["report", "nightly", "call", "scheduler"] {
        std::fs::write(files.of(name), "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(files.of(name), Permissions::from_mode(0o755)).unwrap();
    }
    let program = Path::new(env!("CARGO_BIN_EXE_zklock"))
        .parent()
        .unwrap()
        .display();
    let path = format!("{program}:{}", std::env::var("PATH").unwrap());
    let all = [commands("README.md"), commands("../README.md")].concat();
    assert!(all.len() >= 11, "{all:#?}");
    for line in all {
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(&line).current_dir(files.path());
        shell
            .env("PATH", &path)
            .env("ZK_CONNECT", server.connect_string());
        let ended = run(shell);
        assert_eq!((ended.code, &*ended.err), (0, ""), "{line}: {ended:?}");
    }
}

/// The synopsis of each manual page is the usage of its command, and no page refers to another that
/// does not exist.
pub(crate) fn manual() {
    for (command, usage) in [
        (
            "",
            &[
                "zklock [OPTIONS] PATH [-- CMD [ARG]...]",
                "zklock COMMAND --help",
            ][..],
        ),
        ("lead", &["zklock lead [OPTIONS] PATH -- CMD [ARG]..."]),
        ("status", &["zklock status [OPTIONS] PATH"]),
    ] {
        let page = run(zklock("", &format!("man {command}"), "")).out;
        let page = page.replace("\\-", "-");
        let (_, synopsis) = page.split_once(".SH SYNOPSIS\n").unwrap();
        let (synopsis, _) = synopsis.split_once(".SH ").unwrap();
        let lines: Vec<_> = synopsis
            .lines()
            .filter(|line| !line.starts_with('.'))
            .collect();
        assert_eq!(lines, usage, "{page}");
        assert!(!page.contains("zklock-man(1)"), "{page}");
        // The page of a command has no list of commands.
        let lists = [
            "zklock lead [OPTIONS] PATH -- CMD",
            "zklock completions <SHELL>",
        ];
        let is_listed = lists.map(|usage| page.contains(&format!(".TP\n{usage}")));
        assert_eq!(is_listed, [command.is_empty(); 2], "{page}");
    }
}

pub(crate) fn up_to_date() {
    let page =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let lines: Vec<String> = run(zklock("", "--help", ""))
        .out
        .lines()
        .map(|line| format!("{}\n", line.trim_end()))
        .collect();
    let help = lines.concat();
    let block = page
        .split("```text\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next())
        .unwrap_or_default();
    // Options of features are beside those of the page.
    if cfg!(not(any(feature = "tls", feature = "sasl-digest-md5"))) {
        let written = std::env::var("WRITE_PAGES").is_ok_and(|write| write == "1");
        if written && block != help {
            let page = page.replace(block, &help);
            std::fs::write(
                Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md"),
                page,
            )
            .unwrap();
        } else {
            assert_eq!(
                block, help,
                "write it by `WRITE_PAGES=1 cargo test -p zklock pages`"
            );
        }
    }
    let manual = run(zklock("", "man", "")).out;
    assert!(
        manual.starts_with(".ie") && manual.contains(".TH zklock 1"),
        "{manual}"
    );
    for command in ["lead", "status", "revoke", "break"] {
        let manual = run(zklock("", &format!("man {command}"), "")).out;
        let is_of_command = manual.contains(&format!(".TH zklock-{command} 1"));
        assert!(is_of_command, "{manual}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let script = run(zklock("", &format!("completions {shell}"), "")).out;
        assert!(script.contains("session-timeout"), "{script}");
    }
    // A reader that stops reading, or a full disk, is reported as an error.
    for page in ["--help", "man", "completions zsh", "completions bash"] {
        let mut command = zklock("", page, "");
        command.stdout(
            std::fs::OpenOptions::new()
                .write(true)
                .open("/dev/full")
                .unwrap(),
        );
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(71), "{page}: {said}");
        assert!(!said.contains("panicked"), "{page}: {said}");
    }
}
