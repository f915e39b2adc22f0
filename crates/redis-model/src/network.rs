//! What a network can do to the messages of a connection: the words that scenario files, the
//! simulation and the proxies of real masters share. The model itself has no network.

use std::time::Duration;

/// The direction of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "kebab-case")
)]
pub enum Side {
    /// From clients to masters.
    Request,
    /// From masters to clients.
    Reply,
    /// Either direction.
    #[default]
    Both,
}

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "kebab-case")
)]
pub enum End {
    /// The client's.
    Client,
    /// The master's.
    Master,
}

/// An effect of a network on a message of a TCP connection. It ends when the fault is healed.
///
/// A fault of all messages strikes all that passes: ends of connections too, and, if it drops or
/// holds, new connections. `HalfOpen` and `Reset` then strike once: the open connections, at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageFault {
    /// The message and all data behind it on that connection and side are lost, including the end
    /// of the connection.
    ///
    /// Healing resets both ends of the connections on which data was lost: TCP cannot continue with
    /// a gap.
    Drop,
    /// The message and all data behind it wait. Healing releases them, in order.
    Hold,
    /// The message is passed on this long after its arrival, and all data behind it waits. Healing
    /// releases what still waits.
    Delay(Duration),
    /// The request is passed on, and then sent once more on a separate connection of the network.
    /// The second reply reaches no client. Has no effect on replies.
    Duplicate,
    /// This many bytes pass per second, cut anywhere; 0 is [`Hold`](Self::Hold).
    Trickle(u32),
    /// This end is reset. The other end stays open without a notice, and the data that it sends is
    /// lost, including the message that was struck. Healing resets the other end.
    HalfOpen(End),
    /// Both ends are reset, and the message is lost.
    Reset,
}
