//! A run drawn as a few lines of text: the faults, and when each client believed that it held a
//! lease; and a run in the Trace Event format, for Perfetto and other viewers of traces.

use super::page::line;
use redquorum_checker::{Case, Observed, Verdict, prepare};
use redquorum_scenario::client_protocol::{FailureReason, shown};
use redquorum_scenario::history::{History, Ns, Window};
use serde_json::{Value, json};

/// The characters from the first event to the last one.
const WIDTH: usize = 64;
/// The largest number of clients that are drawn.
const MOST_CLIENTS: usize = 8;

const HOLDS: char = '█';
const BELIEVES: char = '░';
const BREAKS: char = '^';

/// The rows of the timeline, none if no client had a lease; and why requests were refused.
pub(super) fn rows(history: &History, verdict: &Verdict) -> Vec<String> {
    prepare(history, |case| {
        let (mut rows, refusals) = (drawn(history, case, verdict), refusals(case));
        if !refusals.is_empty() {
            rows.push("refused:".to_owned());
        }
        rows.extend(refusals);
        rows
    })
}

fn drawn(history: &History, case: &Case<'_>, verdict: &Verdict) -> Vec<String> {
    let end = history.records.iter().map(|record| record.ns).max().unwrap_or(0).max(1);
    let clients = history.header.scenario.clients.iter().map(|client| {
        let own = || case.leases.iter().filter(|lease| lease.client == client.id);
        let mut row = Row::new(&client.id, end);
        own().flat_map(|lease| lease.believed()).for_each(|span| row.paint(span, HOLDS));
        own().flat_map(|lease| case.hollow(lease)).for_each(|gap| row.paint(*gap, BELIEVES));
        row
    });
    let mut rows: Vec<Row> = clients.filter(|row| !row.is_empty()).collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let more = rows.len().saturating_sub(MOST_CLIENTS);
    rows.truncate(MOST_CLIENTS);
    let mut faults = Row::new("faults", end);
    for strike in case.faults.strikes().iter().filter(|strike| !strike.failed) {
        let digit =
            u32::try_from(strike.number).ok().and_then(|number| char::from_digit(number, 10));
        faults.put(strike.at.from, digit.unwrap_or('+'));
    }
    let mut breaks = Row::new("breaks", end);
    let violated = || verdict.findings.iter().filter(|found| found.seen == Observed::Violated);
    // Mutual exclusion comes first: the other violations usually follow from it.
    let first = violated().map(|found| found.property).min();
    for finding in violated().filter(|found| Some(found.property) == first) {
        breaks.paint(Window { from: finding.from, to: finding.to }, BREAKS);
    }
    rows.insert(0, faults);
    rows.push(breaks);
    let width = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or_default();
    let lines = rows.iter().filter(|row| !row.is_empty()).map(|row| {
        let signs: String = row.signs.iter().collect();
        format!("{:width$} |{}", row.name, signs.trim_end())
    });
    let mut lines: Vec<String> = lines.collect();
    let (last, room) = (format!("{} ms", end / 1_000_000), WIDTH - 4);
    lines.push(format!("{:width$} |0 ms{last:>room$}", ""));
    lines.push(format!(
        "{HOLDS} believes that it holds, {BELIEVES} although no quorum has its token, 1 the number of a \
         fault"
    ));
    if more > 0 {
        lines.push(format!("{more} more clients are left out"));
    }
    lines
}

/// The largest number of refusals that are listed.
const MOST_REFUSALS: usize = 8;

/// Why requests were refused, in the words of the client. Refusals with the same words are listed
/// once, at the time of the first.
pub(super) fn refusals(case: &Case<'_>) -> Vec<String> {
    let mut all: Vec<(String, Ns, usize)> = Vec::new();
    for request in &case.requests {
        let Some(reply) = request.reply.filter(|reply| !reply.ok) else { continue };
        let why = reply.why.map_or("refused", FailureReason::name);
        let text = reply.text.as_deref().map(|text| format!(": {}", shown(text)));
        let (client, what) = (request.client, request.text());
        let line = format!("{client}: {what}: {why}{}", text.unwrap_or_default());
        match all.iter_mut().find(|(known, ..)| *known == line) {
            Some((.., count)) => *count += 1,
            None => all.push((line, reply.ns, 1)),
        }
    }
    let more = all.len().saturating_sub(MOST_REFUSALS);
    let listed = all.into_iter().take(MOST_REFUSALS).map(|(line, at, count)| {
        let times = if count > 1 { format!(" ({count} times)") } else { String::new() };
        format!("{} ms  {line}{times}", at / 1_000_000)
    });
    let more = (more > 0).then(|| format!("{more} more refusals are left out"));
    listed.chain(more).collect()
}

/// A row of the drawing.
struct Row {
    name: String,
    end: Ns,
    signs: Vec<char>,
}

impl Row {
    fn new(name: &str, end: Ns) -> Self {
        Self { name: name.chars().take(12).collect(), end, signs: vec![' '; WIDTH] }
    }

    fn is_empty(&self) -> bool {
        self.signs.iter().all(|sign| *sign == ' ')
    }

    fn column(&self, at: Ns) -> usize {
        let part = i128::from(at.clamp(0, self.end)) * WIDTH as i128 / i128::from(self.end);
        usize::try_from(part).unwrap_or(0).min(WIDTH - 1)
    }

    /// Covers a window, which takes one column at least.
    fn paint(&mut self, window: Window, sign: char) {
        let (from, to) = (self.column(window.from), self.column(window.to));
        self.signs[from..to.max(from + 1)].fill(sign);
    }

    /// Puts a sign at an instant, or behind the signs that are there already.
    fn put(&mut self, at: Ns, sign: char) {
        let column = self.column(at);
        if let Some(free) = self.signs[column..].iter_mut().find(|sign| **sign == ' ') {
            *free = sign;
        }
    }
}

/// A run in the Trace Event format.
///
/// Each client and each master is a process of the trace, and so are the faults. A client has
/// threads for its requests, its belief and its gaps; a master has one for the tokens on it, and
/// one for each token that shares its key.
struct Trace {
    /// Where bars without an end stop: the last record of the run.
    end: Ns,
    /// The processes and threads that have a number.
    processes: Vec<String>,
    events: Vec<Value>,
}

pub(crate) fn trace(history: &History) -> Value {
    prepare(history, |case| trace_of(history, case))
}

fn trace_of(history: &History, case: &Case<'_>) -> Value {
    let end = history.records.last().map_or(0, |record| record.ns);
    let mut trace = Trace { end, processes: Vec::new(), events: Vec::new() };
    for strike in case.faults.strikes() {
        let name = format!("fault {}: {}", strike.number, strike.fault.kind.name());
        let args = json!({ "masters": strike.masters(case), "processes": strike.clients(case) });
        trace.bar("faults", &format!("fault {}", strike.number), &name, strike.span(), args);
    }
    for request in &case.requests {
        let args = json!({
            "ok": request.ok(),
            "why": request.reply.and_then(|reply| reply.why),
            "text": request.reply.as_ref().and_then(|reply| reply.text.as_deref()),
            "line": line(request.record),
        });
        trace.bar(request.client, "requests", &request.text(), request.span(), args);
    }
    for lease in &case.leases {
        let args = json!({
            "token": lease.token,
            "fencing token": lease.reply.fence,
            "granted by masters": lease.masters(&case.keys),
            "ended by": lease.ending.name(),
        });
        for believed in lease.believed() {
            let holds = if lease.shared { "share" } else { "hold" };
            let name = format!("believes to {holds} {}", lease.resource);
            trace.bar(lease.client, "belief", &name, believed, args.clone());
        }
        for gap in case.hollow(lease) {
            let name = format!("no quorum has its token of {}", lease.resource);
            trace.bar(lease.client, "gaps", &name, *gap, args.clone());
        }
    }
    for key in &case.keys.all {
        let resource = key.resource.unwrap_or_default();
        let args = json!({ "token": key.token, "end": key.end(case) });
        let name = format!("{resource}: {}", key.process);
        let master = format!("master {}", key.node);
        // Bars of one thread must not overlap.
        let thread = match key.shared {
            true => format!("token {} of {resource}", key.token),
            false => format!("token of {resource}"),
        };
        trace.bar(&master, &thread, &name, key.possible, args);
    }
    json!({ "traceEvents": trace.events, "displayTimeUnit": "ms" })
}

impl Trace {
    fn bar(&mut self, process: &str, thread: &str, name: &str, span: Window, args: Value) {
        let (pid, tid) = (self.number(process, None), self.number(process, Some(thread)));
        let (from, to) = (span.from.max(0), span.to.min(self.end));
        self.events.push(json!({
            "ph": "X",
            "pid": pid,
            "tid": tid,
            "name": name,
            "ts": micros(from),
            "dur": micros(to.saturating_sub(from).max(0)),
            "args": args,
        }));
    }

    /// The number of a process or of a thread. A new one is named first.
    fn number(&mut self, process: &str, thread: Option<&str>) -> usize {
        let key = thread.map_or_else(|| process.to_owned(), |it| format!("{process}\n{it}"));
        if let Some(number) = self.processes.iter().position(|known| *known == key) {
            return number + 1;
        }
        self.processes.push(key);
        let number = self.processes.len();
        let pid = if thread.is_some() { self.number(process, None) } else { number };
        let (kind, name) = match thread {
            Some(thread) => ("thread_name", thread),
            None => ("process_name", process),
        };
        self.events.push(json!({
            "ph": "M", "name": kind, "pid": pid, "tid": number, "args": { "name": name },
        }));
        number
    }
}

/// Microseconds, the unit of the format.
#[expect(clippy::cast_precision_loss, reason = "a run is shorter than 2^53 ns")]
fn micros(ns: Ns) -> f64 {
    ns as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use redquorum_checker;
    use redquorum_checker::notation;

    #[test]
    fn holds_gaps_faults_and_violations_have_their_places() {
        let run = notation::Run::of(
            "cluster.nodes = 3; lock.ttl = '1s'; c1: script = ['acquire L']
            c2: script = ['acquire L']
            fault = [{ at = '160ms', node = { flush = { nodes = 2 } } }]
            0 c1 gets t1 on 12 until 900; 160 fault node.flush 2 exactly
            320 c2 gets t2 on 23 until 480; 640 phase end",
        );
        let history = run.history();
        let rows = rows(&history, &redquorum_checker::check(&history));
        let at = |name: &str| {
            let row = rows.iter().find(|row| row.starts_with(name)).unwrap();
            row.split_once('|').unwrap().1.chars().collect::<Vec<_>>()
        };
        let count = |name: &str, sign: char| at(name).iter().filter(|it| **it == sign).count();
        // The last column is of the end of the run.
        assert_eq!((count("c1", HOLDS), count("c1", BELIEVES)), (16, 47), "{rows:#?}");
        assert_eq!((at("c2").len(), count("c2", HOLDS)), (48, 16), "{rows:#?}");
        assert_eq!(at("faults").last(), Some(&'1'));
        assert_eq!(at("faults").len(), 17, "{rows:#?}");
        assert!(at("breaks")[32..48].iter().all(|sign| *sign == BREAKS), "{rows:#?}");
    }
}
