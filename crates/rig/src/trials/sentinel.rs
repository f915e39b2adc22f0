//! A Sentinel that monitors one master.

use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use super::eventually;
use super::tls::{Files, Identity, free_port};
use crate::find_server;

/// A Sentinel, until it is dropped.
pub struct Sentinel {
    process: Child,
    port: u16,
    _files: Files,
}

impl Sentinel {
    /// Starts one that monitors the master at this port under the name of a service. With `tls` it
    /// listens for TLS only, with this certificate, and uses TLS to the master.
    ///
    /// # Panics
    ///
    /// There is no server, or the Sentinel does not listen within a minute.
    pub fn start(service: &str, master: u16, tls: Option<&Identity>) -> Self {
        let port = free_port();
        let listens = match tls {
            Some(_) => format!(
                "port 0\ntls-port {port}\ntls-auth-clients no\ntls-cert-file chain.pem\n\
                 tls-key-file key.pem\ntls-ca-cert-file chain.pem"
            ),
            None => format!("port {port}"),
        };
        let config = format!(
            "{listens}\nbind 127.0.0.1\nsentinel monitor {service} 127.0.0.1 {master} 1\n\
             sentinel down-after-milliseconds {service} 500\n\
             sentinel failover-timeout {service} 5000\n"
        );
        let (chain, key) = tls.map_or(("", ""), |tls| (&tls.chain, &tls.key));
        let files = [("sentinel.conf", &*config), ("chain.pem", chain), ("key.pem", key)];
        let files = Files::new("sentinel", port, &files);
        let mut command = Command::new(find_server().expect("a server").path());
        command.args(["sentinel.conf", "--sentinel"]).current_dir(&files.0).stdout(Stdio::null());
        let process = command.spawn().expect("a Sentinel");
        let sentinel = Self { process, port, _files: files };
        eventually("the Sentinel listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        sentinel
    }

    /// The port at which it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its URL, without TLS.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        // Best effort: it may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
