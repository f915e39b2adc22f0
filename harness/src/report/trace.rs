//! A run in the Trace Event format, for Perfetto and other viewers of traces.
//!
//! Each client and each master is a process of the trace, and so are the faults. A client has
//! threads for its requests, its belief and its gaps; a master has one for the tokens on it.

use serde_json::{Value, json};

use super::page::line;
use redquorum_checker::{Case, prepare};
use redquorum_scenario::history::{History, Ns, Window};

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
        let name = format!("{} {}", request.verb(), request.resource.unwrap_or_default());
        let args = json!({
            "ok": request.ok(),
            "why": request.reply.and_then(|reply| reply.why),
            "line": line(request.record),
        });
        trace.bar(request.client, "requests", name.trim_end(), request.span(), args);
    }
    for lease in &case.leases {
        let args = json!({
            "token": lease.token,
            "fencing token": lease.reply.fence,
            "granted by masters": lease.masters(&case.keys),
            "ended by": lease.ending.name(),
        });
        for believed in lease.believed() {
            let name = format!("believes to hold {}", lease.resource);
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
        trace.bar(&master, &format!("token of {resource}"), &name, key.possible, args);
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
