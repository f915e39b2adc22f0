//! Duplicates: requests that are sent once more, each on its own connection. Called by `engine.rs`.

use std::{io, net::SocketAddr, time::Instant};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{
    dialogue::{Label, Session},
    engine::{Peer, Shared},
    framing::{Framing, Piece, Protocol},
    rule::Side,
    traffic::TrafficEvent,
};

/// A forwarded request to send once more.
#[derive(Debug)]
pub(super) struct Duplicate {
    pub(super) peer: Peer,
    pub(super) label: Label,
    pub(super) session: Session,
    pub(super) request: Vec<u8>,
}

/// Sends a duplicate, and waits for the reply. An error means that the connection broke.
pub(super) async fn send(
    duplicate: Duplicate,
    address: SocketAddr,
    engine: Shared,
) -> io::Result<()> {
    let Duplicate { peer, label: Label { number, command }, session, request } = duplicate;
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    stream.write_all(&session.bytes).await?;
    let at = Instant::now();
    stream.write_all(&request).await?;
    let forwarded = TrafficEvent::Forwarded { number, command: command.clone(), duplicate: true };
    engine.borrow_mut().world.report(at, &peer, forwarded);
    let (mut framing, mut before) = (Framing::new(Side::Reply, Protocol::Resp), session.requests);
    let mut bytes = vec![0; 64 * 1024];
    loop {
        let count = stream.read(&mut bytes).await?;
        let at = Instant::now();
        framing.push(&bytes[..count]);
        while let Some(Piece::Reply(reply, _)) = framing.next() {
            if before == 0 {
                let replied = TrafficEvent::Replied { number, command, reply, duplicate: true };
                engine.borrow_mut().world.report(at, &peer, replied);
                return Ok(());
            }
            before -= 1;
        }
        if count == 0 {
            return Ok(());
        }
    }
}
