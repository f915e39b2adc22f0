//! Exports the spans and events of a lock to OpenTelemetry, and its metrics to Prometheus. Three
//! workers contend for one resource.
//!
//! ```text
//! just masters                   # in one terminal, or: cargo run -p redquorum-rig --bin masters
//! export REDQUORUM_URLS=…        # in another, the line that it printed
//! cargo run --manifest-path crates/redquorum/examples/opentelemetry/Cargo.toml
//!
//! curl localhost:9464/metrics
//! ```
//!
//! Spans go to the OTLP collector at `http://localhost:4318`, or where the variables
//! `OTEL_EXPORTER_OTLP_ENDPOINT` and `OTEL_EXPORTER_OTLP_HEADERS` say. With `print` as the argument
//! the program prints them instead.

use std::error::Error;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusBuilder;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use redquorum::Redlock;
use tokio::time::sleep;
use tracing::{Instrument, Level, info_span};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::prelude::*;

/// The name of this service in traces.
const SERVICE: &str = "billing";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let urls = std::env::var("REDQUORUM_URLS").map_err(|_| "REDQUORUM_URLS is not set")?;
    let traces = match std::env::args().nth(1).as_deref() {
        Some("print") => {
            print_spans();
            None
        }
        _ => Some(export_spans()?),
    };
    // The recorder comes before the lock, which exports to the recorder that it finds when it is
    // built. It listens for Prometheus.
    PrometheusBuilder::new().with_http_listener(([127, 0, 0, 1], 9464)).install()?;
    let lock = Redlock::builder().masters(urls.split(',')).build().await?;
    tokio::select! {
        stopped = tokio::signal::ctrl_c() => stopped?,
        () = async { tokio::join!(work(&lock, 1), work(&lock, 2), work(&lock, 3)); } => {}
    }
    if let Err(unfinished) = lock.shutdown(Duration::from_secs(2)).await {
        eprintln!("{unfinished}");
    }
    // Sends the spans that are still in the batch. It blocks, so it comes last.
    if let Some(traces) = traces {
        traces.shutdown()?;
    }
    Ok(())
}

/// What is exported: the spans, and the event `acquired`, which has every master's reply.
fn wanted() -> Targets {
    Targets::new().with_target("redquorum", Level::DEBUG).with_target(module_path!(), Level::INFO)
}

/// Sends spans to an OTLP collector, in batches from a thread of their own.
fn export_spans() -> Result<SdkTracerProvider, Box<dyn Error>> {
    let exporter = SpanExporter::builder().with_http().build()?;
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(Resource::builder().with_service_name(SERVICE).build())
        .build();
    let spans = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer(SERVICE))
        // Where the library opens its spans, and on which thread, is of no use here.
        .with_location(false)
        .with_threads(false);
    tracing_subscriber::registry().with(spans.with_filter(wanted())).init();
    Ok(provider)
}

/// Prints each span when it ends.
fn print_spans() {
    let printed = tracing_subscriber::fmt::layer().with_span_events(FmtSpan::CLOSE);
    tracing_subscriber::registry().with(printed.with_ansi(false).with_filter(wanted())).init();
}

async fn work(lock: &Redlock, worker: u32) {
    loop {
        // The parent of the lock's spans `acquire`, `hold` and `release`.
        request(lock).instrument(info_span!("request", worker)).await;
        sleep(Duration::from_millis(10)).await;
    }
}

async fn request(lock: &Redlock) {
    match lock.acquire("invoice:42").fenced().await {
        Ok(lease) => {
            sleep(Duration::from_millis(20)).await;
            let _ = lease.release().await;
        }
        Err(error) => eprintln!("{error}"),
    }
}
