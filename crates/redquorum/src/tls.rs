//! TLS by rustls: the trusted authorities, and the identity of the client.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Certificates for TLS, as PEM text: whom to trust, and who the client is. `Debug` shows no key.
///
/// For [`Builder::certificates`](crate::Builder::certificates).
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Certificates {
    ca: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl Certificates {
    /// The authorities of the operating system, and no client certificate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts the certificate authorities in this PEM text, instead of those of the operating
    /// system.
    #[must_use]
    pub fn ca(mut self, pem: impl AsRef<[u8]>) -> Self {
        self.ca = Some(pem.as_ref().to_vec());
        self
    }

    /// Authenticates to masters by this certificate chain and its private key.
    #[must_use]
    pub fn identity(mut self, chain: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Self {
        self.identity = Some((chain.as_ref().to_vec(), key.as_ref().to_vec()));
        self
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ca, identity) = (self.ca.is_some(), self.identity.is_some());
        f.debug_struct("Certificates").field("ca", &ca).field("identity", &identity).finish()
    }
}

pub(crate) type CertificatesOf = Arc<dyn Fn(&str) -> Certificates + Send + Sync>;

/// Files with certificates, which may be renewed while the service runs.
#[derive(Clone, Default)]
pub(crate) struct Files {
    pub(crate) ca: Option<PathBuf>,
    pub(crate) cert: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
}

impl Files {
    fn read(&self) -> Result<Certificates, String> {
        let read = |what: &str, path: &PathBuf| {
            std::fs::read(path).map_err(|why| format!("{what} {}: {why}", path.display()))
        };
        let mut certificates = Certificates::new();
        if let Some(ca) = &self.ca {
            certificates = certificates.ca(read("the authorities in", ca)?);
        }
        match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => {
                let (cert, key) = (read("the certificate in", cert)?, read("the key in", key)?);
                Ok(certificates.identity(cert, key))
            }
            (None, None) => Ok(certificates),
            _ => Err("`tls-cert-file` and `tls-key-file` belong together: give both".into()),
        }
    }
}

/// Where the certificates of a connection come from.
#[derive(Clone)]
pub(crate) enum Source {
    /// They were read once, by [`Builder::build`](crate::Builder::build).
    Fixed(Certificates),
    /// They are read before each connect.
    Files(Files),
    /// The caller is asked before each connect.
    Asked(CertificatesOf),
    /// The caller's own configuration of rustls.
    Own(Arc<ClientConfig>),
}

impl Default for Source {
    fn default() -> Self {
        Self::Fixed(Certificates::default())
    }
}

impl Source {
    /// The files that were named so far, to add others.
    pub(crate) fn files(self) -> Files {
        if let Self::Files(files) = self { files } else { Files::default() }
    }

    /// The certificates that were given so far, to add others.
    pub(crate) fn given(self) -> Certificates {
        if let Self::Fixed(certificates) = self { certificates } else { Certificates::default() }
    }
}

type ReadCertificates = (Certificates, Arc<ClientConfig>);

/// The TLS of all masters of a lock.
#[derive(Clone)]
pub(crate) struct Tls {
    source: Source,
    /// The certificates that were read last, so that those that have not changed are not read
    /// again, and sessions can be resumed.
    latest: Arc<Mutex<Option<ReadCertificates>>>,
}

impl Tls {
    /// Reads the certificates for the master of this name once. The error says what is wrong, and
    /// contains no key.
    pub(crate) fn checked(source: Source, master: &str) -> Result<Self, String> {
        let tls = Self { source, latest: Arc::default() };
        tls.config(master).map(|_| tls)
    }

    fn config(&self, master: &str) -> Result<Arc<ClientConfig>, String> {
        let certificates = match &self.source {
            Source::Own(config) => return Ok(config.clone()),
            Source::Fixed(certificates) => certificates.clone(),
            Source::Files(files) => files.read()?,
            Source::Asked(certificates) => certificates(master),
        };
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        match &*latest {
            Some((known, config)) if *known == certificates => Ok(config.clone()),
            _ => {
                // A caller that is asked has set none of the builder's options.
                let named = |error: String| match self.source {
                    Source::Files(_) => error
                        .replace("`tls_ca`", "`tls-ca-file`")
                        .replace("`tls_identity`", "`tls-cert-file` and `tls-key-file`"),
                    Source::Asked(_) => error.replace("`tls_", "`Certificates::"),
                    _ => error,
                };
                let config = Arc::new(certificates.client().map_err(named)?);
                *latest = Some((certificates, config.clone()));
                Ok(config)
            }
        }
    }
}

impl Certificates {
    fn client(&self) -> Result<ClientConfig, String> {
        let mut roots = RootCertStore::empty();
        let trusted = match &self.ca {
            Some(pem) => certificates(pem, "tls_ca")?,
            None => rustls_native_certs::load_native_certs().certs,
        };
        let (added, _) = roots.add_parsable_certificates(trusted);
        if added == 0 {
            return Err("no certificate authority is trusted: name one by `tls_ca`".into());
        }
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots);
        match &self.identity {
            None => Ok(config.with_no_client_auth()),
            Some((chain, key)) => {
                let key = PrivateKeyDer::from_pem_slice(key)
                    .map_err(|_| "the key of `tls_identity` is not a PEM private key")?;
                config
                    .with_client_auth_cert(certificates(chain, "tls_identity")?, key)
                    .map_err(|error| format!("`tls_identity` cannot be used: {error}"))
            }
        }
    }
}

fn certificates(pem: &[u8], option: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => Err(format!("`{option}` holds no PEM certificate")),
    }
}

/// Whether a server can have this name in its certificate.
pub(crate) fn is_server_name(name: &str) -> bool {
    ServerName::try_from(name).is_ok()
}

impl Tls {
    /// The handshake with the master `master`, whose certificate must be for `server_name`.
    pub(crate) async fn connect(
        &self,
        master: &str,
        server_name: &str,
        stream: TcpStream,
    ) -> io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from(server_name.to_owned())
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "not a host name for TLS"))?;
        let unusable = |error| io::Error::other(format!("certificates: {error}"));
        let config = self.config(master).map_err(unusable)?;
        TlsConnector::from(config).connect(name, stream).await
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The TLS of a client that trusts nobody.
    pub(crate) fn any() -> Tls {
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        Tls::checked(Source::Own(Arc::new(config)), "master").unwrap()
    }
}
