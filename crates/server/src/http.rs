//! The HTTP port of `weir run`: `GET /metrics` (Prometheus text format) and
//! `GET /debug/flow` (the ledger and the slowest tables as JSON).

use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use actix_web::dev::ServerHandle;
use actix_web::{App, HttpResponse, HttpServer, web};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::sync::watch;

use crate::error::ServerError;

/// How often the recorder folds its histograms; between scrapes they would grow.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Longest time that a request for the page waits for a fresh one.
const PAGE_LIMIT: Duration = Duration::from_secs(1);

/// The page that `/debug/flow` serves. The pipeline renders it when somebody asks.
#[derive(Clone, Debug)]
pub struct FlowPage(Arc<Page>);

#[derive(Debug)]
struct Page {
    json: watch::Sender<String>,
    is_asked: AtomicBool,
}

impl Default for FlowPage {
    fn default() -> Self {
        Self(Arc::new(Page {
            json: watch::channel(String::new()).0,
            is_asked: AtomicBool::new(false),
        }))
    }
}

impl FlowPage {
    /// Whether somebody waits for a page.
    pub fn is_asked(&self) -> bool {
        self.0.is_asked.load(Ordering::Acquire)
    }

    /// Replaces the page.
    pub fn set(&self, json: String) {
        self.0.is_asked.store(false, Ordering::Release);
        self.0.json.send_replace(json);
    }

    /// A fresh page; the last one where the pipeline has no time for it.
    async fn get(&self) -> String {
        let mut pages = self.0.json.subscribe();
        self.0.is_asked.store(true, Ordering::Release);
        // Its outcome is the page: fresh, or not.
        drop(tokio::time::timeout(PAGE_LIMIT, pages.changed()).await);
        pages.borrow().clone()
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
                    let flow = flow.clone();
                    async move {
                        HttpResponse::Ok()
                            .content_type("application/json")
                            .body(flow.get().await)
                    }
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
