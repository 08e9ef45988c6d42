//! The HTTP port of `weir run`: `GET /metrics` (Prometheus text format) and
//! `GET /debug/flow` (the ledger as JSON).

use std::net::TcpListener;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use actix_web::dev::ServerHandle;
use actix_web::{App, HttpResponse, HttpServer, web};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

use crate::error::ServerError;

/// How often the recorder folds its histograms; between scrapes they would grow.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Text that `/debug/flow` serves; replaced by the pipeline about once a second.
#[derive(Clone, Debug, Default)]
pub struct FlowPage(Arc<Mutex<String>>);

impl FlowPage {
    /// Replaces the page.
    pub fn set(&self, json: String) {
        if let Ok(mut page) = self.0.lock() {
            *page = json;
        }
    }

    fn get(&self) -> String {
        self.0.lock().map(|page| page.clone()).unwrap_or_default()
    }
}

/// Installs the process's metrics recorder; a second call returns the first one's
/// handle.
///
/// # Errors
/// Another recorder was installed by somebody else.
pub fn recorder() -> Result<PrometheusHandle, ServerError> {
    static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();
    if let Some(handle) = HANDLE.get() {
        return Ok(handle.clone());
    }
    let handle = PrometheusBuilder::new()
        .install_recorder()
        .map_err(|error| ServerError::Metrics(error.to_string()))?;
    Ok(HANDLE.get_or_init(|| handle).clone())
}

/// Starts the server on `listen` (`host:port`). Must be called inside an actix system.
///
/// # Errors
/// The address cannot be bound.
pub fn serve(listen: &str, metrics: PrometheusHandle, flow: FlowPage) -> Result<ServerHandle, ServerError> {
    let bind = |source| ServerError::Listen {
        address: listen.to_owned(),
        source,
    };
    let listener = TcpListener::bind(listen).map_err(bind)?;
    let upkeep = metrics.clone();
    actix::spawn(async move {
        loop {
            tokio::time::sleep(UPKEEP_INTERVAL).await;
            upkeep.run_upkeep();
        }
    });
    let server = HttpServer::new(move || {
        let (metrics, flow) = (metrics.clone(), flow.clone());
        App::new()
            .route(
                "/metrics",
                web::get().to(move || {
                    let body = metrics.render();
                    async {
                        HttpResponse::Ok()
                            .content_type("text/plain; version=0.0.4")
                            .body(body)
                    }
                }),
            )
            .route(
                "/debug/flow",
                web::get().to(move || {
                    let body = flow.get();
                    async { HttpResponse::Ok().content_type("application/json").body(body) }
                }),
            )
    })
    .workers(1)
    .disable_signals()
    .listen(listener)
    .map_err(bind)?
    .run();
    let handle = server.handle();
    actix::spawn(async move {
        if let Err(error) = server.await {
            tracing::error!(%error, "metrics server ended");
        }
    });
    Ok(handle)
}
