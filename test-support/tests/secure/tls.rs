//! TLS and mutual TLS.

use std::error::Error as _;
use std::fs;

use test_support::{unique_path, within};
use zookeeper_recipes::{
    Acl, ClientBuilder, ConnectError, InterProcessMutex, ServerFailure, TlsOptions,
};

use super::Outcome;
use super::certificates::Certificates;
use super::servers::{Servers, TIMEOUT, builder, run};

/// Acquires and releases a lock, and closes the client.
async fn works(builder: ClientBuilder, servers: &str) -> Outcome {
    let client = within("a session", builder.connect(servers)).await?;
    let mutex = InterProcessMutex::new(&client, unique_path("tls"))?;
    within("a free lock", mutex.lock()).await?.release().await?;
    client.close().await?;
    Ok(())
}

/// Fails to connect. Returns how each server gave no session, and the text of the error.
async fn fails(builder: ClientBuilder, servers: &str) -> (Vec<ServerFailure>, String) {
    let builder = builder.connect_timeout(TIMEOUT);
    let told = async {
        loop {
            let error = builder.clone().connect(servers).await.unwrap_err();
            let ConnectError::TimedOut { failures, .. } = &error else {
                panic!("{error:?}")
            };
            let kinds: Vec<_> = failures.iter().map(|(_, failure)| *failure).collect();
            // A server has a second for its answer, and a busy one may need longer.
            if !kinds.contains(&ServerFailure::NoAnswer) {
                return (kinds, error.source().unwrap().to_string());
            }
        }
    };
    within("an answer of every server", told).await
}

pub(crate) fn lock_works_with_any_ca_form(servers: &Servers) -> Outcome {
    run(async {
        let server = servers.one_sided()?;
        let (at, ca) = (server.secure("localhost"), &server.certificates.ca);
        works(builder().tls(server.options()), &at).await?;
        works(
            builder().tls(TlsOptions::new().ca_pem(ca.pem())),
            &format!("tcp+tls://{at}/shop"),
        )
        .await?;
        works(
            builder().tls(TlsOptions::new().ca_der([ca.der().clone()])),
            &at,
        )
        .await?;
        // The CA is one of several.
        let others = Certificates::new(&[]);
        works(
            builder().tls(TlsOptions::new().ca_pem(others.ca.pem() + &ca.pem())),
            &at,
        )
        .await?;
        works(
            builder().tls(
                TlsOptions::new()
                    .ca_pem(others.ca.pem())
                    .ca_file(server.file("ca.pem")),
            ),
            &at,
        )
        .await
    })
}

pub(crate) fn client_certificate_is_a_credential(servers: &Servers) -> Outcome {
    run(async {
        let server = servers.mutual()?;
        let (at, path) = (server.secure("127.0.0.1"), unique_path("mutual"));
        let client = server
            .builder_with_identity()
            .acl([Acl::creator_all()])
            .connect(&at)
            .await?;
        let guard = within(
            "a free lock",
            InterProcessMutex::new(&client, &path)?.lock(),
        )
        .await?;
        let stranger = builder().connect(&server.plain()).await?;
        let error = InterProcessMutex::new(&stranger, &path)?
            .try_lock()
            .await
            .unwrap_err();
        assert!(error.to_string().contains("permission"), "{error}");
        guard.release().await?;
        // The certificates are passed as texts instead of files.
        let (ours, key) = (
            &server.certificates.client,
            server.certificates.client.key.serialize_pem(),
        );
        works(
            builder().tls(server.options().identity_pem(ours.certificate.pem(), &key)),
            &at,
        )
        .await?;
        // The certificate and the key are in one text.
        works(
            builder().tls(server.options().identity_pem(ours.pem(), ours.pem())),
            &at,
        )
        .await?;
        let der = ours.key.serialize_der().try_into()?;
        works(
            builder().tls(
                server
                    .options()
                    .identity_der([ours.certificate.der().clone()], der),
            ),
            &at,
        )
        .await?;
        stranger.close().await?;
        client.close().await?;
        Ok(())
    })
}

pub(crate) fn unknown_ca_is_named(servers: &Servers) -> Outcome {
    run(async {
        let server = servers.one_sided()?;
        // A CA that was created again with the same name is another CA.
        for other in [Certificates::of("another CA", &[]), Certificates::new(&[])] {
            let options = TlsOptions::new().ca_pem(other.ca.pem());
            let (kinds, text) = fails(builder().tls(options), &server.secure("localhost")).await;
            assert_eq!(kinds, [ServerFailure::UntrustedCertificate], "{text}");
            assert!(
                text.contains("is not signed by a CA of the client's"),
                "{text}"
            );
        }
        Ok(())
    })
}

pub(crate) fn wrong_host_is_named(servers: &Servers) -> Outcome {
    run(async {
        let server = servers.one_sided()?;
        let (kinds, text) =
            fails(builder().tls(server.options()), &server.secure("127.0.0.1")).await;
        assert_eq!(kinds, [ServerFailure::CertificateOfOtherHost], "{text}");
        assert!(text.contains("localhost"), "{text}");
        Ok(())
    })
}

pub(crate) fn missing_client_certificate_is_named(servers: &Servers) -> Outcome {
    run(async {
        let server = servers.mutual()?;
        let (kinds, text) =
            fails(builder().tls(server.options()), &server.secure("localhost")).await;
        assert_eq!(kinds, [ServerFailure::NoClientCertificate], "{text}");
        Ok(())
    })
}

pub(crate) fn refused_client_certificate_is_named(servers: &Servers) -> Outcome {
    run(async {
        let server = servers.mutual()?;
        let strange = Certificates::new(&[]).client;
        let options = server
            .options()
            .identity_pem(strange.certificate.pem(), strange.key.serialize_pem());
        let (kinds, text) = fails(builder().tls(options), &server.secure("localhost")).await;
        assert_eq!(kinds, [ServerFailure::ClientCertificateRefused], "{text}");
        Ok(())
    })
}

pub(crate) fn port_without_tls_is_named(servers: &Servers) -> Outcome {
    run(async {
        let server = servers.one_sided()?;
        let (kinds, text) = fails(builder().tls(server.options()), &server.plain()).await;
        assert_eq!(kinds, [ServerFailure::SpeaksNoTls], "{text}");
        Ok(())
    })
}

pub(crate) fn port_with_tls_is_named(servers: &Servers) -> Outcome {
    run(async {
        let server = servers.one_sided()?;
        let (kinds, text) = fails(builder(), &server.secure("localhost")).await;
        // The server closes the connection without an answer.
        assert_eq!(kinds, [ServerFailure::ClosedAtOnce], "{text}");
        assert!(text.contains("or it speaks TLS"), "{text}");
        Ok(())
    })
}

/// Two servers refuse the client for two reasons, and neither reason hides the other.
pub(crate) fn servers_are_asked_separately(servers: &Servers) -> Outcome {
    run(async {
        let (one, other) = (servers.one_sided()?, servers.mutual()?);
        let both = format!("{},{}", one.secure("127.0.0.1"), other.secure("127.0.0.1"));
        let options = one.options().ca_file(other.file("ca.pem"));
        let (kinds, text) = fails(builder().tls(options.clone()), &both).await;
        let wanted = [
            ServerFailure::CertificateOfOtherHost,
            ServerFailure::NoClientCertificate,
        ];
        assert_eq!(kinds, wanted, "{text}");
        // One server that accepts the client is enough.
        let both = format!("{},{}", one.secure("localhost"), other.secure("127.0.0.1"));
        works(builder().tls(options), &both).await
    })
}

pub(crate) fn unusable_options_say_why() -> Outcome {
    run(async {
        let directory = tempfile::tempdir()?;
        let file = |name: &str, bytes: &[u8]| {
            let path = directory.path().join(name);
            fs::write(&path, bytes).unwrap();
            path
        };
        let ours = Certificates::new(&["localhost"]);
        let (ca, client) = (ours.ca.pem(), &ours.client);
        let key = client.key.serialize_pem();
        let encrypted = key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
        let tls = || TlsOptions::new().ca_pem(ca.clone());
        let mutual = |certificate: &str, key: &str| tls().identity_pem(certificate, key);
        let cut = ca.replace("-----END", "");
        for (options, reason) in [
            (TlsOptions::new(), "call `ca_file`, `ca_pem` or `ca_der`"),
            (
                tls().ca_file("/no/such/file"),
                "the CA file \"/no/such/file\" cannot be read: No such file",
            ),
            (
                tls().ca_file(file("empty.pem", b"")),
                "empty.pem\" has no certificate",
            ),
            (
                tls().ca_file(file("ca.der", ours.ca.der())),
                "ca.der\" has no certificate: PEM has a line",
            ),
            (tls().ca_pem(key.clone()), "the CA text has no certificate"),
            (
                tls().ca_pem(cut),
                "the CA text is not PEM: a section has no `-----END` line",
            ),
            (
                tls().ca_pem(ca.replace("MII", "M!!")),
                "the CA text is not PEM: a section is not base64",
            ),
            (
                tls().ca_der([vec![1, 2, 3].into()]),
                "the CA in DER cannot be used",
            ),
            (tls().ca_der([]), "the CA in DER has no certificate"),
            (
                mutual("", &key),
                "the client certificate text has no certificate",
            ),
            (
                mutual(&client.certificate.pem(), ""),
                "the private key text has no private key",
            ),
            (
                mutual(&client.certificate.pem(), &encrypted),
                "the private key text is encrypted",
            ),
            (
                mutual(&ca, &key),
                "the private key is not that of the client certificate text",
            ),
            (
                tls().identity_files(file("c.pem", ca.as_bytes()), "/no/key"),
                "the private key file \"/no/key\"",
            ),
        ] {
            let error = builder()
                .tls(options)
                .connect("localhost:1")
                .await
                .unwrap_err();
            assert!(
                matches!(error, ConnectError::InvalidTls { .. }),
                "{error:?}"
            );
            assert!(error.to_string().contains(reason), "{error}");
            assert!(
                !error.is_retryable() && error.servers() == Some("localhost:1"),
                "{error}"
            );
            // The error quotes nothing from a file or a text.
            assert!(
                !error.to_string().contains(&client.key_in_one_line()),
                "{error}"
            );
        }
        Ok(())
    })
}

pub(crate) fn tls_is_for_all_servers() -> Outcome {
    run(async {
        let tls = || TlsOptions::new().ca_pem(Certificates::new(&[]).ca.pem());
        for (options, servers, reason) in [
            (
                Some(tls()),
                "localhost:1,tcp://localhost:2",
                "does not connect by `tcp://`",
            ),
            (Some(tls()), "zk!1:2", "neither a DNS name nor an address"),
            (
                None,
                "localhost:1,tcp+tls://localhost:2",
                "call `tls` of the builder",
            ),
        ] {
            let builder = match options {
                Some(options) => builder().tls(options),
                None => builder(),
            };
            let error = builder.connect(servers).await.unwrap_err();
            assert!(
                matches!(error, ConnectError::InvalidConnectString { .. }),
                "{error:?}"
            );
            assert!(error.to_string().contains(reason), "{error}");
        }
        Ok(())
    })
}

#[expect(dead_code, reason = "it is compiled, not run")]
fn options_go_anywhere() {
    fn free<T: Send + Sync + Unpin + Clone + std::fmt::Debug + 'static>() {}
    free::<TlsOptions>();
}
