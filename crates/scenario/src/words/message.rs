//! Messages: the words for their direction and for the purpose of a request.

use crate::named;

named! {
    /// The direction of a message.
    #[derive(Default)]
    pub enum Side {
        /// From clients to masters.
        Request = "request",
        /// From masters to clients.
        Reply = "reply",
        /// Either direction.
        #[default]
        Both = "both",
    }
}

named! {
    /// The purpose of a request, by its effect on a key.
    #[derive(Default)]
    pub enum Class {
        /// The request sets a key that must not exist.
        Acquire = "acquire",
        /// The request prolongs a key.
        Extend = "extend",
        /// The request deletes a key.
        Release = "release",
        /// The request enters the fair queue, or leaves it. It touches no key of a lock.
        Queue = "queue",
        /// No request: a master notifies a client that a resource became free.
        WakeUp = "wake-up",
        /// Any request.
        #[default]
        Any = "any",
    }
}
