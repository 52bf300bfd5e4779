//! TLS, mutual TLS and SASL DIGEST-MD5 against real ZooKeeper servers, with certificates made here.
//!
//! ```text
//! cargo test -p test-support --features secure --test secure
//! ```
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod certificates;
mod sasl;
mod servers;
mod tls;

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};

use test_support::{Suite, listen_to_log, peers};

use self::servers::Servers;

type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

/// Everything that this process has logged.
static LOG: Mutex<String> = Mutex::new(String::new());

fn logged() -> String {
    LOG.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn main() {
    listen_to_log(|metadata, text| {
        let mut log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
        *log += &format!("{} {text}\n", metadata.target());
    })
    .unwrap();
    let mut suite = Suite::new();
    // They wait for servers most of the time.
    suite.at_once(8);
    // The trials share the servers, which end with the last of them.
    let servers = Arc::new(Servers::default());
    let mut add = |name: &str, trial: fn(&Servers) -> Outcome| {
        let servers = Arc::clone(&servers);
        suite.add_needing("zookeeper", name, peers::zookeeper(), move |_| {
            trial(&servers)
        });
    };
    add(
        "tls::a_lock_over_tls_however_the_ca_is_given",
        tls::a_lock_over_tls_however_the_ca_is_given,
    );
    add(
        "tls::a_client_certificate_is_a_credential",
        tls::a_client_certificate_is_a_credential,
    );
    // Shows: connect-errors
    add("tls::an_unknown_ca_is_named", tls::an_unknown_ca_is_named);
    // Shows: connect-errors
    add("tls::another_host_is_named", tls::another_host_is_named);
    // Shows: connect-errors
    add(
        "tls::a_missing_client_certificate_is_named",
        tls::a_missing_client_certificate_is_named,
    );
    // Shows: connect-errors
    add(
        "tls::a_refused_client_certificate_is_named",
        tls::a_refused_client_certificate_is_named,
    );
    add(
        "tls::a_port_without_tls_is_named",
        tls::a_port_without_tls_is_named,
    );
    add(
        "tls::a_port_with_tls_is_named",
        tls::a_port_with_tls_is_named,
    );
    add(
        "tls::each_server_is_asked_by_itself",
        tls::each_server_is_asked_by_itself,
    );
    add(
        "sasl::a_user_is_known_to_acls",
        sasl::a_user_is_known_to_acls,
    );
    // Shows: connect-errors
    add(
        "sasl::a_wrong_password_is_refused_at_once",
        sasl::a_wrong_password_is_refused_at_once,
    );
    // Shows: connect-errors
    add(
        "sasl::a_password_that_is_wrong_later_closes_the_client",
        |_| sasl::a_password_that_is_wrong_later_closes_the_client(),
    );
    add(
        "sasl::servers_without_sasl_do_not_know_the_user",
        sasl::servers_without_sasl_do_not_know_the_user,
    );
    add(
        "sasl::servers_that_want_a_user_refuse_a_client_without",
        |_| sasl::servers_that_want_a_user_refuse_a_client_without(),
    );
    add(
        "nothing_secret_is_shown_or_logged",
        nothing_secret_is_shown_or_logged,
    );
    drop(servers);
    suite.add(
        "-",
        "tls::options_that_cannot_be_used_say_why",
        tls::options_that_cannot_be_used_say_why,
    );
    suite.add(
        "-",
        "tls::tls_is_for_all_servers",
        tls::tls_is_for_all_servers,
    );
    suite.run()
}

fn nothing_secret_is_shown_or_logged(servers: &Servers) -> Outcome {
    servers::run(async {
        let server = servers.mutual()?;
        let builder = server
            .builder_with_identity()
            .sasl_digest(servers::USER, servers::PASSWORD);
        let shown = format!(
            "{builder:?} {builder:#?} {:?}",
            server.options_with_identity()
        );
        let client = builder.connect(&server.secure("127.0.0.1")).await?;
        let shown = format!("{shown} {client:?}");
        client.close().await?;
        let builder = server
            .builder_with_identity()
            .sasl_digest(servers::USER, "geheim-wrong");
        let error = builder
            .connect(&server.secure("127.0.0.1"))
            .await
            .unwrap_err();
        let shown = format!("{shown} {error} {error:?}");
        let key = server.certificates.client.key_in_one_line();
        let all = [shown, logged()];
        // It has been listened to the client library as well.
        assert!(
            all[1].contains("zookeeper_recipes") && all[1].contains("zookeeper_client"),
            "{}",
            all[1].len()
        );
        for text in all {
            assert!(!text.contains("geheim"), "a password");
            assert!(!text.contains(&key), "a private key");
            assert!(!text.contains("PRIVATE KEY"), "a private key");
        }
        Ok(())
    })
}
