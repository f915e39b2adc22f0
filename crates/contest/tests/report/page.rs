//! The page shows what the contest measured, and is safe to open.

use std::path::Path;

use redquorum_contest::page::render;
use redquorum_contest::results::{Contest, Outcome, Workload};

use crate::support::{change, fixture, is, oversell};

fn page(contest: &Contest) -> String {
    render(contest).expect("the templates are correct")
}

/// The part of the page between the heading of a section and the next section.
fn section<'a>(page: &'a str, id: &str) -> &'a str {
    let (_, rest) = page.split_once(&format!("<section id=\"{id}\"")).expect("the section exists");
    rest.split_once("</section>").expect("the section ends").0
}

/// Writes a page to `target/tmp`, so that a person can look at it.
fn keep(name: &str, page: &str) {
    std::fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name), page).unwrap();
}

#[test]
fn the_page_shows_each_strategy_in_each_section() {
    let contest = fixture();
    let page = page(&contest);
    keep("report.html", &page);
    for id in ["correctness", "throughput", "latency", "faults", "runs"] {
        for info in &contest.strategies {
            assert!(section(&page, id).contains(&info.name), "{} in {id}", info.name);
        }
    }
    assert!(!page.contains("Partial result"));
}

#[test]
fn the_page_needs_no_network_and_no_script() {
    let page = page(&fixture());
    for needle in ["http:", "https:", "<script", "<link", "@import", "src=", "url(//"] {
        assert!(!page.contains(needle), "{needle}");
    }
}

#[test]
fn text_of_the_contest_cannot_add_markup() {
    let hostile = "</style></title><script>alert(1)</script>\"'";
    let mut contest = fixture();
    contest.command = hostile.to_owned();
    contest.stopped = Some(hostile.to_owned());
    contest.database.version = hostile.to_owned();
    contest.strategies[0].title = hostile.to_owned();
    contest.strategies[1].name = hostile.to_owned();
    for (index, run) in contest.runs.iter_mut().enumerate() {
        match index % 4 {
            0 => run.outcome = Outcome::Failed { error: hostile.to_owned() },
            1 => run.outcome = Outcome::NotOffered { reason: hostile.to_owned() },
            2 => run.strategy = hostile.to_owned(),
            _ => {}
        }
    }
    let page = page(&contest);
    assert!(!page.contains("<script"), "markup of the contest is in the page");
    assert!(page.contains("&lt;script&gt;"), "text of the contest is not in the page");
    assert_eq!(page.matches("</style>").count(), 1);
}

#[test]
fn the_page_of_a_partial_contest_is_marked() {
    let mut contest = fixture();
    contest.stopped = Some("interrupted by Ctrl-C".to_owned());
    contest.runs.truncate(40);
    let page = page(&contest);
    keep("partial.html", &page);
    assert!(page.contains("Partial result") && page.contains("interrupted by Ctrl-C"));
    assert!(section(&page, "recommendation").contains("missing: rush of"), "missing runs");
}

#[test]
fn a_contest_without_runs_has_a_page() {
    let mut contest = fixture();
    contest.runs.clear();
    let page = page(&contest);
    for id in ["correctness", "throughput", "latency"] {
        assert!(section(&page, id).contains("This contest has no such run."), "{id}");
    }
    contest.strategies.clear();
    self::page(&contest);
}

#[test]
fn figures_without_a_place_on_a_scale_leave_a_gap() {
    for figure in [0.0, f64::NAN, f64::INFINITY, 1e300] {
        let mut contest = fixture();
        change(
            &mut contest,
            |run| is(run, "optimistic", Workload::Throughput),
            |it| {
                it.per_second = figure;
                (it.latency.p50, it.latency.p95, it.latency.p99) = (figure, figure, figure);
            },
        );
        let page = page(&contest);
        for plot in ["throughput", "latency"].map(|id| section(&page, id)) {
            assert!(!plot.contains("NaN") && !plot.contains("\"inf\""), "{figure}");
        }
    }
}

#[test]
fn an_oversold_place_is_shown_by_a_symbol_and_by_words() {
    let mut contest = fixture();
    change(&mut contest, |run| is(run, "pessimistic", Workload::Rush), oversell);
    let page = page(&contest);
    let (_, row) = section(&page, "correctness")
        .split_once("<th scope=\"row\">pessimistic</th>")
        .expect("the strategy has a row");
    let (row, _) = row.split_once("</tr>").unwrap();
    assert!(row.contains('✗') && row.contains("in 3 of 3 runs"), "{row}");
}

#[test]
fn each_table_has_a_caption_and_each_plot_a_description() {
    let page = page(&fixture());
    let count = |needle: &str| page.matches(needle).count();
    assert_eq!(count("<table"), count("<caption"));
    assert_eq!(count("role=\"img\""), count("<desc id="));
    assert_eq!(count("<th "), count("scope="), "each heading of a table has a scope");
}
