//! Options that features add.

use test_support::Suite;

use crate::started::{run, zklock};

/// Adds the trials that the features have.
pub(crate) fn add_all(suite: &mut Suite) {
    #[cfg(feature = "tls")]
    suite.add("in-process", "secure::options_of_tls_reach_the_client", options_of_tls);
    #[cfg(feature = "sasl-digest-md5")]
    suite.add_needing("zookeeper", "secure::a_user_of_sasl", test_support::peers::zookeeper(), |_| {
        a_user_of_sasl();
    });
}

#[cfg(feature = "tls")]
fn options_of_tls() {
    let server = crate::started::server();
    let missing = run(zklock(&server.connect_string(), "--tls-ca /no/such/file /a", "true"));
    assert!(missing.code == 64 && missing.err.contains("/no/such/file"), "{missing:?}");
    let half = run(zklock(&server.connect_string(), "--tls-ca /no/ca --tls-cert /no/certificate /a", "true"));
    assert!(half.code == 64 && half.err.contains("--tls-key"), "{half:?}");
}

#[cfg(feature = "sasl-digest-md5")]
fn a_user_of_sasl() {
    use test_support::{Options, ZooKeeper, unique_path};
    let (files, path) = (crate::started::Files::new(), unique_path("sasl"));
    let module = "org.apache.zookeeper.server.auth.DigestLoginModule";
    let jaas = format!("Server {{ {module} required user_anna=\"secret\"; }};\n");
    for (name, text) in [("jaas", &*jaas), ("right", "anna:secret\n"), ("wrong", "anna:other\n")] {
        std::fs::write(files.of(name), text).unwrap();
    }
    let options = Options::new()
        .setting("authProvider.sasl", "org.apache.zookeeper.server.auth.SASLAuthenticationProvider")
        .jvm_arg(format!("-Djava.security.auth.login.config={}", files.of("jaas").display()));
    let servers = ZooKeeper::standalone(&options).unwrap();
    let with = |file: &str| {
        let arguments = format!("--sasl-file {} --private {path}", files.of(file).display());
        run(zklock(&servers.connect_string(), &arguments, "exit 5")).code
    };
    assert_eq!((with("right"), with("wrong"), with("right")), (5, 77, 5));
    assert_eq!(run(zklock(&servers.connect_string(), &path, "exit 5")).code, 77, "a stranger");
}
