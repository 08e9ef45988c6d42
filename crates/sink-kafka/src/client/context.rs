//! What librdkafka says besides its answers.

use std::sync::{Mutex, PoisonError};

use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use crate::config::KafkaSinkConfig;
use crate::error::KafkaSinkError;

/// The last trouble of a client, to explain why it has no answer.
#[derive(Default)]
pub(crate) struct Trouble(Mutex<Option<(RDKafkaErrorCode, String)>>);

impl Trouble {
    pub(crate) fn note(&self, code: RDKafkaErrorCode, reason: &str) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // That all brokers are down is the consequence, not the cause.
        if code != RDKafkaErrorCode::AllBrokersDown || last.is_none() {
            *last = Some((code, reason.to_owned()));
        }
    }

    pub(crate) fn forget(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// The error of a client that could not do anything.
    pub(crate) fn explain(&self, config: &KafkaSinkConfig, otherwise: &KafkaError) -> KafkaSinkError {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let brokers = config.brokers.join(",");
        match last {
            Some((RDKafkaErrorCode::Authentication | RDKafkaErrorCode::SaslAuthenticationFailed, reason)) => {
                KafkaSinkError::Login { reason }
            }
            // A handshake that is cut is an outage.
            Some((RDKafkaErrorCode::SSL, reason)) if !reason.contains("Disconnected") => {
                KafkaSinkError::Tls { reason }
            }
            Some((_, reason)) => KafkaSinkError::Unreachable { brokers, reason },
            None => KafkaSinkError::Unreachable {
                brokers,
                reason: otherwise.to_string(),
            },
        }
    }
}

/// Facilities of librdkafka's log that are no news.
const QUIET: [&str; 3] = ["FAIL", "ERROR", "CONFWARN"];

/// A line of librdkafka's log.
pub(crate) fn log(level: RDKafkaLogLevel, facility: &str, message: &str) {
    match level {
        RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical => {
            tracing::error!(facility, "librdkafka: {message}");
        }
        // Lost connections are told once, by the sink; properties that concern
        // another kind of client are given to all.
        RDKafkaLogLevel::Error | RDKafkaLogLevel::Warning if QUIET.contains(&facility) => {
            tracing::debug!(facility, "librdkafka: {message}");
        }
        RDKafkaLogLevel::Error | RDKafkaLogLevel::Warning => {
            tracing::warn!(facility, "librdkafka: {message}");
        }
        _ => tracing::debug!(facility, "librdkafka: {message}"),
    }
}

/// The context of a client that asks.
#[derive(Default)]
pub(crate) struct AskContext {
    pub(crate) trouble: Trouble,
}

impl ClientContext for AskContext {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        if let KafkaError::Global(code) = error {
            self.trouble.note(code, reason);
        }
    }
}

impl rdkafka::consumer::ConsumerContext for AskContext {}
