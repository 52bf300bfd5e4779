//! The other programs that tests run against, and where this machine has them.
//!
//! Each function returns what is needed to start the peer, or [`Missing`] with the reason and the
//! remedy. With `REQUIRE_PEERS=1` in the environment, [`crate::Suite`] fails a test whose peer is
//! missing, instead of leaving it out.

use std::env;
use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

static ZOOKEEPER: OnceLock<Result<ZooKeeperPeer, Missing>> = OnceLock::new();
static CURATOR: OnceLock<Result<CuratorPeer, Missing>> = OnceLock::new();
static KAZOO: OnceLock<Result<KazooPeer, Missing>> = OnceLock::new();
static REDIS: OnceLock<Result<RedisPeer, Missing>> = OnceLock::new();

/// Where Debian puts jars.
const DEBIAN_JARS: &str = "/usr/share/java";

/// A peer that this machine does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    what: &'static str,
    reason: String,
    remedy: &'static str,
}

impl Missing {
    /// Returns the error that `what` cannot be run here because of `reason`, with the remedy.
    pub fn new(what: &'static str, reason: impl Into<String>, remedy: &'static str) -> Self {
        Self {
            what,
            reason: reason.into(),
            remedy,
        }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no {}: {} (try: {})",
            self.what, self.reason, self.remedy
        )
    }
}

impl std::error::Error for Missing {}

/// Returns whether a missing peer is a failure: `REQUIRE_PEERS` is set, and neither empty nor `0`.
#[must_use]
pub fn required() -> bool {
    env::var_os("REQUIRE_PEERS").is_some_and(|v| !v.is_empty() && v != "0")
}

/// The programs needed to start ZooKeeper servers.
#[derive(Debug, Clone)]
pub struct ZooKeeperPeer {
    /// The Java virtual machine.
    pub java: PathBuf,
    /// ZooKeeper, its dependencies, and a logger that writes to stderr.
    pub classpath: String,
    /// The version in the jar's name, if there is one.
    pub version: Option<String>,
}

impl ZooKeeperPeer {
    /// Returns the version's numbers, to be compared; `None` if the jar's name has no version.
    #[must_use]
    pub fn numbers(&self) -> Option<[u32; 3]> {
        let mut numbers = self
            .version
            .as_deref()?
            .split('.')
            .map(|number| number.parse().ok());
        Some([numbers.next()??, numbers.next()??, numbers.next()??])
    }
}

/// The programs needed to compile and run a Java program that uses Curator.
#[derive(Debug, Clone)]
pub struct CuratorPeer {
    /// The Java virtual machine, which also runs a single source file (`java -cp .. Main.java`).
    pub java: PathBuf,
    /// The Java compiler.
    pub javac: PathBuf,
    /// Curator's recipes, ZooKeeper's client and their dependencies.
    pub classpath: String,
    /// The version in the jar's name, if there is one.
    pub version: Option<String>,
}

impl CuratorPeer {
    /// Returns the compiler, which is a Java program that ends soon: its virtual machine need not
    /// optimize, which halves its time.
    #[must_use]
    pub fn compiler(&self) -> Command {
        let mut command = Command::new(&self.javac);
        command
            .args(["-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC"])
            .stdin(Stdio::null());
        command
    }
}

/// The programs needed to run a Python program that uses kazoo.
#[derive(Debug, Clone)]
pub struct KazooPeer {
    /// A Python that can import kazoo.
    pub python: PathBuf,
    /// kazoo's version.
    pub version: String,
}

/// The program needed to start a Redis server.
#[derive(Debug, Clone)]
pub struct RedisPeer {
    /// The server.
    pub server: PathBuf,
    /// The version of the server.
    pub version: String,
}

/// Returns the Java virtual machine: `$JAVA_HOME/bin/java`, else `java` on the path.
///
/// # Errors
/// [`Missing`] if there is none.
pub fn java() -> Result<PathBuf, Missing> {
    java_tool("java").ok_or_else(|| {
        Missing::new(
            "Java",
            "no `java` on the path",
            "apt-get install default-jre-headless",
        )
    })
}

/// Returns the Java compiler: `$JAVA_HOME/bin/javac`, else `javac` on the path.
///
/// # Errors
/// [`Missing`] if there is none.
pub fn javac() -> Result<PathBuf, Missing> {
    java_tool("javac").ok_or_else(|| {
        Missing::new(
            "Java compiler",
            "no `javac` on the path",
            "apt-get install default-jdk-headless",
        )
    })
}

/// Returns Java and the server's jars: `ZOOKEEPER_CLASSPATH`, else Debian's.
///
/// # Errors
/// [`Missing`] if either is not there.
pub fn zookeeper() -> Result<ZooKeeperPeer, Missing> {
    ZOOKEEPER.get_or_init(find_zookeeper).clone()
}

/// Returns Java, its compiler and Curator's jars: `CURATOR_CLASSPATH`, else Debian's.
///
/// # Errors
/// [`Missing`] if one of them is not there.
pub fn curator() -> Result<CuratorPeer, Missing> {
    CURATOR.get_or_init(find_curator).clone()
}

/// Returns a Python that can import kazoo: the first of `$PYTHON`, `python3` on the path and
/// `/usr/bin/python3`.
///
/// # Errors
/// [`Missing`] if none can.
pub fn kazoo() -> Result<KazooPeer, Missing> {
    KAZOO.get_or_init(find_kazoo).clone()
}

/// Returns a Redis server: `redis-server` on the path.
///
/// # Errors
/// [`Missing`] if there is none, or it does not report its version.
pub fn redis() -> Result<RedisPeer, Missing> {
    REDIS.get_or_init(find_redis).clone()
}

/// Returns Prometheus's `promtool` on the path, which checks and runs rules.
///
/// # Errors
/// [`Missing`] if there is none.
pub fn promtool() -> Result<PathBuf, Missing> {
    on_path("promtool").ok_or_else(|| {
        let remedy = "apt-get install --no-install-recommends prometheus";
        Missing::new("Prometheus", "no `promtool` on the path", remedy)
    })
}

/// Returns the peers that this process has asked for and found, with their versions; `None` if
/// there is none.
pub(crate) fn found() -> Option<String> {
    const UNKNOWN: &str = "of an unknown version";
    let named =
        |name: &str, version: Option<&str>| format!("{name} {}", version.unwrap_or(UNKNOWN));
    let zookeeper = ZOOKEEPER.get().and_then(|peer| peer.as_ref().ok());
    let curator = CURATOR.get().and_then(|peer| peer.as_ref().ok());
    let kazoo = KAZOO.get().and_then(|peer| peer.as_ref().ok());
    let redis = REDIS.get().and_then(|peer| peer.as_ref().ok());
    let all: Vec<_> = [
        zookeeper.map(|peer| named("ZooKeeper", peer.version.as_deref())),
        curator.map(|peer| named("Curator", peer.version.as_deref())),
        kazoo.map(|peer| named("kazoo", Some(&peer.version))),
        redis.map(|peer| named("Redis", Some(&peer.version))),
    ]
    .into_iter()
    .flatten()
    .collect();
    (!all.is_empty()).then(|| all.join(", "))
}

fn find_zookeeper() -> Result<ZooKeeperPeer, Missing> {
    const REMEDY: &str = "apt-get install libzookeeper-java default-jre-headless";
    let java = java().map_err(|e| Missing::new("ZooKeeper", e.reason, REMEDY))?;
    if let Some(classpath) = env::var("ZOOKEEPER_CLASSPATH")
        .ok()
        .filter(|c| !c.is_empty())
    {
        let version = version_in(&classpath, "zookeeper");
        return Ok(ZooKeeperPeer {
            java,
            classpath,
            version,
        });
    }
    let jar = debian_jar("zookeeper.jar", "libzookeeper-java")
        .ok_or_else(|| Missing::new("ZooKeeper", "no zookeeper.jar", REMEDY))?;
    Ok(ZooKeeperPeer {
        java,
        version: version_of(&jar),
        classpath: with_logger(&jar),
    })
}

fn find_curator() -> Result<CuratorPeer, Missing> {
    const REMEDY: &str = "apt-get install libcurator-recipes-java default-jdk-headless";
    let missing = |reason: String| Missing::new("Curator", reason, REMEDY);
    let java = java().map_err(|e| missing(e.reason))?;
    let javac = javac().map_err(|e| missing(e.reason))?;
    if let Some(classpath) = env::var("CURATOR_CLASSPATH").ok().filter(|c| !c.is_empty()) {
        let version = version_in(&classpath, "curator-recipes");
        return Ok(CuratorPeer {
            java,
            javac,
            classpath,
            version,
        });
    }
    let jar = debian_jar("curator-recipes.jar", "libcurator-recipes-java")
        .ok_or_else(|| missing("no curator-recipes.jar".to_owned()))?;
    let version = version_of(&jar);
    // Debian's manifests name what each jar needs for the virtual machine, but the compiler
    // resolves the classes of a source file against the class path itself.
    let dir = jar.parent().map(Path::to_owned).unwrap_or_default();
    let mut classpath = with_logger(&jar);
    for sibling in [
        "curator-framework",
        "curator-client",
        "zookeeper",
        "zookeeper-jute",
        "guava",
        "slf4j-api",
    ] {
        let sibling = dir.join(format!("{sibling}.jar"));
        if sibling.exists() {
            classpath.push(':');
            classpath.push_str(&sibling.to_string_lossy());
        }
    }
    Ok(CuratorPeer {
        java,
        javac,
        classpath,
        version,
    })
}

fn find_kazoo() -> Result<KazooPeer, Missing> {
    let candidates = [
        env::var_os("PYTHON").map(PathBuf::from),
        on_path("python3"),
        Some("/usr/bin/python3".into()),
    ];
    let mut reason = "no `python3` on the path".to_owned();
    for python in candidates
        .into_iter()
        .flatten()
        .filter(|p| !p.as_os_str().is_empty())
    {
        match said(
            &python,
            ["-c", "import kazoo.version as v; print(v.__version__)"],
        ) {
            Some(version) => {
                return Ok(KazooPeer {
                    python,
                    version: version.trim().to_owned(),
                });
            }
            None => reason = format!("{} cannot import kazoo", python.display()),
        }
    }
    Err(Missing::new(
        "kazoo",
        reason,
        "apt-get install python3-kazoo",
    ))
}

fn find_redis() -> Result<RedisPeer, Missing> {
    let missing = |reason: &str| Missing::new("Redis", reason, "apt-get install redis-server");
    let server = on_path("redis-server").ok_or_else(|| missing("no `redis-server` on the path"))?;
    // The output is `Redis server v=7.0.15 sha=00000000:0` and more.
    let said =
        said(&server, ["--version"]).ok_or_else(|| missing("`redis-server --version` fails"))?;
    let version = said
        .split_whitespace()
        .find_map(|word| word.strip_prefix("v="));
    let version = version
        .ok_or_else(|| missing("`redis-server --version` names no version"))?
        .to_owned();
    Ok(RedisPeer { server, version })
}

fn java_tool(name: &str) -> Option<PathBuf> {
    let home = env::var_os("JAVA_HOME").map(|h| Path::new(&h).join("bin").join(name));
    home.filter(|p| p.is_file()).or_else(|| on_path(name))
}

/// Returns the first file with this name in the directories of `PATH`.
fn on_path(name: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?)
        .map(|dir| dir.join(name))
        .find(|p| p.is_file())
}

/// Returns a jar of a Debian package, with or without the package manager's help.
fn debian_jar(name: &str, package: &str) -> Option<PathBuf> {
    let usual = Path::new(DEBIAN_JARS).join(name);
    if usual.exists() {
        return Some(usual);
    }
    let files = said(&on_path("dpkg")?, ["-L", package])?;
    files
        .lines()
        .map(PathBuf::from)
        .find(|p| p.file_name() == Some(OsStr::new(name)) && p.exists())
}

/// Returns the jar and, if it is in the same directory, slf4j's logger to stderr: without a logger,
/// ZooKeeper logs nothing.
fn with_logger(jar: &Path) -> String {
    let mut classpath = jar.to_string_lossy().into_owned();
    // The others are what Netty needs for connections, which Debian's manifest of ZooKeeper omits.
    for sibling in ["slf4j-simple.jar", "netty-codec.jar", "netty-resolver.jar"] {
        let sibling = jar.with_file_name(sibling);
        if sibling.exists() {
            classpath.push(':');
            classpath.push_str(&sibling.to_string_lossy());
        }
    }
    classpath
}

/// Returns the version of `zookeeper.jar`: in the name behind the symbolic link or of a file beside
/// it.
fn version_of(jar: &Path) -> Option<String> {
    let name = jar.file_stem()?.to_str()?;
    version_named(&jar.canonicalize().ok()?, name).or_else(|| version_beside(jar, name))
}

/// Returns the version of the first jar with this name in a class path, an entry of which may be
/// `directory/*`.
fn version_in(classpath: &str, name: &str) -> Option<String> {
    env::split_paths(classpath).find_map(|entry| match entry.file_stem()?.to_str()? {
        "*" => version_beside(&entry, name),
        stem if stem == name => version_of(&entry),
        _ => version_named(&entry, name),
    })
}

/// Returns the version of the first jar with this name in the directory of another file.
fn version_beside(file: &Path, name: &str) -> Option<String> {
    let mut files = file.parent()?.read_dir().ok()?.filter_map(Result::ok);
    files.find_map(|entry| version_named(&entry.path(), name))
}

/// Returns `3.8.0` for `zookeeper-3.8.0.jar`.
fn version_named(jar: &Path, name: &str) -> Option<String> {
    let version = jar
        .file_stem()?
        .to_str()?
        .strip_prefix(name)?
        .strip_prefix('-')?;
    // `zookeeper-jute-3.8.0.jar` is another jar.
    version
        .starts_with(|c: char| c.is_ascii_digit())
        .then(|| version.to_owned())
}

/// Returns the output of a program on stdout; `None` if it fails.
fn said<const N: usize>(program: &Path, args: [&str; N]) -> Option<String> {
    let output = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_peer_says_what_to_install() {
        let missing = Missing::new("ZooKeeper", "no zookeeper.jar", "apt-get install zookeeper");
        assert_eq!(
            missing.to_string(),
            "no ZooKeeper: no zookeeper.jar (try: apt-get install zookeeper)"
        );
    }

    #[test]
    fn version_comes_from_jar_name() {
        let dir = tempfile::tempdir().expect("a directory");
        for name in [
            "zookeeper.jar",
            "zookeeper-jute.jar",
            "zookeeper-jute-3.9.4.jar",
            "zookeeper-3.9.5.jar",
        ] {
            std::fs::write(dir.path().join(name), "").expect("a file");
        }
        let path = |name: &str| dir.path().join(name);
        let expected = Some("3.9.5".to_owned());
        assert_eq!(version_of(&path("zookeeper.jar")), expected);
        for entry in ["*", "zookeeper.jar", "zookeeper-3.9.5.jar"] {
            let classpath = format!("/elsewhere:{}:/elsewhere/*", path(entry).display());
            assert_eq!(version_in(&classpath, "zookeeper"), expected, "{entry}");
            assert_eq!(version_in(&classpath, "curator-recipes"), None, "{entry}");
        }
    }

    #[test]
    fn version_has_numbers() {
        let peer = |version: Option<&str>| ZooKeeperPeer {
            java: PathBuf::new(),
            classpath: String::new(),
            version: version.map(str::to_owned),
        };
        assert!(peer(Some("3.10.0")).numbers() > peer(Some("3.9.11")).numbers());
        assert_eq!(peer(Some("3.9.5")).numbers(), Some([3, 9, 5]));
        assert_eq!(peer(Some("nightly")).numbers(), None);
        assert_eq!(peer(None).numbers(), None);
    }
}
