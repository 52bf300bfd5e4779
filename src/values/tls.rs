//! The options of TLS: which certificates of servers are trusted, and which certificate the client
//! presents.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// How a client connects over TLS: the CAs that it trusts and, for mutual TLS, its own certificate.
///
/// For [`ClientBuilder::tls`](crate::ClientBuilder::tls), with the feature `tls`. The servers
/// listen for TLS at their `secureClientPort`.
///
/// A server's certificate must be signed by one of these CAs (the system's CAs are not used), and
/// must be for the host in the connect string: for the name or the address that is given there.
/// Neither check can be turned off. Unlike Java's client, this client does not look up the name of
/// an address.
///
/// Files are read once, when the client is connected.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use zookeeper_recipes::{Client, ConnectError, TlsOptions};
///
/// let tls = TlsOptions::new()
///     .ca_file("/etc/zookeeper/ca.pem")
///     .identity_files("/etc/zookeeper/client.pem", "/etc/zookeeper/client-key.pem");
/// match Client::builder().tls(tls).connect("zk1:2281,zk2:2281,zk3:2281").await {
///     Ok(client) => println!("{client:?}"),
///     // Here: there is no such file.
///     Err(error @ ConnectError::InvalidTls { .. }) => println!("{error}"),
///     Err(error) => panic!("{error:?}"),
/// }
/// # }
/// ```
#[derive(Clone, Default)]
#[must_use = "it does nothing until it is passed to `ClientBuilder::tls`"]
#[doc(alias = "ssl")]
pub struct TlsOptions {
    pub(crate) cas: Vec<Certificates>,
    pub(crate) identity: Option<(Certificates, PrivateKey)>,
}

/// The source of certificates or of a private key. The source of a key does not implement `Debug`,
/// because a key must not appear in logs.
#[derive(Clone)]
pub(crate) enum Source<D> {
    File(PathBuf),
    Pem(String),
    Der(D),
}

pub(crate) type Certificates = Source<Vec<CertificateDer<'static>>>;
pub(crate) type PrivateKey = Source<Arc<PrivateKeyDer<'static>>>;

impl TlsOptions {
    /// Returns options without a CA. At least one is needed to connect.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use zookeeper_recipes::{Client, ConnectError, TlsOptions};
    ///
    /// let error = Client::builder().tls(TlsOptions::new()).connect("zk1:2281").await.unwrap_err();
    /// assert!(matches!(error, ConnectError::InvalidTls { .. }), "{error}");
    /// # }
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts the CAs in a PEM file, in addition to the CAs of other calls.
    ///
    /// Revocation lists in the file are used too. If there is any, the list of the issuer is needed
    /// for every certificate of a server.
    ///
    /// # Examples
    /// ```
    /// use zookeeper_recipes::TlsOptions;
    ///
    /// let tls = TlsOptions::new().ca_file("/etc/zookeeper/ca.pem");
    /// assert_eq!(format!("{tls:?}"), r#"TlsOptions(CA "/etc/zookeeper/ca.pem")"#);
    /// ```
    #[doc(alias = "trustStore")]
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.cas.push(Certificates::File(path.into()));
        self
    }

    /// Trusts the CAs in a PEM text, as [`ca_file`](Self::ca_file) trusts those in a file.
    ///
    /// # Examples
    /// A text without a certificate is refused when the client is connected:
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use zookeeper_recipes::{Client, ConnectError, TlsOptions};
    ///
    /// let tls = TlsOptions::new().ca_pem("/etc/zookeeper/ca.pem");
    /// let error = Client::builder().tls(tls).connect("zk1:2281").await.unwrap_err();
    /// assert!(matches!(error, ConnectError::InvalidTls { .. }), "{error}");
    /// # }
    /// ```
    pub fn ca_pem(mut self, text: impl Into<String>) -> Self {
        self.cas.push(Certificates::Pem(text.into()));
        self
    }

    /// Trusts these CAs, in addition to the CAs of other calls.
    ///
    /// # Examples
    /// ```
    /// use rustls_pki_types::CertificateDer;
    /// use zookeeper_recipes::TlsOptions;
    ///
    /// let ca: Vec<u8> = vec![0x30, 0x82]; // as it is in a `.der` or `.crt` file
    /// let tls = TlsOptions::new().ca_der([CertificateDer::from(ca)]);
    /// assert_eq!(format!("{tls:?}"), "TlsOptions(CA DER)");
    /// ```
    pub fn ca_der(
        mut self,
        certificates: impl IntoIterator<Item = CertificateDer<'static>>,
    ) -> Self {
        self.cas
            .push(Certificates::Der(certificates.into_iter().collect()));
        self
    }

    /// Presents the certificate in a PEM file to the servers, for mutual TLS. `key` is a PEM file
    /// with the private key, and may be the same file.
    ///
    /// The certificate must come first in the file; intermediate certificates follow it. The key
    /// must not be encrypted. If several `identity` methods are called, the last call counts.
    ///
    /// # Examples
    /// ```
    /// use zookeeper_recipes::TlsOptions;
    ///
    /// let tls = TlsOptions::new()
    ///     .ca_file("/etc/zookeeper/ca.pem")
    ///     .identity_files("/etc/zookeeper/client.pem", "/etc/zookeeper/client-key.pem");
    /// # assert!(format!("{tls:?}").contains("client.pem"));
    /// ```
    #[doc(alias = "keyStore")]
    pub fn identity_files(
        mut self,
        certificates: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        self.identity = Some((
            Certificates::File(certificates.into()),
            PrivateKey::File(key.into()),
        ));
        self
    }

    /// Presents a certificate from PEM texts to the servers, as
    /// [`identity_files`](Self::identity_files) does from files.
    ///
    /// # Examples
    /// Neither is printed:
    ///
    /// ```
    /// use zookeeper_recipes::TlsOptions;
    ///
    /// let tls = TlsOptions::new().identity_pem("certificate", "key");
    /// assert_eq!(format!("{tls:?}"), "TlsOptions(identity PEM)");
    /// ```
    pub fn identity_pem(mut self, certificates: impl Into<String>, key: impl Into<String>) -> Self {
        self.identity = Some((
            Certificates::Pem(certificates.into()),
            PrivateKey::Pem(key.into()),
        ));
        self
    }

    /// Presents a certificate in DER to the servers, as [`identity_files`](Self::identity_files)
    /// does from files.
    ///
    /// # Examples
    /// ```
    /// use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
    /// use zookeeper_recipes::TlsOptions;
    ///
    /// let certificate = CertificateDer::from(vec![0x30, 0x82]);
    /// let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(vec![0x30, 0x81]));
    /// let tls = TlsOptions::new().identity_der([certificate], key);
    /// assert_eq!(format!("{tls:?}"), "TlsOptions(identity DER)");
    /// ```
    pub fn identity_der(
        mut self,
        certificates: impl IntoIterator<Item = CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Self {
        let certificates = Certificates::Der(certificates.into_iter().collect());
        self.identity = Some((certificates, PrivateKey::Der(Arc::new(key))));
        self
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => fmt::Debug::fmt(path, f),
            Self::Pem(_) => f.write_str("PEM"),
            Self::Der(_) => f.write_str("DER"),
        }
    }
}

impl fmt::Debug for TlsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsOptions(")?;
        let mut separator = "";
        for ca in &self.cas {
            write!(f, "{separator}CA {ca:?}")?;
            separator = ", ";
        }
        if let Some((certificates, _)) = &self.identity {
            write!(f, "{separator}identity {certificates:?}")?;
        }
        f.write_str(")")
    }
}
