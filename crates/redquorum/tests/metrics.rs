//! What the lock exports through the `metrics` crate (feature `metrics`).

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

#[test]
fn every_name_is_documented_with_its_labels() {
    let (during, _) = scraped(async |_, lock, _| drop(lock.acquire("r").fenced().await.unwrap()));
    let document = include_str!("../../../docs/observability.md");
    let names = during.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let names: Vec<&str> = names.filter_map(|line| line.split(' ').next()).collect();
    assert!(names.len() >= 8, "{names:?}");
    for name in names {
        assert!(document.contains(&format!("`{name}`")), "docs/observability.md lacks {name}");
    }
}
