//! LinkCell: one master's link machine and its socket, each behind a lock of its own.
//!
//! Callers enter the machine to queue a command. On an idle link they write it themselves, which
//! saves a change of tasks; on a busy one the driver does, which writes at once
//! what has gathered. The machine's lock is never held while bytes move, so callers do not wait
//! for each other's system calls. Whoever holds both took the socket's first.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use redquorum_protocol::{
    Answer, Bounds, Guard, Key, Link, LinkEffect, LinkInput, NodeId, NodeSet, Time, Word,
};
use tokio::sync::Notify;

use crate::clock::Clock;
use crate::io::Io;
use crate::rooms::Rooms;
use crate::stats::Tally;
use crate::tag::Tag;
use crate::trace::Throttle;

/// One master's link, socket and counters.
pub(crate) struct LinkCell {
    pub(crate) node: NodeId,
    pub(crate) name: Arc<str>,
    pub(crate) clock: Clock,
    /// Whether masters that may have forgotten are distrusted.
    pub(crate) guarded: bool,
    /// Told when a master was tried, and on every turn of the driver while it shuts down.
    pub(crate) changed: Arc<Notify>,
    pub(crate) rooms: Arc<Rooms>,
    pub(crate) io: Mutex<Io>,
    /// Of what is logged of this master.
    pub(crate) throttle: Throttle,
    state: Mutex<State>,
}

/// The machine, and what it left to be done.
pub(crate) struct State {
    pub(crate) link: Link<Tag>,
    effects: Vec<LinkEffect<Tag>>,
    /// Bytes that are to be written to the current connection.
    pub(crate) queued: Vec<u8>,
    /// Its number.
    current: Option<u64>,
    /// Connections, or tries, that are to be given up.
    pub(crate) close: Vec<u64>,
    /// A connection that is to be opened.
    pub(crate) dial: Option<u64>,
    /// When the driver's timer fires.
    pub(crate) armed: Time,
    pub(crate) driver: Option<Waker>,
    pub(crate) shutting_down: bool,
    /// Nobody uses the lock any more.
    pub(crate) closing: bool,
    /// Whether the master was up when that was logged last; nothing was logged yet.
    pub(crate) logged_up: Option<bool>,
    pub(crate) tally: Tally,
}

/// Whom to tell what, once no lock of a link is held: a claim locks links.
#[derive(Default)]
pub(crate) struct Told {
    pub(crate) answers: Vec<(Tag, Answer)>,
    /// What was heard of resources that are waited for.
    pub(crate) words: Vec<(Key, Word)>,
}

/// What came of [`LinkCell::enter`].
pub(crate) struct Entered {
    /// What the caller's own tag was told at once.
    pub(crate) told: Option<(Tag, Answer)>,
    /// What was heard of the caller's own resource at once.
    pub(crate) word: Option<Word>,
    /// The link is idle, or more was to come: the caller owes a [`LinkCell::flush`].
    pub(crate) flush: bool,
}

/// Writes what was queued on these links, which were idle.
pub(crate) fn flush(links: &[Arc<LinkCell>], idle: NodeSet) {
    links.iter().filter(|link| idle.contains(link.node)).for_each(|link| link.flush());
}

impl LinkCell {
    pub(crate) fn new(
        node: NodeId,
        name: Arc<str>,
        clock: Clock,
        (bounds, guard, inbox): (Bounds, Option<Guard>, u64),
        changed: Arc<Notify>,
        rooms: Arc<Rooms>,
    ) -> Self {
        let mut effects = Vec::new();
        let link = Link::start(bounds, &mut effects).guarded_by(guard).woken_at(inbox);
        let mut state = State {
            link,
            effects,
            queued: Vec::new(),
            current: None,
            close: Vec::new(),
            dial: None,
            armed: Time::NEVER,
            driver: None,
            shutting_down: false,
            closing: false,
            logged_up: None,
            tally: Tally::default(),
        };
        state.carry_out(&mut Told::default());
        let (io, state) = (Mutex::default(), Mutex::new(state));
        let throttle = Throttle::default();
        Self { node, name, clock, guarded: guard.is_some(), changed, rooms, io, throttle, state }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics halfway through a change, so a poisoned lock is as good as any.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the link one input from a caller. It tells nobody else at once, and neither opens
    /// nor closes anything. With `more`, others of the same caller follow before it flushes the link.
    pub(crate) fn enter(&self, input: LinkInput<Tag>, more: bool) -> Entered {
        let mut told = Told::default();
        let mut state = self.lock();
        // Read here: a caller that was stopped on its way must not make the master look slow.
        state.handle(self.clock.now(), input, &mut told);
        let idle = more || state.link.unanswered() <= 1;
        let driver = if idle { None } else { state.rouse() };
        drop(state);
        wake(driver);
        let Told { mut answers, mut words } = told;
        debug_assert!(answers.len() + words.len() <= 1, "an input is answered to its caller alone");
        Entered { told: answers.pop(), word: words.pop().map(|(_, word)| word), flush: idle }
    }

    /// Writes what was queued on an idle link.
    pub(crate) fn flush(&self) {
        // If the driver is at it, it sees what was queued, or is roused to look again.
        if let Ok(mut io) = self.io.try_lock() {
            io.take(&mut self.lock().queued);
            // With nobody to wake: if the socket is full or broken, the driver finds out.
            io.write(&mut Context::from_waker(Waker::noop()));
            if !io.is_written() {
                let driver = self.lock().driver.take();
                wake(driver);
            }
        }
        let driver = self.lock().rouse();
        wake(driver);
    }

    /// No new votes from now on; what is owed is still paid.
    pub(crate) fn shut_down(&self) {
        let mut state = self.lock();
        state.shutting_down = true;
        state.handle(self.clock.now(), LinkInput::ShutDown, &mut Told::default());
    }

    /// Nobody uses the lock any more: the driver ends once nothing is owed.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closing = true;
        let driver = state.driver.take();
        drop(state);
        wake(driver);
    }

    /// A look at the machine and its counters.
    pub(crate) fn view<R>(&self, look: impl FnOnce(&Link<Tag>, &Tally) -> R) -> R {
        let state = self.lock();
        look(&state.link, &state.tally)
    }
}

fn wake(driver: Option<Waker>) {
    if let Some(driver) = driver {
        driver.wake();
    }
}

impl State {
    /// The driver, to be woken, if there is something to do for it: bytes to write, or a timer
    /// to set. It leaves its waker anew at its next turn.
    fn rouse(&mut self) -> Option<Waker> {
        let needed = !self.queued.is_empty() || self.link.next_wake() < self.armed;
        if needed { self.driver.take() } else { None }
    }

    pub(crate) fn handle(&mut self, now: Time, input: LinkInput<Tag>, told: &mut Told) {
        self.link.handle(now, input, &mut self.effects);
        self.carry_out(told);
    }

    fn carry_out(&mut self, told: &mut Told) {
        for effect in self.effects.drain(..) {
            match effect {
                LinkEffect::Write(command) => command.encode(&mut self.queued),
                LinkEffect::Dial(epoch) => self.dial = Some(epoch),
                LinkEffect::Close(epoch) => {
                    // A link closes before it writes to the next connection. If it is a mere
                    // try that is given up, the current connection must not lose a byte: every
                    // later answer would be taken for the answer to another command.
                    if self.current == Some(epoch) {
                        self.queued.clear();
                    }
                    self.close.push(epoch);
                }
                LinkEffect::Tell(tag, answer) => {
                    if tag.is_vote() {
                        self.tally.count(&answer);
                    }
                    told.answers.push((tag, answer));
                }
                LinkEffect::Hear(key, word) => told.words.push((key, word)),
                other => unreachable!("an effect that this driver does not know: {other:?}"),
            }
        }
        self.current = self.link.epoch();
    }
}
