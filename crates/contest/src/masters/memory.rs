//! The library's masters in memory, served on ports of loopback: child processes and proxies reach
//! them as they reach servers.

use std::{io, net::SocketAddr, sync::Arc};

use redquorum::{connect::Node, memory::Masters};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::{AbortHandle, JoinSet},
};

pub(super) struct Served {
    pub(super) masters: Masters,
    ports: Vec<SocketAddr>,
    listeners: Vec<AbortHandle>,
}

impl Served {
    pub(super) async fn start(count: usize) -> io::Result<Self> {
        let masters = Masters::new(count);
        let (mut ports, mut listeners) = (Vec::new(), Vec::new());
        for number in 1..=count {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            ports.push(listener.local_addr()?);
            let node: Arc<dyn Node> = Arc::new(masters.node(number));
            listeners.push(listen(listener, move |client| forward(client, node.clone())));
        }
        Ok(Self { masters, ports, listeners })
    }

    pub(super) fn urls(&self) -> Vec<String> {
        self.ports.iter().map(|address| format!("redis://{address}")).collect()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.listeners.iter().for_each(AbortHandle::abort);
    }
}

/// Serves each connection to a listener in a task, which ends with the listener.
fn listen<F>(listener: TcpListener, serve: impl Fn(TcpStream) -> F + Send + 'static) -> AbortHandle
where
    F: Future<Output = ()> + Send + 'static,
{
    let accepting = async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let _nodelay = stream.set_nodelay(true);
            while connections.try_join_next().is_some() {}
            connections.spawn(serve(stream));
        }
    };
    tokio::spawn(accepting).abort_handle()
}

/// Passes on what a client and a master send. A master that is dead ends the connection at once.
async fn forward(mut client: TcpStream, node: Arc<dyn Node>) {
    if let Ok(mut master) = node.connect().await {
        let _ended = copy_bidirectional(&mut client, &mut master).await;
    }
}
