//! TLS by rustls: the trusted authorities, and the identity of the client.

use std::io;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

#[derive(Default)]
pub(crate) struct Certificates {
    pub(crate) ca: Option<Vec<u8>>,
    pub(crate) identity: Option<(Vec<u8>, Vec<u8>)>,
}

#[derive(Clone)]
pub(crate) struct Tls(TlsConnector);

impl Certificates {
    /// Reads the certificates. The error says what is wrong, and contains no key.
    pub(crate) fn client(&self) -> Result<Tls, String> {
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
        let config = match &self.identity {
            None => config.with_no_client_auth(),
            Some((chain, key)) => {
                let key = PrivateKeyDer::from_pem_slice(key)
                    .map_err(|_| "the key of `tls_identity` is not a PEM private key")?;
                config
                    .with_client_auth_cert(certificates(chain, "tls_identity")?, key)
                    .map_err(|error| format!("`tls_identity` cannot be used: {error}"))?
            }
        };
        Ok(Tls(TlsConnector::from(Arc::new(config))))
    }
}

fn certificates(pem: &[u8], option: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => Err(format!("`{option}` holds no PEM certificate")),
    }
}

impl Tls {
    pub(crate) async fn connect(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "not a host name for TLS"))?;
        self.0.connect(name, stream).await
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A client that trusts nobody.
    pub(crate) fn any() -> Tls {
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        Tls(TlsConnector::from(Arc::new(config)))
    }
}
