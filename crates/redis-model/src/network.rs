//! What a network can do to the messages of a connection: the words that scenario files share, and
//! the rules by which the simulation and the proxies of real masters choose messages. Both show
//! each message to the rules, and act on the faults that strike it. The model has no network.

use std::{borrow::Borrow, collections::BTreeMap, fmt, time::Duration};

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

/// A fault on a network: its links, its messages, and its effect on them.
///
/// `C` names clients. `M` says which messages the rule is about, as the network sees them.
///
/// A rule applies to what arrives while it is in force. An older rule sees a message before a
/// younger one. A rule *without* `matches`, from the first message on and without a count, is about
/// everything that passes: see [`MessageFault`].
#[derive(Clone)]
pub struct MessageRule<C, M> {
    /// The links of these clients. `None`: of all.
    pub clients: Option<Vec<C>>,
    /// The links to these masters. `None`: to all.
    pub nodes: Option<Vec<usize>>,
    /// Messages of this side.
    pub side: Side,
    /// The messages. `None`: every message.
    pub matches: Option<M>,
    /// The first matching message that is struck, counted from 1 over all links of the rule, since
    /// the rule was added. 0 counts as 1.
    pub from: u64,
    /// How many matching messages are struck. `None`: all.
    pub count: Option<u64>,
    /// The effect.
    pub fault: MessageFault,
}

impl<C, M> MessageRule<C, M> {
    /// This fault for every message of both sides, on all links. Use it as a base: `MessageRule {
    /// nodes: Some(vec![1]), ..MessageRule::all(MessageFault::Hold) }`.
    pub const fn all(fault: MessageFault) -> Self {
        let (clients, nodes, matches) = (None, None, None);
        Self { clients, nodes, side: Side::Both, matches, from: 1, count: None, fault }
    }

    /// Whether the rule is about the messages of this client and this master.
    pub fn is_about<Q: PartialEq + ?Sized>(&self, client: &Q, node: usize) -> bool
    where
        C: Borrow<Q>,
    {
        let is_one = |clients: &Vec<C>| clients.iter().any(|one| one.borrow() == client);
        self.clients.as_ref().is_none_or(is_one)
            && self.nodes.as_ref().is_none_or(|nodes| nodes.contains(&node))
    }

    /// Whether the rule is about messages of this side.
    pub fn is_on(&self, side: Side) -> bool {
        self.side == Side::Both || side == Side::Both || self.side == side
    }

    /// Whether the rule strikes the open connections at once, and then never again.
    pub const fn strikes_connections(&self) -> bool {
        self.ends_connections() && self.is_blanket() && matches!(self.side, Side::Both)
    }

    const fn ends_connections(&self) -> bool {
        matches!(self.fault, MessageFault::HalfOpen(_) | MessageFault::Reset)
    }

    /// Whether the rule is about everything that passes.
    const fn is_blanket(&self) -> bool {
        self.matches.is_none() && self.from <= 1 && self.count.is_none()
    }
}

impl<C: fmt::Debug, M> fmt::Debug for MessageRule<C, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageRule")
            .field("clients", &self.clients)
            .field("nodes", &self.nodes)
            .field("side", &self.side)
            .field("matches", &self.matches.as_ref().map(|_| ".."))
            .field("from", &self.from)
            .field("count", &self.count)
            .field("fault", &self.fault)
            .finish()
    }
}

/// The rules that are in force. The smaller the number of a rule, the older it is.
#[derive(Clone, Debug)]
pub struct MessageRules<C, M> {
    /// With the matching messages that each rule has seen.
    rules: BTreeMap<u64, (MessageRule<C, M>, u64)>,
}

impl<C, M> Default for MessageRules<C, M> {
    fn default() -> Self {
        Self { rules: BTreeMap::new() }
    }
}

impl<C, M> MessageRules<C, M> {
    /// Puts a rule into force that has seen so many matching messages before.
    pub fn insert(&mut self, number: u64, rule: MessageRule<C, M>, seen: u64) {
        self.rules.insert(number, (rule, seen));
    }

    /// Ends a rule, if it is in force.
    pub fn remove(&mut self, number: u64) -> Option<MessageRule<C, M>> {
        self.rules.remove(&number).map(|(rule, _)| rule)
    }

    /// Whether a rule is in force.
    pub fn contains(&self, number: u64) -> bool {
        self.rules.contains_key(&number)
    }

    /// The rules that strike a message, the oldest first. A rule sees and counts the message when
    /// the iterator comes to it. So a caller that ends the iteration hides the message from all
    /// younger rules: do so at a fault that loses the message.
    pub fn strike<'a, Q: PartialEq + ?Sized>(
        &'a mut self,
        (client, node): (&'a Q, usize),
        side: Side,
        matches: impl Fn(&M) -> bool + 'a,
    ) -> impl Iterator<Item = (u64, &'a MessageRule<C, M>)>
    where
        C: Borrow<Q>,
    {
        self.rules.iter_mut().filter_map(move |(number, (rule, seen))| {
            let shown = rule.is_on(side)
                && rule.is_about(client, node)
                && !rule.strikes_connections()
                // Replies are never duplicated, so they are not counted either.
                && (rule.fault != MessageFault::Duplicate || side == Side::Request)
                && rule.matches.as_ref().is_none_or(&matches);
            *seen += u64::from(shown);
            let first = rule.from.max(1);
            let beyond = rule.count.is_some_and(|count| *seen >= first.saturating_add(count));
            (shown && *seen >= first && !beyond).then_some((*number, &*rule))
        })
    }

    /// The rules that strike what is no message, the oldest first: the end of a connection on one
    /// side, or with [`Side::Both`] a new connection.
    pub fn strike_connection<'a, Q: PartialEq + ?Sized>(
        &'a self,
        (client, node): (&'a Q, usize),
        side: Side,
    ) -> impl Iterator<Item = (u64, &'a MessageRule<C, M>)>
    where
        C: Borrow<Q>,
    {
        let rules = self.rules.iter().map(|(number, (rule, _))| (*number, rule));
        rules.filter(move |(_, rule)| {
            rule.is_blanket()
                && !rule.ends_connections()
                && rule.is_on(side)
                && rule.is_about(client, node)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Rules = MessageRules<String, u8>;

    /// The rules that strike a message of this kind.
    fn struck(rules: &mut Rules, side: Side, kind: u8) -> Vec<u64> {
        rules.strike(("c1", 1), side, |of| *of == kind).map(|(number, _)| number).collect()
    }

    fn rule(matches: impl Into<Option<u8>>, fault: MessageFault) -> MessageRule<String, u8> {
        MessageRule { matches: matches.into(), ..MessageRule::all(fault) }
    }

    #[test]
    fn a_rule_strikes_a_count_of_matching_messages_from_the_chosen_one_on() {
        let mut rules = Rules::default();
        let some = MessageRule { from: 2, count: Some(2), ..rule(7, MessageFault::Hold) };
        rules.insert(1, some.clone(), 0);
        rules.insert(2, some, 1);
        let struck = [7, 8, 7, 7, 7].map(|kind| struck(&mut rules, Side::Request, kind));
        assert_eq!(struck, [vec![2], vec![], vec![1, 2], vec![1], vec![]]);
    }

    #[test]
    fn a_message_is_hidden_from_younger_rules_by_the_end_of_the_iteration() {
        let mut rules = Rules::default();
        let first = |fault| MessageRule { count: Some(1), ..rule(None, fault) };
        rules.insert(2, first(MessageFault::Hold), 0);
        rules.insert(1, first(MessageFault::Drop), 0);
        let oldest = |rules: &mut Rules| {
            rules.strike(("c1", 1), Side::Reply, |_| true).next().map(|(number, _)| number)
        };
        assert_eq!([(); 3].map(|()| oldest(&mut rules)), [Some(1), Some(2), None]);
    }

    #[test]
    fn links_sides_and_kinds_limit_a_rule() {
        let c2 = Some(vec!["c2".to_owned()]);
        for (rule, side, strikes) in [
            (rule(None, MessageFault::Hold), Side::Request, true),
            (rule(8, MessageFault::Hold), Side::Request, false),
            (
                MessageRule { clients: c2, ..MessageRule::all(MessageFault::Hold) },
                Side::Reply,
                false,
            ),
            (
                MessageRule { nodes: Some(vec![2]), ..rule(7, MessageFault::Drop) },
                Side::Reply,
                false,
            ),
            (
                MessageRule { side: Side::Reply, ..rule(7, MessageFault::Drop) },
                Side::Request,
                false,
            ),
            (rule(None, MessageFault::Duplicate), Side::Request, true),
            (rule(None, MessageFault::Duplicate), Side::Reply, false),
            // It strikes the connections that are open, at once.
            (rule(None, MessageFault::Reset), Side::Request, false),
            (rule(7, MessageFault::Reset), Side::Request, true),
            (MessageRule { from: 2, ..rule(None, MessageFault::Reset) }, Side::Request, false),
            (
                MessageRule { side: Side::Reply, ..rule(None, MessageFault::Reset) },
                Side::Reply,
                true,
            ),
        ] {
            let mut rules = Rules::default();
            rules.insert(1, rule.clone(), 0);
            assert_eq!(struck(&mut rules, side, 7) == [1], strikes, "{rule:?} of a {side:?}");
        }
    }

    #[test]
    fn only_rules_about_everything_strike_connections() {
        let mut rules = Rules::default();
        let reply = MessageRule { side: Side::Reply, ..rule(None, MessageFault::Hold) };
        for (number, rule) in (1..).zip([
            rule(None, MessageFault::Drop),
            reply,
            rule(7, MessageFault::Drop),
            MessageRule { from: 2, ..rule(None, MessageFault::Drop) },
            MessageRule { count: Some(9), ..rule(None, MessageFault::Drop) },
            rule(None, MessageFault::Reset),
            MessageRule { side: Side::Reply, ..rule(None, MessageFault::Reset) },
        ]) {
            rules.insert(number, rule, 0);
        }
        let struck = |side| {
            rules.strike_connection(("c1", 1), side).map(|(number, _)| number).collect::<Vec<_>>()
        };
        assert_eq!(
            [Side::Request, Side::Reply, Side::Both].map(struck),
            [vec![1], vec![1, 2], vec![1, 2]]
        );
    }
}
