//! A CA, and what it has signed.

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};

/// A certificate with its private key.
pub(crate) struct Identity {
    pub(crate) certificate: Certificate,
    pub(crate) key: KeyPair,
}

impl Identity {
    /// Returns the certificate and the key in one PEM text.
    pub(crate) fn pem(&self) -> String {
        self.key.serialize_pem() + &self.certificate.pem()
    }

    /// Returns a line of the key as it is in its PEM text.
    pub(crate) fn key_in_one_line(&self) -> String {
        self.key.serialize_pem().lines().nth(1).unwrap().to_owned()
    }
}

/// A CA, a server for some hosts, and a client, both signed by it.
pub(crate) struct Certificates {
    pub(crate) ca: Certificate,
    pub(crate) server: Identity,
    pub(crate) client: Identity,
}

fn named(name: &str, hosts: &[&str]) -> CertificateParams {
    let mut params = CertificateParams::new(
        hosts
            .iter()
            .map(|host| (*host).to_owned())
            .collect::<Vec<_>>(),
    )
    .unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

impl Certificates {
    /// Makes new certificates. `hosts` are those of the server's certificate.
    pub(crate) fn new(hosts: &[&str]) -> Self {
        Self::of("a CA of these tests", hosts)
    }

    /// Makes new certificates, with this name of the CA.
    pub(crate) fn of(ca: &str, hosts: &[&str]) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = named(ca, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let ca = params.self_signed(&key).unwrap();
        let issuer = Issuer::new(params, key);
        let signed = |mut params: CertificateParams, usage| {
            params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
            params.extended_key_usages = vec![usage];
            let key = KeyPair::generate().unwrap();
            Identity {
                certificate: params.signed_by(&key, &issuer).unwrap(),
                key,
            }
        };
        let server = signed(named("server", hosts), ExtendedKeyUsagePurpose::ServerAuth);
        let client = signed(named("shop", &[]), ExtendedKeyUsagePurpose::ClientAuth);
        Self { ca, server, client }
    }
}
