//! The tokens by which the system names the sockets. Called by `engine.rs`, and by `connection.rs`
//! for sockets that connect.

use mio::Token;

/// Orders came.
pub(super) const ORDERS: Token = Token(usize::MAX);

/// The kind of a token's socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Listener,
    Client,
    Master,
    Copy,
}

/// The token of a listener, an end of a connection, or a copy.
pub(super) fn token(id: u64, kind: Kind) -> Token {
    Token(usize::try_from(id).expect("fewer connections than addresses") << 2 | kind as usize)
}

/// The socket of a token: its number and kind.
pub(super) fn meaning(token: Token) -> (u64, Kind) {
    let kind = [Kind::Listener, Kind::Client, Kind::Master, Kind::Copy][token.0 & 3];
    ((token.0 >> 2) as u64, kind)
}
