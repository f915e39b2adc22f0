//! The checks: of the client protocol, independent of locks, and with masters that do not run; of
//! acquire, and of the data in the reply; of a lease's life: its release, its extensions, its
//! re-entry and its end; of the fair queue.

use std::cell::Cell;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::peer::{ANSWER, Fault, Peer, PendingRequest};
use super::{CheckResult, Grant, OPTIONS, Session, acquire_op, cannot, fine, no_lease, step_op};
use crate::stamp;
use redquorum_scenario::client_protocol::{
    Capability, ClientReply, FailureReason, Notice, Op, Options, PROTOCOL, announced, shown,
};
use redquorum_scenario::history::{Act, Outcome, start_of_token, text_of};
use redquorum_scenario::name::Name;

/// The time limit for a reply that needs no master. A scenario needs it sooner; the rest is for
/// busy machines.
const AT_ONCE: Duration = Duration::from_secs(1);
/// How long a driver may take to end.
const END: Duration = Duration::from_secs(2);
/// How long an attempt may take while masters are dead, with the node timeout of its options.
const BOUND: Duration = Duration::from_secs(5);
/// The TTL of the lease that several checks examine. It outlives all of them, also that of a
/// library that tries again for seconds before it reports that the resource is taken.
const EXAMINED_TTL_MS: u64 = 10_000;
/// How long a driver may take to find masters that run again.
const BACK: Duration = Duration::from_secs(10);

pub(super) fn ready(session: &mut Session) -> CheckResult {
    let Some(line) = session.peer.first_line()? else {
        return Err(Fault::Over(format!(
            "no line was printed within {ANSWER:?}; print \
             {{\"event\":\"ready\",\"protocol\":{PROTOCOL},\"can\":[]}} once the lock \
             is built, and flush standard output"
        )));
    };
    let over = |why: String| Fault::Over(format!("`{}`: {why}", shown(&line)));
    let value: serde_json::Value =
        serde_json::from_str(&line).map_err(|why| over(format!("it is not JSON: {why}")))?;
    if value["event"] != "ready" {
        return Err(over("the first line must be {\"event\":\"ready\",…}".to_owned()));
    }
    if value["protocol"] != PROTOCOL {
        return Err(over(format!(
            "say \"protocol\":{PROTOCOL}, which is what this harness speaks"
        )));
    }
    let claims = match value.get("can") {
        None => Vec::new(),
        Some(serde_json::Value::Array(claims)) => claims.clone(),
        Some(_) => return Err(over("\"can\" must be a list of words".to_owned())),
    };
    let mut unknown = Vec::new();
    for claim in claims {
        match serde_json::from_value(claim.clone()) {
            Ok(can) => session.can.push(can),
            Err(_) => unknown.push(claim.to_string()),
        }
    }
    let words =
        |all: &[Capability]| all.iter().map(|can| can.name()).collect::<Vec<_>>().join(", ");
    ensure!(
        unknown.is_empty(),
        "it can {}, which the protocol does not have; it has {}",
        shown(&unknown.join(", ")),
        words(&Capability::ALL)
    );
    let text = |key: &str| value[key].as_str().map(str::to_owned);
    let lock = announced(text("name"), text("version"));
    let lock = lock.as_deref().unwrap_or("it gives no name");
    fine(format!("{lock}; can {}", words(&session.can)))
}

pub(super) fn step(session: &mut Session) -> CheckResult {
    let asked = session.peer.ask("c1", step_op(None))?;
    let (reply, _) = session.peer.answer_within(asked, AT_ONCE)?;
    ensure!(
        reply.ok,
        "a step without a check was refused: {reply}; answer {{\"id\":{},\"ok\":true}} at once, \
         whatever is held: the harness wants to see what a holder does that does not look",
        asked.id
    );
    fine("without a check it is answered at once")
}

pub(super) fn cancel(session: &mut Session) -> CheckResult {
    let resource = "check-cancel";
    let held = session.request("c1", acquire_op(resource, 0))?;
    ensure!(held.ok, "a free resource was refused: {held}");
    let waiting = session.peer.ask("c2", acquire_op(resource, OPTIONS.ttl_ms * 4))?;
    session.peer.pass(Duration::from_millis(100))?;
    let cancel = session.peer.ask("c2", Op::Cancel { request: waiting.id })?;
    let (cancelled, _) = session.peer.answer_within(cancel, AT_ONCE)?;
    let waited = session.peer.answer_within(waiting, AT_ONCE);
    session.release("c1", resource)?;
    let (waited, _) = waited?;
    ensure!(
        cancelled.ok,
        "the cancel was answered {cancelled}; the cancel itself is answered with \"ok\":true, and \
         the request that it names with \"why\":\"cancelled\""
    );
    ensure!(
        waited.why == Some(FailureReason::Cancelled),
        "an acquire that waited was cancelled and then answered {waited}; answer it with \
         \"ok\":false and \"why\":\"cancelled\", and give up what it may have set"
    );
    let left = session.keys.gone(resource)?;
    ensure!(
        left == 0,
        "after the cancel and the release of the holder a key is left on {left} masters: an \
         attempt that is given up must clean up, too"
    );
    fine("both requests are answered, and no key is left")
}

pub(super) fn unknown(session: &mut Session) -> CheckResult {
    let id = session.peer.next_id();
    let line = format!("{{\"id\":{id},\"client\":\"c1\",\"op\":\"somersault\"}}");
    let asked = session.peer.ask_raw("somersault", &line)?;
    let (reply, _) = session.peer.reply(asked)?;
    ensure!(
        !reply.ok && reply.why == Some(FailureReason::Unsupported),
        "an op that does not exist was answered {reply}; say {{\"id\":{id},\"ok\":false,\
         \"why\":\"unsupported\"}} to whatever is not known: the protocol may grow"
    );
    fine("an op that it does not know is answered")
}

pub(super) fn end(session: &mut Session) -> CheckResult {
    match session.peer.hang_up(END) {
        Some(exit) => fine(exit),
        None => wrong!(
            "its standard input ended, and {END:?} later it still runs; end then, at once and \
             without cleaning up"
        ),
    }
}

pub(super) fn no_quorum(session: &mut Session) -> CheckResult {
    let dead = session.keys.kill_a_majority()?;
    let all = session.keys.len();
    let asked = session.peer.ask("c1", acquire_op("check-no-quorum", 0))?;
    let (reply, received) = session.peer.answer_within(asked, BOUND)?;
    let took = Duration::from_nanos(u64::try_from(received - asked.at).unwrap_or(0));
    ensure!(!reply.ok, "with {dead} of {all} masters dead a lease was granted: {reply}");
    if reply.why == Some(FailureReason::NoQuorum) {
        return fine(format!("with {dead} of {all} masters dead, in {took:.1?}"));
    }
    // Some libraries do not tell the two apart, which is no mistake of the driver.
    Err(Fault::Skipped(format!(
        "with {dead} of {all} masters dead an acquire was answered {reply}; if the library reports \
         that too few masters replied, answer \"why\":\"no-quorum\""
    )))
}

pub(super) fn recovery(session: &mut Session) -> CheckResult {
    session.keys.restart()?;
    let start = Instant::now();
    loop {
        match session.acquire("check-recovery", OPTIONS.ttl_ms) {
            Ok(grant) => {
                session.release("c1", grant.resource)?;
                let took = start.elapsed();
                return fine(format!("{took:.1?} after they came back it is granted"));
            }
            Err(Fault::Wrong(why)) if start.elapsed() > BACK => {
                return wrong!("{BACK:?} after its masters came back: {why}; connect again");
            }
            Err(Fault::Wrong(_)) => session.peer.pass(Duration::from_millis(100))?,
            Err(other) => return Err(other),
        }
    }
}

pub(super) fn acquire(session: &mut Session) -> CheckResult {
    let grant = match session.acquire("check", EXAMINED_TTL_MS) {
        // Nothing can be checked of a driver that does not support such a lease.
        Err(Fault::Skipped(why)) => return wrong!("{why}"),
        grant => grant?,
    };
    let took = Duration::from_nanos(u64::try_from(grant.received - grant.asked).unwrap_or(0));
    session.grant = Some(grant);
    fine(format!("a free resource is granted, in {took:.1?}"))
}

pub(super) fn stamps(session: &mut Session) -> CheckResult {
    let grant = session.lease()?;
    let Some(at) = grant.reply.at_ns else {
        return wrong!(
            "the answer to an acquire has no \"at_ns\": read CLOCK_MONOTONIC right after the \
             library returned (Python: time.monotonic_ns(), C: clock_gettime)"
        );
    };
    for (name, stamp) in [("at_ns", at), ("from_ns", grant.reply.from_ns.unwrap_or(at))] {
        ensure!(
            (grant.asked..=grant.received).contains(&stamp),
            "\"{name}\" is {stamp}, but the call was between {} and {}{}; stamps are nanoseconds \
             of CLOCK_MONOTONIC",
            grant.asked,
            grant.received,
            guess(stamp, grant)
        );
    }
    let Some(from) = grant.reply.from_ns else { return fine("at_ns lies within the call") };
    ensure!(
        from <= at,
        "\"from_ns\" ({from}) is later than \"at_ns\" ({at}): it is read just before the library \
         is called"
    );
    fine("both lie within the call")
}

/// Compares what the harness reads from the commands of the lock with the keys on the masters. What
/// it cannot read is not the driver's fault.
pub(super) fn reading(session: &mut Session) -> CheckResult {
    use Outcome::{Created, Done};
    const RESOURCE: &str = "check-reading";
    let (ttl_ms, quorum) = (OPTIONS.ttl_ms, session.keys.quorum());
    let mut unclear = Vec::new();
    session.read(|_, _| false);
    session.acquire(RESOURCE, ttl_ms)?;
    let on = session.keys.of(RESOURCE)?;
    let values: Vec<_> =
        on.iter().flatten().filter_map(|key| key.value.as_deref().map(text_of)).collect();
    let sets = session.read(|act, outcome| {
        let token = act.token().is_some_and(|token| values.iter().any(|value| *value == token));
        let sets = matches!(act, Act::Set { .. } | Act::Keep { .. });
        sets && token && matches!(outcome, Done | Created)
    });
    if sets < quorum {
        unclear.push("sets");
    }
    if session.can(Capability::Extend) {
        session.peer.pass(Duration::from_millis(400))?;
        session.read(|_, _| false);
        session.request("c1", Op::Extend { resource: RESOURCE.into(), ttl_ms })?;
        let left = longest(session, RESOURCE)?;
        let ttl = Cell::new(None);
        let keeps = session.read(|act, outcome| match act {
            Act::Keep { token: Some(_), ttl_ms, .. } if matches!(outcome, Done | Created) => {
                ttl.set(*ttl_ms);
                true
            }
            _ => false,
        });
        if keeps < quorum || ttl.get().is_none_or(|ttl| ttl.abs_diff(left) > 200) {
            unclear.push("extends");
        }
    }
    session.read(|_, _| false);
    session.release("c1", RESOURCE)?;
    session.keys.gone(RESOURCE)?;
    let deletes = session
        .read(|act, outcome| matches!(act, Act::Delete { token: Some(_), .. }) && outcome == Done);
    if deletes < quorum {
        unclear.push("deletes");
    }
    if unclear.is_empty() {
        return fine("the harness understands the commands that set, extend and delete the key");
    }
    Err(Fault::Skipped(format!(
        "the harness does not understand by which commands this lock {} its key, so that what rests \
         on them is inconclusive: docs/scenarios.md says what it understands",
        unclear.join(" and ")
    )))
}

/// Checks that two leases of one resource have different values on the masters.
pub(super) fn fresh_tokens(session: &mut Session) -> CheckResult {
    let mut values = Vec::new();
    for _ in 0..2 {
        session.acquire("fresh", OPTIONS.ttl_ms)?;
        let on = session.keys.of("fresh")?;
        values.push(on.into_iter().flatten().find_map(|key| key.value));
        session.release("c1", "fresh")?;
    }
    ensure!(
        values[0].is_none() || values[0] != values[1],
        "`fresh_tokens` is in \"can\", and two leases of one resource, one after the other, have \
         the same value on the masters: a late clean-up of the first would delete the second"
    );
    fine("two leases have two values on the masters")
}

/// Checks the fencing tokens of successive leases of the same resource.
pub(super) fn fence(session: &mut Session) -> CheckResult {
    let mut tokens = Vec::new();
    for _ in 0..3 {
        let grant = session.acquire("fenced", OPTIONS.ttl_ms)?;
        session.release("c1", "fenced")?;
        let Some(token) = grant.reply.fence else {
            return wrong!(
                "`fence` is in \"can\", options say `\"fencing\":true`, and the answer to an \
                 acquire has no \"fence\": say the lease's fencing token there"
            );
        };
        tokens.push(token);
    }
    ensure!(
        tokens.is_sorted_by(|one, next| one < next),
        "the fencing tokens of three leases of one resource, one after the other, are {tokens:?}: \
         each must be larger than the last"
    );
    fine(format!("they grow: {tokens:?}"))
}

/// The unit or clock that a wrong stamp may have instead.
fn guess(stamp: i64, grant: &Grant) -> &'static str {
    let wall = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    let wall = wall.tv_sec.saturating_mul(1_000_000_000).saturating_add(wall.tv_nsec);
    let guesses = [
        (stamp, wall, " (that is the wall clock)"),
        (stamp.saturating_mul(1000), grant.received, " (those are microseconds)"),
        (stamp.saturating_mul(1_000_000), grant.received, " (those are milliseconds)"),
        (stamp.saturating_mul(1_000_000_000), grant.received, " (those are seconds)"),
    ];
    let near = |(stamp, clock, _): &&(i64, i64, _)| (stamp - clock).abs() < 10_000_000_000;
    guesses.iter().find(near).map_or("", |(.., guess)| guess)
}

pub(super) fn deadline(session: &mut Session) -> CheckResult {
    let grant = session.lease()?;
    let ttl = Duration::from_millis(grant.ttl_ms);
    let at = grant.reply.at_ns.unwrap_or(grant.received);
    if let Some(deadline) = grant.reply.deadline_ns {
        ensure!(
            deadline > at,
            "\"deadline_ns\" is {deadline}, no later than the return of the library at {at}{}: a \
             lease that is over must be refused with \"why\":\"late\"",
            guess(deadline, grant)
        );
        let valid = Duration::from_nanos(u64::try_from(deadline - at).unwrap_or(0));
        ensure!(
            valid <= ttl,
            "\"deadline_ns\" is {deadline}, {:?} beyond the return of the library plus the TTL{}: \
             it is the start of the attempt, plus the TTL, minus the drift",
            valid - ttl,
            guess(deadline, grant)
        );
        return fine(format!("{valid:.2?} ahead, of a TTL of {ttl:?}"));
    }
    ensure!(
        !session.can(Capability::Deadline),
        "it can `deadline`, and the answer to an acquire has no \"deadline_ns\""
    );
    let Some(valid) = grant.reply.valid_ms else {
        return fine(
            "it gives none: the lease ends a TTL, less the drift, after the commands that set its \
             key on a quorum",
        );
    };
    ensure!(
        (1..=grant.ttl_ms).contains(&valid),
        "\"valid_ms\" is {valid}, of a TTL of {}: say what is left of the lease, in milliseconds, \
         as the library returns",
        grant.ttl_ms
    );
    fine(format!("valid for {valid} ms, of a TTL of {ttl:?}"))
}

pub(super) fn keys(session: &mut Session) -> CheckResult {
    let grant = session.grant.as_mut().ok_or_else(no_lease)?;
    let on = session.keys.of(grant.resource)?;
    let (all, quorum) = (session.keys.len(), session.keys.quorum());
    let count = on.iter().filter(|keys| !keys.is_empty()).count();
    ensure!(
        count >= quorum,
        "it was granted, and a key whose name has `{}` in it is on {count} of {all} masters; a \
         majority is {quorum}. Take the masters from REDQUORUM_NODES",
        grant.resource
    );
    let key = on.iter().flatten().next().ok_or_else(no_lease)?;
    let name = shown(&text_of(&key.name));
    let Some(left) = key.ttl_ms else { return wrong!("the key `{name}` never expires") };
    ensure!(
        left <= grant.ttl_ms,
        "the key `{name}` lives for another {left} ms, and the request says {} ms",
        grant.ttl_ms
    );
    grant.value.clone_from(&key.value);
    fine(format!("`{name}` on {count} of {all} masters, with a TTL"))
}

pub(super) fn token(session: &mut Session) -> CheckResult {
    let grant = session.lease()?;
    let skipped = |why: &str| Fault::Skipped(why.to_owned());
    let token = grant.reply.token.as_ref();
    let token =
        token.ok_or_else(|| skipped("it gives none; with one, reports identify the clients"))?;
    let value = grant.value.as_deref().map(text_of);
    let value = value.ok_or_else(|| skipped("there is no value to compare it with"))?;
    let start = start_of_token(token).filter(|start| value.starts_with(start));
    ensure!(
        value == *token || start.is_some(),
        "\"token\" is `{}`, and the value on the masters is `{}`: give that, as `hex:…` if it is \
         not plain text, or some of its first hexadecimal digits and `…`",
        shown(token),
        shown(&value)
    );
    fine(match start {
        Some(_) => "it is the start of the value on the masters",
        None => "it is the value on the masters",
    })
}

pub(super) fn taken(session: &mut Session) -> CheckResult {
    let op = acquire_op(session.lease()?.resource, 0);
    let reply = session.request("c2", op)?;
    ensure!(
        !reply.ok,
        "a second client of the process was granted what the first one holds: {reply}; \"client\" \
         names the client that asks, and each is a holder of its own, although the process is the \
         same"
    );
    ensure!(
        matches!(reply.why, Some(FailureReason::Taken | FailureReason::Refused)),
        "a resource of another holder was refused as {reply}; that is no error: say \
         \"why\":\"taken\", or \"refused\" if the library does not say why"
    );
    fine("a second client of the process is refused")
}

pub(super) fn wait(session: &mut Session) -> CheckResult {
    let resource = "check-wait";
    session.acquire(resource, OPTIONS.ttl_ms * 2)?;
    let waiting = session.peer.ask("c2", acquire_op(resource, 3000))?;
    if session.peer.is_answered(waiting, Duration::from_millis(300))? {
        let (reply, _) = session.peer.reply(waiting)?;
        session.release("c1", resource)?;
        return wrong!(
            "an acquire with a \"wait_ms\" of 3000 was answered at once: {reply}; wait while it is \
             taken, or do not say that you can `wait`"
        );
    }
    let step = session.peer.ask("c3", step_op(None))?;
    let stepped = session.peer.is_answered(step, Duration::from_secs(1))?;
    session.release("c1", resource)?;
    let (reply, _) = session.peer.reply(waiting)?;
    session.release("c2", resource)?;
    ensure!(
        stepped,
        "while one client waited for a lease, the step of another was not answered: requests run \
         concurrently, each in a thread or task of its own"
    );
    ensure!(reply.ok, "an acquire that waited was not granted after the holder's release: {reply}");
    fine("a waiter is granted after the release, other requests go on")
}

/// How late a driver may report a loss on a busy machine.
const LATE: Duration = Duration::from_millis(500);

const EXPIRING: &str = "check-expired";
const EXPIRING_TTL_MS: u64 = 600;

pub(super) fn checked_step(session: &mut Session) -> CheckResult {
    let resource = session.lease()?.resource;
    let reply = session.request("c1", step_op(Some(resource)))?;
    ensure!(
        reply.ok,
        "a step that checks `{resource}` was refused although the client holds it: {reply}"
    );
    let reply = session.request("c3", step_op(Some(resource)))?;
    ensure!(
        reply.why == Some(FailureReason::Lost),
        "a step that checks `{resource}` was asked of a client that does not hold it, and answered \
         {reply}; say \"why\":\"lost\""
    );
    fine("done by the holder, refused to other clients")
}

pub(super) fn release(session: &mut Session) -> CheckResult {
    let grant = session.grant.take().ok_or_else(no_lease)?;
    let reply = session.release("c1", grant.resource)?;
    ensure!(reply.ok, "a lease that was held was not released: {reply}");
    let left = session.keys.gone(grant.resource)?;
    ensure!(
        left == 0,
        "a second after the release {left} of {} masters have the key: delete it on all",
        session.keys.len()
    );
    fine("no master has the key any more")
}

pub(super) fn extend(session: &mut Session) -> CheckResult {
    let (resource, ttl_ms) = ("check-extend", OPTIONS.ttl_ms);
    let grant = session.acquire(resource, ttl_ms)?;
    session.peer.pass(Duration::from_millis(400))?;
    let reply = session.request("c1", Op::Extend { resource: resource.into(), ttl_ms })?;
    let left = longest(session, resource)?;
    session.release("c1", resource)?;
    ensure!(reply.ok, "a lease that is held was not extended, with all masters up: {reply}");
    ensure!(
        left + 200 >= ttl_ms,
        "it was extended by {ttl_ms} ms, and at once the masters keep the key for no more than \
         {left} ms: \"ttl_ms\" counts from the extension"
    );
    later(session, grant.reply.deadline_ns, &reply)
}

/// The remaining TTL of the key on the master where it lives longest.
fn longest(session: &Session, resource: &str) -> Result<u64, Fault> {
    let keys = session.keys.of(resource)?;
    Ok(keys.iter().flatten().filter_map(|key| key.ttl_ms).max().unwrap_or(0))
}

fn later(session: &Session, old: Option<i64>, reply: &ClientReply) -> CheckResult {
    if !session.can(Capability::Deadline) {
        let Some(valid) = reply.valid_ms else { return fine("the keys live on") };
        ensure!(
            (1..=OPTIONS.ttl_ms).contains(&valid),
            "the \"valid_ms\" of the answer to an extend is not at most the TTL: {reply}"
        );
        return fine(format!("valid for another {valid} ms"));
    }
    let Some(new) = reply.deadline_ns else {
        return wrong!("it can `deadline`, and the answer to an extend has no \"deadline_ns\"");
    };
    ensure!(
        old.is_none_or(|old| new > old),
        "it was extended, and \"deadline_ns\" is {new}, no later than it was ({})",
        old.unwrap_or_default()
    );
    fine("the deadline and the keys live on")
}

pub(super) fn keep_alive(session: &mut Session) -> CheckResult {
    let (resource, ttl_ms) = ("check-alive", 800);
    session.acquire(resource, ttl_ms)?;
    let op = Op::KeepAlive { resource: resource.into(), max_ms: 10_000 };
    let reply = session.request("c1", op)?;
    if !reply.ok {
        session.release("c1", resource)?;
        return wrong!("it was not kept alive: {reply}");
    }
    session.peer.pass(Duration::from_millis(ttl_ms * 2))?;
    let left = longest(session, resource)?;
    let notice = session.peer.notice(Duration::ZERO, |notice| {
        matches!(notice, Notice::Extended { client, resource: of, .. }
            if client == "c1" && *of == resource)
    })?;
    session.release("c1", resource)?;
    ensure!(
        left > 0,
        "a lease of {ttl_ms} ms was to be kept alive, and twice that later no master has its key: \
         extend it in the background, well before it ends"
    );
    ensure!(
        notice.is_some() || !session.can(Capability::Deadline),
        "the lease was kept alive, and no extension was reported: send {{\"event\":\"extended\",\
         \"client\":…,\"resource\":…,\"deadline_ns\":…}} for each, or the harness takes the first \
         deadline for the end of the lease"
    );
    ensure!(
        session.keys.gone(resource)? == 0,
        "a second after its release the key of a lease that was kept alive is still there: end the \
         extending first"
    );
    fine("extended until its release, and not after it")
}

/// The client extends a lease unasked.
pub(super) fn renews(session: &mut Session) -> CheckResult {
    let (resource, ttl_ms) = ("check-renews", 1000);
    session.acquire(resource, ttl_ms)?;
    session.peer.pass(Duration::from_millis(ttl_ms * 2))?;
    let left = longest(session, resource)?;
    session.release("c1", resource)?;
    ensure!(
        left > 0,
        "it `renews`, and two seconds after a lease of one second no master has its key"
    );
    ensure!(
        session.keys.gone(resource)? == 0,
        "a second after its release the key of a lease is still there: end the extending first"
    );
    fine("extended until its release, and not after it")
}

/// A client acquires a resource that it holds.
pub(super) fn again(session: &mut Session) -> CheckResult {
    let resource = "check-again";
    let grant = session.acquire(resource, OPTIONS.ttl_ms)?;
    session.peer.pass(Duration::from_millis(50))?;
    let op = Op::Acquire {
        resource: resource.into(),
        ttl_ms: 0,
        wait_ms: 0,
        again: true,
        shared: false,
    };
    let second = session.request("c1", op)?;
    let first_release = session.release("c1", resource)?;
    let left = session.keys.of(resource)?.iter().filter(|keys| !keys.is_empty()).count();
    let last_release = session.release("c1", resource)?;
    ensure!(
        second.ok && second.handles == Some(2),
        "a client that holds `{resource}` acquired it \"again\", and the answer is not \"ok\" with \
         \"handles\":2, but {second}"
    );
    ensure!(
        second.deadline_ns == grant.reply.deadline_ns || !session.can(Capability::Deadline),
        "it was acquired \"again\" with \"ttl_ms\":0, so the deadline stands; the reply has \
         another: {second}"
    );
    ensure!(
        first_release.ok && first_release.handles == Some(1),
        "one of two handles was released, and the answer is not \"ok\" with \"handles\":1, but \
         {first_release}"
    );
    ensure!(
        left >= session.keys.quorum(),
        "one of two handles was released, and only {left} masters have the key yet: delete it with \
         the last one"
    );
    ensure!(
        last_release.ok && session.keys.gone(resource)? == 0,
        "the last handle was released, and the key is still there, or the answer is not \"ok\": \
         {last_release}"
    );
    fine("two handles of one lease, which ended with the last")
}

/// Leaves an expired lease for the check [`expired`].
/// A client acquires two resources at once, and then two of which one is taken.
pub(super) fn several(session: &mut Session) -> CheckResult {
    let names = ["check-one-of-two", "check-other-of-two"];
    let resources: Vec<Name> = names.map(Name::from).to_vec();
    let (ttl_ms, wait_ms) = (OPTIONS.ttl_ms, 0);
    let acquire = Op::AcquireAll { resources: resources.clone(), ttl_ms, wait_ms, shared: false };
    let reply = session.request("c1", acquire.clone())?;
    ensure!(reply.ok, "two free resources were not granted together: {reply}");
    for name in names {
        let on = session.keys.of(name)?.iter().filter(|keys| !keys.is_empty()).count();
        ensure!(
            on >= session.keys.quorum(),
            "two resources were granted together, and the key of `{name}` is on {on} masters"
        );
    }
    let released = session.request("c1", Op::ReleaseAll { resources })?;
    for name in names {
        ensure!(
            released.ok && session.keys.gone(name)? == 0,
            "two leases were released together, and a second later the key of `{name}` is still \
             there, or the answer is not \"ok\": {released}"
        );
    }
    session.acquire(names[1], ttl_ms)?;
    let refused = session.request("c2", acquire)?;
    let left = session.keys.gone(names[0])?;
    session.release("c1", names[1])?;
    ensure!(!refused.ok, "two resources were granted together, and one of them was taken");
    ensure!(
        left == 0,
        "two resources were refused, because one was taken, and a second later the key of the \
         other is on {left} masters: give back what was granted already"
    );
    fine("all or none, and all are released")
}

/// A client acquires one of two resources, of which one is taken.
pub(super) fn any(session: &mut Session) -> CheckResult {
    let names = ["check-first-of-two", "check-second-of-two"];
    session.acquire(names[0], OPTIONS.ttl_ms)?;
    let (resources, ttl_ms) = (names.map(Name::from).to_vec(), OPTIONS.ttl_ms);
    let acquire = Op::AcquireAny { resources, ttl_ms, wait_ms: 0, shared: false };
    let reply = session.request("c2", acquire.clone())?;
    ensure!(
        reply.ok && reply.resource.as_deref() == Some(names[1]),
        "one of two resources was taken, and the answer to a request for one of them is not \"ok\" \
         with \"resource\":\"{}\", but {reply}",
        names[1]
    );
    let refused = session.request("c3", acquire)?;
    ensure!(!refused.ok, "one of two resources was granted, and both were taken: {refused}");
    for (client, name) in ["c1", "c2"].into_iter().zip(names) {
        let released = session.release(client, name)?;
        ensure!(
            released.ok && session.keys.gone(name)? == 0,
            "`{name}` was released, and a second later its key is still there, or the answer is \
             not \"ok\": {released}"
        );
    }
    fine("the one that is free, and none if both are taken")
}

/// Clients of two processes share a resource, and then one of them holds it alone.
pub(super) fn shared(session: &mut Session) -> CheckResult {
    let resource = "check-shared";
    // A shared lease has no fencing token.
    let options = Options { fencing: false, ..OPTIONS };
    let start = || Peer::start(&session.command, &session.keys.urls(), &options);
    let mut peers = [start().map_err(Fault::Environment)?, start().map_err(Fault::Environment)?];
    for peer in &mut peers {
        peer.first_line()?;
    }
    let mut ask = |peer: usize, op| {
        let asked = peers[peer].ask("c1", op)?;
        peers[peer].reply(asked).map(|(reply, _)| reply)
    };
    let acquire = |shared| Op::Acquire {
        resource: resource.into(),
        ttl_ms: OPTIONS.ttl_ms,
        wait_ms: 0,
        again: false,
        shared,
    };
    let release = || Op::Release { resource: resource.into() };
    for peer in [0, 1] {
        let reply = ask(peer, acquire(true))?;
        ensure!(
            reply.ok,
            "client {} of two asked for `{resource}` with \"shared\":true, which nobody held alone, \
             and was refused: {reply}",
            peer + 1
        );
    }
    for peer in [0, 1] {
        let mut third = start().map_err(Fault::Environment)?;
        third.first_line()?;
        let asked = third.ask("c1", acquire(false))?;
        let (refused, _) = third.reply(asked)?;
        ensure!(
            !refused.ok,
            "`{resource}` was granted without \"shared\", and {} of two clients that share it had \
             not released it yet",
            2 - peer
        );
        let released = ask(peer, release())?;
        ensure!(released.ok, "the release of a shared lease was answered {released}");
    }
    ensure!(
        session.keys.gone(resource)? == 0,
        "both clients that shared `{resource}` released it, and a second later its key is still \
         there: the last one deletes it"
    );
    let alone = ask(0, acquire(false))?;
    ensure!(alone.ok, "nobody shares `{resource}` any more, and it was not granted: {alone}");
    let refused = ask(1, acquire(true))?;
    ask(0, release())?;
    ensure!(
        !refused.ok,
        "`{resource}` was granted with \"shared\":true while a client held it without"
    );
    fine("two share it, or one has it alone")
}

pub(super) fn lost(session: &mut Session) -> CheckResult {
    if session.can(Capability::Renews) {
        return Err(Fault::Skipped("it `renews`: no lease ends by itself".to_owned()));
    }
    let grant = session.acquire(EXPIRING, EXPIRING_TTL_MS)?;
    let ttl = Duration::from_millis(EXPIRING_TTL_MS);
    let ClientReply { deadline_ns, at_ns, valid_ms, .. } = grant.reply;
    let valid = valid_ms.map(Duration::from_millis);
    let of_valid = at_ns.zip(valid).map(|(at, valid)| stamp::later(at, valid));
    // Without a deadline, the lease ends a TTL, less the drift, after its first command.
    let drift = Duration::from_micros(EXPIRING_TTL_MS * u64::from(OPTIONS.drift_ppm) / 1000);
    let least = ttl.saturating_sub(drift + Duration::from_millis(OPTIONS.drift_ms));
    let end = deadline_ns.or(of_valid).unwrap_or_else(|| stamp::later(grant.asked, least));
    session.grant = Some(grant);
    let notice = session.peer.notice(ttl + LATE, |notice| {
        matches!(notice, Notice::Lost { client, resource, .. }
            if client == "c1" && resource == EXPIRING)
    })?;
    let claimed = session.can(Capability::Lost);
    let Some((Notice::Lost { at_ns, .. }, received)) = notice else {
        ensure!(
            !claimed,
            "it can `lost`, and {LATE:?} after the end of a lease nothing was reported: send \
             {{\"event\":\"lost\",\"client\":\"c1\",\"resource\":\"{EXPIRING}\",\"at_ns\":…}}"
        );
        return cannot(Capability::Lost);
    };
    ensure!(claimed, "it says that a lease is lost, so add `lost` to \"can\"");
    ensure!(
        (end..=stamp::later(end, LATE)).contains(&at_ns) && at_ns <= received,
        "the lease ended at {end}, and its loss was reported at {at_ns} by its own stamp, received \
         at {received}: report it at the deadline, whether or not a master can be reached"
    );
    fine("it is reported at the deadline")
}

pub(super) fn expired(session: &mut Session) -> CheckResult {
    let resource = session.grant.take().ok_or_else(no_lease)?.resource;
    // Whatever the result of `lost`: after this wait, the lease is over.
    session.peer.pass(LATE)?;
    let reply = session.request("c1", step_op(Some(resource)))?;
    let unchecked = session.request("c1", step_op(None))?;
    let released = session.release("c1", resource)?;
    ensure!(
        reply.why == Some(FailureReason::Lost),
        "a step that checks a lease whose deadline has passed was answered {reply}; compare the \
         deadline with the clock, and say \"why\":\"lost\""
    );
    ensure!(
        unchecked.ok,
        "after the end of its lease a client refused a step without a check: {unchecked}"
    );
    ensure!(
        released.ok || released.why == Some(FailureReason::Lost),
        "the release of a lease that has expired was answered {released}; it is no error: say \
         \"ok\":true, or \"why\":\"lost\""
    );
    fine("steps that check are refused, and its release is an answer")
}

const RESOURCE: &str = "check-fair";
const PROCESSES: usize = 3;
/// How often each process gets the resource.
const ROUNDS: usize = 2;
/// Longer than the whole check: no lease expires, and no request times out.
const TTL_MS: u64 = 20_000;
/// The time for a request to enter the fair queue before the next process sends its own.
const APART: Duration = Duration::from_millis(250);
/// How long the next grant may take while all masters run.
const SOON: Duration = Duration::from_secs(2);

/// Each process has a client that waits while another process holds the resource. A process that
/// releases has a second client that wants the resource by then. It must not hand the lease over
/// within the process.
pub(super) fn fair(session: &mut Session) -> CheckResult {
    let options = Options { fair: true, ..OPTIONS };
    let mut processes = Vec::new();
    let mut waiting: VecDeque<(usize, bool, PendingRequest)> = VecDeque::new();
    for _ in 0..PROCESSES {
        let process = Peer::start(&session.command, &session.keys.urls(), &options);
        let mut process = process.map_err(Fault::Environment)?;
        process.first_line()?;
        processes.push(process);
    }
    for (number, process) in processes.iter_mut().enumerate() {
        waiting.push_back((number, false, ask(process, false)?));
        process.pass(APART)?;
    }
    for turn in 1..=ROUNDS * PROCESSES {
        let Some((number, second, asked)) = waiting.pop_front() else { break };
        let process = &mut processes[number];
        ensure!(
            process.is_answered(asked, SOON)? && process.reply(asked)?.0.ok,
            "{PROCESSES} processes with the option \"fair\":true want one resource, and turn \
             {turn} is process {}'s, which has waited for longest; it was not granted within \
             {SOON:?}: keep the order between processes, or leave `fair` out",
            number + 1
        );
        waiting.push_back((number, !second, ask(process, !second)?));
        process.pass(APART)?;
        let release = process.ask(client(second), Op::Release { resource: RESOURCE.into() })?;
        let (released, _) = process.reply(release)?;
        ensure!(released.ok, "a release was answered {released}");
    }
    fine(format!("{PROCESSES} processes took {ROUNDS} turns each"))
}

fn ask(process: &mut Peer, second: bool) -> Result<PendingRequest, Fault> {
    let resource = RESOURCE.into();
    let op = Op::Acquire { resource, ttl_ms: TTL_MS, wait_ms: TTL_MS, again: false, shared: false };
    process.ask(client(second), op)
}

const fn client(second: bool) -> &'static str {
    if second { "c2" } else { "c1" }
}
