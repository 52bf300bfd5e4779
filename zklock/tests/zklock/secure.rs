//! Options that features add.

use test_support::Suite;

use crate::started::{run, zklock};

/// Adds the trials of the features.
pub(crate) fn add_all(suite: &mut Suite) {
    #[cfg(feature = "tls")]
    {
        suite.add(
            "in-process",
            "secure::options_of_tls_reach_the_client",
            options_of_tls,
        );
        suite.add_needing(
            "zookeeper",
            "secure::lock_works_over_tls",
            test_support::peers::zookeeper(),
            |peer| {
                over_tls(&peer.java.with_file_name("keytool"));
            },
        );
    }
    #[cfg(feature = "sasl-digest-md5")]
    suite.add_needing(
        "zookeeper",
        "secure::sasl_user_gets_the_lock",
        test_support::peers::zookeeper(),
        |_| {
            sasl_user_gets_the_lock();
        },
    );
}

#[cfg(feature = "tls")]
fn options_of_tls() {
    let server = crate::started::server();
    let missing = run(zklock(
        &server.connect_string(),
        "--tls-ca /no/such/file /a",
        "true",
    ));
    assert!(
        missing.code == 64 && missing.err.contains("/no/such/file"),
        "{missing:?}"
    );
    let half = run(zklock(
        &server.connect_string(),
        "--tls-ca /no/ca --tls-cert /no/certificate /a",
        "true",
    ));
    assert!(
        half.code == 64 && half.err.contains("--tls-key"),
        "{half:?}"
    );
}

/// A program of Java makes the certificate, which is its own authority.
#[cfg(feature = "tls")]
fn over_tls(keytool: &std::path::Path) {
    use test_support::{Options, ZooKeeper, unique_path};
    let files = crate::started::Files::new();
    let make = |arguments: &str| {
        let mut command = std::process::Command::new(keytool);
        command
            .current_dir(files.path())
            .args(arguments.split_whitespace());
        let made = run(command);
        assert_eq!(made.code, 0, "{made:?}");
    };
    for name in ["server", "other"] {
        let key = "-keyalg EC -dname CN=server -ext san=ip:127.0.0.1";
        make(&format!(
            "-genkeypair -alias a {key} -keystore {name} -storetype PKCS12 -storepass secret"
        ));
        make(&format!(
            "-exportcert -rfc -alias a -keystore {name} -storepass secret -file {name}.pem"
        ));
    }
    let options = Options::new()
        .secure_port()
        .setting("ssl.clientAuth", "none")
        .setting(
            "ssl.keyStore.location",
            files.of("server").display().to_string(),
        )
        .setting("ssl.keyStore.type", "PKCS12")
        .setting("ssl.keyStore.password", "secret");
    let zookeeper = ZooKeeper::standalone(&options).unwrap();
    let servers = zookeeper.secure_address(0).to_string();
    let with = |authority: &str| {
        let options = format!(
            "--tls-ca {} {}",
            files.of(authority).display(),
            unique_path("tls")
        );
        run(zklock(&servers, &options, "exit 5"))
    };
    assert_eq!(with("server.pem").code, 5);
    let refused = with("other.pem");
    assert!(
        refused.code == 69 && refused.err.contains("see --tls-ca"),
        "{refused:?}"
    );
}

#[cfg(feature = "sasl-digest-md5")]
fn sasl_user_gets_the_lock() {
    use test_support::{Options, ZooKeeper, unique_path};
    let (files, path) = (crate::started::Files::new(), unique_path("sasl"));
    let module = "org.apache.zookeeper.server.auth.DigestLoginModule";
    let jaas = format!("Server {{ {module} required user_anna=\"secret\"; }};\n");
    for (name, text) in [
        ("jaas", &*jaas),
        ("right", "anna:secret\n"),
        ("wrong", "anna:other\n"),
    ] {
        std::fs::write(files.of(name), text).unwrap();
    }
    let options = Options::new()
        .setting(
            "authProvider.sasl",
            "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
        )
        .jvm_arg(format!(
            "-Djava.security.auth.login.config={}",
            files.of("jaas").display()
        ));
    let servers = ZooKeeper::standalone(&options).unwrap();
    let with = |file: &str| {
        let arguments = format!("--sasl-file {} --private {path}", files.of(file).display());
        run(zklock(&servers.connect_string(), &arguments, "exit 5")).code
    };
    assert_eq!((with("right"), with("wrong"), with("right")), (5, 77, 5));
    assert_eq!(
        run(zklock(&servers.connect_string(), &path, "exit 5")).code,
        77,
        "a stranger"
    );
}
