//! TLS: the options for the client library, and our own handshake, which explains a failed one.
//!
//! Certificates and keys are read and checked once, for both. The client library accepts only PEM,
//! so certificates and keys that were given as DER are converted. An error names the option and not
//! its contents, because these may include a key.
//!
//! The client library does not report the outcome of its tries. So after a failed try, a server is
//! asked for its status over a connection with the same options. If the handshake fails, its error
//! says which of the two sides refuses the other, and why (docs/protocol.md#connect-errors).

use std::fmt::Display;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use base64ct::{Base64, Encoding};
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, Error, RootCertStore,
    StreamOwned,
};
use rustls_pki_types::pem::{self, PemObject, SectionKind};
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName};
use zookeeper_client as zk;

use crate::error::ServerFailure as Kind;
use crate::session::dial::probe::{Handshake, MAX_ANSWER_BYTES, left};
use crate::values::tls::{Certificates, PrivateKey, TlsOptions};

/// Reads the user's options. Returns the options for the client library, and the function that asks
/// a server over TLS. The error says which option cannot be used, but not its contents.
pub(crate) fn prepare(options: &TlsOptions) -> Result<(zk::TlsOptions, Handshake), String> {
    if options.cas.is_empty() {
        return Err(
            "they have no CA, so no server could be trusted: call `ca_file`, `ca_pem` or `ca_der`"
                .to_owned(),
        );
    }
    let (mut roots, mut crls, mut text) = (RootCertStore::empty(), Vec::new(), String::new());
    for source in &options.cas {
        let name = name("CA", source);
        let (certificates, lists) = read_certificates(source, &name)?;
        for certificate in certificates {
            text.push_str(&to_pem("CERTIFICATE", &certificate));
            roots
                .add(certificate)
                .map_err(|error| unusable(&name, &error))?;
        }
        // The client library takes revocation lists from the text of the CAs.
        text.extend(lists.iter().map(|list| to_pem("X509 CRL", list)));
        crls.extend(lists);
    }
    let mut given = zk::TlsOptions::new()
        .with_pem_ca(&text)
        .map_err(|error| unusable("the CAs", &error))?;
    let provider = provider();
    // The verifier is built as in the client library, so that both accept the same certificates.
    let verifier =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .with_crls(crls)
            .build()
            .map_err(|error| unusable("the CAs", &error))?;
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable("the versions of TLS", &error))?
        .with_webpki_verifier(verifier);
    let config = match &options.identity {
        None => config.with_no_client_auth(),
        Some((certificates, key)) => {
            let name = name("client certificate", certificates);
            let (certificates, _) = read_certificates(certificates, &name)?;
            let key = read_key(key)?;
            let text: String = certificates
                .iter()
                .map(|one| to_pem("CERTIFICATE", one))
                .collect();
            given = given
                .with_pem_identity(&text, &key_to_pem(&key)?)
                .map_err(|error| unusable(&name, &error))?;
            let config = config.with_client_auth_cert(certificates, key);
            config.map_err(|error| match error {
                Error::InconsistentKeys(_) => format!("the private key is not that of {name}"),
                // An error of a key may quote it.
                Error::General(_) => format!("the private key of {name} is of no known kind"),
                error => unusable(&name, &error),
            })?
        }
    };
    let (config, has_identity) = (Arc::new(config), options.identity.is_some());
    let handshake: Handshake = Arc::new(move |host, stream, deadline| {
        exchange(&config, host, stream, deadline).map_err(|error| judge(&error, has_identity))
    });
    Ok((given, handshake))
}

/// Returns the cryptography provider of the process. The client library uses that provider, and
/// panics if there is none and rustls was compiled with several. In that case the provider that the
/// client library enables becomes that of the process.
fn provider() -> Arc<CryptoProvider> {
    if let Some(provider) = CryptoProvider::get_default() {
        return Arc::clone(provider);
    }
    let provider = aws_lc_rs::default_provider();
    // An error means that another thread was first.
    let _ = provider.clone().install_default();
    CryptoProvider::get_default().map_or_else(|| Arc::new(provider), Arc::clone)
}

fn name(what: &str, source: &Certificates) -> String {
    match source {
        Certificates::File(path) => format!("the {what} file {path:?}"),
        Certificates::Pem(_) => format!("the {what} text"),
        Certificates::Der(_) => format!("the {what} in DER"),
    }
}

fn unusable(name: &str, error: &dyn Display) -> String {
    format!("{name} cannot be used: {error}")
}

fn read_file(path: &Path, name: &str) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("{name} cannot be read: {error}"))
}

type Found = (
    Vec<CertificateDer<'static>>,
    Vec<CertificateRevocationListDer<'static>>,
);

/// Reads certificates and revocation lists. There is at least one certificate.
fn read_certificates(source: &Certificates, name: &str) -> Result<Found, String> {
    let sections = match source {
        Certificates::Der(certificates) if certificates.is_empty() => {
            return Err(format!("{name} has no certificate"));
        }
        Certificates::Der(certificates) => return Ok((certificates.clone(), Vec::new())),
        Certificates::File(path) => sections(&read_file(path, name)?, name)?,
        Certificates::Pem(text) => sections(text.as_bytes(), name)?,
    };
    let (mut certificates, mut lists) = (Vec::new(), Vec::new());
    for (kind, der) in sections {
        match kind {
            SectionKind::Certificate => certificates.push(CertificateDer::from(der)),
            SectionKind::Crl => lists.push(CertificateRevocationListDer::from(der)),
            // The file may also contain the private key.
            _ => {}
        }
    }
    if certificates.is_empty() {
        return Err(format!(
            "{name} has no certificate: PEM has a line `-----BEGIN CERTIFICATE-----` (DER goes to a method of its own)"
        ));
    }
    Ok((certificates, lists))
}

fn read_key(source: &PrivateKey) -> Result<PrivateKeyDer<'static>, String> {
    let (name, bytes) = match source {
        PrivateKey::Der(key) => return Ok(key.clone_key()),
        PrivateKey::File(path) => {
            let name = format!("the private key file {path:?}");
            let bytes = read_file(path, &name)?;
            (name, bytes)
        }
        PrivateKey::Pem(text) => ("the private key text".to_owned(), text.clone().into_bytes()),
    };
    // The file may also contain certificates, so the first section that is a key counts.
    let key = sections(&bytes, &name)?
        .into_iter()
        .find_map(|(kind, der)| PrivateKeyDer::from_pem(kind, der));
    key.ok_or_else(|| {
        if bytes.windows(9).any(|word| word == b"ENCRYPTED") {
            format!("{name} is encrypted: decrypt it first (`openssl pkey`)")
        } else {
            format!("{name} has no private key: PEM has a line `-----BEGIN PRIVATE KEY-----`")
        }
    })
}

/// Returns the sections of a PEM text. An error of the parser may quote the text, so it is replaced
/// by another message.
fn sections(text: &[u8], name: &str) -> Result<Vec<(SectionKind, Vec<u8>)>, String> {
    let sections: Result<_, _> = <(SectionKind, Vec<u8>)>::pem_slice_iter(text).collect();
    sections.map_err(|error| {
        let what = match error {
            pem::Error::MissingSectionEnd { .. } => "a section has no `-----END` line",
            pem::Error::IllegalSectionStart { .. } => "a `-----BEGIN` line is broken",
            pem::Error::Base64Decode(_) => "a section is not base64",
            _ => "it cannot be parsed",
        };
        format!("{name} is not PEM: {what}")
    })
}

fn to_pem(label: &str, der: &[u8]) -> String {
    format!(
        "-----BEGIN {label}-----\n{}\n-----END {label}-----\n",
        Base64::encode_string(der)
    )
}

fn key_to_pem(key: &PrivateKeyDer<'_>) -> Result<String, String> {
    let label = match key {
        PrivateKeyDer::Pkcs1(_) => "RSA PRIVATE KEY",
        PrivateKeyDer::Sec1(_) => "EC PRIVATE KEY",
        PrivateKeyDer::Pkcs8(_) => "PRIVATE KEY",
        _ => return Err("the private key is of no known kind".to_owned()),
    };
    Ok(to_pem(label, key.secret_der()))
}

/// Asks a server for its status, as [`probe`](crate::session::dial::probe) does without TLS.
fn exchange(
    config: &Arc<ClientConfig>,
    host: &str,
    stream: TcpStream,
    deadline: Instant,
) -> io::Result<(Vec<u8>, bool)> {
    let host = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let connection = ClientConnection::new(Arc::clone(config), host).map_err(io::Error::other)?;
    // The timeouts limit each read and write, of which a handshake has several. So the exchange may
    // end after the deadline, for which no caller waits (`ask_before`).
    let wait = |stream: &TcpStream| {
        let left = left(deadline).ok_or(ErrorKind::TimedOut)?;
        stream.set_read_timeout(Some(left))?;
        stream.set_write_timeout(Some(left))
    };
    let mut stream = StreamOwned::new(connection, stream);
    wait(stream.get_ref())?;
    // The first write performs the handshake.
    stream.write_all(b"srvr")?;
    stream.flush()?;
    let (mut answer, mut buffer) = (Vec::new(), [0; MAX_ANSWER_BYTES]);
    while answer.len() < MAX_ANSWER_BYTES {
        if wait(stream.get_ref()).is_err() {
            return Ok((answer, false));
        }
        match stream.read(&mut buffer) {
            Ok(0) => return Ok((answer, true)),
            Ok(read) => answer.extend_from_slice(buffer.get(..read).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // With TLS 1.3 a server refuses the client's certificate only after the handshake is
            // complete for the client.
            Err(error) if tls_error(&error).is_some() => return Err(error),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Ok((answer, false));
            }
            // A server that closes the connection without an alert, as many do, causes an error
            // here.
            Err(_) => return Ok((answer, true)),
        }
    }
    Ok((answer, false))
}

fn tls_error(error: &io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref()
}

/// Returns the meaning of an error for a server; `None` if the error does not even show that the
/// server speaks TLS.
fn judge(error: &io::Error, has_identity: bool) -> Option<(Kind, Option<String>)> {
    let error = tls_error(error)?;
    Some(match error {
        // The server has answered something other than TLS.
        Error::InvalidMessage(_) => return None,
        // The signature is bad if there is a CA of that name, with another key: the CA was
        // re-created.
        Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        ) => (Kind::UntrustedCertificate, None),
        Error::InvalidCertificate(CertificateError::NotValidForNameContext {
            presented, ..
        }) => (
            Kind::CertificateOfOtherHost,
            Some(format!("it is for {}", presented.join(", "))),
        ),
        Error::InvalidCertificate(CertificateError::NotValidForName) => {
            (Kind::CertificateOfOtherHost, None)
        }
        Error::InvalidCertificate(error) => (Kind::InvalidCertificate, Some(error.to_string())),
        Error::AlertReceived(alert) if is_about_certificates(*alert) => {
            // The alerts for a missing certificate differ between servers, so the options of the
            // client decide which of the two is meant.
            let kind = if has_identity {
                Kind::ClientCertificateRefused
            } else {
                Kind::NoClientCertificate
            };
            (kind, Some(format!("alert {alert:?}")))
        }
        error => (Kind::HandshakeFailed, Some(error.to_string())),
    })
}

fn is_about_certificates(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::NoCertificate
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
            | AlertDescription::CertificateRequired
    )
}
