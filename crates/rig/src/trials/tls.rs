//! Certificates, made for one test, and masters that listen for TLS with them. The installed server
//! must be built with TLS.

use std::net::TcpListener;
use std::path::PathBuf;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};

use crate::{Masters, RigError};

/// An authority that signs certificates.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key.
pub struct Identity {
    /// The certificate, as PEM text.
    pub chain: String,
    /// Its key, as PEM text.
    pub key: String,
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Authority {
    /// A new one, which nobody trusts yet.
    ///
    /// # Panics
    ///
    /// This machine cannot make keys.
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        // A name of its own: a certificate that it signs for the same name would look
        // self-signed.
        params.distinguished_name.push(DnType::CommonName, "authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Its certificate, as PEM text.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// Its certificate, as bytes.
    pub fn der(&self) -> Vec<u8> {
        self.0.der().to_vec()
    }

    fn sign(&self, params: CertificateParams) -> Identity {
        let key = KeyPair::generate().unwrap();
        let chain = params.signed_by(&key, &self.0).unwrap().pem();
        Identity { chain, key: key.serialize_pem() }
    }

    /// Signs a certificate for a host or a client of this name.
    ///
    /// # Panics
    ///
    /// The name is none that a certificate can have.
    pub fn identity(&self, name: &str) -> Identity {
        self.sign(CertificateParams::new([name.to_owned()]).unwrap())
    }

    /// Signs a certificate that has expired long ago.
    ///
    /// # Panics
    ///
    /// The name is none that a certificate can have.
    pub fn expired(&self, name: &str) -> Identity {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.not_before = date_time_ymd(2001, 1, 1);
        params.not_after = date_time_ymd(2002, 1, 1);
        self.sign(params)
    }
}

/// A master that listens for TLS on a port of its own, and has the password `hunter2`.
pub struct TlsMaster {
    /// It, by its other port, which has no TLS. Dropped before its files are removed.
    pub masters: Masters,
    /// The port that has TLS.
    pub port: u16,
    _files: Files,
}

/// Removes a directory that a test has filled.
pub(super) struct Files(pub(super) PathBuf);

impl Files {
    /// A directory with these files.
    pub(super) fn new(what: &str, port: u16, files: &[(&str, &str)]) -> Self {
        let name = format!("redquorum-{what}-{}-{port}", std::process::id());
        let files_dir = Self(std::env::temp_dir().join(name));
        std::fs::create_dir_all(&files_dir.0).unwrap();
        for (file, text) in files {
            std::fs::write(files_dir.0.join(file), text).unwrap();
        }
        files_dir
    }

    pub(super) fn path(&self, file: &str) -> String {
        self.0.join(file).display().to_string()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // Best effort: a directory that stays is among the temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A port that was free a moment ago.
pub(super) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl TlsMaster {
    /// Starts a master with this certificate. With `clients` it takes only clients whose
    /// certificate that authority has signed.
    ///
    /// # Panics
    ///
    /// There is no server, or it has no TLS.
    pub fn start(server: &Identity, clients: Option<&Authority>) -> Self {
        // Another process may take the port between its choice and its use.
        let mut tries = (0..5).map(|_| Self::try_start(server, clients));
        tries.find_map(Result::ok).expect("a server with TLS")
    }

    fn try_start(server: &Identity, clients: Option<&Authority>) -> Result<Self, RigError> {
        let port = free_port();
        let authority = clients.map_or_else(|| Authority::new().pem(), Authority::pem);
        let files = Files::new(
            "tls",
            port,
            &[("chain.pem", &server.chain), ("key.pem", &server.key), ("ca.pem", &authority)],
        );
        let masters = Masters::builder()
            .count(1)
            .config("tls-port", &port.to_string())
            .config("tls-cert-file", &files.path("chain.pem"))
            .config("tls-key-file", &files.path("key.pem"))
            .config("tls-ca-cert-file", &files.path("ca.pem"))
            .config("tls-auth-clients", if clients.is_some() { "yes" } else { "no" })
            .password("hunter2")
            .start()?;
        Ok(Self { masters, port, _files: files })
    }

    /// Its URL at this host, with TLS.
    pub fn url(&self, host: &str) -> String {
        format!("rediss://:hunter2@{host}:{}", self.port)
    }
}
