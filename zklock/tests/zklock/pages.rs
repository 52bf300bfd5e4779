//! What the program says about itself.

use std::path::Path;

use crate::started::{run, zklock};

pub(crate) fn up_to_date() {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let lines: Vec<String> =
        run(zklock("", "--help", "")).out.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    let help = lines.concat();
    let block = page.split("```text\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap_or_default();
    // Options of features are beside those of the page.
    if cfg!(not(any(feature = "tls", feature = "sasl-digest-md5"))) {
        let written = std::env::var("WRITE_PAGES").is_ok_and(|write| write == "1");
        if written && block != help {
            let page = page.replace(block, &help);
            std::fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md"), page).unwrap();
        } else {
            assert_eq!(block, help, "write it by `WRITE_PAGES=1 cargo test -p zklock pages`");
        }
    }
    let manual = run(zklock("", "man", "")).out;
    assert!(manual.starts_with(".ie") && manual.contains(".TH zklock 1"), "{manual}");
    for shell in ["bash", "zsh", "fish"] {
        let script = run(zklock("", &format!("completions {shell}"), "")).out;
        assert!(script.contains("session-timeout"), "{script}");
    }
    // A reader that stops reading, or a full disk, is an error that is said.
    for page in ["--help", "man", "completions zsh", "completions bash"] {
        let mut command = zklock("", page, "");
        command.stdout(std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(71), "{page}: {said}");
        assert!(!said.contains("panicked"), "{page}: {said}");
    }
}
