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
    // The trials wait for servers most of the time.
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
        "tls::lock_works_with_any_ca_form",
        tls::lock_works_with_any_ca_form,
    );
    add(
        "tls::client_certificate_is_a_credential",
        tls::client_certificate_is_a_credential,
    );
    // Shows: connect-errors
    add("tls::unknown_ca_is_named", tls::unknown_ca_is_named);
    // Shows: connect-errors
    add("tls::wrong_host_is_named", tls::wrong_host_is_named);
    // Shows: connect-errors
    add(
        "tls::missing_client_certificate_is_named",
        tls::missing_client_certificate_is_named,
    );
    // Shows: connect-errors
    add(
        "tls::refused_client_certificate_is_named",
        tls::refused_client_certificate_is_named,
    );
    add(
        "tls::port_without_tls_is_named",
        tls::port_without_tls_is_named,
    );
    add("tls::port_with_tls_is_named", tls::port_with_tls_is_named);
    add(
        "tls::servers_are_asked_separately",
        tls::servers_are_asked_separately,
    );
    add("sasl::user_is_known_to_acls", sasl::user_is_known_to_acls);
    // Shows: connect-errors
    add(
        "sasl::wrong_password_is_refused_at_once",
        sasl::wrong_password_is_refused_at_once,
    );
    // Shows: connect-errors
    add("sasl::later_wrong_password_closes_the_client", |_| {
        sasl::later_wrong_password_closes_the_client()
    });
    add(
        "sasl::servers_without_sasl_ignore_the_user",
        sasl::servers_without_sasl_ignore_the_user,
    );
    add("sasl::required_sasl_refuses_anonymous_client", |_| {
        sasl::required_sasl_refuses_anonymous_client()
    });
    add(
        "nothing_secret_is_shown_or_logged",
        nothing_secret_is_shown_or_logged,
    );
    drop(servers);
    suite.add(
        "-",
        "tls::unusable_options_say_why",
        tls::unusable_options_say_why,
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
        // The client library's log has been captured as well.
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
