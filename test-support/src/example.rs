//! The examples as programs.

use std::collections::BTreeMap;
use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

/// Returns the path of the workspace's example with this name, built in this test's target
/// directory from the current sources.
///
/// `cargo test` builds the examples with the tests. `cargo test --test NAME` does not. If the
/// program is missing, or older than one of its sources, this function builds it, once per process.
///
/// # Errors
/// Returns an error if the example cannot be built; the compiler's messages are on stderr.
pub fn example(name: &str) -> Result<PathBuf, Box<dyn Error>> {
    static KNOWN: Mutex<BTreeMap<String, PathBuf>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(program) = known.get(name) {
        return Ok(program.clone());
    }
    let test = env::current_exe()?;
    let profile = test
        .parent()
        .and_then(Path::parent)
        .ok_or("the test is in no target directory")?;
    let program = profile
        .join("examples")
        .join(name)
        .with_extension(env::consts::EXE_EXTENSION);
    if !is_fresh(&program) {
        build(name, profile)?;
    }
    known.insert(name.to_owned(), program.clone());
    Ok(program)
}

/// Returns whether the program exists and is newer than its sources, which cargo lists in a file
/// next to it.
fn is_fresh(program: &Path) -> bool {
    let changed = |path: &Path| -> Option<SystemTime> { fs::metadata(path).ok()?.modified().ok() };
    let (Some(built), Ok(sources)) = (
        changed(program),
        fs::read_to_string(program.with_extension("d")),
    ) else {
        return false;
    };
    let Some((target, sources)) = sources.trim_end().split_once(": ") else {
        return false;
    };
    // A space in a path is escaped.
    let path = |escaped: &str| PathBuf::from(escaped.replace("\\ ", " "));
    let hidden = sources.replace("\\ ", "\0");
    let is_older = |source: &str| {
        changed(&path(&source.replace('\0', "\\ "))).is_some_and(|changed| changed <= built)
    };
    // The file may belong to another program if the target directory was copied.
    path(target) == program && hidden.split(' ').all(is_older)
}

fn build(name: &str, profile: &Path) -> Result<(), Box<dyn Error>> {
    let (target, kind) = (profile.parent(), profile.file_name());
    let (Some(target), Some(kind)) = (target, kind) else {
        return Err("the test is in no target directory".into());
    };
    let kind = if kind == "debug" {
        "dev".as_ref()
    } else {
        kind
    };
    // Cargo takes the lock of the target directory, which the cargo that runs the tests has already
    // released.
    let status = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args([
            "build",
            "--quiet",
            "--workspace",
            "--example",
            name,
            "--manifest-path",
        ])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml"))
        .arg("--target-dir")
        .arg(target)
        .arg("--profile")
        .arg(kind)
        .status()?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("the example {name} cannot be built: {status}").into())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn changed_source_makes_program_stale() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = |name: &str| dir.path().join(name);
        let (program, one, two) = (path("program"), path("a source.rs"), path("other.rs"));
        let written = |path: &Path, at: SystemTime| {
            fs::write(path, "").expect("a file");
            fs::File::options()
                .write(true)
                .open(path)
                .and_then(|file| file.set_modified(at))
                .expect("a time");
        };
        let (before, built) = (
            SystemTime::UNIX_EPOCH,
            SystemTime::UNIX_EPOCH + Duration::from_secs(1),
        );
        assert!(!is_fresh(&program), "there is no program yet");
        written(&program, built);
        assert!(!is_fresh(&program), "what it was built from is not known");
        let escaped = |path: &Path| path.display().to_string().replace(' ', "\\ ");
        let list = format!(
            "{}: {} {}\n",
            escaped(&program),
            escaped(&one),
            escaped(&two)
        );
        fs::write(path("program.d"), list).expect("a file");
        assert!(!is_fresh(&program), "its sources are gone");
        written(&one, before);
        written(&two, built);
        assert!(is_fresh(&program));
        written(&one, built + Duration::from_secs(1));
        assert!(!is_fresh(&program), "a source is newer");
    }
}
