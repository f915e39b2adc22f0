//! Clients whose lease clocks run at another rate.

use redquorum_scenario::Mutant;
use redquorum_scenario::history::{Event, History};

use crate::support::scenario;

fn run(rest: &str) -> History {
    let scenario = scenario(&format!("name = \"t\"\nabout = \"A test.\"\n{rest}"));
    redquorum_simulator::run(&scenario, 0, Mutant::None)
}

fn is_broken(history: &History) -> bool {
    history.records.iter().any(|record| matches!(record.event, Event::Broken { .. }))
}

#[test]
fn the_clock_of_a_client_measures_its_wait() {
    // The time, in milliseconds, at which c2 is refused. It waits for a second, from 100 ms on.
    let refused = |fault: &str| {
        let history = run(&format!(
            "[[client]]\nid = \"c1\"\nscript = [\"acquire L\", \"keep L for 30s\", \"work 6s\"]\n\
             [[client]]\nid = \"c2\"\nstart = \"100ms\"\nscript = [\"acquire L wait 1s\"]\n{fault}"
        ));
        assert!(!is_broken(&history));
        let replies = history.records.iter().filter_map(|record| match &record.event {
            Event::Replied { client, reply } if client == "c2" && !reply.ok => Some(record.ns),
            _ => None,
        });
        replies.min().expect("it is refused") / 1_000_000
    };
    let context = |ms: i64, fault: &str| {
        let at = refused(fault);
        assert!((ms..ms + 60).contains(&at), "{at} instead of {ms}: {fault}");
    };
    let rate = |factor: f64| {
        format!("[[fault]]\nat = \"0s\"\nclient.rate = {{ client = \"c2\", factor = {factor} }}\n")
    };
    context(1_100, "");
    context(2_100, &rate(0.5));
    context(600, &rate(2.0));
    // Half of the wait at one rate, half at the other: a change of rate sets earlier timers anew.
    let since =
        |at: &str, rest: &str| rate(0.5).replace("at = \"0s\"", &format!("at = \"{at}\"{rest}"));
    context(1_600, &since("600ms", ""));
    context(1_350, &since("0s", "\nfor = \"600ms\""));
}

#[test]
fn a_client_whose_clock_is_slow_has_its_time_to_answer() {
    let slow = "[[client]]\nid = \"c1\"\nscript = [\"acquire L wait 10s\"]\n\
                [lock]\nrestart-guard = \"10s\"\ninitialized = false\n\
                [[fault]]\nat = \"0s\"\nclient.rate = { client = \"c1\", factor = 0.1 }\n";
    assert!(!is_broken(&run(slow)));
    // The end of one fault does not end the other.
    let suspended = "[[client]]\nid = \"c1\"\nscript = [\"acquire L\", \"release L\"]\n\
                     [[fault]]\nafter = \"c1 granted L\"\nclient.suspend = { client = \"c1\" }\n\
                     [[fault]]\nat = \"0s\"\nfor = \"10s\"\n\
                     client.rate = { client = \"c1\", factor = 0.9 }\n";
    assert!(!is_broken(&run(suspended)));
}
