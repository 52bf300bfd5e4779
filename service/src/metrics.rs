//! The metrics of the locks, as text for Prometheus.

use std::sync::OnceLock;

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};

/// The upper limits of the buckets of times, in seconds.
const SECONDS: [f64; 8] = [0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0];
/// Those of the number of contenders that are ahead.
const AHEAD: [f64; 6] = [1.0, 3.0, 10.0, 30.0, 100.0, 1000.0];

/// A process has one recorder.
static RECORDER: OnceLock<PrometheusHandle> = OnceLock::new();

/// Installs the recorder. Clients describe their metrics when they connect, so this comes before.
///
/// # Errors
/// If the process has a recorder.
pub fn install() -> Result<(), BuildError> {
    // The dashboard's percentiles need buckets.
    let recorder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS)?
        .set_buckets_for_metric(Matcher::Suffix("_ahead".to_owned()), &AHEAD)?
        .install_recorder()?;
    RECORDER.get_or_init(|| recorder);
    Ok(())
}

/// Answers a scrape.
pub(crate) async fn scrape() -> Response {
    match RECORDER.get() {
        Some(recorder) => {
            recorder.run_upkeep();
            (
                [(CONTENT_TYPE, "text/plain; version=0.0.4")],
                recorder.render(),
            )
                .into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
