//! What the lock exports through the `metrics` crate (feature `metrics`).

use std::collections::BTreeSet;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusBuilder;
use redquorum::memory::Masters;

const S: Duration = Duration::from_secs(1);

/// Runs in virtual time, and returns what Prometheus would scrape then and after the lock is gone.
fn scraped(
    work: impl AsyncFnOnce(&Masters, &redquorum::Redlock, &dyn Fn() -> String),
) -> (String, String) {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build().unwrap();
    metrics::with_local_recorder(&recorder, || {
        let during = runtime.block_on(async {
            let masters = Masters::new(3);
            let lock = masters.builder().build().await.unwrap();
            work(&masters, &lock, &|| handle.render()).await;
            let during = handle.render();
            drop(lock);
            tokio::time::sleep(60 * S).await;
            during
        });
        drop(runtime);
        (during, handle.render())
    })
}

fn has(text: &str, line: &str) {
    assert!(text.lines().any(|it| it == line), "{line:?} is missing in\n{text}");
}

#[test]
fn outcomes_times_and_masters_are_exported() {
    let (during, after) = scraped(async |masters, lock, scrape| {
        let lease = lock.acquire("r").await.unwrap();
        assert!(lock.acquire("r").wait(2 * S).await.is_err());
        lease.extend().await.unwrap();
        let _ = lease.release().await;
        let lost = lock.acquire("lost").await.unwrap();
        tokio::time::sleep(S).await;
        has(&scrape(), "redquorum_masters_up{master=\"memory-1\"} 1");
        masters.stop(1);
        masters.stop(2);
        assert!(lock.try_acquire("s").await.is_err());
        lost.lost().await;
        has(&scrape(), "redquorum_masters_up{master=\"memory-1\"} 0");
    });
    for line in [
        "redquorum_acquires_total{outcome=\"acquired\"} 2",
        "redquorum_acquires_total{outcome=\"taken\"} 1",
        "redquorum_acquires_total{outcome=\"no_quorum\"} 1",
        "redquorum_extensions_total{outcome=\"extended\"} 1",
        "redquorum_releases_total 1",
        "redquorum_losses_total 1",
        "redquorum_connects_total{master=\"memory-3\"} 1",
        "redquorum_wait_seconds_count{granted=\"yes\"} 2",
        "redquorum_wait_seconds_sum{granted=\"no\"} 2.1",
        "redquorum_hold_seconds_count 2",
        "# TYPE redquorum_reply_seconds summary",
    ] {
        has(&during, line);
    }
    assert!(!during.contains("lost\"") && !during.contains("\"r\""), "no label is a resource");
    for gauge in ["masters_up", "masters_distrusted", "cleanups"] {
        for master in 1..=3 {
            has(&after, &format!("redquorum_{gauge}{{master=\"memory-{master}\"}} 0"));
        }
    }
}

/// The names of metrics in a text.
fn names(text: &str) -> BTreeSet<&str> {
    let is_name = |word: &&str| word.starts_with("redquorum_");
    text.split(|c: char| !c.is_ascii_lowercase() && c != '_').filter(is_name).collect()
}

#[test]
fn the_document_and_the_dashboard_have_the_names_that_are_exported() {
    let (during, _) = scraped(async |_, lock, _| {
        let lease = lock.acquire("r").fenced().await.unwrap();
        let _ = lease.release().await;
        assert!(lock.acquire("r").wait(Duration::ZERO).await.is_ok());
    });
    let types: Vec<&str> = during.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    let exported: BTreeSet<&str> = types.iter().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(exported.len(), 14, "{exported:?}");
    let document = include_str!("../../../docs/observability.md");
    assert_eq!(names(document), exported);
    assert_eq!(names(include_str!("../../../docs/grafana-dashboard.json")), exported);
    // Each row has the labels: `outcome` and `granted` with all their values, or `master`.
    for line in during.lines().filter(|line| line.starts_with("redquorum_")) {
        let Some((name, labels)) = line.split_once('{') else { continue };
        let row = document.lines().find(|row| row.starts_with(&format!("| `{}` ", base(name))));
        let row = row.unwrap_or_else(|| panic!("no row of {name}"));
        for label in labels.split('}').next().unwrap().split(',') {
            let (key, value) = label.split_once('=').unwrap();
            let value = value.trim_matches('"');
            let documented = key == "quantile"
                || row.contains(&format!("`{key}`"))
                    && (key == "master" || row.contains(&format!("`{value}`")));
            assert!(documented, "{line}: {row}");
        }
    }
}

/// The name of the metric that a line of a summary belongs to.
fn base(name: &str) -> &str {
    name.trim_end_matches("_sum").trim_end_matches("_count")
}
