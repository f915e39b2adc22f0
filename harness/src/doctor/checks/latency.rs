//! Latency: how soon a master replies, compared with the node timeout of the lock.

use std::time::Duration;

use crate::doctor::finding::Finding;

/// A median above the timeout is an error. A median above a quarter of it is a warning, and so is
/// any single reply above the timeout. The vote of each late reply is unknown.
pub(super) fn check(pings: &[Duration], node_timeout: Duration) -> Option<Finding> {
    let mut sorted = pings.to_vec();
    sorted.sort_unstable();
    let (median, worst) = (*sorted.get(sorted.len() / 2)?, *sorted.last()?);
    let text = format!(
        "answers take {} (median) and {} (worst of {}), the node timeout is {node_timeout:?}",
        short(median),
        short(worst),
        sorted.len()
    );
    let fix = "give the lock a longer node timeout, or bring the master nearer or to rest";
    Some(if median > node_timeout {
        Finding::error("latency", text, fix)
    } else if median > node_timeout / 4 || worst > node_timeout {
        Finding::warn("latency", text, fix)
    } else {
        Finding::ok("latency", text)
    })
}

/// Formats a duration: three digits are enough.
fn short(length: Duration) -> String {
    format!("{:.2} ms", length.as_secs_f64() * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;

    #[test]
    fn the_median_counts_and_one_late_answer_is_a_warning() {
        let ms = Duration::from_millis;
        let level = |pings: &[u64]| {
            let pings: Vec<Duration> = pings.iter().map(|length| ms(*length)).collect();
            check(&pings, ms(100)).map(|found| found.level)
        };
        assert_eq!(level(&[]), None);
        assert_eq!(level(&[1, 25, 25, 25]), Some(Level::Ok));
        assert_eq!(level(&[1, 26, 26, 26]), Some(Level::Warn));
        assert_eq!(level(&[1, 1, 1, 100]), Some(Level::Ok));
        assert_eq!(level(&[1, 1, 1, 101]), Some(Level::Warn));
        assert_eq!(level(&[1, 100, 100]), Some(Level::Warn));
        assert_eq!(level(&[1, 101, 101]), Some(Level::Error));
    }
}
